"""Overlap the two phases: the broadcast of a chunk begins when its own sum is complete, not when all sums are."""

from collections.abc import Hashable

from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule, list_schedule

__all__ = ["overlap_phases"]


def overlap_phases(schedule: Schedule) -> Schedule:
    """Return a schedule of the same flows in fewer rounds, or the schedule itself if that is not possible.

    Flows are list-scheduled in their old order. A flow waits for the flows that brought its sender the value, and for
    those that read or wrote the value that it overwrites.

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
    rounds = list_schedule(jobs, priority=list(range(len(jobs))))
    shorter = Schedule(schedule.name, schedule.chunks, [[flows[at] for at in taken] for taken in rounds])
    return shorter if shorter.length < schedule.length else schedule
