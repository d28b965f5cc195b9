"""The port behind which each station is, learnt from the source addresses of all frames."""

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
"""Bits of `now_us` that are a time stamp: it counts ticks of 16.8 s, modulo 256."""
LIFETIME_TICKS = 18
"""Age at which an entry expires: 285 to 302 s. IEEE 802.1D recommends 300 s (7.9.2)."""


class Entry(data.StructLayout):
    """A station, the port that received its last frame, and the time stamp of that frame.

    `tag` is the station's address without the bits that follow from these and the number of its set.
    """

    def __init__(self, config: Config):
        tag_bits = 48 - exact_log2(config.mac_entries // WAYS)
        super().__init__({"tag": tag_bits, "port": range(config.ports), "stamp": 8, "valid": 1})


def lowest_byte_first(mac):
    return Cat(*(mac[at : at + 8] for at in reversed(range(0, 48, 8))))


def set_number(mac, bits: int):
    """Return the set of an address whose first byte is lowest.

    The set is the exclusive or of the address's groups of `bits` bits, the last byte's first, so that consecutive
    addresses are in different sets.
    """
    number = lowest_byte_first(mac)
    folded = number[:bits]
    for at in range(bits, 48, bits):
        folded = folded ^ number[at : at + bits]
    return folded


def tag_of(mac, bits: int):
    """Return the bits of an address that tell it from others of its set, if there are 2^bits sets. The other bits are
    the exclusive or of the set's number and these."""
    return lowest_byte_first(mac)[bits:]


class MacTable(wiring.Component):
    """A cache of stations in sets of four ways. The golden model is `sim/model/bridge/forwarder.py`.

    With `lookup`, the port of `destination` is looked up and `source` is learnt: its own entry is renewed, or else an
    expired entry is replaced, or else the oldest one, the lowest way first. Group addresses, zero and `own_mac` are not
    learnt. `known` and `port` are valid from 2 cycles after `lookup`, until 1 cycle after the next; they do not take
    the frame itself into account. `lookup` may be 1 in every other cycle, once `wiped` is 1, a cycle for each set after
    reset.

    Time stamps are modulo 256 ticks. After every tick an aging sweep clears expired entries, in cycles without
    `lookup`, before they could look fresh again. `busy` is 1 until the sweep is done: an environment that lets `now_us`
    jump while the clock is stopped must not stop the clock before.

    If the `link` of a port goes down, `up` of the port is 0 from the next cycle on: its stations count as absent, and
    no station is learnt there. A sweep clears them. So `up` follows a link that comes up at once after at most four
    times as many cycles as there are sets.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "lookup": In(1),
                "destination": In(48),
                "source": In(48),
                "ingress": In(4),
                "own_mac": In(48),
                "now_us": In(32),
                "link": In(config.ports, init=(1 << config.ports) - 1),
                "up": Out(config.ports),
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
            shape=data.ArrayLayout(Entry(self.config), WAYS), depth=sets, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        writer = memory.write_port(granularity=1)
        dst_read, src_read = memory.read_port(), memory.read_port()
        tick = self.now_us[TICK_BITS]

        # The sweep visits all sets, after a reset to wipe them, and after each tick or loss of a link to clear expired
        # entries. Those of the last row are gone 2 cycles after its visit.
        ports, up = self.config.ports, self.up
        sweep_at, wiping, sweeping, swept_tick = Signal(range(sets)), Signal(init=1), Signal(), Signal(8)
        uncleared, clearing, visited = Signal(ports), Signal(ports), Signal(2)
        sweeps, is_last = sweeping & ~self.lookup, sweep_at == sets - 1
        m.d.comb += [
            self.wiped.eq(~wiping),
            self.busy.eq(wiping | sweeping | (tick != swept_tick) | uncleared.any() | (up != self.link)),
        ]
        m.d.sync += visited.eq(Cat(sweeps & is_last, visited))
        with m.If(wiping | sweeps):
            m.d.sync += sweep_at.eq(sweep_at + 1)
            with m.If(is_last):
                m.d.sync += [wiping.eq(0), sweeping.eq(0)]
        with m.Elif(~sweeping & ~visited.any() & ((tick != swept_tick) | uncleared.any())):
            m.d.sync += [sweeping.eq(1), swept_tick.eq(tick), clearing.eq(uncleared)]
        with m.If(visited[-1]):
            m.d.sync += uncleared.eq(uncleared & ~clearing)
        for port in range(ports):
            with m.If(up[port] & ~self.link[port]):
                m.d.sync += [up[port].eq(0), uncleared[port].eq(1)]
            with m.Elif(self.link[port] & ~uncleared[port]):
                m.d.sync += up[port].eq(1)

        # First cycle: read the rows.
        written, source_tag = Signal(Entry(self.config)), Signal(48 - bits)
        destination, source, ingress = Signal(48 - bits), Signal(48), Signal.like(written.port)
        looked_up, swept, read_row = Signal(), Signal(), Signal(bits)
        m.d.comb += [
            source_tag.eq(tag_of(source, bits)),
            dst_read.addr.eq(set_number(self.destination, bits)),
            dst_read.en.eq(self.lookup),
            src_read.addr.eq(Mux(self.lookup, set_number(self.source, bits), sweep_at)),
            src_read.en.eq(self.lookup | sweeps),
        ]
        m.d.sync += [looked_up.eq(self.lookup), swept.eq(sweeps), read_row.eq(src_read.addr)]
        with m.If(self.lookup):
            m.d.sync += [
                destination.eq(tag_of(self.destination, bits)),
                source.eq(self.source),
                ingress.eq(self.ingress),
            ]

        # A row may be written in the cycle in which it is read. The ways that were written then are `superseded`: the
        # memory shows their old entry, and `written` is the new one.
        superseded = {}
        m.d.sync += written.eq(writer.data[0])
        for name in ("dst", "src"):
            superseded[name] = Signal(WAYS, name=f"superseded_{name}")
            same_row = (
                writer.addr == dst_read.addr
                if name == "dst"
                else Mux(self.lookup, writer.addr == set_number(self.source, bits), writer.addr == sweep_at)
            )
            m.d.sync += superseded[name].eq(Mux(same_row, writer.en, 0))

        # Second cycle: compare.
        learns, expires, row = Signal(), Signal(), Signal(bits)
        matching, expired, ages = (
            Signal(WAYS),
            Signal(WAYS),
            [Signal(range(LIFETIME_TICKS + 1), name=f"age_{k}") for k in range(WAYS)],
        )
        is_live = lambda entry: entry.valid & up.bit_select(entry.port, 1) & ((tick - entry.stamp)[:8] < LIFETIME_TICKS)
        hits = [
            is_live(entry) & (entry.tag == destination) & ~new
            for entry, new in zip(dst_read.data, superseded["dst"], strict=True)
        ]
        hits.append(is_live(written) & (written.tag == destination) & superseded["dst"].any())
        with m.If(looked_up):
            # A station has at most one entry that is not expired, so at most one term is not 0.
            ports = (Mux(hit, entry.port, 0) for entry, hit in zip((*dst_read.data, written), hits, strict=True))
            m.d.sync += [self.known.eq(Cat(hits).any()), self.port.eq(reduce(or_, ports))]
        # The sweep may have read a row just before it was written: an entry that is written now is not expired.
        written_ways = Mux(writer.addr == read_row, writer.en, 0)
        m.d.sync += [
            learns.eq(looked_up & up.bit_select(ingress, 1) & ~source[0] & (source != 0) & (source != self.own_mac)),
            expires.eq(swept),
            row.eq(read_row),
        ]
        states = [
            (is_live(entry), is_live(entry) & (entry.tag == source_tag), tick - entry.stamp)
            for entry in (*src_read.data, written)
        ]
        for k, new in enumerate(superseded["src"]):
            live, matches, age = (Mux(new, now, before) for before, now in zip(states[k], states[-1], strict=True))
            m.d.sync += [
                matching[k].eq(matches),
                expired[k].eq(~live & ~written_ways[k]),
                ages[k].eq(Mux(live, age, LIFETIME_TICKS)),
            ]

        # Third cycle: write the way of the source, or clear the expired ways.
        older = [(ages[k + 1] > ages[k], Mux(ages[k + 1] > ages[k], ages[k + 1], ages[k])) for k in (0, 2)]
        upper = older[1][1] > older[0][1]
        oldest = Cat(~upper & ~older[0][0], ~upper & older[0][0], upper & ~older[1][0], upper & older[1][0])
        with m.If(wiping):
            m.d.comb += [writer.addr.eq(sweep_at), writer.en.eq((1 << WAYS) - 1)]
        with m.Else():
            m.d.comb += [
                writer.addr.eq(row),
                writer.en.eq(Mux(learns, Mux(matching.any(), matching, oldest), Mux(expires, expired, 0))),
            ]
        for entry in writer.data:
            m.d.comb += [entry.tag.eq(source_tag), entry.port.eq(ingress), entry.stamp.eq(tick), entry.valid.eq(learns)]
        return m
