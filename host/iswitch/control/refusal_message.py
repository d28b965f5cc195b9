"""The message for a worker whose Join was refused: the reason, the members that block it, and what helps."""

from collections.abc import Collection

from iswitch.control.client import JobRunningError
from iswitch.control.inspection import JobView, MemberView
from iswitch.control.job_key import describe_key
from iswitch.control.refusals import REFUSALS
from iswitch.driver.membership import Membership
from iswitch.errors import RefusedError
from iswitch.wire import JobState, Reason

__all__ = ["SETTINGS", "refusal_message"]

SETTINGS = {
    Reason.WORLD: "world",
    Reason.THRESHOLD: "threshold",
    Reason.FORMAT: "format",
    Reason.FRACTION: "fraction",
    Reason.ELEMENTS: "elements",
    Reason.MODE: "mode",
    Reason.DEADLINE: "deadline_us",
    Reason.EVICT: "evict_us",
    Reason.STALENESS: "staleness",
    Reason.SEGMENTS: "segments",
}
"""Refusals because worker and job differ in a setting, with the setting's name in `Membership` and `JobView`."""
_MEMBERS_SHOWN = 4
_SILENT_S = 1.5
"""A member that has been silent for longer may be dead: a live one repeats its sign of life within 1 s."""


def refusal_message(
    job: JobView,
    refusal: RefusedError,
    request: Membership,
    address: str,
    *,
    members: dict[int, MemberView],
    blocking: list[int],
    alive: Collection[int],
    free_job: int | None = None,
) -> str:
    """Return the message.

    Parameters
    ----------
    job : JobView
        The job.
    refusal : RefusedError
        The refusal of the Join.
    request : Membership
        The requested membership.
    address : str
        Address of the switch.
    members : dict of int to MemberView
        The job's members by rank.
    blocking : list of int
        Ranks of the members that block the worker.
    alive : collection of int
        Ranks of the members that gave a sign of life.
    free_job : int or None
        A job number that is free, for a worker with another key than the job's.
    """
    meaning, remedy = REFUSALS[refusal.reason]
    if refusal.reason == Reason.MEMBER:
        meaning, remedy = _taken_place(job, refusal, request, members, alive) or (meaning, remedy)
    elif refusal.reason == Reason.KEY:
        meaning = "the job belongs to another program, because its key is not that of this worker"
        remedy = _remedy_for_key(job, request, free_job)
    elif difference := _difference(job, request, refusal.reason):
        meaning = difference
    seen = "; ".join(
        _describe(member, members.get(member), job, member in alive) for member in blocking[:_MEMBERS_SHOWN]
    )
    if refusal.reason == Reason.KEY:
        key, where = "KEY", ", where KEY is the key of its workers"
    else:
        key, where = str(request.key), ""
    command = f"`iswitch end-job --job {job.job} --key {key} --switch {address}` ends the job{where}"
    return (
        f"the switch at {address} refused to let a worker join job {job.job}: {meaning}. To go on, {remedy}. "
        f"{seen[:1].upper()}{seen[1:]}{'. ' if seen else ''}If the job's workers are dead, {command}"
    )


def _taken_place(
    job: JobView, refusal: RefusedError, request: Membership, members: dict[int, MemberView], alive: Collection[int]
) -> tuple[str, str] | None:
    """Return which place is not free, and the remedy that helps in the most likely case; None if that is not the
    reason.

    In a running job, a rank that is free or has a silent owner is most likely that of this worker before it was
    started again. A rank with a live owner belongs to another worker.
    """
    wanted, runs = request.wanted, job.state != JobState.FORMING
    silent = [rank for rank, member in members.items() if rank not in alive and member.silent_s > _SILENT_S]
    if wanted in members:
        meaning = f"rank {wanted} is taken"
    elif isinstance(refusal, JobRunningError):
        meaning = "the job is running already"
    elif len(members) == job.world:
        meaning = "all ranks are taken"
    else:
        return None
    if not runs:
        return meaning, "give every worker a rank of its own, 0 to world - 1, or rank=None to let the switch choose"
    if wanted in silent or wanted not in members and (silent or len(members) < job.world):
        return meaning, (
            "if this worker was killed and starts again, pass elastic=True and call `sync_state` first, as the other "
            "workers must do when `needs_sync` is True; if their program does not, end it and start all workers "
            "again. If the job belongs to another program, pass another `job` number"
        )
    return meaning, (
        "give every program a `job` number of its own, and every worker a rank of its own, 0 to world - 1. If this "
        "worker comes back to its job, it needs elastic=True"
    )


def _remedy_for_key(job: JobView, request: Membership, free_job: int | None) -> str:
    """Return the remedy for another key than the job's. A job that still forms most likely waits for this worker."""
    number = "another job number (`job`, or ISWITCH_JOB for `iswitch.init()`)"
    if free_job is not None:
        number = f"another job number, for example job={free_job}, or ISWITCH_JOB={free_job} for `iswitch.init()`"
    if job.state != JobState.FORMING:
        return f"use {number}. If the job belongs to this program, {describe_key(request.key)}"
    return f"if the job belongs to this program, {describe_key(request.key)}. Otherwise use {number}"


def _difference(job: JobView, request: Membership, reason: Reason) -> str:
    """Return the values of the setting in which worker and job differ; "" if the switch does not show the job's."""
    name = SETTINGS.get(reason, "")
    theirs, ours = getattr(job, name, None), getattr(request, name, None)
    if theirs is None or ours is None or theirs == ours:
        return ""
    if name == "segments":
        return _difference_in_segments(ours, theirs)
    if name.endswith("_us"):
        theirs, ours, name = f"{theirs / 1e6:g}", f"{ours / 1e6:g}", name.replace("_us", "_s")
    elif name == "format":
        theirs, ours = f'"{theirs.name.lower()}"', f'"{ours.name.lower()}"'
    return f"this worker's `{name}` is {ours}, and the job's is {theirs}"


def _difference_in_segments(ours: int, theirs: int) -> str:
    """Return in which way two jobs differ whose updates have these segments; 0 for a synchronous job."""
    if not ours:
        return "this worker is a Worker, and the job is one of AsyncWorkers"
    if not theirs:
        return "this worker is an AsyncWorker, and the job is one of Workers"
    return f"an update of this worker has {ours} segments, and one of the job has {theirs} (another `size`)"


def _describe(member: int, view: MemberView | None, job: JobView, alive: bool) -> str:
    """Return a sentence on a member that blocks the worker."""
    if view is None:
        return f"rank {member} has left meanwhile"
    text = (
        f"rank {member} ({view.address}, behind port {view.port} of the switch) gave its last sign of life "
        f"{view.silent_s:.1f} s ago"
    )
    if alive:
        return f"{text} and is alive"
    if job.evict_us:
        return f"{text}; it loses its rank after {job.evict_us / 1e6:g} s (`evict_s`)"
    return f"{text}; it keeps its rank, because the job's `evict_s` is 0"
