"""Which units of a session's log are needed, so that what nobody needs can be overwritten.

A unit is needed while an item that refers to it may be in the table, while parameters that were published are kept for
their readers, and, in a place where somebody was before, until `capacity` more items were added, for these could be
his. Units and items are counted here without wrapping; the wire has them modulo 2^32.
"""

from collections import deque

__all__ = ["Hold", "ItemsHold", "LogSpace"]


class Hold:
    """Keeps the log from a unit on. last: the number of the last item that needs it; None: as long as the hold is in
    force."""

    __slots__ = ("last", "unit")

    def __init__(self, unit: int, last: int | None = None):
        self.unit, self.last = unit, last


class ItemsHold(Hold):
    """Of items that have no number yet, one behind another. floors: the first unit that each of them needs."""

    __slots__ = ("floors",)

    def __init__(self, unit: int):
        super().__init__(unit)
        self.floors: list[int] = []

    def begin(self, end: int) -> None:
        """The next item; so far it needs nothing before the end."""
        self.floors.append(end)

    def need(self, unit: int) -> None:
        """The item that was begun last needs this too."""
        self.floors[-1] = min(self.floors[-1], unit)
        self.unit = min(self.unit, unit)

    def undo(self, items: int) -> None:
        """Only so many items are meant."""
        del self.floors[items:]


class LogSpace:
    """The log of `units` of one session, as its only writer knows it. written, oldest: from OPEN. adds, capacity: of
    the table, when the session was opened: what the log holds then is another's."""

    def __init__(self, *, units: int, written: int, oldest: int, adds: int, capacity: int):
        self.units = units
        self.end = written + 2**32
        """The first unit that is not written."""
        self.oldest = self.end - (written - oldest) % 2**32
        """What is before this may be overwritten, as far as it was ever said."""
        self._capacity = capacity
        self._former = (
            Hold(self.oldest, adds + capacity - 1) if self.oldest != self.end else None
        )  # items are numbered from `capacity` on
        self._pending: list[ItemsHold] = []  # of items that have no number yet
        self._items: deque[Hold] = (
            deque()
        )  # of items, units rising: a later one that reaches further back stands for those before it
        self._published: deque[Hold] = deque()

    # Holds

    def hold(self) -> ItemsHold:
        """For items that are about to be sent. Ends with `acknowledge` or `forget`."""
        made = ItemsHold(self.end)
        self._pending.append(made)
        return made

    def acknowledge(self, hold: ItemsHold, last: int) -> None:
        """The items of a hold were added, the last one with this number."""
        self._pending.remove(hold)
        for number, floor in enumerate(hold.floors, last - len(hold.floors) + 1):
            while self._items and self._items[-1].unit >= floor:
                self._items.pop()
            self._items.append(Hold(floor, number))

    def forget(self, hold: ItemsHold) -> None:
        """The items of a hold will not be added."""
        self._pending.remove(hold)

    def publish(self, unit: int, *, keep: int) -> None:
        """Parameters begin there; so do those of the last `keep` times that stay."""
        self._published.append(Hold(unit))
        while len(self._published) > keep:
            self._published.popleft()

    def unpublish(self) -> None:
        """What was to be published last will not be."""
        self._published.pop()

    # Room

    def needed(self, adds: int) -> int:
        """The oldest unit that is needed when so many items were ever added."""
        while self._items and self._items[0].last is not None and self._items[0].last < adds:
            self._items.popleft()
        if self._former and self._former.last is not None and self._former.last < adds:
            self._former = None
        holds = [
            *self._pending,
            *list(self._items)[:1],
            *list(self._published)[:1],
            *([self._former] if self._former else []),
        ]
        return max(self.oldest, min([hold.unit for hold in holds], default=self.end))

    def room(self, adds: int) -> int:
        """Units that fit."""
        return self.units - (self.end - self.needed(adds))

    def give_way(self) -> bool:
        """Gives up what is kept only for others: a former client's log, else parameters but for the last. Whether there
        was any."""
        if self._former:
            self._former = None
        elif len(self._published) > 1:
            self._published.popleft()
        else:
            return False
        return True

    def append(self, units: int, adds: int) -> tuple[int, int]:
        """Takes room: the start of what is appended, and the oldest unit that is needed. ValueError if it does not
        fit."""
        oldest = self.needed(adds)
        if self.end + units - oldest > self.units:
            raise ValueError(f"units must fit the {self.units - (self.end - oldest)} that are free, not {units!r}")
        self.oldest = oldest
        start, self.end = self.end, self.end + units
        return start, oldest
