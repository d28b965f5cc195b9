"""What a port's cable ends in: the one seam between the emulator and everything that is not a switch."""

from collections import Counter
from typing import Any, Protocol

__all__ = ["Attachment"]


class Attachment(Protocol):
    """Gives frames for the switch and takes those that come from it. Neither waits; frames are without FCS.

    counts: what befell its frames; the port adds its own. wall: its peers live in wall time, so that virtual time is
    not for it. address: where its peers find it, as JSON knows it.
    """

    counts: Counter[str]
    wall: bool

    @property
    def address(self) -> Any: ...

    def fileno(self) -> int:
        """A descriptor that polls as readable while `take` has something to give."""

    def take(self, most: int) -> list[bytes]:
        """Frames for the switch, about `most` of them; the rest stays where it is."""

    def give(self, frames: list[bytes]) -> None:
        """Frames from the switch, whose FCS is good."""

    def close(self) -> None: ...
