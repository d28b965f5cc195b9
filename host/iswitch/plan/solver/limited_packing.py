"""Trees packed under limits that are not linear: at most so many trees, and whole slots at each switch.

The trees are chosen among known ones by an integer program. Then the choice is repaired: for each chosen tree, trees
are sought that are cheap where the other chosen ones leave room, and the program chooses anew. This proves nothing. The
bounds are those of the packing without limits, and of one tree, see `bound_of_few`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.pricing import PricingProblem
from iswitch.plan.solver.tree import Resource, Tree, at_full_rate, capacities, fit_rates, loads, total_loads
from iswitch.plan.topology.topology import Topology

__all__ = ["bound_of_few", "keeps_limits", "pack_within_limits"]

SAME = 1e-9
"""Relative difference of rates that does not count."""
COLUMNS_MAX = 400
"""Most trees among which the program chooses."""
ROOM_MIN = 1e-3
"""The least room of a resource, as a part of its capacity, in a price."""
TRIALS = 3
"""Trees that are sought for the room that the others leave. Before each, prices rise where the last one is too much."""
IDLE_MAX = 1
"""Choices that find nothing faster, before the search ends."""
SHARE = 0.5
"""The part of the time that is left for one choice."""


def keeps_limits(topology: Topology, trees: Sequence[Tree]) -> bool:
    """Return True if a plan of these trees, at their rates, has as few trees and reserves as few slots as it may."""
    job = topology.job
    if job.max_trees is not None and len(trees) > job.max_trees:
        return False
    return job.max_slots is None or max(_reserved(topology, trees).values(), default=0) <= job.max_slots


def bound_of_few(topology: Topology, bound_gbps: float) -> float:
    """Return a rate that no plan of as many trees as allowed exceeds, from a bound of every single tree."""
    return bound_gbps * topology.job.max_trees if topology.job.max_trees is not None else INFINITY


def pack_within_limits(
    topology: Topology,
    known: Sequence[Tree],
    clock: Clock,
    pricing: PricingProblem | None = None,
    bound_gbps: float = INFINITY,
) -> tuple[Tree, ...]:
    """Return the best packing within the limits that is found in time, at its rates.

    Parameters
    ----------
    topology : Topology
        The topology. The job has the limits.
    known : sequence of Tree
        Trees to choose from. At least one has a rate above 0 alone.
    clock : Clock
        The time limit.
    pricing : PricingProblem, optional
        Finds more trees to choose from.
    bound_gbps : float
        A rate that no packing exceeds; the search ends there.
    """
    columns: list[Tree] = []
    for tree in sorted((at_full_rate(topology, tree) for tree in known), key=lambda tree: -tree.rate_gbps):
        if len(columns) < COLUMNS_MAX and tree.rate_gbps and not _is_among(tree, columns):
            columns.append(tree)
    best, idle = fit_rates(topology, columns[:1]), 0
    while True:
        chosen = _choose(topology, columns, clock.part(SHARE))
        is_better = _rate(chosen) > _rate(best) * (1 + SAME)
        best, idle = (chosen, 0) if is_better else (best, idle + 1)
        if idle > IDLE_MAX or _rate(best) >= bound_gbps * (1 - SAME):
            return best
        more = _trees_for_the_rest(topology, best, pricing, clock) if pricing and clock.left else []
        more = [tree for tree in more if not _is_among(tree, columns)]
        if not more or not clock.left:
            return best
        columns += more


def _choose(topology: Topology, columns: Sequence[Tree], clock: Clock) -> tuple[Tree, ...]:
    """Return the fastest packing of these trees within the limits; none if the time ends before one is found."""
    job, available, program = topology.job, capacities(topology), LinearProgram()
    rows: dict[Resource, dict[int, float]] = {}
    reserved: dict[str, dict[int, float]] = {}
    rates, chosen = [], []
    slot_gbps = job.slots_gbps(1)
    for tree in columns:
        rate, most = program.add_variable(0, tree.rate_gbps, cost=-1.0), 1
        if job.max_slots is not None:
            most = min(job.slots_in_flight(tree.rate_gbps), job.max_slots)
            slots = program.add_variable(0, most, integer=True)
            program.add_row({rate: 1.0, slots: -min(slot_gbps, tree.rate_gbps)}, -INFINITY, 0)
            for switch in _switches(topology, tree):
                reserved.setdefault(switch, {})[slots] = 1.0
        if job.max_trees is not None:
            is_chosen = program.add_variable(0, 1, integer=True)
            program.add_row({rate: 1.0, is_chosen: -tree.rate_gbps}, -INFINITY, 0)
            chosen.append(is_chosen)
        rates.append(rate)
        for resource, load in loads(topology, tree).items():
            if resource in available:
                rows.setdefault(resource, {})[rate] = load
    for resource, terms in rows.items():
        program.add_row(terms, -INFINITY, available[resource])
    for terms in reserved.values():
        program.add_row(terms, -INFINITY, job.max_slots or 0)
    if job.max_trees is not None:
        program.add_row(dict.fromkeys(chosen, 1.0), -INFINITY, job.max_trees)
    found = program.solve(time_s=max(clock.left, 1e-3)).values
    if not found:
        return ()
    used = [replace(tree, rate_gbps=found[rate]) for tree, rate in zip(columns, rates)]
    used = [tree for tree in used if tree.rate_gbps > SAME * sum(found[rate] for rate in rates)]
    if job.max_slots is not None:
        # The solver's tolerance must not take one more slot.
        whole = [round(tree.rate_gbps / slot_gbps) * slot_gbps for tree in used]
        used = [
            replace(tree, rate_gbps=most) if abs(tree.rate_gbps - most) < 1e-6 * slot_gbps else tree
            for tree, most in zip(used, whole)
        ]
    trees = fit_rates(topology, used) if len(used) > 1 else tuple(used)
    return trees if keeps_limits(topology, trees) else ()


def _trees_for_the_rest(
    topology: Topology, chosen: Sequence[Tree], pricing: PricingProblem, clock: Clock
) -> list[Tree]:
    """Return trees that suit the room that the chosen ones leave without one of them, or all but a part of each."""
    available, found = capacities(topology), list[Tree]()
    rest = [[tree for number, tree in enumerate(chosen) if number != without] for without in range(len(chosen))]
    rest += [[replace(tree, rate_gbps=tree.rate_gbps / 2) for tree in chosen], list(chosen)]
    for others in rest:
        taken = total_loads(topology, tuple(others))
        room = {at: max(gbps - taken.get(at, 0.0), ROOM_MIN * gbps) for at, gbps in available.items() if gbps}
        prices = {resource: 1 / gbps for resource, gbps in room.items()}
        for _ in range(TRIALS):
            if not clock.left or (priced := pricing.cheapest_tree(prices, clock.left)) is None:
                return found
            tree, _cost = priced
            load = loads(topology, tree)
            found.append(at_full_rate(topology, tree))
            worst = max((load[at] / gbps for at, gbps in room.items() if at in load), default=0.0)
            _raise_prices(prices, load, room, worst)
    return [tree for tree in found if tree.rate_gbps]


def _raise_prices(
    prices: dict[Resource, float], load: Mapping[Resource, float], room: Mapping[Resource, float], worst: float
) -> None:
    """Raise the prices of resources by how nearly a tree fills them, up to three times."""
    for resource in prices.keys() & load.keys():
        prices[resource] *= 1 + 2 * load[resource] / room[resource] / worst


def _reserved(topology: Topology, trees: Sequence[Tree]) -> dict[str, int]:
    """Return the slots that trees at their rates reserve at each switch."""
    found: dict[str, int] = {}
    for tree in trees:
        for switch in _switches(topology, tree):
            found[switch] = found.get(switch, 0) + topology.job.slots_in_flight(tree.rate_gbps)
    return found


def _switches(topology: Topology, tree: Tree) -> list[str]:
    return [node for node in tree.summing_nodes if node != topology.ps]


def _is_among(tree: Tree, trees: Sequence[Tree]) -> bool:
    return any((tree.up, tree.homes, tree.parents, tree.down) == (o.up, o.homes, o.parents, o.down) for o in trees)


def _rate(trees: Sequence[Tree]) -> float:
    return sum(tree.rate_gbps for tree in trees)
