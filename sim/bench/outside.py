"""A client written from `docs/protocol.md` alone, without the driver's timer, with which the driver's retransmission is
compared.

Its time-out is RFC 6298's, clamped to 20 ms and 1 s. Each segment has a time-out of its own. The back-off doubles at
each expiry and ends with any new result. Or the time-out is fixed, without a back-off.
"""

from typing import NamedTuple

import numpy as np

from iswitch.control.client import Control
from iswitch.driver.membership import Membership
from iswitch.driver.packing import Packer, Payloads
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    NO_MEMBER,
    RESULT_HEADER,
    TAIL_BYTES,
    ContributionFlag,
    Format,
    Mode,
    Type,
    version_type,
)

__all__ = ["OutsideClient", "Sum"]

LEAST_S, MOST_S = 0.02, 1.0
GIVE_UP_S = 60.0
_RETRANSMISSION = int(ContributionFlag.RETRANSMISSION) << FLAGS_SHIFT


class Sum(NamedTuple):
    """The cost of one sum. `retransmissions` are the contributions sent more than once."""

    retransmissions: int


class OutsideClient:
    """One of `world` workers of job 0. It sums 1-D float32 arrays, has no other operation, and sends no keepalives
    while it computes. With `fixed_s` its time-out is that one, in seconds, and never grows."""

    def __init__(self, transport: Transport, *, world: int, rank: int | None = None, fixed_s: float | None = None):
        self._transport, self._control = transport, Control(transport)
        config = self._control.switch_info()
        wish = Membership(
            job=0,
            key=0,
            world=world,
            threshold=world,
            format=Format.WINDOW64,
            fraction=44,
            elements=config.elements,
            mode=Mode.QUARANTINE,
            nonce=transport.randbits(64) | 1,
            token=transport.randbits(32),
            job_token=transport.randbits(32),
            wanted=NO_MEMBER if rank is None else rank,
        )
        self.membership = self._control.join(wish, timeout_s=GIVE_UP_S)
        self._packer = Packer(self.membership, transport.burst_segments(HEADER.itemsize + 4 * config.elements))
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._base = self.membership.first_seq
        self._srtt_s: float | None = None
        self._rttvar_s = 0.0
        self._timeout_s, self._backoff, self._fixed = fixed_s or LEAST_S, 1, fixed_s is not None

    def allreduce(self, values: np.ndarray) -> Sum:
        """Replace `values` by their sum over the workers. Raises TimeoutError if no result comes for a minute."""
        payloads, retransmissions = Payloads(values, self.membership.elements), 0
        held, times = np.zeros(payloads.size + 1, np.bool_), np.zeros(payloads.size, np.int64)
        sent_at = np.zeros(payloads.size)
        low = high = 0  # the first lacked, the first never sent
        progress_at = self._transport.now()
        while low < payloads.size:
            now = self._transport.now()
            if now > progress_at + GIVE_UP_S:
                raise TimeoutError(f"no result for {GIVE_UP_S:g} s")
            last = min(low + self.membership.window, payloads.size)
            if high < last:
                self._send(payloads, np.arange(high, last), low, 0)
                times[high:last], sent_at[high:last], high = 1, now, last
            lacked = np.flatnonzero(~held[low:high]) + low
            timeout_s = min(self._timeout_s * self._backoff, MOST_S)
            overdue = lacked[sent_at[lacked] + timeout_s <= now]
            if len(overdue):
                self._send(payloads, overdue, low, _RETRANSMISSION)
                times[overdue] += 1
                sent_at[overdue] = now
                retransmissions += len(overdue)
                self._backoff = 1 if self._fixed else min(2 * self._backoff, 1 << 10)
                continue
            new = self._receive(payloads, held, max(0.0, sent_at[lacked].min() + timeout_s - now))
            if len(new):
                now = progress_at = self._transport.now()
                self._backoff = 1
                if len(once := new[times[new] == 1]):
                    self._measure(now - sent_at[once[-1]])
                low += int(held[low:].argmin())
        self._base = (self._base + payloads.size) % 2**32
        return Sum(retransmissions)

    def close(self) -> None:
        """Leave the job and close the transport."""
        self._control.leave(self.membership)
        self._transport.close()

    def _measure(self, delay_s: float) -> None:
        """Follow RFC 6298, section 2."""
        if self._fixed:
            return
        if self._srtt_s is None:
            self._srtt_s, self._rttvar_s = delay_s, delay_s / 2
        else:
            self._rttvar_s += (abs(self._srtt_s - delay_s) - self._rttvar_s) / 4
            self._srtt_s += (delay_s - self._srtt_s) / 8
        self._timeout_s = min(max(self._srtt_s + 4 * self._rttvar_s, LEAST_S), MOST_S)

    def _send(self, payloads: Payloads, indices: np.ndarray, low: int, flags: int) -> None:
        for burst in self._packer.scattered(
            payloads, indices, base=self._base, low=low, format_flags=int(Format.WINDOW64) | flags
        ):
            self._transport.send(burst, self._packer.segment_bytes)

    def _receive(self, payloads: Payloads, held: np.ndarray, timeout_s: float) -> np.ndarray:
        """Put one burst of results into place, and return the indices of the new ones."""
        size, segment_bytes = self._transport.receive(self._buffer.data, timeout_s)
        m, new = self.membership, []
        for at in range(0, size, segment_bytes or 1):
            datagram = self._buffer[at : min(at + segment_bytes, size)]
            if len(datagram) < HEADER.itemsize:
                continue
            header = datagram[: HEADER.itemsize].view(RESULT_HEADER)[0]
            index = (int(header["seq"]) - self._base) % 2**32
            if (header["version_type"], header["job"], header["epoch"]) != (version_type(Type.RESULT), m.job, m.epoch):
                continue
            if header["token"] != m.job_token:
                continue
            if index < payloads.size and not held[index]:
                row = payloads.rows[index] if index < len(payloads.rows) else payloads.last
                row[:] = datagram[HEADER.itemsize : -TAIL_BYTES]
                held[index] = True
                new.append(index)
        return np.array(new, np.int64)
