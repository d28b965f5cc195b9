"""Begins the broadcast of each chunk as soon as its own sum is done, not when all are: the same flows in fewer rounds,
if links allow."""

from collections.abc import Hashable

from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule, packed

__all__ = ["overlapped"]


def overlapped(schedule: Schedule) -> Schedule:
    """List scheduling of the schedule's own flows in their old order; the schedule itself if that does not shorten it.

    A flow waits for what it read or wrote over in the old order: values that its sender got before, and for a copy,
    what its target had sent or got. Held values are not for it (ValueError).
    """
    flows = [flow for row in schedule.rounds for flow in row]
    if any(flow.op is Op.HOLD for flow in flows):
        raise ValueError("a schedule that holds values on behalf of others cannot be overlapped")
    ready: dict[tuple[Hashable, int], list[int]] = {}  # flows that brought a node its value of a chunk
    read: dict[tuple[Hashable, int], list[int]] = {}
    jobs: list[tuple[tuple[Hashable, ...], list[int]]] = []
    index = 0
    for row in schedule.rounds:
        numbered: list[tuple[int, Flow]] = list(enumerate(row, index))
        index += len(row)
        for _, flow in numbered:
            before = list(ready.get((flow.path[0], flow.chunk), ()))
            place = (flow.path[-1], flow.chunk)
            before += read.get(place, ())  # what the target sent of its old value has left
            if flow.op is Op.COPY:
                before += ready.get(place, ())
            jobs.append((flow.path, sorted(set(before))))
        for number, flow in numbered:
            read.setdefault((flow.path[0], flow.chunk), []).append(number)
        for number, flow in numbered:
            place = (flow.path[-1], flow.chunk)
            if flow.op is Op.COPY:
                ready[place], read[place] = [number], []
            else:
                ready.setdefault(place, []).append(number)
    rounds = packed(jobs, priority=list(range(len(jobs))))
    shorter = Schedule(schedule.name, schedule.chunks, [[flows[at] for at in taken] for taken in rounds])
    return shorter if shorter.length < schedule.length else schedule
