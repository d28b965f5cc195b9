# amaranth: UnusedElaboratable=no
"""A memory with parity against a dictionary of its rows."""

import random

import pytest
from amaranth.hdl import Value

import hw.decide.tables.checked_memory
from hw.decide.tables.checked_memory import CheckedMemory
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

WIDTH, DEPTH, GRANULES = 9, 6, 3


def check(monkeypatch, module=hw.decide.tables.checked_memory):
    """Write at random and read every row; then flip each bit of a row in turn."""
    memories, rng = [], random.Random(1)
    made = module.Memory
    monkeypatch.setattr(module, "Memory", lambda **options: memories.append(made(**options)) or memories[-1])
    dut = module.CheckedMemory(WIDTH, DEPTH, granules=GRANULES)

    async def bench(ctx):
        async def read(address):
            ctx.set(dut.address, address)
            await ctx.tick()
            return ctx.get(Value.cast(dut.read)), ctx.get(dut.wrong)

        rows = [[0] * GRANULES for _ in range(DEPTH)]

        def bits(address):
            return sum(granule << WIDTH * k for k, granule in enumerate(rows[address]))

        for address in range(DEPTH):
            assert await read(address) == (0, 0)
        for _ in range(200):
            address, write, written = rng.randrange(DEPTH), rng.getrandbits(GRANULES), rng.getrandbits(WIDTH * GRANULES)
            other = rng.choice([address, rng.randrange(DEPTH)])
            ctx.set(dut.write_address, address)
            ctx.set(dut.write, write)
            ctx.set(Value.cast(dut.written), written)
            expected = bits(other)
            assert await read(other) == (expected, 0)  # the row from before the write
            for k in range(GRANULES):
                if write >> k & 1:
                    rows[address][k] = written >> WIDTH * k & (1 << WIDTH) - 1
        ctx.set(dut.write, 0)
        stored = memories[0].data
        errors = [1 << bit for bit in range((WIDTH + 1) * GRANULES)] + [0b11 << WIDTH]  # the last is in two granules
        for address in range(DEPTH):
            row = Value.cast(stored[address])
            for error in errors:
                flipped = [
                    granule ^ error >> (WIDTH + 1) * k & (1 << WIDTH) - 1 for k, granule in enumerate(rows[address])
                ]
                ctx.set(row, ctx.get(row) ^ error)
                assert await read(address) == (sum(granule << WIDTH * k for k, granule in enumerate(flipped)), 1)
                ctx.set(row, ctx.get(row) ^ error)
                assert await read(address) == (bits(address), 0)

    Bench(dut).drive(bench)


def test_each_single_bit_error_is_found_when_its_row_is_read_and_no_sound_row_is_wrong(monkeypatch):
    check(monkeypatch)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("with_parity(content)", "Cat(content, 0)"),
        ("with_parity(content)", "Cat(content, ~content.xor())"),
        ("Cat(granule.xor() for granule in get.data).any()", "get.data[0].xor()"),
        ("Cat(granule.xor() for granule in get.data).any()", "get.data.as_value().xor()"),
        ("Cat(granule.xor() for granule in get.data).any()", "0"),
    ],
)
def test_a_mutant_of_the_parity_is_noticed(sound, wrong, monkeypatch):
    with pytest.raises(AssertionError):
        check(monkeypatch, mutant(hw.decide.tables.checked_memory, sound, wrong))


@pytest.mark.parametrize(("depth", "granules", "name"), [(1, 1, "depth"), (4, 0, "granules")])
def test_an_impossible_size_is_refused(depth, granules, name):
    with pytest.raises(ValueError, match=f"CheckedMemory {name}"):
        CheckedMemory(8, depth, granules=granules)
