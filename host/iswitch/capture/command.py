"""`iswitch explain`: what captures show of jobs, and of one segment."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from iswitch.capture.messages import Message, messages
from iswitch.capture.pcap import read_capture
from iswitch.capture.segment_story import Segment, Summary, describe_segment, segments

__all__ = ["explain", "read_messages"]

_SHOWN = 10


def read_messages(files: Sequence[Path], ports: Sequence[int] = ()) -> list[Message]:
    """Return the messages of captures, in the order of their times.

    Parameters
    ----------
    files : sequence of Path
        Captures; those of several ports of a switch, for example.
    ports : sequence of int
        UDP ports of the switch, beside those that `messages` knows.

    Raises
    ------
    CaptureError
        If a file is not a capture.
    OSError
        If a file cannot be read.
    """
    found = (message for file in files for message in messages(read_capture(file), ports))
    return sorted(found, key=lambda message: message.time_ns)


def explain(found: Sequence[Message], *, job: int | None, seq: int | None) -> Iterator[str]:
    """Yield lines about messages.

    Parameters
    ----------
    found : sequence of Message
        From `read_messages`.
    job : int or None
        Number of the job; None for all jobs of the captures.
    seq : int or None
        Segment whose life is told, in each incarnation of each job that has it. None: tell how many segments there are,
        and the life of the one that was repeated most.
    """
    shown = {segment: each for segment, each in segments(found).items() if job is None or segment.job == job}
    if not shown:
        yield "The captures hold no contribution and no result" + ("." if job is None else f" of job {job}.")
        return
    if seq is None:
        yield from _overview(shown)
        chosen = [max(shown, key=lambda segment: (not shown[segment].has_result, shown[segment].repeats))]
    else:
        chosen = [segment for segment in shown if segment.seq == seq]
        if not chosen:
            numbers = [segment.seq for segment in shown]
            yield f"The captures hold no segment {seq}. Their segments are {min(numbers)} to {max(numbers)}."
    for segment in chosen:
        yield ""
        yield f"Segment {segment.seq} of job {segment.job}, epoch {segment.epoch}:"
        yield from describe_segment(found, segment)


def _overview(shown: dict[Segment, Summary]) -> Iterator[str]:
    """Yield how many segments each job has, and which had trouble."""
    for job, epoch in dict.fromkeys((segment.job, segment.epoch) for segment in shown):
        own = {segment.seq: each for segment, each in shown.items() if (segment.job, segment.epoch) == (job, epoch)}
        without = sum(not each.has_result for each in own.values())
        yield (
            f"Job {job}, epoch {epoch}: {len(own)} segments, {without} without a result, "
            f"{sum(each.is_partial for each in own.values())} partial, "
            f"{sum(each.repeats for each in own.values())} contributions and results that were sent again."
        )
        worst = sorted((seq for seq, each in own.items() if each.repeats), key=lambda seq: -own[seq].repeats)[:_SHOWN]
        if worst:
            yield f"  Sent again most: {', '.join(f'segment {seq} ({own[seq].repeats})' for seq in worst)}."
