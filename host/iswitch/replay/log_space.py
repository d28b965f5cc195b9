"""Which units of a session's log are still needed, so that all other units can be overwritten.

Three kinds of units are needed:

- units that an item refers to, as long as the item may be in the table;
- units of published parameters that are kept for their readers;
- in a session that another client had before, the units of that client, until `capacity` more items were added. Until
  then items of that client may be in the table.

Units and items are counted here without wrapping. On the wire they are modulo 2^32.
"""

from collections import deque

__all__ = ["ItemsPin", "LogSpace", "Pin"]


class Pin:
    """Keeps the log from being overwritten from one unit on.

    Parameters
    ----------
    unit : int
        The first unit that is needed.
    last_item : int or None
        Number of the last item that needs it. None: the pin stays until it is removed.
    """

    __slots__ = ("last_item", "unit")

    def __init__(self, unit: int, last_item: int | None = None):
        self.unit, self.last_item = unit, last_item


class ItemsPin(Pin):
    """The pin of items that the switch has not numbered yet.

    Attributes
    ----------
    first_units : list of int
        For each item, the first unit that the item needs.
    """

    __slots__ = ("first_units",)

    def __init__(self, unit: int):
        super().__init__(unit)
        self.first_units: list[int] = []

    def begin_item(self, end: int) -> None:
        """Begin the next item. So far the item needs nothing before the end of the log, the unit `end`."""
        self.first_units.append(end)

    def begin_items(self, end: int, units: int, count: int) -> None:
        """Begin so many items that each need their own units, one behind the other from the end of the log on."""
        self.first_units.extend(range(end, end + count * units, units))
        self.unit = min(self.unit, end)

    def require(self, unit: int) -> None:
        """Record that the latest item also needs this unit and all behind it."""
        self.first_units[-1] = min(self.first_units[-1], unit)
        self.unit = min(self.unit, unit)

    def truncate(self, items: int) -> None:
        """Drop all items but the first `items`."""
        del self.first_units[items:]


class LogSpace:
    """The log of one session, as its only writer records it.

    Parameters
    ----------
    units : int
        Size of the log in units of 64 bytes.
    written, oldest : int
        End of the log and oldest unit that is kept, modulo 2^32, from the answer to OPEN.
    adds : int
        Items that had been added to the table when the session was opened.
    capacity : int
        Items that the table holds.
    """

    def __init__(self, *, units: int, written: int, oldest: int, adds: int, capacity: int):
        self.units = units
        self.end = written + 2**32
        """The first unit that is not written."""
        self.oldest = self.end - (written - oldest) % 2**32
        """The switch may overwrite all units before this one, according to the last WRITE."""
        # What a former client of the session left. Items are numbered from `capacity` on.
        self._former = Pin(self.oldest, adds + capacity - 1) if self.oldest != self.end else None
        self._pending: list[ItemsPin] = []  # of items that have no number yet
        # Pins of items, with rising units. A later item that reaches further back replaces the pins before it.
        self._items: deque[Pin] = deque()
        self._parameters: deque[Pin] = deque()

    # Pins

    def pin_items(self) -> ItemsPin:
        """Return a pin for items that are about to be sent. End it with `acknowledge` or `discard`."""
        made = ItemsPin(self.end)
        self._pending.append(made)
        return made

    def acknowledge(self, pin: ItemsPin, last_item: int) -> None:
        """Record that the items of a pin were added, where `last_item` is the number of the last of them."""
        self._pending.remove(pin)
        for number, unit in enumerate(pin.first_units, last_item - len(pin.first_units) + 1):
            while self._items and self._items[-1].unit >= unit:
                self._items.pop()
            self._items.append(Pin(unit, number))

    def discard(self, pin: ItemsPin) -> None:
        """Record that the items of a pin will not be added."""
        self._pending.remove(pin)

    def pin_parameters(self, unit: int, *, keep: int) -> None:
        """Keep parameters that begin at a unit, and those of the last `keep` versions, this one included."""
        self._parameters.append(Pin(unit))
        while len(self._parameters) > keep:
            self._parameters.popleft()

    def unpin_parameters(self) -> None:
        """Take back the latest `pin_parameters`."""
        self._parameters.pop()

    # Space

    def oldest_needed(self, adds: int) -> int:
        """Return the oldest unit that is needed after `adds` items were added to the table."""
        while self._items and self._items[0].last_item is not None and self._items[0].last_item < adds:
            self._items.popleft()
        if self._former and self._former.last_item is not None and self._former.last_item < adds:
            self._former = None
        pins = [
            *self._pending,
            *list(self._items)[:1],
            *list(self._parameters)[:1],
            *([self._former] if self._former else []),
        ]
        return max(self.oldest, min([pin.unit for pin in pins], default=self.end))

    def free_units(self, adds: int) -> int:
        """Return how many units can be appended after `adds` items were added to the table."""
        return self.units - (self.end - self.oldest_needed(adds))

    def release_optional(self) -> bool:
        """Release units that only other clients may want: first a former client's log, then the oldest parameters, but
        never the latest parameters. Return False if there was nothing to release."""
        if self._former:
            self._former = None
        elif len(self._parameters) > 1:
            self._parameters.popleft()
        else:
            return False
        return True

    def reserve(self, units: int, adds: int) -> tuple[int, int]:
        """Reserve units at the end of the log.

        Parameters
        ----------
        units : int
            How many units.
        adds : int
            Items that were added to the table so far.

        Returns
        -------
        start, oldest : int
            The first unit reserved, and the oldest unit that is needed.

        Raises
        ------
        ValueError
            If the units do not fit.
        """
        oldest = self.oldest_needed(adds)
        if self.end + units - oldest > self.units:
            raise ValueError(f"units must fit the {self.units - (self.end - oldest)} that are free, not {units!r}")
        self.oldest = oldest
        start, self.end = self.end, self.end + units
        return start, oldest
