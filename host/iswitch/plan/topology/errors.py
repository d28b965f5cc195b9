"""The error of a topology that cannot be planned with, and its sentence for the user."""

from typing import Any

__all__ = ["TopologyError", "error_text"]


class TopologyError(ValueError):
    """A topology cannot be planned with.

    Parameters
    ----------
    message : str
        A sentence that names the part, the rule and the value.
    place : tuple of str and Any, optional
        Kind and name of the part, such as ``("node", "S1")``. Readers of files find its line by this.
    """

    def __init__(self, message: str, place: tuple[str, Any] | None = None):
        super().__init__(message)
        self.place = place


def error_text(error: Exception) -> str:
    """Return one sentence for the user of a program. Errors of files name the file and omit the system's number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
