"""The common interface of membership's procedures: a request comes in, one procedure after another has the tables."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from amaranth.hdl import unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.decide.tables.access import Access
from hw.interface.address import Parent
from hw.interface.headers import Headers
from hw.interface.rows import CHALLENGE_BITS
from iswitch.config import Config
from iswitch.wire import Action, JobState, Reason

__all__ = ["FollowUp", "Request", "job_exists", "procedure_ports", "wait_row"]

WRITE_CYCLES = 2
"""Cycles between the cycle of a write and the first in which the row read shows it."""


class Request(data.StructLayout):
    """A frame that membership handles, with what its headers alone say.

    `action` is 0 if the switch knows no action of that number. `job_in_range`: the switch has a job of that number.
    `challenge`: that of the frame, as the job rows count it. `operator_key_same`: the frame has the operator key of the
    switch, which is 0 if there is none; `from_operator`: and there is one. In trees, `is_leaf`: the job has a parent
    here, `parent`; `from_parent`: the frame is an acknowledgement or a notice, not a control message.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "headers": Headers,
                "action": unsigned(max(Action).bit_length()),
                "job_in_range": 1,
                "operator_key_same": 1,
                "from_operator": 1,
                "challenge": CHALLENGE_BITS,
                **({"is_leaf": 1, "from_parent": 1, "parent": Parent} if config.uplinks else {}),
            }
        )


class FollowUp(IntEnum):
    """The procedure that has to follow the one that is done."""

    NONE = 0
    DEPART = 1
    FORCE_SLOT = 2
    SWEEP_SLOTS = 3
    EMPTY_RING = 4
    ERASE_JOB = 5


def procedure_ports(
    config: Config, *, writes: Mapping[str, tuple[str, ...]] | Iterable[str] = (), overwrites: Iterable[str] = ()
) -> dict:
    """Return the ports of every procedure, for its signature.

    In the cycle of `start` the procedure is idle, and the tables may point anywhere. It has the port `tables` from the
    next cycle on, up to the one in which it shows `done`. With `done` come the `reason` of a refusal, or `DONE`, and
    what has to `follow_up`. `request` and `member`, the index that the request is about, are constant meanwhile.
    """
    return {
        "start": In(1),
        "done": Out(1),
        "reason": Out(Reason),
        "follow_up": Out(FollowUp),
        "request": In(Request(config)),
        "member": In(range(config.members + 1)),
        "tables": Out(Access(config, writes=writes, overwrites=overwrites)),
    }


def job_exists(request, job):
    """Return whether the request is about a job that exists; `job` is the row of its number."""
    return request.job_in_range & (job.state != JobState.NONE)


def wait_row(m, state: str, *, then: str, cycles: int = WRITE_CYCLES):
    """Add states to a state machine that wait `cycles` cycles for a row of the tables.

    The first is named `state`; `then` follows the last. A row that is pointed at takes one cycle, and what is
    registered of it another; a row that was written takes `WRITE_CYCLES`.
    """
    names = [state, *(f"{state}_{k}" for k in range(2, cycles + 1))]
    for name, following in zip(names, [*names[1:], then], strict=True):
        with m.State(name):
            m.next = following
