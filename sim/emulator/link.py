"""Cables between switches: their ports, rate, length and faults."""

from dataclasses import dataclass, fields

from sim.emulator.faults import Faults, Rates
from sim.emulator.wire import QUEUE_FRAMES, Wire

__all__ = ["Link", "Place", "parse_link", "parse_place"]

PERFECT = Rates()
Place = tuple[int, int]
"""A switch of a fabric and a port of that switch, both counted from 0."""


@dataclass(frozen=True)
class Link:
    """A cable between two ports, the same in both directions.

    `rate_bps` None is as fast as the switch sends. `rates` are the faults, with random numbers of their own in each
    direction; their `delay_us` is the cable's length. `queue_frames` is the number of frames that may wait for a busy
    cable.
    """

    one: Place
    other: Place
    rate_bps: float | None = None
    rates: Rates = PERFECT
    queue_frames: int = QUEUE_FRAMES

    def __post_init__(self) -> None:
        if self.one == self.other:
            raise ValueError(f"a link must join two ports, not {self.one[0]}:{self.one[1]} with itself")

    def wire(self, sender: Place, seed: int) -> Wire:
        """Return the wire of the direction that leaves `sender`; `seed` is the fabric's."""
        faults = Faults(self.rates, seed=seed + sender[0], port=sender[1], direction="tx")
        return Wire(faults, rate_bps=self.rate_bps, queue_frames=self.queue_frames)


def parse_place(given: str) -> Place:
    """Parse `switch:port`."""
    switch, colon, port = given.partition(":")
    if not (colon and switch.isdecimal() and port.isdecimal()):
        raise ValueError(f"a place must be switch:port, not {given!r}")
    return int(switch), int(port)


def parse_link(given: str) -> Link:
    """Parse `0:3-2:0,rate=1e9,delay_us=5,loss=0.01,queue=100`: two places, and the differences from a perfect cable."""
    ends, *settings = given.split(",")
    kinds = [field.name for field in fields(Rates)]
    numbers: dict[str, float] = {}
    try:
        one, other = map(parse_place, ends.split("-"))
        for setting in settings:
            name, value = setting.split("=")
            name = name.replace("-", "_")
            if name not in ("rate", "queue", *kinds):
                raise ValueError
            numbers[name] = float(value)
    except ValueError:
        raise ValueError(
            f"a link must be switch:port-switch:port, then any of ,rate=bits per second ,queue=frames "
            f"{' '.join(f',{kind}=value' for kind in kinds)}, not {given!r}"
        ) from None
    rate, queue = numbers.pop("rate", None), int(numbers.pop("queue", QUEUE_FRAMES))
    return Link(one, other, rate, Rates(**numbers), queue)
