"""All schemes: the kinds of plans, and the baselines that they are compared with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from iswitch.plan.baselines.grid import plan_like_grid
from iswitch.plan.baselines.known_trees import as_known_trees, trees_of_baselines
from iswitch.plan.baselines.systems import (
    plan_like_atp,
    plan_like_switchml,
    plan_without_aggregation,
    with_parameter_server,
)
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.sites import Upgrade
from iswitch.plan.solver.tree import Plan, Tree, scheme_name
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = [
    "BASELINES_SHARE",
    "KINDS",
    "PROVED",
    "SEVERAL",
    "SchemeResult",
    "make_plan",
    "plan_all_kinds",
    "plan_baselines",
]

KINDS = {
    "level": scheme_name(1),
    "tree": scheme_name(None),
    "levels": scheme_name(1, several=True),
    "trees": scheme_name(None, several=True),
}
"""Kinds of plans, and the names of their schemes."""
SEVERAL = ("levels", "trees")
"""Kinds of several trees."""
CONTAINS = {"level": (), "tree": ("level",), "levels": ("level",), "trees": ("level", "tree", "levels")}
"""By kind, the kinds whose plans are of this kind, too."""
ALONE_MAX, ALONE_SHARE = 16, 0.7
"""Most switches that aggregate for which each kind is planned alone first, since the integer program proves it soon,
and the part of the time for that, if no trees are known from before."""
BASELINES_SHARE, QUICK_SHARE, LEVEL_SHARE, SINGLE_SHARE = 0.1, 0.3, 0.1, 0.6
"""In larger fabrics, the parts of the time that is left: for the baselines, for trees that are made at once, for a tree
of one level to start from, and for a single tree before several are packed."""
PROVED = 1e-6
"""Gap below which a plan counts as proved optimal."""
PREFERRED = 2.0
"""The weight of the time for the kind that is configured, against 1 of each other."""


class SchemeResult(NamedTuple):
    """The plan of a scheme, or the reason why there is none.

    `topology` is the one that was planned with: it has a ps if the scheme needs one.
    """

    scheme: str
    topology: Topology
    plan: Plan | None
    reason: str = ""

    def known_trees(self, topology: Topology) -> list[Tree]:
        """Return the plan's trees as trees of the topology that is planned, from which other kinds can start."""
        return as_known_trees(topology, self.topology, self.plan.trees) if self.plan else []


def make_plan(
    topology: Topology,
    kind: str,
    *,
    time_s: float = 60.0,
    adjacent: bool = False,
    upgrade: Upgrade | None = None,
    start: Sequence[Tree] = (),
) -> Plan:
    """Plan a topology.

    Parameters
    ----------
    topology : Topology
        The topology.
    kind : {"level", "tree", "levels", "trees"}
        One tree or several; with one level of switches before the root, or any number.
    time_s : float
        Time limit in seconds. A plan that is not proved optimal by then has an upper bound.
    adjacent : bool
        Let each switch sum only its neighbours, as the emulated fabric requires.
    upgrade : Upgrade, optional
        Switches that may be upgraded. Several trees use the upgrades of the best single tree.
    start : sequence of Tree
        Trees that are known, of any kind. The plan is at least as fast as each of them that is of its kind.

    Raises
    ------
    TopologyError
        If there is no plan, or none was found in time.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    clock, levels = Clock(time_s), _levels(kind)
    known = [tree for tree in start if _is_of_kind(topology, tree, levels, adjacent)]
    alone: Plan | None = None
    error: TopologyError | None = None
    if len(topology.aggregators) <= ALONE_MAX or upgrade:
        last = bool(start or upgrade)
        try:
            part = clock if last else clock.part(ALONE_SHARE)
            alone = _plan_alone(topology, kind, part, adjacent=adjacent, upgrade=upgrade, start=known)
            if last or alone.gap < PROVED:
                return alone
            known += alone.trees
        except TopologyError as raised:
            if last:
                raise
            error = raised
    if not start:
        known += [
            tree
            for tree in trees_of_baselines(topology, clock.part(BASELINES_SHARE))
            if _is_of_kind(topology, tree, levels, adjacent)
        ]
    if error and not known:
        raise error
    plan = _plan_from(topology, kind, clock, adjacent=adjacent, known=known, contained=bool(start))
    bound = min(plan.bound_gbps, alone.bound_gbps if alone else INFINITY)
    return replace(plan, bound_gbps=max(bound, plan.rate_gbps), seconds=clock.seconds)


def _plan_alone(
    topology: Topology, kind: str, clock: Clock, *, adjacent: bool, upgrade: Upgrade | None, start: Sequence[Tree]
) -> Plan:
    """Plan a small topology, whose plan the integer program proves soon."""
    levels, time_s = _levels(kind), clock.time_s
    single = plan_single_tree(topology, levels=levels, time_s=time_s, adjacent=adjacent, upgrade=upgrade, start=start)
    if kind not in SEVERAL:
        return single
    plan = plan_several_trees(
        topology.with_capacity(single.upgraded) if single.upgraded else topology,
        levels=levels,
        time_s=max(clock.left, time_s / 10),
        adjacent=adjacent,
        start=[*start, *single.trees],
        bound_of_one=single.bound_gbps,
    )
    return replace(plan, upgraded=single.upgraded, seconds=clock.seconds)


def _plan_from(
    topology: Topology, kind: str, clock: Clock, *, adjacent: bool, known: list[Tree], contained: bool
) -> Plan:
    """Plan from known trees of the kind; unless plans that the kind contains are among them, make one of one level."""
    levels, several = _levels(kind), kind in SEVERAL
    # Trees that are made at once may prove to be enough; those of one level are among those of several.
    for most in (1, None) if kind == "trees" and not contained else (levels,) if several else ():
        part = clock.part(QUICK_SHARE).time_s
        quick = plan_several_trees(topology, levels=most, time_s=part, adjacent=adjacent, start=known)
        if quick.gap < PROVED and most == levels:
            return quick
        known = [*known, *quick.trees]
    if levels is None and not contained:
        part = clock.part(LEVEL_SHARE).time_s
        known = [*known, *plan_single_tree(topology, levels=1, time_s=part, adjacent=adjacent, start=known).trees]
    part = clock.part(SINGLE_SHARE if several else 1.0).time_s
    single = plan_single_tree(topology, levels=levels, time_s=part, adjacent=adjacent, start=known)
    if not several:
        return single
    return plan_several_trees(
        topology,
        levels=levels,
        time_s=max(clock.left, part / 10),
        adjacent=adjacent,
        start=[*known, *single.trees],
        bound_of_one=single.bound_gbps,
    )


def _levels(kind: str) -> int | None:
    return 1 if kind.startswith("level") else None


def _is_of_kind(topology: Topology, tree: Tree, levels: int | None, adjacent: bool) -> bool:
    """Return True if a tree is a plan of a kind."""
    if topology.ps and tree.root != topology.ps:
        return False
    if levels == 1 and any(parent != tree.root for parent in tree.parents.values()):
        return False
    return not adjacent or all(len(path) <= 2 for path in tree.up.values())


def plan_baselines(topology: Topology, *, time_s: float = 60.0) -> Iterator[SchemeResult]:
    """Yield the result of each baseline."""
    schemes: dict[str, Callable[[Topology], Plan]] = {
        "no aggregation": lambda given: plan_without_aggregation(given, time_s=clock.part(1 / 4).time_s),
        "ATP-like": lambda given: plan_like_atp(given, time_s=clock.part(1 / 3).time_s),
        "SwitchML-like": lambda given: plan_like_switchml(given, time_s=clock.part(1 / 2).time_s),
        "GRID, repaired": lambda given: plan_like_grid(given, time_s=clock.part(1).time_s),
    }
    clock = Clock(time_s)
    for name, scheme in schemes.items():
        try:
            with_server = with_parameter_server(topology)
            yield SchemeResult(name, with_server, scheme(with_server))
        except TopologyError as error:
            yield SchemeResult(name, topology, None, str(error))


def plan_all_kinds(
    topology: Topology,
    *,
    time_s: float = 60.0,
    adjacent: bool = False,
    start: Sequence[Tree] = (),
    preferred: str = "tree",
) -> Iterator[SchemeResult]:
    """Yield the result of each kind of plan. A kind starts from the trees of those before it, and from `start`.

    The time is for all kinds together. The preferred one has a larger part, and what others leave is for those after
    them.
    """
    clock, known, plans = Clock(time_s), list(start), dict[str, Plan]()
    weights = {kind: PREFERRED if kind == preferred else 1.0 for kind in KINDS}
    for kind, name in KINDS.items():
        part = clock.part(weights[kind] / sum(list(weights.values())[list(KINDS).index(kind) :])).time_s
        try:
            plan = make_plan(topology, kind, time_s=part, adjacent=adjacent, start=known)
            known += plan.trees
        except TopologyError as error:
            yield SchemeResult(name, topology, None, str(error))
            continue
        if topology.job.is_limited:
            plan = _at_least(plan, [plans[each] for each in CONTAINS[kind] if each in plans])
        plans[kind] = plan
        yield SchemeResult(name, topology, plan)


def _at_least(plan: Plan, contained: Sequence[Plan]) -> Plan:
    """Return the plan, with the trees of the fastest plan that its kind contains if that is faster.

    A search starts from trees, and with a limit it might not find again which of them keep it together.
    """
    best = max(contained, key=lambda each: each.rate_gbps, default=plan)
    if best.rate_gbps <= plan.rate_gbps * (1 + PROVED):
        return plan
    return replace(
        plan, trees=best.trees, shadow_prices=best.shadow_prices, bound_gbps=max(plan.bound_gbps, best.rate_gbps)
    )
