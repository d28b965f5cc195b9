"""What a worker has counted, as families of Prometheus metrics."""

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from iswitch.async_worker import AsyncWorker
from iswitch.metrics.endpoint import Endpoint, require_client, serve_families
from iswitch.metrics.meter import LATENCY_BOUNDS_S, Meter, watch
from iswitch.worker import Worker

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["serve", "worker_families"]

_LABELS = ["switch", "job", "rank"]


def serve(*workers: Worker | AsyncWorker, port: int = 9465, address: str = "127.0.0.1") -> Endpoint:
    """Serve the metrics of workers to Prometheus, at `http://address:port/metrics`.

    The endpoint counts from now on. It ends with the process, or by its `close`. Needs the extra `metrics`.

    Parameters
    ----------
    *workers : Worker or AsyncWorker
        The workers of this process.
    port : int
        TCP port; 0 for any free one, which `Endpoint.port` shows.
    address : str
        Local address at which the endpoint listens; "0.0.0.0" for all. The endpoint has no access control.

    Returns
    -------
    Endpoint
        The endpoint.

    Raises
    ------
    ImportError
        If the extra `metrics` is not installed.
    OSError
        If the port is in use.

    Examples
    --------
    >>> iswitch.metrics.serve(worker, port=9465 + worker.rank)  # doctest: +SKIP
    """
    require_client("iswitch.metrics.serve", "metrics")
    meters = [watch(worker) for worker in workers]
    return serve_families(lambda: worker_families(meters), port=port, address=address)


def worker_families(meters: Iterable[Meter]) -> list["Metric"]:
    """Return the families of some workers. Workers that the program has dropped are left out."""
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    def counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"iswitch_worker_{name}", text, labels=[*_LABELS, *labels])

    latency = HistogramMetricFamily(
        "iswitch_worker_allreduce_seconds", "Latency of this worker's AllReduces, in seconds", labels=_LABELS
    )
    size = counter("allreduce_bytes", "Bytes of the arrays of this worker's AllReduces")
    collectives = counter("collectives", "Collectives that this worker completed, by kind", "kind")
    errors = counter("errors", "Collectives that raised an error before their result was complete", "error")
    absent = counter("absent", "Collectives whose sum lacked a rank that sent nothing wrong", "absent_rank")
    tainted = counter("tainted", "Collectives in which elements of a rank were rejected", "tainted_rank")
    retransmissions = counter("retransmissions", "Contributions that this worker retransmitted")
    updates = counter("updates", "Updates of an asynchronous job that the program has received")
    refused = counter("refused", "Vectors that were dropped because their weights were too old")
    vectors = counter("vectors", "This worker's vectors in updates, by the age of their weights in updates", "age")
    for meter in meters:
        if (worker := meter.worker) is None:
            continue
        own = [worker.address, str(worker.job), str(worker.rank)]
        if isinstance(worker, AsyncWorker):
            retransmissions.add_metric(own, worker.retransmissions)
            updates.add_metric(own, worker.version)
            refused.add_metric(own, worker.refused)
            for age, count in sorted(worker.ages.items()):
                vectors.add_metric([*own, str(age)], count)
            continue
        counts = meter.counts()
        bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
        latency.add_metric(
            own, list(zip(bounds, itertools.accumulate(counts.latency_counts), strict=True)), counts.latency_sum_s
        )
        size.add_metric(own, counts.bytes)
        retransmissions.add_metric(own, counts.retransmissions)
        for family, by_label in (
            (collectives, counts.collectives),
            (errors, counts.errors),
            (absent, counts.absent),
            (tainted, counts.tainted),
        ):
            for label, count in sorted(by_label.items()):
                family.add_metric([*own, str(label)], count)
    return [latency, size, collectives, errors, absent, tainted, retransmissions, updates, refused, vectors]
