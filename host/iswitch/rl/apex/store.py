"""What an Ape-X training needs of a replay: `iswitch.replay.ReplayClient` has it, and so has whatever stands in for it."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Batch", "Replay", "Statistics"]

Numbers = npt.NDArray[np.float32]
Items = npt.NDArray[np.uint32]


class Batch(Protocol):
    """Drawn items, a row for each. `gone`: those whose data was overwritten meanwhile, with weight 0."""

    @property
    def data(self) -> Mapping[str, npt.NDArray[Any]]: ...

    @property
    def items(self) -> Items: ...

    @property
    def weights(self) -> Numbers: ...

    @property
    def gone(self) -> Any: ...


class Statistics(Protocol):
    """Of the table, but `bytes_pushed`, which is the client's own."""

    filled: int
    adds: int
    draws: int
    total: float
    turn: int
    version: int
    bytes_pushed: int


class Replay(Protocol):
    """A table, by one of its clients."""

    def extend(self, columns: Mapping[str, npt.NDArray[Any]], priorities: Numbers, *, turn: int = 0) -> Any: ...

    def flush(self) -> Any: ...

    def sample(self, count: int, *, beta: float = 0.4, seed: int | None = None, turn: int = 0) -> Batch: ...

    def prefetch(self, count: int, *, depth: int = 2, beta: float = 0.4) -> Iterator[Batch]: ...

    def update_priority(self, items: Items, priorities: Numbers, *, turn: int = 0) -> tuple[int, int]: ...

    def limit(self, *, size: int = 0, ratio: float = 0.0, behind: int = 0, ahead: int = 0) -> Any: ...

    def set_parameters(self, version: int, parameters: Any, *, shout: bool = True) -> Any: ...

    def get_parameters(self, newer_than: int = 0, timeout: float = 0.0) -> tuple[int, bytes] | None: ...

    def statistics(self) -> Statistics: ...

    def close(self) -> None: ...
