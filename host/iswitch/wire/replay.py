"""The wire format of the replay service: records, kinds and reasons, each declared once.

Everything is in rows of 8 bytes behind the 64 bytes of addresses and header, little-endian; what the switch sends ends
with a row that holds the checksum complement. Items and bytes of logs are named by serial numbers modulo 2^32, which
are never used twice while anybody can remember them. The rules are docs/replay.md.
"""

from enum import IntEnum

import numpy as np

from iswitch.wire.frames import ADDRESSES, FRAME_BYTES

__all__ = [
    "ADD_ROW",
    "ALL_FRAGMENTS",
    "BODY_BYTES",
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
    "Fate",
    "Kind",
    "ReplayRegister",
]

ROW_BYTES = 8
UNIT_BYTES = 64
"""Logs and records are counted in units."""
PAYLOAD_BYTES = 1408
"""The most that a DATA frame carries, and a WRITE: 22 units, so that all fits an MTU of 1,500 bytes."""
BODY_BYTES = ROW_BYTES + PAYLOAD_BYTES
"""The longest body of a request."""
SAMPLES_PER_FRAGMENT = 160
ALL_FRAGMENTS = 0xFFFF
SESSION_SILENT_US = 10_000_000
"""A session that has been silent for so long may have to give its place to a new one."""


class Kind(IntEnum):
    """What is asked for. Those in `ORDERED` change something and are carried out once, in the order of their
    numbers."""

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


ORDERED = frozenset({Kind.CLOSE, Kind.WRITE, Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.PUBLISH, Kind.LIMIT, Kind.SKIP})


class Fate(IntEnum):
    """What became of a request: exactly one for each, each with a counter. Answers say it as `reason`, but a repeat is
    answered with the fate that it had the first time."""

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


WAITS = frozenset({Fate.TICKET, Fate.ITEMS, Fate.RATE, Fate.EMPTY})
"""Not carried out yet: ask again with the same request."""


class ReplayRegister(IntEnum):
    """Registers from `Register.REPLAY`: what the service was built with, all 0 if there is none."""

    TABLES = 0
    CAPACITY = 1
    PRIORITY_BITS = 2
    SESSIONS = 3
    KEPT = 4
    DRAWS = 5
    RECORD_BYTES = 6
    LOG_BYTES = 7
    TIMES_BITS = 8


# Offsets in the comments count from the first byte after the UDP header.
_HEADER_FIELDS = [
    ("version_type", "<u1"),  # 0   version_type(Type)
    ("kind", "<u1"),  # 1   Kind
    ("session", "<u1"),  # 2
    ("table", "<u1"),  # 3
    ("seq", "<u4"),  # 4   ordered: the request's number; else whatever the client likes, and gets back
    ("count", "<u2"),  # 8   of rows, draws, units or items; data: of units
    ("fragments", "<u2"),  # 10  sample: the set of fragments wanted; answer: which one this is
    ("ticket", "<u4"),  # 12  ordered: 0, or the table's ticket that it waits for; data: the set of items that are gone
    ("token", "<u4"),  # 16  low half of the session's nonce
    ("reserved", "<u2"),  # 20
]
REPLAY_HEADER = np.dtype(_HEADER_FIELDS)
REPLAY_FRAME = np.dtype(ADDRESSES.descr + _HEADER_FIELDS)
"""The first 64 bytes of every frame of the service."""

END = np.dtype([("reserved", "u1", 6), ("complement", ">u2")])
"""Last row of what the switch sends; makes the sum of everything from the header on zero."""

OPEN = np.dtype([("nonce", "<u8")])
WRITE = np.dtype([("start", "<u4"), ("oldest", "<u4")])
"""First row of a WRITE: where its units go, which is where the log ends, and the oldest unit that must be kept."""
ADD_ROW = np.dtype([("priority", "<u4"), ("reserved", "<u4")])
"""Before each item's record."""
SAMPLE = np.dtype([("items", "<u4"), ("reserved", "<u4"), ("stride", "<u8"), ("seed", "<u8", 2)])
"""Waits until so many items were ever added. `stride`: 2^64 / count, rounded down, for strata; 0: anywhere."""
UPDATE_ROW = np.dtype([("item", "<u4"), ("priority", "<u4")])
SAMPLED_ROW = UPDATE_ROW
PUBLISH = np.dtype([("start", "<u4"), ("units", "<u4"), ("version", "<u4"), ("reserved", "<u4")])
LIMITS = np.dtype(
    [("size", "<u4"), ("ratio", "<u4"), ("behind", "<u4"), ("ahead", "<u4"), ("times", "<u4"), ("reserved", "<u4")]
)
"""Draws wait until `size` items are there. `ratio`: draws for each item, in 2^-16; 0: no limit. `behind`, `ahead`: how
many draws they may be off. `times`: so often drawn, an item's priority becomes 0; 0: never."""
FETCH_ROW = np.dtype([("item", "<u4"), ("reserved", "<u4")])
LOAD = np.dtype([("start", "<u4"), ("session", "<u1"), ("reserved", "u1", 3)])
SHOUT = LOAD
LIST = np.dtype([("slot", "<u4"), ("reserved", "<u4")])

STATUS = np.dtype(
    [
        ("reason", "<u1"),
        ("lowest", "<u1"),
        ("highest", "<u1"),
        ("publisher", "<u1"),  # Fate; buckets; a session
        ("next", "<u4"),  # 4   number of the session's next request
        ("adds", "<u4"),  # 8   items ever added to the table, modulo 2^32
        ("ticket", "<u4"),  # 12  of the table
        ("total", "<u8"),  # 16  of the table's priorities
        ("draws", "<u4"),  # 24  ever made from the table, modulo 2^32
        ("done", "<u2"),
        ("stale", "<u2"),  # 28  items added, updated, drawn; updates of what is not there any more
        ("written", "<u4"),
        ("oldest", "<u4"),  # 32  end of the session's log, and the oldest unit that is kept
        ("version", "<u4"),
        ("start", "<u4"),
        ("units", "<u4"),  # 40  of the table's published parameters
        ("filled", "<u4"),  # 52  items that are there
        ("nonce", "<u8"),  # 56  of the session
    ]
)
"""The first 64 bytes of an answer's body: the table and the session right after the request was carried out."""

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
