"""The registers: what the switch is, and a counter for everything that happens to a frame."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from iswitch.config import Config
from iswitch.replay_wire import Fate, ReplayRegister
from iswitch.wire import MAGIC, STALENESS_MAX, VERSION, Outcome, PortCounter, Register, Stat, port_counter_register

__all__ = ["BANK", "CounterBank", "Counters"]

BANK = 8
"""Counters in a bank; every group of registers begins at a multiple of it."""


class CounterBank(wiring.Component):
    """Eight counters of 32 bits, which wrap; event k, of `event_bits[k]` bits, is added to the k-th in every cycle.

    Registers and adders for every counter of a switch would be a fifth of a small FPGA. So events are counted in few bits first, and a walk
    moves what is pending into a memory, one counter a cycle. With `reads` the counter at `address` is moved instead, and `value` shows
    it 1 cycle later, with every event before the cycle of `reads`. No more than three of four cycles may read, over any 32; the first 8
    after a reset, while the walk clears the memory, none.
    """

    def __init__(self, event_bits: Sequence[int] = (1,) * BANK):
        if len(event_bits) != BANK or min(event_bits) < 0:
            raise ValueError(f"CounterBank event_bits must be {BANK} widths, not {event_bits!r}")
        self.event_bits = event_bits
        super().__init__({"events": In(data.StructLayout({f"{k}": bits for k, bits in enumerate(event_bits)})),
                          "reads": In(1), "address": In(range(BANK)), "value": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=unsigned(32), depth=BANK, init=[])
        put, get = memory.write_port(), memory.read_port(domain="comb")
        walk, cleared, at, total = Signal(range(BANK)), Signal(), Signal(range(BANK)), Signal(32)
        m.d.comb += at.eq(Mux(self.reads, self.address, walk))
        with m.If(~self.reads):
            m.d.sync += walk.eq(walk + 1)
            with m.If(walk == BANK - 1):
                m.d.sync += cleared.eq(1)

        # With reads in three of four cycles the walk comes round after 4 x 8 of them.
        pending = []
        for k, bits in enumerate(self.event_bits):
            count = Signal(range(4 * BANK * (2**bits - 1) + 1), name=f"pending_{k}")
            m.d.sync += count.eq(Mux(at == k, 0, count) + self.events[f"{k}"])
            pending.append(count)
        m.d.comb += [
            total.eq(Mux(cleared, get.data, 0) + Array(pending)[at]),
            get.addr.eq(at), put.addr.eq(at), put.data.eq(total), put.en.eq(1),
        ]
        m.d.sync += self.value.eq(total)
        return m


class Counters(wiring.Component):
    """A bank of counters for each eight registers, and what is constant, behind one address.

    `port_events[port][k]` and `stats[k]` count in every cycle, `outcome` in the cycle of `decided`, `age` in that of `claimed`, `fate` in that
    of `fated`; what happens is registered first, for it comes from the ends of long paths. `value` shows the register at `address` 1 cycle
    after `reads`, with all that happened before the cycle before `reads`; how often may be read, `CounterBank` says.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "decided": In(1), "outcome": In(Outcome), "flushed": In(range(config.lanes + 1)),
            "claimed": In(1), "age": In(range(STALENESS_MAX + 1)),
            **({"fated": In(1), "fate": In(Fate)} if config.replay else {}),
            "stats": In(1).array(len(Stat)), "port_events": In(1).array(config.ports, len(PortCounter)),
            "reads": In(1), "address": In(32), "value": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        constants = {
            Register.MAGIC: MAGIC, Register.VERSION: VERSION, Register.PORTS: c.ports, Register.BUS_BITS: c.bus_bits,
            Register.MEMBERS: c.members, Register.JOBS: c.jobs, Register.WINDOW: c.window, Register.ELEMENTS: c.elements}
        events = {Register.OUTCOMES + outcome: self.decided & (self.outcome == outcome) for outcome in Outcome}
        events |= {Register.STATS + stat: self.flushed if stat == Stat.TERMS_FLUSHED else self.stats[stat] for stat in Stat}
        events |= {Register.AGES + age: self.claimed & (self.age == age) for age in range(c.staleness + 1) if c.staleness}
        events |= {port_counter_register(port, event): self.port_events[port][event]
                   for port in range(c.ports) for event in PortCounter}
        about = {}
        if c.replay:
            events |= {Register.REPLAY_FATES + fate: self.fated & (self.fate == fate) for fate in Fate}
            about = {Register.REPLAY + register: getattr(c.replay, register.name.lower()) for register in ReplayRegister}

        constant, asked, fixed = Signal(32), Signal(32), Signal(32)
        m.d.sync += [constant.eq(Array(constants[address] for address in range(BANK))[self.address[:3]]), asked.eq(self.address)]
        if about:
            m.d.sync += fixed.eq(Array(about.get(Register.REPLAY + k, 0) for k in range(2 * BANK))[self.address[:4]])
            with m.If(asked[4:] == Register.REPLAY // BANK // 2):
                m.d.comb += self.value.eq(fixed)
        with m.Switch(asked[3:]):
            with m.Case(0):
                m.d.comb += self.value.eq(constant)
            for number in sorted({address // BANK for address in events}):
                counted = [events.get(BANK * number + k, Const(0, 0)) for k in range(BANK)]
                m.submodules[f"bank_{number}"] = bank = CounterBank([len(event) for event in counted])
                happened = Signal(len(Cat(counted)), name=f"happened_{number}")
                m.d.sync += happened.eq(Cat(counted))
                m.d.comb += [bank.events.as_value().eq(happened), bank.address.eq(self.address),
                             bank.reads.eq(self.reads & (self.address[3:] == number))]
                with m.Case(number):
                    m.d.comb += self.value.eq(bank.value)
        return m
