"""Jobs that dead workers left behind: how a worker that wants to join recognises such a job, and lets it end.

A worker that is killed, or loses power, does not leave its job. In a running job, a member that waits for the dead
worker triggers its eviction. If all members are dead, no member triggers the eviction. The switch has no timers. After
all members have been silent for the job's `evict_s`, a Join with the challenge ends the job if it is of another program
or has other settings. If it is of the same program, it removes one member, and the job ends with its last one: so a
program that was killed and starts again has its number back as soon as its workers have joined.

So a worker whose Join is refused watches the members, and joins again when all of them have been silent for so long. A
live member gives several signs of life within `evict_s`. After the first such sign, the wait ends and the refusal
stands. In a running job the worker waits a grace period (`_GRACE_S`), because members that are killed one after another
do not die at the same moment.

The switch counts silence also while it hears nobody, as in an outage of its links. After an outage longer than
`evict_s`, the first Join that comes would end a job of live workers, or remove one of them. So this worker does not
rely on that count. It sends no such Join until it has heard a member, or has watched all of them in silence for
`evict_s`. Silence counts only while this worker's own exchange with the switch works without a gap. After a gap, and
after a time in which this worker itself is stopped, the watch begins again.

The rows of the job and of its members come one after another, and the job may change between them. In an abandoned job
other workers of the same program take the places of dead members meanwhile. They are alive and wait to be admitted, and
say nothing about the members: so a row counts for or against a job only if it shows a live member.
"""

import contextlib
import math

from iswitch.caller_warning import warn_program
from iswitch.control.client import Control, EntryPermit
from iswitch.control.inspection import JobView, MemberView, read_job, read_member
from iswitch.control.refusal_message import SETTINGS, refusal_message
from iswitch.driver.membership import Membership
from iswitch.errors import AbandonedJobWarning, CollectiveTimeoutError, RefusedError, SwitchUnreachableError
from iswitch.results import format_ranks
from iswitch.wire import EVICT_US_MAX, NO_MEMBER, SILENCE_TICK_US, JobState, MemberState, Reason

__all__ = ["AbandonedJobWatch"]

_LONGEST_GAP_S, _SHORTEST_GAP_S = 1.0, 0.05
"""If the switch's answers are further apart than half of `evict_s`, within these limits, the watch begins again. A live
member repeats its sign of life within a fifth of `evict_s`, so a shorter gap cannot make it silent for `evict_s`."""
_LOOKS_PER_GAP = 4
"""Looks at the members within the longest gap."""
_GRACE_S = 2.0
"""A member of a running job is alive if it gives a sign of life later than this after the first look."""
_MAX_RETRIES_JOB_ENDED = 3
"""Retries when the job has ended before the worker reads it. After that, the refusal is raised: the switch cannot grant
the request."""
_SLACK_S = 3 * SILENCE_TICK_US / 1e6
"""How much the computed time of a member's last sign of life differs between two looks although none came."""
_WRAP_S = 2**16 * SILENCE_TICK_US / 1e6
"""The switch counts silence modulo this."""


class AbandonedJobWatch:
    """Watches the members of a job that a worker wants to join, and tells whether all of them are dead.

    Parameters
    ----------
    control : Control
        Carries the messages.
    request : Membership
        The requested membership.
    """

    def __init__(self, control: Control, request: Membership):
        self.control, self.request = control, request
        self.members: dict[int, MemberView] = {}
        """The members at the last look, by rank."""
        self._epoch = -1
        self._heard_at: dict[int, float] = {}  # when the last sign of life came
        self._read_at: dict[int, float] = {}  # when the switch last reported that
        self._alive: set[int] = set()
        self._watched_since = 0.0  # without a gap
        self._answered_at = -math.inf  # when the switch's last answer came
        self._gap_s = _LONGEST_GAP_S
        self._next_look = 0.0
        self._retries_job_ended = 0
        self._warned_of = -1  # epoch
        self._job: JobView | None = None  # at the last look
        self._last_refusal: tuple[int, Reason] | None = None  # epoch and reason; the same refusal again is final

    def look(self) -> JobView:
        """Read the job and its members. Raises SwitchUnreachableError."""
        job = read_job(self.control, self.request.job)
        self._record_answer()
        if job.epoch != self._epoch:
            self._epoch = job.epoch
            self._gap_s = min(max(job.evict_us / 2e6, _SHORTEST_GAP_S), _LONGEST_GAP_S)
            self._begin()
        self.members = {}
        for member in range(job.world):
            asked_at = self.control.transport.now()
            view = read_member(self.control, self.request.job, member)
            self._record_answer()
            if view.standing != MemberState.NONE:
                self.members[member] = view
                grace_s = 0.0 if job.state == JobState.FORMING else _GRACE_S
                self._record_silence(member, asked_at, view.silent_s, self._watched_since + grace_s)
        self._next_look = self._answered_at + self._gap_s / _LOOKS_PER_GAP
        self._job = job
        return job

    def _last_look(self) -> JobView:
        """Return the job as of the last look, after another look if one is due."""
        return self._job if self._job and self.control.transport.now() < self._next_look else self.look()

    def _begin(self) -> None:
        """Begin to watch, or begin again."""
        self._heard_at, self._read_at, self._alive = {}, {}, set()
        self._watched_since = self.control.transport.now()

    def _record_answer(self) -> bool:
        """Record the time of an answer. If the one before it is too long ago, begin the watch again and return True."""
        before, self._answered_at = self._answered_at, self.control.transport.now()
        if gap := self._answered_at - before > self._gap_s:
            self._begin()
        return gap

    def _record_silence(self, member: int, asked_at: float, silent_s: float, alive_after: float) -> None:
        """Record for how long a member has been silent. The member is alive if it gave another sign of life since the
        first look, later than the time `alive_after`."""
        now = self._read_at[member] = self._answered_at
        heard_at = now - silent_s
        later_s = (heard_at - self._heard_at.setdefault(member, heard_at) + _WRAP_S / 2) % _WRAP_S - _WRAP_S / 2
        if later_s > _SLACK_S + now - asked_at:
            self._heard_at[member] = heard_at
            if heard_at >= alive_after:
                self._alive.add(member)

    def silent_s(self, member: int) -> float:
        """Return for how many seconds this worker has watched a member without a sign of life."""
        if member not in self._read_at:
            return 0.0
        return self._read_at[member] - max(self._heard_at[member], self._watched_since)

    def _blocking_members(self, job: JobView, reason: Reason) -> list[int]:
        """Return the members that block this worker as long as they are alive."""
        if job.state != JobState.FORMING:
            return job.live  # members that wait to be admitted may be here for the same reason as this worker
        if reason == Reason.MEMBER and self.request.wanted != NO_MEMBER:
            return [member for member in self.members if member == self.request.wanted]
        return list(self.members)

    def _all_dead(self, job: JobView, members: list[int]) -> bool:
        return bool(members and job.evict_us) and all(
            self._shows_live(member) and self.silent_s(member) > job.evict_us / 1e6 + _SLACK_S for member in members
        )

    def _shows_live(self, member: int) -> bool:
        """Return whether the row of a member shows a live one. Since the job's row was read, the member may have left,
        and its place may have gone to a worker that waits to be admitted."""
        return member in self.members and self.members[member].standing == MemberState.LIVE

    def _rank_joins(self, job: JobView) -> bool:
        """Return whether another worker of this one's rank waits to be admitted, and has not been silent for
        `evict_s`."""
        view = self.members.get(self.request.wanted)
        return view is not None and view.standing == MemberState.JOINING and view.silent_s <= job.evict_us / 1e6

    def wait_until_free(self, refusal: RefusedError, deadline: float) -> None:
        """Wait until the worker may join again, because the job has ended or the rank is free.

        While a job forms, the switch itself gives the rank of a dead member to another worker.

        Parameters
        ----------
        refusal : RefusedError
            The refusal of the worker's Join.
        deadline : float
            Time in seconds at which the wait ends.

        Raises
        ------
        RefusedError
            If a member is alive or the deadline passes: the refusal, with what was seen of the members.
        SwitchUnreachableError
            If the switch does not answer.
        """
        reason = refusal.reason
        if reason not in {Reason.MEMBER, Reason.KEY, *SETTINGS}:
            raise refusal
        while (job := self.look()).state != JobState.NONE:
            blocking = self._blocking_members(job, reason)
            rank_joins = reason == Reason.MEMBER and self._rank_joins(job)
            if self._all_dead(job, blocking) and not rank_joins:
                if job.state != JobState.FORMING or reason != Reason.MEMBER:
                    self._warn(job, blocking)
                return
            alive = any(member in self._alive and self._shows_live(member) for member in blocking)
            hopeless = not blocking or not job.evict_us or alive
            if hopeless or self.control.transport.now() >= deadline:
                if self._last_refusal != (job.epoch, reason):  # the refusal may have come from an earlier job
                    self._last_refusal = job.epoch, reason
                    return
                raise RefusedError(self._message(job, refusal, blocking), reason) from None
            self.control.transport.sleep(self._gap_s / _LOOKS_PER_GAP)
        self._retries_job_ended += 1
        if self._retries_job_ended > _MAX_RETRIES_JOB_ENDED:
            raise refusal

    def wait_until_known(self, deadline: float) -> EntryPermit:
        """Wait until the switch has just heard a live member of a running job, or all of them are dead.

        Parameters
        ----------
        deadline : float
            Time in seconds at which the wait ends.

        Returns
        -------
        EntryPermit
            For how long a Join may be sent: a member that the switch has just heard is not stale so soon. And whether
            the switch has just heard one.

        Raises
        ------
        CollectiveTimeoutError
            If the deadline passes.
        SwitchUnreachableError
            If the switch does not answer.
        """
        while True:
            job = self._last_look()
            alive = self._any_just_heard(job)
            known = job.state <= JobState.FORMING or not job.evict_us or alive
            if not known and self._all_dead(job, job.live):
                self._warn(job, job.live)
                known = True
            now = self.control.transport.now()
            if known and now < self._next_look:  # else this worker was stopped
                return EntryPermit(self._gap_s / 2, alive)
            if now >= deadline:
                raise CollectiveTimeoutError(
                    f"job {job.job} at {self.control.address} is running, and the switch has heard none of its members "
                    f"lately. A worker that joins watches them for the job's `evict_s` of {job.evict_us / 1e6:g} s "
                    "before that job may end: allow more time (`join_timeout_s`; in a call of `rejoin`, `timeout_s`), "
                    f"or end the job by `iswitch end-job --job {job.job} --key KEY`"
                )
            self.control.transport.sleep(self._gap_s / _LOOKS_PER_GAP)

    def _any_just_heard(self, job: JobView) -> bool:
        limit_s = (job.evict_us or EVICT_US_MAX) / 2e6
        return any(self._shows_live(member) and self.members[member].silent_s < limit_s for member in job.live)

    def check(self, rank_taken: bool) -> None:
        """Check that the rank is not that of a live member, and warn if all live members are dead. Looks at the members
        if a look is due.

        Parameters
        ----------
        rank_taken : bool
            Another member has the rank that this worker requests.

        Raises
        ------
        RefusedError
            If that member is alive.
        SwitchUnreachableError
            If the switch does not answer.
        """
        job = self._last_look()
        if job.state > JobState.FORMING and self._all_dead(job, job.live):
            self._warn(job, job.live)
        elif rank_taken and self.request.wanted in self._alive:
            refusal = RefusedError(f"rank {self.request.wanted} is taken", Reason.MEMBER)
            raise RefusedError(self._message(job, refusal, [self.request.wanted]), Reason.MEMBER)

    def is_alive(self) -> bool:
        """Return whether the switch has lately heard a live member of the running job. Looks at the members if a look
        is due."""
        return self._any_just_heard(self._last_look())

    def _warn(self, job: JobView, blocking: list[int]) -> None:
        """Say that the job was left behind, and how it ends."""
        if job.epoch == self._warned_of:
            return
        self._warned_of = job.epoch
        silent_s = min(self.silent_s(member) for member in blocking)
        warn_program(
            f"job {job.job} at {self.control.address} was left behind: this worker watched its members, "
            f"{format_ranks(list(self.members))}, for {silent_s:.1f} s, longer than the job's `evict_s` of "
            f"{job.evict_us / 1e6:g} s, "
            "and none of them gave a sign of life. The switch ends that job, at the latest when workers have joined in "
            "the place of all its members, and this worker joins a new one",
            AbandonedJobWarning,
        )

    def _message(self, job: JobView, refusal: RefusedError, blocking: list[int]) -> str:
        return refusal_message(
            job,
            refusal,
            self.request,
            self.control.address,
            members=self.members,
            blocking=blocking,
            alive=self._alive,
            free_job=self._free_job() if refusal.reason == Reason.KEY else None,
        )

    def _free_job(self) -> int | None:
        """Return the lowest number that no job has, None if there is none or the switch does not answer."""
        with contextlib.suppress(SwitchUnreachableError):
            for job in range(self.control.switch_info().jobs):
                if self.control.job(job).state == JobState.NONE:
                    return job
        return None
