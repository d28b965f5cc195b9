"""Read the items of a table in the order in which they were added (FIFO).

A handle is the number of an item in that order, and every answer says how many items were ever added. So the reader
knows the handles of all items that it has not read, and reads them with FETCH. It sends nothing else, so it changes
nothing in the table: neither actors nor other readers notice it, and nothing holds actors back that are faster.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

from iswitch.errors import IswitchError
from iswitch.replay.errors import NotServedError
from iswitch.replay.reading import TransitionRead
from iswitch.replay.records import Layout
from iswitch.replay.request import FIRST_WAIT_S
from iswitch.replay.session import Session
from iswitch.serial import serial_distance
from iswitch.wire.replay import ReplayOutcome

__all__ = ["Fifo", "FifoBatch", "Start"]

Start = Literal["oldest", "next"] | int
"""Where reading begins: with the oldest item in the table, with the next that is added, or with a handle."""
_HANDLES = 1 << 32
_LONGEST_WAIT_S = 0.02


@dataclass(frozen=True)
class FifoBatch:
    """A batch of n items in the order in which they were added.

    Attributes
    ----------
    data : dict of str to array of shape (n, ...)
        The transitions, by field.
    items : uint32 array of shape (n,)
        Handles of the items, for `ReplayClient.update_priority`. They rise by 1, or by more where items are missing.
    overwritten : int
        Items that are missing between the batch before (at first: the start) and the last item of this one, because
        they were overwritten before they were read.
    """

    data: dict[str, np.ndarray] = field(repr=False)
    items: np.ndarray = field(repr=False)
    overwritten: int

    def __len__(self) -> int:
        return len(self.items)


class Fifo:
    """An endless iterator over batches of items in the order in which they were added. It returns each item once,
    unless the item was overwritten before it was read; these are counted.

    The reader knows where it is, so it goes on after `ReplayClient.reopen`, and a new one goes on at the handle
    `position`.

    Parameters
    ----------
    session : Session
        The session.
    layout : Layout
        Where fields are stored.
    count : int
        Items in a batch, 1 to `capacity`.
    start : {"oldest", "next"} or int
        Where to begin.
    send_waiting : callable
        Sends the client's own items that wait for more; called before each batch.

    Attributes
    ----------
    position : int
        Handle after the last item that was returned; at first, where reading begins.
    overwritten : int
        Items before `position` that were overwritten before they were read.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong.
    """

    def __init__(self, session: Session, layout: Layout, count: int, start: Start, *, send_waiting: Callable[[], None]):
        self._session, self._layout, self._send_waiting = session, layout, send_waiting
        self.count = self._check(count)
        capacity, status = session.config.capacity, session.read_status()
        if start in ("oldest", "next"):
            behind = status.filled if start == "oldest" else 0
            self.position = (status.adds + capacity - behind) % _HANDLES
        elif isinstance(start, (int, np.integer)) and not isinstance(start, bool) and 0 <= start < _HANDLES:
            self.position = int(start)
        else:
            raise ValueError(f'start must be "oldest", "next" or a handle, 0 to 2^32 - 1, not {start!r}')
        if self.position < capacity and status.filled < capacity:
            raise ValueError(f"start must be a handle, and the first item has the handle {capacity}, not {start!r}")
        self.overwritten = 0
        self._ahead = self.position  # handle of the item that is read next
        self._parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []  # that were read and not returned
        self._unread()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FifoBatch:
        """Return the next `count` items, as `read`."""
        return self.read(self.count)

    def read(self, count: int) -> FifoBatch:
        """Wait for the next items and return them.

        Parameters
        ----------
        count : int
            Number of items, 1 to `capacity`.

        Raises
        ------
        ValueError
            If `count` is out of range.
        NotServedError
            If fewer than `count` items came within `wait_s`. Those that came are in the next batch.
        IswitchError
            If the table has fewer items than were read, because the switch restarted.
        """
        self._check(count)
        self._send_waiting()
        session, pause_s = self._session, FIRST_WAIT_S
        deadline = session.transport.now() + session.wait_s
        while (missing := count - self._held) > 0:
            if (now := session.transport.now()) >= deadline:
                raise NotServedError(
                    f"only {self._held} of {count} items of table {session.table} at {session.address} came "
                    f"within {session.wait_s:g} s: add more items, or read fewer at a time. They are in the next batch",
                    ReplayOutcome.ITEMS,
                )
            if not (unread := self._unread()):
                session.poll(min(pause_s, deadline - now))
                pause_s = min(2 * pause_s, _LONGEST_WAIT_S)
                session.read_status()
            elif (lead := unread - session.config.capacity) > 0:
                self._ahead = (self._ahead + lead) % _HANDLES  # these were overwritten
            else:
                self._read(min(missing, unread))
                pause_s = FIRST_WAIT_S
        return self._take(count)

    def available(self) -> int:
        """Ask the switch how many items `read` returns without waiting. Some may be overwritten before they are
        read."""
        self._send_waiting()
        self._session.read_status()
        return self._held + min(self._unread(), self._session.config.capacity)

    def _check(self, count: int) -> int:
        capacity = self._session.config.capacity
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= capacity:
            raise ValueError(f"a batch must have 1 to {capacity} items, the table's capacity, not {count!r}")
        return int(count)

    @property
    def _held(self) -> int:
        """Number of items that were read and not returned."""
        return sum(len(items) for items, _ in self._parts)

    def _unread(self) -> int:
        """Return how many items were added that this reader has not read, as far as is known."""
        session = self._session
        unread = serial_distance((session.adds + session.config.capacity) % _HANDLES, self._ahead)
        if unread < 0:
            raise IswitchError(
                f"item {self._ahead} of table {session.table} at {session.address} cannot be next, because only "
                f"{session.adds} items were ever added: the switch restarted, or the handle is of another table. Begin "
                'with start="oldest"'
            )
        return unread

    def _read(self, count: int) -> None:
        """Read the next items, and keep those that were not overwritten meanwhile."""
        items = ((self._ahead + np.arange(count)) % _HANDLES).astype(np.uint32)
        read = TransitionRead(self._session, self._layout, items)
        self._session.wait_until(read.advance)
        present = ~read.overwritten
        if present.all():
            self._parts.append((items, read.columns))
        elif present.any():
            self._parts.append((items[present], {name: column[present] for name, column in read.columns.items()}))
        self._ahead = (self._ahead + count) % _HANDLES

    def _take(self, count: int) -> FifoBatch:
        """Return the first `count` of the items that were read, and keep the others."""
        parts, self._parts = self._parts, []
        items = np.concatenate([items for items, _ in parts]) if len(parts) > 1 else parts[0][0]
        columns = parts[0][1]  # as they were received, without a copy
        if len(parts) > 1:
            columns = {name: np.concatenate([part[name] for _, part in parts]) for name in self._layout.spec}
        if len(items) > count:
            self._parts = [(items[count:], {name: column[count:] for name, column in columns.items()})]
            items, columns = items[:count], {name: column[:count] for name, column in columns.items()}
        follower = (int(items[-1]) + 1) % _HANDLES
        overwritten = serial_distance(follower, self.position) - count
        self.position, self.overwritten = follower, self.overwritten + overwritten
        return FifoBatch(columns, items, overwritten)
