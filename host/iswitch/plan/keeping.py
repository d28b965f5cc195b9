"""A plan that keeps most roles of a running plan: how many switches must change, and the rate that this costs.

For one tree in a small fabric the options are exact: the fastest tree that changes no switch, at most one, at most two,
and so on. For several trees, and in large fabrics, there are two options: the running trees on the cables that are
left, and the best plan.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from iswitch.plan.schemes import SEVERAL
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.limited_packing import keeps_limits, pack_within_limits
from iswitch.plan.solver.packing import Packing
from iswitch.plan.solver.roles import changed_switches, in_running_order, repair
from iswitch.plan.solver.shadow_prices import find_shadow_prices
from iswitch.plan.solver.single_tree import SITES_MAX, plan_single_tree
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.tree import Plan, Tree, capacities, fit_rates, loads
from iswitch.plan.solver.tree_program import Keep
from iswitch.plan.topology.files import read_text
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["KeptPlan", "Option", "keep_running", "read_running_plan", "running_trees"]

SAME = 1e-6
"""Relative difference of rates that does not count."""
SHARE = 0.5
"""The part of the time that is left for one option."""


class Option(NamedTuple):
    """A plan, and the switches that it changes."""

    changed: tuple[str, ...]
    plan: Plan


class KeptPlan(NamedTuple):
    """The option that is chosen, all options with fewer changes first, and the best plan whatever it changes."""

    chosen: Option
    options: list[Option]
    best: Option

    @property
    def price(self) -> float:
        """By which part the chosen plan is slower than the best one."""
        return 1 - self.chosen.plan.rate_gbps / self.best.plan.rate_gbps


def read_running_plan(path: Path, topology: Topology) -> tuple[Tree, ...]:
    """Return the trees of a plan that `iswitch plan --json` has printed.

    Raises
    ------
    ValueError
        If the file is another one, or is of a fabric that has no worker of this topology.
    """
    try:
        trees = tuple(
            Tree(
                rate_gbps=float(tree["rate_gbps"]),
                root=str(tree["root"]),
                homes={str(worker): str(home) for worker, home in tree["homes"].items()},
                parents={str(switch): str(parent) for switch, parent in tree["parents"].items()},
                up={str(child): tuple(map(str, nodes)) for child, nodes in tree["up"].items()},
                down={str(worker): tuple(map(str, nodes)) for worker, nodes in tree["down"].items()},
            )
            for tree in json.loads(read_text(path))["trees"]
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, TopologyError):
            raise
        raise ValueError(f"{path} is not a plan: make one with `iswitch plan FILE --json > {path.name}`") from error
    if not trees or not any(set(tree.homes) & set(topology.workers) for tree in trees):
        raise ValueError(f"{path} is a plan of another fabric: it has no worker of this one")
    return trees


def running_trees(topology: Topology, running: Sequence[Tree], adjacent: bool) -> list[Tree]:
    """Return the running trees that still have a path for each stream, from which a search can start."""
    return [tree for each in running if (tree := repair(topology, each, adjacent=adjacent))]


def keep_running(
    topology: Topology,
    kind: str,
    running: Sequence[Tree],
    best: Plan,
    *,
    within: float,
    time_s: float,
    adjacent: bool = False,
) -> KeptPlan:
    """Return the plan with the fewest changes among those that are nearly as fast as the best one.

    Parameters
    ----------
    topology : Topology
        The topology as it is now.
    kind : {"level", "tree", "levels", "trees"}
        The kind of plan.
    running : sequence of Tree
        The trees that run.
    best : Plan
        The best plan of this kind that a search has found; the running trees may be faster, if it was cut short.
    within : float
        By which part the plan may be slower than the best one.
    time_s : float
        Time limit in seconds.
    adjacent : bool
        Let each switch sum only its neighbours.
    """
    clock = Clock(time_s)
    if kind not in SEVERAL:
        running = running[:1]
    option = lambda plan: Option(tuple(changed_switches(topology, running, plan.trees)), plan)
    fastest = option(replace(best, trees=in_running_order(running, best.trees)))
    options: list[Option] = []
    levels = 1 if kind.startswith("level") else None
    repaired = running_trees(topology, running, adjacent)
    kept = [tree for tree in repaired if levels is None or set(tree.parents.values()) <= {tree.root}]
    if kept:
        trees = in_running_order(running, _repack(topology, kept, clock))
        options.append(option(_as_plan(topology, best, trees)))
        fastest = max(fastest, *options, key=lambda each: each.plan.rate_gbps)
    enough = fastest.plan.rate_gbps * (1 - within) * (1 - SAME)
    if kind not in SEVERAL and len(find_sites(topology)) <= SITES_MAX:
        for most in range(len(fastest.changed)):
            if not clock.left or (options and max(each.plan.rate_gbps for each in options) >= enough):
                break
            known = [each.plan.trees[0] for each in options if len(each.changed) <= most]
            try:
                found = plan_single_tree(
                    topology,
                    levels=levels,
                    time_s=clock.part(SHARE).time_s,
                    adjacent=adjacent,
                    start=known,
                    keep=Keep(running[0], most),
                )
            except TopologyError:
                continue  # no tree changes so few switches
            options.append(option(_as_plan(topology, best, found.trees)))
    options = _without_worse([*options, fastest])
    chosen = next(each for each in options if each.plan.rate_gbps >= enough)
    return KeptPlan(chosen, options, fastest)


def _without_worse(options: Sequence[Option]) -> list[Option]:
    """Return the options with fewer changes first, without those that are not faster than one before them."""
    found: list[Option] = []
    for each in sorted(options, key=lambda each: (len(each.changed), -each.plan.rate_gbps)):
        if not found or each.plan.rate_gbps > found[-1].plan.rate_gbps * (1 + SAME):
            found.append(each)
    return found


def _repack(topology: Topology, trees: Sequence[Tree], clock: Clock) -> tuple[Tree, ...]:
    """Return trees at the rates at which they are the fastest together."""
    rates = Packing(capacities(topology), [loads(topology, tree) for tree in trees]).solve().rates
    used = [replace(tree, rate_gbps=rate) for tree, rate in zip(trees, rates) if rate > SAME * sum(rates)]
    packed = fit_rates(topology, used)
    return packed if keeps_limits(topology, packed) else pack_within_limits(topology, trees, clock)


def _as_plan(topology: Topology, best: Plan, trees: tuple[Tree, ...]) -> Plan:
    prices = find_shadow_prices(topology, trees)
    return replace(best, trees=trees, shadow_prices=prices, bound_gbps=max(best.bound_gbps, _rate(trees)))


def _rate(trees: Sequence[Tree]) -> float:
    return sum(tree.rate_gbps for tree in trees)
