"""What workers of synchronous and of asynchronous jobs have in common: checks of arguments, joining a job, and leaving
it."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

import numpy as np

from iswitch.config import Config
from iswitch.control.abandoned import Watch
from iswitch.control.client import Control
from iswitch.control.stall import risen_sentences
from iswitch.driver.membership import Membership
from iswitch.driver.termination import call_before_termination
from iswitch.driver.transport import Keepalive, Transport, UdpTransport
from iswitch.errors import CollectiveTimeoutError, IswitchError, NotAMemberError, RefusedError
from iswitch.wire import EVICT_US_MAX, SILENCE_TICK_US, Format, Reason

__all__ = [
    "DEFAULT_ADDRESS",
    "FORMATS",
    "JobWorker",
    "require_evict",
    "require_int",
    "require_one_of",
    "require_seconds",
    "require_settings",
    "sign_off",
]

DEFAULT_ADDRESS = "127.0.0.1:27000"
"""Of a switch, if the environment variable ISWITCH_ADDRESS says nothing: the emulator's first port."""
_GOODBYE_S = 1.0
"""The longest wait for the answer to a Leave."""
FORMATS = {"window64": Format.WINDOW64, "fp32": Format.FP32, "int32": Format.INT32}


class Member(Protocol):
    @property
    def membership(self) -> Membership: ...


def sign_off(
    control: Control,
    member: Member,
    keepalive: Keepalive,
    transport: Transport,
    owner_pid: int,
    state: dict[str, bool],
    forget: Callable[[], None],
) -> bool:
    """Leaves the job and closes the transport. Returns whether the switch confirmed it. Runs also at the interpreter's
    exit, so that a script that ends with an error does not leave its job running."""
    if os.getpid() != owner_pid:  # a forked child must not sign its parent off
        return False
    keepalive.stop()
    known = state["member"] and control.leave(member.membership, timeout_s=_GOODBYE_S)
    transport.close()
    forget()
    return known


def require_int(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value!r}")


def require_seconds(**seconds: float) -> None:
    for name, value in seconds.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value!r}")


def require_evict(evict_s: float) -> None:
    if not (evict_s == 0 or SILENCE_TICK_US <= evict_s * 1e6 < EVICT_US_MAX):
        raise ValueError(
            f"evict_s must be 0, or {SILENCE_TICK_US / 1e6:.3f} to {EVICT_US_MAX / 1e6:.1f}, not {evict_s!r}"
        )


def require_one_of(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def require_settings(
    *,
    world: int,
    threshold: int | None,
    job: int,
    rank: int | None,
    key: int,
    format: str,
    fraction: int,
    elements: int | None,
    timeout_s: float,
    switch_timeout_s: float,
    join_timeout_s: float,
    evict_s: float,
    on_taint: str,
) -> None:
    """Checks the parameters that both kinds of workers have. Raises TypeError and ValueError."""
    require_int("world", world, 1, 32)
    require_int("threshold", world if threshold is None else threshold, 1, world)
    require_int("job", job, 0, 255)
    require_int("rank", 0 if rank is None else rank, 0, world - 1)
    require_int("key", key, 0, 2**64 - 1)
    require_one_of("format", format, FORMATS)
    require_int("fraction", fraction, -126, 149)
    require_int("elements", 1 if elements is None else elements, 1, 65535)
    require_seconds(timeout_s=timeout_s, switch_timeout_s=switch_timeout_s, join_timeout_s=join_timeout_s)
    require_evict(evict_s)
    require_one_of("on_taint", on_taint, ("raise", "warn", "ignore"))


class JobWorker(ABC):
    """A member of a job from its Join until it leaves, at the latest when the interpreter ends or SIGTERM comes;
    meanwhile a thread of its own answers the switch. A subclass joins within `_joined`, and there calls `_start_keepalive` last.
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
        self.address = os.environ.get("ISWITCH_ADDRESS") or DEFAULT_ADDRESS if address is None else address
        self.timeout_s, self.switch_timeout_s, self._join_timeout_s = timeout_s, switch_timeout_s, join_timeout_s
        self._transport = transport or UdpTransport(self.address, no_offload=no_offload)
        self._state = {"member": False}
        self._owner_pid = os.getpid()
        self._one_call = threading.Lock()
        try:
            self._control = Control(
                self._transport, address=self.address, timeout_s=switch_timeout_s, timeout_name="switch_timeout_s"
            )
            self.config: Config = self._control.config()
        except BaseException:
            self._transport.close()
            raise

    def _join(self, wish: Membership, *, elastic: bool, timeout_s: float | None = None) -> Membership:
        """Joins, after the end of a job that dead workers left behind. Raises RefusedError, SwitchUnreachableError,
        CollectiveTimeoutError."""
        limit_s, name = (self._join_timeout_s, "join_timeout_s") if timeout_s is None else (timeout_s, "timeout_s")
        deadline = self._transport.now() + limit_s
        watch = Watch(self._control, wish)
        while True:
            try:
                return self._request_join(
                    wish,
                    timeout_s=limit_s,
                    timeout_name=name,
                    elastic=elastic,
                    waiting=watch.attend if elastic else None,
                )
            except RefusedError as refusal:
                watch.wait(refusal, deadline)

    def _request_join(self, wish: Membership, **how: Any) -> Membership:
        return self._control.join(wish, **how)

    @contextmanager
    def _joined(self, wish: Membership, *, elastic: bool) -> Iterator[Membership]:
        """The membership that was asked for. Leaves the job if what follows fails."""
        self._forget = call_before_termination(self._say_goodbye)
        try:
            membership = self._join(wish, elastic=elastic)
            self._state["member"] = True
            yield membership
        except BaseException:
            if self._state["member"]:
                self._control.leave(membership)
            self._transport.close()
            self._forget()
            raise

    def _say_goodbye(self) -> None:
        """Leaves the job before SIGTERM ends the process, whatever this thread was doing: so nothing here waits for a
        lock, and for long."""
        if keepalive := getattr(self, "_keepalive", None):
            keepalive.stop()
        seat = (
            self._member.membership if keepalive and self._state["member"] else self._control.seat
        )  # of a Join in progress
        if seat:
            self._control.strangers = None  # a ring in the middle of a collective takes nothing
            self._control.leave(seat, timeout_s=_GOODBYE_S)

    def _start_keepalive(self, member: Member) -> None:
        self._member = member
        self._control.strangers = self._handle_train
        self._counters_at_join = self._control.counters(self.config.ports)
        self._keepalive = self._transport.start_keepalive(self._serve)
        self._finalizer = weakref.finalize(
            self,
            sign_off,
            self._control,
            member,
            self._keepalive,
            self._transport,
            self._owner_pid,
            self._state,
            self._forget,
        )

    @abstractmethod
    def _handle_train(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        """Handles a frame that came while the worker waited for an acknowledgement."""

    @abstractmethod
    def _serve(self) -> float:
        """Called by the thread when something has come or its time is over; returns seconds to the next call."""

    def _nonce(self) -> int:
        return self._transport.randbits(64) | 1

    @property
    def rank(self) -> int:
        """This worker's index in the job, 0 to world - 1."""
        return self._member.membership.member

    def counters(self) -> dict[str, int]:
        """Returns the switch's counters by name; `iswitch.control.explanations` has a sentence on each. Raises
        SwitchUnreachableError, NotAMemberError."""
        self._require_open()
        with self._keepalive:
            return self._control.counters(self.config.ports)

    def close(self) -> bool:
        """Leaves the job and closes the transport; the others no longer wait for this worker. Returns whether the
        switch confirmed it. A second call does nothing."""
        return bool(self._finalizer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        m = self._member.membership
        return f"<iswitch.{type(self).__name__} rank {m.member} of {m.world}, job {m.job} at {self.address}>"

    def _require_open(self) -> None:
        if os.getpid() != self._owner_pid:
            raise NotAMemberError(
                f"this worker belongs to process {self._owner_pid}, and this is its child: make a {type(self).__name__} in each "
                "process, after the fork"
            )
        if not self._finalizer.alive:
            raise NotAMemberError(f"this worker has left its job, {self._job_name}: make a new {type(self).__name__}")

    @contextmanager
    def _exclusive_call(self) -> Iterator[None]:
        """For calls that other workers make in the same order: IswitchError if another thread is within such a call."""
        if not self._one_call.acquire(blocking=False):
            raise IswitchError(
                f"another thread is using this worker, {self!r}: all workers must make the same calls in the same order, so "
                "call a worker from one thread only, or hold a lock of your own around each call"
            )
        try:
            yield
        finally:
            self._one_call.release()

    # Sentences

    @property
    def _job_name(self) -> str:
        return f"job {self._member.membership.job} at {self.address}"

    def _not_a_member_error(self, reason: Reason, remedy: str) -> NotAMemberError:
        return NotAMemberError(
            f"the switch does not know this worker any more ({reason.name}): {self._job_name} was ended by `iswitch end-job`, with its "
            "last member or by a restart of the switch, or the switch evicted this worker because nothing came from it for "
            f"`evict_s`. To go on, {remedy}"
        )

    def _timeout_error(self, sentence: str, risen: dict[str, int]) -> CollectiveTimeoutError:
        """risen: the switch's counters that speak of the cause, and how much they rose."""
        return CollectiveTimeoutError("\n".join([sentence, *risen_sentences(risen)]), risen)
