"""States of jobs, members and slots, as acknowledgements and register views show them, and the operations on a slot."""

from enum import IntEnum

__all__ = ["JobState", "Mode", "Operation", "SlotState", "MemberState"]


class Mode(IntEnum):
    """How a job treats a contribution that holds NaN, an infinity or an element out of range.

    QUARANTINE leaves the segment out of the sum. PROPAGATE makes the sum NaN.
    """

    QUARANTINE = 0
    PROPAGATE = 1


class JobState(IntEnum):
    """State of a job. A FORMING job waits until `world` workers have joined; a HALTED one accepts no contributions."""

    NONE = 0
    FORMING = 1
    RUNNING = 2
    HALTED = 3


class MemberState(IntEnum):
    """State of a member, as the answer to its Join and its row of registers show it.

    A member is JOINING until a collective boundary admits it to a running job, and LIVE as soon as sums wait for it.
    """

    NONE = 0
    JOINING = 1
    LIVE = 2


class SlotState(IntEnum):
    """State of a slot. A SENT_UP slot waits for the result of the parent switch in a tree."""

    EMPTY = 0
    COLLECTING = 1
    COMPLETE = 2
    SENT_UP = 3


class Operation(IntEnum):
    """Operation of the aggregation pipeline on a slot.

    These numbers are not on the wire: they are declared here because gateware and golden model share them.
    INSTALL_DOWN and SEND_UP occur in trees of switches. GRANT needs no slot: it is a frame that leaves in the order of
    results.
    """

    CONTRIBUTE = 0
    RESEND = 1
    FORCE = 2
    INSTALL_DOWN = 4
    SEND_UP = 5
    GRANT = 6
