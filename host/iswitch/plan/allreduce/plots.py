"""Plots of schedules and of training, as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Schedule

__all__ = ["plot_learning", "plot_links", "plot_rounds"]


def plot_links(network: Network, schedules: Sequence[Schedule], path: Path) -> None:
    """Plot the directed links in use in each round, a line for each schedule. The dashed line is all links."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for schedule in schedules:
        used = schedule.links_in_use()
        axes.step(range(len(used) + 1), [*used, 0], where="post", label=f"{schedule.name}: {schedule.length} rounds")
    axes.axhline(len(network.links), color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="round", ylabel="directed links in use", ylim=(0, None), xlim=(0, None))
    axes.legend()
    figure.savefig(path, dpi=120)


def plot_rounds(names: Sequence[str], bounds: Sequence[int], rounds: Mapping[str, Sequence[int]], path: Path) -> None:
    """Plot rounds relative to the bound for each topology, a bar for each scheduler."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(rounds)
    for at, (scheduler, counts) in enumerate(rounds.items()):
        axes.bar(
            [place + at * width for place in range(len(names))],
            [count / bound for count, bound in zip(counts, bounds)],
            width,
            label=scheduler,
        )
    axes.axhline(1, color="grey", linestyle="--", linewidth=1)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(names))], names, rotation=45, ha="right")
    axes.set(ylabel="rounds / bound", ylim=(0.8, None))
    axes.legend()
    figure.savefig(path, dpi=120)


def plot_learning(history: Sequence[dict[str, float]], bounds: dict[str, int], path: Path) -> None:
    """Plot mean rounds relative to the bound over the iterations, a line for each topology of the training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, bound in bounds.items():
        axes.plot([step[name] / bound for step in history], label=name, linewidth=1)
    axes.axhline(1, color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="iteration", ylabel="mean rounds / bound")
    axes.legend()
    figure.savefig(path, dpi=120)
