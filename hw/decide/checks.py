"""Whether a frame is well formed, and whether its sender is the member that it claims to be."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.rules.first_failing import first_failing
from hw.decide.rules.sender import matches_sender
from hw.interface.address import Parent
from hw.interface.headers import Headers, format_of, type_of, version_of
from hw.interface.layout import from_big_endian
from hw.interface.rows import job_row, member_row
from hw.numeric.formats import is_half, is_wide, uplink_format
from hw.stream.reduction import reaches
from iswitch.config import Config
from iswitch.wire import (
    ACK,
    ADDRESSES,
    CONTROL,
    FRAME_BYTES,
    TAIL_BYTES,
    UDP_PORT,
    UPLINK_TAIL,
    VERSION,
    Format,
    JobState,
    Outcome,
    Reason,
    Type,
)

__all__ = ["Checks", "FrameKind"]

IP_AT = ADDRESSES.fields["ip_version_ihl"][1]
UDP_AT = ADDRESSES.fields["udp_src"][1]


class FrameKind(data.Struct):
    """What a frame is: its type, and whether its job `is_leaf`, that is, has a parent here.

    `parent_reply`: an acknowledgement or a notice from the parent. `parent_result`: a result from the parent, to be
    installed. `parent_conflict`: a notice from the parent about another collective. At most one of the types is 1; a
    type for which the switch is not built is 0.
    """

    control: 1
    contribution: 1
    receipt: 1
    claim: 1
    replay_request: 1
    uplink: 1
    parent_reply: 1
    parent_result: 1
    parent_conflict: 1
    is_leaf: 1


class Checks(wiring.Component):
    """Checks a frame by the table of docs/protocol.md section 3, except the rules that need a slot.

    `kind` is combinational. `fault`, `outcome`, `payload` and `from_member` follow the inputs by 1 cycle; one frame per
    cycle, without stalls. With `fault`, `outcome` names the first check that fails. A valid control message goes on to
    membership. `payload` is the length of the elements in bytes, at four an element, whatever they have on the wire.
    `from_member`: the frame carries
    the token of a member, present or evicted, and comes from its port and address. `spoofed`: the frame's source is the
    switch itself or a group. `corrupt`, which comes 1 cycle after the rows: one of them has a bit error. No check that
    needs a row counts then.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "headers": In(Headers),
                "spoofed": In(1),
                "job": In(job_row(config)),
                "member": In(member_row(config)),
                "corrupt": In(1),
                "fault": Out(1),
                "outcome": Out(Outcome),
                "kind": Out(FrameKind),
                "payload": Out(14),
                "from_member": Out(1),
                "parent": In(Parent),
            }
        )

    def elaborate(self, platform):
        m = Module()
        frame, scan = self.headers.frame, self.headers.arrival.scan
        job, member = self.job, self.member
        type, kind = type_of(frame), self.kind
        format = format_of(frame)
        lengths, ends_well, payload, body = Signal(), Signal(), Signal.like(self.payload), Signal.like(scan.length)
        m.d.comb += [
            kind.control.eq(type == Type.CONTROL),
            kind.contribution.eq(type == Type.CONTRIBUTION),
            kind.receipt.eq(type == Type.RECEIPT),
            kind.claim.eq(type == Type.CLAIM),
            payload.eq(body),
            ends_well.eq(1),
            lengths.eq(
                (from_big_endian(frame.ip_length) == scan.length - IP_AT)
                & (from_big_endian(frame.udp_length) == scan.length - UDP_AT)
                & reaches(scan.length, FRAME_BYTES)
            ),
        ]
        m.d.sync += self.payload.eq(payload)
        job_in_range = ~reaches(frame.job, self.config.jobs)
        member_in_range = ~reaches(frame.member, self.config.members)
        m.d.comb += body.eq(scan.length - FRAME_BYTES)
        has_no_payload = kind.receipt | kind.claim
        types, above = kind.control | has_no_payload | kind.contribution | kind.replay_request, Const(0)
        half_width = self.config.half_width
        half, wide = is_half(format) if half_width else Const(0), Const(0)
        # Frames with elements: how many bytes these take at four an element, and whether they end well.
        forms = [(kind.contribution & ~half, body, Const(1))]
        if half_width:
            forms.append((kind.contribution & half, body << 1, Const(1)))
        if self.config.replay:
            m.d.comb += kind.replay_request.eq(type == Type.REQUEST)
        format_good = has_no_payload | (format == job.numeric) | (format == Format.INT32)
        sizes = [(~kind.control | (scan.length == FRAME_BYTES + CONTROL.itemsize), Outcome.LENGTH)]
        payload_good, sends_uplinks = Signal(), job.tree & member.sends_uplinks if self.config.uplinks else Const(0)
        if self.config.uplinks:
            wide = is_wide(format)
            m.d.comb += [
                kind.parent_conflict.eq((type == Type.NOTICE) & (frame.count == Reason.COLLECTIVE)),
                kind.parent_reply.eq((type == Type.ACK) | (type == Type.NOTICE) & ~kind.parent_conflict),
                kind.uplink.eq(type == Type.UPLINK),
                kind.parent_result.eq(type == Type.RESULT),
                kind.is_leaf.eq((frame.job < self.config.jobs) & self.parent.valid[0]),
            ]
            above = kind.parent_reply | kind.parent_result | kind.parent_conflict
            types = types | above | kind.uplink
            sizes += [
                ((type != Type.ACK) | (scan.length == FRAME_BYTES + ACK.itemsize), Outcome.LENGTH),
                ((type != Type.NOTICE) | (scan.length == FRAME_BYTES), Outcome.LENGTH),
            ]
            sums, results = (Signal.like(body, name=name) for name in ("sums", "results"))
            m.d.comb += [
                sums.eq(scan.length - (FRAME_BYTES + UPLINK_TAIL.itemsize)),
                results.eq(scan.length - (FRAME_BYTES + TAIL_BYTES)),
            ]
            has_sums, has_results = (
                reaches(scan.length, FRAME_BYTES + tail + 1) for tail in (UPLINK_TAIL.itemsize, TAIL_BYTES)
            )
            forms += [
                (kind.uplink & ~wide, sums, has_sums),
                (kind.uplink & wide, sums >> 1, has_sums & ~sums[0]),
                (kind.parent_result & ~half, results, has_results),
            ]
            if half_width:
                forms.append((kind.parent_result & half, results << 1, has_results))
            job_uplink = uplink_format(job.numeric, half_width=self.config.half_width)
            format_good = Mux(kind.uplink, (format == Format.INT32) | (format == job_uplink), format_good)
        for applies, elements, ends in forms:
            with m.If(applies):
                m.d.comb += [payload.eq(elements), ends_well.eq(ends)]
        # The sums of a half-width job have an even number of elements, but for integers.
        odd = payload[2] & (half | wide & is_half(job.numeric)) if half_width else Const(0)
        # The frame's kind is known late, and only selects.
        fits_job = (
            has_no_payload | Cat(applies & (elements[2:] <= job.elements) for applies, elements, _ in forms).any()
        )
        m.d.comb += payload_good.eq(
            Mux(has_no_payload, payload == 0, ends_well & (payload != 0) & (payload[:2] == 0) & ~odd)
        )
        port_good, address_good = matches_sender(self.headers, member)
        token_good = frame.token == member.token
        m.d.sync += self.from_member.eq(
            job_in_range & member_in_range & token_good & (frame.token != 0) & port_good & address_good
        )
        frame_checks = [
            (~self.spoofed, Outcome.SPOOFED),
            (version_of(frame) == VERSION, Outcome.VERSION),
            (lengths, Outcome.LENGTH),
            (scan.ip_good, Outcome.IP_CHECKSUM),
            (scan.udp_good, Outcome.UDP_CHECKSUM),
            (types, Outcome.TYPE),
            *sizes,
        ]
        row_checks = []
        ring_checks = [
            (job_in_range & (job.state != JobState.NONE), Outcome.JOB),
            (frame.epoch == job.epoch, Outcome.EPOCH),
            (member_in_range & member.live, Outcome.MEMBER),
            (token_good, Outcome.TOKEN),
            (port_good, Outcome.PORT),
            (address_good, Outcome.ADDRESS),
            ((job.state != JobState.FORMING) & job.live.bit_select(frame.member, 1), Outcome.FORMING),
            ((~kind.claim | job.segments.any()) & (~kind.uplink | sends_uplinks), Outcome.TYPE),
            (has_no_payload | (job.state != JobState.HALTED), Outcome.HALTED),
            (format_good, Outcome.FORMAT),
            (payload_good, Outcome.LENGTH),
            (fits_job, Outcome.LENGTH),
        ]
        if self.config.uplinks:
            # A sender with several ranks sends uplinks only, and an uplink names only its sender's ranks. A frame from
            # the parent must have the configured address.
            named_ranks = scan.ranks | scan.tainted
            ring_checks += [
                (
                    ~kind.uplink | ((named_ranks & ~Cat(member.ranks, Const(0, 32 - len(member.ranks)))) == 0),
                    Outcome.MEMBER,
                ),
                (~kind.contribution | ((member.ranks & (member.ranks - 1)) == 0), Outcome.TYPE),
            ]
            from_parent_address = (
                (frame.eth_src.as_value() == self.parent.mac)
                & (frame.ip_src.as_value() == self.parent.ip)
                & (from_big_endian(frame.udp_src) == UDP_PORT)
            )
            row_checks += [
                (~above | good, outcome)
                for good, outcome in (
                    (kind.is_leaf, Outcome.TYPE),
                    (job.state != JobState.NONE, Outcome.JOB),
                    (self.headers.arrival.port == self.parent.port, Outcome.PORT),
                    (from_parent_address, Outcome.ADDRESS),
                )
            ]
            row_checks += [
                (~kind.parent_result | good, outcome)
                for good, outcome in (
                    (job.state != JobState.FORMING, Outcome.FORMING),
                    (frame.token == job.up_job_token, Outcome.TOKEN),
                    (frame.epoch == job.epoch, Outcome.EPOCH),
                    (format_good, Outcome.FORMAT),
                    (payload_good, Outcome.LENGTH),
                    (fits_job, Outcome.LENGTH),
                )
            ]
            row_checks += [
                (~kind.parent_conflict | good, outcome)
                for good, outcome in (
                    ((job.state != JobState.FORMING) & (frame.token == job.up_token), Outcome.TOKEN),
                    (frame.epoch == job.epoch, Outcome.EPOCH),
                )
            ]
        row_checks += [(kind.control | kind.replay_request | above | good, outcome) for good, outcome in ring_checks]
        frame_good, row_good, about_job = Signal(len(frame_checks)), Signal(len(row_checks)), Signal()
        m.d.sync += [
            frame_good.eq(Cat(holds for holds, _ in frame_checks)),
            row_good.eq(Cat(holds for holds, _ in row_checks)),
            about_job.eq(job_in_range & ~kind.replay_request),
        ]
        frame_fault, frame_outcome = first_failing(zip(frame_good, (name for _, name in frame_checks), strict=True))
        row_fault, row_outcome = first_failing(zip(row_good, (name for _, name in row_checks), strict=True))
        corrupt = self.corrupt & about_job
        m.d.comb += [
            self.fault.eq(frame_fault | corrupt | row_fault),
            self.outcome.eq(Mux(frame_fault, frame_outcome, Mux(corrupt, Outcome.CORRUPT, row_outcome))),
        ]
        return m
