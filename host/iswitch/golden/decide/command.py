"""What commands do to one job: LEAVE, RESET, SET_H, FBCAST and HALT of its members; END and RESUME.
Section 4 of `docs/protocol.md`.

Pure functions from a job and a request to a verdict. A refused command changes nothing.
"""

from iswitch.config import Config
from iswitch.golden.decide import claims as claims_of
from iswitch.golden.decide.job import Entry, EntryState, Job, Verdict, ended, with_entry, with_next_challenge
from iswitch.golden.decide.renewal import begin_anew
from iswitch.golden.decide.ring import force, leave
from iswitch.golden.decide.slot import Work
from iswitch.golden.interface.message import Request, Source
from iswitch.golden.interface.serial import ahead
from iswitch.wire import Action, JobState, Reason, SlotState

__all__ = ["carry_out", "execute", "execute_by_key", "remove_member"]


def execute(config: Config, job: Job, request: Request, source: Source, *, is_leaf: bool = False) -> Verdict:
    """Execute a command of a member.

    Invariant: a member numbers its commands, and the last one is executed once. A retransmission of it is acknowledged
    again and changes nothing, because only the acknowledgement was lost.
    """
    verdict = Verdict(job, Reason.DONE, request.member, request.token)
    if job.state == JobState.NONE:
        return verdict._replace(reason=Reason.JOB)
    entry = job.entries[request.member] if request.member < len(job.entries) else Entry()
    if request.action == Action.LEAVE and entry.state == EntryState.LEFT and request.token == entry.token:
        return verdict
    reason = objection(config, job, request, source, entry)
    if reason != Reason.DONE or request.number == entry.number:
        return verdict._replace(reason=reason)
    job = with_entry(job, request.member, entry._replace(number=request.number))
    job, works = carry_out(config, job, request, is_leaf=is_leaf)
    return verdict._replace(job=job, works=works)


def execute_by_key(job: Job, request: Request, operator_key: int) -> Verdict:
    """Execute an END or a RESUME. Its sender need not be a member, but knows the job's or the operator's key.

    `operator_key` is that of the switch; 0 if it has none.

    Invariant: it changes something only if it carries the job's present challenge, so a captured one is worthless.
    """
    verdict = Verdict(job, Reason.DONE, request.member, request.token)
    if job.state == JobState.NONE:
        return verdict._replace(reason=Reason.JOB)
    if request.challenge != job.challenge:
        return verdict._replace(reason=Reason.CHALLENGE)
    if request.key != job.key and not (operator_key and request.operator_key == operator_key):
        return verdict._replace(reason=Reason.KEY)
    if request.action == Action.END:
        return verdict._replace(job=ended(job))
    if job.state == JobState.HALTED:
        verdict = verdict._replace(job=with_next_challenge(job)._replace(state=JobState.RUNNING))
    return verdict


def objection(config: Config, job: Job, request: Request, source: Source, entry: Entry) -> Reason:
    """Return why a command must not be executed; DONE if nothing forbids it or it has been executed already."""
    if entry.state != EntryState.LIVE:
        return Reason.MEMBER
    if request.token != entry.token:
        return Reason.TOKEN
    if source != entry.source:
        return Reason.MEMBER
    if request.number == entry.number:
        return Reason.DONE
    if ahead(request.number, entry.number) < 0:
        return Reason.NUMBER
    if request.action == Action.RESET and request.epoch != job.epoch:
        return Reason.EPOCH
    if request.action == Action.SET_H and not 1 <= request.settings.threshold <= job.settings.world:
        return Reason.THRESHOLD
    if request.action == Action.FBCAST and not force_segment(config, job, request.seq):
        return Reason.SEQ
    return Reason.DONE


def carry_out(config: Config, job: Job, request: Request, *, is_leaf: bool = False) -> tuple[Job, tuple[Work, ...]]:
    """Return the job after a command that nothing forbids, and what is done to the accumulators."""
    match request.action:
        case Action.LEAVE:
            return remove_member(job, request.member)
        case Action.FBCAST:
            return force_segment(config, job, request.seq) or (job, ())
        case Action.HALT:
            state = JobState.HALTED if request.settings.mode else JobState.RUNNING
            return (job if job.state == JobState.FORMING else job._replace(state=state)), ()
        case Action.SET_H:
            threshold = request.settings.threshold
            settings, ring = job.settings._replace(threshold=threshold), job.ring._replace(threshold=threshold)
            return job._replace(settings=settings, ring=ring), ()
        case Action.RESET:
            return begin_anew(config, job, is_leaf=is_leaf), ()
    raise ValueError(f"carry_out action must be LEAVE, FBCAST, HALT, SET_H or RESET, not {request.action!r}")


def remove_member(job: Job, member: int) -> tuple[Job, tuple[Work, ...]]:
    """Remove a member, which left or was evicted. Open slots that wait for no other member complete.

    If no member is left that took part before the last boundary, the job ends and its slots vanish.
    """
    ring, works = leave(job.ring, member)
    if not ring.live:
        return ended(job), ()
    entry = job.entries[member]._replace(state=EntryState.LEFT)
    claims = claims_of.leave(job.claims, member) if job.claims else None
    return with_next_challenge(with_entry(job._replace(ring=ring, claims=claims), member, entry)), tuple(works)


def force_segment(config: Config, job: Job, seq: int) -> tuple[Job, tuple[Work, ...]] | None:
    """Complete a segment with what it has, as FBCAST asks. Return None if it is not open or requires all members."""
    index = seq % config.slots
    slot = job.ring.slots[index]
    must_wait = slot.state == SlotState.COLLECTING and slot.requires_all
    if slot.seq != seq or slot.state == SlotState.EMPTY or must_wait:
        return None
    if slot.state == SlotState.COMPLETE:
        return job, ()
    ring, work = force(job.ring, index)
    return job._replace(ring=ring), (work,)
