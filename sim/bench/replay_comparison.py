"""`python -m sim.bench.replay_comparison`: replay in the switch beside a Redis-style server and the learner's memory.

1 to 8 actors and a learner at 40 GbE, near and with 10 km of fibre before the learner. Servers and the learner's memory
are models with measured costs (`sim.bench.replay_models`, `docs/replay_costs.json`); the switch is the real client at
the compiled RTL (`sim.bench.replay_switch`, `docs/replay_switch.json`). Nothing ran on a network. The findings of
Furukawa and Matsutani (PDP 2022) stand beside the same differences between the models.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.costs import Costs
from sim.bench import replay_costs, replay_switch
from sim.bench.replay_costs import WORKLOADS, ReplayCosts, Turn
from sim.bench.replay_models import SYSTEMS, Model, Round
from sim.bench.replay_program import RATE_BPS
from sim.bench.replay_switch import ACTORS, CLIENTS, FAR_US, whole
from sim.cluster.crossover import format_size

__all__ = ["Lead", "agreement", "figures", "findings", "lead", "median_costs", "results"]

SWITCH = {"python": "switch", "sockets": "switch, client without Python"}
"""Names in the tables by client."""
STYLES = {SWITCH["python"]: ("-", 2.5), SWITCH["sockets"]: (":", 1.2)}
"""Line style and width in the picture: the switch, and the bound, which is no system."""
NEAR_OR_FAR = (0.0, FAR_US)
PLACES = {0.0: "near", FAR_US: "10 km of fibre before the learner"}
Results = dict[str, dict[int, Round]]
"""Rounds by system and number of actors."""


class Lead(NamedTuple):
    """The switch beside the best other system.

    Parameters
    ----------
    best : str
        The other system with the most samples a second.
    python, sockets : float
        How many times as many samples a second the switch serves, with the client as it is and with one whose own work
        costs nothing.
    share : float
        The share of the present client's own work at which both are equally fast. 0 or below: the switch is behind
        with any client; above 1: it is ahead with the present one.
    """

    best: str
    python: float
    sockets: float
    share: float


def median_costs(turns: list[Turn], workload: str) -> ReplayCosts:
    """Return the median of each cost of a workload."""
    found = [turn.costs for turn in turns if turn.workload == workload]

    def middle(name: str) -> Any:
        values = [getattr(costs, name) for costs in found]
        return statistics.mode(values) if name == "buffer" else statistics.median(values)

    return ReplayCosts(*map(middle, ReplayCosts._fields))


@cache
def results(workload: str, far_us: float) -> Results:
    """Return the rounds of all systems."""
    costs = median_costs(replay_costs.read(), workload)
    found = {
        name: {
            actors: Model(system, WORKLOADS[workload], costs, actors, Costs(), rate_bps=RATE_BPS, far_us=far_us).run()
            for actors in ACTORS
        }
        for name, system in SYSTEMS.items()
    }
    rows = [row for row in replay_switch.read().rounds if (row.workload, row.far_us) == (workload, far_us)]
    for client, name in SWITCH.items():
        found[name] = {
            actors: whole([row for row in rows if (row.client, row.actors) == (client, actors)]) for actors in ACTORS
        }
    return found


def lead(found: Results, actors: int) -> Lead:
    """Return the lead of the switch."""
    others = {name: found[name][actors].samples for name in SYSTEMS}
    best = max(others, key=lambda name: others[name])
    python_s, sockets_s = (found[SWITCH[client]][actors].round_s for client in CLIENTS)
    best_s = found[best][actors].round_s
    return Lead(best, best_s / python_s, best_s / sockets_s, (best_s - sockets_s) / (python_s - sockets_s))


def agreement(turns: list[Turn]) -> Iterator[tuple[str, int, Round, Round]]:
    """Yield workload, actors, the modelled and the measured round over loopback, by the medians of all turns."""
    for name in WORKLOADS:
        costs = median_costs(turns, name)
        for actors in sorted({turn.actors for turn in turns if turn.workload == name}):
            real = [turn for turn in turns if (turn.workload, turn.actors) == (name, actors)]
            push_s, sample_s, round_s = (
                statistics.median(getattr(turn, part) for turn in real) for part in ("push_s", "sample_s", "round_s")
            )
            model = Model(
                SYSTEMS["Redis"], WORKLOADS[name], costs, actors, Costs(), rate_bps=None, cores=real[0].cores
            ).run()
            yield name, actors, model, Round(push_s, 0.0, sample_s, round_s)


def findings() -> Iterator[tuple[str, str, list[float]]]:
    """Yield what the paper compares, its finding, and the same reduction in the models for each number of actors, with
    its message of 43 MiB."""
    found = results("stacks", 0.0)

    def reductions(before: str, after: str, time_s: Callable[[Round], float]) -> list[float]:
        return [1 - time_s(found[after][actors]) / time_s(found[before][actors]) for actors in ACTORS]

    redis, bypass, server = list(SYSTEMS)[:3]
    yield "kernel bypass: a push", "32.7 to 58.9 %", reductions(redis, bypass, lambda one: one.push_s)
    yield "kernel bypass: the learner's pull", "32.7 to 58.9 %", reductions(redis, bypass, lambda one: one.access_s)
    yield "memory in the server: a push", "11.7 to 28.1 %", reductions(bypass, server, lambda one: one.push_s)
    yield "memory in the server: a batch", "21.9 to 29.8 %", reductions(bypass, server, lambda one: one.sample_s)
    for name in SWITCH.values():
        yield f"{name}: a push", "", reductions(redis, name, lambda one: one.push_s)
        yield f"{name}: a batch", "", reductions(redis, name, lambda one: one.sample_s)


def figures() -> Iterator[tuple[str, float, str]]:
    """Yield key, value and unit of the leads of the switch over the best other system."""
    for name in WORKLOADS:
        for actors in ACTORS:
            one = lead(results(name, 0.0), actors)
            yield f"cluster.replay.{name}.{actors}_actors", one.python, f"x the samples/s of: {one.best}; model"
            yield f"cluster.replay.{name}.{actors}_actors.sockets", one.sockets, "x, with a client that costs nothing"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def show_workload(console: Console, name: str, far_us: float) -> None:
    """Print latency, rate and lead of all systems."""
    workload, found = WORKLOADS[name], results(name, far_us)
    title = (
        f"{name}, {PLACES[far_us]}: {workload.items} items of {workload.record_bytes:,} bytes a push. "
        "ms of a push / ms of a batch / samples a second"
    )
    table = Table("system", *(f"{actors} actors" for actors in ACTORS), title=title)
    for system, rounds in found.items():
        cells = (
            f"{milliseconds(one.push_s)} / {milliseconds(one.sample_s)} / {one.samples:,.0f}" for one in rounds.values()
        )
        table.add_row(system, *cells)
    console.print(table)
    for actors in ACTORS:
        one = lead(found, actors)
        even = f"break-even at {one.share:.0%} of the client's own work" if one.share > 0 else "no break-even"
        console.print(
            f"{actors} actor{'s' * (actors > 1)}: best other {one.best}; switch {one.python:.2f} times, without Python "
            f"{one.sockets:.2f}; {even}"
        )


def draw(path: Path) -> None:
    """Draw samples a second over the actors, a column for each workload, near above far."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, panels = pyplot.subplots(2, len(WORKLOADS), figsize=(13, 7), sharex=True, sharey="col", squeeze=False)
    for row, far_us in zip(panels, NEAR_OR_FAR, strict=True):
        for panel, name in zip(row, WORKLOADS, strict=True):
            for system, rounds in results(name, far_us).items():
                style, width = STYLES.get(system, ("-", 1.2))
                rates = [one.samples for one in rounds.values()]
                panel.plot(list(rounds), rates, style, linewidth=width, marker="o", markersize=4, label=system)
            push = f"{format_size(WORKLOADS[name].push_bytes)} a push"
            panel.set(title=f"{name}, {push}\n{PLACES[far_us]}", xscale="log", yscale="log")
            panel.set_xticks(ACTORS, [str(actors) for actors in ACTORS])
            panel.xaxis.set_minor_locator(ticker.NullLocator())
            panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_minor_locator(ticker.NullLocator())
            panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
        row[0].set_ylabel("samples a second, modelled")
    for panel in panels[-1]:
        panel.set_xlabel("actors")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="lower center", ncols=6, fontsize="small")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main(out: Annotated[Path | None, typer.Option(help="A picture of the rates to write.")] = None) -> None:
    """Print the tables."""
    console, turns = Console(width=170, highlight=False), replay_costs.read()
    recorded = replay_switch.read()
    table = Table(
        "workload", "actors", "push", "batch", "round", title="Redis over loopback: modelled by measured time"
    )
    for name, actors, model, real in agreement(turns):
        ratios = (getattr(model, part) / getattr(real, part) for part in ("push_s", "sample_s", "round_s"))
        table.add_row(name, str(actors), *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)
    for name in WORKLOADS:
        for far_us in NEAR_OR_FAR:
            show_workload(console, name, far_us)
    table = Table("less time", "the paper", *(f"{actors} actors" for actors in ACTORS), title="stacks, near")
    for what, paper, reductions in findings():
        table.add_row(what, paper, *(f"{one:.1%}" for one in reductions))
    console.print(table)
    table = Table("workload", "push", "batch", "update", title="the client's own work, us (datagrams)")
    for name, work in recorded.client.items():
        table.add_row(name, *(f"{one.spent_us:,.0f} ({one.datagrams:,})" for one in work))
    console.print(table)
    step = recorded.step_cycles
    console.print(
        f"the switch alone, a step of 512 items of 64 bytes: {step:,.0f} cycles, {1e6 * step / Costs().clock_hz:.1f} us"
    )
    if out:
        draw(out)


if __name__ == "__main__":
    typer.run(main)
