"""What one switch is built with: ports, bus, members, window. Read back from the switch's own registers."""

from dataclasses import dataclass

from iswitch.wire import FRAME_BYTES, STALENESS_MAX, TAIL_BYTES, UPLINK_TAIL

__all__ = ["Config"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Parameters of one switch, whole at `hw/switch.py` only.

    ports: 2 to 16. bus_bits: 64, 256 or 512. members: workers a job can hold, 2 to 32. jobs: at least 2.
    window: segments a worker may have in flight, a power of two; the ring has twice as many slots.
    elements: the most 4-byte elements in a segment; a whole number of bus words.
    accumulator_bits: width of a window64 accumulator. queue_bytes: memory of each of a port's queues (ingress, results,
    ordinary), a power of two that holds at least two of the longest frames. mac_entries: MAC addresses of which the
    switch can know the port, a power of two from 64 to 65536. staleness: the most that an asynchronous job can allow; 0: the
    switch has no asynchronous jobs. uplinks: the switch can be part of a tree of switches.
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

    def __post_init__(self) -> None:
        def demand(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ValueError(f"Config {name} must be {rule}, not {getattr(self, name)!r}")

        demand(2 <= self.ports <= 16, "ports", "2 to 16")
        demand(self.bus_bits in (64, 256, 512), "bus_bits", "64, 256 or 512")
        demand(2 <= self.members <= 32, "members", "2 to 32")
        demand(2 <= self.jobs <= 16 and not self.jobs & (self.jobs - 1), "jobs", "a power of two from 2 to 16")
        demand(1 <= self.window <= 4096 and not self.window & (self.window - 1), "window",
               "a power of two from 1 to 4096")
        demand(0 < self.elements * 4 <= 8900 and self.elements * 32 % self.bus_bits == 0, "elements",
               f"a whole number of {self.bus_bits}-bit words of at most 8,900 bytes")
        demand(self.accumulator_bits == 64, "accumulator_bits", "64")
        demand(not self.queue_bytes & (self.queue_bytes - 1) and self.queue_bytes >= 2 * (self.frame_bytes_max + 64),
               "queue_bytes", f"a power of two of at least {2 * (self.frame_bytes_max + 64)}")
        demand(64 <= self.mac_entries <= 65536 and not self.mac_entries & (self.mac_entries - 1), "mac_entries",
               "a power of two from 64 to 65536")
        demand(0 <= self.staleness <= STALENESS_MAX, "staleness", f"0 to {STALENESS_MAX}")
        demand(isinstance(self.uplinks, bool), "uplinks", "True or False")

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
