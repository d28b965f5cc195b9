"""The inputs of the rules: the fields of a frame that checks, ring and claims decide on."""

from amaranth.hdl import Array, Mux
from amaranth.lib import data

from hw.decide.held_frame import HeldFrame
from hw.interface.headers import contribution_of, format_of, has_flag
from hw.interface.layout import layout
from hw.numeric.formats import format_of_job, is_rejected
from iswitch.wire import FLAGS_SHIFT, RESULT_FRAME, ContributionFlag, ResultFlag

__all__ = ["connect_inputs"]


def connect_inputs(m, held: HeldFrame, parents, *, rows, checks, ring, claims):
    """Connect the held frame and its rows to checks, ring and claims.

    Combinational, except the parent of the frame's job, which is registered and so valid with the job's row.
    """
    frame, scan, request, kind = held.frame, held.headers.arrival.scan, ring.request, checks.kind
    format, asynchronous = format_of(frame), rows.job_row.segments.any()
    m.d.comb += [
        checks.headers.eq(held.headers),
        checks.job.eq(rows.job_row),
        checks.member.eq(rows.member_row),
        ring.member.eq(frame.member),
        ring.job.eq(rows.job_row),
        ring.slot.eq(rows.slot_row),
        ring.acknowledged.eq(rows.acknowledged),
        ring.heard.eq(rows.heard),
        ring.now_us.eq(held.now_us),
        ring.granted.eq(claims.granted),
        request.receipt.eq(kind.receipt),
        request.seq.eq(frame.seq),
        request.behind.eq(frame.behind),
        request.want.eq(has_flag(frame, ContributionFlag.WANT)),
        request.requires_all.eq(has_flag(frame, ContributionFlag.REQUIRES_ALL) | asynchronous),
        request.boundary.eq(has_flag(frame, ContributionFlag.BOUNDARY) & ~asynchronous),
        request.numeric.eq(format_of_job(format, rows.job_row.numeric, half_width=held.config.half_width)),
        request.length.eq(checks.payload),
        request.collective.eq(contribution_of(frame).collective),
        request.digest.eq(contribution_of(frame).digest),
        request.covered.eq(claims.covered),
        request.tainted.eq(is_rejected(format, scan.exponent, rows.job_row.limit, half_width=held.config.half_width)),
        claims.at.eq(Mux(kind.claim, frame.members, frame.seq)),
        claims.k.eq(frame.seq),
        claims.member.eq(frame.member),
        claims.job.eq(rows.job_row),
        claims.row.eq(rows.claims_row),
        claims.acknowledged.eq(rows.acknowledged),
    ]
    if held.config.uplinks:
        m.d.sync += held.parent.eq(Array(parents)[rows.job])
        m.d.comb += [
            checks.parent.eq(held.parent),
            ring.is_leaf.eq(held.kind.is_leaf),
            request.uplink.eq(kind.uplink),
            request.install.eq(kind.parent_result),
            request.contest.eq(kind.parent_conflict),
            request.ranks.eq(rows.member_row.ranks),
            request.tainted_ranks.eq(Mux(request.tainted, rows.member_row.ranks, 0)),
        ]
        with m.If(kind.uplink):
            m.d.comb += [
                request.ranks.eq(scan.ranks),
                request.tainted_ranks.eq(scan.tainted),
                request.partial.eq(scan.partial),
            ]
        with m.If(kind.parent_result):
            m.d.comb += [
                request.ranks.eq(frame.members),
                request.tainted_ranks.eq(data.View(layout(RESULT_FRAME), frame.as_value()).tainted),
                request.partial.eq((frame.format_flags >> FLAGS_SHIFT & ResultFlag.PARTIAL) != 0),
                request.collective.eq(0),
                request.digest.eq(scan.identity),
            ]
