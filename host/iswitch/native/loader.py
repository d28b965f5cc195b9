"""The compiled library. A wheel brings it along; in a checkout a C compiler makes it, once for each change.

There is one library for each level of the processor's vector instructions, and a machine loads the best that it can
run. Modules that only a compilation needs are imported there, because `import iswitch` imports this one.
"""

import ctypes
import fcntl
import hashlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from iswitch.errors import IswitchError
from iswitch.native.records import Exchange, QueryGroup, RequestRing, header

__all__ = [
    "FLAGS",
    "LEVELS",
    "SOURCES",
    "LibraryError",
    "Output",
    "State",
    "best_level",
    "build",
    "library",
    "load",
    "load_functions",
]

SOURCES = Path(__file__).parent
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-shared", "-Wall", "-Wextra"]
"""Without contraction: a multiplication and an addition that are rounded once give other bits."""
LEVELS: dict[str, tuple[str, ...]] = {
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl"),
    "avx2": ("avx2",),
    "baseline": (),
}
"""Levels of vector instructions, best first: what a processor has, in the words of the compiler and of Linux."""


class LibraryError(IswitchError):
    """The library is not compiled for this machine, and cannot be compiled here."""


class Output(ctypes.Structure):
    """`struct output` of native/state.h."""

    _fields_ = [("payloads", c_void_p), ("sent", c_void_p), ("bytes", c_uint32), ("count", c_uint32)]


class State(ctypes.Structure):
    """`struct switch_state` of native/state.h."""

    _fields_ = [
        ("jobs", c_uint32),
        ("slots", c_uint32),
        ("elements", c_uint32),
        ("types", c_uint32),
        ("job", c_void_p),
        ("slot", c_void_p),
        ("sums", c_void_p),
        ("poison", c_void_p),
        ("kept", c_void_p),
        ("stored", c_void_p),
        ("stats", c_void_p),
        ("ages", c_void_p),
        ("noticed_us", c_void_p),
        ("noticed", c_void_p),
        ("output", Output),
    ]


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "handle_payload": (c_int, [POINTER(State), c_char_p, c_char_p, c_uint32, c_uint32]),
    "server_open": (c_void_p, [POINTER(State), POINTER(c_int), c_uint32, c_void_p, c_void_p]),
    "server_close": (None, [c_void_p]),
    "server_run": (c_int, [c_void_p, c_int]),
    "server_payload": (c_void_p, [c_void_p, c_char_p, POINTER(c_uint32)]),
    "server_now_us": (c_uint32, []),
    "widen_elements": (None, [c_uint32, c_void_p, c_void_p, c_size_t]),
    "narrow_elements": (None, [c_uint32, c_void_p, c_void_p, c_size_t]),
    "exchange_run": (c_int, [POINTER(Exchange), c_double]),
    "replay_build": (c_uint32, [POINTER(QueryGroup), c_uint32, c_double, c_void_p]),
    "replay_send": (c_uint32, [POINTER(RequestRing), c_uint32, c_double, c_double, c_void_p]),
    "replay_settle": (c_uint32, [POINTER(RequestRing), c_void_p, c_uint32, c_uint32, c_uint32, c_double]),
    "replay_take": (c_uint32, [POINTER(QueryGroup), c_void_p, c_uint32, c_uint32, c_uint32, c_double]),
}


def _files(sources: Path) -> list[Path]:
    return sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h"))


def _name(sources: Path, level: str) -> str:
    """Return the name of the library that belongs to these sources."""
    digest = hashlib.sha256(header().encode())
    for path in _files(sources):
        digest.update(path.name.encode() + path.read_bytes())
    return f"{level}-{digest.hexdigest()[:16]}.so"


def build(folder: Path, compiler: list[str], level: str, *, sources: Path = SOURCES) -> Path:
    """Compile the sources into a folder for a level of `LEVELS`, and return the library.

    Raises
    ------
    LibraryError
        If the compiler fails.
    """
    import subprocess
    import tempfile

    target = folder / _name(sources, level)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made = Path(work, target.name)
            Path(work, "records.h").write_text(header())
            command = [
                *compiler,
                *FLAGS,
                *(f"-m{feature}" for feature in LEVELS[level]),
                f"-I{work}",
                *(str(path) for path in _files(sources) if path.suffix == ".c"),
                "-lm",
            ]
            done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
            if done.returncode:
                raise LibraryError(f"{command[0]} could not compile iswitch's library:\n{done.stderr[-2000:]}")
            os.replace(made, target)
    except OSError as error:
        raise LibraryError(f"iswitch's library cannot be compiled into {folder}: {error}") from error
    return target


def best_level() -> str:
    """Return the best level of `LEVELS` that this machine's processors have."""
    features: set[str] = set()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                features.update(line.split())
                break
    return next(level for level, needed in LEVELS.items() if features.issuperset(needed))


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield the folder of libraries that were compiled on this machine, for this process alone: others wait. If it
    cannot be written, that is an empty one, which lasts as long as the context."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home, "iswitch")
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        import tempfile

        with tempfile.TemporaryDirectory(prefix="iswitch-") as private:
            yield Path(private)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _compiler() -> list[str] | None:
    import shutil

    command = shlex.split(os.environ.get("CC", "cc"))
    return command if command and shutil.which(command[0]) else None


@cache
def library() -> ctypes.CDLL:
    """Return the library, and compile it first if there is none for these sources.

    Raises
    ------
    LibraryError
        If there is none and no C compiler.
    """
    level = best_level()
    name = _name(SOURCES, level)
    if (SOURCES / name).exists():
        return load(SOURCES / name)
    with _folder() as folder:
        if (folder / name).exists():
            try:
                return load(folder / name)
            except LibraryError:  # it is damaged
                (folder / name).unlink()
        compiler = _compiler()
        if compiler is None:
            raise LibraryError(
                f"this installation of iswitch has no compiled library for {sys.platform} on {os.uname().machine}, "
                "which the software switch needs, and this machine has no C compiler: install one (`cc`, or name it in "
                "the environment variable CC), or a wheel of iswitch for this machine"
            )
        return load(build(folder, compiler, level))


def load(path: Path) -> ctypes.CDLL:
    """Load a compiled library.

    Raises
    ------
    LibraryError
        If that is impossible.
    """
    return load_functions(path, _FUNCTIONS)


def load_functions(path: Path, names: Iterable[str]) -> ctypes.CDLL:
    """Load a library that has some of the functions. Raises LibraryError."""
    try:
        loaded = ctypes.CDLL(str(path))
        for name in names:
            function = getattr(loaded, name)
            function.restype, function.argtypes = _FUNCTIONS[name]
    except (OSError, AttributeError) as error:
        raise LibraryError(f"iswitch's compiled library cannot be loaded: {error}") from error
    return loaded
