"""Clock and resets of an ECP5 board: a PLL makes the core's clock from the board's, and every domain leaves reset in
order."""

from dataclasses import dataclass

from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer, ResetSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["PHY_RESET_S", "PLL_DOMAIN", "Clocks", "Pll", "Resets", "wire_domain"]

VCO_MHZ, PHASE_MHZ = (400.0, 800.0), (10.0, 400.0)
"""Limits of the PLL's oscillator and phase detector (Lattice FPGA-DS-02012, sysCLOCK PLL timing)."""
DIVIDER_MAX = 128
PHY_RESET_S = 0.02
"""Length of the PHYs' reset: Broadcom's and Marvell's PHYs require 10 ms."""
PLL_DOMAIN = "pll"
"""Domain of the PLL's own clock, where the core's clock is gated."""


@dataclass(frozen=True)
class Pll:
    """Dividers of an EHXPLLL whose feedback is its first output."""

    input: int
    feedback: int
    output: int

    @classmethod
    def of(cls, board_mhz: float, core_mhz: float) -> "Pll":
        """Return the dividers that make one clock from the other exactly, with the fastest phase detector, then the
        fastest oscillator. Raises ValueError if there are none."""
        for divider in range(1, DIVIDER_MAX + 1):
            for feedback in range(1, DIVIDER_MAX + 1):
                if (
                    board_mhz * feedback != core_mhz * divider
                    or not PHASE_MHZ[0] <= board_mhz / divider <= PHASE_MHZ[1]
                ):
                    continue
                for output in reversed(range(1, DIVIDER_MAX + 1)):
                    if VCO_MHZ[0] <= core_mhz * output <= VCO_MHZ[1]:
                        return cls(divider, feedback, output)
        raise ValueError(f"Pll core_mhz must be a clock that a PLL can make of {board_mhz} MHz, not {core_mhz!r}")


def wire_domain(name: str) -> ClockDomain:
    """Return the domain of an external clock that may stop, also during a reset. Its reset is asynchronous: otherwise
    the other side would use stale pointers until the clock comes back."""
    return ClockDomain(name, async_reset=True)


class Resets(wiring.Component):
    """The resets of `domains` and of the PHYs, and of `sync` if the board `restarts`.

    With `restarts`, all resets begin at once with `asynchronous`. That of `sync` ends with the second edge of its
    clock, those of `domains` with the second edge of their own clock after that, and `phy_reset` `phy_cycles` of `sync`
    later.

    Without, `sync` has no reset: its registers begin with their initial values. `domains` are in reset until the second
    edge of their own clock after the first edge of `sync`, and `phy_reset` is 1 for `phy_cycles` of `sync`.

    A domain whose clock does not run yet is reset when it runs; a `wire_domain` is reset before.
    """

    def __init__(self, *, domains: tuple[str, ...], phy_cycles: int, restarts: bool = True):
        self.domains, self.phy_cycles, self.restarts = domains, phy_cycles, restarts
        super().__init__({"phy_reset": Out(1, init=1), **({"asynchronous": In(1)} if restarts else {})})

    def elaborate(self, platform):
        m = Module()
        begins = Signal()
        if self.restarts:
            m.submodules.reset_sync = ResetSynchronizer(self.asynchronous, domain="sync")
            m.d.comb += begins.eq(self.asynchronous | ResetSignal("sync"))
        else:
            started = Signal()
            m.d.sync += started.eq(1)
            m.d.comb += begins.eq(~started)
        for domain in self.domains:
            m.submodules[f"reset_{domain}"] = ResetSynchronizer(begins, domain=domain)
        left = Signal(range(self.phy_cycles + 1), init=self.phy_cycles)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        m.d.sync += self.phy_reset.eq(left != 0)
        return m


class Clocks(wiring.Component):
    """From the board's clock `clock`: the core's clock `core`, the resets, and `phy_reset`, which lasts PHY_RESET_S.

    A board with a button (`restarts`) has an input `restart`: the resets are active while the PLL is not locked, or
    with `restart`.

    A board without one has no reset of `sync`. Its core's clock runs while the PLL is locked, from the second edge of
    the PLL's own clock on, which nothing but that uses. An LFE5U tile holds 8 flip-flops, which share one reset net:
    on a full device, two large groups of flip-flops with and without reset leave many places that neither can use.
    """

    def __init__(self, *, board_mhz: float, core_mhz: float, domains: tuple[str, ...], restarts: bool):
        self.pll, self.restarts = Pll.of(board_mhz, core_mhz), restarts
        self.resets = Resets(domains=domains, phy_cycles=round(PHY_RESET_S * core_mhz * 1e6), restarts=restarts)
        super().__init__(
            {"clock": In(1), "core": Out(1), "phy_reset": Out(1), **({"restart": In(1)} if restarts else {})}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.resets = self.resets
        pll_clock, locked = Signal(), Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            i_CLKI=self.clock,
            i_CLKFB=pll_clock,
            o_CLKOP=pll_clock,
            o_LOCK=locked,
            i_RST=0,
            i_STDBY=0,
            i_ENCLKOP=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=0,
            i_PHASESTEP=0,
            i_PHASELOADREG=0,
            i_PLLWAKESYNC=0,
            p_CLKI_DIV=self.pll.input,
            p_CLKFB_DIV=self.pll.feedback,
            p_CLKOP_DIV=self.pll.output,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_CPHASE=self.pll.output // 2,
            p_CLKOP_FPHASE=0,
        )
        m.d.comb += self.phy_reset.eq(self.resets.phy_reset)
        if self.restarts:
            m.d.comb += [self.core.eq(pll_clock), self.resets.asynchronous.eq(~locked | self.restart)]
        else:
            m.domains += ClockDomain(PLL_DOMAIN, reset_less=True, local=True)
            runs = Signal()
            m.d.comb += ClockSignal(PLL_DOMAIN).eq(pll_clock)
            m.submodules.runs = FFSynchronizer(locked, runs, o_domain=PLL_DOMAIN)
            # DCCA stops its clock while it is 0, without a glitch.
            m.submodules.gate = Instance("DCCA", i_CLKI=pll_clock, i_CE=runs, o_CLKO=self.core)
        return m
