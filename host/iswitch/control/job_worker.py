"""What workers of synchronous and of asynchronous jobs have in common: they join a job, keep their place, and leave."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from iswitch.control.abandoned_job import AbandonedJobWatch
from iswitch.control.client import Control
from iswitch.control.collective_meter import CollectiveMeter
from iswitch.control.counters import rise_lines
from iswitch.control.lost_membership import Member
from iswitch.control.switch_info import SwitchInfo
from iswitch.driver.closable import ClosableTransport
from iswitch.driver.keepalive import release_all
from iswitch.driver.membership import Membership
from iswitch.driver.packet import PacketTransport
from iswitch.driver.termination import call_before_termination
from iswitch.driver.transport import Keepalive, Transport
from iswitch.driver.udp import UdpTransport
from iswitch.driver.weak_call import weakly
from iswitch.errors import ClosedError, CollectiveTimeoutError, IswitchError, NotAMemberError, RefusedError

__all__ = ["DEFAULT_ADDRESS", "JobWorker", "brings_network", "switch_address"]

DEFAULT_ADDRESS = "127.0.0.1:27000"
"""Address of the switch if the environment variable ISWITCH_ADDRESS is not set: the emulator's first port."""
_LEAVE_TIMEOUT_S = 1.0
"""The longest wait for the answer to a Leave."""
_REBIND_TIMEOUT_S = 1.0
"""The longest wait for an answer of the switch when a worker has moved, in the thread that answers the switch."""


def switch_address(address: str | None, transport: Transport | None = None) -> str:
    """Return the address that a packet socket sends to, or an address, or if it is None, that in the environment
    variable ISWITCH_ADDRESS, or else the default."""
    if isinstance(transport, PacketTransport):
        return transport.address
    return os.environ.get("ISWITCH_ADDRESS") or DEFAULT_ADDRESS if address is None else address


def brings_network(transport: Transport | None) -> bool:
    """Return True if a transport of the program leads to a network of its own, where no other program is."""
    return transport is not None and not isinstance(transport, PacketTransport)


def _close(
    control: Control,
    member: Member,
    keepalive: Keepalive,
    transport: ClosableTransport,
    owner_pid: int,
    state: dict[str, bool],
    unregister: Callable[[], None],
) -> bool:
    """Leave the job and close the transport. Return True if the switch confirmed it.

    If another thread is in a call of the worker, that call ends first, with ClosedError. This function also runs when
    the interpreter exits, so that a script that ends with an error leaves its job, and when the program drops the
    worker.
    """
    if os.getpid() != owner_pid:  # the membership belongs to the parent of this forked process
        return False
    transport.claim()
    keepalive.stop()
    control.on_other_burst = None  # another thread may still be in the ring
    if control.joining:
        control.take_back_join(timeout_s=_LEAVE_TIMEOUT_S)
    confirmed = state["member"] and control.leave(member.membership, timeout_s=_LEAVE_TIMEOUT_S)
    transport.close()
    unregister()
    return confirmed


class JobWorker(ABC):
    """A member of a job, from its Join until it leaves.

    It leaves at the latest when the interpreter exits or SIGTERM ends the process. Between the program's calls, a
    thread answers the switch. A subclass joins within `_joined`, and calls `_start_keepalive` at the end of that block.

    Parameters
    ----------
    address : str or None
        The switch's address. None: the environment variable ISWITCH_ADDRESS, or `DEFAULT_ADDRESS`.
    timeout_s, switch_timeout_s, join_timeout_s : float
        Seconds as `Worker` describes them.
    transport : Transport or None
        Carries the frames; the worker closes it. None: a UDP socket. A `PacketTransport` brings its address.
    no_offload : bool
        See `UdpTransport`.
    """

    def __init__(
        self,
        address: str | None,
        *,
        timeout_s: float,
        switch_timeout_s: float,
        join_timeout_s: float,
        transport: Transport | None,
        no_offload: bool,
    ) -> None:
        self.address = switch_address(address, transport)
        self.timeout_s, self.switch_timeout_s, self._join_timeout_s = timeout_s, switch_timeout_s, join_timeout_s
        self._transport = ClosableTransport(
            transport or UdpTransport(self.address, no_offload=no_offload),
            f"this process has closed this worker of {self.address}",
        )
        self.meter: CollectiveMeter | None = None
        """Counts this worker's collectives, once the program has called `iswitch.metrics.watch`."""
        self._state = {"member": False}
        self._owner_pid = os.getpid()
        self._one_call = threading.RLock()  # as that of the keepalive thread
        try:
            self._control = Control(
                self._transport, address=self.address, timeout_s=switch_timeout_s, timeout_name="switch_timeout_s"
            )
            self.switch_info: SwitchInfo = self._control.switch_info()
            """Sizes of the switch."""
        except BaseException:
            self._transport.close()
            raise

    def _join(self, request: Membership, *, elastic: bool, timeout_s: float | None = None) -> Membership:
        """Join the job. If dead workers left a job behind, wait until the switch may end it.

        Parameters and errors as in `Control.join`."""
        limit_s, name = (self._join_timeout_s, "join_timeout_s") if timeout_s is None else (timeout_s, "timeout_s")
        deadline = self._transport.now() + limit_s
        watch = AbandonedJobWatch(self._control, request)
        while True:
            try:
                return self._request_join(
                    request,
                    timeout_s=limit_s,
                    timeout_name=name,
                    elastic=elastic,
                    on_wait=watch.check if elastic else None,
                    is_alive=watch.is_alive,
                    before_entry=lambda: watch.wait_until_known(deadline),
                )
            except RefusedError as refusal:
                watch.wait_until_free(refusal, deadline)

    def _request_join(self, request: Membership, **options: Any) -> Membership:
        """Send a Join. A subclass may change the request if the switch refuses it."""
        return self._control.join(request, **options)

    @contextmanager
    def _joined(self, request: Membership, *, elastic: bool) -> Iterator[Membership]:
        """Join the job and yield the membership. If the block fails, leave the job."""
        self._transport.closed_message = (
            f"this process has closed this worker of job {request.job} at {self.address}, by `close` or by the end of "
            f"a `with` block: make a new {type(self).__name__}, and let all threads end their calls before you close it"
        )
        self._unregister = call_before_termination(weakly(self._leave_before_termination, None))
        try:
            membership = self._join(request, elastic=elastic)
            self._state["member"] = True
            yield membership
        except BaseException:
            if self._state["member"]:
                self._control.leave(membership)
            self._transport.close()
            self._unregister()
            raise

    def _leave_before_termination(self) -> None:
        """Leave the job before SIGTERM ends the process. This may interrupt any other call of this thread, so nothing
        here waits for a lock, or for long."""
        if keepalive := getattr(self, "_keepalive", None):
            keepalive.stop()
        self._control.on_other_burst = None  # a ring in the middle of a collective cannot handle frames
        if keepalive and self._state["member"]:
            self._control.leave(self._member.membership, timeout_s=_LEAVE_TIMEOUT_S)
        else:
            self._control.take_back_join(timeout_s=_LEAVE_TIMEOUT_S)

    def _start_keepalive(self, member: Member) -> None:
        """Start the thread that answers the switch, and arrange that `close` runs at the latest at the interpreter's
        exit."""
        self._member = member
        # Nothing that outlives the worker keeps it: a worker that the program drops without `close` leaves its job.
        self._control.on_other_burst = weakly(self._handle_burst, None)
        self._control.activity = member.activity
        self._counters_at_join = self._read_counters()
        self._keepalive = self._transport.start_keepalive(self._serve)
        self._finalizer = weakref.finalize(
            self,
            _close,
            self._control,
            member,
            self._keepalive,
            self._transport,
            self._owner_pid,
            self._state,
            self._unregister,
        )

    @abstractmethod
    def _handle_burst(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        """Handle a burst of datagrams that came while the worker waited for an acknowledgement."""

    @abstractmethod
    def _serve(self) -> float:
        """Handle what has come and send what is due. The thread calls this when something has come, or after the number
        of seconds that the last call returned. Return the seconds until the next call."""

    def _rebind(self) -> Membership:
        """Bind this worker to the port and the address that it has now, after the switch has reported that it knows the
        worker at another place. Return the membership. Raises NotAMemberError, SwitchUnreachableError."""
        return self._control.renew(self._member.membership, timeout_s=_REBIND_TIMEOUT_S)

    def _nonce(self) -> int:
        """Return a random number that identifies one Join."""
        return self._transport.randbits(64) | 1

    @property
    def rank(self) -> int:
        """This worker's index in the job, 0 to world - 1."""
        return self._member.membership.member

    @property
    def job(self) -> int:
        """Number of the worker's job at the switch."""
        return self._member.membership.job

    def counters(self) -> dict[str, int]:
        """Return the switch's counters by name. `iswitch.control.counters` has a sentence on each.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer.
        ClosedError
            If the worker is closed.
        """
        self._require_open()
        with self._keepalive:
            return self._read_counters()

    # A method, because a function that names itself would keep the worker alive after its program has dropped it.
    def _give_sign_of_life(self) -> None:
        self._control.on_silence = None  # also the messages of `_serve` may have to be sent again
        self._serve()
        self._control.on_silence = self._give_sign_of_life

    def _read_counters(self) -> dict[str, int]:
        """Read the switch's counters, between collectives. On a path that loses many frames this takes longer than
        `evict_s`, and a READ is no sign of life: so the worker gives others meanwhile."""

        self._control.on_silence = self._give_sign_of_life
        try:
            return self._control.counters(self.switch_info.ports)
        finally:
            self._control.on_silence = None

    def halt(self) -> None:
        """Suspend the job: the switch refuses the contributions of all workers until a worker calls `resume`.

        Calls that wait for results, such as `allreduce`, `push` and `wait`, issue a HaltedWarning meanwhile.

        Raises
        ------
        RefusedError
            If the switch refuses, for example in a tree of switches.
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        """
        self._set_halted(True)

    def resume(self) -> None:
        """Let a halted job go on, whichever worker halted it.

        Raises
        ------
        RefusedError, SwitchUnreachableError
            As `halt`.
        """
        self._set_halted(False)

    def _set_halted(self, halted: bool) -> None:
        self._require_open()
        with self._keepalive:
            self._control.halt(self._member.membership, halted)

    def close(self) -> bool:
        """Leave the job and close the transport, so that the other workers no longer wait for this one. A second call
        does nothing. If another thread is in a call of this worker, that call raises ClosedError first.

        Returns
        -------
        bool
            True if the switch confirmed it.
        """
        return bool(self._finalizer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        m = self._member.membership
        return f"<iswitch.{type(self).__name__} rank {m.member} of {m.world}, job {m.job} at {self.address}>"

    def _require_open(self) -> None:
        """Raise ClosedError if the worker is closed, NotAMemberError if it belongs to the parent of this process."""
        if os.getpid() != self._owner_pid:
            raise NotAMemberError(
                f"this worker belongs to process {self._owner_pid}, and this is its child: make a "
                f"{type(self).__name__} in each "
                "process, after the fork"
            )
        if not self._finalizer.alive:
            raise ClosedError(self._transport.closed_message)

    def _begin_exclusive_call(self) -> None:
        """Raise IswitchError if another thread is in an exclusive call. `_end_exclusive_call` ends it. Calls that all
        workers must make in the same order are exclusive."""
        if not self._one_call.acquire(blocking=False):
            raise IswitchError(
                f"another thread is using this worker, {self!r}: all workers must make the same calls in the same "
                "order, so "
                "call a worker from one thread only, or hold a lock of your own around each call"
            )

    def _end_exclusive_call(self) -> None:
        release_all(self._one_call)

    @contextmanager
    def _exclusive_call(self) -> Iterator[None]:
        """An exclusive call, as a context."""
        self._begin_exclusive_call()
        try:
            yield
        finally:
            self._end_exclusive_call()

    # Messages

    @property
    def _job_name(self) -> str:
        return f"job {self._member.membership.job} at {self.address}"

    def _timeout_error(self, sentence: str, rises: dict[str, int]) -> CollectiveTimeoutError:
        """Return the error with a sentence and the counters that point to the cause, by how much they rose."""
        return CollectiveTimeoutError("\n".join([sentence, *rise_lines(rises)]), rises)
