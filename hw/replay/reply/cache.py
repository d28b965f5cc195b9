"""Answers that a client may ask for again, and the lists that belong to them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.layout import layout
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from hw.stream.parity import with_parity
from iswitch.config import Replay
from iswitch.wire.replay import SAMPLED_ROW, SAMPLES_PER_FRAGMENT, STATUS

__all__ = ["Answer", "ReplyCache", "answer_count", "list_rows", "scratch_list"]

PARITY_BITS = 64
"""Bits of which one cycle finds the parity."""


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

    `answer` is the answer number `index`, `row` the list's row at `row_address`, and `word` the bus word of rows in
    which that row is, each of 1 cycle before. Every list begins with a word. `write` makes `answer_next` the answer
    number `index`; `write_row` writes `row_next` at `write_row_address`. What is read in the cycle of a write to the
    same place is undefined.

    Each answer and each row has a parity bit. `row_corrupt` is 1 if the `row` of 1 cycle before has a bit error; bit k
    of `word_corrupt`, in the same cycle as `word`, if row k of the word has one; and `answer_corrupt` if the `answer`
    of 2 cycles before has one. `lost` says that the list that begins at `lost_list` was found to have one: its answer
    is corrupt from 2 cycles later on, until it is written. `lost` never comes while the list's answer is written, and
    not of two lists in a row.
    """

    def __init__(self, replay: Replay, *, bus_bits: int = 64):
        self.replay, self.rows_per_word = replay, bus_bits // 8 // SAMPLED_ROW.itemsize
        self.answers, self.rows = answer_count(replay), list_rows(replay)
        super().__init__(
            {
                "index": In(range(self.answers)),
                "answer": Out(Answer),
                "answer_corrupt": Out(1),
                "write": In(1),
                "answer_next": In(Answer),
                "row_address": In(range(self.rows)),
                "row": Out(layout(SAMPLED_ROW)),
                "row_corrupt": Out(1),
                "word": Out(data.ArrayLayout(layout(SAMPLED_ROW), self.rows_per_word)),
                "word_corrupt": Out(self.rows_per_word),
                "lost": In(1),
                "lost_list": In(range(self.rows)),
                "write_row": In(1),
                "write_row_address": In(range(self.rows)),
                "row_next": In(layout(SAMPLED_ROW)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        stored = data.StructLayout({"answer": Answer, "parity": 1})
        answers = Memory(shape=stored, depth=self.answers, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        stored_row = data.StructLayout({"row": layout(SAMPLED_ROW), "parity": 1})
        stored_word = data.ArrayLayout(stored_row, self.rows_per_word)
        lists = Memory(
            shape=stored_word, depth=self.rows // self.rows_per_word, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        m.submodules.answers, m.submodules.lists = answers, lists
        answer_write, answer_read = answers.write_port(), answers.read_port()
        row_write, row_read = lists.write_port(granularity=1), lists.read_port()
        losing, lost_index = Signal(), Signal(range(self.answers))
        place_bits, place, row = exact_log2(self.rows_per_word), Signal(range(self.rows_per_word)), Signal(stored_row)
        # CXXRTL checks the address even when nothing is written.
        m.d.comb += [
            answer_write.en.eq(self.write | losing),
            answer_write.addr.eq(Mux(self.write, self.index, lost_index)),
            answer_write.data.eq(Mux(self.write, with_parity(self.answer_next), 1)),
            answer_read.addr.eq(self.index),
            self.answer.eq(answer_read.data.answer),
            row_write.en.eq(self.write_row << self.write_row_address[:place_bits]),
            row_write.addr.eq(Mux(self.write_row, self.write_row_address >> place_bits, 0)),
            row_write.data.eq(with_parity(self.row_next).replicate(self.rows_per_word)),
            row_read.addr.eq(self.row_address >> place_bits),
            row.eq(row_read.data[place]),
            self.row.eq(row.row),
            *(self.word[k].eq(row_read.data[k].row) for k in range(self.rows_per_word)),
            self.word_corrupt.eq(Cat(row_read.data[k].as_value().xor() for k in range(self.rows_per_word))),
        ]
        m.d.sync += place.eq(self.row_address[:place_bits])
        # The answer is wide: its parity is found in two steps.
        word = answer_read.data.as_value()
        parts = Signal(-(-len(word) // PARITY_BITS))
        m.d.sync += [
            self.row_corrupt.eq(row.as_value().xor()),
            parts.eq(Cat(word[at : at + PARITY_BITS].xor() for at in range(0, len(word), PARITY_BITS))),
            self.answer_corrupt.eq(parts.xor()),
        ]
        # An answer whose list is lost gets a wrong parity, as soon as no other answer is written.
        with m.If(~self.write):
            m.d.sync += losing.eq(0)
        with m.If(self.lost & (self.lost_list < scratch_list(self.replay))):
            m.d.sync += [losing.eq(1), lost_index.eq(self.lost_list >> exact_log2(self.replay.samples_per_request))]
        return m
