"""The display of a PPO training: lines while it runs, its learning curve, and its results."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.common.progress import Progress

__all__ = ["Display", "draw_curve", "print_results"]


class Display:
    """Prints some of the reports. On a terminal, a last line shows the latest report.

    Parameters
    ----------
    console : Console
        Where to print.
    updates : int, optional
        Most updates of the training, if they are known.
    interval : int
        Updates between two lines that stay.
    """

    def __init__(self, console: Console, updates: int | None = None, *, interval: int = 5) -> None:
        self.console, self.updates, self.interval = console, updates, interval
        self.last: Progress | None = None
        self.live = Live(Text("the workers start ..."), console=console, transient=True)

    def __enter__(self) -> "Display":
        self.console.print(
            f"{'update':>10} {'steps':>9} {'mean return':>12} {'allreduces':>11} {'per s':>6} {'time':>8}"
        )
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.last and self.last.update % self.interval:
            self.console.print(self._line(self.last))
        if self.console.is_terminal:
            self.live.stop()

    def _line(self, now: Progress) -> Text:
        update = f"{now.update}/{self.updates}" if self.updates else f"{now.update:,}"
        without = f"   without rank {', '.join(map(str, now.missing))}" if now.missing else ""
        return Text(
            f"{update:>10} {now.steps:>9,} {now.mean_return:>12.1f} {now.allreduces:>11,} "
            f"{now.allreduces / now.seconds:>6.0f} {now.seconds:>6.1f} s{without}"
        )

    def show(self, now: Progress) -> None:
        """Show a report. If other ranks are missing than before, its line stays."""
        changed = self.last is not None and self.last.missing != now.missing
        self.last = now
        if now.update % self.interval == 0 or changed:
            self.console.print(self._line(now))
        self.live.update(self._line(now))


def draw_curve(curve: list[Progress], summary: dict[str, Any], path: Path) -> None:
    """Draw the learning curve into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    options = summary["options"]
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    axes.plot(
        [point.steps for point in curve],
        [point.mean_return for point in curve],
        label=f"training, latest {options['solved_episodes']} episodes",
    )
    levels = [point.mean_return for point in curve]
    if summary["rewards_eval"]:
        mean_return, episodes = summary["mean_reward_eval"], len(summary["rewards_eval"])
        label = f"evaluation, {episodes} episodes: {mean_return:.0f}"
        axes.axhline(mean_return, color="tab:green", linestyle="--", label=label)
        levels.append(mean_return)
    if not math.isnan(solved := options["solved_return"]):
        axes.axhline(solved, color="gray", linestyle=":", label=f"solved: {solved:g}")
        levels.append(solved)
    axes.set(
        xlabel="environment steps of all workers",
        ylabel="mean return",
        xlim=(0, None),
        ylim=(0, 1.06 * max(levels)) if min(levels) >= 0 < max(levels) else None,
        title=f"{options['environment']}: {summary['workers']} workers, "
        f"{summary['allreduces']:,} allreduces by the switch",
    )
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def print_results(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print the results of a training, and advice if the environment is not solved."""
    rewards, options = np.array(summary["rewards_eval"]), summary["options"]
    counters = summary["switch_counters"]
    if summary["contributions_expected"]:
        share = f"({summary['workers']} workers x {summary['segments']:,} segments)"
    else:
        share = f"(evictions of workers: {counters.get('EVICTED', 0)}, admissions: {counters.get('ADMITTED', 0)})"
    verdict = "solved" if summary["solved"] else "NOT SOLVED"
    for label, text in (
        (
            "evaluation",
            f"mean return {rewards.mean():.1f} of {rewards.size} unseen episodes "
            f"(worst {rewards.min():.0f}): {verdict}, the threshold is {options['solved_return']:g}",
        ),
        ("weights", f"the same on all {summary['workers']} workers, sha256 {summary['weights_sha256'][0][:16]}..."),
        (
            "switch",
            f"{summary['contributions_accepted']:,} contributions added, each exactly once {share}; "
            f"{counters.get('DUPLICATE', 0):,} retransmissions ignored (normal while a worker waits)",
        ),
        (
            "time",
            f"{summary['train_s']:.1f} s, of them {summary['allreduce_s']:.1f} s in {summary['allreduces']:,} "
            f"allreduces ({summary['allreduce_ms']:.1f} ms each, waiting for the slowest included)",
        ),
        ("files", ", ".join(f"{out}/{name}" for name in ("policy.npz", "summary.json", "learning_curve.png"))),
    ):
        console.print(Text(f"{label:>10}  {text}"), soft_wrap=True)
    if not summary["solved"]:
        console.print(
            Text(
                f"The policy does not solve {options['environment']}: its mean return of {rewards.mean():.1f} is below "
                f"{options['solved_return']:g}. Training depends on chance. Try another seed "
                f"(--seed {options['seed'] + 1}), or train for longer "
                f"(--total-steps {2 * options['total_steps']}).",
                style="red",
            ),
            soft_wrap=True,
        )
