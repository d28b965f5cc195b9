# amaranth: UnusedElaboratable=no
"""Every register at its address, and every event in its counter alone."""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.lib.memory import Memory

import hw.decide.counters
from hw.decide.counters import ChoiceBank, Counters, EventBank
from iswitch.config import Config
from iswitch.wire import VERSION, Outcome, PortCounter, Stat
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

CONFIG = Config(ports=3, bus_bits=64, members=5, jobs=4, window=8, elements=34, queue_bytes=4096)
CONSTANTS = {0: 0x54575349, 1: VERSION, 2: 3, 3: 64, 4: 5, 5: 4, 6: 8, 7: 34}
"""As docs/protocol.md section 5 says."""
AGES, OUTCOMES, STATS, FLUSHED, PORT, PORT_PLACES = 32, 64, 128, 133, 256, 16
END = PORT + PORT_PLACES * CONFIG.ports
PORT_REGISTERS = [PORT + PORT_PLACES * port + event for port in range(CONFIG.ports) for event in PortCounter]


async def registers(ctx, dut, addresses=range(END + 40)):
    """Non-zero registers; `value` is one cycle behind `address`."""
    values = {}
    await ctx.tick()  # what has just happened is registered
    for address in addresses:
        ctx.set(dut.address, address)
        await ctx.tick()
        if value := ctx.get(dut.value):
            values[address] = value
    return values


def run(testbench, config=CONFIG, counters=Counters):
    dut = counters(config)

    async def when_wiped(ctx):
        await ctx.tick().until(dut.wiped)
        await testbench(ctx, dut)

    Bench(dut).drive(when_wiped)


def test_registers_begin_with_what_the_switch_is():
    async def bench(ctx, dut):
        far = [255, 256, 0x10000, 0x80000000, 0xFFFFFFFF, 0x100000008, 1 << 16 | 8]
        assert (
            await registers(ctx, dut, [*range(END + 40), *(address % 2**32 for address in far if address < 1 << 32)])
            == CONSTANTS
        )

    run(bench)


def test_each_event_counts_at_its_address():
    async def bench(ctx, dut):
        expected = dict(CONSTANTS)
        events = [(port, event) for port in range(CONFIG.ports) for event in PortCounter]
        for k, (port, event) in enumerate(events):
            ctx.set(dut.port_events[port][event], 1)
            await ctx.tick().repeat(k + 1)
            ctx.set(dut.port_events[port][event], 0)
            expected[PORT + PORT_PLACES * port + event] = k + 1
        for stat in Stat:
            if stat == Stat.TERMS_FLUSHED:
                continue
            ctx.set(dut.stats[stat], 1)
            await ctx.tick().repeat(stat + 30)
            ctx.set(dut.stats[stat], 0)
            expected[STATS + stat] = stat + 30
        for age in range(8):
            ctx.set(dut.age, age)
            await ctx.tick()  # nothing was claimed
            ctx.set(dut.claimed, 1)
            await ctx.tick().repeat(age + 5)
            ctx.set(dut.claimed, 0)
            expected[AGES + age] = age + 5
        for outcome in Outcome:
            ctx.set(dut.outcome, outcome)
            await ctx.tick()  # nothing was decided
            ctx.set(dut.decided, 1)
            await ctx.tick().repeat(outcome + 2)
            ctx.set(dut.decided, 0)
            expected[OUTCOMES + outcome] = outcome + 2
        assert await registers(ctx, dut) == expected

    run(bench)


def test_terms_flushed_are_added_up():
    async def bench(ctx, dut):
        for terms in (2, 0, 1, 2):
            ctx.set(dut.flushed, terms)
            await ctx.tick()
        ctx.set(dut.flushed, 0)
        assert await registers(ctx, dut) == CONSTANTS | {FLUSHED: 5}

    run(bench)


def test_all_events_at_once():
    async def bench(ctx, dut):
        for port in range(CONFIG.ports):
            for event in PortCounter:
                ctx.set(dut.port_events[port][event], 1)
        for stat in Stat:
            ctx.set(dut.stats[stat], 1)
        ctx.set(dut.flushed, 1)
        ctx.set(dut.decided, 1)
        await ctx.tick()
        ctx.set(dut.decided, 0)
        for port in range(CONFIG.ports):
            for event in PortCounter:
                ctx.set(dut.port_events[port][event], 0)
        for stat in Stat:
            ctx.set(dut.stats[stat], 0)
        ctx.set(dut.flushed, 0)
        assert await registers(ctx, dut) == CONSTANTS | {OUTCOMES: 1} | {STATS + stat: 1 for stat in Stat} | {
            at: 1 for at in PORT_REGISTERS
        }

    run(bench)


@pytest.mark.parametrize("start", range(STATS - 4, STATS + 8))
def test_nothing_is_lost_when_everything_happens_in_every_cycle_beside_reads(start):
    """The few bits of what is pending must last for the longest turn of a walk."""

    async def bench(ctx, dut):
        everything = [
            *(dut.port_events[port][event] for port in range(CONFIG.ports) for event in PortCounter),
            *(dut.stats[stat] for stat in Stat),
            dut.decided,
        ]
        for signal in everything:
            ctx.set(signal, 1)
        ctx.set(dut.flushed, 2)
        for _ in range(20):
            await registers(ctx, dut, [start] * 8)
        cycles = 20 * 9
        for signal in (*everything, dut.flushed):
            ctx.set(signal, 0)
        expected = (
            CONSTANTS
            | {OUTCOMES: cycles}
            | {STATS + stat: cycles for stat in Stat}
            | {at: cycles for at in PORT_REGISTERS}
        )
        assert await registers(ctx, dut) == expected | {FLUSHED: 2 * cycles}

    run(bench)


def test_a_register_read_again_and_again_shows_every_event_at_once():
    async def bench(ctx, dut):
        for count in range(1, 40):
            ctx.set(dut.stats[0], 1)
            await ctx.tick()
            ctx.set(dut.stats[0], 0)
            assert await registers(ctx, dut, [STATS]) == {STATS: count}

    run(bench)


def test_a_reset_clears_the_counters():
    dut, reset = Counters(CONFIG), Signal()

    async def bench(ctx):
        await ctx.tick().until(dut.wiped)
        for signal in (dut.stats[1], dut.decided):
            ctx.set(signal, 1)
        await ctx.tick().repeat(300)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        for signal in (dut.stats[1], dut.decided):
            ctx.set(signal, 0)
        assert not ctx.get(dut.wiped)
        await ctx.tick().until(dut.wiped)
        assert await registers(ctx, dut) == CONSTANTS

    Bench(ResetInserter(reset)(dut)).drive(bench)


def test_what_happens_while_the_counters_are_wiped_is_counted():
    """Frames come in, and are dropped, from the first cycle on; none is decided before."""
    dut = Counters(CONFIG)

    async def bench(ctx):
        every = [*(dut.port_events[port][event] for port in range(CONFIG.ports) for event in PortCounter), *dut.stats]
        for signal in every:
            ctx.set(signal, 1)
        cycles = 0
        while not ctx.get(dut.wiped):
            await ctx.tick()
            cycles += 1
        for signal in every:
            ctx.set(signal, 0)
        assert cycles == 8 * (2 + 2 * CONFIG.ports) + 1
        counted = {STATS + stat: cycles for stat in Stat if stat != Stat.TERMS_FLUSHED} | {
            at: cycles for at in PORT_REGISTERS
        }
        assert await registers(ctx, dut) == CONSTANTS | counted

    Bench(dut).drive(bench)


def random_events(counters, cycles=1500):
    """Counts and reads at random, against integers; the register read in each cycle has every event but the last two
    cycles'. Outcomes and ages are not read in the cycle after a decision."""
    rng = random.Random(5)
    busy = [0.0, 0.1, 1.0]

    async def bench(ctx, dut):
        kinds = [
            (signal, PORT + PORT_PLACES * port + event, 1)
            for port in range(CONFIG.ports)
            for event, signal in enumerate(dut.port_events[port])
        ]
        kinds += [(signal, STATS + stat, 1) for stat, signal in enumerate(dut.stats) if stat != Stat.TERMS_FLUSHED] + [
            (dut.flushed, FLUSHED, 2)
        ]
        chance = {at: rng.choice(busy) for _, at, _ in kinds}
        counted, counts_outcome, counts_age = [dict(CONSTANTS)] * 3, False, False
        for cycle in range(cycles):
            happened = dict(counted[-1])
            for signal, at, most in kinds:
                event = rng.random() < chance[at] and rng.randint(1, most)
                ctx.set(signal, event)
                happened[at] = happened.get(at, 0) + event
            outcome, age = rng.choice(list(Outcome)), rng.randrange(8)
            decided, claimed = rng.random() < 0.8, rng.random() < 0.8
            ctx.set(dut.outcome, outcome)
            ctx.set(dut.decided, decided)
            ctx.set(dut.age, age)
            ctx.set(dut.claimed, claimed)
            happened[OUTCOMES + outcome] = happened.get(OUTCOMES + outcome, 0) + decided
            happened[AGES + age] = happened.get(AGES + age, 0) + claimed
            address = rng.choice([rng.randrange(END), STATS, PORT, OUTCOMES])
            ctx.set(dut.address, address)
            await ctx.tick()
            if not (counts_outcome and OUTCOMES <= address < STATS or counts_age and AGES <= address < OUTCOMES):
                assert ctx.get(dut.value) == counted[-2].get(address, 0), (cycle, address)
            counts_outcome, counts_age = decided, claimed
            counted = [*counted[1:], happened]
            if cycle % 400 == 399:
                chance = {at: rng.choice(busy) for at in chance}

    run(bench, counters=counters)


def test_every_cycle_reads_exactly_what_has_happened():
    random_events(Counters)


MUTANTS = {
    "a round is noticed a visit too late": ("upper.high + (upper.seen & ~shown_top)", "upper.high"),
    "a round is counted at every visit": ("put.data.seen.eq(top)", "put.data.seen.eq(1)"),
    "a round is never added": ("(had.data.seen & ~top)", "0"),
    "too few lower bits": ("ceil_log2(len(counted) + 1) + 1", "ceil_log2(len(counted) + 1) - 1"),
    "an event that was not selected counts": ("put.en.eq(happened | ~swept)", "put.en.eq(1)"),
    "another register is shown": (
        "bank.address.eq(BANK * number + self.address[:3])",
        "bank.address.eq(BANK * number + self.address[:2])",
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("rule", MUTANTS)
def test_mutant_is_noticed(rule):
    broken = mutant(hw.decide.counters, *MUTANTS[rule]).Counters
    with pytest.raises(AssertionError):
        random_events(broken)


def test_counters_wrap(monkeypatch):
    made = []
    monkeypatch.setattr(hw.decide.counters, "Memory", lambda **options: made.append(Memory(**options)) or made[-1])

    async def bench(ctx, dut):
        choices, _, events = made
        await ctx.tick().repeat(8)  # neither of the first two is being visited
        ctx.set(choices.data[8], 2**32 - 1)
        ctx.set(choices.data[9], 2**32 - 1)
        upper = events.data[0].shape()["high"].shape
        for at in (0, 1):
            ctx.set(events.data[at].high, 2**upper - 1)
        ctx.set(dut.outcome, 8)
        for cycle in range(2 ** (32 - upper)):
            ctx.set(dut.decided, cycle == 0)
            ctx.set(dut.stats[0], 1)
            await ctx.tick()
        ctx.set(dut.stats[0], 0)
        shown = await registers(ctx, dut, [OUTCOMES + 8, OUTCOMES + 9, STATS, STATS + 1])
        assert shown == {OUTCOMES + 9: 2**32 - 1, STATS + 1: (2**upper - 1) << 32 - upper}

    run(bench)


@pytest.mark.parametrize("address", [0, 5, OUTCOMES])
def test_value_is_one_cycle_behind_its_address(address):
    async def bench(ctx, dut):
        ctx.set(dut.address, 700)
        await ctx.tick()
        ctx.set(dut.address, address)
        assert ctx.get(dut.value) == 0
        await ctx.tick()
        assert ctx.get(dut.value) == CONSTANTS.get(address, 0)

    run(bench)


@pytest.mark.parametrize("counted", [[], [True]])
def test_places_wrong(counted):
    with pytest.raises(ValueError, match="EventBank counted must have at least 2 places, not"):
        EventBank(counted)


@pytest.mark.parametrize("choices", [0, 1])
def test_choices_wrong(choices):
    with pytest.raises(ValueError, match=f"ChoiceBank choices must be at least 2, not {choices}"):
        ChoiceBank(choices)
