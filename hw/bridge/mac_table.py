"""The port behind which each station is, learnt from the source addresses of all frames."""

from functools import reduce
from itertools import combinations
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
NARROW_BUS_BITS = 64
"""Width of the bus at which a frame of 60 bytes takes 8 cycles, of which the table needs two to read."""


class State(data.StructLayout):
    """The port that received a station's last frame, and the time stamp of that frame. `parity`: even parity of the
    valid entry, with its tag."""

    def __init__(self, config: Config):
        super().__init__({"port": range(config.ports), "stamp": 8, "valid": 1, "parity": 1})


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


def first_from(turn, ways):
    """Return the first of the set bits of `ways` from bit `turn` on, in a circle, as a one-hot value."""
    rows = []
    for begin in range(WAYS):
        order = [(begin + k) % WAYS for k in range(WAYS)]
        firsts = {way: ways[way] & ~Cat(ways[before] for before in order[:k]).any() for k, way in enumerate(order)}
        rows.append(Mux(turn == begin, Cat(firsts[way] for way in range(WAYS)), 0))
    return reduce(or_, rows)


class MacTable(wiring.Component):
    """A cache of stations in sets of four ways. The golden model is `host/iswitch/golden/bridge/forwarder.py`.

    With `lookup`, the port of `destination` is looked up and `source` is learnt. Its own entry is renewed. A new
    station takes a free or expired way of its set, or else a way of a port that has at least two more ways of the set
    than the port of the new station, or else a way of its own port, or else it is not learnt. Of several such ways it
    takes the first from way `turn` on, in a circle. `turn` counts learnt frames. Group addresses, zero, `own_mac` and
    sources without `learn` are not learnt. `known` and `port` are valid from 2 cycles after `lookup`, until 1 cycle
    after the next; they do not take the frame itself into account. `lookup` may be 1 in every other cycle, once `wiped`
    is 1, a cycle for each set after reset.

    Time stamps are modulo 256 ticks. After every tick an aging sweep clears expired entries, before they could look
    fresh again. The sweep writes in cycles in which no station is learnt. If the bus has `NARROW_BUS_BITS`, the sweep
    reads in cycles without `lookup` in them or in the cycle before, else it has a read port of its own. `busy` is 1
    until the sweep is done: an environment that lets `now_us` jump while the clock is stopped must not stop the clock
    before, nor within 4 cycles of `lookup`.

    An entry with a bit error counts as absent, so its station's frames are flooded until the station sends again.

    If the `link` of a port goes down, `up` of the port is 0 from the next cycle on: its stations count as absent, and
    no station is learnt there. A sweep clears them. So `up` follows a link that comes up at once after at most eight
    times as many cycles as there are sets, plus those in which a sweep without a read port of its own waits for it.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "lookup": In(1),
                "destination": In(48),
                "source": In(48),
                "learn": In(1, init=1),
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
        tag_bits = 48 - bits
        m.submodules.tags = tags = Memory(
            shape=data.ArrayLayout(tag_bits, WAYS), depth=sets, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        m.submodules.states = states = Memory(
            shape=data.ArrayLayout(State(self.config), WAYS), depth=sets, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        tag_write, state_write = tags.write_port(granularity=1), states.write_port(granularity=1)
        tag_read, state_read = tags.read_port(), states.read_port()
        shares_port = self.config.bus_bits == NARROW_BUS_BITS
        sweep_read = state_read if shares_port else states.read_port()
        tick, up = self.now_us[TICK_BITS], self.up
        is_sound = lambda entry, tag: ~Cat(entry, tag).xor()
        is_live = lambda entry: entry.valid & up.bit_select(entry.port, 1) & ((tick - entry.stamp)[:8] < LIFETIME_TICKS)

        # The entry that was learnt last is written in the fourth cycle after its lookup, and is compared beside the
        # memory's in this cycle and the next.
        learns, learnt_before, written_ways = Signal(), Signal(), Signal(WAYS)
        written_tag, written_row, written = Signal(tag_bits), Signal(bits), Signal(State(self.config))

        # The sweep visits all sets, after a reset to wipe them, and after each tick or loss of a link to clear expired
        # entries. A visit takes a cycle to read a row, a cycle to judge the row and a cycle to write it, which waits
        # while a station is learnt. The ways that were learnt since the row was read are not cleared.
        ports = self.config.ports
        sweep_at, wiping, sweeping, swept_tick = Signal(range(sets)), Signal(init=1), Signal(), Signal(8)
        uncleared, clearing, visit = Signal(ports), Signal(ports), Signal(2)
        expired, learnt_since = Signal(WAYS), Signal(WAYS)
        stage, port_is_free = Signal(2), Signal()
        reads_row, clears, is_last = (sweeping & ~visit.any() & port_is_free, visit[1] & ~learns, sweep_at == sets - 1)
        learnt_here = Mux(learns & (written_row == sweep_at), written_ways, 0)
        m.d.comb += [
            self.wiped.eq(~wiping),
            self.busy.eq(wiping | sweeping | (tick != swept_tick) | uncleared.any() | (up != self.link)),
            port_is_free.eq(~(self.lookup | stage[0]) if shares_port else 1),
        ]
        if not shares_port:
            m.d.comb += [sweep_read.addr.eq(sweep_at), sweep_read.en.eq(reads_row)]
        m.d.sync += [
            visit.eq(Mux(visit[1] & learns, visit, Cat(reads_row, visit[0]))),
            learnt_since.eq(Mux(reads_row, 0, learnt_since) | learnt_here),
        ]
        with m.If(visit[0]):
            m.d.sync += expired.eq(Cat(~is_live(entry) for entry in sweep_read.data))
        with m.If(wiping | clears):
            m.d.sync += sweep_at.eq(sweep_at + 1)
            with m.If(is_last):
                m.d.sync += [wiping.eq(0), sweeping.eq(0), uncleared.eq(uncleared & ~clearing)]
        with m.Elif(~sweeping & ((tick != swept_tick) | uncleared.any())):
            m.d.sync += [sweeping.eq(1), swept_tick.eq(tick), clearing.eq(uncleared)]
        for port in range(ports):
            with m.If(up[port] & ~self.link[port]):
                m.d.sync += [up[port].eq(0), uncleared[port].eq(1)]
            with m.Elif(self.link[port] & ~uncleared[port]):
                m.d.sync += up[port].eq(1)

        # First cycle: read the row of the destination. Second cycle: read the row of the source.
        row, key = Signal(bits), Signal(tag_bits)
        source, source_row, is_station, ingress = Signal(48), Signal(bits), Signal(), Signal.like(written.port)
        learn = Signal()
        reads = self.lookup | stage[0]
        address = Mux(self.lookup, set_number(self.destination, bits), source_row)
        m.d.comb += [
            tag_read.addr.eq(address),
            tag_read.en.eq(reads),
            state_read.addr.eq(Mux(reads, address, sweep_at) if shares_port else address),
            state_read.en.eq(reads | reads_row if shares_port else reads),
        ]
        m.d.sync += [
            stage.eq(Cat(self.lookup, stage)),
            is_station.eq(learn & ~source[0] & (source != 0) & (source != self.own_mac)),
        ]
        with m.If(reads):
            m.d.sync += [
                row.eq(tag_read.addr),
                key.eq(Mux(self.lookup, tag_of(self.destination, bits), tag_of(source, bits))),
            ]
        with m.If(self.lookup):
            m.d.sync += [
                source.eq(self.source),
                source_row.eq(set_number(self.source, bits)),
                learn.eq(self.learn),
                ingress.eq(self.ingress),
            ]

        # Second and third cycle: compare. The memory shows the old entry of a way that is being written, or that was
        # written as the row was read.
        superseded = Mux((learns | learnt_before) & (row == written_row), written_ways, 0)
        written_matches = superseded.any() & (written_tag == key)
        live = [
            is_live(entry) & is_sound(entry, tag) for entry, tag in zip(state_read.data, tag_read.data, strict=True)
        ]
        matches = [alive & (tag == key) for alive, tag in zip(live, tag_read.data, strict=True)]
        hits = Cat(matches) & ~superseded
        with m.If(stage[0]):
            # A station has at most one entry that is not expired, so at most one term is not 0.
            found = (
                *(Mux(hit, entry.port, 0) for hit, entry in zip(hits, state_read.data, strict=True)),
                Mux(written_matches, written.port, 0),
            )
            m.d.sync += [self.known.eq(hits.any() | written_matches), self.port.eq(reduce(or_, found))]

        # Third cycle: which ways could the source take? `crowded` and `own` count if all ways are live. In that case a
        # port with three ways has two more than another with any, and one with two ways has two more than one without.
        matching, free, crowded, own, turn = Signal(WAYS), Signal(WAYS), Signal(WAYS), Signal(WAYS), Signal(range(WAYS))
        holders = [Mux(new, written.port, entry.port) for new, entry in zip(superseded, state_read.data, strict=True)]
        is_own = Cat(holder == ingress for holder in holders)
        shared = {pair: holders[pair[0]] == holders[pair[1]] for pair in combinations(range(WAYS), 2)}
        others = [[shared[min(k, j), max(k, j)] for j in range(WAYS) if j != k] for k in range(WAYS)]
        several = [Cat(same).any() for same in others]
        three = [(a & b) | (a & c) | (b & c) for a, b, c in others]
        may_learn = stage[1] & is_station & up.bit_select(ingress, 1)
        m.d.sync += [learns.eq(may_learn), learnt_before.eq(learns)]
        with m.If(may_learn):
            m.d.sync += [
                written_tag.eq(key),
                written_row.eq(row),
                written.port.eq(ingress),
                written.stamp.eq(tick),
                matching.eq(hits | Mux(written_matches, superseded, 0)),
                free.eq(~(Cat(live) | superseded)),
                crowded.eq(Cat(Mux(is_own.any(), three[k], several[k]) for k in range(WAYS))),
                own.eq(is_own),
                turn.eq(turn + 1),
            ]

        # Fourth cycle: write the way of the source. The sweep clears expired ways in other cycles. It reads no tags, so
        # an entry with a bit error stays until it expires or a station takes its way.
        candidates = Mux(free.any(), free, Mux(crowded.any(), crowded, own))
        m.d.comb += written_ways.eq(Mux(matching.any(), matching, first_from(turn, candidates)))
        for writer in (tag_write, state_write):
            m.d.comb += [
                writer.addr.eq(Mux(learns, written_row, sweep_at)),
                writer.en.eq(
                    Mux(learns, written_ways, Mux(clears, expired & ~learnt_since, Mux(wiping, (1 << WAYS) - 1, 0)))
                ),
            ]
        for way in range(WAYS):
            m.d.comb += [
                tag_write.data[way].eq(written_tag),
                state_write.data[way].eq(written),
                state_write.data[way].valid.eq(learns),
                state_write.data[way].parity.eq(Cat(written_tag, written.port, written.stamp, 1).xor()),
            ]
        return m
