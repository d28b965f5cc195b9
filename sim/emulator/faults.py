"""Faults of a wire: frames lost, duplicated, reordered, corrupted, delayed. Seeded, for each port and direction."""

import heapq
import random
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

__all__ = ["DIRECTIONS", "HOLD_US", "PROBABILITIES", "PS_PER_US", "Faults", "Passed", "Rates", "parse_faults"]

PS_PER_US = 1_000_000
"""Times on wires are in picoseconds: whole numbers for the bits of every Ethernet and the cycles of most clocks."""
DIRECTIONS = ("rx", "tx")
"""Directions as the switch sees them: rx enters the switch, tx leaves it."""
PROBABILITIES = {
    "loss": "losing a frame",
    "duplicate": "sending a frame twice",
    "reorder": "letting later frames overtake a frame",
    "corrupt": "flipping a bit of a frame so that the FCS detects it",
    "silent_corrupt": "flipping a bit of a frame so that the FCS does not detect it",
}
"""What the probabilities of `Rates` mean, for help texts: "probability of ..."."""
HOLD_US = 1000
"""The longest time for which a frame waits for others to overtake it."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Probabilities from 0 to 1 for each frame, a delay for all frames, and how far frames overtake each other.

    Attributes
    ----------
    loss : float
        The frame is lost.
    duplicate : float
        The frame arrives twice.
    reorder : float
        1 to `overtakers` later frames overtake the frame.
    corrupt : float
        A bit is flipped and the frame is marked, as after a bad FCS.
    silent_corrupt : float
        A bit is flipped without a mark, as in the memory of a switch on the path.
    delay_us : float
        Delay of every frame in microseconds.
    overtakers : float
        The most frames that overtake one frame, a whole number.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    silent_corrupt: float = 0.0
    delay_us: float = 0.0
    overtakers: float = 3

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "delay_us":
                if value < 0:
                    raise ValueError(f"delay_us must not be negative, not {value!r}")
            elif field.name == "overtakers":
                if value < 1 or value % 1:
                    raise ValueError(f"overtakers must be a whole number of frames from 1 on, not {value!r}")
            elif not 0 <= value <= 1:
                raise ValueError(f"{field.name} must be 0 to 1, not {value!r}")


class Passed(NamedTuple):
    """A frame that has come through; `error` is True if its FCS is bad."""

    data: bytes
    error: bool


@dataclass(order=True)
class _Waiting:
    due_ps: int
    serial: int
    passed: Passed
    overtakers: int = 0
    """Number of frames that still have to overtake this one."""


class Faults:
    """The faults of one direction of a wire: `put` frames in, `take` those that have come through by now.

    Seed, port, direction and n alone decide what happens to the n-th frame, however fast frames come. Only the time for
    which a frame waits to be overtaken depends on the clock.
    """

    def __init__(self, rates: Rates, *, seed: int = 0, port: int = 0, direction: str = "rx"):
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be rx or tx, not {direction!r}")
        self.rates = rates
        self.active = rates != Rates()
        self.delay_ps = round(rates.delay_us * PS_PER_US)
        self.counts = dict.fromkeys(("loss", "duplicate", "reorder", "corrupt", "silent_corrupt"), 0)
        self._random = random.Random(f"{seed}/{port}/{direction}")
        self._serial = 0
        self._waiting: list[_Waiting] = []  # a heap by due time
        self._held: list[_Waiting] = []

    @classmethod
    def none(cls) -> Self:
        """Return the faults of a perfect wire: none."""
        return cls(Rates())

    def put(self, data: bytes, now_ps: int, error: bool = False) -> None:
        """Send a frame. Every frame uses the same number of random numbers, whatever happens to it."""
        chance, rates = self._random.random, self.rates
        lost, doubled, overtaken, damaged, silently = (
            chance() < rate
            for rate in (rates.loss, rates.duplicate, rates.reorder, rates.corrupt, rates.silent_corrupt)
        )
        where, overtakers = chance(), 1 + int(chance() * rates.overtakers)
        happened = {"loss": lost}
        if not lost:
            happened |= {
                "duplicate": doubled,
                "reorder": overtaken,
                "corrupt": damaged,
                "silent_corrupt": silently and not damaged,
            }
            if damaged or silently:
                data = _flipped(data, int(where * 8 * len(data)))
            passed = Passed(data, error or damaged)
            due_ps = now_ps + self.delay_ps
            for held in self._held:
                held.overtakers -= 1
            released = [held for held in self._held if not held.overtakers]
            self._held = [held for held in self._held if held.overtakers]
            if overtaken:
                self._held.append(_Waiting(due_ps + HOLD_US * PS_PER_US, 0, passed, overtakers))
            else:
                self._push(due_ps, passed)
            if doubled:
                self._push(due_ps, passed)
            for held in released:
                self._push(due_ps, held.passed)
        for name, did in happened.items():
            self.counts[name] += did

    def pop_due(self, now_ps: int) -> list[Passed]:
        """Return the frames that have come through by now, in the order of their arrival."""
        for held in [held for held in self._held if held.due_ps <= now_ps]:
            self._held.remove(held)
            self._push(held.due_ps, held.passed)
        through = []
        while self._waiting and self._waiting[0].due_ps <= now_ps:
            through.append(heapq.heappop(self._waiting).passed)
        return through

    @property
    def due_ps(self) -> int | None:
        """The time of the next `pop_due`, if a frame is in flight."""
        times = [held.due_ps for held in self._held] + [waiting.due_ps for waiting in self._waiting[:1]]
        return min(times, default=None)

    def _push(self, due_ps: int, passed: Passed) -> None:
        self._serial += 1
        heapq.heappush(self._waiting, _Waiting(due_ps, self._serial, passed))


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def parse_faults(base: Rates, given: list[str], ports: int) -> dict[tuple[int, str], Rates]:
    """Return the rates of every port and direction: `base`, changed by items like `0:rx:loss=0.01`."""
    rates = {(port, direction): base for port in range(ports) for direction in DIRECTIONS}
    kinds = [field.name for field in fields(Rates)]
    for item in given:
        try:
            place, value = item.split("=")
            port, direction, kind = place.replace("-", "_").split(":")
            key = (int(port), direction)
            if key not in rates or kind not in kinds:
                raise ValueError
            number = float(value)
        except ValueError:
            raise ValueError(
                f"a fault must be port:rx|tx:{'|'.join(kinds)}=value with a port below {ports}, not {item!r}"
            ) from None
        rates[key] = replace(rates[key], **{kind: number})
    return rates
