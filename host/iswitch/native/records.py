"""The records that C shares with Python, and the constants that it needs.

They are declared here, as numpy dtypes and as a structure of ctypes, and `header` writes them for the C compiler. Names
of the switch mean what they mean in `iswitch.golden.decide`, and those of a worker what they mean in `iswitch.driver`.
"""

import ctypes
from ctypes import c_double, c_int, c_int64, c_uint32, c_void_p
from enum import IntEnum
from typing import Any

import numpy as np

from iswitch.config import ELEMENT_BYTES_MAX, JOBS_MAX, MEMBERS_MAX, PORTS_MAX
from iswitch.wire import (
    ACK,
    BROADCAST_MEMBER,
    CONTRIBUTION_HEADER,
    CONTROL,
    FLAGS_SHIFT,
    HEADER,
    NOTICE_INTERVAL_US,
    RESULT_HEADER,
    SILENCE_TICK_US,
    SILENCE_TICKS_MAX,
    STALENESS_MAX,
    TAIL,
    TAIL_BYTES,
    VERSION,
    ContributionFlag,
    Format,
    JobState,
    Mode,
    Outcome,
    PortCounter,
    Reason,
    ResultFlag,
    SlotState,
    Stat,
    Type,
)
from iswitch.wire.replay import END, REPLAY_HEADER, STATUS, ReplayOutcome

__all__ = [
    "GRANT",
    "JOB",
    "MEMBER",
    "RESULTS_MAX",
    "SENT",
    "SLOT",
    "SOURCE",
    "STORED",
    "Exchange",
    "ExchangeEvent",
    "QueryGroup",
    "RequestRing",
    "ServerEvent",
    "SumsForm",
    "header",
]

GRANTS_MAX = STALENESS_MAX + 1
RESULTS_MAX = 1024
"""Payloads that the data path can make before they are sent."""


class SumsForm(IntEnum):
    """What a slot's accumulators are."""

    CLEAN = 0
    """64-bit sums. No element is poisoned."""
    POISONED = 1
    """64-bit sums and poison bits."""
    RESULT = 2
    """The elements of a result of `window64` with only one contribution, which are its terms times 2^-F exactly."""


class ServerEvent(IntEnum):
    """Why `server_run` has returned. PAYLOAD: a payload for the golden switch has come."""

    TIMEOUT = 0
    PAYLOAD = 1


class ExchangeEvent(IntEnum):
    """Why `exchange_run` has returned."""

    DONE = 0
    """All results of the collective are here."""
    TIMEOUT = 1
    """No result has come in time, or a signal has."""
    RESULTS = 2
    """Python's turn: a datagram is not a usual result, a result is missing below another one, or time has passed."""
    SEND = 3
    """Python must send what the window allows."""
    SOCKET = 4
    """The socket could not receive."""
    FRAME = 5
    """Python must receive: the next frame of the ring is not a usual one."""


class Exchange(ctypes.Structure):
    """A collective of one worker in `exchange_run`. Times are in seconds of `time.monotonic`."""

    _fields_ = [
        # The membership
        ("fd", c_int),
        ("first_word", c_uint32),  # the first four bytes of a result
        ("token", c_uint32),  # of results
        ("first_seq", c_uint32),  # of position 0
        ("burst_segments", c_uint32),
        ("window", c_int64),
        ("header", c_void_p),  # of contributions, without what differs between them
        # The collective
        ("collective", c_uint32),
        ("digest", c_uint32),
        ("format_flags", c_uint32),  # of a contribution; the last one has the flag BOUNDARY, too
        ("array", c_void_p),
        ("segment_bytes", c_uint32),
        ("last_bytes", c_uint32),  # of the last segment
        ("identity", c_uint32),  # of the results
        ("headers", c_void_p),
        ("checks", c_void_p),
        ("begin", c_int64),
        ("end", c_int64),
        ("next", c_int64),
        ("timeout_s", c_double),  # from a result to the next time-out
        ("first_sent_s", c_double),  # 0: nothing was sent
        ("first_result_s", c_double),  # 0: no result has come
        # The ledger
        ("lacked", c_void_p),
        ("requested_at", c_void_p),
        ("requests", c_void_p),
        ("origin", c_int64),
        ("length", c_int64),
        ("reach", c_int64),
        ("low", c_int64),
        ("high", c_int64),
        ("newest", c_int64),
        ("newest_request_s", c_double),
        ("timed_request_s", c_double),  # when the result was requested whose delay is measured next, or -1
        # What has come in this run
        ("buffer", c_void_p),  # the last burst: `size` bytes, of which those from `offset` on are not handled
        ("size", c_uint32),
        ("offset", c_uint32),
        ("datagram_bytes", c_uint32),
        ("results", c_uint32),
        ("received", c_uint32),  # 1: a datagram has come
        ("delay_s", c_double),  # of the newest result, or -1
        ("last_result_s", c_double),  # when the last new result came
        ("error", c_int),  # the socket's, or 0
        # A packet socket with a ring (`iswitch.driver.packet_ring`)
        ("frame_headers", c_void_p),  # of a frame without a payload, with a virtio header in front; None: a UDP socket
        ("ring", c_void_p),
        ("block_bytes", c_uint32),
        ("slots_per_block", c_uint32),
        ("slot_bytes", c_uint32),
        ("slots", c_uint32),
        ("slot", c_uint32),  # the next one
    ]


class QueryGroup(ctypes.Structure):
    """The fields of `iswitch.replay.query_group`, for `replay_build` and `replay_take`. Times are in seconds."""

    _fields_ = [
        # The requests
        ("header", c_void_p),  # of all of them; `seq` and `count` are filled in
        ("token", c_uint32),
        ("first_tag", c_uint32),  # the tag of the first one; the others follow
        ("kind", c_uint32),
        ("data_type", c_uint32),  # the first byte of DATA
        ("count", c_uint32),  # of the requests
        ("body_stride", c_uint32),
        ("counts", c_void_p),
        ("bodies", c_void_p),
        ("body_bytes", c_void_p),
        # Where replies go
        ("target", c_void_p),
        ("target_at", c_void_p),
        ("target_bytes", c_void_p),
        # Progress
        ("answered", c_void_p),
        ("sent_at", c_void_p),
        ("delays", c_void_p),  # of the replies of the last `replay_take`
        ("delay_count", c_uint32),
        ("next", c_uint32),  # the first request that was not sent
        ("low", c_uint32),  # the first that has no reply
        ("reach", c_uint32),  # behind the last that has one
        ("taken", c_uint32),  # number of replies
        ("window", c_double),
        ("largest_window", c_double),
    ]


class RequestRing(ctypes.Structure):
    """The fields of `iswitch.replay.request_ring`, for `replay_send` and `replay_settle`. Times are in seconds."""

    _fields_ = [
        ("header", c_void_p),  # of the requests; `kind`, `seq`, `count` and `ticket` are filled in
        ("token", c_uint32),
        ("first_seq", c_uint32),  # of request 0
        ("answer_type", c_uint32),  # the first byte of an ANSWER
        ("slots", c_uint32),
        ("body_stride", c_uint32),
        ("kinds", c_void_p),
        ("counts", c_void_p),
        ("tickets", c_void_p),
        ("bodies", c_void_p),
        ("body_bytes", c_void_p),
        ("sent_at", c_void_p),
        ("due_at", c_void_p),
        ("statuses", c_void_p),  # of the answers
        ("delays", c_void_p),  # of the answers of the last `replay_settle`
        ("delay_count", c_uint32),
        ("low", c_uint32),  # the first request that has no answer
        ("next", c_uint32),  # the first that was not sent
        ("end", c_uint32),
    ]


_U8, _U16, _I16, _U32 = "u1", "<u2", "<i2", "<u4"


def _record(*fields: tuple[str, object] | tuple[str, object, int]) -> np.dtype[np.void]:
    return np.dtype(list(fields), align=True)


SLOT = _record(
    ("seq", _U32),
    ("state", _U8),
    ("arrived", _U32),
    ("members", _U32),
    ("tainted", _U32),
    ("expected", _U32),
    ("format", _U8),
    ("length", _U16),  # bytes of a contribution
    ("boundary", _U8),
    ("requires_all", _U8),
    ("members_changed", _U8),
    ("opened_us", _U32),
    ("collective", _U32),
    ("digest", _U16),
    ("rival", _U32),
    ("ranks", _U32),  # the contributors by global rank, in a synchronous job
    ("tainted_ranks", _U32),
    ("partial", _U8),
)
"""A slot of a job's ring: the fields of `golden.decide.slot.Slot`, then those of `Contributors`, in their order."""

SOURCE = _record(("ip", _U32), ("udp_port", _U16), ("port", _U8), ("mac", _U8, 6))
"""Where a frame came from."""

MEMBER = _record(
    *((name, _U32) for name in ("token", "ranks", "acknowledged", "heard_tick")),
    ("claim", _U32),  # in an asynchronous job, the number k of the member's last claim that was not refused
    ("source", SOURCE),
    ("present", _U8),  # 1: the entry belongs to a member, which is live or joining
    ("waiting", _U8),  # 1: that claim is not granted yet
)
"""An entry of a job, with what the job has recorded for its member."""

GRANT = _record(("base", _U32), ("members", _U32))
"""A granted update of an asynchronous job."""

JOB = _record(
    *((name, _U32) for name in ("token", "live", "joining", "admitted", "admitted_seq", "threshold", "deadline_us")),
    ("evict_ticks", _U32),  # 0: the job evicts no member
    ("segments", _U32),  # of an update; 0: the job is synchronous
    ("staleness", _U32),
    ("base", _U32),  # of the next update
    ("grants", _U32),  # number of kept grants
    ("limit", _U32),  # the biased exponent from which window64 rejects an element
    ("fraction", _I16),
    ("epoch", _U16),
    ("elements", _U16),
    *((name, _U8) for name in ("state", "format", "mode", "world")),
    ("is_leaf", _U8),  # the job has a parent
    ("changed", _U8),  # set by the data path when it has changed the job
    ("grant", GRANT, GRANTS_MAX),  # oldest first
    ("member", MEMBER, MEMBERS_MAX),
)
"""A job."""

STORED = _record(("form", _U8), ("fraction", _I16))
"""The form of a slot's accumulators, and the fraction bits F of those of `SumsForm.RESULT`."""

SENT = _record(("offset", _U32), ("length", _U32), ("members", _U32), ("job", _U8), ("to", SOURCE))
"""A payload that is sent: where it stands in the payloads, and the set of its receivers among the members of a job. If
that is empty, it goes to the address `to`."""

RECORDS = {"slot": SLOT, "source": SOURCE, "member": MEMBER, "grant": GRANT, "job": JOB, "stored": STORED, "sent": SENT}
C_TYPES = {"u1": "uint8_t", "u2": "uint16_t", "u4": "uint32_t", "i2": "int16_t"}


_CTYPES: dict[Any, str] = {
    c_int: "int",
    c_uint32: "uint32_t",
    c_int64: "int64_t",
    c_double: "double",
    c_void_p: "void *",
}


def _structure(name: str, structure: type[ctypes.Structure]) -> str:
    lines = [f"    {_CTYPES[field[1]]} {field[0]};" for field in structure._fields_]
    size = f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(structure)}, "{name}");'
    return "\n".join([f"struct {name} {{", *lines, "};", size])


def _enumerators(prefix: str, names: type[IntEnum]) -> list[tuple[str, int]]:
    return [(prefix + member.name, int(member)) for member in names]


def _struct(name: str, record: np.dtype[np.void]) -> str:
    lines = []
    assert record.fields is not None
    for field in record.names or ():
        dtype = record.fields[field][0]
        base, shape = dtype.base, dtype.shape
        known = next((other for other, layout in RECORDS.items() if layout == base), None)
        kind = f"struct {known}" if known else C_TYPES[base.str.lstrip("<|")]
        lines.append(f"    {kind} {field}{''.join(f'[{length}]' for length in shape)};")
    size = f'_Static_assert(sizeof(struct {name}) == {record.itemsize}, "{name}");'
    return "\n".join([f"struct {name} {{", *lines, "};", size])


def header() -> str:
    """Return `records.h`: all constants and records, as C."""
    constants = [
        ("VERSION", VERSION),
        ("BROADCAST_MEMBER", BROADCAST_MEMBER),
        ("FLAGS_SHIFT", FLAGS_SHIFT),
        ("HEADER_BYTES", HEADER.itemsize),
        ("TAIL_BYTES", TAIL_BYTES),
        ("REPLAY_HEADER_BYTES", REPLAY_HEADER.itemsize),
        ("REPLAY_END_BYTES", END.itemsize),
        ("REPLAY_STATUS_BYTES", STATUS.itemsize),
        ("REPLAY_OUTCOME_AT", dict(STATUS.fields or {})["outcome"][1]),
        ("REPLAY_DONE", int(ReplayOutcome.DONE)),
        ("CONTROL_BYTES", CONTROL.itemsize),
        ("ACK_BYTES", ACK.itemsize),
        ("NOTICE_INTERVAL_US", NOTICE_INTERVAL_US),
        ("SILENCE_TICK_US", SILENCE_TICK_US),
        ("SILENCE_TICKS_MAX", SILENCE_TICKS_MAX),
        ("TICKS", (1 << 32) // SILENCE_TICK_US),
        ("PORTS_MAX", PORTS_MAX),
        ("ELEMENT_BYTES_MAX", ELEMENT_BYTES_MAX),
        ("JOBS_MAX", JOBS_MAX),
        ("RESULTS_MAX", RESULTS_MAX),
        *_enumerators("SUMS_", SumsForm),
        *_enumerators("EVENT_", ServerEvent),
        *_enumerators("EXCHANGE_", ExchangeEvent),
        *(
            (f"{name.upper()}_AT", place[1])
            for record in (HEADER, CONTRIBUTION_HEADER, RESULT_HEADER)
            for name, place in (record.fields or {}).items()
        ),
        *((f"TAIL_{name.upper()}_AT", place[1]) for name, place in (TAIL.fields or {}).items()),
        *((f"REPLAY_{name.upper()}_AT", place[1]) for name, place in (REPLAY_HEADER.fields or {}).items()),
        *_enumerators("TYPE_", Type),
        *_enumerators("FORMAT_", Format),
        *_enumerators("OUTCOME_", Outcome),
        *_enumerators("STAT_", Stat),
        *_enumerators("PORT_", PortCounter),
        ("PORT_COUNTERS", len(PortCounter)),
        *_enumerators("JOB_", JobState),
        *_enumerators("REASON_", Reason),
        *_enumerators("MODE_", Mode),
        *_enumerators("SLOT_", SlotState),
        *((f"CONTRIBUTION_{name}", int(flag)) for name, flag in ContributionFlag.__members__.items()),
        *((f"RESULT_{name}", int(flag)) for name, flag in ResultFlag.__members__.items()),
    ]
    lines = [f"#define {name} {value}" for name, value in dict(constants).items()]
    structs = [
        *(_struct(name, record) for name, record in RECORDS.items()),
        _structure("exchange", Exchange),
        _structure("query_group", QueryGroup),
        _structure("request_ring", RequestRing),
    ]
    return "\n".join(
        ["/* Written by iswitch/native/records.py. */", "#pragma once", "#include <stdint.h>", *lines, *structs, ""]
    )
