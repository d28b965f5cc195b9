"""A job begins anew: by a Reset, and in a tree that runs also by a Join."""

from amaranth.hdl import Cat, Mux

from iswitch.wire import JobState, Reason

__all__ = ["NONCE_COUNT_BITS", "begin_anew"]

NONCE_COUNT_BITS = 16
"""The lowest bits of a leaf's nonce, which count how often the leaf has begun anew."""


def begin_anew(config, tables, *, is_leaf):
    """Return statements for the status of a job that begins anew, except for its next challenge.

    The root's job is in its next epoch. The job of a leaf forms until its parent has begun the next epoch, and if it
    ran, the leaf becomes another member to its parent. The ring has to be emptied afterwards. Source: `begin_anew` of
    `host/iswitch/golden/decide/renewal.py`, `take_next_nonce` of `host/iswitch/golden/tree_member.py`.
    """
    job, status = tables.job_row, tables.status_next
    if not config.uplinks:
        return [status.epoch.eq(job.epoch + 1), status.renewed.eq(1)]
    joins_again = is_leaf & (job.state == JobState.RUNNING)
    count = (job.up_nonce[:NONCE_COUNT_BITS] + joins_again)[:NONCE_COUNT_BITS]
    return [
        status.epoch.eq(job.epoch + ~is_leaf),
        status.renewed.eq(job.renewed | ~is_leaf),
        status.state.eq(Mux(is_leaf, JobState.FORMING, job.state)),
        status.up_nonce.eq(Cat(count, job.up_nonce[NONCE_COUNT_BITS:])),
        status.up_reason.eq(Mux(joins_again, Reason.DONE, job.up_reason)),
    ]
