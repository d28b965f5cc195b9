"""Read what a training of `examples/torchrun` writes: `progress.csv` while it runs, `summary.json` at its end."""

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Point", "Training", "TrainingFilesError", "read_trainings"]

_CURVE, _SUMMARY = "progress.csv", "summary.json"
_PARTS = ("environment", "compute", "aggregation")
_QUANTILES = ("p50", "p99")


class TrainingFilesError(ValueError):
    """The folder of a training has no file with its progress, or a file has another content."""


class Point(NamedTuple):
    """A report of a training.

    Attributes
    ----------
    update, steps : int
        Updates of the weights, and environment steps of all workers, so far.
    mean_return : float
        Mean return of the latest episodes.
    seconds : float
        Seconds since the start.
    parts : dict of str to float
        Seconds since the start by part: "environment", "compute" and "aggregation". Empty if they are not recorded.
    latency_ms : dict of str to float
        Quantiles "p50" and "p99" of the latencies of rank 0's AllReduces since the report before, in milliseconds.
        Empty if they are not recorded, as in an asynchronous training.
    """

    update: int
    steps: int
    mean_return: float
    seconds: float
    parts: dict[str, float]
    latency_ms: dict[str, float]


@dataclass
class Training:
    """What the files of a training say.

    Attributes
    ----------
    name : str
        Name of the folder.
    curve : list of Point
        Its reports, in order.
    split : dict of str to float
        Seconds by part, of the whole training; empty if they are not recorded.
    facts : dict of str to str
        What else is known, for people.
    """

    name: str
    curve: list[Point]
    split: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def aggregation_ms(self) -> list[tuple[float, float | None]]:
        """By the seconds of each report but the first: mean milliseconds of aggregation in an update since the report
        before it. Empty if they are not recorded."""
        found: list[tuple[float, float | None]] = []
        for before, point in itertools.pairwise(self.curve):
            updates = point.update - before.update
            if updates > 0 and "aggregation" in point.parts:
                spent_s = point.parts["aggregation"] - before.parts["aggregation"]
                found.append((point.seconds, 1e3 * spent_s / updates))
        return found


def read_trainings(folder: Path) -> list[Training]:
    """Read the training of a folder. If the folder holds none, read those of the folders in it.

    Parameters
    ----------
    folder : Path
        Folder that the option `--out` of a training names, or a folder of such folders.

    Returns
    -------
    list of Training
        At least one.

    Raises
    ------
    TrainingFilesError
        If there is no training, or a file has another content.
    OSError
        If a file cannot be read.
    """
    if not folder.is_dir():
        raise TrainingFilesError(
            f"--training: there is no folder {folder}: give the folder that --out of the training names"
        )
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    folders = [folder] if _has_training(folder) else [path for path in inner if _has_training(path)]
    if not folders:
        raise TrainingFilesError(
            f"--training: {folder} holds neither {_CURVE} nor {_SUMMARY}, and no folder in it does: give the folder "
            "that --out of a training of examples/torchrun names. The training writes its first report after "
            "`--report-interval` updates"
        )
    return [_read(path) for path in folders]


def _has_training(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (_CURVE, _SUMMARY))


def _read(folder: Path) -> Training:
    curve_file, summary_file = folder / _CURVE, folder / _SUMMARY
    curve = _read_curve(curve_file) if curve_file.is_file() else None
    training = Training(folder.resolve().name, curve or [])
    if summary_file.is_file():
        summary, finished = _read_summary(summary_file)
        if curve is None:
            training.curve = finished
        # A training that runs has replaced `progress.csv`, but the summary is still that of the training before.
        last, end = training.curve[-1:], finished[-1:]
        if curve is None or [point[:4] for point in last] == [point[:4] for point in end]:
            training.facts = _facts(summary)
            seconds = summary.get("seconds")
            training.split = {part: float(seconds[part]) for part in _PARTS if part in seconds} if seconds else {}
    if not training.split and training.curve:
        training.split = dict(training.curve[-1].parts)
    return training


def _read_curve(path: Path) -> list[Point]:
    """Read the reports of a training, which may be writing the last line just now."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return _points(path, csv.DictReader(io.StringIO(whole)))


def _read_summary(path: Path) -> tuple[dict[str, Any], list[Point]]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TrainingFilesError(f"--training: {path} is not JSON: {error}. Give the folder of a training") from None
    if not (isinstance(summary, dict) and isinstance(summary.get("curve"), list)):
        raise TrainingFilesError(
            f"--training: {path} has no `curve`: give the folder of a training of examples/torchrun"
        )
    return summary, _points(path, summary["curve"])


def _points(path: Path, rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    try:
        return [
            Point(
                int(row["update"]),
                int(row["steps"]),
                float(row["mean_return"]),
                float(row["seconds"]),
                {part: float(row[f"{part}_s"]) for part in _PARTS if f"{part}_s" in row},
                {name: float(row[f"latency_{name}_ms"]) for name in _QUANTILES if row.get(f"latency_{name}_ms")},
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingFilesError(
            f"--training: {path} has other columns or values than a training of examples/torchrun writes "
            f"({type(error).__name__}: {error}): give the folder of such a training"
        ) from None


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what the summary of a finished training says, as far as the training has written it."""
    facts = {}
    options = summary.get("options")
    if isinstance(options, dict) and "environment" in options:
        facts["environment"] = str(options["environment"])
    for key, name in (("workers", "workers"), ("gradient_bytes", "bytes of a gradient")):
        if isinstance(summary.get(key), int):
            facts[name] = f"{summary[key]:,}"
    reward = summary.get("mean_reward_eval")
    if isinstance(reward, (int, float)) and not math.isnan(reward):
        facts["evaluation"] = f"{reward:,.1f}"
    return facts
