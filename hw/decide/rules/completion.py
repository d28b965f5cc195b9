"""When a slot is complete, and which members join when it is."""

from amaranth.hdl import Mux, Signal

__all__ = ["admission", "has_enough", "is_complete"]


def has_enough(requires_all, count, threshold, overdue):
    """Enough workers are in the sum, or it has been open for too long, unless it waits for all."""
    return ~requires_all & ((count >= threshold) | overdue)


def is_complete(slot, enough):
    """Nobody is left to wait for, or it has enough."""
    return ~(slot.expected & ~slot.arrived).any() | enough


def admission(m, completes, slot, now, tables):
    """At a boundary those who wait to join are let in: if `completes`, the slot as it will be is complete. Returns
    their set, and `now` writes it to the job's row in `tables`."""
    job, after = tables.job_row, tables.job_next
    closes, new = completes & slot.boundary, Signal(len(job.live), name="admitted")
    m.d.comb += new.eq(Mux(closes, job.joining, 0))
    with m.If(closes & now):
        m.d.comb += [
            tables.job_write.eq(1),
            after.live.eq(job.live | new),
            after.joining.eq(0),
            after.admitted.eq(new),
            after.admitted_seq.eq(slot.seq + 1),
            tables.admitted_seq_write.eq(new),
            tables.admitted_seq_next.eq(slot.seq + 1),
        ]
    return new
