"""Examines a switch and the way to it, from the name to the drop counters: what `iswitch doctor` finds.

Nothing it sends changes a job. It reads registers; it sends segments to a job that no switch has (255), for which the switch sends a NOTICE;
and to try a key it sends a Join that is refused whatever the key.
"""

import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from iswitch.config import Config
from iswitch.control import Control
from iswitch.errors import IswitchError, SwitchUnreachable
from iswitch.explain import Grade, explained
from iswitch.probe import Probe, neighbour
from iswitch.transport import RECEIVE_BYTES, Transport, UdpTransport
from iswitch.views import JobView, MemberView, awaited, read_have, read_job, read_member
from iswitch.wire import (
    ADDRESSES, HEADER, TAIL_BYTES, VERSION, Action, Format, JobState, Reason, Register, Type,
)

__all__ = ["Finding", "Mark", "Socket", "Watched", "examine"]

_READS, _READING_S = 200, 5.0
_WATCHED_S = 1.0
"""What rises in less would not be seen to rise."""
_SEGMENT_TRIES, _SEGMENT_WAIT_S = 8, 0.25
_NO_JOB = 255
_DATAGRAM_OVERHEAD = 28  # IPv4 and UDP
_TOLERABLE_LOSS = 0.02
_SILENT_S = 5.0


class Mark(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """What a check found: a figure, and if it is not ok (or for a counter), a sentence on what to do."""

    check: str
    mark: Mark
    figure: str
    remedy: str = ""


class Watched(Transport, Protocol):
    """What the checks need to know of a transport: see `Probe`."""

    sent: int
    received: int
    tos: int
    refused: bool
    fault: str

    @property
    def peer(self) -> str: ...

    @property
    def mtu(self) -> int: ...


class Socket(Protocol):
    """What the kernel grants a worker: see `UdpTransport`."""

    gso: bool
    gro: bool

    @property
    def receive_buffer_bytes(self) -> int: ...

    def close(self) -> None: ...


def examine(address: str, *, job: int | None = None, key: int | None = None, rate_gbps: float = 1.0, timeout_s: float = 3.0,
            probe: Callable[[str], Watched] = Probe, worker_socket: Callable[[str], Socket] = UdpTransport) -> Iterator[Finding]:
    """The findings, in order, as they are made; ends early where nothing further can be found. job, key: try whether the key is the job's.
    rate_gbps: of the links, to compare the window with. ValueError if the address is none."""
    try:
        watched = probe(address)
    except SwitchUnreachable as error:
        yield Finding("name", Mark.BAD, str(error), "check the spelling, or give the IPv4 address")
        return
    try:
        yield Finding("name", Mark.OK, f"{address} is {watched.peer or 'an address'}")
        control = Control(watched, address=address, timeout_s=timeout_s)
        config = control.config()
        yield Finding("switch", Mark.OK, f"iswitch, protocol version {VERSION}: {config.ports} ports, {config.jobs} jobs of up to "
                      f"{config.members} workers, window {config.window}, segments of up to {config.elements} numbers")
        before = control.counters(config.ports)
        began = time.monotonic()
        trips = _round_trips(control, watched)
        time.sleep(max(0.0, began + _WATCHED_S - time.monotonic()))
        after, seconds = control.counters(config.ports), time.monotonic() - began
        yield _delay(trips)
        yield _loss(watched.sent, watched.received)
        yield _full_segment(watched, config)
        yield _tos(watched.tos)
        if trips:
            yield _window(config, statistics.median(trips), rate_gbps)
        yield from _kernel(worker_socket(address), config)
        yield from _jobs(control, config)
        if job is not None and key is not None:
            yield _key(control, config, job, key)
        yield from _counted(before, after, seconds)
    except SwitchUnreachable:
        yield _silence(watched)
    except IswitchError as error:
        yield Finding("switch", Mark.BAD, str(error), "use a driver of the switch's version, and check that the address is a switch's")
    finally:
        watched.close()


def _silence(watched: Watched) -> Finding:
    """Why nothing comes back, as far as this machine can know."""
    peer = watched.peer
    if watched.fault:
        return Finding("switch", Mark.BAD, f"cannot be reached: {watched.fault}", f"check address, interface and route (`ip route get {peer}`)")
    if watched.refused:
        return Finding("switch", Mark.BAD, "its host is there, but nobody listens at the port",
                       "start the switch, or give the right port: a board has 26963, the emulator 27000 and the following")
    try:
        known = neighbour(peer, Path("/proc/net/arp").read_text())
    except OSError:
        known = None
    if known is False:
        return Finding("switch", Mark.BAD, f"nobody answers ARP requests for {peer}",
                       "check that the cable is in, the link up, the switch on, and its address in the subnet of this interface")
    return Finding("switch", Mark.BAD, "does not answer, and nothing says why" + (", though its host answers ARP" if known else ""),
                   f"check address and port, firewalls on the way (`nft list ruleset`), and the route (`ip route get {peer}`)")


def _round_trips(control: Control, watched: Watched) -> list[float]:
    """Seconds, rising, of the READs that were answered before they were repeated: else one cannot tell what was answered (Karn)."""
    trips: list[float] = []
    end = time.monotonic() + _READING_S
    for _ in range(_READS):
        sent, began = watched.sent, time.monotonic()
        control.read(Register.MAGIC)
        now = time.monotonic()
        if watched.sent == sent + 1:
            trips.append(now - began)
        if now > end:
            break
    return sorted(trips)


def _delay(trips: list[float]) -> Finding:
    if not trips:
        return Finding("round trip", Mark.WARNING, "longer than 50 ms", "look for congestion on the way, and for a nearer switch")
    p99 = trips[min(len(trips) - 1, len(trips) * 99 // 100)]
    return Finding("round trip", Mark.OK, f"median {1e3 * statistics.median(trips):.2f} ms, p99 {1e3 * p99:.2f} ms of {len(trips)} READs")


def _loss(sent: int, received: int) -> Finding:
    """Of READs, each of which has one answer; what was late has come by now."""
    lost = sent - received
    if lost <= 0:
        return Finding("loss", Mark.OK, f"none of {sent} READs")
    return Finding("loss", Mark.BAD if lost > _TOLERABLE_LOSS * sent else Mark.WARNING, f"{lost} of {sent} READs or their answers",
                   "sums stay right, but wait for repeats: look below for a counter that rises; if none does, they are lost between here and the "
                   "switch's port")


def _full_segment(watched: Watched, config: Config) -> Finding:
    """Sends what is as long as the longest result, and waits for the NOTICE that it arrived."""
    size = HEADER.itemsize + 4 * config.elements + TAIL_BYTES
    needed = size + _DATAGRAM_OVERHEAD
    token = secrets.randbits(32) | 1
    header = np.zeros(1, HEADER)
    for name, value in {"version_type": VERSION << 4 | Type.CONTRIBUTION, "job": _NO_JOB, "token": token, "format_flags": Format.INT32,
                        "count": 1}.items():
        header[name] = value
    datagram, buffer = header.tobytes().ljust(size, b"\0"), memoryview(bytearray(RECEIVE_BYTES))
    try:
        for _ in range(_SEGMENT_TRIES):
            watched.send(datagram, size)
            end = time.monotonic() + _SEGMENT_WAIT_S
            while (left := end - time.monotonic()) > 0:
                length, _ = watched.receive(buffer, left)
                if length >= HEADER.itemsize and _notices(np.frombuffer(buffer[:HEADER.itemsize], HEADER)[0], token):
                    return Finding("segment", Mark.OK, f"{needed} bytes of IPv4, the longest there are, arrive whole at the switch")
    except ValueError:
        fits = (watched.mtu - _DATAGRAM_OVERHEAD - HEADER.itemsize - TAIL_BYTES) // 4
        return Finding("segment", Mark.BAD, f"{needed} bytes of IPv4 do not fit the path's MTU of {watched.mtu}",
                       f"set the MTU to {needed} or more on every interface of the path"
                       + (f", or let all workers join with elements={fits}" if fits > 0 else ""))
    return Finding("segment", Mark.BAD, f"{needed} bytes of IPv4 do not arrive, short frames do",
                   f"a device on the path has a smaller MTU: set it to {needed} or more, or let all workers join with fewer `elements`")


def _notices(header: np.void, token: int) -> bool:
    return int(header["version_type"]) & 15 == Type.NOTICE and int(header["token"]) == token


def _tos(tos: int) -> Finding:
    if tos > 0:
        return Finding("ToS", Mark.WARNING, f"replies arrive with ToS {tos:#04x}, the switch sends 0",
                       "a device on the way rewrites it: do the same for both directions, or results and contributions queue unlike each other")
    unseen = "with what ToS contributions arrive cannot be seen from here"
    seen = "replies arrive with 0, as the switch sends them" if tos == 0 else "this kernel does not tell that of replies"
    return Finding("ToS", Mark.OK, f"{seen}; {unseen}")


def _window(config: Config, trip_s: float, rate_gbps: float) -> Finding:
    """What a window lets through: as many segments in flight, each for a round trip."""
    flight = config.window * (ADDRESSES.itemsize + HEADER.itemsize + 4 * config.elements)
    gbps = flight * 8 / trip_s / 1e9
    figure = f"{config.window} segments in flight, {flight:,} bytes a round trip: at most {gbps:.2f} Gb/s"
    if gbps >= rate_gbps:
        return Finding("window", Mark.OK, figure)
    return Finding("window", Mark.WARNING, f"{figure}, where links have {rate_gbps:g}",
                   "shorten the way, or build the switch with a larger `window` or `elements` (an emulated switch is slow in itself)")


def _kernel(granted: Socket, config: Config) -> Iterator[Finding]:
    try:
        has, needs = granted.receive_buffer_bytes, 2 * config.window * (HEADER.itemsize + 4 * config.elements + TAIL_BYTES)
        if has >= needs:
            yield Finding("buffer", Mark.OK, f"{has:,} bytes for received datagrams, a window needs {needs:,}")
        else:
            yield Finding("buffer", Mark.WARNING, f"{has:,} bytes for received datagrams, but a window needs {needs:,}",
                          f"results will be lost in this host: `sysctl -w net.core.rmem_max={needs}`")
        lacks = [name for name, there in (("GSO", granted.gso), ("GRO", granted.gro)) if not there]
        if lacks:
            yield Finding("offload", Mark.WARNING, f"no UDP {' and '.join(lacks)}", "use Linux 5.0 or newer: without, each segment is a system call")
        else:
            yield Finding("offload", Mark.OK, "UDP GSO and GRO: many segments in a system call")
    finally:
        granted.close()


def _jobs(control: Control, config: Config) -> Iterator[Finding]:
    jobs = [read_job(control, number) for number in range(config.jobs)]
    for job in jobs:
        if job.state != JobState.NONE:
            members = [read_member(control, job.job, member) for member in range(job.world)]
            yield _job(job, members, awaited(control, job, read_have(control, job), config.window))
    if not any(job.state for job in jobs):
        yield Finding("jobs", Mark.OK, f"all {config.jobs} are free")


def _job(job: JobView, members: list[MemberView], missing: list[int]) -> Finding:
    name, figure = f"job {job.job}", f"{job.state.name.lower()}, {len(job.live)} of {job.world} workers, threshold {job.threshold}"
    if job.state == JobState.HALTED:
        return Finding(name, Mark.WARNING, figure, "`resume` by any of its workers lets it go on")
    if job.state == JobState.FORMING:
        return Finding(name, Mark.WARNING, f"{figure}; lacks {_listed(missing)}", "start the workers that are missing, with the same settings")
    silent = [members[member] for member in missing if members[member].silent_s > _SILENT_S]
    if silent:
        each = ", ".join(f"{member.member} ({member.address} behind port {member.port}, silent for {member.silent_s:.0f} s)" for member in silent)
        return Finding(name, Mark.WARNING, f"{figure}; waits for {each}", "see what that worker does; if it has died, the others can lower the "
                       "threshold, or `iswitch reset` ends the job")
    return Finding(name, Mark.OK, figure)


def _listed(members: list[int]) -> str:
    return f"worker{'s' * (len(members) > 1)} {', '.join(map(str, members))}"


def _key(control: Control, config: Config, job: int, key: int) -> Finding:
    """A Join that can never be granted: with a token, but of no entry. Of a job with the key it differs in `world`, which is looked at later."""
    world = read_job(control, job).world if job < config.jobs else 0
    if not world:
        return Finding("key", Mark.WARNING, f"there is no job {job} now", "try while its workers run")
    answer = control.request(Action.JOIN, job=job, key=key, token=secrets.randbits(32) | 1, world=world % config.members + 1, threshold=1,
                             format=Format.WINDOW64, elements=1)
    if answer.reason == Reason.KEY:
        return Finding("key", Mark.BAD, f"is not job {job}'s", "give the key its workers were started with, or choose another job number")
    return Finding("key", Mark.OK, f"is job {job}'s")


def _counted(before: dict[str, int], after: dict[str, int], seconds: float) -> Iterator[Finding]:
    """Counters of drops and oddities, worst first. A fault is bad while it goes on."""
    found = []
    for name, count in after.items():
        grade, meaning, remedy = explained(name)
        rise = (count - before[name]) % 2**32
        if count and grade != Grade.FINE:
            mark = Mark.OK if grade == Grade.USUAL else Mark.BAD if rise else Mark.WARNING
            lately = f", {rise:,} of them in these {seconds:.1f} s" if rise else ""
            found.append(Finding(name, mark, f"{count:,}{lately}: {meaning}", remedy))
    order = [Mark.BAD, Mark.WARNING, Mark.OK]
    yield from sorted(found, key=lambda finding: order.index(finding.mark))
    if not found:
        yield Finding("counters", Mark.OK, "no frame was dropped, and none was odd")
