"""How many frames a port may flood: a token bucket for each port (as storm control of other switches)."""

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from iswitch.config import Config

__all__ = ["BURST_BITS", "FloodLimit"]

BURST_BITS = 10
"""A full bucket has 2^BURST_BITS - 1 tokens, each for one frame."""
RESERVE_BITS = 5
"""Only BPDUs may use a bucket with fewer than 2^RESERVE_BITS tokens: so a spanning tree sees a loop during a storm."""


class FloodLimit(wiring.Component):
    """The buckets of all ports. The golden model is `host/iswitch/golden/bridge/flood_limit.py`.

    `admits` and `admits_bpdu` say whether `port` may flood an ordinary frame or a BPDU. They are combinational and
    include every earlier `takes`. `takes` removes a token of `port` in each cycle. Each bucket gets a token when
    `now_us` passes a multiple of the interval, 2 cycles later; time may also jump. There is no back-pressure.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({"now_us": In(32), "port": In(4), "takes": In(1), "admits": Out(1), "admits_bpdu": Out(1)})

    def elaborate(self, platform):
        m = Module()
        if not self.config.flood_interval_us:
            m.d.comb += [self.admits.eq(1), self.admits_bpdu.eq(1)]
            return m
        full = (1 << BURST_BITS) - 1
        tick = self.now_us[exact_log2(self.config.flood_interval_us) :]
        seen, passed = Signal.like(tick), Signal(BURST_BITS)
        elapsed = Signal.like(tick)
        m.d.comb += elapsed.eq(tick - seen)
        granted, passed_less_one = Signal(BURST_BITS), Signal(signed(BURST_BITS + 1), init=-1)
        m.d.comb += granted.eq(Mux(elapsed[BURST_BITS:].any(), full, elapsed))
        m.d.sync += [seen.eq(tick), passed.eq(granted), passed_less_one.eq(granted - 1)]
        at_most_full = lambda sum: Mux(sum[BURST_BITS], full, sum)
        buckets = []
        for port in range(self.config.ports):
            tokens = Signal(BURST_BITS, init=full, name=f"tokens_{port}")
            # Both sums are there before `takes`, which is known late.
            kept, taken = Signal(BURST_BITS + 1, name=f"kept_{port}"), Signal(BURST_BITS + 1, name=f"taken_{port}")
            m.d.comb += [kept.eq(tokens + passed), taken.eq(tokens + passed_less_one)]
            m.d.sync += tokens.eq(at_most_full(kept))
            with m.If(self.takes & (self.port == port)):
                m.d.sync += tokens.eq(at_most_full(taken))
            buckets.append(tokens)
        chosen = Signal(BURST_BITS)
        m.d.comb += [
            chosen.eq(Array(buckets)[self.port]),
            self.admits.eq(chosen[RESERVE_BITS:].any()),
            self.admits_bpdu.eq(chosen.any()),
        ]
        return m
