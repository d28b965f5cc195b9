"""The job that is planned for, and how large its streams are."""

from math import ceil
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.mistakes import describe_mistake
from iswitch.plan.topology.records import Number, PositiveWhole, Record, Whole, as_written

__all__ = ["Job", "JobSettings"]


class JobSettings(Record):
    """Attributes that a topology may give for its job; see `Job`."""

    return_path: Annotated[Literal["multicast", "unicast", "none"], BeforeValidator(as_written)] = "multicast"
    payload_bytes: Annotated[Whole, Field(gt=0, le=65536, multiple_of=4)] = 704
    overhead_bytes: Annotated[Whole, Field(ge=0, le=65536)] = 88
    uplink_bytes_per_element: Annotated[Whole, Field(ge=4, le=64)] = 8
    round_trip_us: Annotated[Number, Field(ge=0, le=1e9)] = 50.0
    gradient_bytes: Annotated[Whole, Field(ge=0, le=10**15)] = 0
    max_trees: PositiveWhole | None = None
    max_slots: PositiveWhole | None = None


class Job(JobSettings):
    """The job that is planned for.

    A worker whose gradient leaves at r Gb/s of payload puts r x `gradient_size` on its cable. The partial sum that a
    switch makes of it takes r x `partial_size`, the result r x `result_size`.

    Parameters
    ----------
    return_path : {"multicast", "unicast", "none"}
        multicast: results return along the tree; each switch sends them to the members that it summed.
        unicast: the root sends each worker a copy of its own.
        none: the return of results is not planned, as in most papers.
    payload_bytes : int
        Bytes of 4-byte elements in a segment. The default is the most whose partial sums fit an Ethernet frame.
    overhead_bytes : int
        Bytes that a segment adds on a cable: 64 of headers, 4 of FCS, 20 of preamble and gap.
    uplink_bytes_per_element : int
        Bytes of an element of a partial sum; 8, since partial sums travel unrounded.
    round_trip_us : float
        Microseconds from sending a segment to receiving its result, with the wait for the slowest worker. A segment
        occupies a slot for that long.
    gradient_bytes : int
        Bytes of a gradient, for the time of an iteration; 0: unknown.
    max_trees : int, optional
        Most trees of a plan.
    max_slots : int, optional
        Most slots that the trees of a plan may reserve at any switch, see `slots_in_flight`.

    Raises
    ------
    TopologyError
        If a setting is unknown or not allowed.
    """

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            mistake = error.errors()[0]
            text = describe_mistake(mistake, "the job", JobSettings.model_fields, repr(mistake["input"]))
            raise TopologyError(text, ("job", mistake["loc"][0])) from error

    @property
    def gradient_size(self) -> float:
        """Gb/s on a cable for 1 Gb/s of gradient payload."""
        return 1 + self.overhead_bytes / self.payload_bytes

    @property
    def partial_size(self) -> float:
        """Gb/s on a cable for a partial sum of gradients of 1 Gb/s."""
        return self.uplink_bytes_per_element / 4 + self.overhead_bytes / self.payload_bytes

    @property
    def result_size(self) -> float:
        """Gb/s on a cable for results of 1 Gb/s; 0 if their return is not planned."""
        return self.gradient_size if self.return_path != "none" else 0.0

    @property
    def multicast(self) -> bool:
        """True if results take the paths of gradients backwards."""
        return self.return_path == "multicast"

    @property
    def unicast(self) -> bool:
        """True if results take paths of their own."""
        return self.return_path == "unicast"

    @property
    def is_limited(self) -> bool:
        """True if plans of several trees have a limit that is not linear: on their trees, or on whole slots."""
        return self.max_trees is not None or self.max_slots is not None

    def slots_in_flight(self, rate_gbps: float) -> int:
        """Return the slots that a tree of this rate reserves at each switch where it sums: whole ones, at least 1."""
        return max(ceil(rate_gbps * self.round_trip_us / (self.payload_bytes * 8e-3) - 1e-9), 1)

    def slots_gbps(self, slots: int) -> float:
        """Return the Gb/s of gradient payload at which the segments in flight fill `slots` slots."""
        return slots * self.payload_bytes * 8e-3 / self.round_trip_us if self.round_trip_us else float("inf")
