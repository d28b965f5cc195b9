"""Composes acknowledgements and notices."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.control.tables import Address
from hw.frame import Word, require_bus
from hw.layout import layout
from hw.queue import LENGTH_BITS, sum_halves
from iswitch.wire import ACK, ADDRESSES, FRAME_BYTES, HEADER

__all__ = ["Addressed", "Reply", "ReplyComposer"]


class Reply(data.Struct):
    """One reply: our header, with a body if it is an acknowledgement."""

    port: 4
    address: Address
    acknowledges: 1
    header: layout(HEADER)
    body: layout(ACK)


class Addressed(data.StructLayout):
    """A word of a reply, with where the frame goes; `length` is the frame's. Constant for the frame but for the word."""

    def __init__(self, bus_bits: int):
        super().__init__({"word": Word(bus_bits), "port": 4, "address": Address, "length": LENGTH_BITS})


class ReplyComposer(wiring.Component):
    """Turns a Reply into the words of a frame whose UDP payload sums to zero; addresses are stamped at the port.

    The complement stands before the body, so the words are gone through twice: once to add, once to send. Latency is as many
    cycles as the frame has words, plus 2; one reply at a time; `o` may stall.
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
        reply = Signal(Reply)
        complement, sent = Signal(16), Signal(range(2 * header_words))
        header = Signal(layout(HEADER))
        m.d.comb += [header.eq(reply.header), header.behind.eq(complement)]
        image = Cat(Const(0, 8 * ADDRESSES.itemsize), header, reply.body)

        word = Signal(self.bus_bits)
        m.d.comb += word.eq(image.word_select(sent, self.bus_bits))
        last = Mux(reply.acknowledges, sent == 2 * header_words - 1, sent == header_words - 1)
        total = Signal(32)
        folded = Signal(17)
        m.d.comb += folded.eq(total[:16] + total[16:])
        payload = self.o.payload
        m.d.comb += [
            payload.word.data.eq(word), payload.word.count.eq(bus_bytes), payload.word.last.eq(last),
            payload.port.eq(reply.port), payload.address.eq(reply.address),
            payload.length.eq(Mux(reply.acknowledges, 2 * FRAME_BYTES, FRAME_BYTES)),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += self.replies.ready.eq(1)
                m.d.sync += [reply.eq(self.replies.payload), sent.eq(0), total.eq(0), complement.eq(0)]
                with m.If(self.replies.valid):
                    m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += [total.eq(total + sum_halves(word, 0, bus_bytes)), sent.eq(Mux(last, 0, sent + 1))]
                with m.If(last):
                    m.next = "FOLD"
            with m.State("FOLD"):
                carried = (folded[:16] + folded[16:])[:16]
                m.d.sync += complement.eq(~Cat(carried[8:], carried[:8]))
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += sent.eq(sent + 1)
                    with m.If(last):
                        m.next = "IDLE"
        return m
