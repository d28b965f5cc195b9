"""Fuzz the compiled RTL beside the golden switch: `python -m sim.fuzz.rtl --minutes 5`.

The first ancestors are those of the data path's campaigns (`sim.fuzz.campaign`), and what these have kept. A sequence
in which two outcomes follow each other that never did becomes an ancestor, too. After each sequence the jobs are ended
and formed anew, and sum; then every register is compared, with jobs, members and slots.
"""

import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from iswitch.wire import Outcome
from sim.bench.cosimulation import Pair
from sim.bench.designs import HALF_WIDTH
from sim.emulator.toolchain import ROOT
from sim.fuzz.beside_model import OPERATOR_KEY, run_beside_model
from sim.fuzz.campaign import Violated, ancestors
from sim.fuzz.mutate import mutated
from sim.fuzz.steps import STARTS, from_text

__all__ = ["PatientPair", "RtlCampaign", "RtlFigures"]

FAILED = ROOT / "build" / "fuzz" / "failed_rtl.txt"

LONGEST_US = 2**28 // HALF_WIDTH.jobs
"""The switch looks at all jobs twice while a silence grows from 2^29 us, the longest that counts, to its wrap."""
LOOK_CYCLES = 100


class RtlFigures(NamedTuple):
    """What a campaign did.

    Attributes
    ----------
    sequences, steps : int
        Sequences, and the payloads in them.
    frames : int
        Frames that both switches were given: the steps, what forms and ends jobs, and the READs of all registers.
    successions : int
        Pairs of outcomes that followed each other.
    outcomes : dict
        Frames of the golden switch by the name of the outcome.
    """

    sequences: int
    steps: int
    frames: int
    successions: int
    outcomes: dict[str, int]


class PatientPair(Pair):
    """A pair that lets any time pass."""

    def wait(self, us: int) -> None:
        """Let time pass. The switch looks at the silence of one job in each tick, before it wraps after 2^30 us. So a
        long time passes in pieces, in each of which the switch has time to look."""
        while us > LONGEST_US:
            us -= LONGEST_US
            super().wait(LONGEST_US)
            self.board.run(LOOK_CYCLES, self.now_us)
            self.model.keep_silences(self.now_us)
        super().wait(us)


class Watched(PatientPair):
    """A pair that notes which outcomes follow each other."""

    def watch(self) -> None:
        """Begin a new sequence."""
        self.reset()
        self.successions: set[tuple[int, int]] = set()
        self._last, self._counts = -1, list(self.model.outcomes)

    def exchange(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        sent = super().exchange(port, frame, error)
        counts = list(self.model.outcomes)
        outcome = next((k for k, count in enumerate(counts) if count != self._counts[k]), -1)
        self.successions.add((self._last, outcome))
        self._last, self._counts = outcome, counts
        return sent


class RtlCampaign:
    """Fuzzing of the compiled RTL from all starts in turn.

    Parameters
    ----------
    seed : int
        Of all decisions.
    """

    def __init__(self, *, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pair = Watched(HALF_WIDTH, operator_key=OPERATOR_KEY)
        self.pools = ancestors()
        self.sequences = self.steps = 0
        self.successions: set[tuple[int, int]] = set()
        self.outcomes = np.zeros(max(Outcome) + 1, np.int64)

    def give(self, start: int, steps: np.ndarray) -> bool:
        """Give both switches a sequence. Returns True if outcomes followed each other that never did.

        Raises
        ------
        Violated
            If the switches differ, or a sum is wrong afterwards.
        """
        self.pair.watch()
        try:
            self.steps += run_beside_model(self.pair, start, steps)
            new = not self.pair.successions <= self.successions
            self.successions |= self.pair.successions
            self.pair.counters_agree()
        except AssertionError as error:
            raise Violated(f"compiled RTL: {str(error)[:2000]}", start, steps) from error
        self.sequences += 1
        self.outcomes += np.array(self.pair.model.outcomes)
        return new

    def run(self, *, seconds: float = float("inf"), sequences: float = float("inf")) -> RtlFigures:
        """Fuzz for some time, or until so many sequences were run.

        Raises
        ------
        Violated
            If the switches differ, or a sum is wrong afterwards.
        """
        begun = time.monotonic()
        while time.monotonic() - begun < seconds and self.sequences < sequences:
            start = self.sequences % len(STARTS)
            steps = mutated(self.rng, np.stack(self.pools[start]), 1)[0]
            if self.give(start, steps):
                self.pools[start].append(steps)
        return self.figures()

    def figures(self) -> RtlFigures:
        """Return what was done so far."""
        counts = {kind.name: int(self.outcomes[kind]) for kind in Outcome if self.outcomes[kind]}
        return RtlFigures(self.sequences, self.steps, self.pair.frames, len(self.successions), counts)


def main(
    minutes: Annotated[float, typer.Option(metavar="N", help="How long.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all decisions.")] = 1,
    replay: Annotated[Path | None, typer.Option(help="Run the sequences of a file.")] = None,
) -> None:
    """Fuzz the compiled RTL beside the golden switch."""
    campaign, begun = RtlCampaign(seed=seed), time.process_time()
    try:
        if replay is not None:
            for start, steps in from_text(replay.read_text(encoding="utf-8")):
                campaign.give(start, steps)
            done = campaign.figures()
        else:
            done = campaign.run(seconds=60 * minutes)
    except Violated as error:
        FAILED.parent.mkdir(parents=True, exist_ok=True)
        FAILED.write_text(error.text, encoding="utf-8")
        print(f"{error}\nafter {campaign.sequences:,} sequences, in {FAILED}")
        sys.exit(1)
    processor_s = time.process_time() - begun
    print(
        f"{done.steps:,} payloads in {done.sequences:,} sequences, {done.frames:,} frames with those that form jobs "
        f"and read registers, {processor_s:.0f} s of processor time:\n"
        "the same frames and registers, and every sum right\n"
        f"{done.successions:,} pairs of outcomes followed each other"
    )
    print(", ".join(f"{name} {count:,}" for name, count in done.outcomes.items()))


if __name__ == "__main__":
    typer.run(main)
