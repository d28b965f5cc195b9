"""Clients of the replay service: each one's place, and the number of its next request."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from iswitch.wire.replay import SESSION_SILENT_US

__all__ = ["Session", "Sessions"]


class Session(data.Struct):
    """A place: `next` is the number of its next request, of the last `kept` before it its client may have the answers
    again; its log ends at `written`, and is kept from `oldest` on. `heard` in microseconds."""

    open: 1
    port: 4
    nonce: 64
    address: Address
    next: 32
    kept: range(17)
    heard: 32
    written: 32
    oldest: 32


class Sessions(wiring.Component):
    """The rows of all places. `row` is that of `index` 1 cycle later; with `write` it becomes `row_next`.

    With `search` the places are gone through for the nonce: `found` pulses when that is done, 2 cycles and 2 for each
    place later, with `place` and `opened` (the nonce is open there) or `full` (there is none). A new client gets the
    lowest place that is not open, else the lowest that has been silent for too long. After a reset nothing is open, and
    the `next` of a place is `kept` before 0; ready when `wiped`, a cycle for each place later.
    """

    def __init__(self, *, sessions: int, kept: int):
        self.sessions, self.kept = sessions, kept
        super().__init__(
            {
                "index": In(range(sessions)),
                "row": Out(Session),
                "write": In(1),
                "row_next": In(Session),
                "wiped": Out(1),
                "search": In(1),
                "nonce": In(64),
                "now_us": In(32),
                "found": Out(1),
                "place": Out(range(sessions)),
                "opened": Out(1),
                "full": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Session, depth=self.sessions, init=[])
        put, get = memory.write_port(), memory.read_port()
        walk, walks, looks = Signal(range(self.sessions)), Signal(init=1), Signal()
        wiping = Signal(init=1)
        unused = Signal(Session)
        m.d.comb += [
            unused.next.eq(-self.kept),
            self.wiped.eq(~wiping),
            get.addr.eq(Mux(walks, walk, self.index)),
            self.row.eq(get.data),
            put.addr.eq(Mux(wiping, walk, self.index)),
            put.en.eq(wiping | self.write),
            put.data.eq(Mux(wiping, unused.as_value(), self.row_next.as_value())),
        ]
        vacant, silent = Signal(), Signal()
        vacancy, silence = Signal.like(self.place), Signal.like(self.place)
        m.d.comb += [self.full.eq(~(self.opened | vacant | silent))]
        seen = get.data
        with m.If(walks):
            m.d.sync += looks.eq(~looks)
            with m.If(looks | wiping):
                m.d.sync += [walk.eq(walk + 1), looks.eq(0)]
                with m.If(walk == self.sessions - 1):
                    m.d.sync += [walks.eq(0), wiping.eq(0)]
            with m.If(looks & ~wiping):
                with m.If(seen.open & (seen.nonce == self.nonce)):
                    m.d.sync += [self.opened.eq(1), self.place.eq(walk)]
                with m.If(~seen.open & ~vacant):
                    m.d.sync += [vacant.eq(1), vacancy.eq(walk)]
                with m.If(seen.open & ~silent & ((self.now_us - seen.heard)[:32] >= SESSION_SILENT_US)):
                    m.d.sync += [silent.eq(1), silence.eq(walk)]
        done = Signal()
        m.d.sync += done.eq(walks & ~wiping & looks & (walk == self.sessions - 1))
        with m.If(done & ~self.opened):
            m.d.sync += self.place.eq(Mux(vacant, vacancy, silence))
        m.d.sync += self.found.eq(done)
        with m.If(self.search):
            m.d.sync += [walks.eq(1), walk.eq(0), looks.eq(0), self.opened.eq(0), vacant.eq(0), silent.eq(0)]
        return m
