"""Pairs of a state and a frame, compared in batches inside the compiled gateware."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sim.bench.compiled import Compiled

__all__ = ["Comparison", "Difference", "Numbers", "Variant"]

BATCH = 1 << 13
"""Pairs of a batch."""

Numbers = tuple[int, ...]
"""Numbers in the order of columns."""
Variant = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The places of some pairs in a batch, inputs for them, and the outputs that the model says."""


class Difference(Exception):
    """The gateware decides otherwise than the golden model.

    Parameters
    ----------
    pair : object
        The state and the frame.
    output : str
        The output that differs.
    model, gateware : int
        Its values.
    """

    def __init__(self, pair: Any, output: str, model: int, gateware: int) -> None:
        super().__init__(f"{output}: the model says {model:#x}, the gateware {gateware:#x}\n{pair}")
        self.pair, self.output, self.model, self.gateware = pair, output, model, gateware


class Comparison:
    """Compares the outputs of a compiled component with those of a model, pair by pair.

    The gateware sees the rows of a state that belong to a frame, not the state. So pairs may have the same inputs.
    These are compared once, and the model must say the same about all of them.

    Parameters
    ----------
    part : Compiled
    of_frame, of_rows : sequence of str
        The inputs that frame and rows give; all others are 0.
    frames : sequence of tuple of int
        What each frame gives.
    said : sequence of str
        The outputs that the model names.
    hold, at : int
        For how many cycles a pair's inputs stay, and in which cycle its outputs are there, counted from 0. From the
        cycle `hold` on the inputs are the next pair's.

    Attributes
    ----------
    pairs, inputs, runs : int
        How many pairs there were, how many of them had inputs of their own, and how many the gateware was given.
    """

    def __init__(
        self,
        part: Compiled,
        *,
        of_frame: Sequence[str],
        of_rows: Sequence[str],
        frames: Sequence[Numbers],
        said: Sequence[str],
        hold: int,
        at: int,
    ) -> None:
        self.part, self.hold, self.at = part, hold, at
        self.input = {name: k for k, name in enumerate(part.inputs.names or ())}
        self.outputs = list(said)
        self._said_at = [part.outputs.names.index(name) for name in said]
        self._frame_at = [self.input[name] for name in of_frame]
        self._rows_at = [self.input[name] for name in of_rows]
        self._frames = np.array(frames, np.uint64)
        self.pairs = self.inputs = self.runs = 0
        self._rows: dict[Numbers, int] = {}
        self._answers: dict[Numbers, int] = {}
        self._known: dict[int, int] = {}
        self._waiting: list[tuple[Any, Numbers, int, Numbers]] = []

    def add(self, pair: Any, rows: Numbers, frame: int, said: Numbers) -> None:
        """Add a pair: the rows that the gateware sees, the number of the frame, and what the model makes of them."""
        self.pairs += 1
        key = self._rows.setdefault(rows, len(self._rows)) * len(self._frames) + frame
        answer = self._answers.setdefault(said, len(self._answers))
        before = self._known.setdefault(key, answer)
        if before != answer:
            raise ValueError(f"Comparison rows must determine what the model says, which differs for\n{pair}")
        if len(self._known) != self.inputs:
            self.inputs = len(self._known)
            self._waiting.append((pair, rows, frame, said))
            if len(self._waiting) == BATCH:
                self.flush()

    def variants(self, given: np.ndarray, said: np.ndarray) -> Iterator[Variant]:
        """Yield what is compared for a batch of inputs and of the model's outputs: these, and what means the same."""
        yield np.arange(len(given)), given, said

    def flush(self) -> None:
        """Compare what was added.

        Raises
        ------
        Difference
            For the first pair with an output that differs.
        """
        if not self._waiting:
            return
        pairs, rows, frames, answers = zip(*self._waiting, strict=True)
        self._waiting = []
        given = np.zeros((len(pairs), len(self.input)), np.uint64)
        given[:, self._rows_at] = np.array(rows, np.uint64)
        given[:, self._frame_at] = self._frames[list(frames)]
        of_model = np.array(answers, np.uint64)
        for index, inputs, outputs in self.variants(given, of_model):
            if not len(inputs):
                continue
            self.runs += len(inputs)
            got = self.run(inputs)
            wrong = got != outputs
            if wrong.any():
                row = int(wrong.any(axis=1).argmax())
                column = int(wrong[row].argmax())
                said, found = int(outputs[row, column]), int(got[row, column])
                raise Difference(pairs[index[row]], self.outputs[column], said, found)

    def run(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs for rows of inputs."""
        held = np.concatenate([np.repeat(inputs, self.hold, axis=0), inputs[:1]])
        got = self.part.run(held.view(self.part.inputs).reshape(-1)).view(np.uint64).reshape(len(held), -1)
        return got[self.at :: self.hold][: len(inputs), self._said_at]
