"""The configuration that a plan of several jobs gives to each switch and worker."""

from collections.abc import Sequence
from typing import Any

from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.shared_fabric import FabricJob, SharedFabric

__all__ = ["make_jobs_configuration"]


def make_jobs_configuration(
    jobs: Sequence[FabricJob], plans: Sequence[Plan], *, wired: SharedFabric | None = None
) -> dict[str, Any]:
    """Return the configuration of all switches, and of the workers of all jobs, for JSON.

    Job k is the k-th one; `jobs` has its name, weight, rate and number of workers. Switches and workers are described
    as by `make_configuration`. Ranks count the workers of a job.

    Parameters
    ----------
    jobs : sequence of FabricJob
        The jobs that were planned.
    plans : sequence of Plan
        The plan of each job, of one tree.
    wired : SharedFabric, optional
        The fabric before something was removed. What is left keeps its port, number and address.
    """
    before = {job.name: job.topology for job in wired.jobs} if wired else {}
    made: dict[str, Any] = {}
    for number, (job, plan) in enumerate(zip(jobs, plans)):
        own = make_configuration(job.topology, plan, wired=before.get(job.name))
        if not made:
            made = {"epoch": own["epoch"], "scheme": plan.scheme, "jobs": {}}
            made["switches"] = {switch: entry | {"jobs": {}} for switch, entry in own["switches"].items()}
            made |= {"workers": {}, "links": []}
        made["jobs"][str(number)] = {
            "name": job.name,
            "weight": job.weight,
            "rate_gbps": own["rate_gbps"],
            "world": own["world"],
        }
        for switch, entry in own["switches"].items():
            made["switches"][switch]["jobs"] |= {str(number): role for role in entry["jobs"].values()}
        for worker, entry in own["workers"].items():
            made["workers"][worker] = entry | {"jobs": {str(number): role for role in entry["jobs"].values()}}
        made["links"] += [link for link in own["links"] if link not in made["links"]]
    return made
