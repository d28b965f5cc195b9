"""Figures 4 to 8: the testbed of eight workers, as a model of rates.

The hosts of the testbed are slower than its cables, and neither the size of an iteration nor its computation is stated.
So five quantities of each model are taken from bars of the paper: what a worker sends at most, from the fastest of two
workers; what the ps takes at most, what is sent in an iteration, its computation and its images, from Geryon with eight
workers. Everything else is computed. For the six models of figure 4, the time of an image is a constant and a part that
falls with the rate, which two bars give: those of Geryon and SwitchML.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from iswitch.plan.figures.chart import Figure, Panel
from iswitch.plan.figures.fabrics import make_testbed
from iswitch.plan.figures.outcomes import PROGRAM, run_schemes
from iswitch.plan.figures.published import GERYON, GRID, MODELS, SWITCHML, TESTBED_WORKERS, bars

__all__ = ["TESTBED_FIGURES", "make_testbed_figure"]

TESTBED_FIGURES = {
    4: ("throughput", "images/s"),
    5: ("sending rate", "Gb/s"),
    6: ("communication time", "s"),
    7: ("time of an iteration", "s"),
    8: ("throughput", "images/s"),
}
DETAILED = ("Inception-V3", "VGG16")
TIME_S = 5.0


@cache
def testbed_rates(model: str) -> Mapping[str, Sequence[float]]:
    """Return the Gb/s of each scheme over the number of workers."""
    measured = bars(5, model)
    server_gbps = measured[GERYON][-1] * TESTBED_WORKERS[-1]
    nic_gbps = max(values[0] for values in measured.values())
    found: dict[str, list[float]] = {}
    for workers in TESTBED_WORKERS:
        topology = make_testbed(workers, nic_gbps=nic_gbps, server_gbps=server_gbps)
        for scheme, outcome in run_schemes(topology, time_s=TIME_S).items():
            if scheme != PROGRAM:
                found.setdefault(scheme, []).append(outcome.rate_gbps)
    return found


def make_testbed_figure(number: int) -> Figure:
    """Return a figure of the testbed."""
    if number == 4:
        values = _throughput_of_models()
        panels = [Panel("8 workers", "model", MODELS, values, bars(4))]
    else:
        panels = [
            Panel(model, "workers", TESTBED_WORKERS, _values(number, model), bars(number, model)) for model in DETAILED
        ]
    return Figure(number, *TESTBED_FIGURES[number], panels, [_note(model) for model in DETAILED] if number == 5 else [])


def _note(model: str) -> str:
    """Return how the bars of GRID compare with what each worker's own switch gives in this model."""
    pairs = zip(TESTBED_WORKERS, bars(5, model)[GRID], testbed_rates(model)[SWITCHML])
    text = ", ".join(f"{workers}: {bar:.3g} of {own:.3g}" for workers, bar, own in pairs)
    return f"{model}, the paper's GRID and the sums of each worker's own switch here, Gb/s by workers: {text}."


def _values(number: int, model: str) -> dict[str, list[float]]:
    last = lambda each: bars(each, model)[GERYON][-1]
    gradient_gbit = last(6) * last(5)
    computation_s = last(7) - last(6)
    images = last(8) * last(7) / TESTBED_WORKERS[-1]
    found: dict[str, list[float]] = {}
    for scheme, rates in testbed_rates(model).items():
        for workers, rate_gbps in zip(TESTBED_WORKERS, rates):
            sending_s = gradient_gbit / rate_gbps
            iteration_s = computation_s + sending_s
            value = {5: rate_gbps, 6: sending_s, 7: iteration_s, 8: images * workers / iteration_s}[number]
            found.setdefault(scheme, []).append(value)
    return found


def _throughput_of_models() -> dict[str, list[float]]:
    """Return the images per second of each scheme with eight workers, for each model."""
    measured, rates = bars(4), bars(5, DETAILED[0])
    slow_gbps, fast_gbps = rates[GERYON][-1], rates[SWITCHML][-1]
    found: dict[str, list[float]] = {}
    for at in range(len(MODELS)):
        slow_s, fast_s = 1 / measured[GERYON][at], 1 / measured[SWITCHML][at]
        sent = (slow_s - fast_s) / (1 / slow_gbps - 1 / fast_gbps)
        for scheme, modelled in testbed_rates(DETAILED[0]).items():
            found.setdefault(scheme, []).append(1 / (slow_s + sent * (1 / modelled[-1] - 1 / slow_gbps)))
    return found
