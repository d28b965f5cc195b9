"""Turns a request to the switch as a host into its reply, by other first bytes."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bridge.host_requests import ARP, ECHO, wire
from hw.interface.forwarded import Forwarding
from hw.interface.host_reply import HostReply
from hw.stream.packet import Packet
from iswitch.config import Config

__all__ = ["Responder"]


class Responder(wiring.Component):
    """Passes ordinary frames. If `reply` is valid, the frame is a request and leaves as its reply: the first 42 bytes
    are replaced where the reply differs.

    A reply is an ARP reply (RFC 826) or an echo reply (RFC 792) with addresses exchanged and type 0. So it needs no
    buffer, and may be as long as any frame. `reply` is constant from a frame's first word to its last. Latency 1 cycle,
    one word per cycle, never stalls.
    """

    def __init__(self, config: Config):
        self.config = config
        packets = stream.Signature(Packet(config.bus_bits, meta=Forwarding(config), first=True), always_ready=True)
        super().__init__(
            {
                "i": In(packets),
                "reply": In(HostReply),
                "own_mac": In(48),
                "own_ip": In(32),
                "o": Out(packets),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus_bytes = self.config.bus_bytes
        mac, ip = self.reply.mac, self.reply.ip
        arp = self._replaced(
            ARP,
            eth_dst=mac,
            eth_src=self.own_mac,
            operation=wire("0002"),
            sender_mac=self.own_mac,
            sender_ip=self.own_ip,
            target_mac=mac,
            target_ip=ip,
        )
        echo = self._replaced(
            ECHO, eth_dst=mac, eth_src=self.own_mac, ip_src=self.own_ip, ip_dst=ip, type=0, checksum=self.reply.checksum
        )
        replaced_words = -(-ARP.itemsize // bus_bytes)
        index = Signal(range(replaced_words + 1))
        word = self.i.payload
        data = Signal(self.config.bus_bits)
        m.d.comb += data.eq(word.data)
        with m.If(self.reply.valid):
            with m.Switch(index):
                for number in range(replaced_words):
                    with m.Case(number):
                        for k, at in enumerate(range(number * bus_bytes, min((number + 1) * bus_bytes, ARP.itemsize))):
                            here = slice(8 * k, 8 * k + 8)
                            m.d.comb += data[here].eq(
                                Mux(self.reply.is_arp, arp.get(at, word.data[here]), echo.get(at, word.data[here]))
                            )
        m.d.comb += self.busy.eq(self.o.valid)
        m.d.sync += self.o.valid.eq(self.i.valid)
        with m.If(self.i.valid):
            m.d.sync += [
                index.eq(Mux(word.last, 0, Mux(index == replaced_words, index, index + 1))),
                self.o.payload.eq(self.i.payload),
                self.o.payload.data.eq(data),
            ]
        return m

    def _replaced(self, record, **fields):
        """Return each byte of these fields, by its place in the frame."""
        octets = {}
        for name, value in fields.items():
            kind, at = record.fields[name][:2]
            octets |= {at + k: Value.cast(value) >> 8 * k & 0xFF for k in range(kind.itemsize)}
        return octets
