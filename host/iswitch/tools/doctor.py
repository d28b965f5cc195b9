"""Examine a switch and the network path to it, from its name to its drop counters, for `iswitch doctor`.

The examination changes no job. It reads registers. It sends segments to job 255, which no switch has, so that the
switch answers with a NOTICE. To check a key, it sends a Join that the switch refuses whatever the key is.
"""

import secrets
import statistics
from collections.abc import Callable, Iterator
from typing import Protocol

from iswitch.control.client import Control
from iswitch.control.counters import Severity, counter_entry
from iswitch.control.inspection import JobView, MemberView, awaited_ranks, read_job, read_member, read_progress
from iswitch.control.refusals import RESUME
from iswitch.control.switch_info import SwitchInfo
from iswitch.driver.udp import UdpTransport
from iswitch.errors import IswitchError, SwitchUnreachableError
from iswitch.tools.path_checks import (
    Finding,
    Mark,
    ProbeTransport,
    check_loss,
    check_round_trips,
    check_segment_size,
    check_tos,
    check_window,
    explain_silence,
    measure_round_trips,
)
from iswitch.tools.probe import Probe
from iswitch.wire import HEADER, TAIL_BYTES, VERSION, AckRegister, Action, Format, JobState, MemberState, Reason

__all__ = ["Socket", "examine"]

_WATCHED_S = 1.0
"""Seconds between the two readings of the counters."""
_SILENT_S = 3.0
"""A member is reported if it has been silent for longer. A live one repeats its sign of life within 1 s."""
_CHALLENGES = 4
"""The most Joins to check a key: the challenge of a job may change between two of them."""


class Socket(Protocol):
    """What the kernel granted to a worker's socket. `UdpTransport` has these attributes."""

    gso: bool
    gro: bool

    @property
    def receive_buffer_bytes(self) -> int: ...

    def close(self) -> None: ...


def examine(
    address: str,
    *,
    job: int | None = None,
    key: int | None = None,
    rate_gbps: float = 1.0,
    timeout_s: float = 3.0,
    probe: Callable[[str], ProbeTransport] = Probe,
    worker_socket: Callable[[str], Socket] = UdpTransport,
) -> Iterator[Finding]:
    """Yield each finding as soon as its check is done. End early if the switch does not answer.

    Parameters
    ----------
    address : str
        Address of the switch, "host:port" or "host".
    job : int or None
        Job whose key is checked; None: no such check.
    key : int
        The key that `job` should have.
    rate_gbps : float
        Speed of the links in Gb/s. The throughput that the window allows is compared with it.
    timeout_s : float
        Seconds to wait for an answer of the switch.
    probe : callable
        Makes the transport for the checks from the address.
    worker_socket : callable
        Makes a socket like that of a worker from the address.

    Yields
    ------
    Finding
        The result of a check.

    Raises
    ------
    TypeError, ValueError
        If the address has the wrong form.
    """
    try:
        transport = probe(address)
    except SwitchUnreachableError as error:
        figure, _, remedy = str(error).partition(": ")
        yield Finding("name", Mark.BAD, figure, remedy)
        return
    try:
        yield Finding("name", Mark.OK, f"{address} is at {transport.peer}")
        control = Control(transport, address=address, timeout_s=timeout_s)
        info = control.switch_info()
        yield Finding(
            "switch",
            Mark.OK,
            f"iswitch, protocol version {VERSION}: {info.ports} ports, {info.jobs} jobs of up to "
            f"{info.members} workers, window {info.window}, segments of up to {info.elements} elements",
        )
        counters_before = control.counters(info.ports)
        began = transport.now()
        round_trip_s = measure_round_trips(control, transport)
        transport.sleep(max(0.0, began + _WATCHED_S - transport.now()))
        counters_after, interval_s = control.counters(info.ports), transport.now() - began
        yield check_round_trips(round_trip_s)
        yield check_loss(transport.sent, transport.received)
        yield check_segment_size(transport, info)
        yield check_tos(transport.tos)
        if round_trip_s:
            yield check_window(info, statistics.median(round_trip_s), rate_gbps)
        yield from _check_socket(worker_socket(address), info)
        yield from _check_jobs(control, info)
        if job is not None and key is not None:
            yield _check_key(control, info, job, key)
        yield from _check_counters(counters_before, counters_after, interval_s)
    except SwitchUnreachableError:
        yield explain_silence(transport)
    except IswitchError as error:
        yield Finding(
            "switch",
            Mark.BAD,
            str(error),
            "install the driver of the switch's version, and check that the address is that of a switch",
        )
    finally:
        transport.close()


def _check_socket(granted: Socket, info: SwitchInfo) -> Iterator[Finding]:
    """Check the receive buffer of a worker's socket, and whether the kernel sends and receives bursts of datagrams."""
    try:
        granted_bytes, needed_bytes = (
            granted.receive_buffer_bytes,
            2 * info.window * (HEADER.itemsize + 4 * info.elements + TAIL_BYTES),
        )
        if granted_bytes >= needed_bytes:
            yield Finding(
                "buffer", Mark.OK, f"{granted_bytes:,} bytes for received datagrams; a window needs {needed_bytes:,}"
            )
        else:
            yield Finding(
                "buffer",
                Mark.WARNING,
                f"{granted_bytes:,} bytes for received datagrams, but a window needs {needed_bytes:,}",
                f"this host will lose results: `sysctl -w net.core.rmem_max={needed_bytes}`",
            )
        missing = [name for name, there in (("GSO", granted.gso), ("GRO", granted.gro)) if not there]
        if missing:
            yield Finding(
                "offload",
                Mark.WARNING,
                f"no UDP {' and '.join(missing)}",
                "use Linux 5.0 or newer: older kernels take a system call for each segment",
            )
        else:
            yield Finding("offload", Mark.OK, "UDP GSO and GRO: many segments per system call")
    finally:
        granted.close()


def _check_jobs(control: Control, info: SwitchInfo) -> Iterator[Finding]:
    """Check that no job of the switch waits for a worker."""
    jobs = [read_job(control, number) for number in range(info.jobs)]
    for job in jobs:
        if job.state != JobState.NONE:
            members = [read_member(control, job.job, member) for member in range(job.world)]
            yield _check_job(job, members, awaited_ranks(control, job, read_progress(control, job), info.window))
    if not any(job.state for job in jobs):
        yield Finding("jobs", Mark.OK, f"all {info.jobs} jobs are free")


def _check_job(job: JobView, members: list[MemberView], awaited: list[int]) -> Finding:
    name, figure = (
        f"job {job.job}",
        f"{job.state.name.lower()}, {len(job.live)} of {job.world} workers, threshold {job.threshold}",
    )
    if job.state == JobState.HALTED:
        return Finding(name, Mark.WARNING, figure, RESUME)
    if job.state == JobState.FORMING:
        return Finding(
            name,
            Mark.WARNING,
            f"{figure}; lacks {_list_ranks(awaited)}",
            "start the missing workers, with the same arguments",
        )
    if absent := [rank for rank in range(job.world) if members[rank].standing == MemberState.NONE]:
        figure += f"; {_list_ranks(absent)} left or evicted, or at another switch of a tree"
    if silent := [member for member in members if member.silent_s > _SILENT_S]:
        return Finding(name, Mark.WARNING, f"{figure}; {_list_silent(silent, awaited)}", _remedy_for_silent(job))
    return Finding(name, Mark.OK, figure)


def _list_silent(silent: list[MemberView], awaited: list[int]) -> str:
    """Return which members are silent, those first for which the job waits."""
    texts = []
    for verb, waited in (("waits for", True), ("hears nothing of", False)):
        if some := [
            f"rank {member.rank} ({member.address} at port {member.port}, silent for {member.silent_s:.0f} s)"
            for member in silent
            if (member.rank in awaited) == waited
        ]:
            texts.append(f"{verb} {', '.join(some)}")
    return "; ".join(texts)


def _remedy_for_silent(job: JobView) -> str:
    eviction = (
        f"the switch evicts it when another worker has waited for it for {job.evict_us / 1e6:g} s (`evict_s`)"
        if job.evict_us
        else "the switch never evicts it, because the job's `evict_s` is 0: lower the threshold with `set_threshold`"
    )
    return (
        f"check that worker: its process was killed or is stopped, or its network is cut. {eviction[:1].upper()}"
        f"{eviction[1:]}. If all workers are dead, start them again, or end the job with `iswitch end-job --job "
        f"{job.job}`"
    )


def _list_ranks(members: list[int]) -> str:
    return f"rank{'s' * (len(members) > 1)} {', '.join(map(str, members))}"


def _check_key(control: Control, info: SwitchInfo, job: int, key: int) -> Finding:
    """Check a key with a Join that the switch never grants, because its `world` is not the job's.

    The switch checks the challenge first, then the key, then the `world`. If all members of a job have been silent for
    long, such a Join ends the job, so the key of a job without a live member is not checked.
    """
    view = read_job(control, job) if job < info.jobs else None
    if view is None or not view.world:
        return Finding("key", Mark.WARNING, f"job {job} does not exist now", "repeat the check while its workers run")
    if not any(read_member(control, job, rank).silent_s < _SILENT_S for rank in view.live):
        return Finding(
            "key",
            Mark.WARNING,
            f"not checked, because all workers of job {job} are silent: the check could end the job",
            "repeat the check while its workers run",
        )
    world = view.world
    challenge = 0
    for _ in range(_CHALLENGES):
        answer = control.request(
            Action.JOIN,
            job=job,
            key=key,
            token=secrets.randbits(32),
            world=world % info.members + 1,
            threshold=1,
            format=Format.WINDOW64,
            elements=1,
            challenge=challenge,
        )
        challenge = int(answer.body["registers"][AckRegister.CHALLENGE])
        if answer.reason != Reason.CHALLENGE or answer.body["state"] == JobState.NONE:
            break
    if answer.reason == Reason.KEY:
        return Finding(
            "key", Mark.BAD, f"{key} is not the key of job {job}", "use the key of its workers, or another job number"
        )
    if answer.reason == Reason.CHALLENGE or answer.body["state"] == JobState.NONE:
        return Finding("key", Mark.WARNING, f"job {job} has just ended", "repeat the check while its workers run")
    return Finding("key", Mark.OK, f"{key} is the key of job {job}")


def _check_counters(before: dict[str, int], after: dict[str, int], interval_s: float) -> Iterator[Finding]:
    """Yield a finding for each counter of drops and unusual events, the worst first. A fault is bad as long as its
    counter rises."""
    found = []
    for name, count in after.items():
        severity, meaning, remedy = counter_entry(name)
        rise = (count - before[name]) % 2**32
        if count and severity != Severity.NORMAL:
            mark = Mark.OK if severity == Severity.NOTABLE else Mark.BAD if rise else Mark.WARNING
            lately = f", {rise:,} of them in the last {interval_s:.1f} s" if rise else ""
            found.append(Finding(name, mark, f"{count:,}{lately}: {meaning}", remedy))
    order = [Mark.BAD, Mark.WARNING, Mark.OK]
    yield from sorted(found, key=lambda finding: order.index(finding.mark))
    if not found:
        yield Finding("counters", Mark.OK, "the switch has dropped no frame and seen no unusual one")
