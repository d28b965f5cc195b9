"""Runs the Atari play of `atari.py` with a switch: progress, and what came of it."""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from examples.apex.atari import NAIVE_BYTES, SPEC, AtariOptions, AtariProgress, play
from examples.common.command import exit_code, parse_addresses
from examples.common.processes import LaunchError
from iswitch.replay import ReplayClient

__all__ = ["launch_atari", "main"]

_TIMEOUT_S = 60.0


def launch_atari(
    options: AtariOptions,
    addresses: Sequence[str],
    out: Path,
    *,
    watch: Callable[[], None] = lambda: None,
    console: Console | None = None,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Plays with a client at addresses[0] that adds and one at the last address that draws.

    watch: called whenever something was added; may raise. notes: go into the summary. Writes `summary.json` and
    `frames.png` into `out`, and returns the summary. LaunchError if something that was drawn is not what was pushed.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    curve: list[AtariProgress] = []
    shown: dict[str, Any] = {}
    before, begin = torch.get_num_threads(), time.perf_counter()
    torch.set_num_threads(1)  # the switch has the other core
    columns = (
        TextColumn("{task.completed:,}/{task.total:,} transitions"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    try:
        with (
            ReplayClient(addresses[0], SPEC, timeout_s=_TIMEOUT_S) as actor,
            ReplayClient(addresses[-1], SPEC, timeout_s=_TIMEOUT_S) as learner,
            Progress(*columns, console=console) as bar,
        ):
            task = bar.add_task("the first transitions ...", total=options.transitions)

            def report(progress: AtariProgress, batch: dict[str, Any] | None) -> None:
                watch()
                curve.append(progress)
                shown.update(batch or {})
                bar.update(
                    task,
                    completed=progress.added,
                    description=f"{progress.bytes_each:,.0f} bytes each, "
                    f"{progress.drawn - progress.gone:,} drawn as they were pushed",
                )

            last = play(actor, learner, options, report)
            table = actor.statistics()
    except RuntimeError as error:
        raise LaunchError(str(error)) from None
    finally:
        torch.set_num_threads(before)
    summary = {
        "transitions": last.added,
        "frames": last.frames,
        "episodes": last.episodes,
        "scored": last.scored,
        "bytes_pushed": last.bytes_pushed,
        "bytes_per_transition": last.bytes_each,
        "naive_bytes_per_transition": NAIVE_BYTES,
        "times_fewer": NAIVE_BYTES / last.bytes_each,
        "frames_written": table.frames_written,
        "frames_shared": table.frames_shared,
        "rows_compared": last.drawn - last.gone,
        "rows_gone": last.gone,
        "wall_s": round(time.perf_counter() - begin, 2),
        "switch": list(addresses),
        "options": asdict(options),
        **(notes or {}),
        "curve": [asdict(point) for point in curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(curve, shown, summary, out / "frames.png")
    for what, value in (
        (
            "played",
            f"{last.frames:,} frames of {options.game}, {last.episodes} episodes: {last.added:,} transitions over {options.horizon} steps "
            "each",
        ),
        (
            "pushed",
            f"{last.bytes_each:,.0f} bytes a transition, {summary['times_fewer']:.1f} times fewer than the {NAIVE_BYTES:,} of two float32 "
            f"stacks: {table.frames_written:,} frames written, {table.frames_shared:,} times one that was there",
        ),
        (
            "drawn",
            f"{summary['rows_compared']:,} transitions, each byte as it was pushed; {last.gone} were gone meanwhile",
        ),
        ("time", f"{summary['wall_s']:.1f} s"),
        ("files", f"{out}/summary.json, {out}/frames.png"),
    ):
        console.print(Text(f"{what:>10}  {value}"), soft_wrap=True)
    return summary


def draw(curve: Sequence[AtariProgress], batch: dict[str, Any], summary: dict[str, Any], path: Path) -> None:
    """A transition that was drawn, and bytes over transitions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    stacks = [*batch["observation"][0], *batch["next_observation"][0]]
    figure = pyplot.figure(figsize=(7, 5.2), layout="constrained")
    grid = figure.add_gridspec(3, 4, height_ratios=(1, 1, 1.6))
    for place, frame in enumerate(stacks):
        axes = figure.add_subplot(grid[place // 4, place % 4])
        axes.imshow(frame, cmap="gray", vmin=0, vmax=255)
        axes.set_axis_off()
        if place % 4 == 0:
            axes.set_title(
                ("observation" if place < 4 else f"{summary['options']['horizon']} steps later") + ", as drawn",
                loc="left",
                fontsize=9,
            )
    axes = figure.add_subplot(grid[2, :])
    added = np.array([point.added for point in curve])
    axes.plot(
        added,
        added * NAIVE_BYTES,
        color="tab:gray",
        linestyle="--",
        label=f"two float32 stacks each: {NAIVE_BYTES:,} bytes",
    )
    axes.plot(
        added,
        [point.bytes_pushed for point in curve],
        label=f"pushed: {summary['bytes_per_transition']:,.0f} bytes each",
    )
    axes.set(xlabel="transitions", ylabel="bytes", yscale="log", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.apex.atari_launch", description=__doc__)
    parser.add_argument(
        "--switch",
        default="127.0.0.1:27000-27001",
        metavar="HOST:PORT[-PORT][,...]",
        help="addresses of the switch (%(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo-atari"), help="folder for summary and picture (%(default)s)"
    )
    for field in fields(AtariOptions):
        parser.add_argument(
            "--" + field.name.replace("_", "-"), type=type(field.default), default=field.default, help="(%(default)s)"
        )
    given = vars(parser.parse_args(arguments))
    addresses, out = parse_addresses(given.pop("switch")), given.pop("out")
    return exit_code(lambda: launch_atari(AtariOptions(**given), addresses, out))


if __name__ == "__main__":
    raise SystemExit(main())
