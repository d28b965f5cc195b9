"""What a system is asked to do, and how its time splits."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from iswitch.estimate.costs import Costs
from iswitch.estimate.network import Network
from iswitch.estimate.simulation import Processor, Simulation

__all__ = ["ITERATIONS", "Phases", "Setting", "Stopwatch"]

ITERATIONS = 3
"""Iterations that are simulated. The last one counts: the first one begins with all workers in step."""

MOST_COMPUTE_S = 1e6
"""11 days. Up to here a sum of times is exact to a nanosecond."""


class Phases(NamedTuple):
    """Seconds of one iteration at a worker, one after the other.

    Parameters
    ----------
    compute_s : float
        Until the gradient is ready.
    send_s : float
        Until its last byte has left the worker's card. In a ring or a tree of workers: until the worker has sent its
        first message.
    aggregate_s : float
        Until the first byte of the sum comes; 0 if that is earlier. In a ring or a tree of workers: until the worker
        has its part of the sum.
    receive_s : float
        Until the worker has the whole sum, or the new weights.
    update_s : float
        Until its weights are new.
    """

    compute_s: float
    send_s: float
    aggregate_s: float
    receive_s: float
    update_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the whole iteration."""
        return sum(self)

    @property
    def communication_s(self) -> float:
        """Seconds without computing and updating at the worker."""
        return self.send_s + self.aggregate_s + self.receive_s

    @property
    def share(self) -> float:
        """Share of the iteration that is communication, from 0 to 1."""
        return self.communication_s / self.total_s


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Workers that sum a vector in each iteration.

    Parameters
    ----------
    size_bytes : int
        Size of the vector, of float32 elements.
    workers : int
        Number of workers.
    compute_s : float
        Seconds in which each worker computes its vector.
    rate_bps : float, optional
        Rate of every cable; None: all are processes of one machine.
    rack : int, optional
        Workers below one switch of a tree of two levels; None: all are at one switch.
    cores : int, optional
        Cores that all processes share, for one machine. A process keeps its core until it waits. None: each process has
        its own.
    costs : Costs
        Times of the parts.

    Raises
    ------
    ValueError
        If a value is out of its range.
    """

    size_bytes: int
    workers: int = 4
    compute_s: float = 0.0
    rate_bps: float | None = 10e9
    rack: int | None = None
    cores: int | None = None
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        for name, least in (("size_bytes", 4), ("workers", 2), ("compute_s", 0), ("rate_bps", 1), ("rack", 1)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"Setting {name} must be at least {least}, not {value!r}")
        if self.compute_s > MOST_COMPUTE_S:
            raise ValueError(f"Setting compute_s must be at most {MOST_COMPUTE_S:g}, not {self.compute_s!r}")

    def network(self, simulation: Simulation, *, servers: int = 0) -> Network:
        """Return the network of the workers, and of servers behind them at the last switch."""
        processor = Processor(simulation, self.cores, until_wait=True) if self.cores else None
        return Network(
            simulation, self.workers + servers, self.costs, rate_bps=self.rate_bps, rack=self.rack, processors=processor
        )

    @property
    def free_call(self) -> "Setting":
        """The same, but a call of the iswitch driver takes no time."""
        return replace(self, costs=replace(self.costs, udp_call_us=0.0))

    @property
    def sum_s(self) -> float:
        """Seconds in which a host adds a vector to another."""
        return 1e-9 * self.costs.sum_byte_ns * self.size_bytes

    @property
    def update_s(self) -> float:
        """Seconds in which a host applies a sum to its weights."""
        return 1e-9 * self.costs.update_byte_ns * self.size_bytes


class Stopwatch:
    """Times of the workers' iterations.

    Each iteration of a worker has six times: begin, gradient ready, sent, aggregated, received, end.
    """

    def __init__(self, workers: int):
        self._times: list[list[tuple[float, ...]]] = [[] for _ in range(workers)]

    def record(self, rank: int, *times_s: float) -> None:
        """Keep the six times of an iteration. A time before the one before it counts as that one."""
        ordered: list[float] = []
        for time_s in times_s:
            ordered.append(max([time_s, *ordered[-1:]]))
        self._times[rank].append(tuple(ordered))

    def phases(self) -> Phases:
        """Return the mean of the workers' last iterations."""
        last = [times[-1] for times in self._times]
        return Phases(*(sum(times[k + 1] - times[k] for times in last) / len(last) for k in range(len(Phases._fields))))
