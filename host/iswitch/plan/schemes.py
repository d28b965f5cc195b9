"""All schemes for one topology."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from iswitch.plan.baselines.grid import grid
from iswitch.plan.baselines.systems import atp_like, no_aggregation, switchml_like, with_server
from iswitch.plan.solver.several_trees import several_trees
from iswitch.plan.solver.single_tree import one_tree
from iswitch.plan.solver.sites import Upgrade
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["KINDS", "Row", "baselines", "plan_of", "plans"]

KINDS = {
    "level": "one tree, one level",
    "tree": "one tree, summed again",
    "levels": "several trees, one level",
    "trees": "several trees, summed again",
}


class Row(NamedTuple):
    """A scheme's plan and the topology it is for, which has a ps of its own where a scheme needs one; or why it has
    none."""

    scheme: str
    topology: Topology
    plan: Plan | None
    why: str = ""


def plan_of(
    topology: Topology, kind: str, *, time_s: float = 60.0, adjacent: bool = False, upgrade: Upgrade | None = None
) -> Plan:
    """Of one of `KINDS`. TopologyError; ValueError for any other. Several trees begin with the best one and its
    upgrades."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    levels = 1 if kind.startswith("level") else None
    one = one_tree(topology, levels=levels, time_s=time_s, adjacent=adjacent, upgrade=upgrade)
    if kind in ("level", "tree"):
        return one
    several = several_trees(
        topology.with_capacity(one.upgraded), levels=levels, time_s=time_s, adjacent=adjacent, start=one.trees
    )
    return replace(several, upgraded=one.upgraded)


def baselines(topology: Topology, *, time_s: float = 60.0) -> Iterator[Row]:
    """What planning is compared with."""
    schemes: dict[str, Callable[[Topology], Plan]] = {
        "no aggregation": lambda given: no_aggregation(given, time_s=time_s),
        "ATP-like": atp_like,
        "SwitchML-like": switchml_like,
        "GRID, repaired": grid,
    }
    for name, scheme in schemes.items():
        try:
            server = with_server(topology)
            yield Row(name, server, scheme(server))
        except TopologyError as error:
            yield Row(name, topology, None, str(error))


def plans(topology: Topology, *, time_s: float = 60.0, adjacent: bool = False) -> Iterator[Row]:
    """Of all kinds."""
    for kind, name in KINDS.items():
        try:
            yield Row(name, topology, plan_of(topology, kind, time_s=time_s, adjacent=adjacent))
        except TopologyError as error:
            yield Row(name, topology, None, str(error))
