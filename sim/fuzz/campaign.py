"""A campaign of fuzzing: sequences that reach something new become the ancestors of others."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import Outcome
from sim.bench.software_pair import SoftwarePair
from sim.frames.client import SWITCH_IP, SWITCH_MAC
from sim.fuzz.beside_model import OPERATOR_KEY, run_beside_model
from sim.fuzz.mutate import mutated, seeds
from sim.fuzz.runner import Fault, Found, Runner
from sim.fuzz.steps import CONFIG, LENGTH, STARTS, Senders, formed, from_text, sent_by, to_text

__all__ = [
    "CORPUS",
    "MODEL_SHARE",
    "Campaign",
    "Figures",
    "Ground",
    "Violated",
    "ancestors",
    "compare_with_model",
    "kept_corpus",
]

CORPUS = Path(__file__).parents[2] / "tests" / "vectors" / "fuzz" / "data_path.txt"
"""The sequences that together reach what a campaign has reached."""
CORRECT = 10
"""How often the sequences of correct workers stand among the first ancestors; the kept ones are short."""
BATCH = 400
"""Sequences that are made at a time."""
MODEL_SHARE = 0.4
"""Part of the time in which sequences run beside the golden switch, unless the caller chooses another one."""


class Violated(Exception):
    """A sequence violates a law, or one at the end of others. Its text is the sequences."""

    def __init__(self, law: str, start: int, *sequences: np.ndarray) -> None:
        super().__init__(law)
        self.text = "".join(to_text(start, steps) for steps in sequences)


class Figures(NamedTuple):
    """What a campaign did.

    Attributes
    ----------
    frames, sequences : int
        Payloads that the data path was given, and sequences of them.
    usual : int
        Payloads that it has handled alone.
    beside_model : int
        Frames that both the complete software switch and the golden switch were given.
    edges, kept : int
        Edges that were reached, and sequences that reached something new.
    outcomes : dict
        Payloads that the data path has handled, by the name of the outcome.
    """

    frames: int
    sequences: int
    usual: int
    beside_model: int
    edges: int
    kept: int
    outcomes: dict[str, int]


class Ground:
    """A start: the state of its jobs in the data path, and the sequences that are kept.

    Parameters
    ----------
    library : pathlib.Path
        As `build` returns it.
    start : int
        Which of `STARTS`.
    """

    def __init__(self, library: Path, start: int) -> None:
        switch = SoftwareSwitch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        traffic = formed(start, lambda port, frame, error: [sent for _, sent in switch.receive(port, frame, 0, error)])
        self.start, self.senders = start, Senders.of(traffic.clients)
        self.runner = Runner(library, switch.native_state, CONFIG.ports)
        self.pool = np.zeros((0, LENGTH), seeds(start).dtype)

    def run(self, steps: np.ndarray, report: Path | None = None) -> Found:
        """Run sequences, and keep those that reach something new.

        Raises
        ------
        Violated
            If one violates a law.
        """
        died = report / f"died-{self.start}.bin" if report else None
        found = self.runner.run(steps, *sent_by(self.senders, steps), report=died)
        if found.fault != Fault.NONE:
            raise Violated(found.fault.name, self.start, steps[found.passed])
        self.pool = np.concatenate([self.pool, steps[found.is_new]])
        return found

    def reached(self, steps: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return the edges that are reached after one more sequence; bool."""
        self.runner.seen[:] = before
        self.runner.run(steps[None], *sent_by(self.senders, steps[None]))
        return self.runner.seen != 0

    def minimised(self) -> list[np.ndarray]:
        """Return few short sequences that together reach all edges which the kept ones have reached."""
        kept, before = [], np.zeros_like(self.runner.seen)
        for steps in sorted(self.pool, key=lambda each: int((each["present"] != 0).sum())):
            wanted = self.reached(steps, before)
            if not (wanted & (before == 0)).any():
                continue
            steps = steps.copy()
            for size in (16, 4, 1):
                for first in range(0, LENGTH, size):
                    shorter = steps.copy()
                    shorter["present"][first : first + size] = 0
                    if (shorter != steps).any() and not (wanted & ~self.reached(shorter, before)).any():
                        steps = shorter
            before = self.reached(steps, before).astype(np.uint8)
            kept.append(steps)
        return kept


def compare_with_model(start: int, steps: np.ndarray, data_path: Any = None) -> int:
    """Give a sequence to a software switch and the golden switch. Returns the number of frames.

    Parameters
    ----------
    start : int
        Which of `STARTS`.
    steps : numpy.ndarray
        `STEP`, shape (length,).
    data_path : ctypes function, optional
        The software switch's `data_path`; default: the one that is installed.

    Raises
    ------
    Violated
        If they differ, or a sum is wrong afterwards.
    """
    pair = SoftwarePair(CONFIG, operator_key=OPERATOR_KEY)
    if data_path is not None:
        pair.software.data_path = data_path
    try:
        frames = run_beside_model(pair, start, steps)
        pair.compare()
    except AssertionError as error:
        raise Violated(f"beside the golden switch: {str(error)[:2000]}", start, steps) from error
    return frames


class Campaign:
    """Fuzzing from all starts in turn.

    Parameters
    ----------
    library : pathlib.Path
        As `build` returns it.
    seed : int
        Of all decisions.
    corpus : iterable of tuple
        Sequences with their starts, from which the campaign begins beside those of correct workers.
    """

    def __init__(self, library: Path, *, seed: int, corpus: Iterable[tuple[int, np.ndarray]] = ()) -> None:
        self.rng = np.random.default_rng(seed)
        self.grounds = [Ground(library, start) for start in range(len(STARTS))]
        self.sequences = self.beside_model = 0
        self._first = [list(seeds(start)) for start in range(len(STARTS))]
        for start, steps in corpus:
            self._first[start].append(steps)

    def run(
        self,
        *,
        seconds: float = float("inf"),
        sequences: int | None = None,
        compared: int | None = None,
        model_share: float = MODEL_SHARE,
        report: Path | None = None,
    ) -> Figures:
        """Fuzz for some time, or until so many sequences were run.

        Parameters
        ----------
        seconds : float
            The time.
        sequences : int, optional
            The most sequences.
        compared : int, optional
            How many sequences of each `BATCH` run beside the golden switch, so that all depends on the seed alone;
            default: as many as fit into `model_share` of the time.
        model_share : float
            Part of the time in which sequences run beside the golden switch.
        report : pathlib.Path, optional
            Folder in which a sequence is written at which a sanitizer ends the process: `died-START.bin`.

        Raises
        ------
        Violated
            If a sequence violates a law.
        """
        begun, model_s, waiting = time.monotonic(), 0.0, []
        for ground, first in zip(self.grounds, self._first, strict=True):
            ground.run(np.stack(first), report)
            waiting += [(ground.start, steps) for steps in ground.pool]
        turn = 0
        while time.monotonic() - begun < seconds and (sequences is None or self.sequences < sequences):
            ground = self.grounds[turn % len(self.grounds)]
            turn += 1
            made = mutated(self.rng, ground.pool, BATCH)
            found = ground.run(made, report)
            self.sequences += BATCH
            new = made[found.is_new]
            waiting += [(ground.start, steps) for steps in new]
            done = 0
            while done < compared if compared is not None else model_s < model_share * (time.monotonic() - begun):
                done += 1
                if not waiting:
                    waiting.append((ground.start, made[int(self.rng.integers(BATCH))]))
                at = time.monotonic()
                self.beside_model += compare_with_model(*waiting.pop(), ground.runner.data_path)
                model_s += time.monotonic() - at
        return self.figures()

    def figures(self) -> Figures:
        """Return what was done so far."""
        counts = sum((ground.runner.outcomes for ground in self.grounds), np.zeros(len(Outcome) + 1, np.uint64))
        return Figures(
            frames=int(counts.sum()),
            sequences=self.sequences,
            usual=int(counts[1:].sum()),
            beside_model=self.beside_model,
            edges=sum(int((ground.runner.seen != 0).sum()) for ground in self.grounds),
            kept=sum(len(ground.pool) for ground in self.grounds),
            outcomes={kind.name: int(counts[kind + 1]) for kind in Outcome if counts[kind + 1]},
        )

    def corpus_text(self) -> str:
        """Return the corpus, minimised, as text."""
        head = "# Written by `python -m sim.fuzz.data_path --write`; read by sim/fuzz/steps.py.\n"
        return head + "".join(to_text(ground.start, steps) for ground in self.grounds for steps in ground.minimised())


def kept_corpus(path: Path = CORPUS) -> list[tuple[int, np.ndarray]]:
    """Return the kept sequences with their starts."""
    return from_text(path.read_text(encoding="utf-8")) if path.exists() else []


def ancestors() -> list[list[np.ndarray]]:
    """Return the first ancestors of each start: the sequences of correct workers, and those that were kept."""
    kept = kept_corpus()
    return [[*seeds(start)] * CORRECT + [steps for of, steps in kept if of == start] for start in range(len(STARTS))]
