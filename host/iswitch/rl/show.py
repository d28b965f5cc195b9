"""What a training looks like: lines while it runs, its learning curve, and what came of it."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from iswitch.rl.training import Options, Progress

__all__ = ["Display", "draw", "tell"]

_LINE_EVERY = 10


class Display:
    """A line for every tenth update, and one that changes below them if this is a terminal."""

    def __init__(self, options: Options, console: Console) -> None:
        self.options, self.console = options, console
        self.last: Progress | None = None
        self.live = Live(Text("the workers start ..."), console=console, transient=True)

    def __enter__(self) -> "Display":
        self.console.print(f"{'update':>10} {'steps':>9} {'mean return':>12} {'allreduces':>11} {'per s':>6} {'time':>8}")
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.last and self.last.update % _LINE_EVERY:
            self.console.print(self.line(self.last))
        if self.console.is_terminal:
            self.live.stop()

    def line(self, now: Progress) -> Text:
        without = f"   without rank {', '.join(map(str, now.missing))}" if now.missing else ""
        return Text(f"{f'{now.update}/{self.options.updates}':>10} {now.steps:>9,} {now.mean_return:>12.1f} "
                    f"{now.allreduces:>11,} {now.allreduces / now.seconds:>6.0f} {now.seconds:>6.1f} s{without}")

    def show(self, now: Progress) -> None:
        news = self.last is not None and self.last.missing != now.missing
        self.last = now
        if now.update % _LINE_EVERY == 0 or news:
            self.console.print(self.line(now))
        self.live.update(self.line(now))


def draw(curve: list[Progress], summary: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    axes.plot([point.steps for point in curve], [point.mean_return for point in curve], label="training, latest episodes")
    axes.axhline(summary["mean_reward_eval"], color="tab:green", linestyle="--",
                 label=f"evaluation, {len(summary['rewards_eval'])} episodes: {summary['mean_reward_eval']:.0f}")
    axes.set(xlabel="environment steps of all workers", ylabel="return", xlim=(0, None), ylim=(0, None),
             title=f"{summary['options']['environment']}: {summary['workers']} workers, "
                   f"{summary['allreduces']:,} allreduces by the switch")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def tell(summary: dict[str, Any], out: Path, console: Console) -> None:
    rewards = np.array(summary["rewards_eval"])
    counters = summary["switch_counters"]
    retries = counters.get("DUPLICATE", 0)
    share = f"({summary['workers']} workers x {summary['segments']:,} segments)" if summary["contributions_expected"] else (
        f"(workers put out: {counters.get('EVICTED', 0)}, times that newcomers were let in: {counters.get('ADMITTED', 0)})")
    for what, value in (
            ("evaluation", f"mean return {rewards.mean():.1f} of {rewards.size} episodes (worst {rewards.min():.0f})"),
            ("weights", f"the same on all {summary['workers']} workers, sha256 {summary['weights_sha256'][0][:16]}..."),
            ("switch", f"{summary['contributions_accepted']:,} contributions added, each exactly once {share}; "
                       f"{retries:,} came more than once"),
            ("time", f"{summary['train_s']:.1f} s, of them {summary['allreduce_s']:.1f} s in {summary['allreduces']:,} "
                     f"allreduces ({summary['allreduce_ms']:.1f} ms each, waiting for the slowest included)"),
            ("files", f"{out}/summary.json, {out}/learning_curve.png")):
        console.print(Text(f"{what:>10}  {value}"), soft_wrap=True)
