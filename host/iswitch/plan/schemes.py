"""All schemes: the kinds of plans, and the baselines that they are compared with."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from iswitch.plan.baselines.grid import plan_like_grid
from iswitch.plan.baselines.systems import (
    plan_like_atp,
    plan_like_switchml,
    plan_without_aggregation,
    with_parameter_server,
)
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.sites import Upgrade
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["KINDS", "SchemeResult", "make_plan", "plan_all_kinds", "plan_baselines"]

KINDS = {
    "level": "one tree, one level",
    "tree": "one tree, several levels",
    "levels": "several trees, one level",
    "trees": "several trees, several levels",
}
"""Kinds of plans, and the names of their schemes."""


class SchemeResult(NamedTuple):
    """The plan of a scheme, or the reason why there is none.

    `topology` is the one that was planned with: it has a ps if the scheme needs one.
    """

    scheme: str
    topology: Topology
    plan: Plan | None
    reason: str = ""


def make_plan(
    topology: Topology, kind: str, *, time_s: float = 60.0, adjacent: bool = False, upgrade: Upgrade | None = None
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

    Raises
    ------
    TopologyError
        If there is no plan, or none was found in time.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    levels = 1 if kind.startswith("level") else None
    single = plan_single_tree(topology, levels=levels, time_s=time_s, adjacent=adjacent, upgrade=upgrade)
    if kind in ("level", "tree"):
        return single
    several = plan_several_trees(
        topology.with_capacity(single.upgraded), levels=levels, time_s=time_s, adjacent=adjacent, start=single.trees
    )
    return replace(several, upgraded=single.upgraded)


def plan_baselines(topology: Topology, *, time_s: float = 60.0) -> Iterator[SchemeResult]:
    """Yield the result of each baseline."""
    schemes: dict[str, Callable[[Topology], Plan]] = {
        "no aggregation": lambda given: plan_without_aggregation(given, time_s=time_s),
        "ATP-like": plan_like_atp,
        "SwitchML-like": plan_like_switchml,
        "GRID, repaired": plan_like_grid,
    }
    for name, scheme in schemes.items():
        try:
            with_server = with_parameter_server(topology)
            yield SchemeResult(name, with_server, scheme(with_server))
        except TopologyError as error:
            yield SchemeResult(name, topology, None, str(error))


def plan_all_kinds(topology: Topology, *, time_s: float = 60.0, adjacent: bool = False) -> Iterator[SchemeResult]:
    """Yield the result of each kind of plan."""
    for kind, name in KINDS.items():
        try:
            yield SchemeResult(name, topology, make_plan(topology, kind, time_s=time_s, adjacent=adjacent))
        except TopologyError as error:
            yield SchemeResult(name, topology, None, str(error))
