"""Writes a list of bytes to I2C devices once, to configure a board's chips after a reset."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["I2cWriter"]

START, BYTE, STOP = range(3)


class I2cWriter(wiring.Component):
    """Carries out `writes` in order, `delay_cycles` after a reset; then `done` is 1. Each write is an I2C address of 7
    bits and its bytes. A device that does not acknowledge sets `missed`, which stays 1, and the list goes on.

    Lines are open drain: 0 pulls a line down, 1 leaves it to its resistor; `scl_i` and `sda_i` are the levels of the
    lines. A bit takes `4 * quarter_cycles`, plus the time for which a device holds `scl` down. The bus must have no
    other controller. UM10204, sections 3.1.1 to 3.1.9.
    """

    def __init__(self, writes, *, quarter_cycles: int, delay_cycles: int = 0):
        if quarter_cycles < 4:
            raise ValueError(
                "I2cWriter quarter_cycles must be at least 4, for two registers stand before the inputs, not "
                f"{quarter_cycles!r}"
            )
        for address, *values in writes:
            if not 0 <= address < 128 or not values or not all(0 <= value < 256 for value in values):
                raise ValueError(
                    f"I2cWriter writes must be an address below 128 and at least one byte, not {(address, *values)!r}"
                )
        self.quarter_cycles, self.delay_cycles = quarter_cycles, delay_cycles
        self.steps: list[int] = []
        for address, *values in writes:
            self.steps += [START << 8, *(BYTE << 8 | value for value in (address << 1, *values)), STOP << 8]
        super().__init__(
            {
                "scl_o": Out(1, init=1),
                "sda_o": Out(1, init=1),
                "scl_i": In(1),
                "sda_i": In(1),
                "done": Out(1),
                "missed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.steps = steps = Memory(shape=10, depth=len(self.steps), init=self.steps)
        read = steps.read_port()
        scl, sda = Signal(init=1), Signal(init=1)
        m.submodules += [FFSynchronizer(self.scl_i, scl, init=1), FFSynchronizer(self.sda_i, sda, init=1)]

        wait = Signal(range(max(self.delay_cycles, 2) + 1), init=self.delay_cycles)
        timer, quarter, bit = Signal(range(self.quarter_cycles)), Signal(2), Signal(4)
        at = Signal(range(len(self.steps) + 1))
        kind, value = read.data[8:], read.data[:8]
        # In the third quarter the clock is high. If a device holds it down, the quarter does not begin.
        stretched = self.scl_o & ~scl & (timer == 0) & (quarter == 2)
        tick = Signal()
        m.d.comb += [tick.eq((timer == 0) & ~stretched), read.addr.eq(at)]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(at == len(self.steps)):
            m.d.comb += self.done.eq(1)
        with m.Else():
            m.d.sync += timer.eq(Mux(tick, self.quarter_cycles - 1, Mux(timer != 0, timer - 1, 0)))
            with m.If(tick):
                m.d.sync += quarter.eq(quarter + 1)
                with m.Switch(kind):
                    with m.Case(START):  # sda falls while scl is high
                        m.d.sync += [
                            self.scl_o.eq(Array([1, 1, 1, 0])[quarter]),
                            self.sda_o.eq(Array([1, 1, 0, 0])[quarter]),
                        ]
                    with m.Case(STOP):  # sda rises while scl is high
                        m.d.sync += [
                            self.scl_o.eq(Array([0, 1, 1, 1])[quarter]),
                            self.sda_o.eq(Array([0, 0, 1, 1])[quarter]),
                        ]
                    with m.Default():
                        m.d.sync += self.scl_o.eq(Array([0, 1, 1, 0])[quarter])
                        with m.If(quarter == 0):  # eight bits, highest first; in the ninth the device pulls sda down
                            m.d.sync += self.sda_o.eq(Cat(value[::-1], Const(1, 1)).bit_select(bit, 1))
                        with m.If((quarter == 3) & (bit == 8) & sda):
                            m.d.sync += self.missed.eq(1)
                with m.If(quarter == 3):
                    m.d.sync += bit.eq(bit + 1)
                    with m.If((kind != BYTE) | (bit == 8)):
                        m.d.sync += [bit.eq(0), at.eq(at + 1)]
        return m
