"""One job: its settings, its members' entries, its ring and its claims.

Section 4 of `docs/protocol.md`.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

from iswitch.golden.decide import claims as claims_of
from iswitch.golden.decide.claims import Claims
from iswitch.golden.decide.slot import Ring, Work
from iswitch.golden.interface.message import Settings, Source
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import SILENCE_TICK_US, SILENCE_TICKS_MAX, JobState, MemberState, Reason

__all__ = [
    "NO_JOB",
    "Entry",
    "EntryState",
    "Job",
    "Jobs",
    "Verdict",
    "admit_at_boundary",
    "ended",
    "is_abandoned",
    "is_silent",
    "is_stale",
    "keep_silences",
    "live_ranks",
    "new_claims",
    "record_activity",
    "silence",
    "silence_tick",
    "with_entry",
    "with_next_challenge",
]


class EntryState(IntEnum):
    """State of an entry.

    LIVE: a member of the ring, or waiting to be admitted at the next boundary. LEFT: free, but remembers its
    last owner, whose repeated Leave is acknowledged once more.
    """

    FREE = 0
    LIVE = 1
    LEFT = 2


class Entry(NamedTuple):
    """One index of a job. `number`: of its owner's last command. `ranks`: the global ranks that its owner stands
    for. `sends_uplinks`: its Join named them, as a switch's does."""

    state: EntryState = EntryState.FREE
    source: Source = Source(0, b"", 0, 0)
    nonce: int = 0
    token: int = 0
    number: int = 0
    ranks: int = 0
    sends_uplinks: bool = False


class Job(NamedTuple):
    """One job. A job that is NONE has no entries.

    `settings.threshold` follows SET_H. `last_heard`: per member, the tick in which a valid frame of it last came.
    `claims`: those of an asynchronous job. `ranks`: the ranks that join here. `tree`: a member has stated its ranks.
    `renewed`: it has begun anew. `token`: proves to members that a result or a GRANT comes from the switch.
    `challenge`: of the job's number, also when it has no job; a Join of no member and an END must carry it.
    """

    state: JobState
    epoch: int
    key: int
    settings: Settings
    first_seq: int
    ring: Ring
    entries: tuple[Entry, ...]
    last_heard: tuple[int, ...]
    claims: Claims | None = None
    ranks: int = 0
    tree: bool = False
    token: int = 0
    challenge: int = 0
    renewed: bool = False

    @property
    def live(self) -> int:
        """The live members."""
        return self.ring.live

    def standing(self, member: int) -> MemberState:
        """Return the standing of the owner of an entry that is not free."""
        return MemberState.LIVE if self.live >> member & 1 else MemberState.JOINING

    def member_first_seq(self, member: int) -> int:
        """Return the first seq of a member: the job's, unless the last boundary admitted the member.

        In an asynchronous job it is the lowest seq that a live member may lack, for a member admitted there has
        acknowledged nothing yet.
        """
        if self.claims and self.live >> member & 1:
            return self.ring.acknowledged[member]
        return self.ring.admitted_seq if self.ring.admitted >> member & 1 else self.first_seq


class Jobs(Protocol):
    """The jobs by number: a list, or another place that keeps them."""

    def __getitem__(self, number: int, /) -> Job: ...
    def __setitem__(self, number: int, job: Job, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Job]: ...


NO_JOB = Job(JobState.NONE, 0, 0, Settings(*(0,) * 8), 0, Ring((), (), 0, 0), (), ())


class Verdict(NamedTuple):
    """What a control message does.

    `member` and `token` go into the acknowledgement's header. `entry_index`: the entry of an accepted Join. `works`:
    operations on the accumulators.
    """

    job: Job
    reason: Reason
    member: int
    token: int
    entry_index: int | None = None
    works: tuple[Work, ...] = ()


def silence_tick(now_us: int) -> int:
    """Return the tick of a time, as silences are counted."""
    return now_us // SILENCE_TICK_US


def silence(job: Job, member: int, now_us: int) -> int:
    """Return for how many ticks a member has been silent, at most `SILENCE_TICKS_MAX`.

    The clock may be that of the switch, whose microseconds wrap at 2^32.
    """
    elapsed = silence_tick(now_us) - job.last_heard[member]
    return min(elapsed if elapsed >= 0 else elapsed + silence_tick(2**32), SILENCE_TICKS_MAX)


def keep_silences(job: Job, now_us: int) -> Job:
    """Return a job in which each member that has been silent for `SILENCE_TICKS_MAX` still is when the clock wraps."""
    longest = (silence_tick(now_us) - SILENCE_TICKS_MAX) % silence_tick(2**32)
    heard = tuple(
        longest if silence(job, member, now_us) == SILENCE_TICKS_MAX else tick
        for member, tick in enumerate(job.last_heard)
    )
    return job if heard == job.last_heard else job._replace(last_heard=heard)


def record_activity(job: Job, member: int, now_us: int) -> Job:
    """Record that a valid frame of a member came."""
    return job._replace(last_heard=replace_at(job.last_heard, member, silence_tick(now_us)))


def is_silent(job: Job, member: int, now_us: int) -> bool:
    """Return whether a member has been silent for longer than the job allows."""
    allowed = job.settings.evict_us // SILENCE_TICK_US
    return bool(allowed) and silence(job, member, now_us) > allowed


def is_stale(job: Job, member: int, now_us: int) -> bool:
    """Return whether a member is silent, or in a job that evicts no member, whether it has been for 2^29 us."""
    return is_silent(job, member, now_us) or silence(job, member, now_us) == SILENCE_TICKS_MAX


def is_abandoned(job: Job, now_us: int) -> bool:
    """Return whether no live member of a job has been heard of for so long that the job may end."""
    return all(is_stale(job, member, now_us) for member in range(len(job.entries)) if job.live >> member & 1)


def with_next_challenge(job: Job) -> Job:
    """Return the job with the next challenge, so that Joins and ends sent before are worthless."""
    return job._replace(challenge=(job.challenge + 1) % 2**32)


def ended(job: Job) -> Job:
    """Return what is left when a job ends: its number's next challenge."""
    return NO_JOB._replace(challenge=with_next_challenge(job).challenge)


def with_entry(job: Job, index: int, entry: Entry) -> Job:
    """Return the job with another entry at an index."""
    return job._replace(entries=replace_at(job.entries, index, entry))


def live_ranks(job: Job) -> int:
    """Return the ranks of all confirmed members."""
    return sum(entry.ranks for entry in job.entries if entry.state == EntryState.LIVE)


def new_claims(settings: Settings, first_seq: int) -> Claims | None:
    """Return the claims of a job that starts, or None for a synchronous one."""
    if not settings.segments:
        return None
    return claims_of.new_claims(
        first_seq, segments=settings.segments, staleness=settings.staleness, members=settings.world
    )


def admit_at_boundary(job: Job, now_us: int) -> Job:
    """Admit joining members of an asynchronous job if this is a boundary; called after each message.

    If all live members are silent, they may be dead, and then no member has the job's state.
    """
    if not job.claims or is_abandoned(job, now_us):
        return job
    return job._replace(ring=claims_of.admit(job.claims, job.ring))
