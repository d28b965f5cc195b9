"""A transport that one thread can close while another thread is in a call that uses it, and that a forked child cannot
use."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from iswitch.driver.transport import Buffer, Keepalive, Transport
from iswitch.errors import ClosedError

__all__ = ["ClosableTransport"]

R = TypeVar("R")

_CLAIM_S = 2.0
"""The longest wait for another thread's call. The driver waits for a frame for up to 1 s at a time."""
_CLAIM_POLL_S = 0.001


class ClosableTransport:
    """Passes everything on to a transport, until a thread claims it in order to close it.

    From then on all calls of other threads raise ClosedError, and after `close` those of all threads. So a call that is
    in progress in another thread ends with a clear error at the next frame or time-out.

    A forked child has the same socket and a copy of the numbers in its messages. So in a child all calls raise
    ClosedError, too; otherwise it would take answers and numbers of its parent.

    Parameters
    ----------
    transport : Transport
        Carries the frames.
    closed_message : str
        The message of ClosedError.

    Attributes
    ----------
    inner : Transport
        The transport itself.
    """

    def __init__(self, transport: Transport, closed_message: str):
        self.inner, self.closed_message = transport, closed_message
        self.now, self.randbits, self.burst_segments = transport.now, transport.randbits, transport.burst_segments
        self._closed = False
        self._owner_pid = os.getpid()
        self._owner: int | None = None  # the thread that has claimed this transport
        self._user: int | None = None  # the thread that is in a call of the inner transport

    @property
    def is_inherited(self) -> bool:
        """True in a forked child of the process that made this transport."""
        return os.getpid() != self._owner_pid

    def claim(self) -> None:
        """Reserve the transport for the calling thread, and wait until no other thread is in a call of it."""
        self._owner, end = threading.get_ident(), time.monotonic() + _CLAIM_S
        while self._user not in (None, self._owner) and time.monotonic() < end:
            time.sleep(_CLAIM_POLL_S)

    def close(self) -> None:
        """Close the inner transport."""
        self._closed = True
        self.inner.close()

    def _require_usable(self) -> None:
        if self.is_inherited:
            raise ClosedError(
                f"this connection to the switch belongs to process {self._owner_pid}, and this is its child: make a "
                "client or worker in each process, after the fork"
            )
        if self._closed or self._owner is not None and self._owner != threading.get_ident():
            raise ClosedError(self.closed_message)

    def use(self, call: Callable[..., R], *arguments: Any) -> R:
        """Call a function that uses the inner transport. Raises ClosedError."""
        self._user = threading.get_ident()  # before the check, so that `claim` sees it or this call sees the claim
        try:
            if self._closed or self._owner is not None or os.getpid() != self._owner_pid:
                self._require_usable()
            return call(*arguments)
        except (OSError, ValueError):
            self._require_usable()  # the inner transport was closed in the middle of the call
            raise
        finally:
            self._user = None

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """As `Transport.send`. Raises ClosedError."""
        self.use(self.inner.send, burst, segment_bytes)

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        """As `Transport.receive`. Raises ClosedError."""
        return self.use(self.inner.receive, into, timeout_s)

    def sleep(self, seconds: float) -> None:
        """As `Transport.sleep`. Raises ClosedError."""
        self.inner.sleep(seconds)
        self._require_usable()

    def reopen(self) -> None:
        """As `Transport.reopen`. Raises ClosedError."""
        self._require_usable()
        self.inner.reopen()

    def start_keepalive(self, serve: Callable[[], float]) -> Keepalive:
        """As `Transport.start_keepalive`."""
        return self.inner.start_keepalive(serve)

    @property
    def refused(self) -> bool:
        """True if the inner transport has recorded that no program listens at the switch's port."""
        return getattr(self.inner, "refused", False)

    @property
    def receive_buffer_bytes(self) -> int | None:
        """Bytes that the kernel holds for the inner transport, or None if there is no limit."""
        return getattr(self.inner, "receive_buffer_bytes", None)

    @property
    def fault(self) -> str:
        """Why the inner transport could not send the last datagram, "" if it was sent or nothing is recorded."""
        return getattr(self.inner, "fault", "")
