"""The wire format of the replay service: records, kinds and reasons, each declared once.

A frame has 64 bytes of addresses and header, then rows of 8 bytes, little-endian. A frame from the switch ends with a
row that holds the checksum complement. Items and log units have serial numbers modulo 2^32. A number is not used again
while a frame or a client may still refer to it. The rules are in docs/replay.md.
"""

from enum import IntEnum

import numpy as np

from iswitch.wire.frames import ADDRESSES, FRAME_BYTES

__all__ = [
    "ADD_ROW",
    "ALL_FRAGMENTS",
    "BODY_BYTES",
    "CORRUPT_ROW_GAP",
    "SAMPLED_ROW",
    "SAMPLES_PER_FRAGMENT",
    "END",
    "FETCH_ROW",
    "LIMITS",
    "LIST",
    "LOAD",
    "OPEN",
    "ORDERED",
    "PAYLOAD_BYTES",
    "PUBLISH",
    "QUEUED_REQUESTS",
    "REBUILD",
    "REBUILD_SLOTS",
    "REPLAY_FRAME",
    "REPLAY_HEADER",
    "ROW_BYTES",
    "SAMPLE",
    "SESSION_SILENT_US",
    "SHOUT",
    "STATUS",
    "UNIT_BYTES",
    "UPDATE_ROW",
    "WAITS",
    "WRITE",
    "ReplayOutcome",
    "Kind",
    "ReplayRegister",
]

ROW_BYTES = 8
UNIT_BYTES = 64
"""Bytes of a unit, in which logs and records are counted."""
PAYLOAD_BYTES = 1408
"""The most that a DATA or a WRITE carries: 22 units, so that the packet fits an MTU of 1,500 bytes."""
BODY_BYTES = ROW_BYTES + PAYLOAD_BYTES
"""The longest body of a request."""
SAMPLES_PER_FRAGMENT = 160
"""Sampled items in one ANSWER to a SAMPLE."""
ALL_FRAGMENTS = 0xFFFF
"""The set of all fragments of an answer."""
QUEUED_REQUESTS = 64
"""The most requests in the switch's queue, however short they are."""
REBUILD_SLOTS = 1024
"""The most slots that one REBUILD returns to the sum tree."""
SESSION_SILENT_US = 10_000_000
"""If all sessions are in use, the switch gives a new client a session that has been silent for this time, in
microseconds."""
CORRUPT_ROW_GAP = 3 << 29
"""How much further the numbers and the log of a session go on than its row says, if the row has a bit error. Whichever
bit is wrong, this is at least 2^29 away from where they were."""


class Kind(IntEnum):
    """Kind of a request. Kinds in `ORDERED` change something; each such request is executed once, in the order of
    its number."""

    OPEN = 0
    CLOSE = 1
    WRITE = 2
    ADD = 3
    SAMPLE = 4
    UPDATE = 5
    PUBLISH = 6
    LIMIT = 7
    SKIP = 8
    FETCH = 9
    LOAD = 10
    LOOK = 11
    LIST = 12
    SHOUT = 13
    REBUILD = 14


ORDERED = frozenset(
    {Kind.CLOSE, Kind.WRITE, Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.PUBLISH, Kind.LIMIT, Kind.SKIP, Kind.REBUILD}
)


class ReplayOutcome(IntEnum):
    """The outcome of a request. Every request has exactly one, and each has a counter. The STATUS of an answer contains
    the outcome. The answer to a repeated request contains the outcome of its first copy."""

    DONE = 0
    REPEATED = 1
    AHEAD = 2
    OLD = 3
    SESSION = 4
    FULL = 5
    KIND = 6
    TABLE = 7
    LENGTH = 8
    RANGE = 9
    MEMORY = 10
    TICKET = 11
    ITEMS = 12
    RATE = 13
    EMPTY = 14
    OVERWRITTEN = 15
    CHALLENGE = 16
    CORRUPT = 17


WAITS = frozenset({ReplayOutcome.TICKET, ReplayOutcome.ITEMS, ReplayOutcome.RATE, ReplayOutcome.EMPTY})
"""The request was not executed: send the same request again."""


class ReplayRegister(IntEnum):
    """Registers from `Register.REPLAY` on: what the replay service was built with. All are 0 if there is no service."""

    TABLES = 0
    CAPACITY = 1
    PRIORITY_BITS = 2
    SESSIONS = 3
    CACHED_ANSWERS = 4
    SAMPLES_PER_REQUEST = 5
    RECORD_BYTES = 6
    LOG_BYTES = 7
    SAMPLE_COUNT_BITS = 8
    REQUEST_BYTES = 9


# Offsets in the comments count from the first byte after the UDP header.
_HEADER_FIELDS = [
    ("version_type", "<u1"),  # 0   version_type(Type)
    ("kind", "<u1"),  # 1   Kind
    ("session", "<u1"),  # 2
    ("table", "<u1"),  # 3
    ("seq", "<u4"),  # 4   ordered: the request's number; other kinds: a tag that the answer repeats
    ("count", "<u2"),  # 8   number of rows, samples, units or items; data: number of units
    ("fragments", "<u2"),  # 10  sample: set of the fragments wanted; answer: number of this fragment
    ("ticket", "<u4"),  # 12  ordered: 0, or the ticket it waits for; OPEN: the challenge; data: what was overwritten
    ("token", "<u4"),  # 16  low half of the session's nonce
    ("reserved", "<u2"),  # 20
]
REPLAY_HEADER = np.dtype(_HEADER_FIELDS)
REPLAY_FRAME = np.dtype(ADDRESSES.descr + _HEADER_FIELDS)
"""The first 64 bytes of every frame of the service."""

END = np.dtype([("reserved", "u1", 6), ("complement", ">u2")])
"""The last row of a frame from the switch. It makes the ones' complement sum from the header on zero."""

OPEN = np.dtype([("nonce", "<u8")])
WRITE = np.dtype([("start", "<u4"), ("oldest", "<u4")])
"""First row of a WRITE: its first unit, which must be the end of the log, and the oldest unit that must be kept."""
ADD_ROW = np.dtype([("priority", "<u4"), ("reserved", "<u4")])
"""Precedes the record of each item in an ADD."""
SAMPLE = np.dtype([("items", "<u8"), ("stride", "<u8"), ("seed", "<u8", 2)])
"""`items`: items that must have been added, overwritten ones included, before the service samples. `stride`: 2^64 /
count, rounded down, for a stratified sample; else 0."""
UPDATE_ROW = np.dtype([("item", "<u4"), ("priority", "<u4")])
SAMPLED_ROW = UPDATE_ROW
PUBLISH = np.dtype([("start", "<u4"), ("units", "<u4"), ("version", "<u4"), ("reserved", "<u4")])
LIMITS = np.dtype(
    [("size", "<u4"), ("ratio", "<u4"), ("behind", "<u4"), ("ahead", "<u4"), ("times", "<u4"), ("reserved", "<u4")]
)
"""Samples wait until the table has `size` items. `ratio`: sampled items for each added item, in units of 2^-16; 0: no
limit. `behind`, `ahead`: samples by which adds may lag behind that ratio, or lead it. `times`: times an item may be
sampled before its priority becomes 0; 0: no limit."""
FETCH_ROW = np.dtype([("item", "<u4"), ("reserved", "<u4")])
LOAD = np.dtype([("start", "<u4"), ("session", "<u1"), ("reserved", "u1", 3)])
SHOUT = LOAD
LIST = np.dtype([("slot", "<u4"), ("reserved", "<u4")])
REBUILD = LIST

STATUS = np.dtype(
    [
        ("outcome", "<u1"),
        ("lowest", "<u1"),
        ("highest", "<u1"),
        ("publisher", "<u1"),  # ReplayOutcome; buckets; a session
        ("next", "<u4"),  # 4   number of the session's next request
        ("adds", "<u4"),  # 8   items ever added to the table, modulo 2^32
        ("ticket", "<u4"),  # 12  of the table
        ("total", "<u8"),  # 16  of the table's priorities
        ("sampled", "<u4"),  # 24  items ever sampled from the table, modulo 2^32
        ("done", "<u2"),
        ("stale", "<u2"),  # 28  items added, updated, sampled; updates of items that were overwritten
        ("written", "<u4"),
        ("oldest", "<u4"),  # 32  end of the session's log, and the oldest unit that it keeps
        ("version", "<u4"),
        ("start", "<u4"),
        ("units", "<u4"),  # 40  of the table's published parameters
        ("filled", "<u4"),  # 52  items in the table
        ("nonce", "<u8"),  # 56  of the session
    ]
)
"""The first 64 bytes of an answer's body: the table and the session right after the request was executed."""

for _record, _size in (
    (REPLAY_HEADER, 22),
    (REPLAY_FRAME, FRAME_BYTES),
    (STATUS, 64),
    (END, 8),
    (SAMPLE, 32),
    (LIMITS, 24),
    (PUBLISH, 16),
):
    if _record.itemsize != _size:
        raise ImportError(f"replay record {_record.names} is {_record.itemsize} bytes, the protocol says {_size}")
