"""The interface between the emulator and everything at the other end of a port's cable."""

from collections import Counter
from typing import Any, Protocol

__all__ = ["Attachment"]


class Attachment(Protocol):
    """The end of a port's cable: gives frames for the switch, and takes frames from it. No method waits; frames have no
    FCS.

    `counts` has the events of its frames; the port adds its own. `wall` is True if its peers live in wall time, so that
    it cannot be used in virtual time. `address` is where its peers find it, in a form that JSON can hold.
    """

    counts: Counter[str]
    wall: bool

    @property
    def address(self) -> Any: ...

    def fileno(self) -> int:
        """Return a file descriptor that polls as readable while `receive_frames` has frames."""

    def receive_frames(self, most: int) -> list[bytes]:
        """Return about `most` frames for the switch; the rest stays in the attachment."""

    def deliver_frames(self, frames: list[bytes]) -> None:
        """Accept frames from the switch, whose FCS is good."""

    def close(self) -> None: ...
