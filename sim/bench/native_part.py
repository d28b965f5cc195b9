"""One file of the library in C, compiled alone, so that a test can call what other files call."""

import ctypes
import subprocess
from pathlib import Path

from iswitch.native.loader import FLAGS, LEVELS, SOURCES, best_level
from iswitch.native.records import header

__all__ = ["USABLE_LEVELS", "compile_part"]

USABLE_LEVELS = list(LEVELS)[list(LEVELS).index(best_level()) :]
"""The levels of vector instructions that this machine can run."""


def compile_part(folder: Path, source: str, level: str) -> ctypes.CDLL:
    """Compile a source file for a level of vector instructions, and load it.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler fails.
    """
    (folder / "records.h").write_text(header())
    flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
    features = [f"-m{feature}" for feature in LEVELS[level]]
    made = folder / f"{source}.so"
    command = ["cc", *flags, *features, f"-I{folder}", str(SOURCES / source), "-lm", "-o", str(made)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(made))
