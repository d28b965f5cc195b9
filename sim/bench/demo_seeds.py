"""Runs the demo with many seeds, and prints one row of a Markdown table for each run.

python -m sim.bench.demo_seeds 1-20
python -m sim.bench.demo_seeds 1-3 --workers 8
"""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["COLUMNS", "app", "deepest_fall", "parse_seeds", "row"]

COLUMNS = (
    "seed",
    "mean of 20 greedy episodes",
    "worst",
    "deepest fall of the curve",
    "environment steps",
    "allreduces",
    "training s",
    "`weights_sha256`",
)


def parse_seeds(text: str) -> list[int]:
    """Return [1, 2, 3, 7] for "1-3,7".

    Raises
    ------
    typer.BadParameter
        If the text has another form.
    """
    seeds: list[int] = []
    for part in text.split(","):
        if not (found := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
            raise typer.BadParameter(f"seeds are written as 1-20 or 1,5,7, not {text!r}")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    return seeds


def deepest_fall(returns: Sequence[float]) -> float:
    """Return the largest difference between a mean return and an earlier, larger one."""
    return max(best - now for best, now in zip(itertools.accumulate(returns, max), returns))


def row(summary: dict[str, Any]) -> str:
    """Return the row of a run, given its `summary.json`."""
    fall = deepest_fall([point["mean_return"] for point in summary["curve"]])
    cells = (
        f"{summary['seed']}",
        f"{summary['mean_reward_eval']:.1f}",
        f"{min(summary['rewards_eval']):.0f}",
        f"{fall:.1f}",
        f"{summary['environment_steps']:,}",
        f"{summary['allreduces']:,}",
        f"{summary['train_s']:.0f}",
        f"`{summary['weights_sha256'][0][:16]}...`",
    )
    return f"| {' | '.join(cells)} |"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def main(
    context: typer.Context,
    seeds: Annotated[str, typer.Argument(help="Seeds: 1-20, or 1,5,7.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder that gets one folder for each run.")] = Path(
        "build/demo-seeds"
    ),
) -> None:
    """Run the demo with each seed, and print one row of a Markdown table for each run.

    Further options go to sim.demo, such as --workers 8. The exit status is 1 if a run did not solve CartPole.
    """
    numbers = parse_seeds(seeds)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    solved = 0
    for seed in numbers:
        folder = out / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        summary = folder / "summary.json"
        summary.unlink(missing_ok=True)
        command = [sys.executable, "-m", "sim.demo", "--seed", str(seed), "--out", str(folder), *context.args]
        with (folder / "demo.log").open("w") as log:
            solved += subprocess.call(command, stdout=log, stderr=log) == 0
        failed = f"| {seed} | failed: see {folder / 'demo.log'} |"
        print(row(json.loads(summary.read_text())) if summary.exists() else failed, flush=True)
    print(f"\n{solved} of {len(numbers)} seeds solved")
    raise typer.Exit(0 if solved == len(numbers) else 1)


if __name__ == "__main__":
    app()
