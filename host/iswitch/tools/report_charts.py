"""Which charts the page of `iswitch report` has: those of a switch, and those of trainings."""

import math
from collections.abc import Iterator, Sequence

from iswitch.report.charts import COLOURS, Series, line_chart, share_bar
from iswitch.report.training import Training
from iswitch.tools.report_sampling import Sample, Sampling
from iswitch.tools.report_series import (
    Interval,
    intervals,
    job_rates,
    job_series,
    rate_series,
    total_series,
    totals,
    unusual_counters,
)

__all__ = ["switch_charts", "training_charts"]

_TIME = "seconds after the start"
_ONE = "This chart needs two samples."
_OWN = "The messages by which this report reads the switch are among the frames of one port."
_REPEATS = {"DUPLICATE": "repeats of workers (DUPLICATE)", "RESENT": "results resent (RESENT)"}


def switch_charts(sampling: Sampling) -> Iterator[str]:
    """Yield the charts of a switch over time, as HTML."""
    ports, steps = range(sampling.info.ports), intervals(sampling)
    for title, counter in (("Frames received, by port", "RX_FRAMES"), ("Frames sent, by port", "TX_FRAMES")):
        lines = [rate_series(sampling, steps, f"port {port}", [f"port{port}.{counter}"]) for port in ports]
        yield line_chart(title, lines, x_label=_TIME, y_label="frames/s", note=_OWN, empty=_ONE)
    lines = [
        rate_series(sampling, steps, "contributions added (ADDED)", ["ADDED"]),
        rate_series(sampling, steps, "results completed (RESULTS)", ["RESULTS"]),
    ]
    yield line_chart("Contributions and results", lines, x_label=_TIME, y_label="per second", empty=_ONE)
    jobs = sorted({number for sample in sampling.samples for number in sample.snapshot.jobs})
    yield line_chart(
        "Progress of jobs",
        [job_rates(sampling, job) for job in jobs],
        x_label=_TIME,
        y_label="segments/s",
        empty="No job existed at two samples." if sampling.samples[1:] else _ONE,
    )
    yield _slot_chart(sampling, jobs)
    yield _drop_chart(sampling, steps)
    lines = [rate_series(sampling, steps, name, [counter]) for counter, name in _REPEATS.items()]
    yield line_chart("Retransmissions", lines, x_label=_TIME, y_label="per second", empty=_ONE)
    lines = [
        total_series(sampling, steps, "members evicted (EVICTED)", "EVICTED"),
        total_series(sampling, steps, "members admitted (ADMITTED)", "ADMITTED"),
    ]
    yield line_chart(
        "Evictions and admissions",
        lines,
        x_label=_TIME,
        y_label="members since the first sample",
        whole=True,
        empty=_ONE,
    )


def _slot_chart(sampling: Sampling, jobs: Sequence[int]) -> str:
    lines = []
    for job in jobs:

        def collecting(sample: Sample, job: int = job) -> float:
            return 100 * sample.slots[job].collecting

        def waiting(sample: Sample, job: int = job) -> float:
            return 100 * sample.slots[job].waiting

        lines.append(job_series(sampling, job, f"job {job}: collecting", collecting))
        lines.append(job_series(sampling, job, f"job {job}: result not acknowledged", waiting, dashed=True))
    return line_chart(
        "Slots in use, by job",
        lines,
        x_label=_TIME,
        y_label=f"% of the {2 * sampling.info.window} slots of a job",
        note="Collecting: the slot waits for contributions. Slots are read one after another, while the job goes on.",
        empty="No job existed.",
    )


def _drop_chart(sampling: Sampling, steps: Sequence[Interval]) -> str:
    """Return the rates of the counters that rose most, and of the others together."""
    names = unusual_counters(totals(steps), besides=(*_REPEATS, "EVICTED"))
    shown, rest = (names, []) if len(names) <= COLOURS else (names[: COLOURS - 1], names[COLOURS - 1 :])
    lines = [rate_series(sampling, steps, name, [name]) for name in shown]
    if rest:
        lines.append(rate_series(sampling, steps, f"{len(rest)} other reasons", rest))
    quiet = "No frame was dropped while the switch was sampled."
    return line_chart(
        "Drops and unusual events, by reason",
        lines,
        x_label=_TIME,
        y_label="per second",
        empty=quiet if sampling.samples[1:] else _ONE,
    )


def training_charts(trainings: Sequence[Training]) -> Iterator[str]:
    """Yield the charts of trainings, as HTML."""
    by_steps: list[Series] = []
    by_seconds: list[Series] = []
    for training in trainings:
        by_steps.append(Series(training.name, [(float(p.steps), _finite(p.mean_return)) for p in training.curve]))
        by_seconds.append(Series(training.name, [(p.seconds, _finite(p.mean_return)) for p in training.curve]))
    empty = "The training has written no report yet."
    for title, lines, label in (
        ("Learning curve over steps", by_steps, "environment steps of all workers"),
        ("Learning curve over time", by_seconds, "seconds"),
    ):
        yield line_chart(title, lines, x_label=label, y_label="mean return of the latest episodes", empty=empty)
    if any(training.aggregation_ms for training in trainings):
        yield line_chart(
            "Aggregation time per update",
            [Series(training.name, training.aggregation_ms) for training in trainings],
            x_label="seconds",
            y_label="ms per update",
            note="Mean since the report before, at rank 0, with the time that rank 0 waits for the slowest worker.",
        )
    if latencies := [line for number, training in enumerate(trainings) for line in _latency_lines(number, training)]:
        yield line_chart(
            "Latency of an AllReduce",
            latencies,
            x_label="seconds",
            y_label="ms",
            note="Of the AllReduces of rank 0 since the report before: half are faster than p50, 1 % are slower than "
            "p99. The latency includes the time that rank 0 waits for the slowest worker.",
        )
    for training in trainings:
        if training.split:
            yield share_bar(f"Time of rank 0: {training.name}", training.split, "s")


def _latency_lines(number: int, training: Training) -> Iterator[Series]:
    """Yield the median and the 99th percentile of a training's latencies, in one colour; nothing if none is known."""
    for quantile in ("p50", "p99"):
        points = [(point.seconds, point.latency_ms.get(quantile)) for point in training.curve]
        if any(latency is not None for _, latency in points):
            yield Series(f"{training.name}: {quantile}", points, dashed=quantile == "p99", colour=number)


def _finite(value: float) -> float | None:
    """Return the value, or None if it is NaN or an infinity: the chart has a gap there."""
    return value if math.isfinite(value) else None
