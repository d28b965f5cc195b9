"""Fuzz the data path of the software switch, in C, with sanitizers: `make fuzz MINUTES=10`.

New payloads come from old ones that reached something new (`sim.fuzz.campaign`). A failure leaves its sequence in a
file, which `--replay FILE` runs again. `--write` keeps a minimised corpus in tests/vectors.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sim.emulator.toolchain import ROOT
from sim.fuzz.campaign import CORPUS, MODEL_SHARE, Campaign, Violated, compare_with_model, kept_corpus
from sim.fuzz.runner import build, sanitized_environment
from sim.fuzz.steps import LENGTH, STEP, from_text, to_text

__all__ = ["fuzz_in_process"]

FAILED = ROOT / "build" / "fuzz"
"""Where failures are written."""


def fuzz_in_process(
    library: Path,
    *,
    minutes: float,
    seed: int,
    write: bool = False,
    failed: Path = FAILED,
    sequences: int | None = None,
    compared: int | None = None,
    model_share: float = MODEL_SHARE,
) -> int:
    """Fuzz with a compiled library, print what happened, and return an exit status.

    Parameters
    ----------
    library : pathlib.Path
        As `build` returns it.
    minutes : float
        The time.
    seed : int
        Of all decisions.
    write : bool
        Keep the minimised corpus in tests/vectors.
    failed : pathlib.Path
        Folder in which a failure is written.
    sequences, compared, model_share : optional
        As of `Campaign.run`.
    """
    failed.mkdir(parents=True, exist_ok=True)
    campaign, begun = Campaign(library, seed=seed, corpus=kept_corpus()), time.process_time()
    try:
        done = campaign.run(
            seconds=60 * minutes, sequences=sequences, compared=compared, model_share=model_share, report=failed
        )
    except Violated as error:
        (failed / "failed.txt").write_text(error.text, encoding="utf-8")
        print(f"{error}\nafter {campaign.figures().sequences:,} sequences, in {failed / 'failed.txt'}")
        return 1
    processor_s = time.process_time() - begun
    print(
        f"{done.frames:,} payloads in {done.sequences:,} sequences, {processor_s:.0f} s of processor time: no fault\n"
        f"the data path has handled {done.usual:,} of them alone; {done.edges:,} edges, {done.kept:,} sequences kept\n"
        f"{done.beside_model:,} frames beside the golden switch: the same answers, counters, jobs and sums"
    )
    print(", ".join(f"{name} {count:,}" for name, count in done.outcomes.items()))
    if write:
        CORPUS.parent.mkdir(parents=True, exist_ok=True)
        CORPUS.write_text(campaign.corpus_text(), encoding="utf-8")
    return 0


def main(
    minutes: Annotated[float, typer.Option(metavar="N", help="How long.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all decisions.")] = 1,
    sequences: Annotated[int | None, typer.Option(metavar="N", help="The most sequences.")] = None,
    model_share: Annotated[
        float, typer.Option(metavar="X", help="Part of the time for the golden switch.")
    ] = MODEL_SHARE,
    write: Annotated[bool, typer.Option(help="Keep the corpus, minimised, in tests/vectors.")] = False,
    replay: Annotated[Path | None, typer.Option(help="Run the sequences of a file beside the golden switch.")] = None,
    library: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Fuzz the software switch's data path with sanitizers, and compare with the golden switch."""
    if replay is not None:
        for start, steps in from_text(replay.read_text(encoding="utf-8")):
            compare_with_model(start, steps)
        return
    if library is not None:
        sys.exit(
            fuzz_in_process(
                library, minutes=minutes, seed=seed, write=write, sequences=sequences, model_share=model_share
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder), sanitize=True)
        arguments = [f"--minutes={minutes}", f"--seed={seed}", f"--model-share={model_share}", f"--library={made}"]
        arguments += [*(["--write"] if write else []), *([f"--sequences={sequences}"] if sequences else [])]
        command = [sys.executable, "-m", "sim.fuzz.data_path", *arguments]
        status = subprocess.run(command, env=sanitized_environment(), check=False).returncode
    for died in FAILED.glob("died-*.bin"):
        steps = np.frombuffer(died.read_bytes(), STEP, LENGTH)
        (FAILED / "failed.txt").write_text(to_text(int(died.stem.removeprefix("died-")), steps), encoding="utf-8")
        died.unlink()
        print(f"a sanitizer has ended the process; the sequence is in {FAILED / 'failed.txt'}")
    sys.exit(status)


if __name__ == "__main__":
    typer.run(main)
