"""Warnings that name a line of the program, whichever function of this package issues them, and in whichever thread."""

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["ProgramLine", "on_behalf_of", "program_line", "warn_program"]

_OWN_FILES = (os.path.dirname(__file__) + os.sep, contextlib.__file__)
"""Where the names of files begin that a warning does not name: this package, and what calls its context managers."""


class ProgramLine(NamedTuple):
    """A line of the program.

    Attributes
    ----------
    filename : str
        Its file.
    number : int
        Number of the line, from 1.
    module : str
        Name of its module.
    registry : dict
        The warnings that Python has shown for that module.
    """

    filename: str
    number: int
    module: str
    registry: dict[Any, Any]


class _Thread(threading.local):
    """For which line of the program this thread works."""

    line: ProgramLine | None = None


_thread = _Thread()


def program_line() -> ProgramLine:
    """Return the line of the program that is in a call of this package, or for which this thread calls it."""
    if _thread.line:
        return _thread.line
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame = frame.f_back
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    return ProgramLine(frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<unknown>"), registry)


@contextlib.contextmanager
def on_behalf_of(line: ProgramLine) -> Iterator[None]:
    """Let warnings of this thread name the line of the program that has asked for the work, within this context."""
    before, _thread.line = _thread.line, line
    try:
        yield
    finally:
        _thread.line = before


def warn_program(message: str, category: type[Warning]) -> None:
    """Issue a warning about the line of the program that is in a call of this package.

    Parameters
    ----------
    message : str
        The warning.
    category : type
        Its class.
    """
    line = program_line()
    warnings.warn_explicit(message, category, line.filename, line.number, line.module, line.registry)
