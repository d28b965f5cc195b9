"""The registers: constants of the design, and counters of outcomes and events."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from iswitch.config import Config
from iswitch.wire import MAGIC, STALENESS_MAX, VERSION, Outcome, PortCounter, Register, Stat, port_counter_register
from iswitch.wire.replay import ReplayOutcome, ReplayRegister

__all__ = ["BANK", "ChoiceBank", "Counters", "EventBank"]

BANK = 8
"""Registers in a group; every group begins at a multiple of it."""

if max(ReplayOutcome) >= Register.REPLAY - Register.REPLAY_OUTCOMES:
    raise ValueError(
        f"Counters replay outcomes must be below {Register.REPLAY - Register.REPLAY_OUTCOMES}, not {max(ReplayOutcome)}"
    )
if STALENESS_MAX >= BANK:
    raise ValueError(f"Counters ages must be below {BANK}, not {STALENESS_MAX}")


def whole_groups(count: int) -> int:
    """Return how many registers the groups have that hold `count` counters."""
    return -(-count // BANK) * BANK


def sweep(m, depth: int, swept):
    """Return a pointer that cycles through `depth` words. `swept` rises after its first full pass since the reset."""
    walk = Signal(range(depth), name="walk")
    m.d.sync += walk.eq(Mux(walk == depth - 1, 0, walk + 1))
    with m.If(walk == depth - 1):
        m.d.sync += swept.eq(1)
    return walk


class ChoiceBank(wiring.Component):
    """`choices` counters of 32 bits, which wrap; in a cycle of `happens` the one at `choice` counts.

    `value` shows the one at `address` 1 cycle later, with every event before that cycle. Reads have no side effect.

    At most one counter counts in a cycle, so the counters are words of a memory. The memory is wiped after a reset:
    until `wiped`, which takes `choices` cycles, nothing may count nor be read.
    """

    def __init__(self, choices: int):
        if choices < 2:
            raise ValueError(f"ChoiceBank choices must be at least 2, not {choices!r}")
        self.choices = choices
        super().__init__(
            {
                "happens": In(1),
                "choice": In(range(choices)),
                "address": In(range(choices)),
                "value": Out(32),
                "wiped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=unsigned(32), depth=self.choices, init=[])
        put, had, get = memory.write_port(), memory.read_port(domain="comb"), memory.read_port(domain="comb")
        walk, swept = sweep(m, self.choices, self.wiped), self.wiped
        m.d.comb += [
            had.addr.eq(self.choice),
            put.addr.eq(Mux(swept, self.choice, walk)),
            put.data.eq(Mux(swept, had.data + 1, 0)),
            put.en.eq(self.happens | ~swept),
            # The address is inside the memory, because CXXRTL fails on an access outside.
            get.addr.eq(Mux(self.address < self.choices, self.address, 0)),
        ]
        m.d.sync += self.value.eq(get.data)
        return m


class EventBank(wiring.Component):
    """Counters of 32 bits, which wrap; event k, of `event_bits[k]` bits, is added to the k-th in every cycle.

    `value` shows the one at `address` 1 cycle later, with every event before that cycle. Reads have no side effect.

    All events may happen in the same cycle. The low bits of each counter are registers; the high bits are words of a
    memory, which a sweep visits one a cycle. The sweep detects a wrap of the low bits by their highest bit, which
    changes from 1 to 0 at most once between two visits. After a reset the memory is wiped: until `wiped`, one more
    cycle than there are counters, nothing may be read.
    """

    def __init__(self, event_bits: Sequence[int]):
        if len(event_bits) < 2 or min(event_bits) < 0:
            raise ValueError(f"EventBank event_bits must be at least 2 widths, not {event_bits!r}")
        self.event_bits = event_bits
        # Enough bits for the events between two visits, and until the second visit is in the memory.
        self.low_bits = ceil_log2((len(event_bits) + 1) * (2 ** max(event_bits) - 1)) + 1
        super().__init__(
            {
                "events": In(data.StructLayout({f"{k}": bits for k, bits in enumerate(event_bits)})),
                "address": In(range(len(event_bits))),
                "value": Out(32),
                "wiped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = len(self.event_bits)
        above = data.StructLayout({"high": 32 - self.low_bits, "seen": 1})
        m.submodules.memory = memory = Memory(shape=above, depth=depth, init=[])
        put, had, get = memory.write_port(), memory.read_port(domain="comb"), memory.read_port(domain="comb")
        swept = Signal()
        walk = sweep(m, depth, swept)

        low = []
        for k, bits in enumerate(self.event_bits):
            count = Signal(self.low_bits, name=f"low_{k}")
            if bits:
                m.d.sync += count.eq(count + self.events[f"{k}"])
            low.append(count)
        # A visit takes two cycles, one to read and one to write.
        top, before, visited = Signal(), Signal(above), Signal(range(depth))
        m.d.sync += [
            top.eq(Array(count[-1] for count in low)[walk]),
            before.eq(had.data),
            visited.eq(walk),
            self.wiped.eq(swept),
        ]
        m.d.comb += [
            had.addr.eq(walk),
            put.addr.eq(visited),
            put.en.eq(1),
            put.data.seen.eq(top),
            put.data.high.eq(Mux(self.wiped, before.high + (before.seen & ~top), 0)),
            get.addr.eq(self.address),
        ]
        # One counter of each eight is selected before the edge, and one of these after it.
        groups = [low[first : first + BANK] for first in range(0, depth, BANK)]
        lower = Array(Signal(self.low_bits, name=f"lower_{k}") for k in range(len(groups)))
        upper, number = Signal(above), Signal(range(len(groups) + 1))
        m.d.sync += [upper.eq(get.data), number.eq(self.address[3:])]
        m.d.sync += [chosen.eq(Array(group)[self.address[:3]]) for chosen, group in zip(lower, groups, strict=True)]
        m.d.comb += self.value.eq(Cat(lower[number], upper.high + (upper.seen & ~lower[number][-1])))
        return m


class Counters(wiring.Component):
    """Banks of counters and constants, behind one address.

    `port_events[port][k]` and `stats[k]` count in every cycle, `outcome` in the cycle of `decided`, `age` in that of
    `claimed`, `replay_outcome` in that of `replay_concluded`; events are registered first, because they end critical
    paths. `value` shows the register at `address` 1 cycle later, with every event up to two cycles before. Until
    `wiped`, after a reset, nothing may be read, `decided`, `claimed` or `replay_concluded`; it takes a cycle for each
    counter of the largest bank.
    """

    def __init__(self, config: Config):
        self.config = config
        # The groups of events that any cycle may have, one behind the other in a bank.
        blocks = {Register.STATS // BANK + k for k in range(-(-len(Stat) // BANK))} | {
            port_counter_register(port, event) // BANK for port in range(config.ports) for event in PortCounter
        }
        self.blocks = sorted(blocks)
        super().__init__(
            {
                "decided": In(1),
                "outcome": In(Outcome),
                "flushed": In(range(config.lanes + 1)),
                "claimed": In(1),
                "age": In(range(STALENESS_MAX + 1)),
                **({"replay_concluded": In(1), "replay_outcome": In(ReplayOutcome)} if config.replay else {}),
                "stats": In(1).array(len(Stat)),
                "port_events": In(1).array(config.ports, len(PortCounter)),
                "address": In(32),
                "value": Out(32),
                "wiped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        c = self.config
        banks: list[ChoiceBank | EventBank] = []
        shown = []

        def show(firsts: Iterable[int], registers: int, value):
            """Add `value` to what the registers show, where `address` selects one of a group.

            A group has as many `registers`, a power of two, and begins at one of `firsts`, multiples of that number.
            `value` itself follows `address` by 1 cycle.
            """
            chosen = Signal(name=f"chosen_{len(shown)}")
            m.d.sync += chosen.eq(
                Cat(self.address[ceil_log2(registers) :] == first // registers for first in firsts).any()
            )
            shown.append(Mux(chosen, value, 0))

        constants = {
            Register.MAGIC: MAGIC,
            Register.VERSION: VERSION,
            Register.PORTS: c.ports,
            Register.BUS_BITS: c.bus_bits,
            Register.MEMBERS: c.members,
            Register.JOBS: c.jobs,
            Register.WINDOW: c.window,
            Register.ELEMENTS: c.elements,
        }
        show([0], BANK, self._constant(m, constants, BANK, "constant"))
        if c.replay:
            about = {register: getattr(c.replay, register.name.lower()) for register in ReplayRegister}
            show([Register.REPLAY], 2 * BANK, self._constant(m, about, 2 * BANK, "about"))

        self._choices(m, banks, show, Register.OUTCOMES, len(Outcome), self.decided, self.outcome)
        if c.staleness:
            self._choices(m, banks, show, Register.AGES, BANK, self.claimed, self.age)
        if c.replay:
            self._choices(
                m, banks, show, Register.REPLAY_OUTCOMES, len(ReplayOutcome), self.replay_concluded, self.replay_outcome
            )

        events = {
            Register.STATS + stat: self.flushed if stat == Stat.TERMS_FLUSHED else self.stats[stat] for stat in Stat
        }
        events |= {
            port_counter_register(port, event): self.port_events[port][event]
            for port in range(c.ports)
            for event in PortCounter
        }
        counted = [events.get(BANK * block + k) for block in self.blocks for k in range(BANK)]
        m.submodules.events = bank = EventBank([0 if event is None else len(event) for event in counted])
        happened = Signal(len(bank.events.as_value()))
        m.d.sync += happened.eq(Cat(event for event in counted if event is not None))
        m.d.comb += bank.events.as_value().eq(happened)
        banks.append(bank)
        for number, block in enumerate(self.blocks):
            with m.If(self.address[3:][: max(self.blocks).bit_length()] == block):
                m.d.comb += bank.address.eq(BANK * number + self.address[:3])
        show([BANK * block for block in self.blocks], BANK, bank.value)
        m.d.comb += [self.value.eq(reduce(or_, shown)), self.wiped.eq(Cat(bank.wiped for bank in banks).all())]
        return m

    def _constant(self, m, numbers: Mapping[int, int], registers: int, name: str):
        shown = Signal(32, name=name)
        m.d.sync += shown.eq(Array(numbers.get(k, 0) for k in range(registers))[self.address[: ceil_log2(registers)]])
        return shown

    def _choices(self, m, banks: list[ChoiceBank | EventBank], show, first: Register, count: int, happens, choice):
        """Add and show a bank of `count` counters from the register `first` on.

        `first` is a multiple of the power of two above `count`, so the lower bits of an address are the choice.
        """
        registers = whole_groups(count)
        if first % (1 << ceil_log2(registers)):
            raise ValueError(f"Counters {first!r} must begin at a multiple of {1 << ceil_log2(registers)}")
        m.submodules[first.name.lower()] = bank = ChoiceBank(registers)
        banks.append(bank)
        m.d.sync += [bank.happens.eq(happens), bank.choice.eq(choice)]
        m.d.comb += bank.address.eq(self.address)
        show(range(first, first + registers, BANK), BANK, bank.value)
