"""Sample a batch: first items, then their transitions, then their importance weights."""

import math
from dataclasses import dataclass, field

import numpy as np

from iswitch.replay.priorities import Normalize, Scale, importance_weights
from iswitch.replay.queries import Query
from iswitch.replay.query_group import QueryGroup
from iswitch.replay.reading import TransitionRead
from iswitch.replay.records import Layout
from iswitch.replay.request import Request
from iswitch.replay.seeds import hash_seed
from iswitch.replay.session import Session
from iswitch.wire.replay import SAMPLE, SAMPLED_ROW, Kind, ReplayOutcome

__all__ = ["Batch", "SampleOptions", "SampleOperation"]

_WORD = 1 << 64


@dataclass(frozen=True)
class Batch:
    """A batch of n sampled transitions. The same transition can be in it several times.

    Attributes
    ----------
    data : dict of str to array of shape (n, ...)
        The transitions, by field.
    items : uint32 array of shape (n,)
        Handles of the items, for `ReplayClient.update_priority`.
    priorities : float64 array of shape (n,)
        The priorities with which the items were sampled.
    weights : float32 array of shape (n,)
        Importance weights.
    overwritten : bool array of shape (n,)
        Items that were overwritten after they were sampled and before their data was read. Their data is zeros and
        their weight is 0.
    table_priority : float
        Sum of all priorities of the table when the batch was sampled.
    table_size : int
        Items in the table when the batch was sampled.
    ticket : int
        The table's ticket after this operation.
    seed : int
        The seed. The same seed samples the same items from the same priorities.
    """

    data: dict[str, np.ndarray] = field(repr=False)
    items: np.ndarray = field(repr=False)
    priorities: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    overwritten: np.ndarray = field(repr=False)
    table_priority: float
    table_size: int
    ticket: int
    seed: int

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class SampleOptions:
    """How to sample a batch: the parameters of `ReplayClient.sample` of the same names."""

    count: int
    beta: float
    stratified: bool
    normalize: Normalize
    min_adds: int

    def check(self, limit: int) -> None:
        """Raise ValueError if an option is wrong, where `limit` is the largest batch that the switch can sample."""
        count = self.count
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= limit:
            raise ValueError(
                f"a batch must have 1 to {limit} items, the most that the switch samples at once, not {count!r}"
            )
        if not (self.beta >= 0 and math.isfinite(self.beta)):
            raise ValueError(f"beta must be at least 0, not {self.beta!r}")
        if self.normalize not in ("batch", "table"):
            raise ValueError(f'normalize must be "batch" or "table", not {self.normalize!r}')
        if not 0 <= self.min_adds < 2**31:
            raise ValueError(f"min_adds must be 0 to {2**31 - 1}, not {self.min_adds!r}")


class SampleOperation:
    """A SAMPLE request and everything that follows from it. Call `advance` until it returns True, then read `batch`.

    Parameters
    ----------
    session : Session
        The session.
    layout : Layout
        Where fields are stored.
    scale : Scale
        Converts priorities.
    options : SampleOptions
        How to sample.
    seed : int
        0 to 2^128 - 1.
    ticket : int
        0, or the ticket of the table to wait for.
    can_yield : bool
        If the request has to wait, let other requests of the client pass.
    """

    def __init__(
        self,
        session: Session,
        layout: Layout,
        scale: Scale,
        options: SampleOptions,
        seed: int,
        *,
        ticket: int = 0,
        can_yield: bool = False,
    ):
        self.session, self.layout, self.scale, self.options, self.seed = session, layout, scale, options, seed
        body = np.zeros(1, SAMPLE)
        body["items"] = options.min_adds
        body["stride"] = _WORD // options.count if options.stratified and options.count > 1 else 0
        body["seed"] = hash_seed(seed) % _WORD, hash_seed(seed) >> 64
        request = Request(
            Kind.SAMPLE, count=int(options.count), body=body.tobytes(), ticket=ticket, can_yield=can_yield
        )
        self.request = session.submit(request, keep_deadline=can_yield)
        self._read: TransitionRead | None = None
        self._batch: Batch | None = None

    @property
    def queries(self) -> list[Query | QueryGroup]:
        """The requests for the batch's transitions, so far."""
        return self._read.queries if self._read else []

    def advance(self) -> bool:
        """Continue as far as possible with what has come. Return True if the batch is here or was cancelled."""
        if self._batch or not self.request.settled:
            return self._batch is not None
        if self.request.outcome != ReplayOutcome.DONE:
            return True
        if self._read is None:
            self._sampled = np.frombuffer(self.request.rows, SAMPLED_ROW)
            items, self._index = np.unique(self._sampled["item"], return_inverse=True)
            self._read = TransitionRead(self.session, self.layout, items)
        if self._read.advance():
            self._batch = self._assemble(self._read)
        return self._batch is not None

    @property
    def batch(self) -> Batch:
        """The batch. Raises NotServedError if it was cancelled, CorruptTableError if the table is corrupt,
        SessionLostError if the outcome is unknown."""
        if self._batch is None:
            raise self.session.unserved_error(self.request)
        return self._batch

    def _assemble(self, read: TransitionRead) -> Batch:
        status, options = self.request.status, self.options
        assert status is not None
        overwritten, integers = read.overwritten[self._index], self._sampled["priority"]
        weights = importance_weights(
            integers,
            total=status.total,
            filled=status.filled,
            beta=options.beta,
            lowest=status.lowest,
            overwritten=overwritten,
            normalize=options.normalize,
        )
        return Batch(
            {name: column[self._index] for name, column in read.columns.items()},
            self._sampled["item"].copy(),
            self.scale.to_real(integers),
            weights,
            overwritten,
            status.total / self.scale.scale,
            status.filled,
            status.ticket,
            self.seed,
        )
