"""Behind which port a station is: a memory of the source addresses of all frames."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from iswitch.config import Config

__all__ = ["MacTable", "set_number"]

WAYS = 4
TICK_BITS = slice(24, 32)
"""Of `now_us`: time stamps count modulo 256 ticks of 16.8 s."""
LIFETIME_TICKS = 18
"""285 to 302 s; IEEE 802.1D recommends 300 s (7.9.2)."""


class Entry(data.Struct):
    """A station, the port it was last seen at, and when."""

    mac: 48
    port: 4
    stamp: 8
    valid: 1


def set_number(mac, bits: int):
    """The set of an address, which comes with its first byte lowest: the exclusive or of its groups of `bits` bits, the
    last byte's first, so that addresses given out one after another stand apart."""
    number = Cat(*(mac[at : at + 8] for at in reversed(range(0, 48, 8))))
    folded = number[:bits]
    for at in range(bits, 48, bits):
        folded = folded ^ number[at : at + bits]
    return folded


class MacTable(wiring.Component):
    """Sets of four entries, found by the exclusive or of an address's bits. An entry that is dead by age is as good as
    absent.

    With `takes` a frame's addresses are looked up, and its source is learnt: an entry of the same address is renewed,
    else an absent one is taken, else the oldest, the lowest in doubt. Group addresses, zero and `own_mac` are not
    learnt. `known` and `port` tell of the destination from 2 cycles after `takes` to 1 after the next; the frame itself
    does not count. `takes` may come every other cycle.

    Stamps are modulo 256 ticks: after every tick a walk buries the dead, in cycles without `takes`, before they could
    look fresh again. `busy` until it is done: whoever lets time jump while the clock stands should not stop the clock
    then. Takes nothing until `wiped`, a cycle for each set after reset. The truth is `sim/model/bridge/forwarder.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "takes": In(1),
                "destination": In(48),
                "source": In(48),
                "ingress": In(4),
                "own_mac": In(48),
                "now_us": In(32),
                "known": Out(1),
                "port": Out(4),
                "wiped": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sets = self.config.mac_entries // WAYS
        bits = exact_log2(sets)
        m.submodules.memory = memory = Memory(
            shape=data.ArrayLayout(Entry, WAYS), depth=sets, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        put = memory.write_port(granularity=1)
        find, meet = memory.read_port(), memory.read_port()
        tick = self.now_us[TICK_BITS]

        # The walk: over all sets to wipe them after a reset, and again after each tick.
        at, wiping, walking, walked = Signal(range(sets)), Signal(init=1), Signal(), Signal(8)
        walks = walking & ~self.takes
        m.d.comb += [self.wiped.eq(~wiping), self.busy.eq(wiping | walking | (tick != walked))]
        with m.If(wiping | walks):
            m.d.sync += at.eq(at + 1)
            with m.If(at == sets - 1):
                m.d.sync += [wiping.eq(0), walking.eq(0)]
        with m.Elif(~walking & (tick != walked)):
            m.d.sync += [walking.eq(1), walked.eq(tick)]

        # Rows are asked for.
        destination, source, ingress = Signal(48), Signal(48), Signal(4)
        took, stepped, asked = Signal(), Signal(), Signal(bits)
        m.d.comb += [
            find.addr.eq(set_number(self.destination, bits)),
            find.en.eq(self.takes),
            meet.addr.eq(Mux(self.takes, set_number(self.source, bits), at)),
            meet.en.eq(self.takes | walks),
        ]
        m.d.sync += [took.eq(self.takes), stepped.eq(walks), asked.eq(meet.addr)]
        with m.If(self.takes):
            m.d.sync += [destination.eq(self.destination), source.eq(self.source), ingress.eq(self.ingress)]

        # The next frame may come in the cycle in which a row is written: of the ways written then, what is read is old,
        # and `last` is new.
        last, fresh = Signal(Entry), {}
        m.d.sync += last.eq(put.data[0])
        for name in ("found", "met"):
            fresh[name] = Signal(WAYS, name=f"fresh_{name}")
            same_row = (
                put.addr == find.addr
                if name == "found"
                else Mux(self.takes, put.addr == set_number(self.source, bits), put.addr == at)
            )
            m.d.sync += fresh[name].eq(Mux(same_row, put.en, 0))

        # Rows are here: compare.
        learns, buries, row = Signal(), Signal(), Signal(bits)
        same, dead, ages = (
            Signal(WAYS),
            Signal(WAYS),
            [Signal(range(LIFETIME_TICKS + 1), name=f"age_{k}") for k in range(WAYS)],
        )
        alive = lambda entry: entry.valid & ((tick - entry.stamp)[:8] < LIFETIME_TICKS)
        hits = [
            alive(entry) & (entry.mac == destination) & ~new
            for entry, new in zip(find.data, fresh["found"], strict=True)
        ]
        hits.append(alive(last) & (last.mac == destination) & fresh["found"].any())
        with m.If(took):
            # A living station has one entry, so one of these at most is not 0.
            ports = (Mux(hit, entry.port, 0) for entry, hit in zip((*find.data, last), hits, strict=True))
            m.d.sync += [self.known.eq(Cat(hits).any()), self.port.eq(reduce(or_, ports))]
        # The walk may hold a row from just before it was written: what is being written now is not dead.
        written = Mux(put.addr == asked, put.en, 0)
        m.d.sync += [
            learns.eq(took & ~source[0] & (source != 0) & (source != self.own_mac)),
            buries.eq(stepped),
            row.eq(asked),
        ]
        seen = [
            (alive(entry), alive(entry) & (entry.mac == source), tick - entry.stamp) for entry in (*meet.data, last)
        ]
        for k, new in enumerate(fresh["met"]):
            lives, is_it, age = (Mux(new, now, before) for before, now in zip(seen[k], seen[-1], strict=True))
            m.d.sync += [
                same[k].eq(is_it),
                dead[k].eq(~lives & ~written[k]),
                ages[k].eq(Mux(lives, age, LIFETIME_TICKS)),
            ]

        # One of the ways is written, or the dead ones.
        later = [(ages[k + 1] > ages[k], Mux(ages[k + 1] > ages[k], ages[k + 1], ages[k])) for k in (0, 2)]
        upper = later[1][1] > later[0][1]
        oldest = Cat(~upper & ~later[0][0], ~upper & later[0][0], upper & ~later[1][0], upper & later[1][0])
        with m.If(wiping):
            m.d.comb += [put.addr.eq(at), put.en.eq((1 << WAYS) - 1)]
        with m.Else():
            m.d.comb += [put.addr.eq(row), put.en.eq(Mux(learns, Mux(same.any(), same, oldest), Mux(buries, dead, 0)))]
        for entry in put.data:
            m.d.comb += [entry.mac.eq(source), entry.port.eq(ingress), entry.stamp.eq(tick), entry.valid.eq(learns)]
        return m
