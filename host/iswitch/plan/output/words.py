"""A plan in words: what is summed where, the bottlenecks, and their shadow prices."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from iswitch.plan.solver.shadow_prices import bottlenecks
from iswitch.plan.solver.tree import Plan, Resource, Tree, capacities, total_loads
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = [
    "SumRow",
    "describe_bottlenecks",
    "describe_shadow_prices",
    "describe_sums",
    "format_gbps",
    "iteration_seconds",
    "join_names",
    "join_resources",
    "short",
]


def format_gbps(value: float) -> str:
    """Return a rate with at most four decimals and without trailing zeros."""
    return f"{value:.4f}".rstrip("0").rstrip(".") if value < 1e6 else "no bound"


def short(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"


def join_names(names: Iterable[str]) -> str:
    """Return names in order, three or more with consecutive numbers as a range: ``W1 to W4, W7``."""
    parts: list[list[str]] = []
    for name in sorted(names, key=natural_key):
        if parts and _next_name(parts[-1][-1]) == name:
            parts[-1].append(name)
        else:
            parts.append([name])
    return ", ".join(
        part[0] if len(part) == 1 else f"{part[0]}, {part[1]}" if len(part) == 2 else f"{part[0]} to {part[-1]}"
        for part in parts
    )


def _next_name(name: str) -> str:
    stem = name.rstrip("0123456789")
    return f"{stem}{int(name[len(stem) :]) + 1}" if name != stem else ""


def join_resources(topology: Topology, resources: Iterable[Resource]) -> str:
    """Return resources in words.

    The cables of workers are named together, and so are switches that are full for the same reason. A cable that is
    full in both directions has one name.
    """
    given, workers = set(resources), topology.workers
    links_given = [resource for resource in given if resource.kind == "link"]
    own = {end for resource in links_given for end in (resource.at, resource.to) if end in workers}
    parts = []
    if own:
        owners = "all workers" if len(own) == len(workers) > 1 else join_names(own)
        parts.append(f"the {'cable' if len(own) == 1 else 'cables'} of {owners}")
    links = []
    for resource in links_given:
        reverse = Resource("link", resource.to, resource.at)
        if {resource.at, resource.to} & own:
            continue
        if reverse in given:
            links.append(topology.cable_label(resource.at, resource.to))
        else:
            links.append(resource.describe(topology))
    parts += sorted(set(links), key=natural_key)
    for kind, name in (("capacity", "sums"), ("slots", "slots"), ("ingress", "input"), ("max_slots", "max_slots")):
        if places := {resource.at for resource in given if resource.kind == kind}:
            parts.append(f"{name} at {join_names(places)}")
    return ", ".join(parts)


def describe_bottlenecks(topology: Topology, plan: Plan) -> str:
    """Return the bottlenecks of a plan in words."""
    return join_resources(topology, bottlenecks(topology, plan.trees))


def describe_shadow_prices(topology: Topology, plan: Plan) -> list[tuple[str, float]]:
    """Return bottlenecks in words, and their shadow price in Gb/s of rate for 1 Gb/s more, the highest first.

    Bottlenecks with the same price are named together.
    """
    found: dict[float, list[Resource]] = {}
    for resource, price in plan.shadow_prices.items():
        found.setdefault(round(price, 6), []).append(resource)
    return [
        (join_resources(topology, resources), price)
        for price, resources in sorted(found.items(), key=lambda item: -item[0])
    ]


class SumRow(NamedTuple):
    """A node that sums, as text: what it sums, the path of its sum, its load and its capacity in Gb/s."""

    node: str
    sums: str
    sent_via: str
    load: str
    capacity: str


def describe_sums(
    topology: Topology, tree: Tree, trees: tuple[Tree, ...], load: Mapping[Resource, float] | None = None
) -> list[SumRow]:
    """Return a row for each node that sums in a tree, the root last. Loads are of all `trees` of the plan, or given."""
    load, available = total_loads(topology, trees) if load is None else load, capacities(topology)
    rows = []
    for node in sorted(tree.summing_nodes, key=lambda node: (node == tree.root, natural_key(node))):
        members = [join_names(tree.members(node))] if tree.members(node) else []
        sums = ", ".join(members + [f"sum of {child}" for child in tree.children(node)])
        resource = Resource("ingress" if node == topology.ps else "capacity", node)
        sent_via = "-".join(tree.up[node][1:]) if node in tree.parents else "the root"
        capacity = format_gbps(available[resource]) if resource in available else ""
        rows.append(SumRow(node, sums, sent_via, format_gbps(load.get(resource, 0.0)), capacity))
    return rows


def iteration_seconds(topology: Topology, plan: Plan) -> float | None:
    """Return the seconds for a gradient of the job: its bytes at the rate, and a round trip. None: of unknown size."""
    job = topology.job
    return job.gradient_bytes * 8e-9 / plan.rate_gbps + job.round_trip_us * 1e-6 if job.gradient_bytes else None
