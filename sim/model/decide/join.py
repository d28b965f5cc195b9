"""What a Join does to one job. Section 4 of `docs/protocol.md`.

Pure functions from a job and a request to a verdict. A refused Join changes nothing.
"""

from iswitch.config import Config
from iswitch.wire import (
    DEADLINE_US_MAX,
    EVICT_US_MAX,
    NO_MEMBER,
    SEGMENTS_MAX,
    SILENCE_TICK_US,
    STALENESS_MAX,
    JobState,
    Mode,
    Reason,
)
from iswitch.wire.formats import FRACTION_MAX, FRACTION_MIN, JOB_FORMATS
from sim.model.decide.job import (
    Entry,
    EntryState,
    Job,
    Verdict,
    is_silent,
    live_ranks,
    new_claims,
    record_activity,
    with_entry,
)
from sim.model.decide.random import Offer
from sim.model.decide.ring import new_ring
from sim.model.interface.message import Request, Settings, Source

__all__ = ["assign_index", "confirm", "join"]

REASONS = {"deadline_us": Reason.DEADLINE, "evict_us": Reason.EVICT}
"""Reasons that are not named as the setting is."""

OWNED = (EntryState.PENDING, EntryState.LIVE)


def join(
    config: Config, job: Job, request: Request, source: Source, offer: Offer, now_us: int, ranks: int = 0
) -> Verdict:
    """Handle a Join.

    Invariant: the same Join, by nonce and source, may come any number of times, at any time and in any order. The first
    one gets an entry and its token, and the one that brings the token back makes its sender live; so a delayed Join
    makes no dead worker a member.

    Parameters
    ----------
    ranks : int
        The ranks that are to join here if this Join creates the job; 0 for all of its world.
    """
    is_closed = (job.tree or bool(ranks)) and job.state != JobState.FORMING
    refused = Verdict(job, Reason.DONE, request.member, request.token)
    reason = unsupported_setting(config, request.settings)
    if reason == Reason.DONE and job.state != JobState.NONE:
        reason = differing_setting(job, request)
    if reason != Reason.DONE:
        return refused._replace(reason=reason)
    for index, entry in enumerate(job.entries):
        if entry.state in OWNED and entry.nonce == request.nonce and entry.source == source:
            return rejoin(job, index, request, now_us, is_closed)
    if request.token:  # confirms an entry that no longer exists, and possibly its job; a first Join has no token
        return refused._replace(reason=Reason.TOKEN)
    if job.state == JobState.NONE:
        job = create_job(config, request, offer, ranks)
    elif is_closed:
        return refused._replace(reason=Reason.MEMBER)
    assigned = assign_index(job, request.member, request.ranks, now_us)
    if assigned is None:
        return refused._replace(reason=Reason.MEMBER)
    index, replaced = assigned
    entry = Entry(
        EntryState.PENDING,
        source,
        request.nonce,
        offer.token,
        ranks=request.ranks or 1 << index,
        sends_uplinks=bool(request.ranks),
    )
    job = job._replace(
        ring=job.ring._replace(live=job.live & ~replaced),
        entries=tuple(Entry() if replaced >> k & 1 else old for k, old in enumerate(job.entries)),
        tree=job.tree or bool(request.ranks),
    )
    job = record_activity(with_entry(job, index, entry), index, now_us)
    return Verdict(job, Reason.DONE, index, offer.token, entry_index=index, accepts_offer=True)


def rejoin(job: Job, index: int, request: Request, now_us: int, is_closed: bool) -> Verdict:
    """Handle a Join of a worker that owns an entry; with the entry's token it confirms."""
    entry = job.entries[index]
    refused = Verdict(job, Reason.DONE, request.member, request.token)
    if request.token not in (0, entry.token):
        return refused._replace(reason=Reason.TOKEN)
    if request.token and entry.state == EntryState.PENDING:
        if is_closed:
            return refused._replace(reason=Reason.MEMBER)
        job = confirm(job, index)
    return Verdict(record_activity(job, index, now_us), Reason.DONE, index, entry.token, entry_index=index)


def unsupported_setting(config: Config, settings: Settings) -> Reason:
    """Return the first setting that no job of this switch can have."""
    staleness_max = config.staleness or STALENESS_MAX
    supported = {
        Reason.WORLD: 1 <= settings.world <= config.members,
        Reason.THRESHOLD: 1 <= settings.threshold <= settings.world,
        Reason.FORMAT: settings.format in JOB_FORMATS.values(),
        Reason.FRACTION: FRACTION_MIN <= settings.fraction <= FRACTION_MAX,
        Reason.ELEMENTS: 1 <= settings.elements <= config.elements,
        Reason.MODE: settings.mode in (Mode.QUARANTINE, Mode.PROPAGATE),
        Reason.DEADLINE: settings.deadline_us < DEADLINE_US_MAX,
        Reason.EVICT: settings.evict_us == 0 or SILENCE_TICK_US <= settings.evict_us < EVICT_US_MAX,
        Reason.STALENESS: settings.staleness <= (staleness_max if settings.segments else 0),
        Reason.SEGMENTS: settings.segments < (SEGMENTS_MAX if config.staleness else 1),
    }
    return next((reason for reason, holds in supported.items() if not holds), Reason.DONE)


def differing_setting(job: Job, request: Request) -> Reason:
    """Return the first setting in which a Join differs from the job. H may differ once the job runs, after SET_H."""
    if request.key != job.key:
        return Reason.KEY
    differing = (
        name
        for name, ours, theirs in zip(Settings._fields, job.settings, request.settings)
        if ours != theirs and not (name == "threshold" and job.state != JobState.FORMING)
    )
    return next((REASONS.get(name) or Reason[name.upper()] for name in differing), Reason.DONE)


def create_job(config: Config, request: Request, offer: Offer, ranks: int) -> Job:
    """Return the job that its creator's Join creates: forming, without a live member."""
    settings = request.settings
    return Job(
        state=JobState.FORMING,
        epoch=offer.epoch,
        key=request.key,
        settings=settings,
        first_seq=offer.first_seq,
        ring=new_ring(offer.first_seq, config.window, config.members, 0, settings.threshold, settings.deadline_us),
        entries=(Entry(),) * settings.world,
        last_heard=(0,) * settings.world,
        claims=new_claims(settings, offer.first_seq),
        ranks=ranks or (1 << settings.world) - 1,
        token=request.job_token,
    )


def assign_index(job: Job, wanted: int, ranks: int, now_us: int) -> tuple[int, int] | None:
    """Return the index that a new worker gets and the entries that it replaces, or None.

    Invariant: an index is the lowest of the worker's ranks, so all indices are ranks that belong here, and a worker
    that requests its rank finds it free. A rank belongs to one member. A pending entry yields, because a worker that
    died before it confirmed must not keep the job from forming. So does a silent one while the job forms; in a running
    job silent members are evicted when others wait for them.
    """
    owned = {k: entry for k, entry in enumerate(job.entries) if entry.state in OWNED}
    yielding = [
        k
        for k, entry in owned.items()
        if entry.state == EntryState.PENDING or job.state == JobState.FORMING and is_silent(job, k, now_us)
    ]
    wanted = lowest_rank(ranks) if ranks else wanted
    if wanted == NO_MEMBER:
        free = [
            k
            for k in range(len(job.entries))
            if job.ranks >> k & 1 and not any(entry.ranks >> k & 1 for entry in owned.values())
        ]
        return next(((k, 1 << k) for k in free + yielding), None)
    ranks = ranks or 1 << wanted
    clashing = [k for k, entry in owned.items() if entry.ranks & ranks]
    if wanted >= len(job.entries) or ranks & ~job.ranks or not set(clashing) <= set(yielding):
        return None
    return wanted, sum(1 << k for k in clashing)


def lowest_rank(ranks: int) -> int:
    return (ranks & -ranks).bit_length() - 1


def confirm(job: Job, index: int) -> Job:
    """Make a member live, because it knows its token. In a running job it waits for the next boundary."""
    bit = 1 << index
    job = with_entry(job, index, job.entries[index]._replace(state=EntryState.LIVE))
    if job.state != JobState.FORMING:
        return job._replace(ring=job.ring._replace(joining=job.ring.joining | bit))
    job = job._replace(ring=job.ring._replace(live=job.ring.live | bit))
    return job._replace(state=JobState.RUNNING if live_ranks(job) == job.ranks else job.state)
