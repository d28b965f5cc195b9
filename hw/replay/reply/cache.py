"""Answers that may be asked for again."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.layout import layout
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from iswitch.config import Replay
from iswitch.wire.replay import SAMPLED_ROW, SAMPLES_PER_FRAGMENT, STATUS

__all__ = ["Answer", "ReplyCache"]


class Answer(data.Struct):
    """An answer but for its list, which has `rows`."""

    status: layout(STATUS)
    kind: 8
    table: 8
    rows: 16


class ReplyCache(wiring.Component):
    """The last answers of each session, and their lists of items and priorities.

    `index` names an answer: `answer` shows it 1 cycle later, `put` writes `put_answer`. Lists have `draws` rows for
    each answer, and behind them all comes one of `scratch` that is not kept; `row` shows that at `at` 1 cycle later,
    `list_put` writes `put_row` at `put_at`.
    """

    def __init__(self, replay: Replay):
        self.answers = replay.sessions * replay.kept
        self.scratch = self.answers * replay.draws
        """Where the list begins that is not kept."""
        rows = self.scratch + SAMPLES_PER_FRAGMENT
        super().__init__(
            {
                "index": In(range(self.answers)),
                "answer": Out(Answer),
                "put": In(1),
                "put_answer": In(Answer),
                "at": In(range(rows)),
                "row": Out(layout(SAMPLED_ROW)),
                "list_put": In(1),
                "put_at": In(range(rows)),
                "put_row": In(layout(SAMPLED_ROW)),
            }
        )
        self.rows = rows

    def elaborate(self, platform):
        m = Module()
        # Within the table even when nothing is put: CXXRTL does not forgive what others never look at.
        for name, shape, depth, enable, to, what, where, shown in (
            ("answers", Answer, self.answers, self.put, self.index, self.put_answer, self.index, self.answer),
            ("lists", layout(SAMPLED_ROW), self.rows, self.list_put, self.put_at, self.put_row, self.at, self.row),
        ):
            m.submodules[name] = memory = Memory(shape=shape, depth=depth, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
            put, get = memory.write_port(), memory.read_port()
            m.d.comb += [
                put.addr.eq(Mux(enable, to, 0)),
                put.data.eq(what),
                put.en.eq(enable),
                get.addr.eq(where),
                shown.eq(get.data),
            ]
        return m
