"""Many queries of one kind: the arrays of what they request and of where their replies go.

The usual case is in C (`native/replay.c`): requests leave as the window allows, and each is answered once, by DATA with
all that was requested. `iswitch.replay.queries` does the rest in Python, and all of it without a compiled library.
"""

from collections.abc import Callable

import numpy as np

from iswitch.native.records import QueryGroup as State
from iswitch.replay.compiled import compiled_library
from iswitch.replay.messages import Reply, encode
from iswitch.wire import Type, version_type
from iswitch.wire.replay import REPLAY_HEADER, Kind

__all__ = ["QueryGroup"]


class QueryGroup:
    """Queries of one kind.

    Parameters
    ----------
    kind : Kind
        FETCH or LOAD.
    counts : uint32 array of shape (n,)
        Items or units of each query.
    bodies : array of rows
        Rows behind the headers, end to end.
    body_rows : uint32 array of shape (n,)
        The number of rows of each query. Only the last one may have fewer than the first.
    target : uint8 array, contiguous
        Where replies go.
    target_at, target_bytes : arrays of shape (n,)
        Place and bytes of each reply in `target`.
    on_reply : callable
        Called with the number of a query and its reply, where Python handles the reply.

    Attributes
    ----------
    table : int
        The table that the queries are about.
    taken : int
        Queries whose replies are in `target` without a call of `on_reply`.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        counts: np.ndarray,
        bodies: np.ndarray,
        body_rows: np.ndarray,
        target: np.ndarray,
        target_at: np.ndarray,
        target_bytes: np.ndarray,
        on_reply: Callable[[int, Reply], None],
    ):
        self.kind, self.counts, self.bodies, self.on_reply = kind, counts.astype("<u4"), bodies, on_reply
        self._body_bytes = (body_rows * bodies.itemsize).astype("<u4")
        self.target, self._target_at = target, target_at.astype("<u8")
        self._target_bytes = target_bytes.astype("<u4")
        self._stride = int(self._body_bytes[0]) if len(counts) else 0
        self.table = 0
        self.state: State | None = None
        if target.nbytes < int((self._target_at + self._target_bytes).max(initial=0)):
            raise ValueError(f"replies must fit the target of {target.nbytes} bytes")
        ends = np.arange(len(counts)) * self._stride + self._body_bytes
        if bodies.nbytes < int(ends.max(initial=0)):
            raise ValueError(f"the requests must be in the {bodies.nbytes} bytes of their bodies")

    def __len__(self) -> int:
        return len(self.counts)

    def body(self, k: int) -> bytes:
        """Return the rows of a query."""
        at = k * self._stride
        return self.bodies.view(np.uint8)[at : at + int(self._body_bytes[k])].tobytes()

    @property
    def taken(self) -> int:
        """Number of queries whose replies C has taken."""
        return self.state.taken if self.state else 0

    # In C

    def begin(self, *, session: int, token: int, first_tag: int, largest_window: float) -> bool:
        """Begin with the usual case in C. Return False if there is no library, or nothing to request."""
        count = len(self)
        if not count or compiled_library() is None:
            return False
        header = np.frombuffer(encode(self.kind, session=session, token=token, table=self.table), np.uint8)
        self.answered, self.sent_at, delays = np.zeros(count, np.bool_), np.zeros(count), np.zeros(count)
        self.delays, self._header = delays, header
        self._out = np.zeros(0, np.uint8)
        self.state = State(
            token=token, first_tag=first_tag, kind=self.kind, data_type=version_type(Type.DATA), count=count
        )
        self.state.body_stride, self.state.largest_window = self._stride, largest_window
        for name, array in (
            ("header", header),
            ("counts", self.counts),
            ("bodies", self.bodies),
            ("body_bytes", self._body_bytes),
            ("target", self.target),
            ("target_at", self._target_at),
            ("target_bytes", self._target_bytes),
            ("answered", self.answered),
            ("sent_at", self.sent_at),
            ("delays", delays),
        ):
            setattr(self.state, name, array.ctypes.data)
        return True

    def request_bytes(self, k: int) -> int:
        """Return the bytes of a request."""
        return REPLAY_HEADER.itemsize + int(self._body_bytes[k])

    def build(self, most: int, now: float) -> tuple[bytes, int]:
        """Return the next requests end to end, and their number: at most `most`, and all as long as the first."""
        assert self.state
        size = self.request_bytes(self.state.next)
        if len(self._out) < most * size:
            self._out = np.zeros(most * size, np.uint8)
        built = compiled_library().replay_build(self.state, most, now, self._out.ctypes.data)
        return self._out[: built * size].tobytes(), built

    def take(self, burst: memoryview, size: int, segment_bytes: int, offset: int, now: float) -> int:
        """Take usual replies from a burst, from an offset on. Return the offset of the first datagram for Python."""
        address = np.frombuffer(burst, np.uint8).ctypes.data
        return int(compiled_library().replay_take(self.state, address, size, segment_bytes, offset, now))
