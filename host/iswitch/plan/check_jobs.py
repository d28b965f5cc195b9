"""An independent check of a plan of several jobs: what they load together, and whether their rates are fair.

The check takes the plan as the JSON that users get, and the fabric of each job as node-link JSON. It shares no code
with the planner. Fairness is not recomputed but verified: rates are weighted max-min fair if and only if each job uses
a full resource on which no other job has a larger rate/weight (Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from iswitch.plan.check import check_plan

__all__ = ["check_jobs"]

SLACK = 1e-6
"""Relative difference that rounding may cause."""


def check_jobs(
    networks: Mapping[str, Mapping[str, Any]], plan: Mapping[str, Any], *, levels: int | None = None
) -> tuple[dict[str, float], list[str]]:
    """Return the loads of a plan of several jobs, and what is wrong with it.

    Parameters
    ----------
    networks : mapping of str to mapping
        For each job, by name, the fabric with its workers, ps and settings, as node-link JSON with `edges`.
    plan : mapping
        The plan, as from `jobs_plan_to_dict`.
    levels : int, optional
        Most switches that may sum a gradient before the root does.

    Returns
    -------
    loads : dict of str to float
        Of all jobs together, sorted by name: ``a>b`` in Gb/s for a direction of a cable, ``sum a`` in Gb/s for the
        streams that a switch sums or a ps takes, ``slots a`` for the slots that a switch has in use.
    violations : list of str
        Sentences about the plan; none if it holds.
    """
    check = _Check()
    names = [entry["name"] for entry in plan["jobs"]]
    if sorted(names) != sorted(networks):
        return {}, [f"jobs of the plan must be {', '.join(sorted(networks))}, not {', '.join(sorted(names))}"]
    for entry in plan["jobs"]:
        check.add_job(entry, networks[entry["name"]], levels)
    check.compare_with_capacities()
    check.compare_rates()
    least = min(entry["rate_gbps"] / entry["weight"] for entry in plan["jobs"])
    if least > plan["bound"] * (1 + SLACK):
        check.violations.append(f"every job has a rate/weight of {least:.6g}, above the bound {plan['bound']:.6g}")
    return dict(sorted(check.loads.items())), check.violations


class _Check:
    """Loads and violations of the jobs so far."""

    def __init__(self) -> None:
        self.loads: dict[str, float] = defaultdict(float)
        self.users: dict[str, list[str]] = defaultdict(list)
        self.capacities: dict[str, float] = {}
        self.normalised: dict[str, float] = {}
        self.own_limit: set[str] = set()
        self.workers: dict[str, str] = {}
        self.violations: list[str] = []

    def add_job(self, entry: Mapping[str, Any], network: Mapping[str, Any], levels: int | None) -> None:
        """Check the plan of a job alone, and add its loads."""
        name, settings = entry["name"], network["graph"]
        loads, violations = check_plan(network, entry, levels=levels)
        self.violations += [f"job {name}: {violation}" for violation in violations]
        if len(entry["trees"]) != 1:
            self.violations.append(f"job {name} must have one tree, not {len(entry['trees'])}")
        if not entry["weight"] > 0:
            self.violations.append(f"weight of job {name} must be above 0, not {entry['weight']}")
        self.normalised[name] = entry["rate_gbps"] / entry["weight"]
        for node in network["nodes"]:
            if node.get("role") == "worker" and self.workers.setdefault(node["id"], name) != name:
                self.violations.append(f"{node['id']} is a worker of job {self.workers[node['id']]} and of job {name}")
        in_flight = settings["round_trip_us"] / (settings["payload_bytes"] * 8e-3)
        self._add_capacities(network)
        for load, gbps in loads.items():
            most = settings.get("max_slots")
            if load.startswith("slots") and most and gbps * in_flight >= most * (1 - SLACK):
                self.own_limit.add(name)
            self.loads[load] += gbps * in_flight if load.startswith("slots") else gbps
            self.users[load].append(name)

    def _add_capacities(self, network: Mapping[str, Any]) -> None:
        """Keep the capacities of a job's fabric, which must be those of the other jobs."""
        found: dict[str, float] = {}
        for edge in network["edges"]:
            for a, b in ((edge["source"], edge["target"]), (edge["target"], edge["source"])):
                rate = edge["sender_gbps"] if edge.get("sender") == a else edge["bw_gbps"]
                found[f"{a}>{b}"] = rate - edge.get("reserved_gbps", 0)
        for node in network["nodes"]:
            for key, kind in (("capacity_gbps", "sum"), ("ingress_gbps", "sum"), ("slots", "slots")):
                if key in node:
                    found[f"{kind} {node['id']}"] = float(node[key])
        if self.capacities and found != self.capacities:
            self.violations.append("the jobs have different fabrics")
        self.capacities |= found

    def compare_with_capacities(self) -> None:
        """Report every load of all jobs together that is above its capacity."""
        for name, load in self.loads.items():
            capacity = self.capacities.get(name, float("inf"))
            if load > capacity * (1 + SLACK):
                unit = "slots" if name.startswith("slots") else "Gb/s"
                self.violations.append(f"together the jobs take {load:.6g} of {capacity:.6g} {unit}: {name}")

    def compare_rates(self) -> None:
        """Report every job that could be faster, unless it slows down only jobs of a larger rate/weight."""
        for job, rate in self.normalised.items():
            limits = [
                name
                for name, users in self.users.items()
                if job in users
                and self.loads[name] >= self.capacities.get(name, float("inf")) * (1 - SLACK)
                and rate >= max(self.normalised[user] for user in users) * (1 - SLACK)
            ]
            if not limits and job not in self.own_limit:
                self.violations.append(f"the rates are not fair: job {job} could have more than {rate:.6g} x weight")
