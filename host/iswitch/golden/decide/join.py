"""What a Join does to one job. Section 4 of `docs/protocol.md`.

Pure functions from a job and a request to a verdict. A refused Join changes nothing.
"""

from collections.abc import Sequence

from iswitch.config import Config
from iswitch.golden.decide.command import remove_member
from iswitch.golden.decide.job import (
    Entry,
    EntryState,
    Job,
    Verdict,
    ended,
    is_abandoned,
    is_stale,
    live_ranks,
    new_claims,
    record_activity,
    with_entry,
    with_next_challenge,
)
from iswitch.golden.decide.random import Offer
from iswitch.golden.decide.renewal import begin_anew
from iswitch.golden.decide.ring import new_ring
from iswitch.golden.interface.message import Request, Settings, Source
from iswitch.wire import (
    DEADLINE_US_MAX,
    EVICT_US_MAX,
    NO_MEMBER,
    SEGMENTS_MAX,
    SILENCE_TICK_US,
    STALENESS_MAX,
    Format,
    JobState,
    Mode,
    Reason,
)
from iswitch.wire.formats import FORMATS, supported_formats

__all__ = ["assign_index", "join"]

REASONS = {"deadline_us": Reason.DEADLINE, "evict_us": Reason.EVICT}
"""Reasons that are not named as the setting is."""


def join(
    config: Config, job: Job, request: Request, source: Source, offer: Offer, now_us: int, ranks: int = 0
) -> Verdict:
    """Handle a Join.

    Invariant: a Join of a member, which its nonce and its token identify, changes nothing, and may come any number of
    times. Every other Join changes something only if it carries the job's present challenge: so a captured or delayed
    one is worthless after the job has ended, or the member has left, moved or been replaced.

    In a tree no boundary is the same moment at all switches. So a new member of a tree that runs takes part from the
    next epoch on, to which all members come with empty slots.

    If all live members are silent, a Join of another program ends the job. One of the same program takes the place of
    one member at most, because the switch may not have heard the members although they live.

    Parameters
    ----------
    ranks : int
        The ranks that are to join here if this Join creates the job; 0 for all of its world.
    """
    refused = Verdict(job, Reason.DONE, request.member, request.token)
    reason = unsupported_setting(config, request.settings)
    if reason != Reason.DONE:
        return refused._replace(reason=reason)
    own = own_index(job, request)
    if own is not None:
        return rejoin(job, own, request, source, now_us)
    if request.challenge != job.challenge:
        return refused._replace(reason=Reason.CHALLENGE)
    if job.state == JobState.NONE:
        verdict = enter(create_job(config, request, offer, ranks), request, source, now_us)
        return verdict if verdict.reason == Reason.DONE else refused._replace(reason=verdict.reason)
    reason, in_tree = differing_setting(job, request), job.tree or bool(ranks or request.ranks)
    verdict = (
        enter(job, request, source, now_us, in_tree=in_tree)
        if reason == Reason.DONE
        else refused._replace(reason=reason)
    )
    if verdict.reason == Reason.DONE and in_tree and job.state != JobState.FORMING:
        verdict = verdict._replace(job=begin_anew(config, verdict.job, is_leaf=bool(ranks)))
    if not is_abandoned(job, now_us):
        return verdict
    runs = job.state != JobState.FORMING
    if reason != Reason.DONE or in_tree and (runs or verdict.reason != Reason.DONE):
        return refused._replace(job=ended(job), reason=Reason.CHALLENGE)
    return remove_silent_member(job, request, now_us) if runs and verdict.reason != Reason.DONE else verdict


def own_index(job: Job, request: Request) -> int | None:
    """Return the index of the member that sends this Join, or None if it is not a member."""
    return next(
        (
            index
            for index, entry in enumerate(job.entries)
            if (entry.state, entry.nonce, entry.token) == (EntryState.LIVE, request.nonce, request.token)
            and is_same_kind(entry, request)
        ),
        None,
    )


def is_same_kind(entry: Entry, request: Request) -> bool:
    """Return whether a Join and a member are both of switches, or both of workers.

    A leaf has nonce and token of one of its workers, so they do not tell the two apart.
    """
    return entry.sends_uplinks == bool(request.ranks)


def rejoin(job: Job, index: int, request: Request, source: Source, now_us: int) -> Verdict:
    """Handle a Join of a member: from another port or address, it binds the member to that."""
    refused = Verdict(job, Reason.DONE, request.member, request.token)
    reason = differing_setting(job, request)
    if reason != Reason.DONE:
        return refused._replace(reason=reason)
    if source != job.entries[index].source:
        if request.challenge != job.challenge:
            return refused._replace(reason=Reason.CHALLENGE)
        job = with_next_challenge(with_entry(job, index, job.entries[index]._replace(source=source)))
    return Verdict(record_activity(job, index, now_us), Reason.DONE, index, request.token, entry_index=index)


def remove_silent_member(job: Job, request: Request, now_us: int) -> Verdict:
    """Remove the member whose place a Join can have, if it is silent. The next Join gets the place."""
    silent = [k for k, entry in enumerate(job.entries) if entry.state == EntryState.LIVE and is_stale(job, k, now_us)]
    index = next((k for k in silent if request.member in (NO_MEMBER, k)), None)
    if index is None:
        return Verdict(job, Reason.MEMBER, request.member, request.token)
    job, works = remove_member(job, index)
    return Verdict(job, Reason.CHALLENGE, index, request.token, works=works)


def enter(job: Job, request: Request, source: Source, now_us: int, *, in_tree: bool = False) -> Verdict:
    """Make the sender a member: live if the job forms or is a tree, otherwise waiting for the next boundary."""
    yielding = [k for k in range(len(job.entries)) if yields(job, k, request, source, now_us, in_tree=in_tree)]
    renews = in_tree and job.state != JobState.FORMING
    assigned = assign_index(job, request.member, request.ranks, yielding)
    if assigned is None:
        return Verdict(job, Reason.MEMBER, request.member, request.token)
    index, replaced = assigned
    bit = 1 << index
    entry = Entry(
        EntryState.LIVE,
        source,
        request.nonce,
        request.token,
        ranks=request.ranks or bit,
        sends_uplinks=bool(request.ranks),
    )
    entries = tuple(Entry() if replaced >> k & 1 else old for k, old in enumerate(job.entries))
    if not renews and any(replaced >> k & 1 for k, old in enumerate(job.entries) if old.state == EntryState.LIVE):
        job = with_next_challenge(job)
    job = job._replace(entries=entries, tree=job.tree or bool(request.ranks))
    job = record_activity(with_entry(job, index, entry), index, now_us)
    if job.state != JobState.FORMING and not renews:
        return Verdict(
            job._replace(ring=job.ring._replace(joining=job.ring.joining | bit)),
            Reason.DONE,
            index,
            request.token,
            entry_index=index,
        )
    job = job._replace(ring=job.ring._replace(live=job.live & ~replaced | bit))
    state = JobState.RUNNING if live_ranks(job) == job.ranks and not renews else job.state
    return Verdict(job._replace(state=state), Reason.DONE, index, request.token, entry_index=index)


def unsupported_setting(config: Config, settings: Settings) -> Reason:
    """Return the first setting that no job of this switch can have."""
    staleness_max = config.staleness or STALENESS_MAX
    has_format = settings.format in supported_formats(half_width=config.half_width)
    supported = {
        Reason.WORLD: 1 <= settings.world <= config.members,
        Reason.THRESHOLD: 1 <= settings.threshold <= settings.world,
        Reason.FORMAT: has_format,
        Reason.FRACTION: not has_format or settings.fraction in FORMATS[Format(settings.format)].fractions,
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
    """Return the job that a Join creates: forming, without a member."""
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
        challenge=request.challenge,
    )


def yields(job: Job, index: int, request: Request, source: Source, now_us: int, *, in_tree: bool) -> bool:
    """Return whether a member yields its entry to a Join.

    While the job forms, and in a tree, the entry of a silent member yields, because a worker that died must not keep
    the others waiting. In another running job silent members are evicted when others wait for them. In a tree, a member
    also yields to itself after a restart: the Join is of the same kind, and has its token or comes from its port and
    addresses.
    """
    entry = job.entries[index]
    if entry.state != EntryState.LIVE or not (in_tree or job.state == JobState.FORMING):
        return False
    has_restarted = is_same_kind(entry, request) and (entry.token == request.token or entry.source == source)
    return is_stale(job, index, now_us) or in_tree and has_restarted


def assign_index(job: Job, wanted: int, ranks: int, yielding: Sequence[int]) -> tuple[int, int] | None:
    """Return the index that a new worker gets and the entries that it replaces, or None.

    Invariant: an index is the lowest of the worker's ranks, so all indices are ranks that belong here, and a worker
    that requests its rank finds it free. A rank belongs to one member. `yielding` are the indices that may be replaced.
    """
    owned = {k: entry for k, entry in enumerate(job.entries) if entry.state == EntryState.LIVE}
    wanted = lowest_rank(ranks) if ranks else wanted
    if wanted == NO_MEMBER:
        free = [
            k
            for k in range(len(job.entries))
            if job.ranks >> k & 1 and not any(entry.ranks >> k & 1 for entry in owned.values())
        ]
        return next(((k, 1 << k) for k in [*yielding, *free]), None)
    ranks = ranks or 1 << wanted
    clashing = [k for k, entry in owned.items() if entry.ranks & ranks]
    if wanted >= len(job.entries) or ranks & ~job.ranks or not set(clashing) <= set(yielding):
        return None
    return wanted, sum(1 << k for k in clashing)


def lowest_rank(ranks: int) -> int:
    return (ranks & -ranks).bit_length() - 1
