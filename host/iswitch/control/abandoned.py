"""Jobs that dead workers left behind, in the way of workers that want to join: how to tell them, and how they end.

A worker that is killed, or loses its power, does not leave its job. In a running job the others evict such a member; if
all members are dead, nobody does, and the job stands in the way of the same command started again. The switch has no
timers, so a worker that wants to join does what is needed: it watches the members, and if all of them stay silent for
longer than the job's `evict_s`, it ends the job by its key and joins again. A live member gives several signs of life
in `evict_s`; if one comes, the wait ends and the refusal stands. (In a running job not at once: members that are killed
one after another are alive a little longer than the first.)

Silence counts only while this worker's own exchange with the switch works without a gap. Before the first look, in an
outage of the network, and while this worker itself is stopped, live members may be silent or unheard; so after a gap
the watch begins anew. The switch's own count of silence decides nothing by itself.

Several workers do this at the same time when a whole job is started again. A worker may then end the new job that a
faster worker has just created, because it read the members before that. This converges: a worker sends its RESET only
before it joins, a job runs only when all `world` workers have joined, and a worker whose forming job was ended creates
or joins the next one within the same `Control.join` (its token is refused, and it starts over). So no RESET of theirs
meets a running job, unless the network delivers a copy of one later than `_SETTLE_S`.
"""

import math
import warnings

from iswitch.control.client import Control, JobRunningError
from iswitch.control.explanations import REFUSALS
from iswitch.control.inspection import JobView, MemberView, read_job, read_member
from iswitch.driver.membership import Membership
from iswitch.errors import AbandonedJobWarning, RefusedError
from iswitch.results import format_ranks
from iswitch.wire import NO_MEMBER, SILENCE_TICK_US, JobState, Reason, Standing

__all__ = ["Watch"]

_LONGEST_GAP_S, _SHORTEST_GAP_S = 1.0, 0.05
"""If the switch's answers are further apart than half of `evict_s`, within these limits, the watch begins anew. A live
member repeats its sign of life within a fifth of `evict_s`, so a shorter gap cannot make it silent for `evict_s`."""
_LOOKS_PER_GAP = 4
"""The worker looks at the members so often in the longest gap."""
_GRACE_S = 2.0
"""A member of a running job that gives a sign of life later than this after the first look is alive."""
_SETTLE_S = 0.05
"""Between the end of a job and the next Join: copies of the RESET that the network still holds arrive meanwhile."""
_VANISHED_MOST = 3
"""So often a job may be gone when the worker that it refused looks at it."""
_SLACK_S = 3 * SILENCE_TICK_US / 1e6
"""By so much a member's time of the last sign of life differs between two looks although nothing has come from it."""
_WRAP_S = 2**16 * SILENCE_TICK_US / 1e6
"""The switch counts silence modulo this."""
_SETTINGS = {
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


class Watch:
    """What a worker that wants to join sees of the members that are in its way.

    Parameters
    ----------
    control : Control
        Of the worker.
    wish : Membership
        What the worker wants to join as.
    """

    def __init__(self, control: Control, wish: Membership):
        self.control, self.wish = control, wish
        self.members: dict[int, MemberView] = {}
        self._epoch = -1
        self._heard_at: dict[int, float] = {}  # when the last sign of life came
        self._read_at: dict[int, float] = {}  # when the switch last told that
        self._alive: set[int] = set()
        self._begun = 0.0  # since when this job is watched without a gap
        self._answered_at = -math.inf  # the switch's last answer
        self._gap_s = _LONGEST_GAP_S
        self._next_look = 0.0
        self._vanished = 0
        self._judged: tuple[int, Reason] | None = None  # the job whose refusal is final if the job repeats it

    def look(self) -> JobView:
        """Read the job and its members. Raises SwitchUnreachableError."""
        job = read_job(self.control, self.wish.job)
        self._note_answer()
        if job.epoch != self._epoch:
            self._epoch = job.epoch
            self._gap_s = min(max(job.evict_us / 2e6, _SHORTEST_GAP_S), _LONGEST_GAP_S)
            self._begin()
        self.members = {}
        for member in range(job.world):
            begun = self.control.transport.now()
            view = read_member(self.control, self.wish.job, member)
            self._note_answer()
            if view.standing != Standing.NONE:
                self.members[member] = view
                self._compare(member, begun, view.silent_s, self._begun + _GRACE_S * (job.state != JobState.FORMING))
        self._next_look = self._answered_at + self._gap_s / _LOOKS_PER_GAP
        return job

    def _begin(self) -> None:
        self._heard_at, self._read_at, self._alive, self._begun = {}, {}, set(), self.control.transport.now()

    def _note_answer(self) -> bool:
        """Begin the watch anew if the answer that has just come is too long after the one before. Return whether it
        is."""
        before, self._answered_at = self._answered_at, self.control.transport.now()
        if gap := self._answered_at - before > self._gap_s:
            self._begin()
        return gap

    def _compare(self, member: int, begun: float, silent_s: float, alive_after: float) -> None:
        """A member that gave another sign of life since the first look, and later than `alive_after`, is alive."""
        now = self._read_at[member] = self._answered_at
        heard_at = now - silent_s
        later_s = (heard_at - self._heard_at.setdefault(member, heard_at) + _WRAP_S / 2) % _WRAP_S - _WRAP_S / 2
        if later_s > _SLACK_S + now - begun:
            self._heard_at[member] = heard_at
            if heard_at >= alive_after:
                self._alive.add(member)

    def silent_s(self, member: int) -> float:
        """Return for how long this worker has watched and nothing has come from a member."""
        return self._read_at[member] - max(self._heard_at[member], self._begun) if member in self._read_at else 0.0

    def _deciding(self, job: JobView, reason: Reason) -> list[int]:
        """The members that would have to be dead. While a job forms, the switch itself gives away a dead member's
        rank."""
        if job.state != JobState.FORMING:
            return (
                job.live
            )  # newcomers that wait do not know the job's state, and may be here for the same reason as this worker
        if reason == Reason.MEMBER and self.wish.wanted != NO_MEMBER:
            return [member for member in self.members if member == self.wish.wanted]
        return list(self.members)

    def _dead(self, job: JobView, deciding: list[int]) -> bool:
        return bool(deciding and job.evict_us) and all(
            member in self.members and self.silent_s(member) > job.evict_us / 1e6 + _SLACK_S for member in deciding
        )

    def wait(self, refusal: RefusedError, deadline: float) -> None:
        """Return when the worker may join again, because the job has ended or the rank is free. Raises the refusal,
        with what was seen, if a member is alive or the deadline passes; SwitchUnreachableError."""
        if refusal.reason not in {Reason.MEMBER, Reason.KEY, *_SETTINGS}:
            raise refusal
        while (job := self.look()).state != JobState.NONE:
            deciding = self._deciding(job, refusal.reason)
            if refusal.reason != Reason.KEY and self._dead(job, deciding):
                if job.state != JobState.FORMING or refusal.reason != Reason.MEMBER:
                    self._end(job, refusal)
                return
            hopeless = (
                not deciding or not job.evict_us or self._alive.intersection(deciding) or refusal.reason == Reason.KEY
            )
            if hopeless or self.control.transport.now() >= deadline:
                if self._judged != (job.epoch, refusal.reason):  # perhaps it was the job before this one that refused
                    self._judged = job.epoch, refusal.reason
                    return
                raise RefusedError(self._sentence(job, refusal, deciding), refusal.reason) from None
            self.control.transport.sleep(self._gap_s / _LOOKS_PER_GAP)
        self._vanished += 1
        if self._vanished > _VANISHED_MOST:  # there is no job: the switch itself cannot do what this worker asks for
            raise refusal

    def attend(self, taken: bool) -> None:
        """Look now and then, for an elastic worker that waits to be admitted. End the job if all its live members are
        dead.

        Parameters
        ----------
        taken : bool
            Another member has the rank.

        Raises RefusedError if that member is alive; SwitchUnreachableError.
        """
        if self.control.transport.now() < self._next_look:
            return
        job = self.look()
        if job.state > JobState.FORMING and self._dead(job, job.live):
            self._end(job, None)
        elif taken and self.wish.wanted in self._alive:
            refusal = RefusedError(f"rank {self.wish.wanted} is taken", Reason.MEMBER)
            raise RefusedError(self._sentence(job, refusal, [self.wish.wanted]), Reason.MEMBER)

    def _end(self, job: JobView, refusal: RefusedError | None) -> None:
        silent_s = min(
            self.silent_s(member) for member in self._deciding(job, refusal.reason if refusal else Reason.MEMBER)
        )
        epoch = read_job(self.control, job.job).epoch
        if self._note_answer() or epoch != job.epoch:
            return  # the members have not been seen for a while, or another worker was faster
        try:
            self.control.end_job(job.job, self.wish.key)
        except RefusedError as refused:
            if refused.reason != Reason.JOB:  # else another worker has ended it in the same moment
                raise (refusal or refused) from None
        else:
            warnings.warn(
                f"job {job.job} at {self.control.address} was left behind: from none of its members, {format_ranks(list(self.members))}, "
                f"anything came while this worker watched for {silent_s:.1f} s, longer than the job's `evict_s` of "
                f"{job.evict_us / 1e6:g} s. This worker has ended that job and joins a new one",
                AbandonedJobWarning,
                stacklevel=6,
            )
        self.control.transport.sleep(_SETTLE_S)

    # Sentences

    def _sentence(self, job: JobView, refusal: RefusedError, deciding: list[int]) -> str:
        """The refusal, with the members that are in the way, and what helps."""
        meaning, remedy = REFUSALS[refusal.reason]
        if refusal.reason == Reason.MEMBER and (taken := self._taken(job, refusal)):
            meaning = taken
            remedy = (
                "give every worker a rank, and every program a `job` number of its own; a worker that comes back to a running job needs "
                "elastic=True"
                if job.state != JobState.FORMING
                else "give every worker a rank of its own, 0 to world - 1, or rank=None to let the switch choose"
            )
        elif difference := self._difference(job, refusal.reason):
            meaning = difference
        seen = "; ".join(self._holder(member, job) for member in deciding[:4])
        command = (
            f"`iswitch end-job --job {job.job}{self._key(refusal.reason)} --switch {self.control.address}` ends the job"
        )
        return (
            f"the switch at {self.control.address} refused to let a worker join job {job.job}: {meaning}. {seen[:1].upper()}{seen[1:]}"
            f"{'. ' if seen else ''}To go on, {remedy}. If the job's workers are dead, {command}"
        )

    def _taken(self, job: JobView, refusal: RefusedError) -> str:
        """Which place is not free; "" if that is not the reason."""
        if self.wish.wanted in self.members:
            return f"rank {self.wish.wanted} is taken"
        if isinstance(refusal, JobRunningError):
            return "the job is running already"
        return "all ranks are taken" if len(self.members) == job.world else ""

    def _difference(self, job: JobView, reason: Reason) -> str:
        """Both values of a setting in which the worker and the job differ, if the switch shows the job's."""
        name = _SETTINGS.get(reason, "")
        theirs, ours = getattr(job, name, None), getattr(self.wish, name, None)
        if theirs is None or ours is None or theirs == ours:
            return ""
        if name.endswith("_us"):
            theirs, ours, name = f"{theirs / 1e6:g}", f"{ours / 1e6:g}", name.replace("_us", "_s")
        elif name == "format":
            theirs, ours = f'"{theirs.name.lower()}"', f'"{ours.name.lower()}"'
        return f"this worker's `{name}` is {ours}, and the job's is {theirs}"

    def _holder(self, member: int, job: JobView) -> str:
        view = self.members.get(member)
        if view is None:
            return f"rank {member} has left meanwhile"
        text = f"rank {member} ({view.address}, behind port {view.port} of the switch) gave its last sign of life {view.silent_s:.1f} s ago"
        if member in self._alive:
            return f"{text} and is alive"
        allowed = f"{job.evict_us / 1e6:g} s (`evict_s`)" if job.evict_us else ""
        return (
            f"{text}; it loses its rank after {allowed}"
            if allowed
            else f"{text}; it keeps its rank, because the job's `evict_s` is 0"
        )

    def _key(self, reason: Reason) -> str:
        if reason == Reason.KEY:
            return " --key KEY"
        return f" --key {self.wish.key}" if self.wish.key else ""
