"""Runs the demo with many seeds, and prints one row of a Markdown table for each run.

python -m sim.bench.demo_seeds 1-20
python -m sim.bench.demo_seeds 1-3 --workers 8
"""

import argparse
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["COLUMNS", "deepest_fall", "row", "seeds_of"]

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


def seeds_of(text: str) -> list[int]:
    """Return [1, 2, 3, 7] for "1-3,7".

    Raises
    ------
    argparse.ArgumentTypeError
        If the text is nothing of the kind.
    """
    seeds: list[int] = []
    for part in text.split(","):
        if not (found := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
            raise argparse.ArgumentTypeError(f"seeds are written as 1-20 or 1,5,7, not {text!r}")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    return seeds


def deepest_fall(returns: Sequence[float]) -> float:
    """Return the largest difference between a mean return and an earlier one above it."""
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


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sim.bench.demo_seeds",
        description=__doc__.splitlines()[0],
        epilog="Further options go to sim.demo, say --workers 8.",
    )
    parser.add_argument("seeds", type=seeds_of, help="1-20, or 1,5,7")
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo-seeds"), help="folder with one for each run (%(default)s)"
    )
    given, further = parser.parse_known_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    solved = 0
    for seed in given.seeds:
        out = given.out / str(seed)
        out.mkdir(parents=True, exist_ok=True)
        summary = out / "summary.json"
        summary.unlink(missing_ok=True)
        command = [sys.executable, "-m", "sim.demo", "--seed", str(seed), "--out", str(out), *further]
        with (out / "demo.log").open("w") as log:
            solved += subprocess.call(command, stdout=log, stderr=log) == 0
        failed = f"| {seed} | failed: see {out / 'demo.log'} |"
        print(row(json.loads(summary.read_text())) if summary.exists() else failed, flush=True)
    print(f"\n{solved} of {len(given.seeds)} seeds solved")
    return 0 if solved == len(given.seeds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
