"""A collective's usual case in C: contributions leave as the window allows, and results come, each once.

`native/exchange.c` works on the arrays of the ledger and of the caller, and returns at whatever is unusual: a result
that is missing below another one, one with a flag, a notice, a time-out. The ring handles that in Python and goes on.
Without a compiled library, or over another transport than a UDP or packet socket that passes bursts as one buffer, the
ring does all in Python.
"""

import logging
from functools import cache
from typing import Any

import numpy as np

from iswitch.driver.closable import ClosableTransport
from iswitch.driver.membership import Membership
from iswitch.driver.packet import PacketTransport
from iswitch.driver.received_sum import ReceivedSum
from iswitch.driver.segment_ledger import SegmentLedger
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transfer import Transfer
from iswitch.driver.udp import UdpTransport
from iswitch.native import records
from iswitch.native.address import address_of
from iswitch.native.loader import LibraryError, library
from iswitch.native.records import ExchangeEvent
from iswitch.wire import CONTRIBUTION_HEADER, HEADER, Type, version_type

__all__ = ["Exchange", "open_exchange"]

_log = logging.getLogger(__name__)
_EVENTS = {event.value: event for event in ExchangeEvent}  # calling an enumeration is slow


@cache
def _exchange_run() -> Any:
    """Return the function of the library, or None if there is none."""
    try:
        return library().exchange_run
    except LibraryError as error:
        _log.info("the driver runs in Python alone, which takes more processor time: %s", error)
        return None


def open_exchange(transport: ClosableTransport) -> "Exchange | None":
    """Return an exchange over a worker's transport, or None if its collectives run in Python alone."""
    inner = transport.inner
    if not isinstance(inner, (UdpTransport, PacketTransport)) or not inner.offloads or _exchange_run() is None:
        return None
    return Exchange(transport, inner)


class Exchange:
    """Runs collectives of one worker.

    Parameters
    ----------
    transport : ClosableTransport
        The worker's transport.
    inner : UdpTransport or PacketTransport
        The socket in it.
    """

    def __init__(self, transport: ClosableTransport, inner: UdpTransport | PacketTransport):
        self._transport, self._inner = transport, inner
        self._packets = inner if isinstance(inner, PacketTransport) else None
        self._run = _exchange_run()
        self._state = records.Exchange()
        self._transfer: Transfer | None = None

    def join(self, membership: Membership, ledger: SegmentLedger, buffer: np.ndarray, burst_segments: int) -> None:
        """Begin with a membership.

        Parameters
        ----------
        membership : Membership
            The membership.
        ledger : SegmentLedger
            Its ledger.
        buffer : numpy.ndarray
            uint8, shape (`RECEIVE_BYTES`,): where bursts are received.
        burst_segments : int
            The most segments in a burst.
        """
        state, self._ledger, self._buffer = self._state, ledger, buffer
        state.first_word = version_type(Type.RESULT) | membership.job << 8 | membership.epoch << 16
        state.token, state.first_seq = membership.job_token, membership.first_seq
        self._burst_segments, state.segment_bytes = burst_segments, 4 * membership.elements
        state.buffer = address_of(buffer)
        self._header = np.zeros(1, CONTRIBUTION_HEADER)  # of all contributions
        self._header["version_type"] = version_type(Type.CONTRIBUTION)
        for name in ("job", "epoch", "member", "token"):
            self._header[name] = getattr(membership, name)
        state.header = address_of(self._header)
        ledger.lend(state)

    @property
    def is_usable(self) -> bool:
        """True if the socket can be used now. A packet socket leaves some bursts to the kernel."""
        return self._packets is None or self._packets.accepts(HEADER.itemsize + self._state.segment_bytes)

    def begin(self, transfer: Transfer, received: ReceivedSum) -> None:
        """Begin a collective, which has one array."""
        state, (payloads,), (format_flags,) = self._state, transfer.parts, transfer.format_flags
        self._transfer = transfer
        state.format_flags, state.identity = format_flags, received.identity
        state.collective, state.digest = transfer.collective.word, transfer.digest
        state.array = address_of(payloads.octets)
        state.headers, state.checks = address_of(received.header_rows), address_of(received.checks)
        state.segment_bytes = payloads.segment_bytes
        state.last_bytes = payloads.last_bytes or state.segment_bytes
        state.begin, state.end = transfer.begin, transfer.end

    def end(self) -> None:
        """End the collective. The arrays belong to the caller again."""
        self._transfer = None

    def run(
        self, until_s: float, *, timer: RetransmissionTimer, longest_s: float, window: int
    ) -> tuple[ExchangeEvent, int]:
        """Send and receive for the collective, until something is unusual.

        Parameters
        ----------
        until_s : float
            The time-out, in seconds of the transport's clock. A new result puts it off.
        timer : RetransmissionTimer
            Gives the time from a result to the next time-out, and learns the delays.
        longest_s : float
            The most seconds from a result to the next time-out.
        window : int
            Segments that may be in flight.

        Returns
        -------
        event : ExchangeEvent
            Why the run has ended.
        results : int
            The number of new results.
        """
        state, ledger, transfer = self._state, self._ledger, self._transfer
        assert transfer is not None, "no collective has begun"
        state.burst_segments = self._burst_segments if self._inner.gso else 1  # the device may refuse bursts
        state.window, state.timeout_s, state.next = window, min(timer.timeout_s, longest_s), transfer.next
        state.first_sent_s, state.first_result_s = transfer.first_sent_at, transfer.first_result_at or 0.0
        ledger.load(state)
        event = self._transport.use(self._call, until_s)
        ledger.store(state)
        transfer.next, transfer.first_sent_at = state.next, state.first_sent_s
        if transfer.first_result_at is None and state.first_result_s:
            transfer.first_result_at = state.first_result_s
            timer.add_first_delay(state.first_result_s - state.first_sent_s)
        if state.delay_s >= 0:
            timer.add_delay(state.delay_s)
        return event, state.results

    def _call(self, until_s: float) -> ExchangeEvent:
        state = self._state
        state.fd = self._inner.fileno()
        if self._packets is not None:
            self._packets.lend(state)
        event = _EVENTS[self._run(state, until_s)]
        if self._packets is not None:
            self._packets.settle(state)
        self._inner.record(received=bool(state.received), error=state.error)
        return event

    @property
    def last_result_at(self) -> float:
        """When the last new result came, in seconds of the transport's clock."""
        return self._state.last_result_s

    @property
    def unhandled(self) -> tuple[np.ndarray, int, int]:
        """The part of the last burst that was not handled: the datagrams, their bytes, and the bytes of each."""
        state = self._state
        return self._buffer[state.offset :], state.size - state.offset, state.datagram_bytes
