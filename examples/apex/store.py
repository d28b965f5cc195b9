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
    def gone(self) -> npt.NDArray[np.bool_]: ...


class Statistics(Protocol):
    """Of the table, but `bytes_pushed` and `resent`, which are the client's own."""

    @property
    def filled(self) -> int: ...

    @property
    def adds(self) -> int: ...

    @property
    def draws(self) -> int: ...

    @property
    def total(self) -> float: ...

    @property
    def bytes_pushed(self) -> int: ...

    @property
    def resent(self) -> int: ...


class Replay(Protocol):
    """A table, by one of its clients; as the methods of `ReplayClient` say."""

    def extend(self, data: Mapping[str, Any], priorities: Any, *, ticket: int = 0) -> Any: ...

    def tickets(self, transitions: int) -> int: ...

    def flush(self) -> Any: ...

    def sample(self, count: int, *, beta: float = 0.4, seed: int | None = None, ticket: int = 0) -> Batch: ...

    def prefetch(self, count: int, *, depth: int = 2, beta: float = 0.4) -> Iterator[Batch]: ...

    def update_priority(self, items: Any, priorities: Any, *, ticket: int = 0) -> Iterable[int]: ...

    def limit(
        self, *, size: int = 1, ratio: float = 0.0, behind: int | None = None, ahead: int | None = None
    ) -> Any: ...

    def set_parameters(self, version: int, data: Any, *, shout: bool = True) -> Any: ...

    def get_parameters(self, newer_than: int = 0, timeout: float = 0.0) -> tuple[int, bytes] | None: ...

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
