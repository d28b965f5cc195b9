"""The life of one segment in sentences: contributions, retransmissions, results, requests, commands to the job."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from iswitch.capture.messages import Message
from iswitch.results import format_ranks, ranks_of
from iswitch.serial import serial_distance
from iswitch.wire import (
    ACK,
    CONTROL,
    FLAGS_SHIFT,
    Action,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Reason,
    ResultFlag,
    Type,
)

__all__ = ["Segment", "Summary", "describe_segment", "segments"]

_SENT = (Type.CONTRIBUTION, Type.UPLINK)
_COMMANDS = tuple(action for action in Action if action != Action.READ)


class Segment(NamedTuple):
    """A segment of a job. A number comes again after 2^32 segments, and after each reset with another `epoch`."""

    job: int
    epoch: int
    seq: int


class Summary(NamedTuple):
    """What a capture shows of a segment.

    Attributes
    ----------
    first_ns : int
        Time of its first message.
    repeats : int
        Contributions beyond the first one of each member, and results that the switch resent.
    is_partial : bool
        True if a result lacks a member that the slot waited for.
    has_result : bool
        True if the capture holds a result.
    """

    first_ns: int
    repeats: int
    is_partial: bool
    has_result: bool


def segments(messages: Iterable[Message]) -> dict[Segment, Summary]:
    """Return what messages show of each segment, in the order of their first messages."""
    found: dict[Segment, Summary] = {}
    senders: set[tuple[Segment, int]] = set()
    for message in messages:
        if message.type not in (*_SENT, Type.RESULT):
            continue
        segment, flags = _segment(message), _flags(message)
        before = found.get(segment) or Summary(message.time_ns, 0, False, False)
        if message.type == Type.RESULT:
            found[segment] = before._replace(
                repeats=before.repeats + bool(flags & ResultFlag.RESENT),
                is_partial=before.is_partial or bool(flags & ResultFlag.PARTIAL),
                has_result=True,
            )
        else:
            sender = segment, int(message.header["member"])
            found[segment] = before._replace(repeats=before.repeats + (sender in senders))
            senders.add(sender)
    return found


def describe_segment(messages: Sequence[Message], segment: Segment) -> list[str]:
    """Return the life of a segment, a sentence for each message about it and some that follow from all.

    Parameters
    ----------
    messages : sequence of Message
        All messages of the captures, in the order of their times.
    segment : Segment
        The segment.
    """
    own = [message for message in messages if _concerns(message, segment)]
    if not own:
        return [f"The capture has no message about segment {segment.seq} of job {segment.job}."]
    start_ns = own[0].time_ns
    lines: list[str] = []
    contributed: dict[int, int] = {}  # by member: when its first contribution came
    acknowledged: set[int] = set()
    result_ns, in_sum = None, 0
    for message in messages:
        text = None
        if _concerns(message, segment):
            text = _sentence(message, contributed)
            if message.type == Type.RESULT:
                result_ns, in_sum = result_ns or message.time_ns, int(message.header["members"])
            elif message.type in _SENT:
                contributed.setdefault(int(message.header["member"]), message.time_ns)
        elif result_ns is not None and (member := _acknowledges(message, segment)) is not None:
            if member not in acknowledged:
                acknowledged.add(member)
                text = f"Member {member} acknowledges the result."
        elif message.time_ns >= start_ns and result_ns is None:
            text = _command(message, segment.job)
        if text:
            lines.append(f"{(message.time_ns - start_ns) / 1e6:+10.3f} ms  {text}")
    return [*lines, *_conclusions(messages, segment, contributed, result_ns, in_sum)]


def _conclusions(
    messages: Sequence[Message], segment: Segment, contributed: dict[int, int], result_ns: int | None, in_sum: int
) -> list[str]:
    """Return what follows from all messages about a segment."""
    if result_ns is None:
        return [f"The capture has no result. It holds contributions of {format_ranks(sorted(contributed))}."]
    lines = [f"The sum holds {format_ranks(ranks_of(in_sum))}."]
    before = {member: ns for member, ns in contributed.items() if ns <= result_ns}
    if len(before) > 1:
        last = max(before, key=lambda member: before[member])
        wait_ms = (before[last] - min(before.values())) / 1e6
        lines.append(
            f"Member {last} contributed last, {wait_ms:.3f} ms after the first; the result came "
            f"{(result_ns - before[last]) / 1e6:.3f} ms later."
        )
    job = [m for m in messages if m.type in _SENT and int(m.header["job"]) == segment.job and m.time_ns < result_ns]
    for member in sorted({int(m.header["member"]) for m in job} - set(ranks_of(in_sum))):
        silent_s = (result_ns - max(m.time_ns for m in job if int(m.header["member"]) == member)) / 1e9
        why = "its contribution came too late, or its elements were rejected"
        if member not in contributed:
            why = "it has left, the switch evicted it, or the threshold or the deadline did not wait for it"
        lines.append(f"The sum lacks rank {member}, whose last contribution came {silent_s:.3f} s before: {why}.")
    return lines


def _sentence(message: Message, contributed: dict[int, int]) -> str:
    """Return a sentence about a message that names the segment."""
    header, flags = message.header, _flags(message)
    member = int(header["member"])
    if message.type in _SENT:
        collective = Collective.from_word(int(header["collective"]))
        names = {int(kind): kind.name for kind in CollectiveKind}
        verb = "contributes" if member not in contributed else "contributes again"
        marked = " (marked as a retransmission)" if flags & ContributionFlag.RETRANSMISSION else ""
        what = f"{names.get(collective.kind, f'kind {collective.kind}')} {collective.position}"
        return (
            f"Member {member} at {message.source} {verb}{marked}: {len(message.payload)} bytes of {what}, "
            f"digest {int(header['digest']):#06x}."
        )
    if message.type == Type.RESULT:
        marks = [flag.name.lower().replace("_", " ") for flag in ResultFlag if flags & flag and flag.name]
        return (
            f"The switch sends the result of {format_ranks(ranks_of(int(header['members'])))} to {message.target}"
            + (f" ({', '.join(marks)})." if marks else ".")
        )
    if message.type == Type.RECEIPT:
        return f"Member {member} at {message.source} requests the result again."
    reason = int(header["reason"])
    reasons = {int(each): each.name for each in Reason}
    return f"The switch refuses a frame of {message.target}: {reasons.get(reason, f'reason {reason}')}."


def _command(message: Message, job: int) -> str | None:
    """Return a sentence about a command to the job, or its answer; None for other messages."""
    record = {Type.CONTROL: CONTROL, Type.ACK: ACK}.get(message.type)
    if record is None or int(message.header["job"]) != job or len(message.payload) < record.itemsize:
        return None
    body = np.frombuffer(message.payload, record, 1)[0]
    action = next((each for each in _COMMANDS if each == int(body["action"])), None)
    if action is None:
        return None
    if message.type == Type.CONTROL:
        return f"{message.source} sends {action.name}."
    reasons = {int(each): each.name for each in Reason}
    return f"The switch answers {action.name} of {message.target}: {reasons.get(int(body['reason']), body['reason'])}."


def _concerns(message: Message, segment: Segment) -> bool:
    """Return True if a message names the segment."""
    if message.type in (*_SENT, Type.RESULT):
        return _segment(message) == segment
    if message.type == Type.RECEIPT:
        return _segment(message) == segment and bool(_flags(message) & ContributionFlag.WANT)
    return message.type == Type.NOTICE and (int(message.header["job"]), int(message.header["seq"])) == (
        segment.job,
        segment.seq,
    )


def _acknowledges(message: Message, segment: Segment) -> int | None:
    """Return the member that a message shows to have the result of a segment, and of all before it."""
    if message.type not in (Type.CONTRIBUTION, Type.RECEIPT):
        return None
    theirs = _segment(message)
    if theirs[:2] != segment[:2]:
        return None
    wants = message.type == Type.CONTRIBUTION or _flags(message) & ContributionFlag.WANT
    lowest = (theirs.seq - (int(message.header["behind"]) if wants else 0)) % 2**32
    return int(message.header["member"]) if serial_distance(lowest, segment.seq) > 0 else None


def _segment(message: Message) -> Segment:
    return Segment(*(int(message.header[name]) for name in Segment._fields))


def _flags(message: Message) -> int:
    return int(message.header["format_flags"]) >> FLAGS_SHIFT
