"""The generator behind epochs, first sequence numbers and tokens."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DEFAULT_SEED", "Xorshift64"]

DEFAULT_SEED = 0x9E3779B97F4A7C15
"""Used instead of 0, the one state that xorshift never leaves."""


class Xorshift64(wiring.Component):
    """Steps xorshift64 (Marsaglia, 2003, shifts 13, 7, 17) once for each `draw`; `value` is the state after that step.

    It steps with `draw` and not with the clock, so that a model gives the same numbers. `value` is combinational and
    stays until the end of the cycle in which `draw` is 1; one number per cycle. Not a cryptographic generator:
    docs/protocol.md section 6. Source: `host/iswitch/golden/decide/random.py`.
    """

    seed: In(64)
    draw: In(1)
    value: Out(64)

    def elaborate(self, platform):
        m = Module()
        state, started = Signal(64), Signal()
        current, left, right = Signal(64), Signal(64), Signal(64)
        m.d.comb += [
            current.eq(Mux(started, state, Mux(self.seed == 0, DEFAULT_SEED, self.seed))),
            left.eq(current ^ (current << 13)),
            right.eq(left ^ (left >> 7)),
            self.value.eq(right ^ (right << 17)),
        ]
        with m.If(self.draw):
            m.d.sync += [state.eq(self.value), started.eq(1)]
        return m
