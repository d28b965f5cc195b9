"""A plan in words: what is summed where, the bottlenecks, and their shadow prices."""

from collections.abc import Iterable

from iswitch.plan.solver.shadow_prices import binding
from iswitch.plan.solver.tree import Plan, Resource, Tree, capacities, used
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["binds", "gbps", "iteration", "listed", "prices", "sums_of"]


def gbps(value: float) -> str:
    """Four decimals at most, none that says nothing."""
    return f"{value:.4f}".rstrip("0").rstrip(".") if value < 1e6 else "no bound"


def listed(names: Iterable[str]) -> str:
    """`W1 to W4, W7`: names with the same beginning and numbers that follow each other, three or more, as a range."""
    parts: list[list[str]] = []
    for name in sorted(names, key=natural_key):
        if parts and _next(parts[-1][-1]) == name:
            parts[-1].append(name)
        else:
            parts.append([name])
    return ", ".join(
        part[0] if len(part) == 1 else f"{part[0]}, {part[1]}" if len(part) == 2 else f"{part[0]} to {part[-1]}"
        for part in parts
    )


def _next(name: str) -> str:
    stem = name.rstrip("0123456789")
    return f"{stem}{int(name[len(stem) :]) + 1}" if name != stem else ""


def _joined(topology: Topology, resources: Iterable[Resource]) -> str:
    """In words: workers' cables together, other cables by name if they are full both ways, switches of one kind
    together."""
    given, workers = set(resources), topology.workers
    own = {end for resource in given for end in (resource.at, resource.to) if end in workers}
    parts = []
    if own:
        whose = "all workers" if len(own) == len(workers) > 1 else listed(own)
        parts.append(f"the {'cable' if len(own) == 1 else 'cables'} of {whose}")
    links = []
    for resource in given:
        turned = Resource("link", resource.to, resource.at)
        if resource.kind != "link" or {resource.at, resource.to} & own:
            continue
        if turned in given:
            links.append(topology.cable_label(resource.at, resource.to))
        else:
            links.append(resource.told(topology))
    parts += sorted(set(links), key=natural_key)
    for kind, name in (("capacity", "sums"), ("slots", "slots"), ("ingress", "input")):
        if places := {resource.at for resource in given if resource.kind == kind}:
            parts.append(f"{name} at {listed(places)}")
    return ", ".join(parts)


def binds(topology: Topology, plan: Plan) -> str:
    """Return the bottlenecks of a plan in words."""
    return _joined(topology, binding(topology, plan.trees))


def prices(topology: Topology, plan: Plan) -> list[tuple[str, float]]:
    """(resource, Gb/s of rate for one more Gb/s of it), the best first; those worth the same together."""
    found: dict[float, list[Resource]] = {}
    for resource, price in plan.prices.items():
        found.setdefault(round(price, 6), []).append(resource)
    return [
        (_joined(topology, resources), price) for price, resources in sorted(found.items(), key=lambda item: -item[0])
    ]


def sums_of(topology: Topology, tree: Tree, total: tuple[Tree, ...]) -> list[tuple[str, str, str, str, str]]:
    """For each place where sums are formed: (its name, what it sums, where the sum goes and by which way, the rate of
    what it takes, what it has)."""
    load, room = used(topology, total), capacities(topology)
    rows = []
    for node in sorted(tree.summing, key=lambda node: (node == tree.root, natural_key(node))):
        what = ", ".join(
            ([listed(tree.members(node))] if tree.members(node) else [])
            + [f"sum of {child}" for child in tree.children(node)]
        )
        resource = Resource("ingress" if node == topology.ps else "capacity", node)
        onward = "-".join(tree.up[node][1:]) if node in tree.parents else "the root"
        rows.append(
            (node, what, onward, gbps(load.get(resource, 0.0)), gbps(room[resource]) if resource in room else "")
        )
    return rows


def iteration(topology: Topology, plan: Plan) -> float | None:
    """Seconds for a gradient of the job, if its size is known: its bytes at the rate, and a round trip."""
    job = topology.job
    return job.gradient_bytes * 8e-9 / plan.rate_gbps + job.round_trip_us * 1e-6 if job.gradient_bytes else None
