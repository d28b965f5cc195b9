"""Overlap the two phases: the broadcast of a chunk begins when its own sum is complete, not when all sums are."""

from collections.abc import Hashable, Sequence

from iswitch.plan.allreduce.model.schedule import Flow, Op, Path, Schedule, list_schedule

__all__ = ["overlap_phases"]

PASSES = 3
"""How often flows are scheduled backward from the end and forward again."""


def overlap_phases(schedule: Schedule) -> Schedule:
    """Return a schedule of the same flows in fewer rounds, or the schedule itself if that is not possible.

    Flows are list-scheduled in their old order. A flow waits for the flows that brought its sender the value, and for
    those that read or wrote the value that it overwrites. Then they are list-scheduled as late as possible, backward
    from the end, and forward again in that order, which puts flows first on which many others wait. The shortest
    schedule of all counts.

    Raises
    ------
    ValueError
        If the schedule holds values.
    """
    flows = [flow for row in schedule.rounds for flow in row]
    if any(flow.op is Op.HOLD for flow in flows):
        raise ValueError("a schedule that holds values of other servers cannot be overlapped")
    # By (node, chunk): flows that brought the value, and flows that have read it.
    written: dict[tuple[Hashable, int], list[int]] = {}
    read: dict[tuple[Hashable, int], list[int]] = {}
    jobs: list[tuple[tuple[Hashable, ...], list[int]]] = []
    index = 0
    for row in schedule.rounds:
        numbered: list[tuple[int, Flow]] = list(enumerate(row, index))
        index += len(row)
        for _, flow in numbered:
            before = list(written.get((flow.path[0], flow.chunk), ()))
            place = (flow.path[-1], flow.chunk)
            before += read.get(place, ())  # the target has sent its old value
            if flow.op is Op.COPY:
                before += written.get(place, ())
            jobs.append((flow.path, sorted(set(before))))
        for number, flow in numbered:
            read.setdefault((flow.path[0], flow.chunk), []).append(number)
        for number, flow in numbered:
            place = (flow.path[-1], flow.chunk)
            if flow.op is Op.COPY:
                written[place], read[place] = [number], []
            else:
                written.setdefault(place, []).append(number)
    rounds = _shorten(jobs, list_schedule(jobs, priority=list(range(len(jobs)))))
    shorter = Schedule(schedule.name, schedule.chunks, [[flows[at] for at in taken] for taken in rounds])
    return shorter if shorter.length < schedule.length else schedule


def _shorten(jobs: Sequence[tuple[Path, Sequence[int]]], rounds: list[list[int]]) -> list[list[int]]:
    """Return the shortest of some list schedules of jobs, each in the order of the one before, in turn backward and
    forward."""
    after: list[list[int]] = [[] for _ in jobs]
    for index, (_, before) in enumerate(jobs):
        for each in before:
            after[each].append(index)
    reversed_jobs = [(path, after[index]) for index, (path, _) in enumerate(jobs)]
    best = rounds
    for _ in range(PASSES):
        late = list_schedule(reversed_jobs, priority=_turned(rounds, len(jobs)))
        rounds = list_schedule(jobs, priority=_turned(late, len(jobs)))
        best = min(best, rounds, key=len)
    return best


def _turned(rounds: Sequence[Sequence[int]], count: int) -> list[int]:
    """Return a priority by which jobs come first that are last in these rounds."""
    priority = [0] * count
    for place, index in enumerate(index for taken in rounds for index in taken):
        priority[index] = -place
    return priority
