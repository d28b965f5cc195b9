"""The registers: what the switch is, and a counter for everything that happens to a frame."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from iswitch.config import Config
from iswitch.wire import MAGIC, VERSION, Outcome, PortCounter, Register, Stat, port_counter_register

__all__ = ["Counters"]


class Counters(wiring.Component):
    """32-bit counters that wrap, read with the configuration by address.

    `port_events[port][k]` and `stats[k]` are added to their counters every cycle; `outcome` counts in the cycle of `decided`.
    With `reads`, `value` shows the register at `address` 2 cycles later: all events before the cycle of `reads`. No more than every second
    cycle may read, on average over a turn of the walk. `cleared`: the counters are those since reset; not to be read before.

    32 bits of logic for each event would be a fifth of a small FPGA. So events are counted in few bits first, and a walk moves what
    is pending into a memory, one counter a cycle. A read takes the walk's place, and so nothing is pending behind what it shows.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "decided": In(1), "outcome": In(Outcome), "flushed": In(range(config.lanes + 1)),
            "stats": In(1).array(len(Stat)), "port_events": In(1).array(config.ports, len(PortCounter)),
            "reads": In(1), "address": In(32), "value": Out(32), "cleared": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        configuration = {
            Register.MAGIC: MAGIC, Register.VERSION: VERSION, Register.PORTS: c.ports, Register.BUS_BITS: c.bus_bits,
            Register.MEMBERS: c.members, Register.JOBS: c.jobs, Register.WINDOW: c.window, Register.ELEMENTS: c.elements}
        events = {Register.OUTCOMES + outcome: self.decided & (self.outcome == outcome) for outcome in Outcome}
        events |= {Register.STATS + stat: self.stats[stat] for stat in Stat if stat != Stat.TERMS_FLUSHED}
        events |= {port_counter_register(port, event): self.port_events[port][event]
                   for port in range(c.ports) for event in PortCounter}

        bits = ceil_log2(max(events) + 1)
        m.submodules.memory = memory = Memory(
            shape=unsigned(32), depth=2**bits, init=[configuration.get(address, 0) for address in range(Register.OUTCOMES)])
        put = memory.write_port()
        get = memory.read_port(transparent_for=(put,))

        walk, at = Signal(bits), Signal(bits)
        m.d.comb += [at.eq(Mux(self.reads, self.address, walk)), get.addr.eq(at)]
        with m.If(~self.reads):
            m.d.sync += walk.eq(walk + 1)
            with m.If(walk == 2**bits - 1):
                m.d.sync += self.cleared.eq(1)

        # Plane k holds bit k of what is pending of every counter: all of them count in a few operations on long words.
        # A turn of the walk takes up to twice its length, as reads may take every second cycle.
        turn = 2 * 2**bits
        here, carry = Signal(2**bits), Cat(events.get(address, Const(0, 1)) for address in range(2**bits))
        m.d.comb += here.eq(1 << at)
        planes = [Signal(2**bits, name=f"plane_{k}") for k in range(turn.bit_length())]
        for plane in planes:
            kept = Signal.like(plane)
            m.d.comb += kept.eq(plane & ~here)
            m.d.sync += plane.eq(kept ^ carry)
            carry = kept & carry
        terms, is_terms = Signal(range(turn * c.lanes + 1)), at == Register.STATS + Stat.TERMS_FLUSHED
        m.d.sync += terms.eq(Mux(is_terms, 0, terms) + self.flushed)

        moved = Signal.like(terms)
        m.d.sync += moved.eq(Mux(is_terms, terms, Cat(plane.bit_select(at, 1) for plane in planes)))
        stored_at, clears, counts, far = Signal(bits), Signal(), Signal(), Signal()
        m.d.sync += [stored_at.eq(at), clears.eq(~self.cleared), counts.eq(at >= Register.OUTCOMES),
                     far.eq(self.address >> bits != 0)]
        m.d.comb += [put.addr.eq(stored_at), put.en.eq(counts), put.data.eq(Mux(clears & counts, 0, get.data) + moved)]
        m.d.sync += self.value.eq(Mux(far, 0, put.data))
        return m
