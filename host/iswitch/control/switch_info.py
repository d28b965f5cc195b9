"""What the driver knows of a switch: the sizes that the switch shows in its registers."""

from dataclasses import dataclass

from iswitch.config import Replay
from iswitch.wire import uplink_elements

__all__ = ["SwitchInfo"]


@dataclass(frozen=True, kw_only=True)
class SwitchInfo:
    """The sizes of a switch, as its registers show them. The driver accepts every switch, and checks no size.

    Parameters
    ----------
    ports : int
        Number of ports.
    bus_bits : int
        Width of the datapath.
    members : int
        Workers that a job can hold.
    jobs : int
        Jobs that the switch can hold.
    window : int
        Segments that a worker may have in flight.
    elements : int
        The most 4-byte elements in a segment.
    replay : Replay or None
        Sizes of the replay service; None if the switch has no such service.
    """

    ports: int
    bus_bits: int
    members: int
    jobs: int
    window: int
    elements: int
    replay: Replay | None = None

    @property
    def uplink_elements(self) -> int:
        """The most elements in a segment of a job in a tree of switches of this size."""
        return uplink_elements(self.elements)
