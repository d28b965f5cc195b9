"""What an Ape-X training needs of a replay: `iswitch.replay.ReplayClient` has it, and so has whatever stands in for
it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from iswitch.replay import Field

__all__ = ["Batch", "Replay", "Statistics", "spec_of"]

Numbers = npt.NDArray[np.float32]
Items = npt.NDArray[np.uint32]


class Batch(Protocol):
    """Drawn items, a row for each. gone: whose data was overwritten meanwhile, with weight 0."""

    @property
    def data(self) -> Mapping[str, npt.NDArray[Any]]: ...

    @property
    def items(self) -> Items: ...

    @property
    def weights(self) -> Numbers: ...

    @property
    def overwritten(self) -> npt.NDArray[np.bool_]: ...


class Statistics(Protocol):
    """Of the table, but `bytes_sent` and `retransmissions`, which are the client's own."""

    @property
    def size(self) -> int: ...

    @property
    def adds(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def priority_sum(self) -> float: ...

    @property
    def bytes_sent(self) -> int: ...

    @property
    def retransmissions(self) -> int: ...


class Replay(Protocol):
    """A table, by one of its clients; as the methods of `ReplayClient` say."""

    def extend(self, data: Mapping[str, Any], priorities: Any, *, ticket: int = 0) -> Any: ...

    def tickets(self, transitions: int) -> int: ...

    def flush(self) -> Any: ...

    def sample(self, count: int, *, beta: float = 0.4, seed: int | None = None, ticket: int = 0) -> Batch: ...

    def prefetch(self, count: int, *, depth: int = 2, beta: float = 0.4) -> Iterator[Batch]: ...

    def update_priority(self, items: Any, priorities: Any, *, ticket: int = 0) -> Iterable[int]: ...

    def set_limits(
        self,
        *,
        min_size: int = 1,
        samples_per_insert: float = 0.0,
        max_insert_lag: int | None = None,
        max_insert_lead: int | None = None,
    ) -> Any: ...

    def set_parameters(self, version: int, data: Any, *, broadcast: bool = True) -> Any: ...

    def get_parameters(self, newer_than: int = 0, timeout_s: float = 0.0) -> tuple[int, bytes] | None: ...

    def statistics(self) -> Statistics: ...


def spec_of(observation: Field) -> dict[str, Field]:
    """The fields of a transition between two observations."""
    return {
        "observation": observation,
        "action": Field((), np.int64),
        "reward": Field((), np.float32),
        "next_observation": observation,
        "discount": Field((), np.float32),
    }
