"""What each message consists of, in terms of the records of `iswitch.wire`: header, body, tail.

Several types give fields of the common header a meaning of their own. `HEADERS` names these fields as docs/protocol.md
does; widths and offsets are those of `iswitch.wire`.
"""

import builtins
from collections.abc import Mapping
from enum import Enum, IntEnum, IntFlag
from typing import NamedTuple

import numpy as np

from iswitch.wire import (
    ACK,
    CONTRIBUTION_HEADER,
    CONTROL,
    HEADER,
    RESULT_HEADER,
    TAIL,
    UPLINK_TAIL,
    Action,
    CollectiveKind,
    ContributionFlag,
    Format,
    JobState,
    MemberState,
    Mode,
    Reason,
    ResultFlag,
    Type,
)
from iswitch.wire.replay import (
    ADD_ROW,
    END,
    FETCH_ROW,
    LIMITS,
    LIST,
    LOAD,
    OPEN,
    PUBLISH,
    REBUILD,
    REPLAY_HEADER,
    SAMPLE,
    SAMPLED_ROW,
    SHOUT,
    STATUS,
    UPDATE_ROW,
    WRITE,
    Kind,
    ReplayOutcome,
)

__all__ = ["ENUMS", "FLAGS", "HEADERS", "LAYOUTS", "REQUESTS", "Layout", "Rest", "flag_kind", "renamed"]


class Rest(Enum):
    """What stands between the first record of a body and the tail."""

    NONE = "nothing"
    ELEMENTS = "elements of the number format that the header names"
    ROWS = "records of one kind"
    ITEMS = "as many records as `count` says, each with the bytes of an item behind it"
    BYTES = "bytes without a meaning on the wire"


class Layout(NamedTuple):
    """What follows a header.

    Attributes
    ----------
    name : str
        Name of `first`, or of the rows; "" if there is neither.
    first : numpy.dtype or None
        Record right behind the header.
    rest : Rest
        What follows.
    row : numpy.dtype or None
        Record of the rows or items.
    row_name : str
        Name of the rows.
    tail : numpy.dtype or None
        Record at the end.
    tail_name : str
        Name of the tail.
    """

    name: str = ""
    first: np.dtype | None = None
    rest: Rest = Rest.NONE
    row: np.dtype | None = None
    row_name: str = ""
    tail: np.dtype | None = None
    tail_name: str = ""


def renamed(record: np.dtype, names: Mapping[str, str], big: tuple[str, ...] = ()) -> np.dtype:
    """Return a record with other names of some fields. Raises KeyError if the record has no such field.

    Parameters
    ----------
    record : numpy.dtype
        The record, without fields that overlap.
    names : dict of str to str
        New names by old names.
    big : tuple of str
        Old names of the fields that are big-endian.
    """
    for name in (*names, *big):
        record[name]
    return np.dtype(
        [
            (names.get(name, name), record[name].newbyteorder(">") if name in big else record[name])
            for name in record.names or ()
        ]
    )


HEADERS: Mapping[Type, np.dtype] = {
    Type.CONTRIBUTION: CONTRIBUTION_HEADER,
    Type.RESULT: RESULT_HEADER,
    Type.UPLINK: CONTRIBUTION_HEADER,
    Type.RECEIPT: HEADER,
    Type.NOTICE: renamed(HEADER, {"count": "reason", "behind": "complement", "members": "collective"}, big=("behind",)),
    Type.CONTROL: HEADER,
    Type.ACK: renamed(HEADER, {"behind": "complement"}, big=("behind",)),
    Type.CLAIM: renamed(HEADER, {"members": "weights_seq"}),
    Type.GRANT: renamed(HEADER, {"count": "granted", "behind": "complement"}, big=("behind",)),
    Type.REFUSE: renamed(HEADER, {"behind": "complement", "members": "next_update_seq"}, big=("behind",)),
    Type.REQUEST: REPLAY_HEADER,
    Type.ANSWER: REPLAY_HEADER,
    Type.DATA: REPLAY_HEADER,
}
"""The header of each type."""

_HEADER_ONLY = Layout()
LAYOUTS: Mapping[Type, Layout] = {
    Type.CONTRIBUTION: Layout(rest=Rest.ELEMENTS),
    Type.RESULT: Layout(rest=Rest.ELEMENTS, tail=TAIL, tail_name="tail"),
    Type.UPLINK: Layout(rest=Rest.ELEMENTS, tail=UPLINK_TAIL, tail_name="uplink_tail"),
    Type.RECEIPT: _HEADER_ONLY,
    Type.NOTICE: _HEADER_ONLY,
    Type.CONTROL: Layout("control", CONTROL),
    Type.ACK: Layout("ack", ACK),
    Type.CLAIM: _HEADER_ONLY,
    Type.GRANT: _HEADER_ONLY,
    Type.REFUSE: _HEADER_ONLY,
    Type.ANSWER: Layout("status", STATUS, Rest.ROWS, SAMPLED_ROW, "sampled", END, "end"),
    Type.DATA: Layout(rest=Rest.BYTES, tail=END, tail_name="end"),
}
"""What follows the header, by type; for a REQUEST see `REQUESTS`."""

REQUESTS: Mapping[Kind, Layout] = {
    Kind.OPEN: Layout("open", OPEN),
    Kind.CLOSE: _HEADER_ONLY,
    Kind.WRITE: Layout("write", WRITE, Rest.BYTES),
    Kind.ADD: Layout(rest=Rest.ITEMS, row=ADD_ROW, row_name="add"),
    Kind.SAMPLE: Layout("sample", SAMPLE),
    Kind.UPDATE: Layout(rest=Rest.ROWS, row=UPDATE_ROW, row_name="update"),
    Kind.PUBLISH: Layout("publish", PUBLISH),
    Kind.LIMIT: Layout("limit", LIMITS),
    Kind.SKIP: _HEADER_ONLY,
    Kind.FETCH: Layout(rest=Rest.ROWS, row=FETCH_ROW, row_name="fetch"),
    Kind.LOAD: Layout("load", LOAD),
    Kind.LOOK: _HEADER_ONLY,
    Kind.LIST: Layout("list", LIST),
    Kind.SHOUT: Layout("shout", SHOUT),
    Kind.REBUILD: Layout("rebuild", REBUILD),
}
"""What follows the header of a REQUEST, by kind."""

ENUMS: Mapping[str, type[IntEnum]] = {
    "type": Type,
    "format": Format,
    "reason": Reason,
    "control.action": Action,
    "control.format": Format,
    "control.mode": Mode,
    "ack.action": Action,
    "ack.reason": Reason,
    "ack.state": JobState,
    "ack.standing": MemberState,
    "replay.kind": Kind,
    "status.outcome": ReplayOutcome,
    "collective.kind": CollectiveKind,
}
"""The enumerations of fields, by name of the record and the field; fields of the common header have no prefix."""


FLAGS: Mapping[Type, tuple[str, ...]] = {
    Type.CONTRIBUTION: ("RETRANSMISSION", "BOUNDARY", "REQUIRES_ALL"),
    Type.UPLINK: ("RETRANSMISSION", "BOUNDARY", "REQUIRES_ALL"),
    Type.RECEIPT: ("WANT",),
    Type.RESULT: tuple(ResultFlag.__members__),
}
"""The flags in the header of a type, by their names in `flag_kind`; other types have none."""


def flag_kind(type: Type) -> builtins.type[IntFlag]:
    """Return the enumeration of the flags in the header of a type."""
    return ResultFlag if type == Type.RESULT else ContributionFlag
