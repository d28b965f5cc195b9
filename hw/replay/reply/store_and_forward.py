"""Frames of the replay service on their way out, kept until they are whole."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from hw.interface.reply import ReplyRoute
from hw.replay.reply.framer import FRAME_ROWS, ROW_BITS
from hw.stream.packet import Packet, first_of, word_of

__all__ = ["StoreAndForward"]

FRAMES = 16
"""That are here at a time at most; as many of the shortest fill the memory."""


class StoreAndForward(wiring.Component):
    """Shows a frame when its last word has come, and then a word in each cycle in which `o` is ready.

    Rows come slower than words of a wide bus, and those of data as memory gives them, which may be never. Whoever waits
    behind a frame that has begun, the switch's own replies and a port's results among them, must not wait for that.
    Frames are of at least two words. There is room for the longest; while one leaves, the next comes. Latency: the
    frame, and 1 cycle.
    """

    def __init__(self, *, bus_bits: int):
        self.bus_bits = bus_bits
        self.depth = 1 << (-(-FRAME_ROWS * ROW_BITS // bus_bits) - 1).bit_length()
        frames = stream.Signature(Packet(bus_bits, meta=ReplyRoute))
        super().__init__({"i": In(frames), "o": Out(frames), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        word_bits = Packet(self.bus_bits).size
        came, shown = self.i.payload, self.o.payload
        beside, behind = came.meta.as_value(), shown.meta.as_value()
        m.submodules.words = words = SyncFIFOBuffered(width=word_bits, depth=self.depth)
        m.submodules.notes = notes = SyncFIFOBuffered(width=len(beside), depth=FRAMES)
        whole, comes, goes = Signal(range(FRAMES + 1)), Signal(), Signal()
        first = first_of(m, self.i)
        m.d.comb += [
            self.i.ready.eq(words.w_rdy & (~first | notes.w_rdy)),
            words.w_en.eq(self.i.valid & self.i.ready),
            words.w_data.eq(word_of(came)),
            notes.w_en.eq(words.w_en & first),
            notes.w_data.eq(beside),
            comes.eq(words.w_en & came.last),
            self.o.valid.eq(words.r_rdy & (whole != 0)),
            word_of(shown).eq(words.r_data),
            behind.eq(notes.r_data),
            words.r_en.eq(self.o.valid & self.o.ready),
            goes.eq(words.r_en & shown.last),
            notes.r_en.eq(goes),
            self.busy.eq(words.r_rdy | (words.level != 0)),
        ]
        m.d.sync += whole.eq(whole + comes - goes)
        return m
