"""Words that cross from one clock to another: every word once, unchanged and in order, for any two clocks."""

import functools
import itertools
from typing import Any

import amaranth.lib.fifo
from amaranth.hdl import Array, Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

import hw.board.ecp5.crossing
from sim.prove.clocks import ClocksHarness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

DEPTH = 4
"""Words of each memory, the smallest that is allowed."""
BITS = DEPTH.bit_length()
WORD = data.StructLayout({"data": 2, "last": 1})


def from_gray(code: Any) -> Value:
    """Return the number that has this Gray code."""
    return Cat(*(code[k:].xor() for k in range(len(code))))


def require_order(h: ClocksHarness, pointers: list[Value]) -> None:
    """Require that each pointer is at or behind the next one, and the last one at most DEPTH beyond the first."""
    ahead = [(after - before)[:BITS] for before, after in itertools.pairwise(pointers)]
    h.require(sum(ahead) <= DEPTH)


def require_single_steps(h: ClocksHarness, pointers: list[Value]) -> None:
    """Require that each pointer is the next one or one behind: the Gray codes differ in one bit at most."""
    for before, after in itertools.pairwise(pointers):
        h.require((after - before)[:BITS] <= 1)


class FollowedWord:
    """A word, chosen by the solver among those that enter, and the laws of its exit.

    Parameters
    ----------
    h : ClocksHarness
        Where registers and properties go.
    enters, leaves : Value
        A word enters, or leaves.
    word : Value
        The word that enters.
    at : Value
        The writer's pointer: where that word is stored.

    Attributes
    ----------
    level : Signal
        Words inside.
    inside : Signal
        The word has entered, and not left.
    ahead : Signal
        Words inside that entered before it.
    word, at : Signal
        The word, and where it is stored.
    """

    def __init__(self, h: ClocksHarness, *, enters: Value, leaves: Value, word: Value, at: Value):
        self.h, follow = h, h.free(1, "follow")
        self.level, self.ahead, self.inside = Signal(range(2 * DEPTH)), Signal(range(2 * DEPTH)), Signal()
        self.word, self.at = Signal(len(word), reset_less=True), Signal(BITS, reset_less=True)
        h.m.d.sync += self.level.eq(self.level + enters - leaves)
        with h.m.If(follow & enters & ~self.inside):
            h.m.d.sync += [self.inside.eq(1), self.word.eq(word), self.at.eq(at), self.ahead.eq(self.level - leaves)]
        with h.m.Elif(self.inside & leaves):
            h.m.d.sync += [self.ahead.eq(self.ahead - 1), self.inside.eq(self.ahead != 0)]
        h.require(~self.inside | (self.ahead < self.level))

    def require_at_exit(self, *, shown: Value, word: Value) -> None:
        """Require that what is shown is inside, and is the followed word when that is the first one."""
        self.h.require(~shown | (self.level != 0))
        self.h.require(~(shown & self.inside & (self.ahead == 0)) | (word == self.word))

    def require_in(self, rows: list[Signal], *, stored: Value) -> None:
        """Require that the word is in the memory as long as it is `stored` there."""
        row = Signal(len(self.word))
        for k, content in enumerate(rows):
            with self.h.m.If(self.at[:-1] == k):
                self.h.m.d.comb += row.eq(content)
        self.h.require(~(self.inside & stored) | (row == self.word))

    def passed_by(self, pointer: Value) -> Value:
        """Return whether a pointer is beyond the word."""
        return (pointer - self.at - 1)[:BITS] < DEPTH


def words_cross(part: Any, *, store_and_forward: bool) -> ClocksHarness:
    """Follow a word through the FIFO of an ECP5 board."""
    h = ClocksHarness(
        dut := part.ClockCrossing(
            WORD, depth=DEPTH, i_domain="write", o_domain="read", store_and_forward=store_and_forward
        ),
        ("write", "read"),
    )
    h.free_inputs()
    i, o, puts, gets = dut.i, dut.o, h.edges["write"], h.edges["read"]
    h.assume(~(h.resets["write"] & i.valid) & ~(h.resets["read"] & o.ready))
    enters, leaves, word = h.taken(i, puts), h.taken(o, gets), Value.cast(o.payload)
    write, end, shown, read, filled = (h.inner(name) for name in ("write", "end", "shown", "read", "filled"))
    followed = FollowedWord(h, enters=enters, leaves=leaves, word=Value.cast(i.payload), at=write)
    followed.require_at_exit(shown=o.valid, word=word)
    h.require(h.holds(o, gets))
    h.require(~enters | ((write - read)[:BITS] < DEPTH))

    # What makes it so, in each state that is reached: the order of all pointers, and what is where.
    there, back = h.path("shown_there"), h.path("read_there")
    shown_gray, read_gray = from_gray(h.inner("shown_gray")), from_gray(h.inner("read_gray"))
    seen = [from_gray(code) for code in (*reversed(there.stages), there.arrived)]
    freed = [from_gray(code) for code in (*reversed(back.stages), back.arrived)]
    require_order(h, [*freed, read_gray, read, *seen, shown_gray, shown, end, write])
    require_single_steps(h, [seen[-1], shown_gray, shown])
    require_single_steps(h, [freed[-1], read_gray, read])
    h.require(~h.inner("opens") | ((write - freed[0])[:BITS] != DEPTH))
    h.require(h.ran["write"] | ~Cat(write, end, shown, shown_gray, ~h.inner("opens")).any())
    h.require(h.ran["read"] | ~Cat(read, filled, read_gray).any())
    h.require(followed.level == (write - read)[:BITS] + filled)
    h.require(~followed.inside | (followed.at == (read - filled + followed.ahead)[:BITS]))
    followed.require_in(h.rows("memory"), stored=~(filled & (followed.ahead == 0)))
    if store_and_forward:
        require_complete_frames(h, followed, enters=enters & i.payload.last, leaves=leaves & o.payload.last)
    else:
        require_single_steps(h, [shown, write])
        require_exit_in_time(h, followed, entered=[shown, shown_gray, seen[-1]], left=[seen[1], seen[0]], shown_after=3)
    h.reach(followed.inside & (followed.level == DEPTH + 1))
    h.reach(leaves & followed.inside & (followed.ahead == 0) & followed.at[-1])
    h.reach((seen[1] != shown_gray) & (write == DEPTH + 1))
    return h


class Queue(wiring.Component):
    """Amaranth's asynchronous FIFO between two streams."""

    def __init__(self, part: Any):
        super().__init__({"i": In(stream.Signature(WORD)), "o": Out(stream.Signature(WORD))})
        self.fifo = part.AsyncFIFO(width=WORD.size, depth=DEPTH, w_domain="write", r_domain="read")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.fifo = fifo = self.fifo
        m.d.comb += [fifo.w_data.eq(self.i.payload), fifo.w_en.eq(self.i.valid), self.i.ready.eq(fifo.w_rdy)]
        m.d.comb += [self.o.payload.eq(fifo.r_data), self.o.valid.eq(fifo.r_rdy), fifo.r_en.eq(self.o.ready)]
        return m


def items_cross(part: Any) -> ClocksHarness:
    """Follow a word through Amaranth's asynchronous FIFO."""
    h = ClocksHarness(dut := Queue(part), ("write", "read"))
    h.free_inputs()
    i, o = dut.i, dut.o
    h.assume(~(h.resets["write"] & i.valid) & ~(h.resets["read"] & o.ready))
    enters, leaves = h.taken(i, h.edges["write"]), h.taken(o, h.edges["read"])
    write, write_gray, read, read_gray = (
        h.inner(f"fifo.{name}") for name in ("produce_w_bin", "produce_w_gry", "consume_r_bin", "consume_r_gry")
    )
    # A reset of the read domain leaves its pointers as they are. The first reset of all has set them.
    first = Signal(init=1)
    h.m.d.sync += first.eq(0)
    h.assume(~first | ((read == 0) & (read_gray == 0)))
    followed = FollowedWord(h, enters=enters, leaves=leaves, word=Value.cast(i.payload), at=write)
    followed.require_at_exit(shown=o.valid, word=Value.cast(o.payload))
    h.require(h.holds(o, h.edges["read"]))
    h.require(~enters | ((write - read)[:BITS] < DEPTH))

    there, back, reset = h.path("fifo.produce_r_gry"), h.path("fifo.consume_w_gry"), h.reset_stages("fifo.r_rst")
    seen = [from_gray(code) for code in (*reversed(there.stages), there.arrived)]
    freed = [from_gray(code) for code in (*reversed(back.stages), back.arrived)]
    require_order(h, [*freed, read, *seen, write])
    require_single_steps(h, [seen[-1], write])
    require_single_steps(h, [freed[-1], read])
    h.require((from_gray(write_gray) == write) & (from_gray(read_gray) == read))
    # While the reader is in reset nothing has come.
    h.require(h.ran["write"] | ((write == 0) & reset[0] & reset[1]))
    h.require(~reset[0] | (reset[1] & (seen[1] == 0)))
    h.require(~reset[1] | ((seen[0] == 0) & (read == 0)))
    h.require(followed.level == (write - read)[:BITS])
    h.require(~followed.inside | (followed.at == (read + followed.ahead)[:BITS]))
    rows = h.rows("fifo.storage")
    followed.require_in(rows, stored=Const(1))
    h.require(~o.valid | (Value.cast(o.payload) == Array(rows)[read[:-1]]))
    require_exit_in_time(h, followed, entered=[seen[-1]], left=[seen[1], seen[0]], shown_after=2)
    h.reach(followed.level == DEPTH)
    h.reach(leaves & followed.inside & (followed.ahead == 0) & followed.at[-1])
    return h


def require_exit_in_time(
    h: ClocksHarness, followed: FollowedWord, *, entered: list[Value], left: list[Value], shown_after: int
) -> None:
    """Require that the followed word is shown, once it is the first one, after an edge of the writer for each pointer
    of `entered`, and `shown_after` edges of the reader then. Each edge moves the next pointer beyond the word."""
    puts, gets = Signal(range(len(entered) + 1), name="puts"), Signal(range(shown_after + 1), name="gets")
    all_put, all_got = puts == len(entered), gets == shown_after
    with h.m.If(~followed.inside):
        h.m.d.sync += [puts.eq(0), gets.eq(0)]
    with h.m.Else():
        h.m.d.sync += puts.eq(puts + (h.edges["write"] & ~all_put))
        h.m.d.sync += gets.eq(gets + (h.edges["read"] & ~h.resets["read"] & all_put & ~all_got))
    is_shown = h.dut.o.valid & (followed.ahead == 0)
    for edges, pointers in ((puts, entered), (gets, left)):
        for k, pointer in enumerate(pointers):
            h.require(~followed.inside | (edges <= k) | followed.passed_by(pointer) | is_shown)
    h.require((gets == 0) | (all_put & h.ran["read"]))
    h.require(~followed.inside | ~all_got | h.dut.o.valid)
    h.reach(all_got & (followed.ahead == 0))


def require_complete_frames(h: ClocksHarness, followed: FollowedWord, *, enters: Value, leaves: Value) -> None:
    """Require that a word is shown only if its frame's last word is inside."""
    complete = Signal(range(2 * DEPTH))
    h.m.d.sync += complete.eq(complete + enters - leaves)
    h.require(~h.dut.o.valid | (complete != 0))
    # The last words that are inside, wherever they are. Behind `end` there is none, and the word before it is one.
    end, write, read, filled = (h.inner(name) for name in ("end", "write", "read", "filled"))
    last_at_end = h.dut.o.payload.last
    inside = [filled & h.dut.o.payload.last]
    for k, row in enumerate(h.rows("memory")):
        place = Signal(BITS, name=f"place_{k}")
        h.m.d.comb += place.eq((k - read)[: BITS - 1])
        stored = place < (write - read)[:BITS]
        inside.append(stored & row[-1])
        h.require(~(stored & row[-1]) | (place < (end - read)[:BITS]))
        h.require(~((place + 1)[:BITS] == (end - read)[:BITS]) | row[-1])
    h.require(complete == sum(inside))
    h.require(~filled | (end != read) | last_at_end)


PROOFS = [
    Proof(
        law="words cross an ECP5 board's FIFO between any two clocks in order, each once, unchanged and in time",
        part=hw.board.ecp5.crossing,
        harness=functools.partial(words_cross, store_and_forward=False),
        depth=18,
        induction=1,
        mutants=(
            ("self.i.ready.eq(opens)", "self.i.ready.eq(1)"),
            ("Mux(put.en, gray((write + 1)[:bits]), gray(write))", "gray(write)"),
            ("i += shown_gray.eq(gray(shown))", "i += shown_gray.eq(gray(write + put.en))"),
            ("shown_gray.eq(gray(shown))", "shown_gray.eq(gray(shown ^ shown << 1))"),
            ("gray(read) != shown_there)", "1)"),
            ("o += read_gray.eq(gray(read))", "o += read_gray.eq(gray(read + 1))"),
            ("end.eq(write)", "end.eq(write - 1)"),
        ),
    ),
    Proof(
        law="complete frames cross an ECP5 board's FIFO between any two clocks in order, each word once and unchanged",
        part=hw.board.ecp5.crossing,
        harness=functools.partial(words_cross, store_and_forward=True),
        depth=18,
        induction=1,
        mutants=(
            ("shown.eq(shown + 1)", "shown.eq(end)"),
            ("put.en & self.i.payload.last", "put.en"),
            ("moves.eq(~filled | self.o.ready)", "moves.eq(1)"),
        ),
    ),
    Proof(
        law="words cross Amaranth's FIFO between any two clocks in order, each once, unchanged and in time",
        part=amaranth.lib.fifo,
        harness=items_cross,
        depth=16,
        induction=1,
        mutants=(
            ("self.w_rdy.eq(~w_full)", "self.w_rdy.eq(1)"),
            ("(produce_w_gry[-2] != consume_w_gry[-2])", "(produce_w_gry[-2] == consume_w_gry[-2])"),
            ("eq(_gray_encode(produce_w_nxt))", "eq(produce_w_nxt)"),
            ("r_port.addr.eq(consume_r_nxt[:-1])", "r_port.addr.eq(consume_r_bin[:-1])"),
            ("r_empty.eq(consume_r_gry == produce_r_gry)", "r_empty.eq(0)"),
        ),
    ),
]
