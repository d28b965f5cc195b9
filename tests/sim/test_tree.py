"""Trees of compiled switches, each with the golden one beside it: the same frames, whatever the links do to them."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.wire import Action, Format, Mode
from sim.bench.cosimulation import Pair
from sim.bench.oracle import window64_sum
from sim.bench.traffic import adverse_numbers
from sim.bench.tree import BAD, FLAT, TREES, Tree, facts
from sim.model.control.random import seed_for_first_seq

SMALL = Config(ports=8, bus_bits=64, members=8, window=2, elements=16, queue_bytes=4096, mac_entries=64)
WIDE = Config(ports=4, bus_bits=256, members=8, window=2, elements=352)
DESIGNS = [pytest.param(SMALL, id="64-bit"), pytest.param(WIDE, id="256-bit", marks=pytest.mark.slow)]


@contextmanager
def compiled(shape, config, **options) -> Iterator[Tree]:
    """A tree of pairs. Each frame that a board sends, and at the end each counter, is its model's."""
    tree = Tree(shape, config=config, switch=Pair, **options)
    try:
        yield tree
        for pair in tree.switches:
            pair.counters_agree()
    finally:
        for pair in tree.switches:
            pair.close()


def payloads(segments, elements=16, world=8, seed=1):
    rng = np.random.default_rng(seed)
    return adverse_numbers(rng, world * segments * elements, 0.01).reshape(world, segments, elements)


@pytest.mark.parametrize("config", DESIGNS)
@pytest.mark.parametrize("rates", [{}, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize("shape", TREES.values(), ids=TREES)
def test_a_tree_of_compiled_switches_sums_as_one_switch_does(shape, rates, config):
    numbers = payloads(10)
    with compiled(shape, config, seed=seed_for_first_seq(2**32 - 4), **rates) as tree:
        found = tree.join().reduce(numbers)
        tree.agree()
    flat = Tree(FLAT, config=config).join().reduce(numbers)
    assert facts(found) == facts(flat)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("format", [Format.WINDOW64, Format.FP32, Format.INT32])
def test_every_format_and_both_modes(format, mode):
    numbers = payloads(8, seed=2)
    with compiled(TREES["uneven, a worker at the root"], SMALL, **BAD) as tree:
        tree.join(format=format, mode=mode).reduce(numbers)
        tree.reduce(numbers[:, :2], start=8, format=Format.INT32)
        tree.agree()
