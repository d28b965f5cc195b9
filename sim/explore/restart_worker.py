"""The workers of `restart.py`: how the driver looks at a job that it may not enter, and what it does then.

This is the rule of `host/iswitch/control/abandoned_job.py` and of `Control.join`, for workers that are not elastic. A
*look* reads the row of the job and then the rows of the members that block the worker, one answer after another.
Between two answers anything may happen.
"""

from collections.abc import Callable
from enum import IntEnum, auto
from typing import NamedTuple

from iswitch.golden.decide.job import EntryState, Job, is_stale
from iswitch.wire import NO_MEMBER, JobState, MemberState, Reason
from sim.explore.messages import is_member

__all__ = [
    "Look",
    "Phase",
    "Purpose",
    "RowRule",
    "StartedWorker",
    "after_answer",
    "after_look",
    "blocking_members",
    "looks_again",
    "next_row",
    "shows_live_member",
    "with_row",
]


class Phase(IntEnum):
    """What a worker does next: it reads rows, sends its Join, or leaves. At the end it runs, or is refused."""

    LOOKS = auto()
    JOINS = auto()
    LEAVES = auto()
    RUNS = auto()
    REFUSED = auto()


class Purpose(IntEnum):
    """Why a worker looks: before it sends a Join, while it waits in the abandoned job, or after a refusal."""

    ENTRY = auto()
    INSIDE = auto()
    REFUSAL = auto()


class Look(NamedTuple):
    """What a worker has read.

    `epoch`, `state`, `blocking`: from the job's row, with the members that block the worker. `read`: the members whose
    rows it has read. `alive`: those that the switch has just heard. `dead`: those that have been silent for
    `evict_us` while this worker watched them.
    """

    epoch: int
    state: JobState
    blocking: int
    read: int = 0
    alive: int = 0
    dead: int = 0

    @property
    def all_dead(self) -> bool:
        """Whether all members that block the worker are dead."""
        return bool(self.blocking) and self.dead == self.blocking


class StartedWorker(NamedTuple):
    """A worker that wants to join.

    `challenge`, `meets_running_job`: from the last answer to its Join. `member`: its index, if the switch has granted
    its Join. `inside`: it has entered a running job. `probes`: its Join requests an index that no job has.
    `excused`: the epoch of a job whose refusal it has ignored once.
    """

    challenge: int
    phase: Phase = Phase.LOOKS
    purpose: Purpose = Purpose.ENTRY
    look: Look | None = None
    meets_running_job: bool = True
    member: int | None = None
    inside: bool = False
    probes: bool = False
    excused: int = 0

    @property
    def done(self) -> bool:
        return self.phase in (Phase.RUNS, Phase.REFUSED)


RowRule = Callable[[MemberState], bool]


def shows_live_member(standing: MemberState) -> bool:
    """Return whether the row of a member that the job's row has named as live is still that of a live member.

    A worker that has taken the place of a silent member is *joining*. It shows nothing about the job's members.
    """
    return standing == MemberState.LIVE


# How a worker looks


def blocking_members(job: Job, wanted: int) -> int:
    """Return the members that block a worker as long as they are alive."""
    if job.state != JobState.FORMING or wanted == NO_MEMBER:
        return job.live
    return job.live & 1 << wanted


def next_row(look: Look | None) -> int | None:
    """Return the member whose row is read next, None if the look is complete or has not begun."""
    unread = look.blocking & ~look.read if look else 0
    return (unread & -unread).bit_length() - 1 if unread else None


def with_row(look: Look, job: Job, member: int, now_us: int, *, lives: bool, shows: RowRule) -> Look:
    """Return the look after the row of a member has been read.

    A member that lives gives signs of life within `evict_us`, and the worker has watched for as long, so it is never
    dead to the worker. A silent one is.
    """
    look = look._replace(read=look.read | 1 << member)
    exists = member < len(job.entries) and job.entries[member].state == EntryState.LIVE
    if not exists or not shows(job.standing(member)):
        return look
    if not is_stale(job, member, now_us):
        return look._replace(alive=look.alive | 1 << member)
    return look if lives else look._replace(dead=look.dead | 1 << member)


# What it does then


def after_look(worker: StartedWorker, look: Look) -> StartedWorker:
    """Return the worker after a complete look. If nothing follows from the look, the worker looks again."""
    worker = worker._replace(look=look)
    match worker.purpose:
        case Purpose.ENTRY:
            if look.state <= JobState.FORMING or look.alive or look.all_dead:
                return worker._replace(phase=Phase.JOINS, probes=bool(look.alive))
        case Purpose.INSIDE:
            return worker._replace(phase=Phase.LEAVES if look.alive else Phase.JOINS)
        case Purpose.REFUSAL:
            if look.state == JobState.NONE or look.all_dead:
                return before_join(worker)
            if not look.blocking or look.alive:
                if worker.excused == look.epoch:
                    return StartedWorker(0, Phase.REFUSED)
                return before_join(worker._replace(excused=look.epoch))
    return worker


def before_join(worker: StartedWorker) -> StartedWorker:
    """Return a worker that is no member and wants to join. It looks before it sends a Join to a running job."""
    worker = worker._replace(member=None, inside=False, probes=False, purpose=Purpose.ENTRY)
    if worker.meets_running_job:
        return worker._replace(phase=Phase.LOOKS)
    return worker._replace(phase=Phase.JOINS, look=None)


def looks_again(worker: StartedWorker, purpose: Purpose) -> StartedWorker:
    """Return a worker that has been refused, or has left, or whose permit to send a Join has expired."""
    return worker._replace(phase=Phase.LOOKS, purpose=purpose, look=None, member=None, inside=False, probes=False)


def after_answer(worker: StartedWorker, job: Job, reason: Reason, member: int | None) -> StartedWorker:
    """Return the worker after the answer to its Join. `member`: the index that it was granted."""
    runs = job.state > JobState.FORMING
    met_running_job, worker = worker.meets_running_job, worker._replace(challenge=job.challenge, meets_running_job=runs)
    if reason == Reason.CHALLENGE:
        return before_join(worker)
    if member is None:
        return looks_again(worker, Purpose.REFUSAL)
    live = is_member(job.live, member)
    if worker.inside or not live or worker.member is None and met_running_job:
        return worker._replace(member=member, inside=True, phase=Phase.LOOKS, purpose=Purpose.INSIDE)
    return StartedWorker(0, Phase.RUNS) if runs else worker._replace(member=member)
