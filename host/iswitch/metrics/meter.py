"""A meter counts what a worker's collectives do: latency, retransmissions, ranks that a sum lacks, errors."""

import threading
import weakref
from bisect import bisect_left
from collections import Counter, deque
from typing import NamedTuple, Protocol

import numpy as np

from iswitch.async_worker import AsyncWorker
from iswitch.results import Reduction
from iswitch.wire import CollectiveKind
from iswitch.worker import Worker

__all__ = ["LATENCY_BOUNDS_S", "Counts", "Meter", "ScalarWriter", "watch"]

LATENCY_BOUNDS_S = tuple(50e-6 * 2**k for k in range(20))
"""Upper bounds of the latency histogram, 50 microseconds to 26 seconds."""
_KEPT = 4096
"""The most latencies of which `scalars` makes quantiles."""


class ScalarWriter(Protocol):
    """What `Meter.write` needs of a writer, such as TensorBoard's `SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> object:
        """Store one number."""


class Counts(NamedTuple):
    """What a meter has counted.

    Attributes
    ----------
    collectives : dict of str to int
        Completed collectives, by kind.
    latency_counts : list of int
        Completed AllReduces by latency: one count for each of `LATENCY_BOUNDS_S`, and one for those above.
    latency_sum_s : float
        Sum of these latencies in seconds.
    bytes : int
        Bytes of the arrays that were summed in AllReduces.
    retransmissions : int
        Contributions that this worker retransmitted.
    absent, tainted : dict of int to int
        By rank: collectives in which at least one segment lacked the rank though its elements were not rejected, and
        those in which elements of the rank were rejected.
    errors : dict of str to int
        Collectives that raised an error before their result was complete, by its class.
    """

    collectives: dict[str, int]
    latency_counts: list[int]
    latency_sum_s: float
    bytes: int
    retransmissions: int
    absent: dict[int, int]
    tainted: dict[int, int]
    errors: dict[str, int]


class Meter:
    """Counts the collectives of one worker, from when `watch` makes it.

    The meter does not keep the worker: a worker that the program drops still leaves its job.

    Parameters
    ----------
    worker : Worker or AsyncWorker
        The worker.
    """

    def __init__(self, worker: Worker | AsyncWorker):
        self._worker = weakref.ref(worker)
        self._lock = threading.Lock()  # an endpoint reads in a thread of its own
        self._kinds: Counter[str] = Counter()
        self._latency_counts, self._latency_sum_s = [0] * (len(LATENCY_BOUNDS_S) + 1), 0.0
        self._recent: deque[float] = deque(maxlen=_KEPT)
        self._bytes = self._retransmissions = 0
        self._absent: Counter[int] = Counter()
        self._tainted: Counter[int] = Counter()
        self._errors: Counter[str] = Counter()
        self._scalars_before: dict[str, float] = {}

    @property
    def worker(self) -> Worker | AsyncWorker | None:
        """The worker; None if the program has dropped it."""
        return self._worker()

    def record(self, kind: CollectiveKind, seconds: float, size_bytes: int, reduction: Reduction) -> None:
        """Count a collective that is complete, as `CollectiveMeter` says. `Worker` calls this."""
        lacks = reduction.flagged or not reduction.complete
        with self._lock:
            self._kinds[kind.name.lower()] += 1
            self._retransmissions += reduction.retransmissions
            if kind == CollectiveKind.ALLREDUCE:
                self._latency_counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
                self._latency_sum_s += seconds
                self._recent.append(seconds)
                self._bytes += size_bytes
            if lacks:
                self._absent.update(reduction.absent)
                self._tainted.update(reduction.tainted)

    def record_error(self, error: Exception) -> None:
        """Count a collective that raised an error before its result was complete. `Worker` calls this."""
        with self._lock:
            self._errors[type(error).__name__] += 1

    def counts(self) -> Counts:
        """Return the present counts."""
        with self._lock:
            return Counts(
                dict(self._kinds),
                list(self._latency_counts),
                self._latency_sum_s,
                self._bytes,
                self._retransmissions,
                dict(self._absent),
                dict(self._tainted),
                dict(self._errors),
            )

    def scalars(self) -> dict[str, float]:
        """Return numbers for a plot over training steps. Each call describes the time since the last call.

        Returns
        -------
        dict of str to float
            By name. Of a `Worker`: `iswitch/allreduces`, `iswitch/latency_mean_s`, `iswitch/latency_p50_s` and
            `iswitch/latency_p99_s` (of the last 4,096 AllReduces at most; none of the three without an AllReduce),
            `iswitch/retransmissions`, `iswitch/absent` and `iswitch/tainted` (ranks that sums lacked, one for each
            collective and rank), and `iswitch/errors`. Of an `AsyncWorker`: `iswitch/updates`,
            `iswitch/retransmissions`, `iswitch/refused`, `iswitch/vectors`, and `iswitch/age_mean`, the mean age of
            the vectors that this worker was granted (not without one). Empty if the program has dropped the worker.
        """
        worker = self.worker
        if worker is None:
            return {}
        return self._update_scalars(worker) if isinstance(worker, AsyncWorker) else self._collective_scalars()

    def write(self, writer: ScalarWriter, step: int) -> None:
        """Write `scalars` by `writer.add_scalar(name, value, step)`.

        Parameters
        ----------
        writer : object
            Anything with TensorBoard's `add_scalar`.
        step : int
            Step of the training.
        """
        for name, value in self.scalars().items():
            writer.add_scalar(name, value, step)

    def _collective_scalars(self) -> dict[str, float]:
        counts = self.counts()
        with self._lock:
            recent = np.array(self._recent)
            self._recent.clear()
        rises = self._rises(
            {
                "iswitch/allreduces": sum(counts.latency_counts),
                "iswitch/retransmissions": counts.retransmissions,
                "iswitch/absent": sum(counts.absent.values()),
                "iswitch/tainted": sum(counts.tainted.values()),
                "iswitch/errors": sum(counts.errors.values()),
            }
        )
        if recent.size:
            middle, late = np.quantile(recent, (0.5, 0.99))
            rises |= {
                "iswitch/latency_mean_s": float(recent.mean()),
                "iswitch/latency_p50_s": float(middle),
                "iswitch/latency_p99_s": float(late),
            }
        return rises

    def _update_scalars(self, worker: AsyncWorker) -> dict[str, float]:
        ages = worker.ages
        rises = self._rises(
            {
                "iswitch/updates": worker.version,
                "iswitch/retransmissions": worker.retransmissions,
                "iswitch/refused": worker.refused,
                "iswitch/vectors": ages.total(),
                "ages": sum(age * count for age, count in ages.items()),
            }
        )
        age_sum = rises.pop("ages")
        if rises["iswitch/vectors"]:
            rises["iswitch/age_mean"] = age_sum / rises["iswitch/vectors"]
        return rises

    def _rises(self, totals: dict[str, float]) -> dict[str, float]:
        """Return by how much totals have risen since the last call."""
        before, self._scalars_before = self._scalars_before, totals
        return {name: total - before.get(name, 0) for name, total in totals.items()}


def watch(worker: Worker | AsyncWorker) -> Meter:
    """Count the collectives of a worker from now on.

    Parameters
    ----------
    worker : Worker or AsyncWorker
        The worker.

    Returns
    -------
    Meter
        The worker's meter; the same one in each later call.

    Examples
    --------
    >>> meter = iswitch.metrics.watch(worker)  # doctest: +SKIP
    >>> meter.write(writer, step)  # each so many steps  # doctest: +SKIP
    """
    if not isinstance(worker, (Worker, AsyncWorker)):
        raise TypeError(f"watch needs a Worker or an AsyncWorker, not {type(worker).__name__}")
    if worker.meter is None:
        worker.meter = Meter(worker)
    meter = worker.meter
    assert isinstance(meter, Meter)
    return meter
