"""When a slot is complete, and which members a complete one admits."""

from amaranth.hdl import Mux, Signal

__all__ = ["admit_joining", "has_enough", "is_complete"]


def has_enough(requires_all, count, threshold, overdue):
    """Return whether the sum of `count` members suffices: at the threshold, or because the slot is overdue."""
    return ~requires_all & ((count >= threshold) | overdue)


def is_complete(expected, arrived, enough):
    """Return whether a slot is complete: all `expected` members have `arrived`, or those in the sum are enough."""
    return ~(expected & ~arrived).any() | enough


def admit_joining(m, completes, slot, now, job, tables):
    """Admit the joining members if a slot at a boundary completes. Return the set of those admitted.

    `completes`: the slot is complete. `job`: the row of its job. `now`: in this cycle the job's roster is written
    through `tables`.
    """
    after = tables.roster_next
    closes, admitted = completes & slot.boundary, Signal(len(job.live), name="admitted")
    m.d.comb += [
        admitted.eq(Mux(closes, job.joining, 0)),
        tables.roster_write.eq(closes & now),
        after.live.eq(job.live | job.joining),
        after.joining.eq(0),
        after.admitted.eq(job.joining),
        after.admitted_seq.eq(slot.seq + 1),
        tables.admitted_seq_write.eq(Mux(now, admitted, 0)),
        tables.admitted_seq_next.eq(slot.seq + 1),
    ]
    return admitted
