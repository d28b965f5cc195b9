"""The compiled data path. A wheel brings it along; in a checkout a C compiler makes it, once for each change."""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_void_p
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from iswitch.errors import IswitchError
from iswitch.switch.records import header

__all__ = ["DataPathError", "Output", "State", "build", "library", "load"]

SOURCES = Path(str(files("iswitch.switch") / "native"))
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-shared", "-Wall", "-Wextra"]
"""Without contraction: a multiplication and an addition that are rounded once give other bits."""


class DataPathError(IswitchError):
    """The data path is not compiled for this machine, and cannot be compiled here."""


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
}


def _files(sources: Path) -> list[Path]:
    return sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h"))


def _name(sources: Path) -> str:
    """Return the name of the library that belongs to these sources."""
    digest = hashlib.sha256(header().encode())
    for path in _files(sources):
        digest.update(path.name.encode() + path.read_bytes())
    return f"datapath-{digest.hexdigest()[:16]}.so"


def build(folder: Path, compiler: list[str], *, sources: Path = SOURCES) -> Path:
    """Compile the data path, or other sources, into a folder, and return the library.

    Raises
    ------
    DataPathError
        If the compiler fails.
    """
    target = folder / _name(sources)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = Path(work, target.name)
        Path(work, "records.h").write_text(header())
        command = [
            *compiler,
            *FLAGS,
            f"-I{work}",
            *(str(path) for path in _files(sources) if path.suffix == ".c"),
            "-lm",
        ]
        try:
            done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
        except OSError as error:
            raise DataPathError(f"{command[0]} cannot be run: {error.strerror}") from error
        if done.returncode:
            raise DataPathError(f"{command[0]} could not compile the software switch:\n{done.stderr[-2000:]}")
        os.replace(made, target)
    return target


def _folder() -> Path:
    """Return the folder of libraries that were compiled on this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iswitch"


def _compiler() -> list[str] | None:
    command = shlex.split(os.environ.get("CC", "cc"))
    return command if command and shutil.which(command[0]) else None


@cache
def library() -> ctypes.CDLL:
    """Return the data path, and compile it first if there is none for these sources.

    Raises
    ------
    DataPathError
        If there is none and no C compiler.
    """
    name = _name(SOURCES)
    found = next((path for path in (SOURCES / name, _folder() / name) if path.exists()), None)
    if found is None:
        compiler = _compiler()
        if compiler is None:
            raise DataPathError(
                f"this installation of iswitch has no software switch for {sys.platform} on {os.uname().machine}, and "
                "this machine has no C compiler: install one (`cc`, or name it in the environment variable CC), or a "
                "wheel of iswitch for this machine"
            )
        found = build(_folder(), compiler)
    return load(found)


def load(path: Path) -> ctypes.CDLL:
    """Load a compiled data path."""
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
