"""What can be wrong with a fabric, and how it is told."""

from typing import Any

__all__ = ["TopologyError", "told"]


class TopologyError(ValueError):
    """A topology that nothing can be planned with. place: (kind, name) of what is wrong, from which a reader finds its
    line."""

    def __init__(self, message: str, place: tuple[str, Any] | None = None):
        super().__init__(message)
        self.place = place


def told(error: Exception) -> str:
    """One sentence for whoever called a program; of a file, without the system's number."""
    return (
        f"{error.filename}: {error.strerror}"
        if isinstance(error, OSError) and error.filename and error.strerror
        else str(error)
    )
