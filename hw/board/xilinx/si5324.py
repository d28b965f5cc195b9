"""Registers of an Si5324 clock chip, computed from the frequencies; the chip gives no clock before they are written."""

from dataclasses import dataclass

__all__ = ["DEVICE", "MUX", "MUX_CHANNEL", "SUME_REFCLK", "Si5324", "writes"]

MUX, MUX_CHANNEL, DEVICE = 0x74, 4, 0x68
"""I2C addresses on NetFPGA-SUME: the multiplexer in front, and the Si5324 on that multiplexer's channel."""
CRYSTAL_MHZ = 114.285
"""Crystal from which the chip makes all clocks in free-run mode (data sheet)."""


@dataclass(frozen=True, kw_only=True)
class Si5324:
    """Dividers as in the data sheet: the crystal / n3, times n2_hs * n2_ls, gives the oscillator; that / (n1_hs *
    nc1_ls) the output."""

    n3: int
    n2_hs: int
    n2_ls: int
    n1_hs: int
    nc1_ls: int

    def __post_init__(self) -> None:
        def demand(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ValueError(f"Si5324 {name} must be {rule}, not {getattr(self, name)!r}")

        demand(1 <= self.n3 <= 1 << 19, "n3", "1 to 2^19")
        demand(4 <= self.n2_hs <= 11, "n2_hs", "4 to 11")
        demand(2 <= self.n2_ls <= 1 << 20 and self.n2_ls % 2 == 0, "n2_ls", "an even number from 2 to 2^20")
        demand(4 <= self.n1_hs <= 11, "n1_hs", "4 to 11")
        demand(
            self.nc1_ls == 1 or (self.nc1_ls <= 1 << 20 and self.nc1_ls % 2 == 0),
            "nc1_ls",
            "1 or an even number up to 2^20",
        )
        if not 4850 <= self.oscillator_mhz <= 5670:
            raise ValueError(f"Si5324 oscillator must run at 4850 to 5670 MHz, not {self.oscillator_mhz:.1f}")

    @property
    def oscillator_mhz(self) -> float:
        return CRYSTAL_MHZ / self.n3 * self.n2_hs * self.n2_ls

    @property
    def output_mhz(self) -> float:
        return self.oscillator_mhz / (self.n1_hs * self.nc1_ls)

    def registers(self) -> dict[int, int]:
        """Return registers and their values, in the order of the writes. The last one starts the calibration, after
        which CKOUT1 runs."""

        def wide(first: int, count: int, value: int) -> dict[int, int]:
            return {first + k: value >> 8 * (count - 1 - k) & 0xFF for k in range(count)}

        n2 = wide(40, 3, self.n2_ls - 1)
        return {
            0: 0x54,  # free run, outputs off until calibrated
            1: 0xE4,
            2: 0x12,
            3: 0x15,
            4: 0x92,  # CKIN1 before CKIN2, narrowest loop, outputs squelched, revertive
            10: 0x08,
            11: 0x40,  # CKOUT1 on, CKOUT2 off; both inputs on: the crystal is at CKIN2
            25: (self.n1_hs - 4) << 5,
            **wide(31, 3, self.nc1_ls - 1),
            **n2,
            40: (self.n2_hs - 4) << 5 | n2[40],
            **wide(43, 3, self.n3 - 1),
            **wide(46, 3, self.n3 - 1),
            136: 0x40,
        }


SUME_REFCLK = Si5324(n3=30476, n2_hs=10, n2_ls=150_000, n1_hs=9, nc1_ls=4)
"""156.25 MHz to within 5 ppm of the crystal, where IEEE 802.3 (clause 49.4.1) allows 100."""


def writes(clock: Si5324 = SUME_REFCLK) -> list[tuple[int, ...]]:
    """Return the I2C writes, each an address and its bytes: the multiplexer's channel, then each register."""
    return [(MUX, 1 << MUX_CHANNEL), *((DEVICE, register, value) for register, value in clock.registers().items())]
