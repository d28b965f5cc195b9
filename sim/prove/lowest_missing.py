"""What a leaf reports to its parent: the lowest seq whose result a live member may lack."""

from typing import Any

from amaranth.hdl import Mux, Signal, signed

import hw.decide.lowest_missing
from iswitch.config import Config
from sim.prove.harness import Harness, after
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

CONFIG = Config(ports=2, bus_bits=64, members=3, jobs=2, window=4, elements=16)
"""The solver has no answer for 8 members within ten minutes."""
LATENCY = 3
"""Cycles from the inputs to the result."""
APART = 4 * CONFIG.window
"""Live members that acknowledge only what they hold lack results within so many seqs of each other's."""


def finds_the_lowest(part: Any) -> Harness:
    """The result is what some live member lacks, and no live member lacks less."""
    h = Harness(dut := part.LowestMissing(CONFIG))
    h.constant_inputs()
    valid = after(h, LATENCY)
    h.assume(dut.live.any() & (dut.gain < APART))
    own = Signal(32)
    for member in range(CONFIG.members):
        with h.m.If(dut.member == member):
            h.m.d.comb += own.eq(dut.acknowledged[member])
    is_lowest: Any = 0
    for member in range(CONFIG.members):
        apart, above = Signal(signed(32), name=f"apart_{member}"), Signal(signed(32), name=f"above_{member}")
        lacks = dut.acknowledged[member] + Mux(dut.member == member, dut.gain, 0)
        h.m.d.comb += [apart.eq(dut.acknowledged[member] - own), above.eq(lacks - dut.lowest)]
        live = dut.live[member]
        h.assume(~live | ((apart < APART) & (apart > -APART)))
        h.require(~valid | ~live | (above >= 0))
        is_lowest |= live & (above == 0)
    h.require(~valid | is_lowest)
    h.reach(valid & (dut.lowest == own + dut.gain) & (dut.gain != 0))
    h.reach(valid & (dut.lowest > own))
    h.reach(valid & ~dut.live.bit_select(dut.member, 1))
    return h


PROOFS = [
    Proof(
        law="a leaf's report names the lowest seq that live members may lack, if all lack results within four windows",
        part=hw.decide.lowest_missing,
        harness=finds_the_lowest,
        depth=LATENCY + 2,
        covers_all=True,
        mutants=(
            ("exact_log2(self.config.slots) + 3", "exact_log2(self.config.slots) + 1"),
            ("self.live[k] & (self.member != k)", "self.live[k]"),
            ("own.eq(Mux(member_is_live, self.gain[:bits], nearest))", "own.eq(self.gain[:bits])"),
        ),
    )
]
