"""Equal shares of the shared pipeline's time for all ports that have frames."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interface.expense import Expense

__all__ = ["QUANTUM", "TimeShares"]

QUANTUM = 256
"""Cycles of the pipeline that a port receives at a time."""
SETTLE_CYCLES = 3
"""Cycles from a refill until it is known which ports have credit."""


class TimeShares(wiring.Component):
    """Says which ports have used up their share of the pipeline's time, so that other ports go first.

    Each port has a credit in cycles, of which it pays what its frames cost (`expense`). When no `waiting` port has any
    credit, each port receives `QUANTUM`, but keeps at most that: a port that was silent has no older claims, and a debt
    remains. A port that owes `QUANTUM` or more is `deferred`. So while several ports wait, each gets the same time,
    whatever its frames cost. A port pays no more while it owes `debt_max`.

    `deferred` follows `expense` by 3 cycles.

    Parameters
    ----------
    ports : int
        The number of ports.
    cycles_max : int
        The most that one frame can cost.
    """

    def __init__(self, *, ports: int, cycles_max: int):
        if not 1 <= ports <= 16:
            raise ValueError(f"TimeShares ports must be 1 to 16, not {ports!r}")
        if cycles_max < 1:
            raise ValueError(f"TimeShares cycles_max must be at least 1, not {cycles_max!r}")
        self.ports = ports
        self.debt_max = 1 << max(2 * QUANTUM, cycles_max).bit_length()
        super().__init__({"expense": In(Expense), "waiting": In(ports), "deferred": Out(ports)})

    def elaborate(self, platform):
        m = Module()
        expense, refills, settles = Signal(Expense), Signal(), Signal(range(SETTLE_CYCLES + 1))
        m.d.sync += expense.eq(self.expense)
        solvent, solvent_waits = Signal(self.ports), Signal()
        m.d.comb += refills.eq((settles == 0) & self.waiting.any() & ~solvent_waits)
        with m.If(refills):
            m.d.sync += settles.eq(SETTLE_CYCLES)
        with m.Elif(settles != 0):
            m.d.sync += settles.eq(settles - 1)
        for number in range(self.ports):
            credit = Signal(signed(self.debt_max.bit_length() + 1), name=f"credit_{number}", init=QUANTUM)
            pays = (expense.port == number) & (credit >= -self.debt_max)
            refilled = Mux(credit >= 0, QUANTUM, credit + QUANTUM)
            m.d.sync += credit.eq(Mux(refills, refilled, credit) - Mux(pays, expense.cycles, 0))
            m.d.comb += solvent[number].eq(credit > 0)
            m.d.sync += self.deferred[number].eq(credit <= -QUANTUM)
        m.d.sync += solvent_waits.eq((self.waiting & solvent).any())
        return m
