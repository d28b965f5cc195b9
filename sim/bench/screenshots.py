"""`python -m sim.bench.screenshots`: the pictures of the documentation that show pages and terminals, from real runs.

A training runs through `iswitch switch`. A second job beside it waits for one of its workers for a while. `iswitch
report` samples the switch meanwhile, and `iswitch top` shows it.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from iswitch import Worker
from sim.bench.allreduce import emulator
from sim.bench.browser import chromium_program, take_picture

__all__ = ["PICTURES", "SHOTS", "Shot"]

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs"
SWITCH = ("-m", "iswitch.tools.cli", "switch")
CLI = (sys.executable, "-m", "iswitch.tools.cli")
KEY = "1"
REPORT_S, RUN_ON_S, SILENT_S = 24, 8.0, 2.5
"""The length of the sampling; when the second job's worker falls silent in it; and for how long before `top`."""
FIRST_REPORT_S = 120
ELEMENTS = 2000


class Shot(NamedTuple):
    """A picture.

    Attributes
    ----------
    name : str
        Name of the PNG in docs/.
    page : str
        What it shows, in the folder of the runs.
    width, height : int
        Size in pixels; of a trimmed picture the most.
    dark : bool
        As a reader sees it who prefers dark pages.
    trim : bool
        Leave out what is empty above and below.
    """

    name: str
    page: str
    width: int
    height: int
    dark: bool = False
    trim: bool = False


SHOTS = (
    Shot("site.png", "site/index.html", 1280, 900),
    Shot("report.png", "report.html", 1280, 1330),
    Shot("report_dark.png", "report.html", 1280, 760, dark=True),
    Shot("top.png", "top.svg", 1000, 900, trim=True),
)


def make_runs(folder: Path, say: Callable[[str], None] = print) -> None:
    """Write what the pictures show: a training, `report.html` and `top.svg`.

    Raises
    ------
    RuntimeError
        If one of the programs fails.
    """
    training, log = folder / "a2c", folder / "training.log"
    with emulator({}, program=SWITCH) as ports, ExitStack() as stack:
        address = f"127.0.0.1:{ports[3]}"
        environment = os.environ | {"ISWITCH_ADDRESS": f"127.0.0.1:{ports[0]}", "ISWITCH_KEY": KEY}
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        command = (*torchrun, "-m", "examples.torchrun.a2c", "--out", str(training))
        pause = stack.enter_context(_second_job([f"127.0.0.1:{port}" for port in ports[1:3]]))
        say("training A2C with two workers")
        output = stack.enter_context(log.open("w"))
        trained = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        stack.callback(trained.wait)
        stack.callback(trained.terminate)
        _await(trained, training / "progress.csv", log)
        say(f"iswitch report, for {REPORT_S} seconds")
        reported = subprocess.Popen(
            [
                *CLI,
                "report",
                address,
                "--seconds",
                str(REPORT_S),
                "--out",
                folder / "report.html",
                "--training",
                training,
            ]
        )
        stack.callback(reported.wait)
        time.sleep(RUN_ON_S)
        pause.set()
        time.sleep(SILENT_S)
        say("iswitch top")
        _check([*CLI, "top", "--once", "--switch", address, "--svg", str(folder / "top.svg")])
        pause.clear()
        if reported.wait() != 0:
            raise RuntimeError("iswitch report failed; its error is above")


@contextmanager
def _second_job(addresses: list[str]) -> Iterator[threading.Event]:
    """Sum vectors in job 1, with one worker at each address, in threads. While the event is set, rank 1 is silent."""
    paused, ended = threading.Event(), threading.Event()

    def work(rank: int) -> None:
        with Worker(addresses[rank], world=len(addresses), rank=rank, job=1, key=int(KEY)) as worker:
            array, ends = np.ones(ELEMENTS, np.float32), np.zeros(1, np.float32)
            while not ends[0]:
                while rank == 1 and paused.is_set():
                    time.sleep(0.01)
                worker.allreduce(array, op="mean")
                ends[0] = ended.is_set()
                worker.allreduce(ends)  # both stop after the same sum
                time.sleep(0.02)

    with ThreadPoolExecutor() as pool:
        workers = [pool.submit(work, rank) for rank in range(len(addresses))]
        try:
            yield paused
        finally:
            paused.clear()
            ended.set()
        for worker in workers:
            worker.result()


def _await(process: subprocess.Popen[bytes], file: Path, log: Path) -> None:
    """Wait for the first report of a training."""
    deadline = time.monotonic() + FIRST_REPORT_S
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the training has written no report: {log.read_text()[-2000:]}")
        time.sleep(0.1)


def _check(command: list[str]) -> None:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}")


def main(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the pictures.")] = PICTURES,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what the pictures show in this folder, or take it from there."),
    ] = None,
) -> None:
    """Make the pictures of the documentation site, of the page of `iswitch report` and of `iswitch top`.

    A picture shows what runs on this machine, so addresses, times and rates differ from run to run.
    """
    try:
        chromium_program()
    except FileNotFoundError as error:
        raise typer.BadParameter(str(error)) from None
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "top.svg").exists():
            make_runs(folder)
        for shot in SHOTS:
            if shot.page.startswith("site/") and not (folder / shot.page).exists():
                _check([sys.executable, "-m", "mkdocs", "build", "--site-dir", str((folder / "site").resolve())])
            size = {"width": shot.width, "height": shot.height}
            take_picture(folder / shot.page, out / shot.name, **size, dark=shot.dark, trim=shot.trim)
            print(f"{out / shot.name}: {(out / shot.name).stat().st_size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
