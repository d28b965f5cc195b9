"""The ports to which an ordinary frame goes, as a learning bridge and a host decide by its addresses."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.bridge.flood_limit import FloodLimit
from hw.bridge.host_requests import HostRequests
from hw.bridge.mac_table import MacTable
from hw.bridge.spoofing import SpoofDetector
from hw.interface.headers import Headers
from hw.interface.host_reply import HostReply
from iswitch.config import Config
from iswitch.wire import Outcome

__all__ = ["Forwarder", "Route"]

RESERVED = int.from_bytes(bytes.fromhex("0180c20000"), "little")
"""The first five bytes of sixteen addresses. The first address is the spanning trees' (BPDUs). No bridge forwards
frames to the others (IEEE 802.1D, 7.12.6)."""


class Route(data.StructLayout):
    """The outcome of an ordinary frame and the set of ports that send it. If `host_reply` is valid, the reply leaves by
    the port that received the request."""

    def __init__(self, config: Config):
        super().__init__({"outcome": Outcome, "ports": config.ports, "host_reply": HostReply})


class Forwarder(wiring.Component):
    """Computes the `Route` of each frame, should it be an ordinary one, and learns the sender of every frame.

    The golden model is `host/iswitch/golden/bridge/forwarder.py`.

    A frame whose headers have a bit error is dropped, and its sender is not learnt. A frame whose source is the switch
    itself is dropped. A frame to the switch is answered or dropped. A frame to a
    reserved address, or to a station behind the port that received it, is dropped. A frame to a known station leaves by
    that station's port, all others by all ports whose link is up, but the one that received them (IEEE 802.1D, 7.7):
    they are flooded. A frame that its port may not flood now is dropped (`FloodLimit`). The switch has no spanning
    tree, so BPDUs pass through it like other groups' frames, and its neighbours' spanning trees see a loop.

    `route` is valid from 2 cycles after `lookup`, until 1 cycle after the next. `spoofed` (the source is the switch)
    and `group_source` (see `SpoofDetector`) are valid from 1 cycle after `lookup`, up to the next. `lookup` may be 1 in
    every other cycle, once `wiped` is 1. `headers` is read with `lookup`. `takes` is 1 for one cycle if the frame is an
    ordinary one, at the latest in the cycle of the next `lookup`. `link`, `busy`: see `MacTable`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "lookup": In(1),
                "headers": In(Headers),
                "own_mac": In(48),
                "own_ip": In(32),
                "now_us": In(32),
                "link": In(config.ports, init=(1 << config.ports) - 1),
                "takes": In(1),
                "route": Out(Route(config)),
                "spoofed": Out(1),
                "group_source": Out(1),
                "wiped": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = MacTable(self.config)
        m.submodules.flood_limit = flood_limit = FloodLimit(self.config)
        m.submodules.requests = requests = HostRequests()
        m.submodules.spoofing = spoofing = SpoofDetector()
        frame, port = self.headers.frame, self.headers.arrival.port
        destination = frame.eth_dst.as_value()
        m.d.comb += [
            table.lookup.eq(self.lookup),
            table.destination.eq(destination),
            table.source.eq(frame.eth_src.as_value()),
            table.ingress.eq(port),
            table.learn.eq(~self.headers.corrupt),
            table.own_mac.eq(self.own_mac),
            table.now_us.eq(self.now_us),
            table.link.eq(self.link),
            flood_limit.now_us.eq(self.now_us),
            requests.headers.eq(self.headers),
            requests.own_mac.eq(self.own_mac),
            requests.own_ip.eq(self.own_ip),
            spoofing.frame.eq(frame),
            spoofing.own_mac.eq(self.own_mac),
            spoofing.own_ip.eq(self.own_ip),
            self.wiped.eq(table.wiped),
            self.busy.eq(table.busy),
        ]
        ingress, corrupt, reserved, to_us = Signal.like(port), Signal(), Signal(), Signal()
        reply = Signal(HostReply)
        bpdu, may_flood, floods, others = Signal(), Signal(), Signal(), Signal(self.config.ports)
        is_reserved = (destination[:40] == RESERVED) & (destination[44:] == 0)
        route = self.route
        # An earlier frame's token is taken at the latest with this frame's lookup, and this frame is judged in the next
        # cycle. Its route does not change while it waits.
        judged = Signal()
        m.d.comb += [flood_limit.port.eq(ingress), flood_limit.takes.eq(self.takes & floods)]
        m.d.sync += judged.eq(self.lookup)
        with m.If(judged):
            m.d.sync += [
                may_flood.eq(Mux(bpdu, flood_limit.admits_bpdu, flood_limit.admits)),
                others.eq(table.up & ~(1 << ingress)),
            ]
        with m.If(self.lookup):
            m.d.sync += [
                ingress.eq(port),
                corrupt.eq(self.headers.corrupt),
                bpdu.eq(is_reserved & (destination[40:44] == 0)),
                reserved.eq(is_reserved & (destination[40:44] != 0)),
                to_us.eq(destination == self.own_mac),
                reply.eq(requests.reply),
                self.spoofed.eq(spoofing.is_own),
                self.group_source.eq(spoofing.is_group),
            ]
        m.d.comb += route.host_reply.eq(reply)
        with m.If(corrupt):
            m.d.comb += [route.outcome.eq(Outcome.CORRUPT), route.host_reply.valid.eq(0)]
        with m.Elif(self.spoofed):
            m.d.comb += [route.outcome.eq(Outcome.SPOOFED), route.host_reply.valid.eq(0)]
        with m.Elif(reply.valid):
            m.d.comb += [route.outcome.eq(Outcome.ANSWERED), route.ports.eq(1 << ingress)]
        with m.Elif(to_us):
            m.d.comb += route.outcome.eq(Outcome.UNANSWERED)
        with m.Elif(reserved):
            m.d.comb += route.outcome.eq(Outcome.RESERVED)
        with m.Elif(table.known & (table.port == ingress)):
            m.d.comb += route.outcome.eq(Outcome.FILTERED)
        with m.Elif(table.known):
            m.d.comb += [route.outcome.eq(Outcome.ORDINARY), route.ports.eq(1 << table.port)]
        with m.Elif(may_flood):
            m.d.comb += [route.outcome.eq(Outcome.ORDINARY), route.ports.eq(others), floods.eq(1)]
        with m.Else():
            m.d.comb += route.outcome.eq(Outcome.FLOOD_LIMITED)
        return m
