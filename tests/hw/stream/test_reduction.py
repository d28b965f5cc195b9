"""Trees of any number of values against plain loops."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.stream.checksum import fold_carries, sum_halves
from hw.stream.reduction import combine_pairs, lowest_set, popcount, reaches, reduce_tree, tree_sum


def test_order_is_kept_and_no_value_is_lost():
    for count in range(1, 20):
        assert reduce_tree(lambda a, b: a + b, [(k,) for k in range(count)]) == tuple(range(count))


def test_a_level_combines_neighbours():
    assert combine_pairs(lambda a, b: a + b, ["a", "b", "c"]) == ["ab", "c"]


def test_no_values_wrong():
    with pytest.raises(ValueError, match="reduce_tree values must be at least one, not none"):
        reduce_tree(max, [])


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 100, 128, 300])
def test_a_value_is_compared_with_a_limit(limit):
    bits = Signal(8)
    assert_equals(Module(), bits, range(1 << 8), [(reaches(bits, limit), lambda value: value >= limit)])


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_bits_are_counted_and_the_lowest_is_found(width):
    bits = Signal(width)
    assert_equals(
        Module(),
        bits,
        range(1 << width),
        [
            (popcount(bits), lambda value: value.bit_count()),
            (lowest_set(bits), lambda value: (value & -value).bit_length() - 1 if value else 0),
        ],
    )


def test_halves_are_summed_and_carries_folded():
    m, word, rng = Module(), Signal(128), random.Random(1)
    values = [0, (1 << 128) - 1, *(rng.getrandbits(128) for _ in range(50))]
    halves = lambda value, first, end: sum(value >> 8 * k & 0xFFFF for k in range(first, end, 2))
    assert_equals(
        m,
        word,
        values,
        [
            (sum_halves(word, 0, 16), lambda value: halves(value, 0, 16)),
            (sum_halves(word, 4, 14), lambda value: halves(value, 4, 14)),
            (sum_halves(word, 6, 6), lambda value: 0),
            (
                fold_carries(m, sum_halves(word, 0, 16)),
                lambda value: (halves(value, 0, 16) - 1) % 0xFFFF + 1 if value else 0,
            ),
            (tree_sum([word[:8], word[8:16], word[16:24]]), lambda value: sum(value >> 8 * k & 255 for k in range(3))),
        ],
    )


def assert_equals(m, source, values, expected):
    """`expected`: expressions of `source`, each with what it should be for a value."""
    outputs = [Signal(len(expression)) for expression, _ in expected]
    for output, (expression, _) in zip(outputs, expected, strict=True):
        m.d.comb += output.eq(expression)

    async def check(ctx):
        for value in values:
            ctx.set(source, value)
            assert [ctx.get(output) for output in outputs] == [wanted(value) for _, wanted in expected]

    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()
