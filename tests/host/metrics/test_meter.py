"""What a meter counts, beside what the collectives of the worker have returned."""

import gc
import itertools
import threading
import time
import urllib.request
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

import iswitch.metrics
from iswitch import AsyncWorker, MismatchError, TaintWarning, Worker
from iswitch.config import Config
from iswitch.metrics import LATENCY_BOUNDS_S, watch
from iswitch.wire import CollectiveKind
from sim.bench.udp_model import Faults, UdpModel, together

LOSSY = Faults(loss=0.1)


@pytest.fixture(params=[Faults(), LOSSY], ids=["sound", "lossy network"])
def model(request):
    with UdpModel(Config(ports=2, window=4, elements=16), faults=request.param) as made:
        yield made


def parsed(endpoint):
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_endpoint_shows_the_collectives_of_its_worker(model):
    def body(worker):
        with iswitch.metrics.serve(worker, port=0) as endpoint:
            reductions, started = [], time.monotonic()
            for _ in range(20):
                reductions.append(worker.allreduce(np.ones(40, np.float32)))
            took_s = time.monotonic() - started
            worker.barrier()
            meter, values = watch(worker), parsed(endpoint)
        own = (("job", "2"), ("rank", str(worker.rank)), ("switch", worker.address))
        name = "iswitch_worker_allreduce_seconds"
        assert values[f"{name}_count", *own] == 20
        assert 0 < values[f"{name}_sum", *own] <= took_s
        buckets = {float(dict(key[1:])["le"]): count for key, count in values.items() if key[0] == f"{name}_bucket"}
        assert list(buckets) == [*LATENCY_BOUNDS_S, float("inf")]
        assert list(buckets.values()) == sorted(buckets.values()) and buckets[float("inf")] == 20
        assert values["iswitch_worker_allreduce_bytes_total", *own] == 20 * 160
        assert values["iswitch_worker_collectives_total", *own[:1], ("kind", "allreduce"), *own[1:]] == 20
        assert values["iswitch_worker_collectives_total", *own[:1], ("kind", "barrier"), *own[1:]] == 1
        by_results = sum(reduction.retransmissions for reduction in reductions)
        assert values["iswitch_worker_retransmissions_total", *own] == meter.counts().retransmissions >= by_results
        return by_results

    resent = together(model, 2, body, job=2)
    assert model.faults is not LOSSY or sum(resent) > 0


def test_the_histogram_is_that_of_prometheus_client():
    with UdpModel(Config(ports=2)) as model, Worker(model.address(), world=1) as worker:
        done, meter = worker.allreduce(np.ones(4, np.float32)), watch(worker)
        registry = CollectorRegistry()
        oracle = Histogram("x", "x", registry=registry, buckets=LATENCY_BOUNDS_S)
        drawn = np.random.default_rng(1).lognormal(-6, 3, 500)
        for seconds in [*drawn.tolist(), *LATENCY_BOUNDS_S, 0.0, 1e6]:
            meter.record(CollectiveKind.ALLREDUCE, seconds, 16, done)
            oracle.observe(seconds)
        counts = meter.counts()
    expected = [registry.get_sample_value("x_bucket", {"le": str(bound)}) for bound in LATENCY_BOUNDS_S]
    assert list(itertools.accumulate(counts.latency_counts)) == [*expected, len(drawn) + len(LATENCY_BOUNDS_S) + 2]
    assert counts.latency_sum_s == pytest.approx(registry.get_sample_value("x_sum"))


def test_a_rank_that_a_sum_lacks_is_absent_and_one_that_sent_nan_is_tainted(model):
    def body(worker):
        meter = watch(worker)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TaintWarning)
            worker.allreduce(np.full(4, np.nan if worker.rank else 1, np.float32))
        worker.allreduce(np.ones(4, np.float32))
        return meter.counts()

    for counts in together(model, 2, body, on_taint="warn"):
        assert (counts.tainted, counts.absent) == ({1: 1}, {})
    with _alone(model) as one:
        meter = watch(one)
        one.allreduce(np.ones(4, np.float32))
        assert (meter.counts().tainted, meter.counts().absent) == ({}, {1: 1})


def _alone(model):
    """Return a worker whose job goes on without rank 1, which has left."""

    def join(rank):
        return Worker(model.address(rank), world=2, rank=rank, threshold=1, job=1, key=5)

    with ThreadPoolExecutor(2) as pool:
        stays, leaves = pool.map(join, range(2))
    leaves.close()
    return stays


def test_an_error_is_counted_by_its_class(model):
    def body(worker):
        meter = watch(worker)
        with pytest.raises(MismatchError):
            worker.barrier() if worker.rank else worker.allreduce(np.ones(4, np.float32))
        both_failed.wait()  # a worker that leaves lets the other's collective succeed
        return meter.counts()

    both_failed = threading.Barrier(2, timeout=30)
    for counts in together(model, 2, body):
        assert counts.errors == {"MismatchError": 1} and not sum(counts.latency_counts)


class Writer:
    """What TensorBoard's SummaryWriter does, as far as a meter needs it."""

    def __init__(self):
        self.rows = []

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.rows.append((tag, scalar_value, global_step))


def test_scalars_describe_the_time_since_the_last_call():
    with UdpModel(Config(ports=2)) as model, Worker(model.address(), world=1) as worker:
        meter, writer = watch(worker), Writer()
        assert watch(worker) is meter
        for step, calls in enumerate((3, 2, 0)):
            for _ in range(calls):
                worker.allreduce(np.ones(4, np.float32))
            meter.write(writer, step)
    counted = [(value, step) for tag, value, step in writer.rows if tag == "iswitch/allreduces"]
    assert counted == [(3, 0), (2, 1), (0, 2)]
    latencies = {(tag, step): value for tag, value, step in writer.rows if "latency" in tag}
    assert {step for _, step in latencies} == {0, 1}
    for step in (0, 1):
        low, high = latencies["iswitch/latency_p50_s", step], latencies["iswitch/latency_p99_s", step]
        assert 0 < low <= high and 0 < latencies["iswitch/latency_mean_s", step] <= high * 1.01


def test_an_asynchronous_worker_shows_updates_and_the_ages_of_its_vectors(model):
    with AsyncWorker(model.address(), world=1, size=20, staleness=2) as worker:
        with iswitch.metrics.serve(worker, port=0) as endpoint:
            for _ in range(3):
                worker.push(np.ones(20, np.float32))
                while not list(worker.updates()):
                    worker.wait()
            values = parsed(endpoint)
        scalars = watch(worker).scalars()
        own = (("job", "0"), ("rank", "0"), ("switch", worker.address))
        assert values["iswitch_worker_updates_total", *own] == worker.version == scalars["iswitch/updates"] == 3
        for age, count in worker.ages.items():
            assert values["iswitch_worker_vectors_total", ("age", str(age)), *own] == count
        mean = sum(age * count for age, count in worker.ages.items()) / worker.ages.total()
        assert scalars["iswitch/age_mean"] == mean


def test_a_meter_and_an_endpoint_keep_no_worker_that_the_program_drops():
    with UdpModel(Config(ports=2)) as model:
        worker = Worker(model.address(), world=1)
        with iswitch.metrics.serve(worker, port=0) as endpoint:
            meter, reference = watch(worker), weakref.ref(worker)
            del worker
            gc.collect()
            assert reference() is None and meter.scalars() == {} and parsed(endpoint) == {}


def test_watch_wrong():
    with pytest.raises(TypeError, match="watch needs a Worker or an AsyncWorker, not str"):
        watch("worker")


def test_the_endpoint_names_the_extra_that_it_needs(monkeypatch):
    monkeypatch.setattr("iswitch.metrics.endpoint.missing_from", lambda extra: ["prometheus-client"])
    with pytest.raises(ImportError, match=r"pip install 'iswitch-rl\[metrics\]'"):
        iswitch.metrics.serve(port=0)
