"""The frame under decision, and the results of the rules, in registers."""

from dataclasses import dataclass

from amaranth.hdl import Signal
from amaranth.lib import data

from hw.decide.checks import FrameKind
from hw.decide.claims import ClaimDecision
from hw.decide.ring import RingDecision
from hw.interface.address import Parent
from hw.interface.headers import Headers
from hw.interface.rows import SEQ_BITS, TICK_BITS, job_row
from hw.stream.packet import LENGTH_BITS
from iswitch.config import Config

__all__ = ["DecidedFrame", "HeldFrame"]


class DecidedFrame(data.StructLayout):
    """What is needed of a frame at its decision and later, when the registers of the frame may hold the next one.

    `is_leaf`: its job has a parent here. `low`: the first seq whose result the sender lacks. `advances`: the sender
    acknowledges more results than before, if the slot takes the frame. `tick`: when the frame came.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "port": 4,
                "job": 8,
                "is_leaf": 1,
                "member": 8,
                "seq": SEQ_BITS,
                "length": LENGTH_BITS,
                "format": 4,
                "slot": range(config.jobs * config.slots),
                "advances": 1,
                "low": SEQ_BITS,
                "tick": TICK_BITS,
            }
        )


@dataclass(frozen=True)
class HeldFrame:
    """The frame under decision, in registers that the parts of the core share.

    Parameters
    ----------
    config
        What the switch is built for.
    headers, now_us
        The headers, and the time at which they were accepted: a decision that waits must not change with the time.
    parent
        The parent of the frame's job, valid with the job's row.
    kind
        The kind of the frame, from the checks; valid from the second cycle on.
    decision, claim
        The decisions of the ring and of the claims.
    keeps_slot
        The slot keeps its row, because its content is only sent again.
    decided
        The frame to which the next `decision` belongs, from the cycle before it on.
    job_row
        The row of that frame's job. It follows the table a cycle later, but stays while the decision is made and handed
        over.
    """

    config: Config
    headers: Signal
    now_us: Signal
    parent: Signal
    kind: Signal
    decision: Signal
    claim: Signal
    keeps_slot: Signal
    decided: Signal
    job_row: Signal

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
            decided=Signal(DecidedFrame(config), name="decided_frame", reset_less=True),
            job_row=Signal(job_row(config), name="decided_job", reset_less=True),
        )

    @property
    def frame(self):
        return self.headers.frame
