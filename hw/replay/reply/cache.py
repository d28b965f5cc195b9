"""Answers that a client may ask for again, and the lists that belong to them."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.layout import layout
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from iswitch.config import Replay
from iswitch.wire.replay import SAMPLED_ROW, SAMPLES_PER_FRAGMENT, STATUS

__all__ = ["Answer", "ReplyCache", "answer_count", "list_rows", "scratch_list"]


def answer_count(replay: Replay) -> int:
    """Return how many answers are kept: the last `cached_answers` of each session."""
    return replay.sessions * replay.cached_answers


def scratch_list(replay: Replay) -> int:
    """Return the first row of the list that is not kept. It stands behind the lists of all answers, of
    `samples_per_request` rows each."""
    return answer_count(replay) * replay.samples_per_request


def list_rows(replay: Replay) -> int:
    """Return the number of rows of all lists."""
    return scratch_list(replay) + SAMPLES_PER_FRAGMENT


class Answer(data.Struct):
    """An answer without its list, which has `rows` rows."""

    status: layout(STATUS)
    kind: 8
    table: 8
    rows: 16


class ReplyCache(wiring.Component):
    """The last answers of each session, and their lists of items and priorities.

    `answer` is the answer number `index`, and `row` the list's row at `row_address`, each of 1 cycle before. `write`
    makes `answer_next` the answer number `index`; `write_row` writes `row_next` at `write_row_address`. What is read in
    the cycle of a write to the same place is undefined.
    """

    def __init__(self, replay: Replay):
        self.answers, self.rows = answer_count(replay), list_rows(replay)
        super().__init__(
            {
                "index": In(range(self.answers)),
                "answer": Out(Answer),
                "write": In(1),
                "answer_next": In(Answer),
                "row_address": In(range(self.rows)),
                "row": Out(layout(SAMPLED_ROW)),
                "write_row": In(1),
                "write_row_address": In(range(self.rows)),
                "row_next": In(layout(SAMPLED_ROW)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        answers = Memory(shape=Answer, depth=self.answers, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        lists = Memory(shape=layout(SAMPLED_ROW), depth=self.rows, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        m.submodules.answers, m.submodules.lists = answers, lists
        for memory, enable, address, value in (
            (answers, self.write, self.index, self.answer_next),
            (lists, self.write_row, self.write_row_address, self.row_next),
        ):
            port = memory.write_port()
            # CXXRTL checks the address even when nothing is written.
            m.d.comb += [port.addr.eq(Mux(enable, address, 0)), port.data.eq(value), port.en.eq(enable)]
        for memory, address, shown in ((answers, self.index, self.answer), (lists, self.row_address, self.row)):
            port = memory.read_port()
            m.d.comb += [port.addr.eq(address), shown.eq(port.data)]
        return m
