"""Who is in a job: what Join, Leave, Reset and SetH make of one job. Section 4 of `docs/protocol.md`.

Pure functions from a job and a request to a job and an answer. A member is *pending* from the Join that gave it an
entry until a Join with the granted token came back; only then is it *live*. A refused request changes nothing. Records
and rules are one module, for what an entry's state means is nothing but what these rules make of it.
"""

from enum import IntEnum
from typing import NamedTuple

from iswitch.config import Config
from iswitch.wire import (
    DEADLINE_US_MAX,
    EVICT_US_MAX,
    NO_MEMBER,
    SEGMENTS_MAX,
    SILENCE_TICK_US,
    STALENESS_MAX,
    Action,
    JobState,
    Mode,
    Reason,
    SlotState,
    Standing,
)
from iswitch.wire.formats import FRACTION_MAX, FRACTION_MIN, JOB_FORMATS
from sim.model.decide import claims as claims_of
from sim.model.decide.claims import Claims
from sim.model.decide.random import Offer
from sim.model.decide.ring import Ring, Work, force, forward, leave, new_ring

__all__ = [
    "NO_JOB",
    "Entry",
    "EntryState",
    "Job",
    "Request",
    "Settings",
    "Source",
    "Verdict",
    "act",
    "heard",
    "join",
    "live_ranks",
    "part",
    "settle",
    "silent",
    "tick",
]


class Source(NamedTuple):
    """Where a frame came from and where its answer goes."""

    port: int
    mac: bytes
    ip: int
    udp_port: int


class Settings(NamedTuple):
    """What all members of a job agree on. The fields stand in the order of the checks and are named as the reasons.
    `segments`: of an update; 0: the job is synchronous."""

    world: int
    threshold: int
    format: int
    fraction: int
    elements: int
    mode: int
    deadline_us: int
    evict_us: int
    staleness: int = 0
    segments: int = 0


class Request(NamedTuple):
    """A control message. `number` is the header's `seq`, `ranks` its `members`: a Join's global ranks, 0 if they are
    its index."""

    action: int
    epoch: int
    member: int
    token: int
    number: int
    key: int
    nonce: int
    settings: Settings
    seq: int = 0
    address: int = 0
    ranks: int = 0


class EntryState(IntEnum):
    """LIVE: confirmed; a member of the ring, or waiting to be one at the next boundary. LEFT is a free entry that
    remembers its last owner, whose repeated Leave is answered once more."""

    FREE = 0
    PENDING = 1
    LIVE = 2
    LEFT = 3


class Entry(NamedTuple):
    state: EntryState = EntryState.FREE
    source: Source = Source(0, b"", 0, 0)
    nonce: int = 0
    token: int = 0
    number: int = 0
    ranks: int = 0


class Job(NamedTuple):
    """`settings.threshold` follows SET_H. `heard`: the tick in which something of a member came. `claims`: of an
    asynchronous job. `below`: the ranks that its members share. `tree`: a member has said its ranks; from when it runs
    nobody joins such a job. A job that is NONE has no entries."""

    state: JobState
    epoch: int
    key: int
    settings: Settings
    first_seq: int
    ring: Ring
    entries: tuple[Entry, ...]
    heard: tuple[int, ...]
    claims: Claims | None = None
    below: int = 0
    tree: bool = False

    @property
    def live(self) -> int:
        return self.ring.live

    def standing(self, member: int) -> Standing:
        """Of the entry `member`, which is not free."""
        if self.entries[member].state == EntryState.PENDING:
            return Standing.PENDING
        return Standing.LIVE if self.live >> member & 1 else Standing.JOINING

    def begins(self, member: int) -> int:
        """The first seq of a member: the job's, unless it was let in at the last boundary. In an asynchronous job what
        it may lack: a newcomer has told of nothing yet."""
        if self.claims and self.live >> member & 1:
            return self.ring.acknowledged[member]
        return self.ring.admitted_seq if self.ring.admitted >> member & 1 else self.first_seq


NO_JOB = Job(JobState.NONE, 0, 0, Settings(*(0,) * 8), 0, Ring((), (), 0, 0), (), ())


class Verdict(NamedTuple):
    """`member` and `token` go into the acknowledgement's header. `own`: the member's entry, of a granted Join. `fresh`:
    the offer was taken."""

    job: Job
    reason: Reason
    member: int
    token: int
    own: int | None = None
    fresh: bool = False
    works: tuple[Work, ...] = ()


def tick(now_us: int) -> int:
    return now_us // SILENCE_TICK_US % 2**16


def heard(job: Job, member: int, now_us: int) -> Job:
    """Something valid came from a member."""
    return job._replace(heard=job.heard[:member] + (tick(now_us),) + job.heard[member + 1 :])


def silent(job: Job, member: int, now_us: int) -> bool:
    """Nothing has come from a member for as long as the job allows."""
    allowed = job.settings.evict_us // SILENCE_TICK_US
    return bool(allowed) and (tick(now_us) - job.heard[member]) % 2**16 > allowed


def beyond_limits(config: Config, settings: Settings) -> Reason:
    """The first setting that no job of this switch could have."""
    most = config.staleness or STALENESS_MAX
    good = {
        Reason.WORLD: 1 <= settings.world <= config.members,
        Reason.THRESHOLD: 1 <= settings.threshold <= settings.world,
        Reason.FORMAT: settings.format in JOB_FORMATS.values(),
        Reason.FRACTION: FRACTION_MIN <= settings.fraction <= FRACTION_MAX,
        Reason.ELEMENTS: 1 <= settings.elements <= config.elements,
        Reason.MODE: settings.mode in (Mode.QUARANTINE, Mode.PROPAGATE),
        Reason.DEADLINE: settings.deadline_us < DEADLINE_US_MAX,
        Reason.EVICT: settings.evict_us == 0 or SILENCE_TICK_US <= settings.evict_us < EVICT_US_MAX,
        Reason.STALENESS: settings.staleness <= (most if settings.segments else 0),
        Reason.SEGMENTS: settings.segments < (SEGMENTS_MAX if config.staleness else 1),
    }
    return next((reason for reason, holds in good.items() if not holds), Reason.DONE)


def disagreement(job: Job, request: Request) -> Reason:
    """The first thing in which a Join differs from the job."""
    if request.key != job.key:
        return Reason.KEY
    differ = (
        name
        for name, ours, theirs in zip(Settings._fields, job.settings, request.settings)
        if ours != theirs and not (name == "threshold" and job.state != JobState.FORMING)
    )
    return next((REASONS.get(name) or Reason[name.upper()] for name in differ), Reason.DONE)


REASONS = {"deadline_us": Reason.DEADLINE, "evict_us": Reason.EVICT}


def seat(job: Job, wanted: int, ranks: int, now_us: int) -> tuple[int, int] | None:
    """The index that a newcomer gets, if any, and whose entries it takes: its lowest rank, if it says which come with
    it; so all indices are ranks that belong here, and who asks for its rank finds it free. A rank belongs to one
    member. A pending entry yields, or a worker that died between its Join and its confirmation would keep the job from
    forming; and so does, while the job forms, a silent one. (In a running job the silent are evicted when they are
    waited for.)
    """
    taken = {k: entry for k, entry in enumerate(job.entries) if entry.state in (EntryState.PENDING, EntryState.LIVE)}
    yields = [
        k
        for k, entry in taken.items()
        if entry.state == EntryState.PENDING or job.state == JobState.FORMING and silent(job, k, now_us)
    ]
    wanted = lowest(ranks) if ranks else wanted
    if wanted == NO_MEMBER:
        free = [
            k
            for k in range(len(job.entries))
            if job.below >> k & 1 and not any(entry.ranks >> k & 1 for entry in taken.values())
        ]
        return next(((k, 1 << k) for k in free + yields), None)
    ranks = ranks or 1 << wanted
    clash = [k for k, entry in taken.items() if entry.ranks & ranks]
    if wanted >= len(job.entries) or ranks & ~job.below or not set(clash) <= set(yields):
        return None
    return wanted, sum(1 << k for k in clash)


def lowest(ranks: int) -> int:
    return (ranks & -ranks).bit_length() - 1


def with_entry(job: Job, index: int, entry: Entry) -> Job:
    return job._replace(entries=job.entries[:index] + (entry,) + job.entries[index + 1 :])


def found(config: Config, request: Request, offer: Offer, below: int) -> Job:
    """A new job, forming, of which nobody is a live member yet."""
    settings = request.settings
    ring = new_ring(offer.first_seq, config.window, config.members, 0, settings.threshold, settings.deadline_us)
    return Job(
        JobState.FORMING,
        offer.epoch,
        request.key,
        settings,
        offer.first_seq,
        ring,
        (Entry(),) * settings.world,
        (0,) * settings.world,
        no_claims(settings, offer.first_seq),
        below or (1 << settings.world) - 1,
    )


def no_claims(settings: Settings, first_seq: int) -> Claims | None:
    """What is claimed in a job that begins; None in a synchronous one."""
    if not settings.segments:
        return None
    return claims_of.new_claims(
        first_seq, segments=settings.segments, staleness=settings.staleness, members=settings.world
    )


def live_ranks(job: Job) -> int:
    """The ranks of all who have confirmed."""
    return sum(entry.ranks for entry in job.entries if entry.state == EntryState.LIVE)


def confirm(job: Job, index: int) -> Job:
    """The member knows its token: from now on it is waited for, or in a running job from the next boundary on."""
    bit = 1 << index
    job = with_entry(job, index, job.entries[index]._replace(state=EntryState.LIVE))
    if job.state != JobState.FORMING:
        return job._replace(ring=job.ring._replace(joining=job.ring.joining | bit))
    job = job._replace(ring=job.ring._replace(live=job.ring.live | bit))
    return job._replace(state=JobState.RUNNING if live_ranks(job) == job.below else job.state)


def join(
    config: Config, job: Job, request: Request, source: Source, offer: Offer, now_us: int, below: int = 0
) -> Verdict:
    """The same Join (nonce and source) may come any number of times, at any time, in any order. `below`: the ranks that
    are to join here if this creates the job, 0 for all."""
    shut = (job.tree or bool(below)) and job.state != JobState.FORMING
    refused = Verdict(job, Reason.DONE, request.member, request.token)
    reason = beyond_limits(config, request.settings)
    if reason == Reason.DONE and job.state != JobState.NONE:
        reason = disagreement(job, request)
    if reason != Reason.DONE:
        return refused._replace(reason=reason)
    for index, entry in enumerate(job.entries):
        mine = entry.nonce == request.nonce and entry.source == source
        if mine and entry.state in (EntryState.PENDING, EntryState.LIVE):
            if request.token not in (0, entry.token):
                return refused._replace(reason=Reason.TOKEN)
            if request.token and entry.state == EntryState.PENDING:
                if shut:
                    return refused._replace(reason=Reason.MEMBER)
                job = confirm(job, index)
            return Verdict(heard(job, index, now_us), Reason.DONE, index, entry.token, own=index)
    if request.token:  # the confirmation of an entry that is gone, perhaps with its job: nobody's first Join
        return refused._replace(reason=Reason.TOKEN)
    if job.state == JobState.NONE:
        job = found(config, request, offer, below)
    elif shut:
        return refused._replace(reason=Reason.MEMBER)
    seated = seat(job, request.member, request.ranks, now_us)
    if seated is None:
        return refused._replace(reason=Reason.MEMBER)
    place, clash = seated
    entry = Entry(EntryState.PENDING, source, request.nonce, offer.token, ranks=request.ranks or 1 << place)
    ring = job.ring._replace(live=job.live & ~clash)
    job = job._replace(entries=tuple(Entry() if clash >> k & 1 else old for k, old in enumerate(job.entries)))
    job = with_entry(job._replace(ring=ring, tree=job.tree or bool(request.ranks)), place, entry)
    return Verdict(heard(job, place, now_us), Reason.DONE, place, offer.token, own=place, fresh=True)


def part(job: Job, member: int) -> tuple[Job, tuple[Work, ...]]:
    """Leave or eviction. Open slots that wait for nobody else complete; with the last member that is no newcomer the
    job ends and they vanish."""
    ring, works = leave(job.ring, member)
    if not ring.live:
        return NO_JOB, ()
    entry = job.entries[member]._replace(state=EntryState.LEFT)
    claims = claims_of.leave(job.claims, member) if job.claims else None
    return with_entry(job._replace(ring=ring, claims=claims), member, entry), tuple(works)


def settle(job: Job) -> Job:
    """After each message: at a boundary of an asynchronous job those who wait to join are let in."""
    return job._replace(ring=claims_of.admit(job.claims, job.ring)) if job.claims else job


def forced(config: Config, job: Job, seq: int) -> tuple[Job, tuple[Work, ...]] | None:
    """FBCAST: the segment completes with what it has. None if it is not open, or waits for all."""
    index = seq % config.slots
    slot = job.ring.slots[index]
    if slot.seq != seq or slot.state == SlotState.EMPTY or slot.state == SlotState.COLLECTING and slot.requires_all:
        return None
    if slot.state == SlotState.COMPLETE:
        return job, ()
    ring, work = force(job.ring, index)
    return job._replace(ring=ring), (work,)


def act(config: Config, job: Job, request: Request, source: Source) -> Verdict:
    """LEAVE, RESET, SET_H, FBCAST or HALT. A repeat of a member's last number is done already."""
    verdict = Verdict(job, Reason.DONE, request.member, request.token)
    if job.state == JobState.NONE:
        return verdict._replace(reason=Reason.JOB)
    if request.action == Action.RESET and request.member == NO_MEMBER:
        good = request.key == job.key
        return verdict._replace(job=NO_JOB) if good else verdict._replace(reason=Reason.KEY)
    entry = job.entries[request.member] if request.member < len(job.entries) else Entry()
    if request.action == Action.LEAVE and entry.state == EntryState.LEFT and request.token == entry.token:
        return verdict
    if entry.state != EntryState.LIVE:
        return verdict._replace(reason=Reason.MEMBER)
    if request.token != entry.token:
        return verdict._replace(reason=Reason.TOKEN)
    if source != entry.source:
        return verdict._replace(reason=Reason.MEMBER)
    if request.number == entry.number:
        return verdict
    if forward(request.number, entry.number) < 0:
        return verdict._replace(reason=Reason.NUMBER)
    if request.action == Action.RESET and request.epoch != job.epoch:
        return verdict._replace(reason=Reason.EPOCH)
    if request.action == Action.SET_H and not 1 <= request.settings.threshold <= job.settings.world:
        return verdict._replace(reason=Reason.THRESHOLD)
    if request.action == Action.FBCAST and not forced(config, job, request.seq):
        return verdict._replace(reason=Reason.SEQ)

    job = with_entry(job, request.member, entry._replace(number=request.number))
    works: tuple[Work, ...] = ()
    if request.action == Action.LEAVE:
        job, works = part(job, request.member)
    elif request.action == Action.FBCAST:
        job, works = forced(config, job, request.seq) or (job, ())
    elif request.action == Action.HALT:
        if job.state != JobState.FORMING:
            job = job._replace(state=JobState.HALTED if request.settings.mode else JobState.RUNNING)
    elif request.action == Action.SET_H:
        threshold = request.settings.threshold
        job = job._replace(
            settings=job.settings._replace(threshold=threshold), ring=job.ring._replace(threshold=threshold)
        )
    else:
        ring = new_ring(
            job.first_seq, config.window, config.members, job.live, job.ring.threshold, job.settings.deadline_us
        )
        job = job._replace(
            ring=ring._replace(joining=job.ring.joining),
            epoch=(job.epoch + 1) % 2**16,
            claims=no_claims(job.settings, job.first_seq),
        )
    return verdict._replace(job=job, works=works)
