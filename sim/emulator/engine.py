"""One emulated board: frames in and out of a compiled switch, through the C interface of `board.cpp`."""

import ctypes
import json
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from iswitch.config import Config
from iswitch.wire import Outcome
from sim.emulator.compile import Design, library
from sim.frames.client import SWITCH_IP, SWITCH_MAC

__all__ = ["QUEUE_FRAMES", "Board", "BoardError", "Decision", "Frame", "Stamp"]

ABI = 5
QUEUE_FRAMES = 1024
RECEIVE_BYTES = 1 << 20
RECEIVE_FRAMES = 1024
TRACE_ENTRIES = 4096
VIOLATIONS = ("valid withdrawn", "word changed while waiting", "wrong byte count", "frame without an end")
_WATCH, _TRACE, _STAMPS, _ALL_CLOCKS = 1, 2, 4, 8
_TRUNCATED = 2

_SIGNATURES = {
    "isw_abi": (c_int, []),
    "isw_ports": (c_int, []),
    "isw_bus_bits": (c_int, []),
    "isw_config": (c_char_p, []),
    "isw_engine": (c_char_p, []),
    "isw_open": (c_void_p, [c_uint64, c_char_p, c_char_p]),
    "isw_operator_key": (None, [c_void_p, c_uint64]),
    "isw_close": (None, [c_void_p]),
    "isw_parent": (None, [c_void_p, c_int, c_int, c_char_p, c_char_p, c_uint32]),
    "isw_reset": (None, [c_void_p]),
    "isw_link": (None, [c_void_p, c_int, c_int]),
    "isw_limit": (None, [c_void_p, c_uint64]),
    "isw_flags": (None, [c_void_p, c_uint32]),
    "isw_send": (c_int, [c_void_p, c_int, c_char_p, c_uint32, c_int]),
    "isw_send_many": (c_int, [c_void_p, c_int, c_char_p, POINTER(c_uint32), c_char_p, c_int]),
    "isw_waiting": (c_int, [c_void_p, c_int, c_int]),
    "isw_run": (c_uint64, [c_void_p, c_uint64, c_uint32]),
    "isw_receive": (c_int, [c_void_p, c_int, c_void_p, c_uint32, POINTER(c_uint64), POINTER(c_uint64)]),
    "isw_receive_many": (c_int, [c_void_p, c_int, c_void_p, c_uint32, c_void_p, c_void_p, c_int]),
    "isw_sent_stamp": (c_int, [c_void_p, c_int, POINTER(c_uint64), POINTER(c_uint64)]),
    "isw_stall": (c_int, [c_void_p, c_int, c_int, c_uint64, c_uint32, c_uint64]),
    "isw_trace": (c_int, [c_void_p, c_void_p, c_int, POINTER(c_uint64)]),
    "isw_violations": (c_uint64, [c_void_p, c_int, c_int]),
    "isw_cycles": (c_uint64, [c_void_p]),
    "isw_wave": (c_int, [c_void_p, c_char_p]),
    "isw_coverage": (c_int, [c_void_p, c_char_p]),
}

_ENTRY = np.dtype(
    [("cycle", "<u8"), ("seq", "<u4"), ("outcome", "u1"), ("port", "u1"), ("job", "u1"), ("member", "u1")]
)


class BoardError(Exception):
    """The library was not built by this package, or the board is closed."""


class Frame(NamedTuple):
    """A frame that the switch sent, without FCS, and the cycles in which its first and last word left."""

    data: bytes
    first: int
    last: int


class Stamp(NamedTuple):
    """The cycles in which the first and the last word of a frame went into the switch."""

    first: int
    last: int


class Decision(NamedTuple):
    """What the core decided about one frame, and in which cycle."""

    cycle: int
    outcome: Outcome
    port: int
    job: int
    member: int
    seq: int


@cache
def _load(path: Path) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise BoardError(f"{path} is not the library of an emulated board: {error}") from error
    if loaded.isw_abi() != ABI:
        raise BoardError(
            f"{path} has interface version {loaded.isw_abi()}, but this package needs version {ABI}: compile it again"
        )
    return loaded


class Board:
    """One emulated switch. Boards are independent of each other, even those of one library.

    Parameters
    ----------
    engine : str
        "verilator" or "cxxrtl".
    seed : int
        Seed of the switch's own random numbers.
    operator_key : int
        A key that ends any job of the switch, and that its leaves and its parents must have, too; 0 for none.
    mac, ip : bytes
        The switch's addresses, in wire order.
    path : Path, optional
        A compiled library, which then decides about `config` and `engine`.
    watch : bool
        Check the handshakes of all outputs, and feed noise where no input is valid.
    stamps : bool
        Keep the times of frames that entered, for `stamp`.
    trace : bool
        Keep the core's decisions, for `trace`; at most about a million between two calls.
    waves : bool
        Build with waveforms, for `wave`.
    all_clocks : bool
        Let the clocks of idle parts run, too, which is slower and changes no frame.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        engine: str = "verilator",
        seed: int = 1,
        operator_key: int = 0,
        mac: bytes = SWITCH_MAC,
        ip: bytes = SWITCH_IP,
        path: Path | None = None,
        design: Design | None = None,
        watch: bool = False,
        stamps: bool = False,
        trace: bool = False,
        waves: bool = False,
        all_clocks: bool = False,
    ):
        self._context: int | None = None
        if len(mac) != 6:
            raise ValueError(f"Board mac must be 6 bytes, not {mac!r}")
        if len(ip) != 4:
            raise ValueError(f"Board ip must be 4 bytes, not {ip!r}")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"Board seed must be 0 to 2^64 - 1, not {seed!r}")
        if not 0 <= operator_key < 1 << 64:
            raise ValueError(f"Board operator_key must be 0 to 2^64 - 1, not {operator_key!r}")
        self.path = path or library(config or Config(), engine, waves, design=design)
        self._library = _load(self.path)
        self.config = Config.from_dict(json.loads(self._library.isw_config()))
        if config is not None and config != self.config:
            raise BoardError(f"{self.path} is a switch of {self.config}, not of {config}")
        self.engine: str = self._library.isw_engine().decode()
        self.mac, self.ip = mac, ip
        self._context = self._library.isw_open(seed, mac, ip)
        self._library.isw_operator_key(self._context, operator_key)
        self.limit(QUEUE_FRAMES)
        flags = watch * _WATCH | trace * _TRACE | stamps * _STAMPS | all_clocks * _ALL_CLOCKS
        self._library.isw_flags(self._context, flags)
        self._bytes = np.empty(RECEIVE_BYTES, np.uint8)
        self._lengths = np.empty(RECEIVE_FRAMES, np.uint32)
        self._times = np.empty((RECEIVE_FRAMES, 2), np.uint64)
        self._addresses = tuple(array.ctypes.data for array in (self._bytes, self._lengths, self._times))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Free the switch and all frames in it. Repeated calls have no effect."""
        if self._context is not None:
            self._library.isw_close(self._context)
            self._context = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._context is None

    @property
    def _open(self) -> int:
        if self._context is None:
            raise BoardError("the board is closed: make a new Board")
        return self._context

    def parent(self, job: int, *, port: int, mac: bytes, ip: bytes, ranks: int) -> None:
        """Make the switch a leaf in a job of a tree: the port that leads to its parent, the parent's addresses, and the
        global ranks below. Call it before any member joins."""
        if not 0 <= job < self.config.jobs:
            raise ValueError(f"parent job must be 0 to {self.config.jobs - 1}, not {job!r}")
        if len(mac) != 6 or len(ip) != 4:
            raise ValueError(f"parent mac and ip must be 6 and 4 bytes, not {mac!r} and {ip!r}")
        if not 0 < ranks < 1 << self.config.members:
            raise ValueError(f"parent ranks must be a set of ranks below {self.config.members}, not {ranks!r}")
        if not self.config.uplinks:
            raise ValueError("parent needs a switch built with uplinks=True")
        self._library.isw_parent(self._open, job, self._port(port), mac, ip, ranks)

    def _port(self, port: int) -> int:
        if not 0 <= port < self.config.ports:
            raise ValueError(f"port must be 0 to {self.config.ports - 1}, not {port!r}")
        return port

    def send(self, port: int, frame: bytes, error: bool = False, *, overflow: bool = False) -> bool:
        """Queue a frame, without FCS, to enter at a port; with `error`, as if its FCS were bad; with `overflow`, as if
        the MAC had truncated it for lack of room. Returns False if the queue is full: `run`, then try again."""
        damage = _TRUNCATED if overflow else int(error)
        done: int = self._library.isw_send(self._open, self._port(port), frame, len(frame), damage)
        if done < 0:
            raise ValueError(f"a frame must be 1 to 65536 bytes, not {len(frame)}")
        return bool(done)

    def send_many(self, port: int, frames: Sequence[bytes], errors: Sequence[bool] | None = None) -> int:
        """Queue frames until the queue is full, and return the number of accepted frames."""
        if not all(0 < len(frame) <= 65536 for frame in frames):
            raise ValueError("a frame must be 1 to 65536 bytes")
        lengths = (c_uint32 * len(frames))(*map(len, frames))
        taken: int = self._library.isw_send_many(
            self._open, self._port(port), b"".join(frames), lengths, bytes(errors or len(frames)), len(frames)
        )
        return taken

    def limit(self, frames: int) -> None:
        """Set how many frames may wait at each port to enter (default 1024)."""
        self._library.isw_limit(self._open, frames)
        self._limit = frames

    def waiting(self, port: int) -> int:
        """Return the number of frames that wait at a port to enter."""
        waiting: int = self._library.isw_waiting(self._open, self._port(port), 0)
        return waiting

    def room(self, port: int) -> int:
        """Return the number of frames that `send` would accept at a port now."""
        return max(0, self._limit - self.waiting(port))

    def run(self, max_cycles: int = 1_000_000, now_us: int = 0) -> int:
        """Run until no frame is queued or in flight, for at most `max_cycles`, and return the cycles run. `now_us`
        (modulo 2^32) is the switch's time in microseconds for the whole run."""
        cycles: int = self._library.isw_run(self._open, max_cycles, now_us & 0xFFFFFFFF)
        return cycles

    def receive(self, port: int) -> list[Frame]:
        """Return all frames that have left at a port since the last call."""
        context, number = self._open, self._port(port)
        frames: list[Frame] = []
        while got := self._library.isw_receive_many(
            context, number, self._addresses[0], RECEIVE_BYTES, self._addresses[1], self._addresses[2], RECEIVE_FRAMES
        ):
            ends = np.cumsum(self._lengths[:got]).tolist()
            data = self._bytes[: ends[-1]].tobytes()
            for begin, end, (first, last) in zip([0, *ends], ends, self._times[:got].tolist()):
                frames.append(Frame(data[begin:end], first, last))
        return frames

    def stamp(self, port: int) -> Stamp | None:
        """Return the entry times of the oldest frame at a port that has not been returned yet. A frame counts once its
        last word has entered."""
        first, last = c_uint64(), c_uint64()
        found = self._library.isw_sent_stamp(self._open, self._port(port), byref(first), byref(last))
        return Stamp(first.value, last.value) if found else None

    def stall(self, port: int, direction: str, chance: float, *, length: int = 1, seed: int = 1) -> None:
        """Stall a port: in a cycle without a stall one of `length` cycles begins with this probability. Direction "rx"
        withholds the words of entering frames, "tx" refuses the words of leaving frames. Probability 0 ends it."""
        if direction not in ("rx", "tx"):
            raise ValueError(f"direction must be rx or tx, not {direction!r}")
        if not 0 <= chance <= 1:
            raise ValueError(f"chance must be 0 to 1, not {chance!r}")
        if length < 1:
            raise ValueError(f"length must be at least 1 cycle, not {length!r}")
        self._library.isw_stall(
            self._open, self._port(port), int(direction == "tx"), int(chance * (1 << 32)), length, seed
        )

    def link(self, port: int, up: bool) -> None:
        """Take a port's cable out, or put it in. Frames that enter or leave while it is out are lost."""
        self._library.isw_link(self._open, self._port(port), int(up))

    def trace(self) -> list[Decision]:
        """Return the core's decisions since the last call, oldest first."""
        decisions: list[Decision] = []
        entries, lost = np.empty(TRACE_ENTRIES, _ENTRY), c_uint64()
        while got := self._library.isw_trace(self._open, entries.ctypes.data, TRACE_ENTRIES, byref(lost)):
            decisions += [
                Decision(cycle, Outcome(outcome), port, job, member, seq)
                for cycle, seq, outcome, port, job, member in entries[:got].tolist()
            ]
        if lost.value:
            raise BoardError(f"{lost.value} decisions were lost: fetch the trace more often")
        return decisions

    def reset(self) -> None:
        """Reset the running switch, as a board's button would. Frames inside are lost; frames that wait at the ports
        enter afterwards."""
        self._library.isw_reset(self._open)

    def violations(self) -> dict[str, int]:
        """Return the broken promises of the switch's outputs, by port and kind; empty if there are none. Only with
        `watch` are words checked while they wait."""
        seen = {
            f"port {port}: {kind}": self._library.isw_violations(self._open, port, number)
            for port in range(self.config.ports)
            for number, kind in enumerate(VIOLATIONS)
        }
        return {name: count for name, count in seen.items() if count}

    @property
    def cycles(self) -> int:
        """Cycles since the board was made, without resets."""
        cycles: int = self._library.isw_cycles(self._open)
        return cycles

    def wave(self, path: Path) -> None:
        """Write waveforms (VCD) from now on. Needs a board made with `waves=True`."""
        if not self._library.isw_wave(self._open, str(path).encode()):
            raise BoardError(f"cannot write waveforms to {path}; was the board made with waves=True?")

    def write_coverage(self, path: Path) -> None:
        """Write how often each branch of the RTL was executed, and each bit has changed, in Verilator's format. Needs a
        library compiled with coverage (`sim.coverage.rtl`)."""
        if not self._library.isw_coverage(self._open, str(path).encode()):
            raise BoardError(f"{self.path} was compiled without coverage")
