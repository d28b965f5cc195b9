"""A plan, and the rows of the table of schemes, as the JSON object of `iswitch plan --json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from iswitch.plan.keeping import KeptPlan
from iswitch.plan.output.words import describe_shadow_prices
from iswitch.plan.schemes import KINDS, SchemeResult
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology

__all__ = ["plan_to_dict", "scheme_to_dict"]


def plan_to_dict(
    topology: Topology,
    plan: Plan,
    *,
    loads: Mapping[str, float],
    configuration: Mapping[str, Any],
    results: Sequence[SchemeResult],
    kept: KeptPlan | None = None,
) -> dict[str, Any]:
    """Return everything about a plan, for `--json`.

    Parameters
    ----------
    topology : Topology
        The topology that was planned.
    plan : Plan
        The plan.
    loads : mapping of str to float
        Gb/s of everything that carries something, as from `check_plan`.
    configuration : mapping
        The configuration of the plan.
    results : sequence of SchemeResult
        The rows of the table; none if the plan was not compared with other schemes.
    kept : KeptPlan, optional
        What it costs to keep a running plan, if that was asked for.
    """
    return plan.to_dict() | {
        "loads_gbps": dict(loads),
        "gap": _finite(plan.gap),
        "bottlenecks": _bottlenecks(topology, plan),
        "seconds": plan.seconds,
        "upgraded": dict(plan.upgraded),
        "schemes": [scheme_to_dict(result) for result in results],
        "keep": _kept_to_dict(kept) if kept else None,
        "configuration": dict(configuration),
    }


def scheme_to_dict(result: SchemeResult) -> dict[str, Any]:
    """Return a row of the table. `kind` is that of `--kind`, or null for a baseline; without a plan there is a reason
    instead of figures. `ps` is the parameter server that the scheme uses."""
    names = {name: kind for kind, name in KINDS.items()}
    row: dict[str, Any] = {"scheme": result.scheme, "kind": names.get(result.scheme), "ps": result.topology.ps}
    if (plan := result.plan) is None:
        return row | {"rate_gbps": None, "reason": result.reason}
    return row | {
        "rate_gbps": plan.rate_gbps,
        "bound_gbps": _finite(plan.bound_gbps),
        "gap": _finite(plan.gap),
        "trees": len(plan.trees),
        "bottlenecks": _bottlenecks(result.topology, plan),
        "seconds": plan.seconds,
        "note": plan.note,
    }


def _kept_to_dict(kept: KeptPlan) -> dict[str, Any]:
    """Return the switches that change and the price. `options` has the rate with fewer and with more changes."""
    to_dict = lambda option: {"changed": list(option.changed), "rate_gbps": option.plan.rate_gbps}
    return to_dict(kept.chosen) | {
        "price": kept.price,
        "best": to_dict(kept.best),
        "options": [to_dict(option) for option in kept.options],
    }


def _finite(value: float) -> float | None:
    """Return a number, or None if it is infinite, which JSON does not have."""
    return value if value < float("inf") else None


def _bottlenecks(topology: Topology, plan: Plan) -> list[dict[str, Any]]:
    return [{"resource": name, "price": price} for name, price in describe_shadow_prices(topology, plan)]
