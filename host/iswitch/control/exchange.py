"""One control message to the switch and its acknowledgement. Section 4 of `docs/protocol.md`."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from iswitch.driver.activity import ActivityMeter
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.errors import SwitchUnreachableError
from iswitch.wire import ACK, CONTROL, HEADER, NO_MEMBER, Action, Reason, Type, version_type

__all__ = ["Answer", "Exchange"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 0.5
"""Seconds until the first retransmission of a message, and the longest pause between two retransmissions."""
_ACK_VERSION_TYPE = version_type(Type.ACK)


class Answer(NamedTuple):
    """An acknowledgement.

    Attributes
    ----------
    header : record `iswitch.wire.HEADER`
        The header.
    body : record `iswitch.wire.ACK`
        The body.
    """

    header: np.void
    body: np.void

    @property
    def reason(self) -> Reason:
        """DONE, or the reason of a refusal."""
        return Reason(int(self.body["reason"]))


class Exchange:
    """Sends control messages to a switch. Each message is retransmitted until its acknowledgement comes.

    Parameters
    ----------
    transport : Transport
        Carries the messages.
    address : str
        Address of the switch, for messages.
    timeout_s : float
        Seconds without an answer until SwitchUnreachableError.
    timeout_name : str
        The caller's parameter that sets `timeout_s`, for messages; "" if there is none.
    on_other_burst : callable or None
        Called with (buffer, bytes, segment_bytes) of each burst of datagrams that holds no expected acknowledgement.

    Attributes
    ----------
    activity : ActivityMeter or None
        The meter of the member that sends the messages, if there is one.
    on_silence : callable or None
        Called each time that a message must be sent again.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        address: str = "the switch",
        timeout_s: float = 10.0,
        timeout_name: str = "",
        on_other_burst: Callable[[memoryview, int, int], None] | None = None,
    ):
        self.transport, self.address, self.timeout_s = transport, address, timeout_s
        self.timeout_name, self.on_other_burst = timeout_name, on_other_burst
        self.activity: ActivityMeter | None = None
        self.on_silence: Callable[[], object] | None = None
        self._seq = self.transport.randbits(31)  # distinguishes the answers to different messages
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def request(
        self,
        action: Action,
        *,
        job: int = 0,
        member: int = NO_MEMBER,
        token: int = 0,
        epoch: int = 0,
        seq: int | None = None,
        timeout_s: float | None = None,
        **body: int,
    ) -> Answer:
        """Send one control message and return its acknowledgement, also if it is a refusal.

        Parameters
        ----------
        action : Action
            What is requested.
        job, member, token, epoch : int
            Fields of the header.
        seq : int or None
            Number of the message. None: the next one.
        timeout_s : float or None
            Seconds to wait for the acknowledgement. None: the `timeout_s` of this object.
        **body : int
            Fields of `iswitch.wire.CONTROL`.

        Returns
        -------
        Answer
            The acknowledgement.

        Raises
        ------
        SwitchUnreachableError
            If no acknowledgement comes in time.
        """
        if seq is None:
            self._seq = seq = (self._seq + 1) % 2**32
        nonce = body.setdefault("nonce", self.transport.randbits(64))
        record = np.zeros(1, np.dtype(HEADER.descr + CONTROL.descr))
        fields = {
            "version_type": version_type(Type.CONTROL),
            "job": job,
            "epoch": epoch,
            "seq": seq,
            "member": member,
            "token": token,
            "action": action,
        } | body
        for name, value in fields.items():
            record[name] = value
        message = record.tobytes()

        now = self.transport.now()
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        deadline, wait_s = now + limit_s, _FIRST_WAIT_S
        while now < deadline:
            self.transport.send(message, len(message))
            until = min(now + wait_s, deadline)
            while (now := self.transport.now()) < until:
                if self.activity:
                    self.activity.mark(now)
                size, segment_bytes = self.transport.receive(self._buffer, until - now)
                if size and (answer := self._find_answer(size, segment_bytes, action, seq, nonce)):
                    return answer
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            if self.on_silence:
                self.on_silence()
                now = self.transport.now()
        raise self._unreachable(limit_s, self.timeout_name if timeout_s is None else "")

    def _find_answer(self, size: int, segment_bytes: int, action: int, seq: int, nonce: int) -> Answer | None:
        """Find the acknowledgement of a message in a burst of datagrams. Hand other bursts on."""
        for at in range(0, size, segment_bytes):
            if min(segment_bytes, size - at) == HEADER.itemsize + ACK.itemsize:
                header = np.frombuffer(self._buffer, HEADER, 1, at).copy()[0]
                body = np.frombuffer(self._buffer, ACK, 1, at + HEADER.itemsize).copy()[0]
                found = header["version_type"], header["seq"], body["action"], body["nonce"]
                if found == (_ACK_VERSION_TYPE, seq, action, nonce):
                    return Answer(header, body)
        if self.on_other_burst:
            self.on_other_burst(self._buffer, size, segment_bytes)
        return None

    def _unreachable(self, limit_s: float, timeout_name: str) -> SwitchUnreachableError:
        refused, fault = getattr(self.transport, "refused", False), getattr(self.transport, "fault", "")
        cause = f"{fault}; " if fault else "its host says that no program listens at this port; " if refused else ""
        name = f" (`{timeout_name}`)" if timeout_name else ""
        port = "" if ":" in self.address else " (26963, because the address names none)"
        return SwitchUnreachableError(
            f"the switch at {self.address} has not answered for {limit_s:g} s{name}: "
            f"{cause}start the switch (a board, or `iswitch switch` or the emulator on this machine), and check the "
            f"address and the port{port}"
        )
