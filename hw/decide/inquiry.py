"""What checks, ring and claims are asked about a frame."""

from amaranth.hdl import Array, Mux

from hw.decide.case import Case
from hw.numeric.formats import format_of_job, is_rejected
from iswitch.wire import FLAGS_SHIFT, ContributionFlag, ResultFlag, flag_bit

__all__ = ["inquire"]


def inquire(m, case: Case, parents):
    """All of it at once; `parents` of the jobs: that of the frame's comes with the job's row."""
    frame, scan, rows, checks, ring, claims, asked = (
        case.frame,
        case.held.arrival.scan,
        case.rows,
        case.checks,
        case.ring,
        case.claims,
        case.ring.asked,
    )
    format, asynchronous = frame.format_flags[:FLAGS_SHIFT], rows.job_row.segments.any()
    m.d.comb += [
        checks.headers.eq(case.held),
        checks.job.eq(rows.job_row),
        checks.member.eq(rows.member_row),
        ring.member.eq(frame.member),
        ring.job.eq(rows.job_row),
        ring.slot.eq(rows.slot_row),
        ring.acknowledged.eq(rows.acknowledged),
        ring.heard.eq(rows.heard),
        ring.now_us.eq(case.held_us),
        ring.granted.eq(claims.granted),
        asked.receipt.eq(checks.receipt),
        asked.seq.eq(frame.seq),
        asked.behind.eq(frame.behind),
        asked.want.eq(frame.format_flags[flag_bit(ContributionFlag.WANT)]),
        asked.requires_all.eq(frame.format_flags[flag_bit(ContributionFlag.REQUIRES_ALL)] | asynchronous),
        asked.boundary.eq(frame.format_flags[flag_bit(ContributionFlag.BOUNDARY)] & ~asynchronous),
        asked.numeric.eq(format_of_job(format)),
        asked.length.eq(checks.payload),
        asked.covered.eq(claims.covered),
        asked.tainted.eq(is_rejected(format, scan.exponent, rows.job_row.limit)),
        claims.at.eq(Mux(checks.claim, frame.members, frame.seq)),
        claims.k.eq(frame.seq),
        claims.member.eq(frame.member),
        claims.job.eq(rows.job_row),
        claims.row.eq(rows.claims_row),
        claims.acknowledged.eq(rows.acknowledged),
    ]
    if case.config.uplinks:
        m.d.sync += case.parent.eq(Array(parents)[rows.job])
        m.d.comb += [
            checks.parent.eq(case.parent),
            ring.leaf.eq(case.kind.leaf),
            ring.departs.eq(case.membership.active),
            asked.uplink.eq(checks.uplink),
            asked.install.eq(checks.install),
            asked.ranks.eq(rows.member_row.ranks),
            asked.tainted_ranks.eq(Mux(asked.tainted, rows.member_row.ranks, 0)),
        ]
        with m.If(checks.uplink):
            m.d.comb += [
                asked.ranks.eq(frame.members),
                asked.tainted_ranks.eq(scan.tainted),
                asked.partial.eq(scan.partial),
            ]
        with m.If(checks.install):
            m.d.comb += [
                asked.ranks.eq(frame.members),
                asked.tainted_ranks.eq(frame.token),
                asked.partial.eq((frame.format_flags >> FLAGS_SHIFT & ResultFlag.PARTIAL) != 0),
            ]
