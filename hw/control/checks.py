"""Whether a frame is well formed, and whether its sender is who it says: the first check that fails."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.control.tables import job_row, member_row
from hw.layout import big
from hw.net.parser import Headers
from iswitch.config import Config
from iswitch.wire import ADDRESSES, CONTROL, FRAME_BYTES, VERSION, Format, JobState, Outcome, Type

__all__ = ["Checks", "same_sender"]

IP_AT = ADDRESSES.fields["ip_version_ihl"][1]
UDP_AT = ADDRESSES.fields["udp_src"][1]


def same_sender(headers, member):
    """The port (as one condition) and the addresses (as another) are those the member joined with."""
    frame = headers.frame
    return (headers.arrival.port == member.port,
            (frame.eth_src.as_value() == member.address.mac) & (frame.ip_src.as_value() == member.address.ip)
            & (frame.udp_src.as_value() == member.address.udp))


class Checks(wiring.Component):
    """The table of docs/protocol.md section 3, down to what needs a slot. Combinational.

    `fault`: `outcome` says which check failed. A sound control message has no fault and `control` set.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "headers": In(Headers), "job": In(job_row(config)), "member": In(member_row()),
            "fault": Out(1), "outcome": Out(Outcome), "control": Out(1), "receipt": Out(1), "payload": Out(14),
        })

    def elaborate(self, platform):
        m = Module()
        frame, scan = self.headers.frame, self.headers.arrival.scan
        job, member = self.job, self.member
        kind = frame.version_type[:4]
        format = frame.format_flags[:4]
        lengths = Signal()
        m.d.comb += [
            self.control.eq(kind == Type.CONTROL), self.receipt.eq(kind == Type.RECEIPT),
            self.payload.eq(scan.length - FRAME_BYTES),
            lengths.eq((big(frame.ip_length) == scan.length - IP_AT) & (big(frame.udp_length) == scan.length - UDP_AT)
                       & (scan.length >= FRAME_BYTES)),
        ]
        payload_good = Signal()
        with m.If(self.receipt):
            m.d.comb += payload_good.eq(self.payload == 0)
        with m.Else():
            m.d.comb += payload_good.eq((self.payload != 0) & (self.payload[:2] == 0)
                                        & (self.payload[2:] <= job.elements))
        port_good, address_good = same_sender(self.headers, member)
        checks = [
            (frame.version_type[4:] == VERSION, Outcome.VERSION),
            (lengths, Outcome.LENGTH),
            (scan.ip_good, Outcome.IP_CHECKSUM),
            (scan.udp_good, Outcome.UDP_CHECKSUM),
            (self.control | self.receipt | (kind == Type.CONTRIBUTION), Outcome.TYPE),
            (~self.control | (self.payload == CONTROL.itemsize), Outcome.LENGTH),
        ]
        ring_checks = [
            ((frame.job < self.config.jobs) & (job.state != JobState.NONE), Outcome.JOB),
            (frame.epoch == job.epoch, Outcome.EPOCH),
            ((frame.member < self.config.members) & member.live, Outcome.MEMBER),
            (frame.token == member.token, Outcome.TOKEN),
            (port_good, Outcome.PORT),
            (address_good, Outcome.ADDRESS),
            ((job.state != JobState.FORMING) & job.live.bit_select(frame.member, 1), Outcome.FORMING),
            (self.receipt | (job.state != JobState.HALTED), Outcome.HALTED),
            (self.receipt | (format == job.numeric) | (format == Format.INT32), Outcome.FORMAT),
            (payload_good, Outcome.LENGTH),
        ]
        checks += [(self.control | good, outcome) for good, outcome in ring_checks]
        fault, outcome = 0, Outcome.ADDED
        for good, name in reversed(checks):
            fault, outcome = ~good | fault, Mux(good, outcome, name)
        m.d.comb += [self.fault.eq(fault), self.outcome.eq(outcome)]
        return m

