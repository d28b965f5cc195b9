"""Clock and resets of an ECP5 board: a PLL makes the core's clock from the board's, and every domain leaves reset in
order."""

from dataclasses import dataclass

from amaranth.hdl import ClockDomain, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["PHY_RESET_S", "Clocks", "Pll", "Resets", "wire_domain"]

VCO_MHZ, PHASE_MHZ = (400.0, 800.0), (10.0, 400.0)
"""Limits of the PLL's oscillator and phase detector (Lattice FPGA-DS-02012, sysCLOCK PLL timing)."""
DIVIDER_MAX = 128
PHY_RESET_S = 0.02
"""Length of the PHYs' reset: Broadcom's and Marvell's PHYs require 10 ms."""


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
    """The resets of `sync` and `domains` from `asynchronous`, and `phy_reset`, which is held for `phy_cycles` of `sync`
    more.

    A reset begins at once and ends with the second edge of the domain's own clock; in `domains` with the second edge
    after the reset of `sync` has ended. A domain whose clock does not run yet is reset when it runs; a `wire_domain` is
    reset before.
    """

    def __init__(self, *, domains: tuple[str, ...], phy_cycles: int):
        self.domains, self.phy_cycles = domains, phy_cycles
        super().__init__({"asynchronous": In(1), "phy_reset": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        for domain in ("sync", *self.domains):
            begins = self.asynchronous if domain == "sync" else self.asynchronous | ResetSignal("sync")
            m.submodules[f"reset_{domain}"] = ResetSynchronizer(begins, domain=domain)
        left = Signal(range(self.phy_cycles + 1), init=self.phy_cycles)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        m.d.sync += self.phy_reset.eq(left != 0)
        return m


class Clocks(wiring.Component):
    """From the board's clock `clock` and its button `restart`: the core's clock `core`, resets of `sync` and `domains`,
    and `phy_reset`. Resets are active while the PLL is not locked, or with `restart`; that of the PHYs lasts
    PHY_RESET_S longer."""

    def __init__(self, *, board_mhz: float, core_mhz: float, domains: tuple[str, ...]):
        self.pll = Pll.of(board_mhz, core_mhz)
        self.resets = Resets(domains=domains, phy_cycles=round(PHY_RESET_S * core_mhz * 1e6))
        super().__init__({"clock": In(1), "restart": In(1), "core": Out(1), "phy_reset": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.resets = self.resets
        locked = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            i_CLKI=self.clock,
            i_CLKFB=self.core,
            o_CLKOP=self.core,
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
        m.d.comb += [self.resets.asynchronous.eq(~locked | self.restart), self.phy_reset.eq(self.resets.phy_reset)]
        return m
