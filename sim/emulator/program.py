"""Ordinary blocking programs, such as those with an `iswitch.Worker`, in virtual time.

Each program has a thread, but either the simulation or one program runs at any moment. A program runs until it waits:
in `receive`, for the time that its host takes for a datagram, or in `sleep`, which stands for computation. Then virtual
time goes on until the wait is over. So nothing depends on this machine's speed or scheduler.
"""

import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from iswitch.driver.transport import RECEIVE_BYTES, Buffer
from sim.emulator.card import Client
from sim.emulator.endpoint import BURST_SEGMENTS, Host, Hosts, burst_of
from sim.emulator.faults import PS_PER_US, Rates
from sim.emulator.virtual import PS_PER_S, VirtualTime

__all__ = ["Machine", "Program", "ProgramTransport"]

FIRST_UDP_PORT = 40_000
PATIENCE_S = 600
"""Seconds of this machine's time after which a program that runs without a wait is taken to wait for something that is
not simulated."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A host and its cable.

    The processor takes `burst_us` for each call that sends or receives a burst of datagrams, and `datagram_us` for each
    datagram in it. The program waits for that time, and its datagrams reach the card at the end of it. The defaults
    give the round trips of 100 to 500 us that Linux has with UDP GSO, for bursts of 1 to 64 datagrams. `rates` are the
    cable's faults in each direction, with its length in `delay_us`.
    """

    burst_us: float = 48.0
    datagram_us: float = 2.0
    rate_bps: float = 10e9
    rates: Rates = field(default_factory=lambda: Rates(delay_us=1))

    def __post_init__(self) -> None:
        for name in ("burst_us", "datagram_us"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"Machine {name} must not be negative, not {getattr(self, name)!r}")


class _Stop(BaseException):
    """Unwinds a program because another one has failed."""


def _ps(seconds: float) -> int | None:
    """Return seconds as picoseconds, rounded up, so that the time has passed when a wait is over; None if they are
    infinite."""
    return None if seconds == math.inf else max(0, math.ceil(seconds * PS_PER_S))


class Program:
    """A function in virtual time, called with its `Program`.

    Its return value is in `result`, the time of its end in `ended_s`. A program is one thread that waits in its
    transports and in `sleep` only. A program that waits elsewhere stops the simulation, until TimeoutError. The sockets
    of an ended program are closed, so a worker that has not left its job is as silent as a killed one.
    """

    def __init__(
        self, function: Callable[["Program"], Any], *, name: str, machine: Machine, hosts: Hosts, ip: bytes, seed: str
    ):
        self.name, self.machine = name, machine
        self.result: Any = None
        self.ended_s: float | None = None
        self.random = random.Random(seed)
        self._function, self._hosts, self._ip = function, hosts, ip
        self._time: VirtualTime
        self._limit_ps: int
        self._ended: Callable[[], None]
        self._udp_port = FIRST_UDP_PORT
        self._keepalives: list[_Keepalive] = []
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._wait_number, self._listens = 0, False
        self.waits_for = ""
        """What the program waits for, as the end of a sentence; empty while it runs."""
        self._failure: BaseException | None = None
        self._over: BaseException | None = None  # why nothing is possible any more

    # For the program

    def transport(self) -> "ProgramTransport":
        """Return a new UDP socket of this host for a `Worker`: an `iswitch.driver.transport.Transport`."""
        self._udp_port += 1
        return ProgramTransport(self, self._hosts.host(Client(self._ip, self._udp_port)))

    def now(self) -> float:
        """Return the virtual seconds since the start."""
        return self._time.now_ps / PS_PER_S

    def sleep(self, seconds: float) -> None:
        """Compute, or be idle, for that time. Keepalives are sent meanwhile."""
        self.wait_until(seconds, lambda: False, "the end of a sleep")

    # For its transports

    def wait_until(self, seconds: float, over: Callable[[], object], what: str) -> None:
        """Wait for that time, or until a frame has come that makes `over` true."""
        self.demand_turn()
        duration_ps = _ps(seconds)
        until_ps = None if duration_ps is None else self._time.now_ps + duration_ps
        while not over() and (until_ps is None or self._time.now_ps < until_ps):
            attended = False
            for keepalive in self._keepalives:
                attended |= keepalive.serve_if_due(self._time)
            if not attended:  # else: time may have passed
                times = [keepalive.due_ps for keepalive in self._keepalives if not keepalive.held]
                self._wait(min(times + ([] if until_ps is None else [until_ps]), default=None), what, listens=True)

    def charge_cpu(self, datagrams: int) -> None:
        """Wait for the processor's time for a burst of datagrams."""
        self.demand_turn()
        cost_ps = round((self.machine.burst_us + datagrams * self.machine.datagram_us) * PS_PER_US)
        if cost_ps:
            self._wait(self._time.now_ps + cost_ps, "its processor", listens=False)

    def start_keepalive(self, host: Host, serve: Callable[[], float]) -> "_Keepalive":
        self._keepalives.append(made := _Keepalive(host, serve, self._keepalives, self._time.now_ps))
        return made

    def demand_turn(self) -> None:
        """Raise OSError after the program's end, and RuntimeError in another thread."""
        if self._over:
            raise self._over
        if threading.current_thread() is not self._thread:
            raise RuntimeError(
                f"a program in virtual time is one thread, and {threading.current_thread().name} is not that of "
                f"{self.name}"
            )

    def _wait(self, until_ps: int | None, what: str, *, listens: bool) -> None:
        """Yield until that time, or, if it `listens`, until a frame comes."""
        self._wait_number += 1
        self.waits_for, self._listens = what, listens
        if until_ps is not None and until_ps <= self._limit_ps:
            self._time.call_at(until_ps, partial(self._expire, self._wait_number))
        self._back.release()
        self._turn.acquire()
        self.demand_turn()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self.demand_turn()
            self.result = self._function(self)
            self.ended_s = self.now()
        except BaseException as failure:
            self._failure = failure  # never read if it is _Stop
        self._over = OSError(f"{self.name} has ended, and its sockets are closed")
        self._back.release()

    # For the simulation

    def start(self, time: VirtualTime, limit_ps: int, ended: Callable[[], None]) -> None:
        """Begin as soon as time passes. A wait beyond the limit never ends. `ended` is called when the function has
        returned."""
        self._time, self._limit_ps, self._ended = time, limit_ps, ended
        self.waits_for = "its beginning"
        self._thread.start()
        time.call_at(time.now_ps, self._resume)

    def wake(self) -> None:
        """Have the program look at once whether its `wait_until` is over. Another program may call this."""
        self._time.call_at(self._time.now_ps, self.arrived)

    def arrived(self) -> None:
        if self._listens:
            self._resume()

    def _expire(self, wait_number: int) -> None:
        if wait_number == self._wait_number:  # else: what it was for has come before
            self._resume()

    def _resume(self) -> None:
        """Let the program run until it waits again or has ended, and raise what it raised."""
        self.waits_for, self._listens = "", False
        self._wait_number += 1
        self._turn.release()
        if not self._back.acquire(timeout=PATIENCE_S):
            raise TimeoutError(
                f"{self.name} has not come back for {PATIENCE_S} s: does it wait for something that is not in "
                "virtual time?"
            )
        if self._failure:
            raise self._failure
        if self.ended_s is not None:
            self._ended()

    def stop(self) -> None:
        """Unwind the program wherever it waits."""
        if self._over:
            return
        self._over = _Stop()
        if self.waits_for:
            self._turn.release()
            self._thread.join()


class _Keepalive:
    """An `iswitch.driver.transport.Keepalive`: the program itself calls `serve` while it waits, unless it is `held`."""

    def __init__(self, host: Host, serve: Callable[[], float], others: list["_Keepalive"], due_ps: int):
        self._host, self._serve, self._others = host, serve, others
        self.due_ps = due_ps
        self.held = False

    def serve_if_due(self, time: VirtualTime) -> bool:
        """Call `serve` if it is due. Returns True if it was."""
        if self.held or not (self._host.inbox or time.now_ps >= self.due_ps):
            return False
        wait_ps = _ps(self._serve())
        self.due_ps = time.now_ps + max(1, wait_ps or PS_PER_S)
        return True

    def __enter__(self) -> None:
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False

    def stop(self) -> None:
        if self in self._others:
            self._others.remove(self)


class ProgramTransport:
    """A driver's `iswitch.driver.transport.Transport` in virtual time: a socket of a program's host."""

    def __init__(self, program: Program, host: Host):
        self._program, self._host = program, host
        host.arrived = program.arrived
        self.now, self.sleep, self.randbits = program.now, program.sleep, program.random.getrandbits

    def burst_segments(self, segment_bytes: int) -> int:
        return max(1, min(BURST_SEGMENTS, RECEIVE_BYTES // segment_bytes))

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        view = memoryview(burst).cast("B")
        datagrams = [bytes(view[at : at + segment_bytes]) for at in range(0, len(view), segment_bytes)]
        self._program.charge_cpu(len(datagrams))
        for datagram in datagrams:
            self._host.send(datagram)

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        self._program.wait_until(timeout_s, lambda: self._host.inbox, "a datagram")
        length, segment_bytes = burst_of(self._host.inbox, into)
        if length:
            self._program.charge_cpu(-(-length // segment_bytes))
        return length, segment_bytes

    def start_keepalive(self, serve: Callable[[], float]) -> _Keepalive:
        return self._program.start_keepalive(self._host, serve)

    def reopen(self) -> None:
        """The host keeps its address."""

    def close(self) -> None:
        self._host.inbox.clear()
        self._host.arrived = None
