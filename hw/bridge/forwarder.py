"""Where an ordinary frame goes: what a learning bridge, and a host, make of its addresses."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.bridge.host_requests import Requests
from hw.bridge.mac_table import MacTable
from hw.interface.headers import Headers
from hw.interface.verdict import Answer
from iswitch.config import Config
from iswitch.wire import Outcome

__all__ = ["Forwarder", "Route"]

RESERVED = int.from_bytes(bytes.fromhex("0180c20000"), "little")
"""01-80-C2-00-00-00 to -0F end at every bridge (IEEE 802.1D, 7.12.6)."""


class Route(data.StructLayout):
    """The outcome of an ordinary frame and the set of ports it leaves by: none, or with `answer.answers` the one it
    came from."""

    def __init__(self, config: Config):
        super().__init__({"outcome": Outcome, "ports": config.ports, "answer": Answer})


class Forwarder(wiring.Component):
    """The route of each frame whose `headers` it `takes`, were it an ordinary one; the sender of every frame is learnt.

    A frame for the switch itself is answered or dropped, one to a reserved address or to the port it came from is
    dropped, one to a known station leaves by the station's port, all others by all ports but the one they came from
    (IEEE 802.1D, 7.7). `route` holds from 2 cycles after `takes` to 1 after the next; `takes` may come every other
    cycle, once `wiped`. `busy`: see `MacTable`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "takes": In(1),
                "headers": In(Headers),
                "own_mac": In(48),
                "own_ip": In(32),
                "now_us": In(32),
                "route": Out(Route(config)),
                "wiped": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = MacTable(self.config)
        m.submodules.requests = requests = Requests()
        frame, port = self.headers.frame, self.headers.arrival.port
        destination = frame.eth_dst.as_value()
        m.d.comb += [
            table.takes.eq(self.takes),
            table.destination.eq(destination),
            table.source.eq(frame.eth_src.as_value()),
            table.ingress.eq(port),
            table.own_mac.eq(self.own_mac),
            table.now_us.eq(self.now_us),
            requests.headers.eq(self.headers),
            requests.own_mac.eq(self.own_mac),
            requests.own_ip.eq(self.own_ip),
            self.wiped.eq(table.wiped),
            self.busy.eq(table.busy),
        ]
        ingress, reserved, to_us, answer = Signal.like(port), Signal(), Signal(), Signal(Answer)
        route = self.route
        with m.If(self.takes):
            m.d.sync += [
                ingress.eq(port),
                reserved.eq((destination[:40] == RESERVED) & (destination[44:] == 0)),
                to_us.eq(destination == self.own_mac),
                answer.eq(requests.answer),
            ]
        m.d.comb += route.answer.eq(answer)
        with m.If(answer.answers):
            m.d.comb += [route.outcome.eq(Outcome.ANSWERED), route.ports.eq(1 << ingress)]
        with m.Elif(to_us):
            m.d.comb += route.outcome.eq(Outcome.UNANSWERED)
        with m.Elif(reserved):
            m.d.comb += route.outcome.eq(Outcome.RESERVED)
        with m.Elif(table.known & (table.port == ingress)):
            m.d.comb += route.outcome.eq(Outcome.FILTERED)
        with m.Elif(table.known):
            m.d.comb += [route.outcome.eq(Outcome.ORDINARY), route.ports.eq(1 << table.port)]
        with m.Else():
            m.d.comb += [route.outcome.eq(Outcome.ORDINARY), route.ports.eq(~(1 << ingress))]
        return m
