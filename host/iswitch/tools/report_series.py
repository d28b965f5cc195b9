"""Lines of the charts of `iswitch report`, from the samples of a switch: rates, counts and shares over time."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from iswitch.control.counters import Severity, counter_entry
from iswitch.report.charts import Series
from iswitch.serial import serial_distance
from iswitch.tools.report_sampling import Sample, Sampling

__all__ = [
    "Interval",
    "intervals",
    "job_rates",
    "job_series",
    "mean_rates",
    "rate_series",
    "total_series",
    "totals",
    "unusual_counters",
]

Point = tuple[float, float | None]


class Interval(NamedTuple):
    """What happened between two samples.

    Attributes
    ----------
    end_s : float
        When the interval ended, in seconds after the start.
    seconds : float
        Its length.
    rises : dict of str to int
        By how much each counter rose.
    restarted : bool
        The counters began anew. Then `rises` has what they count since.
    """

    end_s: float
    seconds: float
    rises: dict[str, int]
    restarted: bool


def intervals(sampling: Sampling, last: int = 0) -> list[Interval]:
    """Return the intervals between the samples, or between the `last` ones.

    Counters have 32 bits. One that seems to have risen by more than half of that has begun anew: the switch restarted.
    """
    found = []
    for before, now in itertools.pairwise(sampling.samples[-last:]):
        old, new = before.snapshot.counters, now.snapshot.counters
        rises = {name: (count - old[name]) % 2**32 for name, count in new.items()}
        restarted = any(rise >= 2**31 for rise in rises.values())
        seconds = max(now.snapshot.time_s - before.snapshot.time_s, 1e-9)
        found.append(Interval(sampling.at(now), seconds, dict(new) if restarted else rises, restarted))
    return found


def totals(steps: Iterable[Interval]) -> dict[str, int]:
    """Return by how much each counter rose in all intervals together."""
    found: dict[str, int] = {}
    for step in steps:
        for name, rise in step.rises.items():
            found[name] = found.get(name, 0) + rise
    return found


def unusual_counters(counts: Mapping[str, int], besides: Collection[str] = ()) -> list[str]:
    """Return the counters of drops and unusual events that are above zero, the largest first; without `besides`."""
    found = [
        name
        for name, count in counts.items()
        if count and name not in besides and counter_entry(name).severity != Severity.NORMAL
    ]
    return sorted(found, key=lambda name: -counts[name])


def rate_series(sampling: Sampling, steps: Iterable[Interval], name: str, counters: Collection[str]) -> Series:
    """Return the sum of some counters' rates per second. The line has gaps at restarts and silences."""
    points: list[Point] = []
    for step in steps:
        rate = sum(step.rises[counter] for counter in counters) / step.seconds
        points.append((step.end_s, None if step.restarted else rate))
    return Series(name, _with_silences(points, sampling))


def total_series(sampling: Sampling, steps: Iterable[Interval], name: str, counter: str) -> Series:
    """Return how often a counter has counted since the first sample."""
    sums = itertools.accumulate((step.rises[counter] for step in steps), initial=0)
    points: list[Point] = [(sampling.at(sample), float(count)) for sample, count in zip(sampling.samples, sums)]
    return Series(name, _with_silences(points, sampling))


def job_series(
    sampling: Sampling, job: int, name: str, value: Callable[[Sample], float], *, dashed: bool = False
) -> Series:
    """Return a value of each sample in which a job exists. The colour is that of the job."""
    points: list[Point] = [
        (sampling.at(sample), value(sample) if job in sample.snapshot.jobs else None) for sample in sampling.samples
    ]
    return Series(name, _with_silences(points, sampling), dashed, colour=job)


def job_rates(sampling: Sampling, job: int) -> Series:
    """Return how many segments per second a job completes. The line has gaps where the job is new or was reset."""
    points: list[Point] = []
    for before, now in itertools.pairwise(sampling.samples):
        seconds = max(now.snapshot.time_s - before.snapshot.time_s, 1e-9)
        rise = _progress(before, now, job)
        points.append((sampling.at(now), None if rise is None else rise / seconds))
    return Series(f"job {job}", _with_silences(points, sampling), colour=job)


def mean_rates(sampling: Sampling) -> dict[int, float]:
    """Return the segments per second of each job of the last sample, over the time in which its progress is known."""
    rates = {}
    for job in sampling.samples[-1].snapshot.jobs:
        rise, seconds = 0, 0.0
        for before, now in itertools.pairwise(sampling.samples):
            step = _progress(before, now, job)
            if step is not None:
                rise, seconds = rise + step, seconds + now.snapshot.time_s - before.snapshot.time_s
        rates[job] = rise / seconds if seconds else 0.0
    return rates


def _progress(before: Sample, now: Sample, job: int) -> int | None:
    """Return how many segments a job completed between two samples; None if it is not the same epoch of the job."""
    old, new = before.snapshot.jobs.get(job), now.snapshot.jobs.get(job)
    if old is None or new is None or (old.job.epoch, old.job.first_seq) != (new.job.epoch, new.job.first_seq):
        return None
    if not (old.progress and new.progress):  # without a live member there is no lowest segment
        return None
    return max(0, serial_distance(new.lowest, old.lowest))


def _with_silences(points: list[Point], sampling: Sampling) -> list[Point]:
    """Return the points with a gap at each time at which the switch did not answer."""
    gaps: list[Point] = [(at, None) for at in sampling.silences]
    return sorted([*points, *gaps], key=lambda point: point[0])
