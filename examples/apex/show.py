"""What an Ape-X training looks like: lines while it runs, its curves, and what came of it."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.apex.actor import ActorProgress
from examples.apex.learner import LearnerProgress
from examples.apex.options import Options

__all__ = ["Display", "draw", "tell"]


class Display:
    """A line for every evaluation, and one that changes below them if this is a terminal: what actors play with their
    own randomness, and the learner without any."""

    def __init__(self, options: Options, console: Console) -> None:
        self.options, self.console = options, console
        self.actors: dict[int, ActorProgress] = {}
        self.live = Live(Text("the actors and the learner start ..."), console=console, transient=True)

    def __enter__(self) -> "Display":
        self.console.print(
            f"{'step':>11} {'added':>8} {'drawn':>9} {'in table':>8} {'loss':>6} {'actors':>7} {'greedy':>7} {'time':>8}",
            highlight=False,
        )
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def line(self, now: LearnerProgress) -> Text:
        played = [each.mean_return for each in self.actors.values() if each.episodes]
        actors = f"{sum(played) / len(played):.1f}" if played else ""
        evaluation = "" if now.mean_return is None else f"{now.mean_return:.1f}"
        return Text(
            f"{f'{now.step}/{self.options.steps}':>11} {now.adds:>8,} {now.draws:>9,} {now.filled:>8,} {now.loss:>6.2f} {actors:>7} "
            f"{evaluation:>7} {now.seconds:>6.1f} s"
        )

    def learner(self, now: LearnerProgress) -> None:
        if now.returns:
            self.console.print(self.line(now))
        self.live.update(self.line(now))

    def actor(self, now: ActorProgress) -> None:
        self.actors[now.rank] = now


def draw(summary: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curve, actors, start = summary["curve"], summary["actors_curve"], summary["adds_before"]
    figure, (above, below) = pyplot.subplots(2, figsize=(7, 6.4), layout="constrained")
    played, own = dict[int, int](), dict[int, list[tuple[int, float]]]()
    for point in actors:
        played[point["rank"]] = point["steps"]
        own.setdefault(point["rank"], []).append((sum(played.values()), point["mean_return"]))
    for rank, points in sorted(own.items()):
        above.plot(
            *zip(*points), color="tab:blue", alpha=0.35, label=None if rank else "actors, latest episodes of each"
        )
    tried = [point for point in curve if point["returns"]]
    steps = [point["adds"] - start for point in tried]
    above.fill_between(
        steps,
        [min(point["returns"]) for point in tried],
        [max(point["returns"]) for point in tried],
        color="tab:orange",
        alpha=0.2,
    )
    above.plot(
        steps,
        [np.mean(point["returns"]) for point in tried],
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
        title=f"{summary['options']['environment']}: {summary['actors']} actors, {summary['learner_steps']:,} batches of "
        f"{summary['options']['batch']} drawn by the switch",
    )
    above.legend()
    seconds = [point["seconds"] for point in curve]
    for name, label in (("adds", "added"), ("draws", "drawn"), ("filled", "in the table")):
        below.plot(seconds, [point[name] for point in curve], label=label)
    below.set(xlabel="seconds", ylabel="items", xlim=(0, None), yscale="log")
    beside = below.twinx()
    priorities = [point["total"] / max(1, point["filled"]) for point in curve]
    beside.plot(seconds, priorities, color="tab:gray", linestyle=":", label="mean priority (right)")
    beside.set(ylim=(0, None))
    lines = [*below.get_lines(), *beside.get_lines()]
    below.legend(lines, [line.get_label() for line in lines], loc="lower right")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def tell(summary: dict[str, Any], out: Path, console: Console) -> None:
    rewards, fates = np.array(summary["rewards_eval"]), summary["fates"]
    waited = {name: fates[name] for name in ("TICKET", "ITEMS", "RATE") if fates.get(name)}
    pushed = summary["bytes_pushed"] / max(1, summary["items_added"])
    again = fates.get("REPEATED", 0) + fates.get("OLD", 0)
    for what, value in (
        (
            "evaluation",
            f"mean return {rewards.mean():.1f} of {rewards.size} episodes (worst {rewards.min():.0f}), after "
            f"{summary['learner_steps']:,} steps of the learner and {summary['environment_steps']:,} of the actors",
        ),
        (
            "weights",
            f"sha256 {summary['weights_sha256'][:16]}..., by {summary['items_drawn']:,} draws with sha256 "
            f"{summary['drawn_sha256'][:16]}...",
        ),
        (
            "switch",
            f"{summary['items_added']:,} transitions added, each exactly once, {pushed:.0f} bytes each; priorities too late: "
            f"{summary['updates_stale']}; requests that came more than once: {again:,}, that were asked to wait: "
            f"{', '.join(f'{count:,} ({name})' for name, count in waited.items()) or 0}",
        ),
        (
            "time",
            f"{summary['learn_s']:.1f} s, {summary['learner_steps'] / summary['learn_s']:.0f} batches of "
            f"{summary['options']['batch']} a second",
        ),
        ("files", f"{out}/summary.json, {out}/learning_curve.png"),
    ):
        console.print(Text(f"{what:>10}  {value}"), soft_wrap=True)
