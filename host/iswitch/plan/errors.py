"""What can be wrong with a fabric."""

from typing import Any

__all__ = ["TopologyError"]


class TopologyError(ValueError):
    """A topology that nothing can be planned with. place: (kind, name) of what is wrong, from which a reader finds its line."""

    def __init__(self, message: str, place: tuple[str, Any] | None = None):
        super().__init__(message)
        self.place = place
