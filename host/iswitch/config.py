"""What one switch is built with: ports, bus, members, window, replay. Read back from the switch's own registers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iswitch.wire import FRAME_BYTES, STALENESS_MAX, TAIL_BYTES, UPLINK_TAIL
from iswitch.wire.replay import PAYLOAD_BYTES, SAMPLES_PER_FRAGMENT, UNIT_BYTES

__all__ = ["Config", "Replay"]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Parameters of the replay service.

    tables: 1 to 4. capacity: items of each, a power of two from 16 to 2^20. priority_bits: of an item, 4 to 32.
    times_bits: of how often an item was drawn; 0: nothing counts it. sessions: clients at a time, 2 to 32. kept: last
    answers of each session that can be repeated, a power of two. draws: the most in one request. record_bytes: of an
    item in memory, a power of two. log_bytes: of each session in memory, a power of two. phased: priorities are stored
    once, not twice, and an update waits for the draws before it.
    """

    tables: int = 1
    capacity: int = 1 << 17
    priority_bits: int = 27
    times_bits: int = 8
    sessions: int = 8
    kept: int = 4
    draws: int = 512
    record_bytes: int = 64
    log_bytes: int = 1 << 20
    phased: bool = False

    def __post_init__(self) -> None:
        def demand(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ValueError(f"Replay {name} must be {rule}, not {getattr(self, name)!r}")

        def power(value: int, least: int, most: int) -> bool:
            return least <= value <= most and not value & (value - 1)

        demand(1 <= self.tables <= 4, "tables", "1 to 4")
        demand(power(self.capacity, 16, 1 << 20), "capacity", "a power of two from 16 to 2^20")
        demand(4 <= self.priority_bits <= 32, "priority_bits", "4 to 32")
        demand(self.times_bits in range(17), "times_bits", "0 to 16")
        demand(2 <= self.sessions <= 32, "sessions", "2 to 32")
        demand(power(self.kept, 1, 16), "kept", "a power of two from 1 to 16")
        demand(power(self.draws, 16, 2048), "draws", "a power of two from 16 to 2048")
        demand(power(self.record_bytes, UNIT_BYTES, 1024), "record_bytes", f"a power of two from {UNIT_BYTES} to 1024")
        demand(power(self.log_bytes, 4096, 1 << 30), "log_bytes", "a power of two from 4096 to 2^30")
        demand(isinstance(self.phased, bool), "phased", "True or False")

    @property
    def log_units(self) -> int:
        """Units in the log of a session."""
        return self.log_bytes // UNIT_BYTES

    @property
    def records(self) -> int:
        """Records in a DATA frame, at most."""
        return PAYLOAD_BYTES // self.record_bytes

    @property
    def fragments(self) -> int:
        """ANSWER frames of the largest SAMPLE."""
        return -(-self.draws // SAMPLES_PER_FRAGMENT)

    @property
    def memory_bytes(self) -> int:
        """All records, table by table, then all logs, session by session."""
        return self.tables * self.capacity * self.record_bytes + self.sessions * self.log_bytes


@dataclass(frozen=True, kw_only=True)
class Config:
    """Parameters of one switch, whole at `hw/switch.py` only.

    ports: 1 to 16; with one, all stations are behind an ordinary switch there. bus_bits: 64, 256 or 512. members:
    workers a job can hold, 2 to 32. jobs: at least 2. window: segments a worker may have in flight, a power of two; the
    ring has twice as many slots. elements: the most 4-byte elements in a segment; a whole number of bus words.
    accumulator_bits: width of a window64 accumulator. queue_bytes: memory of each of a port's queues (ingress, results,
    ordinary), a power of two that holds at least two of the longest frames. mac_entries: MAC addresses of which the
    switch can know the port, a power of two from 64 to 65536. staleness: the most that an asynchronous job can allow;
    0: the switch has no asynchronous jobs. uplinks: the switch can be part of a tree of switches. replay: what its
    replay service is built with, if it has one.
    """

    ports: int = 4
    bus_bits: int = 256
    members: int = 8
    jobs: int = 8
    window: int = 64
    elements: int = 352
    accumulator_bits: int = 64
    queue_bytes: int = 16384
    mac_entries: int = 4096
    staleness: int = STALENESS_MAX
    uplinks: bool = True
    replay: Replay | None = None

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> "Config":
        """From what `dataclasses.asdict` made of one, by way of JSON too."""
        replay = described.get("replay")
        return cls(**{**described, "replay": replay and Replay(**replay)})

    def __post_init__(self) -> None:
        def demand(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ValueError(f"Config {name} must be {rule}, not {getattr(self, name)!r}")

        demand(1 <= self.ports <= 16, "ports", "1 to 16")
        demand(self.bus_bits in (64, 256, 512), "bus_bits", "64, 256 or 512")
        demand(2 <= self.members <= 32, "members", "2 to 32")
        demand(2 <= self.jobs <= 16 and not self.jobs & (self.jobs - 1), "jobs", "a power of two from 2 to 16")
        demand(
            1 <= self.window <= 4096 and not self.window & (self.window - 1), "window", "a power of two from 1 to 4096"
        )
        demand(
            0 < self.elements * 4 <= 8900 and self.elements * 32 % self.bus_bits == 0,
            "elements",
            f"a whole number of {self.bus_bits}-bit words of at most 8,900 bytes",
        )
        demand(self.accumulator_bits == 64, "accumulator_bits", "64")
        demand(
            not self.queue_bytes & (self.queue_bytes - 1) and self.queue_bytes >= 2 * (self.frame_bytes_max + 64),
            "queue_bytes",
            f"a power of two of at least {2 * (self.frame_bytes_max + 64)}",
        )
        demand(
            64 <= self.mac_entries <= 65536 and not self.mac_entries & (self.mac_entries - 1),
            "mac_entries",
            "a power of two from 64 to 65536",
        )
        demand(0 <= self.staleness <= STALENESS_MAX, "staleness", f"0 to {STALENESS_MAX}")
        demand(isinstance(self.uplinks, bool), "uplinks", "True or False")
        demand(self.replay is None or isinstance(self.replay, Replay), "replay", "a Replay or None")

    @property
    def bus_bytes(self) -> int:
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
        """Longest frame a port accepts, without its FCS; at least an ordinary 1,500-byte MTU with a VLAN tag."""
        return max(1518, FRAME_BYTES + 4 * self.elements + TAIL_BYTES)

    @property
    def uplink_elements(self) -> int:
        """The most elements in a segment of a job in a tree, whose uplinks spend 8 bytes on each."""
        return min(self.elements, (self.frame_bytes_max - FRAME_BYTES - UPLINK_TAIL.itemsize) // 8)
