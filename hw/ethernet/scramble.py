"""The scrambler of 64B/66B blocks, 1 + x^39 + x^58, and the descrambler."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Descrambler", "Scrambler"]

TAPS = (39, 58)
"""Clause 49.2.6: distances in bits."""
BITS = 64


class Scrambler(wiring.Component):
    """Each output bit is the input bit and the output bits 39 and 58 bits before. One word a cycle, bit 0 first, 1
    cycle later."""

    def __init__(self):
        super().__init__({"i": In(BITS), "o": Out(BITS)})

    def elaborate(self, platform):
        m = Module()
        # Bits that were sent, the newest highest. They start non-zero, so that a payload of zeros does not give a line
        # of zeros.
        sent = Signal(TAPS[1], init=(1 << TAPS[1]) - 1, reset_less=True)
        line = list(sent)
        for k in range(BITS):
            bit = Signal(name=f"bit_{k}")
            m.d.comb += bit.eq(self.i[k] ^ line[-TAPS[0]] ^ line[-TAPS[1]])
            line.append(bit)
        m.d.sync += [sent.eq(Cat(line[-TAPS[1] :])), self.o.eq(Cat(line[-BITS:]))]
        return m


class Descrambler(wiring.Component):
    """The scrambler's input again, from its 59th bit on, whatever the initial state; a wrong bit on the line makes
    three wrong ones here. One word a cycle, 1 cycle later."""

    def __init__(self):
        super().__init__({"i": In(BITS), "o": Out(BITS)})

    def elaborate(self, platform):
        m = Module()
        came = Signal(TAPS[1], reset_less=True)
        line = Cat(came, self.i)
        m.d.sync += came.eq(line[-TAPS[1] :])
        m.d.sync += self.o.eq(self.i ^ line[TAPS[1] - TAPS[0] :][:BITS] ^ line[:BITS])
        return m
