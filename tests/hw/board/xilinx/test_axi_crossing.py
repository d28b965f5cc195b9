# amaranth: UnusedElaboratable=no
"""AXI4 between clocks of any ratio, with the memory on the chip behind it, and at half the width."""

import random

import pytest
from amaranth.hdl import Array, ClockDomain, DomainRenamer, Module, Signal
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

import hw.board.xilinx.axi_crossing
from hw.board.xilinx.axi_crossing import AxiCrossing, AxiNarrower
from hw.interface.axi import Burst, Response
from hw.replay.memory.ram import OnChipRam
from sim.bench.mutant import mutant

ADDRESS_BITS, BYTES, UNIT = 13, 4096, 64


def size_of(bus):
    return (len(bus.w.payload.strb) - 1).bit_length()


async def write(ctx, bus, address, words):
    for name, value in (("addr", address), ("len", len(words) - 1), ("size", size_of(bus)), ("burst", Burst.INCR)):
        ctx.set(getattr(bus.aw.payload, name), value)
    ctx.set(bus.aw.valid, 1)
    await ctx.tick().until(bus.aw.ready)
    ctx.set(bus.aw.valid, 0)
    for k, word in enumerate(words):
        for name, value in (("data", word), ("strb", -1), ("last", k == len(words) - 1)):
            ctx.set(getattr(bus.w.payload, name), value)
        ctx.set(bus.w.valid, 1)
        await ctx.tick().until(bus.w.ready)
        ctx.set(bus.w.valid, 0)
    ctx.set(bus.b.ready, 1)
    *_, response = await ctx.tick().sample(bus.b.payload.resp).until(bus.b.valid)
    ctx.set(bus.b.ready, 0)
    return response


async def read(ctx, bus, address, count, rng):
    for name, value in (("addr", address), ("len", count - 1), ("size", size_of(bus)), ("burst", Burst.INCR)):
        ctx.set(getattr(bus.ar.payload, name), value)
    ctx.set(bus.ar.valid, 1)
    await ctx.tick().until(bus.ar.ready)
    ctx.set(bus.ar.valid, 0)
    found = []
    while len(found) < count:
        ctx.set(bus.r.ready, rng.random() < 0.7)
        *_, valid, ready, word, last = await ctx.tick().sample(
            bus.r.valid, bus.r.ready, bus.r.payload.data, bus.r.payload.last
        )
        if valid and ready:
            found.append(word)
            assert last == (len(found) == count)
    ctx.set(bus.r.ready, 0)
    return found


def run(design, bus, clocks, rounds=40):
    """Writes and reads units at random places against a dictionary."""
    rng = random.Random(1)
    failures, bits = [], len(bus.w.payload.data)
    count = 8 * UNIT // bits

    async def bench(ctx):
        memory = {}
        for _ in range(rounds):
            address = rng.choice([0, UNIT, 1024, BYTES - UNIT])
            if rng.random() < 0.5:
                memory[address] = [rng.getrandbits(bits) for _ in range(count)]
                assert await write(ctx, bus, address, memory[address]) == Response.OKAY
            elif await read(ctx, bus, address, count, rng) != memory.get(address, [0] * count):
                failures.append(address)

    simulator = Simulator(design)
    for name, period in clocks.items():
        simulator.add_clock(period, domain=name)
    simulator.add_testbench(bench)
    simulator.run()
    return failures


@pytest.mark.parametrize(
    ("period", "data_bits"), [(3.0e-9, 64), (5.0e-9, 64), (5.28e-9, 64), (17e-9, 64), (5.28e-9, 256), (3.33e-9, 512)]
)
def test_memory_with_another_clock_is_the_same_memory(period, data_bits):
    m = Module()
    m.domains.memory = ClockDomain()
    m.submodules.crossing = crossing = AxiCrossing(ADDRESS_BITS, memory_domain="memory", data_bits=data_bits, depth=4)
    ram = OnChipRam(bytes=BYTES, address_bits=ADDRESS_BITS, data_bits=data_bits)
    m.submodules.ram = DomainRenamer("memory")(ram)
    connect(m, crossing.memory, ram.axi)
    assert run(m, crossing.manager, {"sync": 5e-9, "memory": period}) == []


def wide_memory(m, bus):
    """A memory of 256 bits that takes one burst at a time, aligned ones of two beats, and nothing else."""
    words = [Signal(256, name=f"word_{k}") for k in range(BYTES // 32)]
    table = Array(words)
    at, busy, beat, reading = Signal(range(len(words))), Signal(), Signal(), Signal()
    answer, wrong = Signal(), Signal()
    good = lambda p: (p.len == 1) & (p.size == 5) & (p.burst == Burst.INCR) & (p.addr[:6] == 0)
    m.d.comb += [
        bus.aw.ready.eq(~busy & ~answer),
        bus.ar.ready.eq(~busy & ~answer & ~bus.aw.valid),
        bus.w.ready.eq(busy & ~reading),
        bus.r.valid.eq(busy & reading),
        bus.r.payload.data.eq(table[at + beat]),
        bus.r.payload.last.eq(beat),
        bus.b.valid.eq(answer),
        bus.b.payload.resp.eq(wrong << 1),
    ]
    with m.If(bus.aw.valid & bus.aw.ready):
        m.d.sync += [
            at.eq(bus.aw.payload.addr >> 5),
            busy.eq(1),
            reading.eq(0),
            beat.eq(0),
            wrong.eq(~good(bus.aw.payload)),
        ]
    with m.If(bus.ar.valid & bus.ar.ready):
        m.d.sync += [at.eq(bus.ar.payload.addr >> 5), busy.eq(1), reading.eq(1), beat.eq(0)]
    with m.If(bus.w.valid & bus.w.ready):
        m.d.sync += [
            table[at + beat].eq(bus.w.payload.data),
            beat.eq(1),
            busy.eq(~bus.w.payload.last),
            answer.eq(bus.w.payload.last),
            wrong.eq(wrong | (bus.w.payload.strb != 0xFFFF_FFFF) | (bus.w.payload.last != beat)),
        ]
    with m.If(bus.r.valid & bus.r.ready):
        m.d.sync += [beat.eq(1), busy.eq(~beat)]
    with m.If(bus.b.valid & bus.b.ready):
        m.d.sync += answer.eq(0)


def narrowed(cls=AxiNarrower):
    m = Module()
    m.submodules.narrower = narrower = cls(ADDRESS_BITS)
    wide_memory(m, narrower.memory)
    return run(m, narrower.manager, {"sync": 5e-9})


def test_units_reach_a_memory_of_half_the_width():
    assert narrowed() == []


def check_responses(cls=AxiNarrower):
    """An error response of either half is one of the unit, and of no other unit."""
    dut = cls(ADDRESS_BITS)

    async def bench(ctx):
        bus, offered = dut.memory.r, [0, 0, 2, 0, 0, 3, 0, 0, 2, 2]
        found = []
        for k, response in enumerate(offered):
            ctx.set(bus.payload, {"data": k, "resp": response, "last": k % 2})
            ctx.set(bus.valid, 1)
            ctx.set(dut.manager.r.ready, 1)
            if ctx.get(dut.manager.r.valid):
                found.append((ctx.get(dut.manager.r.payload.data), ctx.get(dut.manager.r.payload.resp)))
            await ctx.tick()
        assert found == [(2 * k | 2 * k + 1 << 256, resp) for k, resp in enumerate((0, 2, 3, 0, 2))]

    simulator = Simulator(dut)
    simulator.add_clock(5e-9)
    simulator.add_testbench(bench)
    simulator.run()


def test_an_error_of_either_half_is_an_error_of_the_unit():
    check_responses()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w.payload.data.word_select(at_second", "w.payload.data.word_select(0"),
        ("w.payload.strb.word_select(at_second", "0 & w.payload.strb.word_select(at_second"),
        ("Cat(first.data, r.payload.data)", "Cat(r.payload.data, first.data)"),
    ],
)
def test_a_mutant_of_the_narrower_is_noticed(old, new):
    broken = mutant(hw.board.xilinx.axi_crossing, old, new).AxiNarrower
    with pytest.raises(AssertionError):
        assert narrowed(broken) == []


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["first.resp", "r.payload.resp"])
def test_a_mutant_of_the_responses_is_noticed(wrong):
    with pytest.raises(AssertionError):
        check_responses(mutant(hw.board.xilinx.axi_crossing, "r.payload.resp | first.resp", wrong).AxiNarrower)


def test_depth_wrong():
    with pytest.raises(ValueError, match="AxiCrossing depth must be a power of two of at least 4, not 5"):
        AxiCrossing(ADDRESS_BITS, memory_domain="memory", depth=5)
