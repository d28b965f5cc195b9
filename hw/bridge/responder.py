"""Answers leave as the frames that asked, with other first bytes."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bridge.host_requests import ARP, ECHO, wire
from hw.interface.forwarded import Forwarding
from hw.interface.verdict import Answer
from hw.stream.packet import Packet
from iswitch.config import Config

__all__ = ["Responder"]


class Responder(wiring.Component):
    """Ordinary frames pass; one that stands beside an `answer` becomes it: its first 42 bytes are replaced where the
    answer differs.

    An ARP reply (RFC 826), or an echo reply (RFC 792): addresses exchanged, type 0, all else as it came. So an answer
    needs no buffer of its own and may be as long as any frame. `answer` is constant for a frame. Latency 1 cycle, one
    word per cycle, never stalls.
    """

    def __init__(self, config: Config):
        self.config = config
        packets = stream.Signature(Packet(config.bus_bits, meta=Forwarding(config), first=True), always_ready=True)
        super().__init__(
            {
                "i": In(packets),
                "answer": In(Answer),
                "own_mac": In(48),
                "own_ip": In(32),
                "o": Out(packets),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus_bytes = self.config.bus_bytes
        mac, ip = self.answer.mac, self.answer.ip
        arp = self.replaced(
            ARP,
            eth_dst=mac,
            eth_src=self.own_mac,
            operation=wire("0002"),
            sender_mac=self.own_mac,
            sender_ip=self.own_ip,
            target_mac=mac,
            target_ip=ip,
        )
        echo = self.replaced(
            ECHO,
            eth_dst=mac,
            eth_src=self.own_mac,
            ip_src=self.own_ip,
            ip_dst=ip,
            type=0,
            checksum=self.answer.checksum,
        )
        words = -(-ARP.itemsize // bus_bytes)
        index = Signal(range(words + 1))
        came = self.i.payload
        data = Signal(self.config.bus_bits)
        m.d.comb += data.eq(came.data)
        with m.If(self.answer.answers):
            with m.Switch(index):
                for number in range(words):
                    with m.Case(number):
                        for k, at in enumerate(range(number * bus_bytes, min((number + 1) * bus_bytes, ARP.itemsize))):
                            here = slice(8 * k, 8 * k + 8)
                            m.d.comb += data[here].eq(
                                Mux(self.answer.arp, arp.get(at, came.data[here]), echo.get(at, came.data[here]))
                            )
        m.d.comb += self.busy.eq(self.o.valid)
        m.d.sync += self.o.valid.eq(self.i.valid)
        with m.If(self.i.valid):
            m.d.sync += [
                index.eq(Mux(came.last, 0, Mux(index == words, index, index + 1))),
                self.o.payload.eq(self.i.payload),
                self.o.payload.data.eq(data),
            ]
        return m

    def replaced(self, record, **fields):
        """By its place in the frame, each byte of these fields."""
        octets = {}
        for name, value in fields.items():
            kind, at = record.fields[name][:2]
            octets |= {at + k: Value.cast(value) >> 8 * k & 0xFF for k in range(kind.itemsize)}
        return octets
