"""The PLL's dividers by exact arithmetic, and every domain's way into and out of reset."""

from fractions import Fraction

import hw.board.clocks
import pytest
from hw.board.boards import BOARDS
from hw.board.clocks import DIVIDER_MAX, PHASE_MHZ, VCO_MHZ, Pll, Resets
from hw.board.ecp5 import WIRINGS

from amaranth.hdl import ClockDomain, Module, ResetSignal
from amaranth.lib.cdc import FFSynchronizer
from amaranth.sim import Simulator
from sim.bench.mutant import mutant

PHY_CYCLES = 20


@pytest.mark.parametrize(("board", "core"), [
    *((wiring.mhz, BOARDS[name].core_mhz) for name, wiring in WIRINGS.items()), (25.0, 37.5), (100.0, 60.0), (12.0, 48.0), (25.0, 125.0)])
def test_the_core_has_exactly_its_clock_within_what_the_pll_can(board, core):
    pll = Pll.of(board, core)
    assert Fraction(board) * pll.feedback / pll.input == Fraction(core)
    assert PHASE_MHZ[0] <= board / pll.input <= PHASE_MHZ[1] and VCO_MHZ[0] <= core * pll.output <= VCO_MHZ[1]
    assert all(1 <= divider <= DIVIDER_MAX for divider in (pll.input, pll.feedback, pll.output))


@pytest.mark.parametrize("core", [40.0, 33.333, 900.0, 0.001])
def test_pll_core_mhz_wrong(core):
    """40 of 25 MHz would take a phase detector at 5."""
    with pytest.raises(ValueError, match=f"Pll core_mhz must be a clock that a PLL can make of 25.0 MHz, not {core}"):
        Pll.of(25.0, core)


def resets(made=Resets):
    """When the reset of each domain and of the PHYs changes, in ns, while `asynchronous` falls at 30, rises between edges at 1503 and falls at 1705;
    the clock of `late` begins at 1000, and stops from 1400 to 1800."""
    m = Module()
    domains = [ClockDomain(name) for name in ("sync", "wire", "late")]
    m.domains += domains
    m.submodules.dut = dut = made(domains=("wire", "late"), phy_cycles=PHY_CYCLES)
    sync, wire, late = (domain.clk for domain in domains)
    found = []

    async def bench(ctx):
        for now in range(3000):
            ctx.set(sync, now % 20 < 10)
            ctx.set(wire, now % 8 < 4)
            ctx.set(late, now % 8 < 4 and now >= 1000 and not 1400 <= now < 1800)
            ctx.set(dut.asynchronous, now < 30 or 1503 <= now < 1705)
            await ctx.delay(0.1e-9)
            found.append([*(ctx.get(domain.rst) for domain in domains), ctx.get(dut.phy_reset)])
            await ctx.delay(0.9e-9)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return [[k for k in range(1, 3000) if row[k] != row[k - 1]] for row in zip(*found, strict=True)]


def test_resets_begin_at_once_and_end_with_the_domains_own_clock():
    sync, wire, late, phy = resets()
    # The second rising edge after `asynchronous` fell; `late` has none before 1000, and after its pause none before 1800.
    assert sync == [60, 1503, 1740] and wire == [40, 1503, 1720] and late == [1008, 1503, 1808]
    assert phy[0] >= 60 + PHY_CYCLES * 20 and phy[2] - 1740 >= PHY_CYCLES * 20 and len(phy) == 3


def test_a_reset_that_waits_for_its_clock_is_noticed():
    slow = mutant(hw.board.clocks, "ResetSynchronizer(self.asynchronous, domain=domain)",
                  "FFSynchronizer(self.asynchronous, ResetSignal(domain), o_domain=domain, init=1)")
    slow.ResetSignal, slow.FFSynchronizer = ResetSignal, FFSynchronizer
    assert resets(slow.Resets)[0] != [60, 1503, 1740]
