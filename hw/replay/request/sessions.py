"""Sessions of the replay service: one row for each client, and the search for a client's session."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.stream.parity import with_parity
from iswitch.wire.replay import SESSION_SILENT_US

__all__ = ["Session", "Sessions"]


class Session(data.Struct):
    """State of a session.

    `nonce`, `port` and `address` are its client's. `next` is the number of its next request; the answers of the
    `cached` requests before it are cached. Its log is kept from `oldest` on, and ends before `written`, both in units.
    `heard` is the time of its last request in microseconds.
    """

    open: 1
    port: 4
    nonce: 64
    address: Address
    next: 32
    cached: range(17)
    heard: 32
    written: 32
    oldest: 32


class Sessions(wiring.Component):
    """The rows of all sessions, and the search for a nonce.

    `row` is the row of `index` of 1 cycle before. `write` replaces the row of `index` by `row_next`. Each row has a
    parity bit: `corrupt` is 1 if the `row` of 1 cycle before has a bit error.

    `search` starts a walk through all sessions. `found` is 1 for one cycle when the walk is done: 3 cycles, and 2 for
    each session, after `search`. Then `opened` says that session `found_index` is open with `nonce`. Otherwise a new
    client may have session `found_index`: the lowest one that is not open or is corrupt, or else the lowest that has
    been silent for `SESSION_SILENT_US`. `full`: there is none. All three stay until the next search. `row` is undefined
    during a search. `searched_corrupt` is 1 for one cycle for each corrupt row that the walk meets.

    After a reset no session is open, and every `next` is `cached_answers` below 0. `wiped` is 1 when the rows are
    written, 1 cycle for each session.
    """

    def __init__(self, *, sessions: int, cached_answers: int):
        self.sessions, self.cached_answers = sessions, cached_answers
        super().__init__(
            {
                "index": In(range(sessions)),
                "row": Out(Session),
                "corrupt": Out(1),
                "write": In(1),
                "row_next": In(Session),
                "wiped": Out(1),
                "search": In(1),
                "nonce": In(64),
                "now_us": In(32),
                "found": Out(1),
                "found_index": Out(range(sessions)),
                "opened": Out(1),
                "full": Out(1),
                "searched_corrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        stored = data.StructLayout({"row": Session, "parity": 1})
        m.submodules.memory = memory = Memory(shape=stored, depth=self.sessions, init=[])
        write_port, read_port = memory.write_port(), memory.read_port()
        walk_index, walking, row_shown = Signal(range(self.sessions)), Signal(init=1), Signal()
        wiping = Signal(init=1)
        initial = Signal(Session)
        m.d.comb += [
            initial.next.eq(-self.cached_answers),
            self.wiped.eq(~wiping),
            read_port.addr.eq(Mux(walking, walk_index, self.index)),
            self.row.eq(read_port.data.row),
            write_port.addr.eq(Mux(wiping, walk_index, self.index)),
            write_port.en.eq(wiping | self.write),
            write_port.data.eq(with_parity(Mux(wiping, initial.as_value(), self.row_next.as_value()))),
        ]
        m.d.sync += self.corrupt.eq(read_port.data.as_value().xor())
        any_free, any_silent = Signal(), Signal()
        free_index, silent_index = Signal.like(self.found_index), Signal.like(self.found_index)
        m.d.comb += [self.full.eq(~(self.opened | any_free | any_silent))]
        # The walk shows each row for 2 cycles. It looks at the row in the second, in which `corrupt` is that row's.
        looks, looked_index, walked = Signal(), Signal.like(self.found_index), Signal()
        row = self.row
        with m.If(walking):
            m.d.sync += row_shown.eq(~row_shown)
            with m.If(row_shown | wiping):
                m.d.sync += [walk_index.eq(walk_index + 1), row_shown.eq(0)]
                with m.If(walk_index == self.sessions - 1):
                    m.d.sync += [walking.eq(0), wiping.eq(0)]
        m.d.comb += self.searched_corrupt.eq(looks & self.corrupt)
        m.d.sync += [
            looks.eq(walking & ~wiping & row_shown),
            looked_index.eq(walk_index),
            walked.eq(looks & (looked_index == self.sessions - 1)),
            self.found.eq(walked),
        ]
        is_free, is_silent = Signal(), Signal()
        m.d.comb += [
            is_free.eq(~row.open | self.corrupt),
            is_silent.eq((self.now_us - row.heard)[:32] >= SESSION_SILENT_US),
        ]
        with m.If(looks):
            with m.If(~is_free & (row.nonce == self.nonce)):
                m.d.sync += [self.opened.eq(1), self.found_index.eq(looked_index)]
            with m.If(is_free & ~any_free):
                m.d.sync += [any_free.eq(1), free_index.eq(looked_index)]
            with m.If(~is_free & ~any_silent & is_silent):
                m.d.sync += [any_silent.eq(1), silent_index.eq(looked_index)]
        with m.If(walked & ~self.opened):
            m.d.sync += self.found_index.eq(Mux(any_free, free_index, silent_index))
        with m.If(self.search):
            m.d.sync += [
                walking.eq(1),
                walk_index.eq(0),
                row_shown.eq(0),
                self.opened.eq(0),
                any_free.eq(0),
                any_silent.eq(0),
            ]
        return m
