"""A transport that a test plays by hand, on a clock of its own, and frames of a switch that is not there."""

from collections.abc import Callable, Iterable

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.wire import HEADER, RESULT_HEADER, TAIL, Format, Mode, Reason, Type, result_identity, version_type

__all__ = [
    "ELEMENTS",
    "MEMBER",
    "WINDOW",
    "Clock",
    "Script",
    "Timed",
    "flags",
    "index",
    "notice",
    "result",
    "result_at",
]

ELEMENTS, WINDOW = 4, 8
MEMBER = Membership(
    job=1,
    key=0,
    world=2,
    threshold=2,
    format=Format.WINDOW64,
    fraction=44,
    elements=ELEMENTS,
    mode=Mode.QUARANTINE,
    nonce=1,
    wanted=0,
    member=1,
    token=0xABCD,
    job_token=0x5EED,
    epoch=7,
    window=WINDOW,
    first_seq=2**32 - 5,
)
"""Rank 1 of two. The seq wraps at its sixth segment."""


class Clock:
    """The clock of a transport. A wait lasts as long as it may, or until something is due, and nothing else takes
    time."""

    def __init__(self) -> None:
        self.time, self.waits = 100.0, 0

    def now(self) -> float:
        return self.time

    def pass_until(self, due: float, timeout_s: float) -> None:
        """Wait until a time, but at most `timeout_s` seconds."""
        self.waits += 1
        assert self.waits < 10_000, "the driver waits without end"
        self.time = max(self.time, min(due, self.time + max(0.0, timeout_s)))


class Script(Clock):
    """Answers each datagram, and keeps the headers.

    Parameters
    ----------
    answer : callable
        Receives the header and the payload of a datagram, and returns the bursts that answer it. Default: nothing does.

    Attributes
    ----------
    waiting : list
        Bursts to receive: a datagram, or a list of datagrams.
    sent : list of numpy.void
        The header of each datagram.
    """

    def __init__(self, answer: Callable[[np.void, bytes], Iterable] = lambda header, payload: ()):
        super().__init__()
        self.answer = answer
        self.waiting: list[bytes | list[bytes]] = []
        self.sent: list[np.void] = []

    def burst_segments(self, segment_bytes: int) -> int:
        return 3

    def send(self, burst, segment_bytes: int) -> None:
        for at in range(0, len(burst), segment_bytes):
            datagram = bytes(burst[at : at + segment_bytes])
            header = np.frombuffer(datagram, HEADER, 1)[0]
            self.sent.append(header)
            assert len(self.sent) < 10_000, "the driver sends without end"
            self.waiting += self.answer(header, datagram[HEADER.itemsize :])

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if not self.waiting:
            self.pass_until(np.inf, timeout_s)
            return 0, 0
        burst = self.waiting.pop(0)
        datagrams = [burst] if isinstance(burst, bytes) else burst
        joined = b"".join(datagrams)
        into[: len(joined)] = joined
        return len(joined), len(datagrams[0])


class Timed(Script):
    """Keeps the time of each datagram, too."""

    def __init__(self, *answer: Callable[[np.void, bytes], Iterable]):
        super().__init__(*answer)
        self.times: list[float] = []

    def send(self, burst, segment_bytes: int) -> None:
        super().send(burst, segment_bytes)
        self.times += [self.time] * (len(self.sent) - len(self.times))

    @property
    def pauses(self) -> np.ndarray:
        """Seconds between one datagram and the next."""
        return np.diff(self.times)


def result(header: np.void, payload: bytes, identity: int | None = None, **fields: int) -> bytes:
    """Return the result that answers a contribution, with some fields of its header changed."""
    made = np.zeros(1, RESULT_HEADER)
    for name in ("job", "epoch", "seq"):
        made[name] = header[name]
    made["version_type"] = version_type(Type.RESULT)
    made["format_flags"] = header["format_flags"] & 15
    made["members"], made["member"], made["token"] = 3, 255, MEMBER.job_token
    for name, value in fields.items():
        made[name] = value
    tail = np.zeros(1, TAIL)
    own = result_identity(int(header["members"]), int(header["count"]))
    tail["identity"] = own if identity is None else identity
    return made.tobytes() + payload + tail.tobytes()


def result_at(position: int, payload: bytes = bytes(4 * ELEMENTS), **fields: int) -> bytes:
    """Return a result to which `MEMBER` has not contributed."""
    header = np.zeros(1, HEADER)[0]
    header["job"], header["epoch"] = MEMBER.job, MEMBER.epoch
    header["seq"], header["format_flags"] = (MEMBER.first_seq + position) % 2**32, MEMBER.format
    return result(header, payload, **fields)


def notice(header: np.void, **fields: int) -> bytes:
    """Return a NOTICE about a frame, with some fields changed."""
    made = np.zeros(1, HEADER)
    made[0] = header
    made["version_type"], made["count"], made["format_flags"] = version_type(Type.NOTICE), Reason.MEMBER, 0
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


def flags(header: np.void) -> int:
    """Return the flags in a header."""
    return int(header["format_flags"]) >> 4


def index(header: np.void) -> int:
    """Return the position that a header names."""
    return (int(header["seq"]) - MEMBER.first_seq) % 2**32
