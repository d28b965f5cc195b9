"""The register map: what the switch was built with, its counters, and views of jobs, members and slots."""

from enum import IntEnum

import numpy as np

from iswitch.wire.control import REGISTERS_PER_READ

__all__ = [
    "JOB_VIEW",
    "MAGIC",
    "MEMBER_VIEW",
    "Outcome",
    "PORT_COUNTERS",
    "PortCounter",
    "Register",
    "SILENCE_TICKS_MAX",
    "SILENCE_TICK_US",
    "SLOT_VIEW",
    "Stat",
    "VIEWED_JOBS",
    "VIEWED_MEMBERS",
    "VIEWED_SLOTS",
    "have_view_register",
    "job_view_register",
    "member_view_register",
    "port_counter_register",
    "slot_view_register",
]

MAGIC = 0x54575349
"""First register, "ISWT" in memory order."""
VIEWED_JOBS, VIEWED_MEMBERS, VIEWED_SLOTS = 16, 32, 1 << 13
"""The addresses of the views leave room for this many jobs, members of a job and slots of a job in any switch."""
PORT_COUNTERS = 16
"""The addresses of each port's counters, of which the first ones are used."""
SILENCE_TICK_US = 1 << 14
"""Unit of a member's time of silence."""
SILENCE_TICKS_MAX = 1 << 15
"""A member's time of silence is counted up to this (2^29 us)."""


class Outcome(IntEnum):
    """Outcome of a frame that reached the switch's core: exactly one for each frame, and each with a counter."""

    ORDINARY = 0
    ADDED = 1
    QUARANTINED = 2
    RECEIPT = 3
    CONTROL = 4
    REFUSED = 5
    DUPLICATE = 6
    LATE = 7
    STALE = 8
    WINDOW = 9
    SLOT_HELD = 10
    FORMING = 11
    JOB = 12
    EPOCH = 13
    MEMBER = 14
    TOKEN = 15
    PORT = 16
    ADDRESS = 17
    VERSION = 18
    TYPE = 19
    LENGTH = 20
    FORMAT = 21
    IP_CHECKSUM = 22
    UDP_CHECKSUM = 23
    FILTERED = 24
    RESERVED = 25
    ANSWERED = 26
    UNANSWERED = 27
    HALTED = 28
    UNHELD = 29
    REPLAY = 30
    SPOOFED = 31
    FLOOD_LIMITED = 32
    COLLECTIVE = 33
    CORRUPT = 34


class Stat(IntEnum):
    """Events that are not the outcome of one frame, each with a counter."""

    RESULTS = 0
    RESENT = 1
    FORCED = 2
    NOTICES = 3
    NOTICES_SUPPRESSED = 4
    TERMS_FLUSHED = 5
    EVICTED = 6
    ADMITTED = 7
    REPLAY_DROPPED = 8
    SATURATED = 9
    MEMORY_ERRORS = 10
    CORRUPT_SUMS = 11
    CORRUPT_PRIORITIES = 12
    CORRUPT_JOBS = 13
    CORRUPT_REPLAY = 14


class PortCounter(IntEnum):
    """Counters that each port has."""

    RX_ERROR = 0
    RX_RUNT = 1
    RX_OVERSIZE = 2
    TX_DROP_GRANT = 3
    TX_DROP_REPLY = 4
    TX_DROP_ORDINARY = 5
    TX_FRAMES = 6
    RX_FRAMES = 7
    RX_OVERFLOW = 8
    TX_AGED = 9
    TX_LINK_DOWN = 10
    TX_WAIT_RESULT = 11
    TX_EXPIRED_RESULT = 12


class Register(IntEnum):
    """Address of the first register of each group. Registers have 32 bits; a READ returns `REGISTERS_PER_READ` of them
    from any address."""

    MAGIC = 0
    VERSION = 1
    PORTS = 2
    BUS_BITS = 3
    MEMBERS = 4
    JOBS = 5
    WINDOW = 6
    ELEMENTS = 7
    AGES = 32
    OUTCOMES = 64
    STATS = 128
    REPLAY_OUTCOMES = 192
    REPLAY = 224
    PORT_COUNTERS = 256
    JOBS_VIEW = 1 << 10
    HAVE_VIEW = 1 << 11
    MEMBERS_VIEW = 1 << 12
    SLOTS_VIEW = 1 << 20


for _counters, _first, _end in (
    (Outcome, Register.OUTCOMES, Register.STATS),
    (Stat, Register.STATS, Register.REPLAY_OUTCOMES),
    (PortCounter, Register.PORT_COUNTERS, Register.PORT_COUNTERS + PORT_COUNTERS),
):
    if len(_counters) > _end - _first:
        raise ImportError(f"{_counters.__name__} has {len(_counters)} counters, but {_end - _first} addresses")


def port_counter_register(port: int, counter: PortCounter) -> int:
    """Return the register address of one port's counter."""
    return Register.PORT_COUNTERS + port * PORT_COUNTERS + counter


def job_view_register(job: int) -> int:
    """Return the register address of a job's `JOB_VIEW`."""
    return Register.JOBS_VIEW + job * (JOB_VIEW.itemsize // 4)


def have_view_register(job: int, member: int) -> int:
    """Return the register address of the lowest seq whose result a member may lack, as far as it has reported.

    The registers of a job's members are neighbours.
    """
    return Register.HAVE_VIEW + job * VIEWED_MEMBERS + member


def member_view_register(job: int, member: int) -> int:
    """Return the register address of a member's `MEMBER_VIEW`."""
    return Register.MEMBERS_VIEW + (job * VIEWED_MEMBERS + member) * REGISTERS_PER_READ


def slot_view_register(job: int, slot: int) -> int:
    """Return the register address of a slot's `SLOT_VIEW`. Slot `s` holds the segments with seq = s modulo 2 W."""
    return Register.SLOTS_VIEW + (job * VIEWED_SLOTS + slot) * REGISTERS_PER_READ


JOB_VIEW = np.dtype(
    [
        ("state", "<u1"),
        ("format", "<u1"),
        ("fraction", "<i2"),
        ("epoch", "<u2"),
        ("elements", "<u2"),
        ("world", "<u1"),
        ("threshold", "<u1"),
        ("mode", "<u1"),
        ("reserved", "<u1"),
        ("live", "<u4"),
        ("joining", "<u4"),
        ("first_seq", "<u4"),
        ("deadline_us", "<u4"),
        ("evict_us", "<u4"),
        ("segments", "<u4"),
        ("staleness", "<u1"),
        ("unused", "u1", 27),
    ]
)
"""A job; zeros if there is no such job. One READ shows the fields up to `evict_us`, a second one the others, which are
settings and never change. `live`, `joining`: sets of members. `segments`: 0 in a synchronous job."""

MEMBER_VIEW = np.dtype(
    [
        ("standing", "<u1"),
        ("port", "<u1"),
        ("udp", ">u2"),
        ("ip", ">u4"),
        ("mac", "u1", 6),
        ("silent", "<u2"),
        ("reserved", "<u4", 4),
    ]
)
"""A member: its standing, its addresses, and its time of silence in units of `SILENCE_TICK_US`."""

SLOT_VIEW = np.dtype(
    [
        ("seq", "<u4"),
        ("state", "<u1"),
        ("format", "<u1"),
        ("length", "<u2"),
        ("arrived", "<u4"),
        ("members", "<u4"),
        ("expected", "<u4"),
        ("tainted", "<u4"),
        ("collective", "<u4"),
        ("rival", "<u4"),
    ]
)
"""A slot. A collecting slot waits for the members that are in `expected` and not in `arrived`. `length`: bytes.
`collective`: that of the contributions in the slot. `rival`: another one, of which a contribution was refused; or 0."""

for _record, _reads in ((JOB_VIEW, 2), (MEMBER_VIEW, 1), (SLOT_VIEW, 1)):
    if _record.itemsize != 4 * REGISTERS_PER_READ * _reads:
        raise ImportError(
            f"wire record {_record.names} is {_record.itemsize} bytes, but {_reads} READs show "
            f"{4 * REGISTERS_PER_READ * _reads}"
        )
