"""The PLL's dividers by exact arithmetic, every domain's way into and out of reset, and what a reset leaves of words on
their way between two."""

from fractions import Fraction

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.lib.cdc import FFSynchronizer
from amaranth.sim import Simulator

import hw.board.ecp5.clocks
from hw.board.boards import BOARDS
from hw.board.ecp5.clocks import DIVIDER_MAX, PHASE_MHZ, VCO_MHZ, Pll, Resets, wire_domain
from hw.board.ecp5.crossing import ClockCrossing
from hw.board.ecp5.project import WIRINGS
from sim.bench.mutant import mutant

PHY_CYCLES = 20


@pytest.mark.parametrize(
    ("board", "core"),
    [
        *((wiring.mhz, BOARDS[name].core_mhz) for name, wiring in WIRINGS.items()),
        (25.0, 37.5),
        (100.0, 60.0),
        (12.0, 48.0),
        (25.0, 125.0),
    ],
)
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
    """When the reset of each domain and of the PHYs changes, in ns, while `asynchronous` falls at 30, rises between
    edges at 1503 and falls at 1705; the clock of `late` begins at 1000, and stops from 1400 to 1800."""
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
    # The second rising edge after `asynchronous` fell; `late` has none before 1000, and after its pause none before
    # 1800. Those of wires wait for `sync`.
    assert sync == [60, 1503, 1740] and wire == [72, 1503, 1752] and late == [1008, 1503, 1808]
    assert phy[0] >= 60 + PHY_CYCLES * 20 and phy[2] - 1740 >= PHY_CYCLES * 20 and len(phy) == 3


@pytest.mark.mutant
def test_a_reset_that_waits_for_its_clock_is_noticed():
    slow = mutant(
        hw.board.ecp5.clocks,
        'ResetSynchronizer(self.asynchronous, domain="sync")',
        'FFSynchronizer(self.asynchronous, ResetSignal("sync"), o_domain="sync", init=1)',
    )
    slow.FFSynchronizer = FFSynchronizer
    assert resets(slow.Resets)[0] != [60, 1503, 1740]


def starts(made=Resets):
    """When the reset of `wire` changes, in ns, and that of the PHYs, on a board without a button; the core's clock
    begins at 505."""
    m = Module()
    domains = [ClockDomain("sync", reset_less=True), wire_domain("wire")]
    m.domains += domains
    m.submodules.dut = dut = made(domains=("wire",), phy_cycles=PHY_CYCLES, restarts=False)
    sync, wire = (domain.clk for domain in domains)
    found = []

    async def bench(ctx):
        for now in range(1500):
            ctx.set(sync, now >= 505 and (now - 505) % 20 < 10)
            ctx.set(wire, now % 8 < 4)
            await ctx.delay(0.1e-9)
            found.append([ctx.get(domains[1].rst), ctx.get(dut.phy_reset)])
            await ctx.delay(0.9e-9)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    assert found[0] == [1, 1]
    return [[k for k in range(1, 1500) if row[k] != row[k - 1]] for row in zip(*found, strict=True)]


def test_without_a_button_a_port_is_in_reset_until_the_core_has_started_and_never_again():
    wire, phy = starts()
    # The first edge of `sync` is at 505, the second edge of `wire` after it at 520.
    assert wire == [520] and phy == [505 + PHY_CYCLES * 20]


@pytest.mark.mutant
def test_a_port_that_starts_before_the_core_is_noticed():
    early = mutant(hw.board.ecp5.clocks, "begins.eq(~started)", "begins.eq(0)")
    assert starts(early.Resets)[0] != [520]


PERIODS = {"sync": 20, "wire": 8}
RESET = range(3000, 3200)
"""In ns."""


def around_a_reset(writer, stands, made=Resets, domain=wire_domain):
    """Numbers that a crossing took after the reset, and those that it gave. `stands`: when which clock does."""
    reader = next(name for name in PERIODS if name != writer)
    m, domains = Module(), {"sync": ClockDomain("sync"), "wire": domain("wire")}
    m.domains += domains.values()
    m.submodules.resets = resets = made(domains=("wire",), phy_cycles=1)
    m.submodules.dut = dut = ClockCrossing(16, depth=16, i_domain=writer, o_domain=reader, store_and_forward=False)
    taken, given = [], []

    async def bench(ctx):
        number = 0
        for now in range(5000):
            ctx.set(resets.asynchronous, now < 50 or now in RESET)
            edges = {name: now % period == 0 and now not in stands.get(name, ()) for name, period in PERIODS.items()}
            # Before the edge; what is in reset neither gives nor takes.
            works = {name: edge and not ctx.get(domains[name].rst) for name, edge in edges.items()}
            took, gave = (
                works[side] and ctx.get(port.valid & port.ready) for side, port in ((writer, dut.i), (reader, dut.o))
            )
            if took and now >= RESET.stop:
                taken.append(ctx.get(dut.i.payload))
            if gave and now >= RESET.start:
                given.append(ctx.get(dut.o.payload))
            for name, period in PERIODS.items():
                ctx.set(domains[name].clk, now % period < period // 2 and now not in stands.get(name, ()))
            await ctx.delay(0.3e-9)
            if edges[writer]:
                number += 1
                ctx.set(dut.i.payload, number)
                ctx.set(dut.i.valid, 500 <= now < 4600 and number % 7 != 0)
            if edges[reader]:
                ctx.set(dut.o.ready, number % 5 != 0)
            await ctx.delay(0.7e-9)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return taken, given


STANDS = [
    {},
    {"wire": range(2904, 3904)},
    {"wire": range(2904, 3104)},
    {"sync": range(2900, 3600)},
    {"sync": range(2900, 3600), "wire": range(2904, 3904)},
]


@pytest.mark.parametrize(
    "stands",
    STANDS,
    ids=lambda stands: " and ".join(f"{name} to {when.stop}" for name, when in stands.items()) or "none",
)
@pytest.mark.parametrize("writer", PERIODS)
def test_a_reset_leaves_nothing_on_its_way_whichever_clock_stands(writer, stands):
    taken, given = around_a_reset(writer, stands)
    assert given == taken and len(taken) > 20


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("options", "stands"),
    [
        ({"domain": ClockDomain}, STANDS[1]),
        (
            {
                "made": mutant(
                    hw.board.ecp5.clocks, 'self.asynchronous | ResetSignal("sync")', "self.asynchronous"
                ).Resets
            },
            STANDS[3],
        ),
    ],
)
def test_words_that_outlive_a_reset_are_noticed(options, stands):
    assert any(taken != given for taken, given in (around_a_reset(writer, stands, **options) for writer in PERIODS))
