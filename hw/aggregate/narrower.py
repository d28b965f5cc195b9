"""Packs two words of rounded sums into one, where a result has two-byte elements."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.aggregate.accumulator import SumWord
from hw.interface.elements import ElementForm
from hw.numeric.formats import ELEMENT_BITS
from hw.numeric.half import narrowed
from iswitch.config import Config

__all__ = ["Narrower"]


class Narrower(wiring.Component):
    """Makes one word of each two words of sums whose `form` is `half`: each element has two bytes then (`narrowed`).
    Other words pass as they are.

    A result's last word is packed with zeros if it is an odd one. A packed word is `corrupt` if one of its two words
    is. Latency 0 (combinational), one word per cycle, never stalls. The words of a result have the same form.
    """

    def __init__(self, config: Config):
        self.config = config
        words = stream.Signature(SumWord(config), always_ready=True)
        super().__init__({"i": In(words), "form": In(ElementForm), "o": Out(words), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        word, half_bits = self.i.payload, self.config.bus_bits // 2
        elements, lower = Signal(half_bits), Signal(half_bits)
        parity, lower_parity, corrupt, lower_corrupt = (
            Signal(name=name) for name in ("parity", "lower_parity", "corrupt", "lower_corrupt")
        )
        m.d.comb += [
            elements.eq(
                Cat(
                    narrowed(word.data.word_select(k, ELEMENT_BITS), binary16=self.form.binary16, as_is=self.form.as_is)
                    for k in range(self.config.lanes)
                )
            ),
            parity.eq(elements.xor()),
            corrupt.eq(word.corrupt | lower_corrupt),
            self.o.payload.eq(word),
            self.o.valid.eq(self.i.valid & (~self.form.half | self.busy | word.last.any())),
        ]
        # Between results `lower` is zero, and so are its flags.
        with m.If(self.i.valid & self.form.half):
            keeps = ~self.o.valid
            m.d.sync += [
                self.busy.eq(keeps),
                lower.eq(Mux(keeps, elements, 0)),
                lower_parity.eq(keeps & parity),
                lower_corrupt.eq(keeps & word.corrupt),
            ]
        with m.If(self.form.half):
            m.d.comb += [
                self.o.payload.data.eq(Mux(self.busy, Cat(lower, elements), elements)),
                self.o.payload.corrupt.eq(corrupt),
                self.o.payload.parity.eq(lower_parity ^ parity ^ corrupt),
            ]
        return m
