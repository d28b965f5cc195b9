"""What `iswitch top` reads from a switch for one update: counters, jobs, members, and the ranks that each job waits
for."""

import random
import time
from typing import NamedTuple

from iswitch.control.client import Control
from iswitch.control.inspection import (
    JobView,
    MemberView,
    awaited_ranks,
    lowest_serial,
    read_job,
    read_member,
    read_progress,
    read_slot,
)
from iswitch.control.switch_info import SwitchInfo
from iswitch.wire import JobState, SlotState

__all__ = ["JobSnapshot", "Snapshot", "read_snapshot"]

_SLOTS_READ = 8


class JobSnapshot(NamedTuple):
    """A job at about one moment.

    Attributes
    ----------
    job : JobView
        The job.
    members : list of MemberView
        One entry for each rank, absent members too.
    progress : dict of int to int
        By rank of each live member, the lowest segment whose result the member has not acknowledged.
    lowest : int
        The lowest of `progress`.
    contribution_bytes : float
        Mean length of a contribution's payload, of some of the latest segments.
    awaited : list of int
        If the job makes no progress, the ranks that it waits for.
    """

    job: JobView
    members: list[MemberView]
    progress: dict[int, int]
    lowest: int
    contribution_bytes: float
    awaited: list[int]


class Snapshot(NamedTuple):
    """A switch at about one moment.

    Attributes
    ----------
    time_s : float
        When the counters were read, in monotonic seconds.
    counters : dict of str to int
        All counters by name.
    jobs : dict of int to JobSnapshot
        The jobs that exist, by number.
    """

    time_s: float
    counters: dict[str, int]
    jobs: dict[int, JobSnapshot]


def read_snapshot(control: Control, info: SwitchInfo, before: Snapshot | None = None) -> Snapshot:
    """Read the switch.

    Parameters
    ----------
    control : Control
        Connection to the switch.
    info : SwitchInfo
        Sizes of the switch.
    before : Snapshot or None
        The snapshot before this one. A job whose progress has not changed since then is searched for the ranks that it
        waits for.

    Returns
    -------
    Snapshot
        What was read.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    """
    counters, time_s = control.counters(info.ports), time.monotonic()
    jobs = {}
    for number in range(info.jobs):
        job = read_job(control, number)
        if job.state == JobState.NONE:
            continue
        members = [read_member(control, number, member) for member in range(job.world)]
        progress = read_progress(control, job)
        lowest = lowest_serial(progress)
        earlier = before.jobs.get(number) if before else None
        stalled = job.state == JobState.FORMING or earlier is not None and earlier.lowest == lowest
        jobs[number] = JobSnapshot(
            job,
            members,
            progress,
            lowest,
            _contribution_bytes(control, number, info.window),
            awaited_ranks(control, job, progress, info.window) if stalled else [],
        )
    return Snapshot(time_s, counters, jobs)


def _contribution_bytes(control: Control, job: int, window: int) -> float:
    """Return the mean length of contributions in bytes. Slots are taken at random, because the last segment of an array
    may be short."""
    slots = random.sample(range(2 * window), min(_SLOTS_READ, 2 * window))
    lengths = [slot.length for seq in slots if (slot := read_slot(control, job, seq, window)).state != SlotState.EMPTY]
    return sum(lengths) / max(1, len(lengths))
