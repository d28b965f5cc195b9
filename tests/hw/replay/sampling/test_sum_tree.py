# amaranth: UnusedElaboratable=no
"""The sum tree in gateware against its golden model: every draw, every total, and the cycle in which each comes."""

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal, Value
from amaranth.sim import Simulator

import hw.replay.sampling.sum_tree
from hw.replay.sampling.sum_tree import SumTree, fanouts
from iswitch.golden.replay.tree import FRACTION_BITS
from iswitch.golden.replay.tree import SumTree as Model
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, pack

LAST_FRACTION = (1 << FRACTION_BITS) - 1
ARITIES = [2, 4, 8, 16]
PRIORITY_BITS = [1, 18, 27]


class Scenario:
    """Operations, and what is to be found behind each. Fields that mean nothing are noise."""

    def __init__(self, capacity: int, priority_bits: int, *, single_copy: bool, seed: int = 0) -> None:
        self.model, self.single_copy, self.rng = (
            Model(capacity=capacity, priority_bits=priority_bits),
            single_copy,
            random.Random(seed),
        )
        self.items: list[dict[str, int]] = []
        self.entered: list[tuple[int, int]] = []
        self.found: list[dict[str, int]] = []

    def noise(self) -> dict[str, int]:
        bits = self.rng.getrandbits
        priority = lambda: bits(self.model.priority_bits)
        return {
            "leaf": self.rng.randrange(self.model.capacity),
            "keeps": bits(1),
            "old": priority(),
            "new": priority(),
            "fraction": bits(FRACTION_BITS),
        }

    def update(self, leaf: int, priority: int) -> None:
        old = self.model.update(leaf, priority)
        self.items.append(
            self.noise()
            | {"is_sample": 0, "leaf": leaf, "new": priority}
            | ({"keeps": 0} if self.single_copy else {"old": old})
        )
        self.entered.append((old, priority))
        self.found.append({"is_sample": 0, "empty": 0, "leaf": leaf, "priority": priority, "total": self.model.total})

    def keep(self, leaf: int) -> None:
        """An update that changes nothing; in a single_copy tree whatever it says."""
        self.update(leaf, self.model.priorities[leaf])
        if self.single_copy:
            self.items[-1] |= {"keeps": 1, "new": self.noise()["new"]}

    def draw(self, fraction: int) -> None:
        drawn = self.model.sample(fraction)
        self.items.append(self.noise() | {"is_sample": 1, "fraction": fraction})
        leaf, priority, total = drawn or (0, 0, 0)
        self.found.append(
            {"is_sample": 1, "empty": int(drawn is None), "leaf": leaf, "priority": priority, "total": total}
        )

    def draw_at(self, position: int) -> None:
        """The first fraction that leads there."""
        self.draw(-(-(position << FRACTION_BITS) // self.model.total))

    def draw_at_border(self, leaf: int) -> None:
        """The last position before a leaf's interval, or the first in it."""
        if self.model.total:
            border = sum(self.model.priorities[:leaf])
            self.draw_at(min(max(border - self.rng.randrange(2), 0), self.model.total - 1))
        else:
            self.draw(self.rng.choice([0, LAST_FRACTION]))

    def mix(self, count: int, leaves: list[int]) -> None:
        """Updates and draws in any order, among leaves of which some are met again at once."""
        top = (1 << self.model.priority_bits) - 1
        for _ in range(count):
            leaf = self.rng.choice(leaves)
            kind = self.rng.randrange(8)
            if kind == 0:
                self.keep(leaf)
            elif kind < 4:
                self.update(leaf, self.rng.choice([0, 1, top, self.rng.randint(0, top)]))
            elif kind < 6:
                self.draw_at_border(leaf)
            else:
                self.draw(self.rng.choice([0, LAST_FRACTION, self.rng.getrandbits(FRACTION_BITS)]))


def mixed(capacity: int, priority_bits: int, *, single_copy: bool, seed: int = 0, count: int = 300) -> Scenario:
    """Neighbours on both sides of every level's borders, and leaves anywhere."""
    scenario = Scenario(capacity, priority_bits, single_copy=single_copy, seed=seed)
    near = {(1 << bits) + k for bits in range(capacity.bit_length() - 1) for k in (-1, 0, 1)} | {
        0,
        1,
        capacity - 1,
        capacity // 2,
    }
    leaves = sorted(leaf for leaf in near if leaf < capacity) + [scenario.rng.randrange(capacity) for _ in range(8)]
    scenario.mix(count // 2, scenario.rng.sample(leaves, 3))
    scenario.mix(count - count // 2, leaves)
    return scenario


def check(scenario: Scenario, *, tree=SumTree, stalls: float = 0, **parameters) -> None:
    model = scenario.model
    dut = tree(
        capacity=model.capacity, priority_bits=model.priority_bits, single_copy=scenario.single_copy, **parameters
    )
    bench, totals = Bench(dut, stalls=stalls), []
    source, sink, entered = bench.source(dut.operations, scenario.items), bench.sink(dut.found), bench.sink(dut.entered)

    async def follow(ctx):
        async for _, _, total, corrupted, lost in ctx.tick().sample(dut.total, dut.corrupted, dut.lost):
            totals.append(total)
            assert not corrupted and not lost  # no memory has a bit error

    bench.process(follow)
    wiped = model.capacity // dut.arity
    bench.run(
        quiet=dut.latency + 3,
        limit=wiped + 200 + (1 + 2 * (stalls > 0)) * len(scenario.items) * (dut.drain if scenario.single_copy else 1),
    )
    assert [{name: getattr(item, name) for name in scenario.found[0]} for item in sink.items] == scenario.found
    assert sink.times == [time + dut.latency for time in source.times]
    assert [(item.old, item.new) for item in entered.items] == scenario.entered
    assert entered.times == [
        time + dut.entry for time, item in zip(source.times, scenario.items) if not item["is_sample"]
    ]
    assert [totals[time + 1 + 2 * scenario.single_copy] for time in source.times] == [
        found["total"] for found in scenario.found
    ]
    free = drained = wiped
    for item, offered, time in zip(scenario.items, source.offered, source.times):
        free = max(free, offered)
        assert time == (max(free, drained) if scenario.single_copy and not item["is_sample"] else free)
        free, drained = time + 1, time + dut.drain if item["is_sample"] else drained


def shapes():
    """Capacities on both sides of a level's end, for each arity; priorities of all widths among them."""
    for arity in ARITIES:
        for k, capacity in enumerate((2 * arity, 1 << 10, 1 << 11, 1 << 12)):
            yield arity, capacity, PRIORITY_BITS[(k + arity.bit_length()) % 3]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("single_copy", [False, True])
@pytest.mark.parametrize("arity,capacity,priority_bits", list(shapes()))
def test_each_operation_finds_what_the_model_does(arity, capacity, priority_bits, single_copy, stalls):
    check(
        mixed(capacity, priority_bits, single_copy=single_copy, seed=capacity + arity, count=200),
        arity=arity,
        stalls=stalls,
    )


@pytest.mark.parametrize("single_copy", [False, True])
@pytest.mark.parametrize("priority_bits", PRIORITY_BITS)
def test_widths(priority_bits, single_copy):
    check(mixed(256, priority_bits, single_copy=single_copy), arity=4)


def one_leaf(single_copy: bool, capacity: int = 64) -> Scenario:
    """Nothing but one leaf and its neighbour, every cycle."""
    scenario = Scenario(capacity, 18, single_copy=single_copy, seed=5)
    for leaf in (0, capacity // 2 - 1, capacity - 2):
        for _ in range(40):
            scenario.update(leaf, scenario.rng.getrandbits(18))
            if scenario.rng.random() < 0.5:
                scenario.draw_at_border(leaf + 1)
        scenario.mix(100, [leaf, leaf + 1])
    return scenario


@pytest.mark.parametrize("single_copy", [False, True])
@pytest.mark.parametrize("arity", ARITIES)
def test_back_to_back_on_one_leaf(arity, single_copy):
    check(one_leaf(single_copy), arity=arity)


def one_hot(single_copy: bool, capacity: int = 64) -> Scenario:
    """Empty, one leaf, empty again; wherever the leaf is, all draws find it."""
    scenario = Scenario(capacity, 18, single_copy=single_copy)
    for leaf in (0, 1, capacity // 2 - 1, capacity // 2, capacity - 1):
        for fraction in (0, LAST_FRACTION // 2, LAST_FRACTION):
            scenario.draw(fraction)
        for priority in (1, (1 << 18) - 1):
            scenario.update(leaf, priority)
            for fraction in (0, LAST_FRACTION // 2, LAST_FRACTION):
                scenario.draw(fraction)
                assert scenario.found[-1]["leaf"] == leaf
        scenario.update(leaf, 0)
    scenario.draw(LAST_FRACTION)
    return scenario


@pytest.mark.parametrize("single_copy", [False, True])
@pytest.mark.parametrize("arity", ARITIES)
def test_empty_and_one_hot(arity, single_copy):
    check(one_hot(single_copy), arity=arity)


def full(single_copy: bool, capacity: int = 64, priority_bits: int = 27) -> Scenario:
    """The largest total there can be, and a draw on both sides of each border in it."""
    scenario = Scenario(capacity, priority_bits, single_copy=single_copy)
    top = (1 << priority_bits) - 1
    for leaf in range(capacity):
        scenario.update(leaf, top)
    for leaf in range(capacity):
        scenario.draw_at(leaf * top)
        scenario.draw_at((leaf + 1) * top - 1)
        assert [found["leaf"] for found in scenario.found[-2:]] == [leaf, leaf]
    scenario.draw(LAST_FRACTION)
    assert scenario.found[-1]["leaf"] == capacity - 1
    return scenario


@pytest.mark.parametrize("single_copy", [False, True])
@pytest.mark.parametrize("arity,priority_bits", [(2, 1), (4, 36), (8, 18), (16, 27)])
def test_saturated(arity, priority_bits, single_copy):
    check(full(single_copy, priority_bits=priority_bits), arity=arity)


@pytest.mark.parametrize("single_copy,latency,drain", [(False, 20, 1), (True, 22, 18)])
def test_latency_by_hand(single_copy, latency, drain):
    """2^20 leaves, five levels: two to look up, the total, four pieces of a product, the root, three times three, the
    leaves' five."""
    dut = SumTree(capacity=1 << 20, single_copy=single_copy)
    assert (dut.fanouts, dut.latency, dut.drain) == ([16] * 5, latency, drain)


def test_fanouts_by_hand():
    assert fanouts(1 << 11, 16) == [8, 16, 16] and fanouts(32, 16) == [2, 16] and fanouts(8, 2) == [2, 2, 2]


@pytest.mark.parametrize(
    "parameters,message",
    [
        ({"arity": 3}, "SumTree arity must be a power of two from 2 to 64, not 3"),
        ({"arity": 1}, "SumTree arity must be a power of two from 2 to 64, not 1"),
        ({"arity": 128}, "SumTree arity must be a power of two from 2 to 64, not 128"),
        ({"arity": 4.0}, "SumTree arity must be a power of two from 2 to 64, not 4.0"),
        ({"capacity": 16}, "SumTree capacity must be a power of two from 32 to 16777216, not 16"),
        ({"capacity": 100}, "SumTree capacity must be a power of two from 32 to 16777216, not 100"),
        ({"capacity": 1 << 25}, "SumTree capacity must be a power of two from 32 to 16777216, not 33554432"),
        ({"priority_bits": 0}, "SumTree priority_bits must be 1 to 36, not 0"),
        ({"priority_bits": 37}, "SumTree priority_bits must be 1 to 36, not 37"),
    ],
)
def test_parameters_wrong(parameters, message):
    with pytest.raises(ValueError) as raised:
        SumTree(**{"capacity": 64} | parameters)
    assert str(raised.value) == message


def restart(scenario_of, tree=SumTree, *, single_copy: bool = False) -> None:
    """Stops in the middle of a scenario by a reset, then begins another: nothing of the first is left, in no memory and
    not in the pipe."""
    dut, restarts = tree(capacity=64, priority_bits=18, arity=4, single_copy=single_copy), Signal()
    top = Module()
    top.submodules.tree = ResetInserter(restarts)(dut)
    simulator = Simulator(top)
    simulator.add_clock(1e-8)

    async def play(ctx):
        for scenario, whole in ((full(single_copy, 64, 18), False), (scenario_of(single_copy), True)):
            items = [pack(dut.operations.payload.shape(), item) for item in scenario.items]
            for _ in range(16):
                assert not ctx.get(dut.operations.ready | dut.found.valid)
                await ctx.tick()
            assert ctx.get(dut.operations.ready)
            taken, found = 0, []
            while len(found) < (len(items) if whole else len(items) // 2):
                ctx.set(dut.operations.valid, taken < len(items))
                ctx.set(Value.cast(dut.operations.payload), items[min(taken, len(items) - 1)])
                _, _, ready, valid, bits = await ctx.tick().sample(
                    dut.operations.ready, dut.found.valid, Value.cast(dut.found.payload)
                )
                taken += ready
                if valid:
                    found.append(bits)
            expected = [pack(dut.found.payload.shape(), item) for item in scenario.found]
            assert found == expected[: len(found)]
            ctx.set(dut.operations.valid, 0)
            ctx.set(restarts, 1)
            await ctx.tick()
            ctx.set(restarts, 0)

    simulator.add_testbench(play)
    simulator.run()


@pytest.mark.parametrize("single_copy", [False, True])
def test_a_reset_wipes_all(single_copy):
    restart(one_hot, single_copy=single_copy)
    restart(one_leaf, single_copy=single_copy)


SCENARIOS = [
    *(
        lambda tree, single_copy=single_copy: check(
            mixed(1 << 9, 18, single_copy=single_copy, count=250), tree=tree, arity=4
        )
        for single_copy in (False, True)
    ),
    lambda tree: check(mixed(1 << 9, 18, single_copy=True, count=200), tree=tree, arity=4, stalls=0.5),
    *(lambda tree, make=make: check(make(False), tree=tree, arity=4) for make in (one_leaf, one_hot, full)),
    lambda tree: restart(one_leaf, tree),
    lambda tree: restart(one_leaf, tree, single_copy=True),
]
MUTANTS = [
    # forwarding between the stages of a level
    ("Mux(newest_passes, new, Mux(", "Mux(0, new, Mux("),
    ("Mux(newest_is_written, written, Cat(", "Mux(0, written, Cat("),
    ("updates & same(passing, here)", "updates"),
    ("writes & same(out, here)", "writes"),
    ("memory.read_port(transparent_for=[write])", "memory.read_port()"),
    ("one.leaf[low:] == other.leaf[low:]", "one.leaf[low + 1:] == other.leaf[low + 1:]"),
    # half-open intervals
    ("Cat(~left[-1] for left in lefts[1:])", "Cat(left > 0 for left in lefts[1:])"),
    ("last.rest >= end", "last.rest > end"),
    # what an update changes
    ("(mine <= k)", "(mine < k)"),
    ("~before.is_sample & before.valid & (mine", "before.valid & (mine"),
    ("~before.is_sample & before.valid & (mine", "~before.is_sample & (mine"),
    ("Mux(valid & ~entering.is_sample, change, 0)", "Mux(valid, change, 0)"),
    ("Mux(valid & ~entering.is_sample, change, 0)", "Mux(~entering.is_sample, change, 0)"),
    ("signed(self.priority_bits + 1))", "signed(self.priority_bits))"),
    ("Mux(entering.is_sample, 0, entering.leaf)", "entering.leaf"),
    ("Mux(step.valid & ~step.is_sample, 1 << step.leaf[:bits], 0)", "Mux(step.valid, 1 << step.leaf[:bits], 0)"),
    # what a draw finds
    ("step.fraction, step.total", "step.fraction, step.priority"),
    ("range(LATENCY)", "range(LATENCY - 1)"),
    ("left[:len(rest)] for", "step.rest for"),
    ("empty = last.is_sample & (last.total == 0)", "empty = Const(0)"),
    ("leaf.eq(Mux(empty, 0,", "leaf.eq(Mux(Const(0), 0,"),
    ("Mux(last.is_sample, chosen, 0))),", "chosen)),"),
    ("select_one_hot(here, rows[2])", "select_one_hot(here, rows[1])"),
    ("here.eq(Cat(Const(1, 1), reached) & ~Cat(reached, Const(0, 1))), chosen", "here.eq(1 | reached << 1), chosen"),
    ("step.total.eq(after)", "step.total.eq(self.total)"),
    ("self.entered.valid.eq(valid & ~entering.is_sample)", "self.entered.valid.eq(valid)"),
    # phases
    ("Mux(operation.keeps | operation.restores, 0, 1 << operation", "Mux(operation.restores, 0, 1 << operation"),
    ("Mux(held.keeps | held.restores, old, held.new)", "Mux(held.restores, old, held.new)"),
    ("(operation.is_sample | (samples_inside == 0))", "1"),
    ("(taken & operation.is_sample) - sampled)", "(taken & operation.is_sample) - (sampled & (samples_inside > 1)))"),
    ("m.d.comb += sampled.eq(step.valid & step.is_sample)", "m.d.comb += sampled.eq(step.is_sample)"),
    ("self._leaf_stage + 5", "self._leaf_stage + 4"),
    # wiping
    ("write.en.eq(-1), write.data.eq(0)]", "write.en.eq(0), write.data.eq(0)]"),
    ("write.en.eq(writes | ~wiped)", "write.en.eq(writes)"),
    ("wiped.eq(wipe == self.capacity // self.arity - 1)", "wiped.eq(1)"),
    ("m.d.comb += [ready.eq(wiped), valid", "m.d.comb += [ready.eq(1), valid"),
]


@pytest.mark.mutant
@pytest.mark.parametrize("sound,wrong", MUTANTS)
def test_checks_notice_a_mutant_in_the_logic(sound, wrong):
    tree = mutant(hw.replay.sampling.sum_tree, sound, wrong).SumTree
    with pytest.raises((AssertionError, TimeoutError)):
        for scenario in SCENARIOS:
            scenario(tree)
