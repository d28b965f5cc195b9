"""Fuzz the compiled RTL with bursts of payloads, beside the software switch: `python -m sim.fuzz.bursts --minutes 5`.

The payloads are those of the other campaigns. Here up to `BURST` of them enter without a pause at both ports, one of
which stalls in both directions, and the jobs go on from one sequence to the next: a history is many sequences, after
which both jobs are ended, formed anew, and sum, and every register is compared. The software switch, whose data path is
in C, has its own fuzzing beside the golden switch (`sim.fuzz.data_path`).
"""

import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.progress import Progress, TextColumn

from iswitch.config import Config
from iswitch.wire import Action, JobState, Outcome, Type
from sim.bench.designs import HALF_WIDTH
from sim.bench.traffic import Traffic
from sim.emulator.compile import Design
from sim.emulator.toolchain import ROOT
from sim.fuzz.beside_model import OPERATOR_KEY, end_job, require_good_round
from sim.fuzz.burst_pair import BurstPair
from sim.fuzz.campaign import Violated, ancestors
from sim.fuzz.mutate import mutated
from sim.fuzz.steps import STARTS, WORKERS, form, formed, from_text

__all__ = ["WIDE", "BurstCampaign", "BurstFigures"]

FAILED = ROOT / "build" / "fuzz" / "failed_bursts.txt"
WIDE = replace(HALF_WIDTH, bus_bits=256)
"""A frame enters in fewer cycles than the core decides about one, so the next one enters while the core decides."""
HISTORY = 200
"""Sequences of a history."""
RENEWED = 4
"""After so many sequences, a job is formed anew if it has ended, lacks a member or has changed no slot: receipts for
results that do not exist leave it no segment to send."""
JOINED = 0.6
"""How many of the payloads follow the one before them without a pause."""
KEPT_ENDS = 0.2
"""How many of the Leaves, RESETs and ENDs remain: after them, the switch refuses most of what follows."""
ENDS = [Action.LEAVE, Action.RESET, Action.END]
STALL, STALL_CYCLES = 0.1, 3
"""The chance in a cycle that port 1 begins to stall, and for how long it then does."""


class BurstFigures(NamedTuple):
    """What a campaign did.

    Attributes
    ----------
    histories, sequences, payloads : int
        Histories, the sequences in them, and the payloads in those.
    frames : int
        Frames that both switches were given: the payloads, what forms and ends jobs, and the READs of all registers.
    by_data_path : int
        Payloads that the software switch's data path has handled; the others went to the golden switch.
    successions : int
        Pairs of outcomes that followed each other.
    outcomes : dict
        Payloads by the name of the outcome.
    """

    histories: int
    sequences: int
    payloads: int
    frames: int
    by_data_path: int
    successions: int
    outcomes: dict[str, int]


class BurstCampaign:
    """Fuzzing of the compiled RTL by histories, from all starts in turn.

    Parameters
    ----------
    seed : int
        Of all decisions.
    config : Config
        What the switch is built for.
    design : Design, optional
        Another source of the RTL.
    """

    def __init__(self, *, seed: int, config: Config = WIDE, design: Design | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.pair = BurstPair(config, operator_key=OPERATOR_KEY, design=design)
        self.pools = ancestors()
        self.histories = self.sequences = self.by_data_path = 0
        self.successions: set[tuple[Outcome, Outcome]] = set()
        self.outcomes = np.zeros(max(Outcome) + 1, np.int64)

    def sequences_of(self, start: int, count: int) -> np.ndarray:
        """Return new sequences, `STEP`, shape (count, length)."""
        made = mutated(self.rng, np.stack(self.pools[start]), count)
        made["wait_us"] *= self.rng.random(made.shape) >= JOINED
        ends = (made["header"]["version_type"] & 0xF == Type.CONTROL) & np.isin(made["body"]["action"], ENDS)
        made["present"] *= ~ends | (self.rng.random(made.shape) < KEPT_ENDS)
        return made

    def give(self, start: int, history: np.ndarray) -> None:
        """Give both switches a history; `STEP`, shape (sequences, length).

        Raises
        ------
        Violated
            If the switches differ, or a sum is wrong afterwards. Its text is the history so far.
        """
        pair, done, counts = self.pair, 0, np.zeros_like(self.outcomes)
        pair.reset()
        pair.board.stall(1, "rx", STALL, length=STALL_CYCLES)
        pair.board.stall(1, "tx", STALL, length=STALL_CYCLES, seed=2)
        try:
            traffic = formed(start, pair.exchange)
            before = pair.model.by_data_path
            slots = pair.model.shared_jobs.slots.copy()
            for steps in history:
                done += 1
                outcomes = pair.payloads(traffic.clients, steps)
                np.add.at(counts, outcomes, 1)
                followed = set(pairwise(outcomes))
                if not followed <= self.successions:
                    self.successions |= followed
                    self.pools[start].append(steps)
                if done % RENEWED == 0:
                    self.renew(traffic, start, slots)
                    slots = pair.model.shared_jobs.slots.copy()
            self.by_data_path += pair.model.by_data_path - before
            for job in range(2):
                require_good_round(traffic, job)
            pair.counters_agree()
        except AssertionError as error:
            raise Violated(f"compiled RTL: {str(error)[:2000]}", start, *history[:done]) from error
        self.outcomes += counts
        self.histories += 1
        self.sequences += done

    def renew(self, traffic: Traffic, start: int, slots: np.ndarray) -> None:
        """Form the jobs anew that have ended, lack a member or still have the same slots."""
        for number in range(2):
            job = self.pair.jobs[number]
            is_same = (self.pair.model.shared_jobs.slots[number] == slots[number]).all()
            if job.state != JobState.RUNNING or job.live != (1 << WORKERS) - 1 or is_same:
                end_job(traffic, number)
                form(traffic, number, STARTS[start][number])

    def run(self, *, seconds: float = float("inf"), payloads: float = float("inf")) -> BurstFigures:
        """Fuzz for some time, or until so many payloads were given, and to the end of a history. Ctrl-C ends it, too.

        Raises
        ------
        Violated
            If the switches differ, or a sum is wrong afterwards.
        """
        begun = time.monotonic()
        columns = (*Progress.get_default_columns(), TextColumn("{task.fields[done]}"))
        with suppress(KeyboardInterrupt), Progress(*columns, transient=True) as progress:
            task = progress.add_task("fuzzing", total=1, done="")
            while (part := max((time.monotonic() - begun) / seconds, self.outcomes.sum() / payloads)) < 1:
                progress.update(task, completed=part, done=f"{self.outcomes.sum():,} payloads")
                start = self.histories % len(STARTS)
                self.give(start, self.sequences_of(start, HISTORY))
        return self.figures()

    def figures(self) -> BurstFigures:
        """Return what was done so far."""
        counts = {kind.name: int(self.outcomes[kind]) for kind in Outcome if self.outcomes[kind]}
        return BurstFigures(
            histories=self.histories,
            sequences=self.sequences,
            payloads=int(self.outcomes.sum()),
            frames=self.pair.frames,
            by_data_path=self.by_data_path,
            successions=len(self.successions),
            outcomes=counts,
        )


def main(
    minutes: Annotated[float, typer.Option(metavar="N", help="How long.")] = 1.0,
    payloads: Annotated[float, typer.Option(metavar="N", help="End after so many payloads.")] = float("inf"),
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all decisions.")] = 1,
    replay: Annotated[Path | None, typer.Option(help="Run the history of a file.")] = None,
) -> None:
    """Fuzz the compiled RTL with bursts of payloads, beside the software switch."""
    campaign, begun = BurstCampaign(seed=seed), time.process_time()
    try:
        if replay is not None:
            history = from_text(replay.read_text(encoding="utf-8"))
            campaign.give(history[0][0], np.stack([steps for _, steps in history]))
            done = campaign.figures()
        else:
            done = campaign.run(seconds=60 * minutes, payloads=payloads)
    except Violated as error:
        FAILED.parent.mkdir(parents=True, exist_ok=True)
        FAILED.write_text(error.text, encoding="utf-8")
        print(f"{error}\nafter {campaign.histories:,} histories, in {FAILED}")
        sys.exit(1)
    processor_s = time.process_time() - begun
    print(
        f"{done.payloads:,} payloads in {done.sequences:,} sequences of {done.histories:,} histories, {done.frames:,} "
        f"frames with those that form jobs and read registers, {processor_s:.0f} s of processor time:\n"
        "the same outcomes, frames and registers, and every sum right\n"
        f"the data path of the software switch has handled {done.by_data_path:,} payloads, the golden switch the rest; "
        f"{done.successions:,} pairs of outcomes followed each other"
    )
    print(", ".join(f"{name} {count:,}" for name, count in done.outcomes.items()))


if __name__ == "__main__":
    typer.run(main)
