"""Shows each frame's headers beside its words."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from hw.frame import Word, require_bus
from hw.layout import big, layout
from hw.net.arbiter import Arrival, Laned
from iswitch.wire import CONTROL, FRAME, FRAME_BYTES, UDP_PORT, Type

__all__ = ["Headers", "Parser"]

FRAME_LAYOUT = layout(FRAME)
CONTROL_LAYOUT = layout(CONTROL)


class Headers(data.Struct):
    """The first 64 bytes of a frame, and of a control message or an acknowledgement also the next 64. `ours` decides the path it takes."""

    frame: FRAME_LAYOUT
    body: CONTROL_LAYOUT
    arrival: Arrival
    ours: 1


class Parser(wiring.Component):
    """One `headers` item for each frame; the frame's words wait in `o` behind it.

    `ours`: IPv4 without options, not a fragment, UDP to our port at our address; everything else is ordinary. Latency: the
    item appears 1 cycle after the frame's 64th byte (of a control message or an acknowledgement: its 128th), the words 2 cycles after they
    came in. One word per cycle as long as `headers` are taken faster than frames come and `o`, 64 words deep, is drained.
    """

    def __init__(self, *, bus_bits: int, depth: int = 64):
        require_bus("Parser", bus_bits)
        self.bus_bits = bus_bits
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(Laned(bus_bits))),
            "own_ip": In(32),
            "headers": Out(stream.Signature(Headers)),
            "o": Out(stream.Signature(Word(bus_bits))),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        width = self.o.payload.shape().size
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=width, depth=self.depth)
        header_words = FRAME_BYTES * 8 // self.bus_bits
        word = self.i.payload.word

        gathered = Signal(FRAME_BYTES * 8 * 2, reset_less=True)
        item = Signal(Headers, reset_less=True)
        index = Signal(range(2 * header_words + 1))
        head = Signal(FRAME_LAYOUT)
        # The last header word is looked at while it is on the bus: the item is complete one cycle later.
        held = Cat(gathered[:FRAME_BYTES * 8 - self.bus_bits], word.data)
        m.d.comb += head.eq(Mux(index == header_words - 1, held, gathered[:FRAME_BYTES * 8]))
        ours = Signal()
        m.d.comb += ours.eq(
            (big(head.eth_type) == 0x0800) & (head.ip_version_ihl == 0x45) & ((big(head.ip_fragment) & 0x3FFF) == 0)
            & (head.ip_protocol == 17) & (head.ip_dst.as_value() == self.own_ip) & (big(head.udp_dst) == UDP_PORT))
        control = ours & ((head.version_type[:4] == Type.CONTROL) | (head.version_type[:4] == Type.ACK))

        closing = Signal()
        with m.If(index == header_words - 1):
            m.d.comb += closing.eq(~control | word.last)
        with m.Elif(index < 2 * header_words):
            m.d.comb += closing.eq(control & (word.last | (index == 2 * header_words - 1)))
        clear = ~closing | ~self.headers.valid | self.headers.ready
        taken = Signal()
        m.d.comb += [
            taken.eq(self.i.valid & fifo.w_rdy & clear),
            self.i.ready.eq(fifo.w_rdy & clear),
            fifo.w_en.eq(taken), fifo.w_data.eq(word),
            self.headers.payload.eq(item), self.o.valid.eq(fifo.r_rdy), self.o.payload.eq(fifo.r_data), fifo.r_en.eq(self.o.ready),
            self.busy.eq(fifo.r_rdy | (fifo.level != 0) | self.headers.valid),
        ]
        with m.If(self.headers.ready):
            m.d.sync += self.headers.valid.eq(0)
        with m.If(taken):
            with m.If(word.last):
                m.d.sync += index.eq(0)
            with m.Elif(index < 2 * header_words):
                m.d.sync += index.eq(index + 1)
            with m.Switch(index):
                for k in range(2 * header_words):
                    with m.Case(k):
                        m.d.sync += gathered[k * self.bus_bits:(k + 1) * self.bus_bits].eq(word.data)
            with m.If(closing):
                m.d.sync += [self.headers.valid.eq(1), item.frame.eq(head), item.ours.eq(ours),
                             item.arrival.eq(self.i.payload.arrival)]
                for k in range(header_words, 2 * header_words):
                    at = (k - header_words) * self.bus_bits
                    source = Mux(index == k, word.data, gathered[k * self.bus_bits:(k + 1) * self.bus_bits])
                    m.d.sync += item.body.as_value()[at:at + self.bus_bits].eq(source)
        return m
