"""The wire format and the register map of iswitch, each declared once.

Everything else derives from here: the gateware's layouts (`hw/interface/layout.py`), the golden models, the driver, and the
tables of `docs/protocol.md`. Records are numpy structured dtypes: a dtype already is a packet record, with names,
widths, byte order and offsets. Ethernet, IPv4 and UDP fields are big-endian, ours little-endian. It is one module so
that there is one place to look: a register's bits are a record's, and both count with the same enumerations.

The 22-byte header makes Ethernet + IPv4 + UDP + header exactly 64 bytes, so that a payload starts on a bus word at
64, 256 and 512 bits.
"""

from enum import IntEnum, IntFlag

import numpy as np

__all__ = [
    "ACK",
    "ADDRESSES",
    "BROADCAST_MEMBER",
    "CONTROL",
    "FRAME",
    "FRAME_BYTES",
    "HEADER",
    "MAGIC",
    "NO_MEMBER",
    "JOB_VIEW",
    "MEMBER_VIEW",
    "REGISTERS_PER_READ",
    "SLOT_VIEW",
    "TAIL",
    "TAIL_BYTES",
    "UDP_PORT",
    "UPLINK_TAIL",
    "VERSION",
    "VIEWED_JOBS",
    "VIEWED_MEMBERS",
    "VIEWED_SLOTS",
    "Action",
    "ContributionFlag",
    "Format",
    "DEADLINE_US_MAX",
    "EVICT_US_MAX",
    "JobState",
    "Mode",
    "NOTICE_INTERVAL_US",
    "Operation",
    "Outcome",
    "PortCounter",
    "Reason",
    "Register",
    "ResultFlag",
    "SEGMENTS_MAX",
    "SILENCE_TICK_US",
    "STALENESS_MAX",
    "SlotState",
    "Standing",
    "Stat",
    "Type",
    "have_view_register",
    "job_view_register",
    "member_view_register",
    "ones_complement_sum",
    "port_counter_register",
    "slot_view_register",
]

VERSION = 1
UDP_PORT = 0x6953
"""Destination port of everything sent to the switch, source port of everything it sends ("iS")."""

MAGIC = 0x54575349
"""First register, "ISWT" in memory order."""

BROADCAST_MEMBER = 255
"""`member` of a result from a switch that is not itself a member of another."""
NO_MEMBER = 255
"""`member` of a Join that leaves the choice of the index to the switch."""


class Type(IntEnum):
    """Low nibble of the header's first byte; the high nibble is `VERSION`."""

    CONTRIBUTION = 0
    RESULT = 1
    UPLINK = 2
    RECEIPT = 3
    NOTICE = 4
    CONTROL = 5
    ACK = 6
    CLAIM = 7
    GRANT = 8
    REFUSE = 9
    REQUEST = 10
    ANSWER = 11
    DATA = 12


class Format(IntEnum):
    """Number format of a payload, low nibble of `format_flags`."""

    WINDOW64 = 1
    FP32 = 2
    INT32 = 3
    FIXED64 = 4


class ContributionFlag(IntFlag):
    """High nibble of `format_flags` in a contribution or a receipt. WANT is of receipts, WHOLE of contributions: wait
    for everybody."""

    RETRANSMISSION = 1
    BOUNDARY = 2
    CHANGE_PENDING = 4
    WHOLE = 8
    WANT = 8


class ResultFlag(IntFlag):
    """High nibble of `format_flags` in a result."""

    PARTIAL = 1
    RESENT = 2
    TAINTED = 4
    CHANGE = 8


class Mode(IntEnum):
    """What a job does with a contribution that holds NaN, an infinity or a term out of range."""

    QUARANTINE = 0
    PROPAGATE = 1


class Action(IntEnum):
    """First byte of a control message's body, echoed in its acknowledgement."""

    JOIN = 1
    LEAVE = 2
    RESET = 3
    SET_H = 4
    READ = 5
    FBCAST = 6
    HALT = 7


class JobState(IntEnum):
    NONE = 0
    FORMING = 1
    RUNNING = 2
    HALTED = 3


class Standing(IntEnum):
    """What the switch takes the sender of a granted Join for: PENDING until it confirms, JOINING until a boundary lets
    it into a job that runs, LIVE when it is waited for."""

    NONE = 0
    PENDING = 1
    JOINING = 2
    LIVE = 3


class SlotState(IntEnum):
    EMPTY = 0
    COLLECTING = 1
    COMPLETE = 2
    SENT_UP = 3


class Operation(IntEnum):
    """What the aggregator's one pipeline does to a slot; INSTALL_DOWN and SEND_UP are for trees of switches. GRANT
    takes no slot: it is a frame that leaves in the order of results."""

    CONTRIBUTE = 0
    RESEND = 1
    FORCE = 2
    INSTALL_DOWN = 4
    SEND_UP = 5
    GRANT = 6


class Reason(IntEnum):
    """Why a control message was refused (`reason` of an acknowledgement), or what a NOTICE is about (its `count`)."""

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


class Outcome(IntEnum):
    """What became of a frame that reached the switch's core: exactly one for each, each with a counter."""

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


class Stat(IntEnum):
    """Events that are not the fate of one frame, each with a counter of its own."""

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


class PortCounter(IntEnum):
    """Counters that every port has of its own."""

    RX_ERROR = 0
    RX_RUNT = 1
    RX_OVERSIZE = 2
    TX_DROP_RESULT = 3
    TX_DROP_REPLY = 4
    TX_DROP_ORDINARY = 5
    TX_FRAMES = 6
    RX_FRAMES = 7


class Register(IntEnum):
    """Addresses of the first of each group of 32-bit registers; READ returns `REGISTERS_PER_READ` from an address."""

    MAGIC = 0
    VERSION = 1
    PORTS = 2
    BUS_BITS = 3
    MEMBERS = 4
    JOBS = 5
    WINDOW = 6
    ELEMENTS = 7
    OUTCOMES = 8
    STATS = 40
    AGES = 56
    PORT_COUNTERS = 64
    REPLAY_FATES = 224
    REPLAY = 240
    JOBS_VIEW = 1 << 10
    HAVE_VIEW = 1 << 11
    MEMBERS_VIEW = 1 << 12
    SLOTS_VIEW = 1 << 20


REGISTERS_PER_READ = 8
VIEWED_JOBS, VIEWED_MEMBERS, VIEWED_SLOTS = 16, 32, 1 << 13
"""Addresses of the views leave room for so many jobs, members of a job and slots of a job, whatever a switch is built
with."""
NOTICE_INTERVAL_US = 100
"""The switch sends at most one NOTICE in this time, or a stranger could make it a source of traffic."""
SILENCE_TICK_US = 1 << 14
"""How long members are silent is measured in this unit, modulo 2^16 (18 minutes)."""
EVICT_US_MAX = 1 << 29
DEADLINE_US_MAX = 1 << 31
SEGMENTS_MAX = 1 << 24
"""Settings of a job are below these."""
STALENESS_MAX = 7


def port_counter_register(port: int, counter: PortCounter) -> int:
    """Register address of one port's counter."""
    return Register.PORT_COUNTERS + port * len(PortCounter) + counter


def job_view_register(job: int) -> int:
    """Register address of a job's `JOB_VIEW`."""
    return Register.JOBS_VIEW + job * REGISTERS_PER_READ


def have_view_register(job: int, member: int) -> int:
    """Register address of the lowest seq whose result a member may lack, as far as it has said; those of a job stand in
    a row."""
    return Register.HAVE_VIEW + job * VIEWED_MEMBERS + member


def member_view_register(job: int, member: int) -> int:
    """Register address of a member's `MEMBER_VIEW`."""
    return Register.MEMBERS_VIEW + (job * VIEWED_MEMBERS + member) * REGISTERS_PER_READ


def slot_view_register(job: int, slot: int) -> int:
    """Register address of the `SLOT_VIEW` of the slot `slot`, which is where segments live whose seq is `slot` modulo 2
    W."""
    return Register.SLOTS_VIEW + (job * VIEWED_SLOTS + slot) * REGISTERS_PER_READ


# Ours. Offsets in the comments count from the first byte after the UDP header.
_HEADER_FIELDS = [
    ("version_type", "<u1"),  # 0   VERSION << 4 | Type
    ("job", "<u1"),  # 1
    ("epoch", "<u2"),  # 2   incarnation of the job
    ("seq", "<u4"),  # 4   serial number of the segment (modulo 2^32); claim, refusal: the member's number of its vector
    ("member", "<u1"),  # 8
    ("format_flags", "<u1"),  # 9   flags << 4 | Format
    ("count", "<u2"),  # 10  contribution: 1; result: workers in the sum; notice: Reason; grant: members granted
    (
        "behind",
        "<u2",
    ),  # 12  seq minus the lowest seq whose result the sender lacks; ack, notice, grant, refusal: complement
    (
        "members",
        "<u4",
    ),  # 14  result: ranks in the sum; grant: members; claim: its weights; refusal: base of the next update
    ("token", "<u4"),  # 18  result: tainted ranks
]
HEADER = np.dtype(_HEADER_FIELDS)

ADDRESSES = np.dtype(
    [
        ("eth_dst", "u1", 6),
        ("eth_src", "u1", 6),
        ("eth_type", ">u2"),
        ("ip_version_ihl", "u1"),
        ("ip_tos", "u1"),
        ("ip_length", ">u2"),
        ("ip_id", ">u2"),
        ("ip_fragment", ">u2"),
        ("ip_ttl", "u1"),
        ("ip_protocol", "u1"),
        ("ip_checksum", ">u2"),
        ("ip_src", ">u4"),
        ("ip_dst", ">u4"),
        ("udp_src", ">u2"),
        ("udp_dst", ">u2"),
        ("udp_length", ">u2"),
        ("udp_checksum", ">u2"),
    ]
)
"""Ethernet, IPv4 without options, UDP: 42 bytes."""

FRAME = np.dtype(ADDRESSES.descr + _HEADER_FIELDS)
"""The first 64 bytes of every frame of ours."""
FRAME_BYTES = FRAME.itemsize

TAIL = np.dtype([("flags", "<u2"), ("complement", ">u2")])
"""After a result's payload. `complement` makes header + payload + tail sum to zero in ones' complement (RFC 7820)."""
TAIL_BYTES = TAIL.itemsize

UPLINK_TAIL = np.dtype([("tainted", "<u4"), *TAIL.descr])
"""After an uplink's payload. `tainted`: ranks; `flags`: `ResultFlag.PARTIAL` if somebody below is not in the sum though
waited for."""

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
        ("reserved", "u1", 16),
    ]
)
"""Body of a control message, behind the header; the same for every action."""

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
        ("registers", "<u4", 8),
    ]
)
"""Body of an acknowledgement."""

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
    ]
)
"""A job as its eight registers show it, all at one moment; zeros if there is none. `live`, `joining`: sets of
members."""

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
"""A member: where it is, and for how many `SILENCE_TICK_US` it has been silent."""

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
        ("reserved", "<u4", 2),
    ]
)
"""A slot: whoever is in `expected` and not in `arrived` is what a collecting one waits for. `length` in bytes."""

_VIEW_BYTES = 4 * REGISTERS_PER_READ
for _record, _size in (
    (HEADER, 22),
    (FRAME, 64),
    (CONTROL, 64),
    (ACK, 64),
    (TAIL, 4),
    (UPLINK_TAIL, 8),
    (JOB_VIEW, _VIEW_BYTES),
    (MEMBER_VIEW, _VIEW_BYTES),
    (SLOT_VIEW, _VIEW_BYTES),
):
    if _record.itemsize != _size:
        raise ImportError(f"wire record {_record.names} is {_record.itemsize} bytes, the protocol says {_size}")


def ones_complement_sum(data: bytes) -> int:
    """Ones' complement sum of big-endian 16-bit words (RFC 1071), odd length padded with a zero; 0 to 0xFFFF."""
    padded = bytes(data) + b"\0" * (len(data) & 1)
    total = int(np.frombuffer(padded, ">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
