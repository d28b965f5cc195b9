"""What workers of synchronous and of asynchronous jobs have in common: how their arguments are checked, how they join, and how they sign off."""

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, Self

import numpy as np

from iswitch.config import Config
from iswitch.control import Control, Membership
from iswitch.errors import NotAMember, Timeout
from iswitch.explain import explain
from iswitch.transport import Attending, Transport, UdpTransport
from iswitch.wire import EVICT_US_MAX, SILENCE_TICK_US, Format, Reason

__all__ = ["FORMATS", "JobWorker", "demand_evict", "demand_int", "demand_one_of", "demand_seconds", "demand_settings", "sign_off"]

FORMATS = {"window64": Format.WINDOW64, "fp32": Format.FP32, "int32": Format.INT32}


class Member(Protocol):
    @property
    def membership(self) -> Membership: ...


def sign_off(control: Control, member: Member, attendant: Attending, transport: Transport, owner_pid: int, state: dict[str, bool]) -> bool:
    """Leaves the job and closes the transport; whether the switch confirmed it. Also at the interpreter's exit, so that a script that ends
    with an error does not leave its job running."""
    if os.getpid() != owner_pid:  # a forked child must not sign its parent off
        return False
    attendant.stop()
    known = state["member"] and control.leave(member.membership)
    transport.close()
    return known


def demand_int(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value!r}")


def demand_seconds(**seconds: float) -> None:
    for name, value in seconds.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value!r}")


def demand_evict(evict_s: float) -> None:
    if not (evict_s == 0 or SILENCE_TICK_US <= evict_s * 1e6 < EVICT_US_MAX):
        raise ValueError(f"evict_s must be 0, or {SILENCE_TICK_US / 1e6:.3f} to {EVICT_US_MAX / 1e6:.1f}, not {evict_s!r}")


def demand_one_of(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def demand_settings(*, world: int, threshold: int | None, job: int, rank: int | None, key: int, format: str, fraction: int,
                    elements: int | None, timeout_s: float, join_timeout_s: float, evict_s: float) -> None:
    """What both kinds of workers are told of their job and their place in it."""
    demand_int("world", world, 1, 32)
    demand_int("threshold", world if threshold is None else threshold, 1, world)
    demand_int("job", job, 0, 255)
    demand_int("rank", 0 if rank is None else rank, 0, world - 1)
    demand_int("key", key, 0, 2**64 - 1)
    demand_one_of("format", format, FORMATS)
    demand_int("fraction", fraction, -126, 149)
    demand_int("elements", 1 if elements is None else elements, 1, 65535)
    demand_seconds(timeout_s=timeout_s, join_timeout_s=join_timeout_s)
    demand_evict(evict_s)


class JobWorker(ABC):
    """A member of a job from its Join until it signs off, at the latest when the interpreter ends; meanwhile a thread of its own answers the
    switch. Who derives from it joins within `_joined`, and there calls `_attend` last.
    """

    def __init__(self, address: str, *, timeout_s: float, join_timeout_s: float, transport: Transport | None, plain: bool) -> None:
        self.address, self.timeout_s, self._join_timeout_s = address, timeout_s, join_timeout_s
        self._transport = transport or UdpTransport(address, plain=plain)
        self._state = {"member": False}
        try:
            self._control = Control(self._transport, address=address, timeout_s=min(timeout_s, join_timeout_s))
            self.config: Config = self._control.config()
        except BaseException:
            self._transport.close()
            raise

    def _join(self, wish: Membership, *, elastic: bool) -> Membership:
        return self._control.join(wish, timeout_s=self._join_timeout_s, elastic=elastic)

    @contextmanager
    def _joined(self, wish: Membership, *, elastic: bool) -> Iterator[Membership]:
        """The membership that was asked for; signs off if what follows fails."""
        try:
            membership = self._join(wish, elastic=elastic)
            self._state["member"] = True
            yield membership
        except BaseException:
            if self._state["member"]:
                self._control.leave(membership)
            self._transport.close()
            raise

    def _attend(self, member: Member) -> None:
        self._member = member
        self._control.strangers = self._absorb
        self._before = self._control.counters(self.config.ports)
        self._attendant = self._transport.attend(self._tend)
        self._finalizer = weakref.finalize(self, sign_off, self._control, member, self._attendant, self._transport, os.getpid(), self._state)

    @abstractmethod
    def _absorb(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        """What came while an acknowledgement was waited for."""

    @abstractmethod
    def _tend(self) -> float:
        """Called by the thread when something has come or its time is over; returns seconds to the next call."""

    def _nonce(self) -> int:
        return self._transport.randbits(64) | 1

    @property
    def rank(self) -> int:
        """This worker's index in the job, 0 to world - 1."""
        return self._member.membership.member

    def counters(self) -> dict[str, int]:
        """The switch's counters by name; `iswitch.explain` has a sentence on each. SwitchUnreachable."""
        self._demand_open()
        with self._attendant:
            return self._control.counters(self.config.ports)

    def leave(self) -> bool:
        """Leaves the job and closes the transport; nobody waits for this worker any more. Whether the switch confirmed it. A second call does
        nothing."""
        return bool(self._finalizer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        m = self._member.membership
        return f"<iswitch.{type(self).__name__} rank {m.member} of {m.world}, job {m.job} at {self.address}>"

    def _demand_open(self) -> None:
        if not self._finalizer.alive:
            raise NotAMember(f"this worker has left its job: make a new {type(self).__name__}")

    # Sentences

    @property
    def _where(self) -> str:
        return f"job {self._member.membership.job} at {self.address}"

    def _gone(self, reason: Reason, remedy: str) -> NotAMember:
        return NotAMember(f"{self._where} was ended, by `iswitch reset`, with its last member or by a restart of the switch, or put this worker "
                          f"out because nothing came from it for its `evict_s` ({reason.name}): {remedy}")

    def _timeout(self, sentence: str, risen: dict[str, int]) -> Timeout:
        """risen: the switch's counters that speak of the cause, and how much they rose."""
        return Timeout("\n".join([sentence, *(f"  {name} +{rise}: {explain(name)}" for name, rise in risen.items())]), risen)
