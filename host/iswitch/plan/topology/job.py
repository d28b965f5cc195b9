"""The job that is planned for, and how large its streams are."""

from dataclasses import dataclass, fields
from math import isfinite

from iswitch.plan.topology.errors import TopologyError

__all__ = ["JOB_KEYS", "Job"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The one job that is planned for, and how large its streams are: a worker whose gradient leaves at r Gb/s of
    payload puts r x `gradient_size` on its cable, a switch's partial sum of it is r x `partial_size`, the result r x
    `result_size`.

    return_path: `multicast`: results go back along the tree, each switch sending them to those that it summed;
    `unicast`: the root sends each worker its own copy; `none`: the way back is not planned, as in most papers.
    payload_bytes: of a segment of 4-byte elements; the default is the most whose partial sums fit an Ethernet frame.
    overhead_bytes: of a segment on a cable beside its elements: 64 of headers, 4 of FCS, 20 of preamble and gap.
    uplink_bytes_per_element: 8, since partial sums travel unrounded. round_trip_us: from a segment's leaving to its
    result's being there, waiting for the slowest included; slots are held that long. gradient_bytes: of a whole
    gradient, to tell times.
    """

    return_path: str = "multicast"
    payload_bytes: int = 704
    overhead_bytes: int = 88
    uplink_bytes_per_element: int = 8
    round_trip_us: float = 50.0
    gradient_bytes: int = 0

    def __post_init__(self) -> None:
        def demand(good: bool, name: str, rule: str) -> None:
            if not good:
                raise TopologyError(f"{name} must be {rule}, not {getattr(self, name)!r}", ("job", name))

        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(field.default, str):
                demand(
                    isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value),
                    field.name,
                    "a number",
                )
            if isinstance(field.default, int):  # files may say 1e8
                demand(float(value).is_integer(), field.name, "a whole number")
                object.__setattr__(self, field.name, int(value))
        demand(self.return_path in ("multicast", "unicast", "none"), "return_path", "multicast, unicast or none")
        demand(self.payload_bytes > 0 and self.payload_bytes % 4 == 0, "payload_bytes", "whole 4-byte elements")
        demand(self.overhead_bytes >= 0, "overhead_bytes", "0 or more")
        demand(self.uplink_bytes_per_element >= 4, "uplink_bytes_per_element", "at least 4")
        demand(self.round_trip_us >= 0, "round_trip_us", "0 or more")
        demand(self.gradient_bytes >= 0, "gradient_bytes", "0 or more")

    @property
    def gradient_size(self) -> float:
        return 1 + self.overhead_bytes / self.payload_bytes

    @property
    def partial_size(self) -> float:
        return self.uplink_bytes_per_element / 4 + self.overhead_bytes / self.payload_bytes

    @property
    def result_size(self) -> float:
        return self.gradient_size if self.return_path != "none" else 0.0

    @property
    def multicast(self) -> bool:
        """Results take the ways of gradients, backwards."""
        return self.return_path == "multicast"

    @property
    def unicast(self) -> bool:
        """Results take ways of their own."""
        return self.return_path == "unicast"

    def slots_gbps(self, slots: int) -> float:
        """The fastest gradient whose segments in flight fit so many slots."""
        return slots * self.payload_bytes * 8e-3 / self.round_trip_us if self.round_trip_us else float("inf")


JOB_KEYS = {field.name: type(field.default) for field in fields(Job)}
