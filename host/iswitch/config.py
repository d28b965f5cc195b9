"""The build parameters of a switch.

Gateware, golden models and planner share these records, which depend on `iswitch.wire` alone. They are not part of it,
because most parameters never appear on the wire. What a driver reads from a switch's registers is its `SwitchInfo`
(`iswitch.control.switch_info`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iswitch.wire import FRAME_BYTES, STALENESS_MAX, longest_frame_bytes, uplink_elements
from iswitch.wire.replay import PAYLOAD_BYTES, SAMPLES_PER_FRAGMENT, UNIT_BYTES

__all__ = ["ELEMENT_BYTES_MAX", "JOBS_MAX", "MEMBERS_MAX", "PORTS_MAX", "Config", "Replay"]

PORTS_MAX = 16
"""The most ports of a switch."""

MEMBERS_MAX = 32
"""The most members of a job: the ranks of a frame are bits of a 32-bit word."""

JOBS_MAX = 16
"""The most jobs of a switch."""

ELEMENT_BYTES_MAX = 8900
"""The most bytes of a segment's elements."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Build parameters of the replay service.

    Parameters
    ----------
    tables : int
        Number of tables, 1 to 4.
    capacity : int
        Items of a table, a power of two from 16 to 2^20.
    priority_bits : int
        Bits of an item's priority, 4 to 32.
    sample_count_bits : int
        Bits of an item's sample count, 0 to 16; with 0 the service does not count.
    sessions : int
        Clients at a time, 2 to 32.
    cached_answers : int
        Replies of each session in the reply cache, a power of two from 1 to 16.
    samples_per_request : int
        The most samples in one request, a power of two from 16 to 2048.
    record_bytes : int
        Memory of an item, a power of two from 64 to 1024.
    log_bytes : int
        Memory of a session's log, a power of two from 4096 to 2^30.
    request_bytes : int
        Memory of the queue of requests, a power of two from 4096 to 2^20. It is rounded up to whole bus words for each
        request.
    single_copy : bool
        If True, the service stores priorities once instead of twice, and an update waits for the samples before it.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """

    tables: int = 1
    capacity: int = 1 << 17
    priority_bits: int = 27
    sample_count_bits: int = 8
    sessions: int = 8
    cached_answers: int = 4
    samples_per_request: int = 512
    record_bytes: int = 64
    log_bytes: int = 1 << 20
    request_bytes: int = 32768
    single_copy: bool = False

    def __post_init__(self) -> None:
        def require(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ValueError(f"Replay {name} must be {rule}, not {getattr(self, name)!r}")

        def is_power(value: int, least: int, most: int) -> bool:
            return least <= value <= most and not value & (value - 1)

        require(1 <= self.tables <= 4, "tables", "1 to 4")
        require(is_power(self.capacity, 16, 1 << 20), "capacity", "a power of two from 16 to 2^20")
        require(4 <= self.priority_bits <= 32, "priority_bits", "4 to 32")
        require(self.sample_count_bits in range(17), "sample_count_bits", "0 to 16")
        require(2 <= self.sessions <= 32, "sessions", "2 to 32")
        require(is_power(self.cached_answers, 1, 16), "cached_answers", "a power of two from 1 to 16")
        require(is_power(self.samples_per_request, 16, 2048), "samples_per_request", "a power of two from 16 to 2048")
        require(
            is_power(self.record_bytes, UNIT_BYTES, 1024), "record_bytes", f"a power of two from {UNIT_BYTES} to 1024"
        )
        require(is_power(self.log_bytes, 4096, 1 << 30), "log_bytes", "a power of two from 4096 to 2^30")
        require(is_power(self.request_bytes, 4096, 1 << 20), "request_bytes", "a power of two from 4096 to 2^20")
        require(isinstance(self.single_copy, bool), "single_copy", "True or False")

    @property
    def log_units(self) -> int:
        """Units of `UNIT_BYTES` in the log of a session."""
        return self.log_bytes // UNIT_BYTES

    @property
    def records(self) -> int:
        """The most records in a DATA frame."""
        return PAYLOAD_BYTES // self.record_bytes

    @property
    def fragments(self) -> int:
        """ANSWER frames for the largest SAMPLE."""
        return -(-self.samples_per_request // SAMPLES_PER_FRAGMENT)

    @property
    def memory_bytes(self) -> int:
        """Memory of the service: all records, table by table, then all logs, session by session."""
        return self.tables * self.capacity * self.record_bytes + self.sessions * self.log_bytes


@dataclass(frozen=True, kw_only=True)
class Config:
    """Build parameters of one switch. Only `hw/switch.py` takes them as one object; its parts take plain numbers.

    Parameters
    ----------
    ports : int
        1 to 16. A switch with one port has all stations behind an ordinary switch there.
    bus_bits : int
        Width of the datapath: 64, 256 or 512.
    members : int
        Workers that a job can hold, 2 to 32.
    jobs : int
        Jobs that the switch can hold, a power of two from 2 to 16.
    window : int
        Segments that a worker may have in flight, a power of two from 1 to 4096. A job's ring has twice as many slots.
    elements : int
        The most 4-byte elements in a segment: a whole number of bus words, at most 8,900 bytes.
    queue_bytes : int
        Memory of each queue of a port (ingress, results, ordinary frames): a power of two that holds at least two of
        the longest frames.
    mac_entries : int
        MAC addresses whose port the switch can record, a power of two from 64 to 65536.
    flood_interval_us : int
        Microseconds for each frame that a port may flood (broadcast, multicast, unknown station), on average: a power
        of two from 1 to 65536, or 0 for no limit. A port may flood 992 frames at once.
    staleness : int
        The largest staleness of an asynchronous job, 0 to 7; with 0 the switch has no asynchronous jobs.
    uplinks : bool
        If True, the switch can be part of a tree of switches.
    half_width : bool
        If True, jobs can have the number formats with elements of 2 bytes, `bf16` and `fp16`.
    replay : Replay, optional
        Parameters of the replay service. Default: the switch has none.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """

    ports: int = 4
    bus_bits: int = 256
    members: int = 8
    jobs: int = 8
    window: int = 64
    elements: int = 352
    queue_bytes: int = 16384
    mac_entries: int = 4096
    flood_interval_us: int = 1024
    staleness: int = STALENESS_MAX
    uplinks: bool = True
    half_width: bool = False
    replay: Replay | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Config":
        """Return the configuration of which `dataclasses.asdict` has made a dict, also after a conversion to JSON and
        back."""
        replay = fields.get("replay")
        return cls(**{**fields, "replay": replay and Replay(**replay)})

    def __post_init__(self) -> None:
        def require(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ValueError(f"Config {name} must be {rule}, not {getattr(self, name)!r}")

        require(1 <= self.ports <= PORTS_MAX, "ports", f"1 to {PORTS_MAX}")
        require(self.bus_bits in (64, 256, 512), "bus_bits", "64, 256 or 512")
        require(2 <= self.members <= MEMBERS_MAX, "members", f"2 to {MEMBERS_MAX}")
        require(
            2 <= self.jobs <= JOBS_MAX and not self.jobs & (self.jobs - 1),
            "jobs",
            f"a power of two from 2 to {JOBS_MAX}",
        )
        require(
            1 <= self.window <= 4096 and not self.window & (self.window - 1), "window", "a power of two from 1 to 4096"
        )
        require(
            0 < self.elements * 4 <= ELEMENT_BYTES_MAX and self.elements * 32 % self.bus_bits == 0,
            "elements",
            f"a whole number of {self.bus_bits}-bit words of at most {ELEMENT_BYTES_MAX:,} bytes",
        )
        require(
            not self.queue_bytes & (self.queue_bytes - 1) and self.queue_bytes >= 2 * (self.frame_bytes_max + 64),
            "queue_bytes",
            f"a power of two of at least {2 * (self.frame_bytes_max + 64)}",
        )
        require(
            64 <= self.mac_entries <= 65536 and not self.mac_entries & (self.mac_entries - 1),
            "mac_entries",
            "a power of two from 64 to 65536",
        )
        require(
            self.flood_interval_us == 0
            or 1 <= self.flood_interval_us <= 65536
            and not self.flood_interval_us & (self.flood_interval_us - 1),
            "flood_interval_us",
            "0 or a power of two from 1 to 65536",
        )
        require(0 <= self.staleness <= STALENESS_MAX, "staleness", f"0 to {STALENESS_MAX}")
        require(isinstance(self.uplinks, bool), "uplinks", "True or False")
        require(isinstance(self.half_width, bool), "half_width", "True or False")
        require(self.replay is None or isinstance(self.replay, Replay), "replay", "a Replay or None")

    @property
    def bus_bytes(self) -> int:
        """Bytes of a bus word."""
        return self.bus_bits // 8

    @property
    def lanes(self) -> int:
        """32-bit elements in a bus word."""
        return self.bus_bits // 32

    @property
    def header_words(self) -> int:
        """Bus words before the payload."""
        return FRAME_BYTES // self.bus_bytes

    @property
    def segment_words(self) -> int:
        """Bus words of the largest payload."""
        return self.elements // self.lanes

    @property
    def queue_words(self) -> int:
        """Bus words in each of a port's queues."""
        return self.queue_bytes // self.bus_bytes

    @property
    def slots(self) -> int:
        """Slots of one job's ring."""
        return 2 * self.window

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame that a port accepts, without its FCS: at least an MTU of 1,500 bytes with a VLAN tag."""
        return longest_frame_bytes(self.elements)

    @property
    def uplink_elements(self) -> int:
        """The most elements in a segment of a job in a tree of switches: an uplink carries 8 bytes for each."""
        return uplink_elements(self.elements)
