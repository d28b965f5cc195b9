"""What a member contributes to one collective or update, and how far it is sent."""

from iswitch.driver.packing import Payloads
from iswitch.wire import Collective

__all__ = ["Transfer"]

_NO_COLLECTIVE = Collective(0, 0, 0)


class Transfer:
    """Contributions of one member to neighbouring segments, which the member sends as the window allows.

    Parameters
    ----------
    parts : tuple of Payloads
        The arrays, in the order of their segments.

    Attributes
    ----------
    format_flags : tuple of int
        For each part: number format and flags of its contributions.
    segments : int
        Number of segments.
    collective : Collective
        The collective that the contributions name.
    digest : int
        Digest of the results that this worker has applied, 16 bits.
    begin, end : int
        The segments' positions: from `begin` to `end` - 1.
    next : int
        The lowest position that was never sent.
    first_sent_at : float
        Seconds, 0 if nothing was sent.
    first_result_at : float or None
        Seconds.
    """

    def __init__(self, parts: tuple[Payloads, ...]):
        self.parts = parts
        self.segments = sum([part.size for part in parts])
        self.format_flags: tuple[int, ...] = ()
        self.collective, self.digest = _NO_COLLECTIVE, 0
        self.begin = self.end = self.next = -1
        self.first_sent_at = 0.0
        self.first_result_at: float | None = None

    def place(self, begin: int, format_flags: tuple[int, ...], collective: Collective, digest: int) -> None:
        """Set the position of the first segment, and what the contributions say: see the attributes."""
        self.begin = self.next = begin
        self.end = begin + self.segments
        self.format_flags, self.collective, self.digest = format_flags, collective, digest
