"""Composes acknowledgements and notices, and what a leaf says to its parent beside its sums."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.control.tables import Address
from hw.frame import Word, require_bus
from hw.layout import layout
from hw.queue import LENGTH_BITS, sum_halves
from iswitch.wire import ACK, ADDRESSES, FRAME_BYTES, HEADER

__all__ = ["Addressed", "Reply", "ReplyComposer"]


class Reply(data.Struct):
    """One reply: our header, with a body if it `acknowledges`, or asks a parent. `receipt`: to a parent, with the complement in `members`
    instead of `behind`."""

    port: 4
    address: Address
    acknowledges: 1
    receipt: 1
    header: layout(HEADER)
    body: layout(ACK)


class Addressed(data.StructLayout):
    """A word of a reply, with where the frame goes; `length` is the frame's. Constant for the frame but for the word."""

    def __init__(self, bus_bits: int):
        super().__init__({"word": Word(bus_bits), "port": 4, "address": Address, "length": LENGTH_BITS})


class ReplyComposer(wiring.Component):
    """Turns a Reply into the words of a frame whose UDP payload sums to zero; addresses are stamped at the port.

    The complement stands before the body, so the words go round twice: once to be added up, once to be sent. Latency is as many
    cycles as an acknowledgement has words, plus 3; one reply at a time; `o` may stall.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("ReplyComposer", bus_bits)
        self.bus_bits = bus_bits
        super().__init__({
            "replies": In(stream.Signature(Reply)), "o": Out(stream.Signature(Addressed(bus_bits))), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bus_bytes = self.bus_bits // 8
        header_words = FRAME_BYTES // bus_bytes
        image = Signal(data.StructLayout({"addresses": 8 * ADDRESSES.itemsize, "header": layout(HEADER), "body": layout(ACK)}), reset_less=True)
        turned = Cat(image.as_value()[self.bus_bits:], image.as_value()[:self.bus_bits])
        asked, payload = self.replies.payload, self.o.payload
        receipt, part = Signal(), Signal(32)
        acknowledges, sent, total, folded = Signal(), Signal(range(2 * header_words)), Signal(32), Signal(17)
        whole = sent == 2 * header_words - 1
        last = Mux(acknowledges, whole, sent == header_words - 1)
        m.d.comb += [
            folded.eq(total[:16] + total[16:]),
            payload.word.data.eq(image.as_value()[:self.bus_bits]), payload.word.count.eq(bus_bytes), payload.word.last.eq(last),
            payload.length.eq(Mux(acknowledges, 2 * FRAME_BYTES, FRAME_BYTES)),
        ]
        port, address = Signal.like(asked.port), Signal(Address, reset_less=True)
        m.d.comb += [payload.port.eq(port), payload.address.eq(address)]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += self.replies.ready.eq(1)
                with m.If(self.replies.valid):
                    m.d.sync += [
                        image.addresses.eq(0), image.header.eq(asked.header), image.header.behind.eq(Mux(asked.receipt, asked.header.behind, 0)),
                        receipt.eq(asked.receipt),
                        image.body.eq(Mux(asked.acknowledges, asked.body.as_value(), 0)), acknowledges.eq(asked.acknowledges),
                        port.eq(asked.port), address.eq(asked.address), sent.eq(0), total.eq(0), part.eq(0),
                    ]
                    m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += [image.eq(turned), part.eq(sum_halves(image.as_value(), 0, bus_bytes)), total.eq(total + part),
                             sent.eq(Mux(whole, 0, sent + 1))]
                with m.If(whole):
                    m.next = "LAST"
            with m.State("LAST"):
                m.d.sync += total.eq(total + part)
                m.next = "FOLD"
            with m.State("FOLD"):
                complement = ~(folded[:16] + folded[16:])[:16]
                with m.If(receipt):
                    m.d.sync += image.header.members.eq(complement)
                with m.Else():
                    m.d.sync += image.header.behind.eq(complement)
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [image.eq(turned), sent.eq(sent + 1)]
                    with m.If(last):
                        m.next = "IDLE"
        return m
