"""The display of an Ape-X training: lines while it runs, its curves, and its results."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.common.apex_progress import ActorProgress, LearnerProgress

__all__ = ["Display", "draw_curves", "print_results"]


class Display:
    """Prints a line for each evaluation. On a terminal, a last line shows the latest report.

    "actors" is the mean return of the actors, which explore; "greedy" is that of the evaluation.

    Parameters
    ----------
    console : Console
        Where to print.
    steps : int
        Most steps of the learner.
    """

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps = console, steps
        self.actors: dict[int, ActorProgress] = {}
        self.live = Live(Text("the actors and the learner start ..."), console=console, transient=True)

    def __enter__(self) -> "Display":
        self.console.print(
            f"{'step':>11} {'added':>8} {'sampled':>9} {'in table':>8} {'loss':>6} {'actors':>7} {'greedy':>7} "
            f"{'time':>8}",
            highlight=False,
        )
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def _line(self, now: LearnerProgress) -> Text:
        returns = [actor.mean_return for actor in self.actors.values() if actor.episodes]
        actors = f"{sum(returns) / len(returns):.1f}" if returns else ""
        evaluation = "" if now.mean_return is None else f"{now.mean_return:.1f}"
        return Text(
            f"{f'{now.step}/{self.steps}':>11} {now.adds:>8,} {now.samples:>9,} {now.size:>8,} {now.loss:>6.2f} "
            f"{actors:>7} "
            f"{evaluation:>7} {now.seconds:>6.1f} s"
        )

    def show_learner(self, now: LearnerProgress) -> None:
        """Show a report of the learner. If it evaluated, its line stays."""
        if now.returns:
            self.console.print(self._line(now))
        self.live.update(self._line(now))

    def show_actor(self, now: ActorProgress) -> None:
        """Keep a report of an actor for the next line."""
        self.actors[now.rank] = now


def draw_curves(summary: dict[str, Any], path: Path) -> None:
    """Draw returns, items and priorities into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curve, actors, start = summary["curve"], summary["actors_curve"], summary["adds_before"]
    figure, (above, below) = pyplot.subplots(2, figsize=(7, 6.4), layout="constrained")
    steps_of, curves = dict[int, int](), dict[int, list[tuple[int, float]]]()
    for point in actors:
        steps_of[point["rank"]] = point["steps"]
        curves.setdefault(point["rank"], []).append((sum(steps_of.values()), point["mean_return"]))
    for rank, points in sorted(curves.items()):
        above.plot(
            *zip(*points), color="tab:blue", alpha=0.35, label=None if rank else "actors, latest episodes of each"
        )
    evaluations = [point for point in curve if point["returns"]]
    steps = [point["adds"] - start for point in evaluations]
    above.fill_between(
        steps,
        [min(point["returns"]) for point in evaluations],
        [max(point["returns"]) for point in evaluations],
        color="tab:orange",
        alpha=0.2,
    )
    above.plot(
        steps,
        [np.mean(point["returns"]) for point in evaluations],
        color="tab:orange",
        label="learner, greedy (mean, worst, best)",
    )
    above.axhline(
        summary["mean_reward_eval"],
        color="tab:green",
        linestyle="--",
        label=f"evaluation, {len(summary['rewards_eval'])} episodes: {summary['mean_reward_eval']:.0f}",
    )
    above.set(
        xlabel="environment steps of all actors",
        ylabel="return",
        xlim=(0, None),
        ylim=(0, None),
        title=f"{summary['options']['environment']}: {summary['actors']} actors, {summary['learner_steps']:,} "
        "batches of "
        f"{summary['options']['batch_size']} sampled by the switch",
    )
    above.legend()
    seconds = [point["seconds"] for point in curve]
    for name, label in (("adds", "added"), ("samples", "sampled"), ("size", "in the table")):
        below.plot(seconds, [point[name] for point in curve], label=label)
    below.set(xlabel="seconds", ylabel="items", xlim=(0, None), yscale="log")
    beside = below.twinx()
    priorities = [point["priority_sum"] / max(1, point["size"]) for point in curve]
    beside.plot(seconds, priorities, color="tab:gray", linestyle=":", label="mean priority (right)")
    beside.set(ylim=(0, None))
    lines = [*below.get_lines(), *beside.get_lines()]
    below.legend(lines, [line.get_label() for line in lines], loc="lower right")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def print_results(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print the results of a training."""
    rewards, outcomes = np.array(summary["rewards_eval"]), summary["outcomes"]
    waited = {name: outcomes[name] for name in ("TICKET", "ITEMS", "RATE") if outcomes.get(name)}
    sent = summary["bytes_sent"] / max(1, summary["items_added"])
    duplicates = outcomes.get("REPEATED", 0) + outcomes.get("OLD", 0)
    for label, text in (
        (
            "evaluation",
            f"mean return {rewards.mean():.1f} of {rewards.size} episodes (worst {rewards.min():.0f}), after "
            f"{summary['learner_steps']:,} steps of the learner and {summary['environment_steps']:,} of the actors",
        ),
        (
            "weights",
            f"sha256 {summary['weights_sha256'][:16]}..., from {summary['items_sampled']:,} samples with sha256 "
            f"{summary['samples_sha256'][:16]}...",
        ),
        (
            "switch",
            f"{summary['items_added']:,} transitions added, each exactly once, {sent:.0f} bytes each; stale "
            "priorities: "
            f"{summary['updates_stale']}; duplicate requests: {duplicates:,}, requests deferred: "
            f"{', '.join(f'{count:,} ({name})' for name, count in waited.items()) or 0}",
        ),
        (
            "time",
            f"{summary['learn_s']:.1f} s, {summary['learner_steps'] / summary['learn_s']:.0f} batches of "
            f"{summary['options']['batch_size']} a second",
        ),
        ("files", f"{out}/summary.json, {out}/learning_curve.png"),
    ):
        console.print(Text(f"{label:>10}  {text}"), soft_wrap=True)
