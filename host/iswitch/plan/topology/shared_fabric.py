"""A fabric whose cables and switches several jobs share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from iswitch.plan.topology.topology import Topology, TopologyError, natural_key

__all__ = ["FabricJob", "SharedFabric"]


class FabricJob(NamedTuple):
    """A job of a shared fabric.

    Parameters
    ----------
    name : str
        The name of the job.
    weight : float
        Its weight, above 0: a job of weight 2 should be twice as fast as one of weight 1.
    topology : Topology
        The fabric as this job uses it: its own workers, its ps, and its settings. All other hosts have the role
        ``"other"``.
    """

    name: str
    weight: float
    topology: Topology


class SharedFabric:
    """Jobs over the same switches and cables.

    Parameters
    ----------
    jobs : sequence of FabricJob
        The jobs. Their topologies differ in the roles of hosts and in the settings of the job only.

    Raises
    ------
    TopologyError
        If there is no job, two jobs have the same name, or a host is a worker of two jobs.
    ValueError
        If a weight is not above 0.
    """

    def __init__(self, jobs: Sequence[FabricJob]):
        self.jobs = tuple(jobs)
        if not self.jobs:
            raise TopologyError("a shared fabric must have at least one job")
        owners: dict[str, str] = {}
        for number, job in enumerate(self.jobs):
            if job.name in [other.name for other in self.jobs[:number]]:
                raise TopologyError(f"names of jobs must differ, but two are called {job.name}")
            if not 0 < job.weight < float("inf"):
                raise ValueError(f"weight of job {job.name} must be above 0, not {job.weight!r}")
            for worker in job.topology.workers:
                if worker in owners:
                    raise TopologyError(f"{worker} is a worker of job {owners[worker]} and of job {job.name}")
                owners[worker] = job.name

    @property
    def by_name(self) -> tuple[FabricJob, ...]:
        """The jobs in the order of their names, numbers in them by value."""
        return tuple(sorted(self.jobs, key=lambda job: natural_key(job.name)))

    def change(self, changed: Callable[[Topology], Topology]) -> "SharedFabric":
        """Return the fabric with the topology of each job changed by a function.

        Raises
        ------
        TopologyError
            If the change is not possible. The message names the job if a part of its fabric is the reason.
        """
        jobs = []
        for job in self.jobs:
            try:
                jobs.append(job._replace(topology=changed(job.topology)))
            except TopologyError as error:
                if error.place is None:
                    raise
                raise TopologyError(f"job {job.name}: {error}", error.place) from error
        return SharedFabric(jobs)
