"""Composes the frames of replies: acknowledgements, notices, and a leaf's requests and receipts to its parent."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.interface.reply import Reply, ReplyRoute
from hw.stream.checksum import fold_carries, sums_of_parts
from hw.stream.packet import Packet, require_bus
from hw.stream.reduction import tree_sum
from iswitch.wire import ACK, ADDRESSES, FRAME_BYTES, HEADER

__all__ = ["ReplyComposer"]


class ReplyComposer(wiring.Component):
    """Turns a `Reply` into the words of a frame whose UDP payload sums to zero. `Stamp` writes the addresses.

    The checksum complement is in the header, before the body. So the words are read twice, once to be summed and once
    to be sent. The first word appears 5 cycles after the reply was taken, and one more for each word that holds more
    than addresses. One reply at a time. `o` may stall.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("ReplyComposer", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "replies": In(stream.Signature(Reply)),
                "o": Out(stream.Signature(Packet(bus_bits, meta=ReplyRoute))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus_bytes = self.bus_bits // 8
        header_words = FRAME_BYTES // bus_bytes
        image = Signal(data.StructLayout({"header": layout(HEADER), "body": layout(ACK)}), reset_less=True)
        octets = Cat(Const(0, 8 * ADDRESSES.itemsize), image)
        words = Array(octets[first : first + self.bus_bits] for first in range(0, len(octets), self.bus_bits))
        begin = ADDRESSES.itemsize // bus_bytes
        reply, payload = self.replies.payload, self.o.payload
        receipt = Signal()
        acknowledges, at, word = Signal(), Signal(range(len(words) + 1)), Signal(self.bus_bits)
        total = Signal(22)
        parts = [Signal(20, name=f"part_{k}") for k in range(len(sums_of_parts(word)))]
        ends = at == Mux(acknowledges, len(words), header_words)
        m.d.comb += [
            payload.data.eq(word),
            payload.count.eq(bus_bytes),
            payload.last.eq(ends),
            payload.meta.length.eq(Mux(acknowledges, 2 * FRAME_BYTES, FRAME_BYTES)),
        ]
        port, address = Signal.like(reply.port), Signal(Address, reset_less=True)
        m.d.comb += [payload.meta.port.eq(port), payload.meta.address.eq(address)]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                # The registers load whether there is a reply or not: that is known late.
                m.d.comb += self.replies.ready.eq(1)
                m.d.sync += [
                    image.header.eq(reply.header),
                    image.header.behind.eq(Mux(reply.receipt, reply.header.behind, 0)),
                    receipt.eq(reply.receipt),
                    image.body.eq(reply.body),
                    acknowledges.eq(reply.acknowledges),
                    port.eq(reply.port),
                    address.eq(reply.address),
                    at.eq(begin),
                    *(part.eq(0) for part in parts),
                    total.eq(0),
                    word.eq(0),
                ]
                with m.If(self.replies.valid):
                    m.next = "SUM_WORDS"
            with m.State("SUM_WORDS"):
                m.d.sync += [
                    word.eq(words[at]),
                    at.eq(at + 1),
                    *(part.eq(one) for part, one in zip(parts, sums_of_parts(word), strict=True)),
                    total.eq(total + tree_sum(parts)),
                ]
                with m.If(ends):
                    m.next = "SUM_LAST"
            with m.State("SUM_LAST"):
                m.d.sync += total.eq(total + tree_sum(parts))
                m.next = "WRITE_COMPLEMENT"
            with m.State("WRITE_COMPLEMENT"):
                complement = ~fold_carries(m, total)
                with m.If(receipt):
                    m.d.sync += image.header.members.eq(complement)
                with m.Else():
                    m.d.sync += image.header.behind.eq(complement)
                m.next = "REWIND"
            with m.State("REWIND"):
                m.d.sync += [word.eq(words[0]), at.eq(1)]
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [word.eq(words[at]), at.eq(at + 1)]
                    with m.If(ends):
                        m.next = "IDLE"
        return m
