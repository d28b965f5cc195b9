"""A batch on its way: what was drawn, then the transitions, then their weights."""

import math
from dataclasses import dataclass, field

import numpy as np

from iswitch.replay.channel import Request
from iswitch.replay.inquiries import Inquiry
from iswitch.replay.priorities import Normalize, Scale, importance_weights
from iswitch.replay.reading import Reading
from iswitch.replay.records import Layout
from iswitch.replay.seeds import spread
from iswitch.replay.session import Session
from iswitch.wire.replay import SAMPLE, SAMPLED_ROW, Fate, Kind

__all__ = ["Batch", "Sampling", "Wish"]

_WORD = 1 << 64


@dataclass(frozen=True)
class Batch:
    """Transitions that were drawn. n: as many as were asked for, the same one perhaps several times.

    data: by field, (n, ...). items: handles, u4, (n,). priorities: float64, (n,), as they were when drawn. weights:
    importance weights, float32, (n,). gone: bool, (n,): overwritten between draw and delivery; its data is zeros and
    its weight 0. total, filled: of the table at that moment: sum of priorities, and items. ticket: the table's behind it.
    seed: with which the same priorities give the same draws.
    """

    data: dict[str, np.ndarray] = field(repr=False)
    items: np.ndarray = field(repr=False)
    priorities: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    gone: np.ndarray = field(repr=False)
    total: float
    filled: int
    ticket: int
    seed: int

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class Wish:
    """What a batch shall be; see `ReplayClient.sample`."""

    count: int
    beta: float
    stratified: bool
    normalize: Normalize
    items: int

    def check(self, most: int) -> None:
        """ValueError for what cannot be."""
        if isinstance(self.count, bool) or not isinstance(self.count, (int, np.integer)) or not 1 <= self.count <= most:
            raise ValueError(
                f"a batch must have 1 to {most} draws, as many as the switch makes at a time, not {self.count!r}"
            )
        if not (self.beta >= 0 and math.isfinite(self.beta)):
            raise ValueError(f"beta must be at least 0, not {self.beta!r}")
        if self.normalize not in ("batch", "table"):
            raise ValueError(f'normalize must be "batch" or "table", not {self.normalize!r}')
        if not 0 <= self.items < 2**31:
            raise ValueError(f"items must be 0 to {2**31 - 1}, not {self.items!r}")


class Sampling:
    """A SAMPLE and all that follows from it. `advance` until it is true; then `batch`."""

    def __init__(
        self,
        session: Session,
        layout: Layout,
        scale: Scale,
        wish: Wish,
        seed: int,
        *,
        ticket: int = 0,
        yields: bool = False,
    ):
        self.session, self.layout, self.scale, self.wish, self.seed = session, layout, scale, wish, seed
        body = np.zeros(1, SAMPLE)
        body["items"] = wish.items if session.adds < wish.items else 0  # the switch counts modulo 2^32
        body["stride"] = _WORD // wish.count if wish.stratified and wish.count > 1 else 0
        body["seed"] = spread(seed) % _WORD, spread(seed) >> 64
        self.request = session.put(
            Request(Kind.SAMPLE, count=int(wish.count), body=body.tobytes(), ticket=ticket, yields=yields),
            patient=yields,
        )
        self._reading: Reading | None = None
        self._batch: Batch | None = None

    @property
    def inquiries(self) -> list[Inquiry]:
        return self._reading.inquiries if self._reading else []

    def advance(self) -> bool:
        """Goes on as far as what has come allows; whether it is over: the batch is here, or was given up."""
        if self._batch or not self.request.settled:
            return self._batch is not None
        if self.request.fate != Fate.DONE:
            return True
        if self._reading is None:
            self._drawn = np.frombuffer(self.request.rows, SAMPLED_ROW)
            items, self._of = np.unique(self._drawn["item"], return_inverse=True)
            self._reading = Reading(self.session, self.layout, items)
        if self._reading.advance():
            self._batch = self._assembled(self._reading)
        return self._batch is not None

    @property
    def batch(self) -> Batch:
        """NotServedError if the draws were given up, SessionLostError if nobody knows."""
        if self._batch is None:
            raise self.session.given_up(self.request)
        return self._batch

    def _assembled(self, reading: Reading) -> Batch:
        status, wish = self.request.status, self.wish
        assert status is not None
        gone, fixed = reading.gone[self._of], self._drawn["priority"]
        weights = importance_weights(
            fixed,
            total=status.total,
            filled=status.filled,
            beta=wish.beta,
            lowest=status.lowest,
            gone=gone,
            normalize=wish.normalize,
        )
        return Batch(
            {name: column[self._of] for name, column in reading.columns.items()},
            self._drawn["item"].copy(),
            self.scale.real(fixed),
            weights,
            gone,
            status.total / self.scale.scale,
            status.filled,
            status.ticket,
            self.seed,
        )
