"""The fastest single tree, with a proof.

In a best plan all workers send at the same rate r. With t = 1/r each constraint is linear: streams on a resource, in
their sizes, are at most its capacity x t. Interchangeable workers are one integer variable, and the streams toward one
place are an integer flow. Since streams are integral, the best t is one of few values: a load that a resource can have,
divided by its capacity. For a given t the question is whether a tree exists. That is far easier than to minimise t:
each right side is rounded down to a load that the resource can have, and a switch that is not used takes nothing.

Values of t are tried upwards from the optimum of the linear relaxation, in growing steps and then by bisection. Each
infeasible t is a proved bound.

If a question is not answered soon, a local search (`local_search`) looks for a better tree, and a relaxation by orbits
(`relaxation`) for a better bound. In a large fabric these two come first, and the integer program follows for trees of
one level only.
"""

from collections.abc import Sequence

from iswitch.plan.solver.clock import Clock, OutOfTime
from iswitch.plan.solver.filled_trees import fastest_filled_tree
from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.local_search import LocalSearch
from iswitch.plan.solver.pricing import PricingProblem
from iswitch.plan.solver.relaxation import Relaxation
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.simple_trees import make_simple_trees
from iswitch.plan.solver.single_tree_model import EQUAL, SingleTreeModel
from iswitch.plan.solver.sites import Site, Upgrade, find_sites
from iswitch.plan.solver.streams import Streams
from iswitch.plan.solver.tree import Plan, Tree, at_full_rate, capacities, loads, scheme_name
from iswitch.plan.solver.tree_program import Keep
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["SITES_MAX", "plan_single_tree"]

SLACK = 1e-6
"""By which part rounding may make a tree slower than the t for which it was found."""
FIRST_S = 0.5
"""Time limit of the first question, before a tree is sought by local search."""
TRIALS = 4
"""Trees that are sought by prices."""
SITES_MAX = 30
"""Most sites for which integer programs are used: of a tree of several levels, and of the cheapest tree."""
LARGE_SHARE = 0.5
"""The local search's part of the time in a large fabric, before the integer program of one level."""
FILLED_SHARE = 0.3
"""Part of the search's time for trees that are made by filling capacities."""
SEEDS_MAX = 20
"""Most local searches."""
STARTS_MAX = 8
"""Most trees from which local search starts."""
ROOTS_MAX = 4
"""Most switches that are tried as the root by local search."""


def plan_single_tree(
    topology: Topology,
    *,
    levels: int | None = 1,
    time_s: float = 60.0,
    adjacent: bool = False,
    upgrade: Upgrade | None = None,
    start: Sequence[Tree] = (),
    keep: Keep | None = None,
) -> Plan:
    """Return the fastest tree.

    Parameters
    ----------
    topology : Topology
        The topology.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    time_s : float
        Time limit in seconds. A tree that is not proved optimal by then has an upper bound.
    adjacent : bool
        Let each switch sum only its neighbours, as the emulated fabric requires.
    upgrade : Upgrade, optional
        Switches that may be upgraded. The plan upgrades the fewest that make it this fast.
    start : sequence of Tree
        Trees of this kind that are known. The plan is at least as fast as each of them.
    keep : Keep, optional
        A running tree, most of whose roles stay, in a fabric of at most `SITES_MAX` sites and without an upgrade.
        Trees of `start` must change as few.

    Raises
    ------
    TopologyError
        If no tree reaches all workers, or none was found in time.
    """
    if levels is not None and levels < 1:
        raise ValueError(f"levels must be at least 1 or None, not {levels!r}")
    clock = Clock(time_s)
    scheme = scheme_name(levels)
    only_neighbours = "; with --adjacent sums go to neighbours only" if adjacent else ""
    no_tree = TopologyError(
        f"{scheme}: no tree reaches all workers: "
        f"raise `members` of the switches, or free bandwidth of cables{only_neighbours}"
    )
    sites = find_sites(topology, upgrade)
    searchable = not upgrade and not keep and levels in (1, None)
    starts = [tree for tree in map(lambda each: at_full_rate(topology, each), start) if tree.rate_gbps]
    known: Tree | None = max(starts, key=lambda tree: tree.rate_gbps, default=None)
    is_large = searchable and len(sites) > SITES_MAX
    if is_large:
        # Of one level, the integer program proves some trees of large fabrics, which the search misses.
        share = clock.part(LARGE_SHARE) if levels == 1 else clock
        found_plan = _plan_large(topology, sites, levels, adjacent, starts, share, scheme, no_tree)
        if levels != 1 or found_plan.gap <= SLACK or not clock.left:
            return found_plan
        known = found_plan.trees[0]
    try:
        model = SingleTreeModel(
            topology,
            sites,
            levels=levels,
            adjacent=adjacent,
            upgrades=upgrade.count_max if upgrade else 0,
            clock=clock if is_large else None,
            keep=keep,
        )
    except OutOfTime:
        return found_plan
    to_tree = lambda values: at_full_rate(topology.with_capacity(model.upgraded(values)), model.tree(values))
    # Every tree has t >= low. `tree` has t = high, if there is one.
    low, stride, proved = model.lower_bound(clock.left), 1, False
    if is_large:
        low = max(low, 1 / found_plan.bound_gbps)
    if low == INFINITY:
        raise no_tree
    values: list[float] = []
    tree, high, tried_search = None, model.t_max, bool(upgrade or keep) or is_large
    if known and not upgrade:
        tree, high = known, 1 / known.rate_gbps
    while clock.left and not proved:
        if tree and high <= low * (1 + SLACK):
            proved = True
            break
        candidates = model.candidates(low, high)
        ahead = min(stride, (len(candidates) + 1) // 2 if tree else len(candidates)) - 1
        found = None
        if high > low * (1 + EQUAL):
            limit_s = clock.left if upgrade else FIRST_S if not tried_search else max(clock.left / 4, FIRST_S)
            found = model.solve_within(candidates[ahead], min(limit_s, clock.left))
        if found and found.values:
            values, tree = found.values, to_tree(found.values)
            if tree.rate_gbps * candidates[ahead] < 1 - SLACK:
                raise RuntimeError(f"a tree for {1 / candidates[ahead]:.6g} Gb/s carries {tree.rate_gbps:.6g}")
            high, proved = min(candidates[ahead], 1 / tree.rate_gbps), ahead == 0
        elif not found or found.status == "infeasible":
            if tree is None and ahead + 1 == len(candidates):
                raise no_tree
            low, proved = (high, True) if ahead + 1 == len(candidates) else (candidates[ahead + 1], False)
        if found and found.status == "time" and not tried_search and not proved:
            tried_search = True
            pricing = PricingProblem(topology, sites, levels, adjacent)
            if priced := _tree_by_prices(topology, pricing, low, clock.part(0.1)):
                starts.append(priced)
            if searchable:
                relaxation = Relaxation(topology, sites, levels, adjacent)
                better, low = _search(relaxation, sites, starts, low, clock.part(0.4))
                starts += [better] if better else []
            for each in starts:
                if each.rate_gbps and 1 / each.rate_gbps < high:
                    tree, high, values = each, 1 / each.rate_gbps, []
        stride *= 2
        if tree:
            clock.report(scheme, tree.rate_gbps, 1 / low)
    if tree is None and not upgrade and not keep:
        tree = _tree_by_prices(topology, PricingProblem(topology, sites, levels, adjacent), low, Clock(FIRST_S))
    seconds = clock.seconds
    if tree is None:
        raise TopologyError(f"{scheme}: no tree was found within {time_s:g} s: raise --seconds")
    if upgrade and values:
        values = model.with_fewest_upgrades(high, values, clock.left)
        tree = to_tree(values)
    upgraded = model.upgraded(values) if values else {}
    tidied = model.with_least_traffic(high, values, clock.left) if clock.left else []
    if tidied and (tidy := to_tree(tidied)).rate_gbps >= tree.rate_gbps * (1 - EQUAL):
        tree, upgraded = tidy, model.upgraded(tidied)
    return Plan(
        scheme=scheme,
        trees=(tree,),
        bound_gbps=tree.rate_gbps if proved else max(1 / low, tree.rate_gbps),
        shadow_prices=find_shadow_prices(topology.with_capacity(upgraded), (tree,)),
        seconds=seconds,
        upgraded=upgraded,
    )


def _plan_large(
    topology: Topology,
    sites: Sequence[Site],
    levels: int | None,
    adjacent: bool,
    starts: Sequence[Tree],
    clock: Clock,
    scheme: str,
    no_tree: TopologyError,
) -> Plan:
    """Return a plan by local search alone, with the bound of the relaxation."""
    relaxation = Relaxation(topology, sites, levels, adjacent)
    low = relaxation.least_t(clock.part(0.2))
    if low == INFINITY:
        raise no_tree
    tree, low = _search(relaxation, sites, starts, low, clock)
    if tree is None:
        raise TopologyError(f"{scheme}: no tree was found within {clock.time_s:g} s: raise --seconds")
    proved = tree.rate_gbps * low >= 1 - SLACK
    return Plan(
        scheme=scheme,
        trees=(tree,),
        bound_gbps=tree.rate_gbps if proved else max(1 / low, tree.rate_gbps),
        shadow_prices=find_shadow_prices(topology, (tree,)),
        seconds=clock.seconds,
    )


def _search(
    relaxation: Relaxation, sites: Sequence[Site], starts: Sequence[Tree], low: float, clock: Clock
) -> tuple[Tree | None, float]:
    """Return the best tree of a local search, and a t below which no tree exists."""
    topology, levels, adjacent = relaxation.topology, relaxation.levels, relaxation.adjacent
    every = [*starts, *make_simple_trees(topology, sites, levels, adjacent, ROOTS_MAX)]
    every = [tree for tree in every if tree.rate_gbps]
    best = max(every, key=lambda tree: tree.rate_gbps, default=None)
    if best is None:
        return None, low
    low = relaxation.least_t_of_one_tree(low, 1 / best.rate_gbps, clock.part(0.2))
    scheme = scheme_name(levels)
    clock.report(scheme, best.rate_gbps, 1 / low)
    by_root: dict[str, list[Tree]] = {}
    for tree in sorted(every, key=lambda tree: -tree.rate_gbps)[:STARTS_MAX]:
        by_root.setdefault(tree.root, []).append(tree)
    streams = {root: Streams(topology, sites, levels=levels, adjacent=adjacent, root=root) for root in by_root}
    filling = clock.part(FILLED_SHARE)
    for number, (root, trees) in enumerate(by_root.items()):
        part = filling.part(1 / (len(by_root) - number))
        if filled := fastest_filled_tree(streams[root], low, 1 / best.rate_gbps, part):
            trees.append(filled)
            best = max(best, filled, key=lambda tree: tree.rate_gbps)
            clock.report(scheme, best.rate_gbps, 1 / low)
    seed = 0
    while clock.left and best.rate_gbps * low < 1 - SLACK and seed < SEEDS_MAX:
        seed += 1
        before = best.rate_gbps
        for number, (root, trees) in enumerate(by_root.items()):
            search = LocalSearch(streams[root], seed=seed)
            known = [*trees, *([best] if best.root == root else [])]
            found = search.improve(known, low, clock.part(1 / (len(by_root) - number)))
            if found.rate_gbps > best.rate_gbps:
                best = found
                clock.report(scheme, best.rate_gbps, 1 / low)
        if best.rate_gbps <= before and seed > 1:
            break
    return best, low


def _tree_by_prices(topology: Topology, pricing: PricingProblem, low: float, clock: Clock) -> Tree | None:
    """Return a good tree in little time: the cheapest one, at prices that rise where earlier trees put most load."""
    available = capacities(topology)
    prices, best = {resource: 1 / gbps for resource, gbps in available.items() if gbps}, None
    for _ in range(TRIALS):
        if (found := pricing.cheapest_tree(prices, clock.left)) is None:
            break
        tree = at_full_rate(topology, found[0])
        if tree.rate_gbps and (best is None or tree.rate_gbps > best.rate_gbps):
            best = tree
        if best and best.rate_gbps * low >= 1 - EQUAL:
            break
        for resource, load in loads(topology, tree).items():
            if resource in prices:
                prices[resource] *= 1 + 2 * load * tree.rate_gbps / available[resource]
    return best
