"""What a comparison counts, what it gives the gateware, and the first difference that it reports."""

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from sim.bench.compiled import Compiled
from sim.refine.comparison import BATCH, Comparison, Difference


class Adder(Component):
    """Adds two numbers of the last cycle, wrongly if both are 7."""

    def __init__(self):
        super().__init__({"frame": In(8), "row": In(16), "unused": In(4), "sum": Out(17)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.sum.eq(self.frame + self.row + self.unused + ((self.frame == 7) & (self.row == 7)))
        return m


def comparison():
    part = Compiled(Adder())
    frames = [(number,) for number in range(9)]
    return Comparison(part, of_frame=["frame"], of_rows=["row"], frames=frames, said=["sum"], hold=2, at=2)


def test_pairs_with_equal_inputs_are_compared_once_and_more_than_a_batch_is_compared():
    compared = comparison()
    for row in range(BATCH + 10):
        for again in range(2):
            compared.add((row, again), (row,), 5, (row + 5,))
    compared.flush()
    assert (compared.pairs, compared.inputs, compared.runs) == (2 * (BATCH + 10), BATCH + 10, BATCH + 10)


def test_the_first_pair_that_differs_is_reported():
    compared = comparison()
    for row in range(9):
        for frame in range(9):
            compared.add((row, frame), (row,), frame, (row + frame,))
    with pytest.raises(Difference) as found:
        compared.flush()
    difference = found.value
    assert (difference.pair, difference.output, difference.model, difference.gateware) == ((7, 7), "sum", 14, 15)


def test_a_model_that_says_two_things_about_equal_inputs_wrong():
    compared = comparison()
    compared.add("one", (1,), 1, (2,))
    with pytest.raises(ValueError, match="Comparison rows must determine what the model says"):
        compared.add("other", (1,), 1, (3,))
