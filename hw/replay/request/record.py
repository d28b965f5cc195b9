"""Records of the replay service that its components share: a request, and the state of a table."""

from amaranth.hdl import Value, signed
from amaranth.lib import data
from amaranth.utils import bits_for

from hw.interface.layout import layout
from hw.interface.replay_request import RequestOrigin
from iswitch.config import Replay
from iswitch.wire.replay import REPLAY_FRAME, ROW_BYTES, SAMPLE, Kind

__all__ = ["PARAMETER_ROWS", "ROW_BITS", "Request", "TableState", "kind_of", "view_as"]

ROW_BITS = 8 * ROW_BYTES
PARAMETER_ROWS = SAMPLE.itemsize // ROW_BYTES
"""Rows of the longest parameters, which are the first rows of a body."""


class Request(data.StructLayout):
    """A request, from the end of its parameters until its last step.

    `frame` is its header with addresses, `parameters` are the first rows of its body, `arrived` is where its frame came
    in, `now_us` is when. `session` and `table` are indices into our tables; both are 0 if the header names no session
    or table that exists.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "frame": layout(REPLAY_FRAME),
                "parameters": ROW_BITS * PARAMETER_ROWS,
                "arrived": RequestOrigin,
                "now_us": 32,
                "session": range(replay.sessions),
                "table": range(replay.tables),
            }
        )


class TableState(data.Struct):
    """State of a table outside its sampler.

    `adds` and `sampled` count items that were added and sampled; `adds` never wraps. `total` is the sum of all
    priorities. `size`, `ratio`, `behind`, `ahead` and `times` are its limits (`LIMITS`); `limited` is 1 since a limit
    set `times` above 0. `credit` counts samples that may still be taken, in units of 2^-16. `publisher`, `start` and
    `units` say where `version` of the parameters of the table's policy is stored.
    """

    adds: 64
    sampled: 32
    ticket: 32
    total: 64
    size: 32
    ratio: 32
    behind: 32
    ahead: 32
    times: 16
    limited: 1
    credit: signed(56)
    version: 32
    publisher: 8
    start: 32
    units: 32


def view_as(record, bits: Value) -> data.View:
    """Return the lowest bits as a view of a record of `iswitch.wire`."""
    return data.View(layout(record), bits[: 8 * record.itemsize])


def kind_of(frame) -> Value:
    """Return the bits of a header's kind that differ between kinds. Check first that the kind exists."""
    return frame.kind[: bits_for(max(Kind))]
