"""Cases of a check, each made when the check comes to it: a check that fails early makes few."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["OnDemand"]

T = TypeVar("T")


class OnDemand(Generic[T]):
    """The items of an iterable. Each is made when it is first read, and kept.

    Parameters
    ----------
    items : iterable
        Makes the items. It is read once.
    """

    def __init__(self, items: Iterable[T]):
        self._items = iter(items)
        self._made: list[T] = []

    def __iter__(self) -> Iterator[T]:
        for k in itertools.count():
            if k == len(self._made):
                self._made += itertools.islice(self._items, 1)
            if k == len(self._made):
                return
            yield self._made[k]
