"""Where an ordinary frame goes: a table of addresses seen, and a learning bridge (IEEE 802.1D, 7.7 to 7.9)."""

from collections.abc import Iterable
from typing import NamedTuple

from iswitch.wire import Outcome

__all__ = ["BPDU", "MacTable", "destinations"]

WAYS = 4
TICK_US = 1 << 24
TICKS = 256
"""A time stamp counts ticks of 16.8 s modulo 256, which is once around `now_us`."""
LIFETIME_TICKS = 18
"""285 to 302 s; 802.1D recommends 300 s (7.9.2)."""

BPDU = bytes.fromhex("0180c2000000")
"""The address of spanning trees: the first of sixteen that no bridge with a spanning tree forwards (802.1D, 7.12.6)."""


class Entry(NamedTuple):
    """A station was last seen at a port in a tick."""

    mac: bytes
    port: int
    tick: int


def is_group(mac: bytes) -> bool:
    """Return whether an address is a group's."""
    return bool(mac[0] & 1)


class MacTable:
    """A set-associative table of stations: `entries` in sets of WAYS. An entry that aged out is as good as absent."""

    def __init__(self, entries: int) -> None:
        self.sets: list[list[Entry | None]] = [[None] * WAYS for _ in range(entries // WAYS)]
        self.tick = 0
        self.turn = 0
        """Where the search for the way of a new station begins: the number of learnt frames modulo WAYS."""

    def advance(self, now_us: int) -> None:
        """Advance to a time. Old entries age out at once, so a stamp 256 ticks old is never taken for a fresh one."""
        tick = now_us // TICK_US % TICKS
        if tick != self.tick:
            self.tick = tick
            self.sets = [
                [entry if entry and self.age(entry) < LIFETIME_TICKS else None for entry in ways] for ways in self.sets
            ]

    def age(self, entry: Entry) -> int:
        """Return the age of an entry in ticks."""
        return (self.tick - entry.tick) % TICKS

    def ways(self, mac: bytes) -> list[Entry | None]:
        """Return the set of an address. Its index is the exclusive or of the address's bits in groups of its length."""
        bits, rest, index = (len(self.sets) - 1).bit_length(), int.from_bytes(mac, "big"), 0
        while rest:
            index ^= rest % len(self.sets)
            rest >>= bits
        return self.sets[index]

    def port(self, mac: bytes) -> int | None:
        """Return the port of a station, or None if it is unknown."""
        return next((entry.port for entry in self.ways(mac) if entry and entry.mac == mac), None)

    def flush(self, port: int) -> None:
        """Remove the stations of a port, because its link is down."""
        self.sets = [[entry if entry and entry.port != port else None for entry in ways] for ways in self.sets]

    def learn(self, mac: bytes, port: int, own: bytes) -> None:
        """Record that a station sent a frame into a port. Group addresses, zero and the switch's own are not learnt.

        A new station takes a free way, or else a way of a port that has at least two more ways of the set than the
        station's own port, or else a way of its own port. Otherwise the station is not learnt. Of several such ways it
        takes the first from way `turn` on, in a circle.
        """
        if is_group(mac) or mac in (bytes(6), own):
            return
        self.turn = (self.turn + 1) % WAYS
        ways = self.ways(mac)
        holders = [None if entry is None else entry.port for entry in ways]
        known = [way for way, entry in enumerate(ways) if entry is not None and entry.mac == mac]
        free = [way for way in range(WAYS) if holders[way] is None]
        crowded = [way for way in range(WAYS) if holders.count(holders[way]) >= holders.count(port) + 2]
        same = [way for way in range(WAYS) if holders[way] == port]
        candidates = known or free or crowded or same
        if candidates:
            ways[min(candidates, key=lambda way: (way - self.turn) % WAYS)] = Entry(mac, port, self.tick)


def destinations(table: MacTable, mac: bytes, ingress: int, ports: Iterable[int]) -> tuple[Outcome, list[int]]:
    """Return the outcome of an ordinary frame to `mac` that came in by `ingress`, and its egress ports in order.

    `ports` are those whose link is up. The switch has no spanning tree, so BPDUs pass through it, and its neighbours'
    spanning trees see a loop that leads through it. The other reserved addresses are not forwarded.
    """
    if mac[:5] == BPDU[:5] and 0 < mac[5] < 16:
        return Outcome.RESERVED, []
    known = table.port(mac)
    if known == ingress:
        return Outcome.FILTERED, []
    return Outcome.ORDINARY, [port for port in ports if port != ingress and known in (None, port)]
