"""Words in memories: the parity of a word, and a `last` that one bit error cannot change."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component

from hw.stream.packet import Packet
from hw.stream.stored_word import StoredWord, majority, parity_of, stored_word
from sim.bench.stream import Bench, pack, to_words


class Pair(Component):
    """A word, and the word as a memory holds it."""

    def __init__(self, bus_bits: int):
        self.word = Signal(Packet(bus_bits, parity=True))
        self.stored, self.damage = Signal(StoredWord(bus_bits)), Signal(StoredWord(bus_bits).size)
        self.last, self.is_wrong = Signal(), Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        word = Signal.like(self.word)
        m.d.comb += [
            self.stored.eq(stored_word(self.word, self.word.parity) ^ self.damage),
            self.last.eq(majority(self.stored.last)),
            word.data.eq(self.stored.data),
            word.count.eq(self.stored.count),
            word.last.eq(self.last),
            self.is_wrong.eq(parity_of(word) != self.stored.mark),
        ]
        return m


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_each_bit_error_is_found_or_changes_nothing(bus_bits):
    dut, rng, layout = Pair(bus_bits), random.Random(bus_bits), StoredWord(bus_bits)
    copies = range(layout["last"].offset, layout["last"].offset + 3)

    async def bench(ctx):
        for word in to_words(rng.randbytes(bus_bits // 8 * 4 - 3), bus_bits, parity=True):
            ctx.set(dut.word.as_value(), pack(dut.word.shape(), word))
            ctx.set(dut.damage, 0)
            await ctx.delay(1e-9)
            assert not ctx.get(dut.is_wrong) and ctx.get(dut.last) == word["last"]
            for bit in range(layout.size):
                ctx.set(dut.damage, 1 << bit)
                await ctx.delay(1e-9)
                assert ctx.get(dut.last) == word["last"]
                assert ctx.get(dut.is_wrong) == (bit not in copies)

    Bench(dut).drive(bench)


def test_a_word_of_64_bits_fills_two_block_rams_of_36_bits():
    assert StoredWord(64).size == 2 * 36


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="StoredWord bus_bits must be 64, 256 or 512, not 32"):
        StoredWord(32)
