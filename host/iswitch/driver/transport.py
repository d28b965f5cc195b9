"""The interface between the driver and the world: datagrams to and from the switch, time, and random numbers."""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from iswitch.driver.keepalive import KeepaliveThread
from iswitch.driver.weak_call import weakly

__all__ = ["RECEIVE_BYTES", "Buffer", "Keepalive", "RealTimeTransport", "Transport"]

Buffer = bytes | bytearray | memoryview

RECEIVE_BYTES = 1 << 16
"""Size of a buffer for `receive`: the longest burst."""
_LONG_S = 1.0
"""Time to the next call of a service whose object the program has dropped. The object's finalizer ends the service."""


class Keepalive(Protocol):
    """Serves a worker between its collectives, while the program computes.

    `with keepalive:` suspends the service, so that the program itself can use the transport.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def stop(self) -> None:
        """End the service."""


class Transport(Protocol):
    """Sends and receives bursts of datagrams.

    A *burst* is a buffer of UDP payloads of equal size, end to end; the last may be shorter (the unit of UDP GSO and
    GRO).

    The driver does not distinguish UDP from an emulator in the same process or from a recording, nor this machine's
    time from a simulated one: it waits, reads the clock and draws random numbers by its transport only.
    """

    def burst_segments(self, segment_bytes: int) -> int:
        """Return the most segments of a size that one `send` accepts."""

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send each segment of a burst as a datagram. The call waits for nothing but buffer space, and may lose
        datagrams.

        Parameters
        ----------
        burst : bytes, bytearray or memoryview
            Datagrams end to end.
        segment_bytes : int
            Bytes of a datagram; the last one may be shorter.
        """

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        """Wait for a burst.

        Parameters
        ----------
        into : memoryview
            `RECEIVE_BYTES` bytes to fill.
        timeout_s : float
            The most seconds to wait.

        Returns
        -------
        size : int
            Bytes of the burst, 0 if none has come in time.
        segment_bytes : int
            Bytes of each datagram; the last one may be shorter.
        """

    def now(self) -> float:
        """Return the time in seconds, of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait without receiving."""

    def start_keepalive(self, serve: Callable[[], float]) -> Keepalive:
        """Call a function from now on, each time that a burst has come or its time is over.

        Parameters
        ----------
        serve : bound method
            Returns the seconds to its next call, at the latest. The service alone need not keep the method's object: a
            worker that the program drops leaves its job.
        """

    def randbits(self, bits: int) -> int:
        """Return a number of random bits, which others cannot guess."""

    def reopen(self) -> None:
        """Send and receive in a new way, after this machine's address has changed."""

    def close(self) -> None:
        """Release the transport's resources."""


class RealTimeTransport(ABC):
    """Base class of the transports that use this machine's clock."""

    @abstractmethod
    def fileno(self) -> int:
        """Return a descriptor that is readable if `receive` would not wait."""

    now = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def start_keepalive(self, serve: Callable[[], float]) -> Keepalive:
        return KeepaliveThread(self.fileno(), weakly(serve, _LONG_S))

    def randbits(self, bits: int) -> int:
        return secrets.randbits(bits)
