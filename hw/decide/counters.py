"""The registers: constants of the design, and counters of outcomes and events."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hw.stream.memory import NEVER_READ_WHILE_WRITTEN
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

    `value` shows the one at `address` 1 cycle later, with every event before that cycle. Reads have no side effect. If
    events and reads share the memory's read port, `value` is undefined in the cycle after `happens`.

    At most one counter counts in a cycle, so the counters are words of a block RAM. The memory is wiped after a reset:
    until `wiped`, which takes `choices` cycles, nothing may count nor be read.

    Parameters
    ----------
    choices : int
        Number of counters.
    shares_port : bool
        Events and reads share a read port, since no counter is read while one counts.
    """

    def __init__(self, choices: int, *, shares_port: bool = True):
        if choices < 2:
            raise ValueError(f"ChoiceBank choices must be at least 2, not {choices!r}")
        self.choices, self.shares_port = choices, shares_port
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
        m.submodules.memory = memory = Memory(
            shape=unsigned(32), depth=self.choices, init=[], attrs={"ram_style": "block"}
        )
        put = memory.write_port()
        had = memory.read_port(transparent_for=[put])
        walk, swept = sweep(m, self.choices, self.wiped), self.wiped
        happened, chosen, address = Signal(), Signal.like(self.choice), Signal.like(self.address)
        # The address is inside the memory, because CXXRTL fails on an access outside.
        m.d.comb += address.eq(Mux(self.address < self.choices, self.address, 0))
        m.d.sync += [happened.eq(self.happens), chosen.eq(self.choice)]
        m.d.comb += [
            had.addr.eq(self.choice),
            put.addr.eq(Mux(swept, chosen, walk)),
            put.data.eq(Mux(swept, had.data + 1, 0)),
            put.en.eq(happened | ~swept),
        ]
        if self.shares_port:
            m.d.comb += [had.addr.eq(Mux(self.happens, self.choice, address)), self.value.eq(had.data)]
        else:
            get = memory.read_port(transparent_for=[put])
            m.d.comb += [get.addr.eq(address), self.value.eq(get.data)]
        return m


class EventBank(wiring.Component):
    """Counters of 32 bits, which wrap; in each cycle those count whose bit of `events` is 1.

    `value` shows the one at `address` 1 cycle later, with every event before that cycle. Reads have no side effect.

    All events may happen in the same cycle. The low bits of each counter are registers; the high bits are words of a
    block RAM, which a sweep visits one a cycle. The sweep detects a wrap of the low bits by their highest bit, which
    changes from 1 to 0 at most once between two visits. After a reset the memory is wiped: until `wiped`, one more
    cycle than there are places, nothing may be read.

    Parameters
    ----------
    counted : sequence of bool
        The places that have a counter; the others show 0.
    """

    def __init__(self, counted: Sequence[bool]):
        if len(counted) < 2:
            raise ValueError(f"EventBank counted must have at least 2 places, not {counted!r}")
        self.counted = counted
        # Enough bits for the events between two visits, and until the second visit is in the memory.
        self.low_bits = ceil_log2(len(counted) + 1) + 1
        super().__init__(
            {"events": In(len(counted)), "address": In(range(len(counted))), "value": Out(32), "wiped": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        depth = len(self.counted)
        above = data.StructLayout({"high": 32 - self.low_bits, "seen": 1})
        m.submodules.memory = memory = Memory(
            shape=above, depth=depth, init=[], attrs={"ram_style": "block"} | NEVER_READ_WHILE_WRITTEN
        )
        put, had, get = memory.write_port(), memory.read_port(), memory.read_port()
        swept = Signal()
        walk = sweep(m, depth, swept)

        low = []
        for k, is_counted in enumerate(self.counted):
            count = Signal(self.low_bits, name=f"low_{k}")
            if is_counted:
                m.d.sync += count.eq(count + self.events[k])
            low.append(count)
        # A visit takes two cycles, one to read and one to write.
        top, visited = Signal(), Signal(range(depth), init=depth - 1)
        m.d.sync += [top.eq(Array(count[-1] for count in low)[walk]), visited.eq(walk), self.wiped.eq(swept)]
        m.d.comb += [
            had.addr.eq(walk),
            put.addr.eq(visited),
            put.en.eq(1),
            put.data.seen.eq(top),
            put.data.high.eq(Mux(self.wiped, had.data.high + (had.data.seen & ~top), 0)),
            get.addr.eq(self.address),
            get.en.eq(self.address != visited),
        ]
        # One counter of each eight is selected before the edge, and one of these after it.
        groups = [low[first : first + BANK] for first in range(0, depth, BANK)]
        lower = Array(Signal(self.low_bits, name=f"lower_{k}") for k in range(len(groups)))
        written, is_written, upper, number = Signal(above), Signal(), Signal(above), Signal(range(len(groups) + 1))
        selected = [Signal(self.low_bits, name=f"selected_{k}") for k in range(len(groups))]
        shown_top = Signal()  # that of the counter, for the sum of its high bits
        m.d.comb += [one.eq(Array(group)[self.address[:3]]) for one, group in zip(selected, groups, strict=True)]
        m.d.sync += [chosen.eq(one) for chosen, one in zip(lower, selected, strict=True)]
        m.d.sync += [
            written.eq(put.data),
            is_written.eq(~get.en),
            number.eq(self.address[3:]),
            shown_top.eq(Array(one[-1] for one in selected)[self.address[3:]]),
        ]
        m.d.comb += [
            upper.eq(Mux(is_written, written, get.data)),
            self.value.eq(Cat(lower[number], upper.high + (upper.seen & ~shown_top))),
        ]
        return m


class Counters(wiring.Component):
    """Banks of counters and constants, behind one address.

    `port_events[port][k]` and `stats[k]` count in every cycle, `outcome` in the cycle of `decided`, `age` in that of
    `claimed`, `replay_outcome` in that of `replay_concluded`; events are registered first, because they end critical
    paths. `value` shows the register at `address` 1 cycle later, with every event up to two cycles before. In the cycle
    after `decided` no outcome may be read, after `claimed` no age: the core does not read until it has decided. Until
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
                m,
                banks,
                show,
                Register.REPLAY_OUTCOMES,
                len(ReplayOutcome),
                self.replay_concluded,
                self.replay_outcome,
                shares_port=False,
            )

        # Several terms may be flushed in a cycle.
        flushed, terms = Signal.like(self.flushed), Signal(32)
        m.d.sync += [flushed.eq(self.flushed), terms.eq(terms + flushed)]
        shown_terms = Signal(32)
        m.d.sync += shown_terms.eq(terms)
        show([Register.STATS + Stat.TERMS_FLUSHED], 1, shown_terms)
        events = {Register.STATS + stat: self.stats[stat] for stat in Stat if stat != Stat.TERMS_FLUSHED}
        events |= {
            port_counter_register(port, event): self.port_events[port][event]
            for port in range(c.ports)
            for event in PortCounter
        }
        counted = [BANK * block + k for block in self.blocks for k in range(BANK)]
        m.submodules.events = bank = EventBank([register in events for register in counted])
        m.d.sync += bank.events.eq(Cat(events.get(register, Const(0)) for register in counted))
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

    def _choices(
        self,
        m,
        banks: list[ChoiceBank | EventBank],
        show,
        first: Register,
        count: int,
        happens,
        choice,
        *,
        shares_port=True,
    ):
        """Add and show a bank of `count` counters from the register `first` on.

        `first` is a multiple of the power of two above `count`, so the lower bits of an address are the choice.
        """
        registers = whole_groups(count)
        if first % (1 << ceil_log2(registers)):
            raise ValueError(f"Counters {first!r} must begin at a multiple of {1 << ceil_log2(registers)}")
        m.submodules[first.name.lower()] = bank = ChoiceBank(registers, shares_port=shares_port)
        banks.append(bank)
        m.d.sync += [bank.happens.eq(happens), bank.choice.eq(choice)]
        m.d.comb += bank.address.eq(self.address)
        show(range(first, first + registers, BANK), BANK, bank.value)
