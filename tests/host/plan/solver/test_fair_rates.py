"""Fair rates of given trees are those of a sequence of linear programs, and of the law of bottlenecks."""

import random

import pytest

from iswitch.plan.solver import fair_rates as module
from iswitch.plan.solver.fair_rates import Combination, combine, parts_of_resources
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.tree import Resource
from iswitch.plan.topology.generators import seed_example
from iswitch.plan.topology.shared_fabric import FabricJob
from sim.bench.mutant import mutant


def random_instance(seed):
    """Return what 1 Gb/s of each job takes of some resources, and weights."""
    chance = random.Random(seed)
    count, resources = chance.randint(1, 5), [Resource("capacity", f"s{number}") for number in range(5)]
    parts = []
    for job in range(count):
        taken = {resource: chance.choice([0.1, 0.2, 0.25, 0.7]) for resource in resources if chance.random() < 0.4}
        parts.append(taken | {Resource("link", f"w{job}"): chance.choice([0.02, 0.1, 0.3])})
    return parts, [chance.choice([0.5, 1.0, 1.0, 3.0]) for _ in parts]


def levels_by_programs(parts, weights):
    """Return the level of each job: the largest common one, then that of the jobs that can exceed it, and so on."""
    fixed = {}

    def largest(growing, least):
        """Return the largest common level of some jobs, if the others that are not fixed have `least`."""
        program = LinearProgram()
        level = program.add_variable(cost=-1.0)
        for resource in {resource for taken in parts for resource in taken}:
            used = [taken.get(resource, 0.0) * weight for taken, weight in zip(parts, weights)]
            known = sum(use * fixed.get(job, least) for job, use in enumerate(used) if job not in growing)
            row = {level: sum(use for job, use in enumerate(used) if job in growing)}
            program.add_row(row, -INFINITY, 1 - known + 1e-12)
        return -program.solve().objective

    while len(fixed) < len(parts):
        growing = set(range(len(parts))) - fixed.keys()
        level = largest(growing, 0.0)
        fixed |= {job: level for job in growing if largest({job}, level) <= level * (1 + 1e-7)}
    return [fixed[job] for job in range(len(parts))]


def agrees(fair_rates):
    for seed in range(60):
        parts, weights = random_instance(seed)
        rates, limits = fair_rates(parts, weights)
        levels = [rate / weight for rate, weight in zip(rates, weights)]
        assert levels == pytest.approx(levels_by_programs(parts, weights), rel=1e-6)
        for job, full in enumerate(limits):
            assert full
            for resource in full:
                users = [other for other, taken in enumerate(parts) if resource in taken]
                assert sum(rates[other] * parts[other][resource] for other in users) == pytest.approx(1)
                assert levels[job] == pytest.approx(max(levels[other] for other in users))


def test_rates_are_those_of_linear_programs_and_limits_are_bottlenecks():
    agrees(module.fair_rates)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("original", "wrong"),
    [
        ("rates[job] = weights[job] * filled", "rates[job] = filled"),
        ("left = 1 - sum(", "left = 1 - 0 * sum("),
        ("filled = min(reach.values())", "filled = max(reach.values())"),
        ("if most <= filled * (1 + EQUAL)", "if most <= filled * 1.2"),
        ("limits[job].append(resource)", "limits[job] = [*users][:1]"),
    ],
    ids=["no weights", "stopped jobs take nothing", "largest first", "full too early", "wrong limit"],
)
def test_a_mutant_is_noticed(original, wrong):
    with pytest.raises((AssertionError, ZeroDivisionError)):
        agrees(mutant(module, original, wrong).fair_rates)


def test_one_job_has_the_rate_of_its_tree():
    topology = seed_example()
    plan = plan_single_tree(topology)
    made = combine([FabricJob("a", 4.0, topology)], plan.trees)
    assert made.trees[0].rate_gbps == pytest.approx(plan.rate_gbps) and made.normalised == pytest.approx((0.75,))
    assert Resource("link", "S1", "S3") in made.limits[0]


def test_the_own_limit_of_slots_is_a_resource_of_the_job():
    """A slot is 704 bytes in 50 us: 0.11264 Gb/s."""
    topology = seed_example(max_slots=10)
    (tree,) = plan_single_tree(topology).trees
    with_slots = next(iter(tree.parents))
    topology.graph.nodes[with_slots]["slots"] = 20
    parts = parts_of_resources(FabricJob("a", 1.0, topology), tree)
    slots = {resource: part for resource, part in parts.items() if resource.kind == "slots"}
    assert slots == {Resource("slots", with_slots): pytest.approx(1 / 2.2528)}
    own = {resource: part for resource, part in parts.items() if resource.kind == "max_slots"}
    assert own == {Resource("max_slots", switch, "a"): pytest.approx(1 / 1.1264) for switch in tree.parents}


@pytest.mark.parametrize(
    ("levels", "others", "is_fairer"),
    [
        ((2, 2), (1, 9), True),
        ((1, 9), (2, 2), False),
        ((3, 1), (1, 2), True),
        ((1, 3), (3, 1), False),
        ((1, 2, 3), (1, 2, 4), False),
        ((1.0005, 2), (1, 3), False),
        ((1.002, 2), (1, 3), True),
    ],
)
def test_the_smallest_level_that_differs_decides(levels, others, is_fairer):
    one, other = (Combination((), each, ()) for each in (levels, others))
    assert one.is_fairer(other, 1e-3) is is_fairer
