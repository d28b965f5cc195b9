"""The checks of membership and form that a message of a member must pass. Section 3 of `docs/protocol.md`."""

from iswitch.golden.decide.job import EntryState, Job
from iswitch.golden.interface.message import Message
from iswitch.wire import Format, JobState, Outcome, Type
from iswitch.wire.formats import FORMATS, PAYLOAD_UNIT

__all__ = ["failed_check", "is_from_member", "is_payload_length"]


def is_from_member(job: Job, message: Message) -> bool:
    """Return whether a message carries the token of a member, present or former, and comes from its port and address.

    The job may be in another epoch, and the member may have been evicted.
    """
    if message.member >= len(job.entries) or not message.token:
        return False
    entry = job.entries[message.member]
    return entry.state != EntryState.FREE and (message.token, message.source) == (entry.token, entry.source)


def is_payload_length(format: int, length: int, elements: int) -> bool:
    """Return whether a contribution, or a result, of a job with so many `elements` may have a payload of so many bytes
    in this format."""
    return 0 < length <= elements * FORMATS[Format(format)].element.itemsize and not length % PAYLOAD_UNIT


def failed_check(job: Job, message: Message) -> Outcome | None:
    """Return the outcome of the first check that a message fails, or None.

    Invariant: the checks are made in the order of the protocol, so the counters show which check a message failed. A
    frame that fails a check changes nothing.
    """
    if job.state == JobState.NONE:
        return Outcome.JOB
    if message.epoch != job.epoch:
        return Outcome.EPOCH
    if message.member >= len(job.entries) or job.entries[message.member].state != EntryState.LIVE:
        return Outcome.MEMBER
    entry = job.entries[message.member]
    has_valid_length, has_valid_format = not message.payload, True
    if message.type == Type.CONTRIBUTION:
        has_valid_format = message.format in (job.settings.format, Format.INT32)
        has_valid_length = has_valid_format and is_payload_length(
            message.format, len(message.payload), job.settings.elements
        )
    checks = {
        Outcome.TOKEN: message.token == entry.token,
        Outcome.PORT: message.source.port == entry.source.port,
        Outcome.ADDRESS: message.source[1:] == entry.source[1:],
        Outcome.FORMING: job.state != JobState.FORMING and bool(job.live >> message.member & 1),
        Outcome.TYPE: message.type != Type.CLAIM or job.claims is not None,
        Outcome.HALTED: job.state != JobState.HALTED or message.type != Type.CONTRIBUTION,
        Outcome.FORMAT: has_valid_format,
        Outcome.LENGTH: has_valid_length,
    }
    return next((outcome for outcome, holds in checks.items() if not holds), None)
