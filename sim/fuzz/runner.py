"""The data path of the software switch in C, compiled for fuzzing, and runs of sequences of payloads through it."""

import ctypes
import os
import shlex
import subprocess
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint8, c_uint32, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from iswitch.native.loader import SOURCES, State
from iswitch.native.records import SOURCE, header
from iswitch.wire import STALENESS_MAX, Outcome, Stat

__all__ = ["ABSENT", "ARRIVAL", "COMMON", "SANITIZERS", "Fault", "Found", "Runner", "build", "sanitized_environment"]

ABSENT = 0xFFFFFFFF
"""Length of an arrival that does not take place."""
ARRIVAL = np.dtype([("source", SOURCE), ("now_us", "<u4"), ("length", "<u4")], align=True)
"""`struct arrival` of runner.c."""
EDGES = 1 << 14
"""Steps from a basic block to the next that are told apart, modulo collisions."""
PARTS = ("datapath", "accumulator", "lanes", "half")
"""The files in C that handle a payload."""
COMMON = ["-std=gnu11", "-g", "-O1", "-ffp-contract=off", "-fPIC", "-fno-omit-frame-pointer", "-Wall", "-Wextra"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


class Fault(IntEnum):
    """What a sequence violates: `enum fault` of runner.c."""

    NONE = 0
    UNUSUAL_CHANGED = 1
    """The data path has left a payload to the golden switch, but changed its state or sent something."""
    MANY_OUTPUTS = 2
    """A payload has made the data path send more than one payload."""
    WRONG_LENGTH = 3
    """What is sent has another length than its record says."""
    WRONG_COMPLEMENT = 4
    """What is sent does not sum to zero."""
    STUCK = 5
    """After the sequence, the members of a job cannot use a slot again."""
    WRONG_SUM = 6
    """After the sequence, the sum of a good round is wrong."""


class Found(NamedTuple):
    """What a run has found.

    Attributes
    ----------
    passed : int
        How many sequences passed. The next one has the fault, if there is one.
    fault : Fault
        What it violates.
    is_new : numpy.ndarray
        bool, a sequence each: whether it reached what no earlier one did.
    """

    passed: int
    fault: Fault
    is_new: np.ndarray


def sanitized_environment() -> dict[str, str]:
    """Return the environment of a Python process that loads a library with sanitizers."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    found = subprocess.run([*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return os.environ | options | {"LD_PRELOAD": found.stdout.strip()}


def build(folder: Path, *, sanitize: bool, mutant: tuple[str, str] | None = None) -> Path:
    """Compile the data path with its runner, and return the library.

    Parameters
    ----------
    folder : pathlib.Path
        Where it is written.
    sanitize : bool
        With AddressSanitizer and UndefinedBehaviorSanitizer; for a process with `sanitized_environment`.
    mutant : tuple of str, optional
        A text of datapath.c that stands there once, and what replaces it.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler fails.
    ValueError
        If the text does not stand there once.
    """
    compiler, made = shlex.split(os.environ.get("CC", "cc")), folder / "runner.so"
    extra = SANITIZERS if sanitize else []
    (folder / "records.h").write_text(header())
    objects = []
    for part in PARTS:
        text = (SOURCES / f"{part}.c").read_text(encoding="utf-8")
        if mutant and part == "datapath":
            if text.count(mutant[0]) != 1:
                raise ValueError(f"a mutant must name one place of datapath.c, not {text.count(mutant[0])}")
            text = text.replace(*mutant)
        (folder / f"{part}.c").write_text(text, encoding="utf-8")
        objects.append(folder / f"{part}.o")
        instrumented = [*COMMON, *extra, "-fsanitize-coverage=trace-pc", f"-I{folder}", f"-I{SOURCES}"]
        subprocess.run([*compiler, *instrumented, "-c", str(folder / f"{part}.c"), "-o", str(objects[-1])], check=True)
    constants = [f"-DABSENT={ABSENT}u", f"-DEDGES={EDGES}", f"-DSTAT_COUNT={len(Stat)}", f"-DAGES={STALENESS_MAX + 1}"]
    runner = [*COMMON, *constants, f"-I{folder}", f"-I{SOURCES}", str(Path(__file__).with_name("runner.c"))]
    subprocess.run([*compiler, *runner, *map(str, objects), *extra, "-shared", "-lm", "-o", str(made)], check=True)
    return made


class Runner:
    """Runs sequences from the state in which a software switch is now.

    Parameters
    ----------
    library : pathlib.Path
        As `build` returns it.
    state : iswitch.native.loader.State
        Of the software switch. It is copied.
    ports : int
        Of the switch.

    Attributes
    ----------
    outcomes : numpy.ndarray
        uint64: payloads left to the golden switch, then payloads by `Outcome`.
    data_path : ctypes function
        `handle_payload` of this library.
    seen : numpy.ndarray
        uint8, an edge each: how many times sequences so far have taken it, as bits. May be written.
    """

    def __init__(self, library: Path, state: State, ports: int) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.runner_open.restype = c_void_p
        self._library.runner_open.argtypes = [POINTER(State), c_uint32]
        self._library.runner_close.restype, self._library.runner_close.argtypes = None, [c_void_p]
        self._library.runner_run.restype = c_uint32
        self._library.runner_run.argtypes = [
            *(c_void_p, c_void_p, c_uint32, c_void_p, c_uint32, c_uint32, c_void_p, c_void_p),
            POINTER(c_uint32),
        ]
        self._library.runner_report.restype = None
        self._library.runner_report.argtypes = [c_char_p, c_void_p, c_size_t]
        self.data_path = self._library.handle_payload
        self.data_path.argtypes = [POINTER(State), c_char_p, c_char_p, c_uint32, c_uint32]
        self.outcomes = np.zeros(len(Outcome) + 1, np.uint64)
        self._runner = self._library.runner_open(byref(state), ports)
        self._library.runner_seen.restype, self._library.runner_seen.argtypes = POINTER(c_uint8), [c_void_p]
        self.seen = np.ctypeslib.as_array(self._library.runner_seen(self._runner), (EDGES,))

    def close(self) -> None:
        """Release the memory."""
        self._library.runner_close(self._runner)

    def run(self, steps: np.ndarray, payloads: np.ndarray, arrivals: np.ndarray, report: Path | None = None) -> Found:
        """Run sequences, each from the first state.

        Parameters
        ----------
        steps, payloads, arrivals : numpy.ndarray
            Shape (sequences, length): what the payloads were made from, uint8 with the bytes of each payload in a
            further axis, and `ARRIVAL`.
        report : pathlib.Path, optional
            Where the steps of a sequence are written, at which a sanitizer ends the process.
        """
        sequences, length = steps.shape
        is_new, fault = np.zeros(sequences, np.uint8), c_uint32()
        steps, payloads, arrivals = map(np.ascontiguousarray, (steps, payloads, arrivals))
        path = str(report).encode() if report else b"/dev/null"
        self._library.runner_report(path, steps.ctypes.data, length * steps.itemsize)
        passed = self._library.runner_run(
            *(self._runner, payloads.ctypes.data, payloads.shape[-1], arrivals.ctypes.data, sequences, length),
            *(is_new.ctypes.data, self.outcomes.ctypes.data, byref(fault)),
        )
        return Found(passed, Fault(fault.value), is_new.astype(bool))
