"""The frame that the core decides, and what has been found out about it, in registers."""

from dataclasses import dataclass

from amaranth.hdl import Signal

from hw.decide.checks import FrameKind
from hw.decide.claims import ClaimDecision
from hw.decide.ring import RingDecision
from hw.interface.address import Parent
from hw.interface.headers import Headers
from iswitch.config import Config

__all__ = ["HeldFrame"]


@dataclass(frozen=True)
class HeldFrame:
    """The registers of the core for one frame.

    Parameters
    ----------
    config
        What the switch is built for.
    headers, now_us
        The frame, and the time of its arrival: a decision that waits must not change with the time.
    parent
        The parent of the frame's job, a cycle after the job's row was pointed at.
    kind
        What the checks say that the frame is, from the second cycle on.
    decision, claim
        What the ring decided about it, or the rules of claims.
    keeps_slot
        The slot stays as it is: the decision sends again what is there.
    """

    config: Config
    headers: Signal
    now_us: Signal
    parent: Signal
    kind: Signal
    decision: Signal
    claim: Signal
    keeps_slot: Signal

    @classmethod
    def create(cls, config: Config) -> "HeldFrame":
        return cls(
            config,
            headers=Signal(Headers, name="held", reset_less=True),
            now_us=Signal(32, name="held_us", reset_less=True),
            parent=Signal(Parent, name="parent"),
            kind=Signal(FrameKind, name="kind"),
            decision=Signal(RingDecision(config), name="decided", reset_less=True),
            claim=Signal(ClaimDecision(config), name="given", reset_less=True),
            keeps_slot=Signal(name="keeps_slot"),
        )

    @property
    def frame(self):
        return self.headers.frame
