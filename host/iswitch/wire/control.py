"""Control messages: actions, the reasons of a refusal, the limits of a job's settings, and the two bodies."""

from enum import IntEnum

import numpy as np

__all__ = [
    "ACK",
    "AckRegister",
    "Action",
    "CONTROL",
    "DEADLINE_US_MAX",
    "EVICT_US_MAX",
    "NOTICE_INTERVAL_US",
    "NO_MEMBER",
    "REGISTERS_PER_READ",
    "Reason",
    "SEGMENTS_MAX",
    "STALENESS_MAX",
]

NO_MEMBER = 255
"""`member` of a Join that leaves the choice of the rank to the switch."""
NOTICE_INTERVAL_US = 100
"""The switch sends at most one NOTICE in this time, so that unknown senders cannot make it a source of traffic."""
EVICT_US_MAX = 1 << 29
"""A job's `evict_us` is below this."""
DEADLINE_US_MAX = 1 << 31
"""A job's `deadline_us` is below this."""
SEGMENTS_MAX = 1 << 24
"""The `segments` of an asynchronous job are below this."""
STALENESS_MAX = 7
"""The largest `staleness` of an asynchronous job."""
REGISTERS_PER_READ = 8
"""Registers in the acknowledgement of a READ."""


class AckRegister(IntEnum):
    """What `registers` hold in the acknowledgement of a JOIN or an END, by index; the other registers are 0.

    JOB_TOKEN and RENEWED belong to a granted JOIN. RENEWED is 1 if the job has begun anew: its members have a state.
    """

    CHALLENGE = 0
    JOB_TOKEN = 1
    RENEWED = 2


class Action(IntEnum):
    """First byte of a control message's body, echoed in its acknowledgement.

    SET_H sets the threshold, FBCAST completes a slot by force: these are iSwitch's names.
    """

    JOIN = 1
    LEAVE = 2
    RESET = 3
    SET_H = 4
    READ = 5
    FBCAST = 6
    HALT = 7
    END = 8
    RESUME = 9


class Reason(IntEnum):
    """Why the switch refused a control message (`reason` of an acknowledgement) or sent a NOTICE (its `count`)."""

    DONE = 0
    JOB = 1
    EPOCH = 2
    MEMBER = 3
    TOKEN = 4
    NUMBER = 5
    KEY = 6
    WORLD = 7
    THRESHOLD = 8
    FORMAT = 9
    FRACTION = 10
    ELEMENTS = 11
    MODE = 12
    DEADLINE = 13
    EVICT = 14
    ACTION = 15
    SEQ = 16
    HALTED = 17
    STALENESS = 18
    SEGMENTS = 19
    COLLECTIVE = 20
    CHALLENGE = 21
    PORT = 22
    ADDRESS = 23
    OPERATOR_KEY = 24


CONTROL = np.dtype(
    [
        ("action", "<u1"),
        ("format", "<u1"),
        ("fraction", "<i2"),
        ("world", "<u2"),
        ("threshold", "<u2"),
        ("elements", "<u2"),
        ("mode", "<u1"),
        ("staleness", "<u1"),
        ("deadline_us", "<u4"),
        ("key", "<u8"),
        ("nonce", "<u8"),
        ("evict_us", "<u4"),
        ("segment", "<u4"),
        ("address", "<u4"),
        ("segments", "<u4"),
        ("job_token", "<u4"),
        ("challenge", "<u4"),
        ("operator_key", "<u8"),
    ]
)
"""Body of a control message, behind the header; the same record for every action."""

ACK = np.dtype(
    [
        ("action", "<u1"),
        ("reason", "<u1"),
        ("state", "<u1"),
        ("standing", "<u1"),
        ("window", "<u2"),
        ("elements", "<u2"),
        ("world", "<u2"),
        ("live", "<u2"),
        ("first_seq", "<u4"),
        ("nonce", "<u8"),
        ("threshold", "<u2"),
        ("members", "<u2"),
        ("address", "<u4"),
        ("registers", "<u4", REGISTERS_PER_READ),
    ]
)
"""Body of an acknowledgement, behind the header."""

for _record, _size in ((CONTROL, 64), (ACK, 64)):
    if _record.itemsize != _size:
        raise ImportError(f"wire record {_record.names} is {_record.itemsize} bytes, but the protocol says {_size}")
