"""The work of `iswitch report`: check the files, sample the switch, ask the doctor, write the page."""

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from iswitch.control.client import Control
from iswitch.report.numbers import short_number
from iswitch.report.training import Training, TrainingFilesError, read_trainings
from iswitch.tools.doctor import examine
from iswitch.tools.path_checks import Finding
from iswitch.tools.report_page import page
from iswitch.tools.report_sampling import Sampling, take_samples
from iswitch.tools.report_series import intervals

__all__ = ["check_files", "write_report"]

Doctor = Callable[[str], Iterator[Finding]]


def check_files(out: Path, training: Path | None) -> None:
    """Check, before a switch is sampled for long, that the page can be written and that the training can be read.

    Raises
    ------
    OSError, ValueError
        If a file or a folder is missing or wrong. The message says what helps.
    """
    if out.is_dir():
        raise ValueError(f"--out: {out} is a folder: give the name of a file")
    if not out.parent.is_dir():
        raise ValueError(f"--out: there is no folder {out.parent}: make the folder first, or name another file")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise ValueError(f"--out: {out} cannot be written: name a file in a folder in which you may write")
    if training is not None:
        read_trainings(training)


def write_report(
    control: Control,
    *,
    seconds: float,
    interval_s: float,
    out: Path,
    training: Path | None,
    console: Console,
    doctor: Doctor = examine,
) -> Sampling:
    """Sample a switch, and write the page. Ctrl-C ends the sampling, and then the examination, and the page is written.

    Parameters
    ----------
    control : Control
        Connection to the switch.
    seconds, interval_s : float
        Length of the sampling, and seconds between two samples.
    out : Path
        The file to write.
    training : Path or None
        Folder of a training, or of several ones, that the page shows.
    console : Console
        Shows the progress.
    doctor : callable
        Examines the switch, given its address.

    Returns
    -------
    Sampling
        What was sampled.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer at the start.
    OSError, ValueError
        If a file is missing or wrong, or a time is not finite.
    """
    if not (math.isfinite(seconds) and math.isfinite(interval_s)):
        raise ValueError("--seconds and --interval must be finite: Ctrl-C ends a long sampling, and writes the page")
    check_files(out, training)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[shown]}")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("sampling", total=max(seconds, 1e-9), shown="Ctrl-C ends it and writes the page")

        def on_sample(sampling: Sampling) -> None:
            progress.update(task, completed=time.monotonic() - sampling.start_s, shown=_describe(sampling))

        sampling = take_samples(control, seconds=seconds, interval_s=interval_s, on_sample=on_sample)
        progress.update(task, completed=max(seconds, 1e-9), description="examining", shown="iswitch doctor")
        findings, remarks = _examine(doctor, control.address)
    trainings, more = _read_trainings(training)
    out.write_text(page(sampling, findings, trainings, [*remarks, *more]), encoding="utf-8")
    return sampling


def _describe(sampling: Sampling) -> str:
    """Return what the progress shows beside its bar."""
    if sampling.silences and sampling.silences[-1] > sampling.at(sampling.samples[-1]):
        return f"{len(sampling.samples)} samples; the switch does not answer now"
    if steps := intervals(sampling, last=2):
        rise, seconds = steps[-1].rises, steps[-1].seconds
        return f"{len(sampling.samples)} samples; results {short_number(rise['RESULTS'] / seconds)}/s"
    return "1 sample"


def _examine(doctor: Doctor, address: str) -> tuple[list[Finding], list[str]]:
    """Return the findings of the doctor, and a remark if Ctrl-C ended the examination."""
    findings: list[Finding] = []
    try:
        for finding in doctor(address):
            findings.append(finding)
    except OSError as error:
        return findings, [f"The examination by the doctor ended with an error: {error}"]
    except KeyboardInterrupt:
        return findings, ["Ctrl-C ended the examination by the doctor early."]
    return findings, []


def _read_trainings(folder: Path | None) -> tuple[list[Training], list[str]]:
    """Read the trainings again, which may have gone on meanwhile; and return a remark if a file is wrong now."""
    if folder is None:
        return [], []
    try:
        return read_trainings(folder), []
    except (TrainingFilesError, OSError) as error:
        return [], [f"The training could not be read at the end: {error}"]
