"""`python -m sim.cluster.headline`: the iSwitch paper's comparison with parameter server and AllReduce, on our switch.

All systems have the same hosts, cables and compute times. Servers, rings and trees of workers are models over
TCP without loss, slow start or a framework. `python -m sim.bench.cluster_agreement` sets them beside real ones. The
switch is a model, too; `--rtl` sums the same vectors with the real driver at the
compiled RTL, and prints the difference. `--costs docs/cluster_costs.json` sets the ratios with the costs that
`python -m sim.cluster.system_costs` has measured beside those with the default costs.

The paper's time of computing is known for DQN only, and derived: 31.72 h for 1.4 million iterations with the server, of
which 83.2 % is communication. For the others it is chosen so that communication has the share, with our model of the
server, that follows from the paper's speedup and from its reduction of the aggregation by 83.7 % (the middle of 81.6
to 85.8 %). For these three, the ratio therefore only says whether our switch reduces communication as much as the
paper's. Figures of the paper beside "up to 3.66", "up to 3.71" and "up to 83.2 %" are unverified.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.costs import Costs, describe_costs
from iswitch.estimate.server import asynchronous_server, parameter_server
from iswitch.estimate.setting import Phases, Setting
from iswitch.estimate.switch import asynchronous_switch, switch
from iswitch.estimate.systems import ISWITCH, SYSTEMS
from sim.cluster.measured_ratios import ratio, show_measured
from sim.cluster.rtl_sum import rtl_sum_s
from sim.cluster.system_costs import read

__all__ = ["ALGORITHMS", "Algorithm", "compute_s", "figures", "setting_of"]

OUT = Path(__file__).parents[2] / "build" / "headline.json"
MOST_WORKERS = 32
"""The most members of a job."""
RACK = 3
WORLDS = (4, 6, 9, 12)


class Algorithm(NamedTuple):
    """A training of the paper. `server_share`: communication's share with the parameter server; `compute_ms`: None if
    it is not known; `sync_over_ps`: the paper's speedup."""

    size_bytes: int
    server_share: float
    compute_ms: float | None
    sync_over_ps: float


REDUCTION = 0.837
ALGORITHMS = {
    "dqn": Algorithm(6_410_000, 0.832, 31.72 * 3600e3 / 1.4e6 * (1 - 0.832), 3.66),
    "a2c": Algorithm(3_310_000, (1 - 1 / 2.55) / REDUCTION, None, 2.55),
    "ppo": Algorithm(40_020, (1 - 1 / 1.72) / REDUCTION, None, 1.72),
    "ddpg": Algorithm(157_520, (1 - 1 / 1.83) / REDUCTION, None, 1.83),
}


def share_compute_s(setting: Setting, share: float) -> float:
    """Return the time of computing at which communication has a share of an iteration with the parameter server."""
    low_s, high_s = 0.0, 10.0
    for _ in range(25):
        middle_s = (low_s + high_s) / 2
        if parameter_server(replace(setting, compute_s=middle_s)).share > share:
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s


def ratio_compute_s(setting: Setting, ratio: float) -> float:
    """Return the longest time of computing, in steps of 2 %, at which the switch is so many times as fast as the
    parameter server; 0 if there is none from 1 us on."""
    given_s = 1.0
    while given_s > 1e-6:
        found = replace(setting, compute_s=given_s)
        if parameter_server(found).total_s >= ratio * switch(found).total_s:
            return given_s
        given_s *= 0.98
    return 0.0


def compute_s(name: str, costs: Costs) -> float:
    """Return the time of computing of an algorithm."""
    algorithm = ALGORITHMS[name]
    if algorithm.compute_ms is not None:
        return algorithm.compute_ms / 1e3
    return share_compute_s(Setting(size_bytes=algorithm.size_bytes, costs=costs), algorithm.server_share)


def setting_of(name: str, costs: Costs) -> Setting:
    """Return the setting of an algorithm: four workers, 10 GbE."""
    return Setting(size_bytes=ALGORITHMS[name].size_bytes, compute_s=compute_s(name, costs), costs=costs)


def leads(setting: Setting) -> dict[str, tuple[float, float]]:
    """Return how many times as fast as each of the others the switch is, and would be if a call of the driver took no
    time."""
    found = {name: run(setting).total_s for name, run in SYSTEMS.items() if name != ISWITCH}
    synchronous = {
        "the better server on one machine": min(found["parameter server"], found["streaming server"]),
        "the better AllReduce of the workers": min(found["ring"], found["tree of workers"]),
        "a server in shards on the workers": found["sharded server"],
    }
    asynchronous = {
        "asynchronous: the server": asynchronous_server(setting),
        "the server, workers compute meanwhile": asynchronous_server(setting, overlapped=True),
    }
    both = (setting, setting.free_call)
    ours_s, ours_async_s = [switch(each).total_s for each in both], [asynchronous_switch(each) for each in both]
    return {other: (seconds / ours_s[0], seconds / ours_s[1]) for other, seconds in synchronous.items()} | {
        other: (seconds / ours_async_s[0], seconds / ours_async_s[1]) for other, seconds in asynchronous.items()
    }


def figures(costs: Costs | None = None) -> Iterator[tuple[str, float, str]]:
    """Yield key, value and unit of the ratios."""
    for name in ALGORITHMS:
        setting = setting_of(name, costs or Costs())
        for key, unit in (
            ("sync_over_ps", "x, model"),
            ("sync_over_ring", "x, model"),
            ("async_over_ps", "x for as many gradients, model"),
        ):
            yield f"cluster.{name}.{key}", ratio(key, setting), unit


def draw(costs: Costs, path: Path) -> None:
    """Draw the phases of each system, one panel for each algorithm."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(ALGORITHMS), figsize=(14, 3.6), sharey=True)
    for panel, name in zip(panels, ALGORITHMS, strict=True):
        found = [run(setting_of(name, costs)) for run in SYSTEMS.values()]
        left_ms = [0.0] * len(found)
        for part in Phases._fields:
            widths_ms = [1e3 * getattr(phases, part) for phases in found]
            panel.barh(list(SYSTEMS), widths_ms, left=left_ms, label=part.removesuffix("_s"))
            left_ms = [left + width for left, width in zip(left_ms, widths_ms, strict=True)]
        for row, total_ms in enumerate(left_ms):
            panel.text(total_ms, row, f" {total_ms:.3g}", va="center", fontsize="small")
        panel.set(title=name.upper(), xlabel="ms an iteration, modelled", xlim=(0, 1.15 * max(left_ms)))
    panels[0].invert_yaxis()
    panels[0].legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(
    out: Annotated[Path | None, typer.Option(help="A picture of the iterations to write.")] = None,
    rtl: Annotated[bool, typer.Option("--rtl", help="Also sum at the compiled RTL, and print the difference.")] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            exists=True,
            dir_okay=False,
            help="Print only the ratios, with measured costs, such as docs/cluster_costs.json.",
        ),
    ] = None,
) -> None:
    """Print the tables."""
    console, costs = Console(width=120, highlight=False), Costs()
    if measured:
        settings = {name: setting_of(name, costs) for name in ALGORITHMS}
        show_measured(console, settings, read(measured, {setting.size_bytes for setting in settings.values()}))
        return
    console.print("; ".join(f"{name} {value:g} ({source})" for name, value, source in describe_costs(costs)))
    found = {}
    for name, algorithm in ALGORITHMS.items():
        setting = setting_of(name, costs)
        origin = "of the paper, derived" if algorithm.compute_ms is not None else "by the paper's share, unverified"
        table = Table(
            "system", "compute", "send", "aggregate", "receive", "update", "total ms", "communication",
            "switch faster by",
            title=f"{name}, {algorithm.size_bytes / 1e3:g} KB, 4 workers, 10 GbE; time of computing {origin}",
        )  # fmt: skip
        ours_s = switch(setting).total_s
        for system, run in SYSTEMS.items():
            phases = run(setting)
            cells = [f"{1e3 * seconds:.3f}" for seconds in (*phases, phases.total_s)]
            table.add_row(system, *cells, f"{phases.share:.1%}", f"{phases.total_s / ours_s:.2f}")
        console.print(table)
        server, ours = parameter_server(setting), switch(setting)
        less = 1 - ours.communication_s / server.communication_s
        limit = server.communication_s / ours.communication_s
        console.print(
            f"over the parameter server {server.total_s / ours.total_s:.2f}, the paper {algorithm.sync_over_ps:.2f}; "
            f"communication {less:.1%} less (the paper 81.6 to 85.8 %), that is by {limit:.2f}; the paper's ratio from "
            f"{1e3 * ratio_compute_s(setting, algorithm.sync_over_ps):.3f} ms of computing downwards"
        )
        server_s, overlapped_s, ours_s = (
            asynchronous_server(setting),
            asynchronous_server(setting, overlapped=True),
            asynchronous_switch(setting),
        )
        console.print(
            f"asynchronous, as many gradients: server {1e3 * server_s:.3f} ms, overlapped {1e3 * overlapped_s:.3f} ms, "
            f"iswitch {1e3 * ours_s:.3f} ms: {server_s / ours_s:.2f} and {overlapped_s / ours_s:.2f} times; "
            f"without computing {ratio('async_over_ps', replace(setting, compute_s=0)):.2f} times; "
            f"with {MOST_WORKERS} workers {ratio('async_over_ps', replace(setting, workers=MOST_WORKERS)):.2f} times"
        )
        if rtl:
            model_s = switch(replace(setting.free_call, compute_s=0)).communication_s  # as virtual time counts
            real_s = rtl_sum_s(algorithm.size_bytes, 4, costs, rate_bps=10e9)
            console.print(f"one sum: model {1e3 * model_s:.3f} ms, RTL {1e3 * real_s:.3f}: {model_s / real_s - 1:+.1%}")
    table = Table("algorithm", "system", *map(str, WORLDS), title=f"efficiency against one worker, racks of {RACK}")
    for name in ALGORITHMS:
        setting = replace(setting_of(name, costs), rack=RACK)
        alone_s = setting.compute_s + setting.update_s
        for system in ("parameter server", "sharded server", "ring", ISWITCH):
            totals = [SYSTEMS[system](replace(setting, workers=world)).total_s for world in WORLDS]
            table.add_row(name, system, *(f"{alone_s / total_s:.2f}" for total_s in totals))
    console.print(table)
    ahead = {name: leads(setting_of(name, costs)) for name in ALGORITHMS}
    title = "times as fast as the others (in brackets: if a call of the driver took no time)"
    table = Table("", *next(iter(ahead.values())), title=title)
    for name, others in ahead.items():
        table.add_row(name, *(f"{lead:.2f} ({free:.2f})" for lead, free in others.values()))
    console.print(table)
    for key, value, _ in figures(costs):
        found[key] = value
        console.print(f"{key} {value:.2f}")
    if out:
        draw(costs, out)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
