"""The skid buffer: every item once, in order."""

from typing import Any

from amaranth.hdl import Signal

import hw.stream.skid_buffer
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]


def items_in_order(part: Any) -> Harness:
    """Follow one item, chosen by the solver, through the buffer."""
    h = Harness(dut := part.SkidBuffer(8))
    h.free_inputs()
    entered, left = h.taken(dut.i), h.taken(dut.o)
    level, ahead, followed = Signal(range(4)), Signal(range(4)), Signal()
    chosen = Signal(8, reset_less=True)
    follow = h.free(1, "follow")
    h.m.d.sync += level.eq(level + entered - left)
    # `ahead`: items that leave before the followed one.
    with h.m.If(follow & entered & ~followed):
        h.m.d.sync += [followed.eq(1), chosen.eq(dut.i.payload), ahead.eq(level - left)]
    with h.m.Elif(followed & left):
        h.m.d.sync += [ahead.eq(ahead - 1), followed.eq(ahead != 0)]
    h.require(~followed | (ahead < level))
    h.require(~(followed & (ahead == 0)) | (dut.o.valid & (dut.o.payload == chosen)))
    h.require(h.holds(dut.o))
    h.require(level <= 2)
    spare = h.inner("spare_valid")
    h.require(level == dut.o.valid + spare)
    h.require(~spare | dut.o.valid)
    h.require(~(followed & (ahead == 1)) | (h.inner("spare") == chosen))
    h.reach(followed & (ahead == 1))
    return h


PROOFS = [
    Proof(
        law="every item leaves the skid buffer once, unchanged and in order, and an item that is offered stays",
        part=hw.stream.skid_buffer,
        harness=items_in_order,
        depth=8,
        induction=2,
        mutants=(
            ("self.i.ready.eq(~spare_valid)", "self.i.ready.eq(1)"),
            ("payload.eq(spare)", "payload.eq(self.i.payload)"),
            ("self.i.valid | spare_valid", "self.i.valid"),
        ),
    )
]
