"""The Xilinx boards: parts, pins, I/O standards and clocks. Tables of facts; docs/boards.md names their sources."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal

__all__ = ["PLATFORMS", "Clock", "Pin", "Platform", "Synchronizers"]


@dataclass(frozen=True)
class Pin:
    """One bit of a port of the top module. `standard` is empty for a transceiver's pin, which has none."""

    port: str
    site: str
    standard: str = ""
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Clock:
    """A clock input on a pair of pins, `<name>_p` and `<name>_n`."""

    name: str
    mhz: float


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A card. `pins`: all that a design may use, each once. `lanes`: of the transceiver quads, in the order of the
    cages. `clock`: the source of the core's clock. `bitstream`: properties of the design."""

    name: str
    part: str
    series: str
    clock: Clock
    refclks: tuple[Clock, ...]
    memory: str
    memory_clock: Clock | None = None
    lanes: tuple[tuple[str, ...], ...]
    bitstream: tuple[tuple[str, str], ...]
    pins: tuple[Pin, ...]

    def __post_init__(self) -> None:
        for what in ("port", "site"):
            names = [getattr(pin, what) for pin in self.pins]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"Platform {self.name} pins must have each {what} once, not {', '.join(twice)} twice")


def pair(name: str, p: str, n: str, standard: str = "") -> Iterator[Pin]:
    yield Pin(f"{name}_p", p, standard)
    yield Pin(f"{name}_n", n, standard)


def bus(name: str, sites: str, standard: str = "", **properties: str) -> Iterator[Pin]:
    """Yield the pins `name[0]` and on."""
    listed = sites.split()
    for k, site in enumerate(listed):
        yield Pin(f"{name}[{k}]", site, standard, tuple(properties.items()))


def one(name: str, site: str, standard: str = "", **properties: str) -> Iterator[Pin]:
    yield Pin(name, site, standard, tuple(properties.items()))


def lanes(prefix: str, rx_p: str, rx_n: str, tx_p: str, tx_n: str, first: int = 0) -> Iterator[Pin]:
    """Yield the serial pins `<prefix>rx_p[k]`, ... of the lanes from `first` on."""
    for name, sites in (("rx_p", rx_p), ("rx_n", rx_n), ("tx_p", tx_p), ("tx_n", tx_n)):
        for k, site in enumerate(sites.split()):
            yield Pin(f"{prefix}{name}[{first + k}]", site)


def every(*groups: Iterable[Pin]) -> tuple[Pin, ...]:
    return tuple(pin for group in groups for pin in group)


SLOW = {"SLEW": "SLOW", "DRIVE": "12"}
SUME = Platform(
    name="netfpga_sume",
    part="xc7vx690tffg1761-3",
    series="7",
    clock=Clock("sys_clk", 200),
    refclks=(Clock("refclk", 156.25),),
    memory="ddr3",
    memory_clock=Clock("ddr_clk", 233.1),
    lanes=(("X1Y39", "X1Y38", "X1Y37", "X1Y36"),),
    bitstream=(
        ("CFGBVS", "GND"),
        ("CONFIG_VOLTAGE", "1.8"),
        ("BITSTREAM.GENERAL.COMPRESS", "TRUE"),
        ("BITSTREAM.CONFIG.UNUSEDPIN", "PULLUP"),
        ("BITSTREAM.CONFIG.OVERTEMPSHUTDOWN", "ENABLE"),
    ),
    pins=every(
        pair("sys_clk", "H19", "G18", "LVDS"),
        pair("ddr_clk", "E34", "E35", "LVDS"),
        pair("refclk", "E10", "E9"),
        one("reset", "AR13", "LVCMOS15"),
        bus("led", "AR22 AR23", "LVCMOS15", **SLOW),
        bus("sfp_led", "G13 AL22 AY18 P31", "LVCMOS15", **SLOW),
        bus("sfp_tx_disable", "M18 B31 J38 L21", "LVCMOS15", **SLOW),
        bus("sfp_rs", "N19 P20 F39 H38", "LVCMOS15", **SLOW),
        bus("sfp_rs_tx", "P18 N20 G36 G38", "LVCMOS15", **SLOW),
        one("si5324_reset", "BA29", "LVCMOS18", **SLOW),
        one("i2c_mux_reset", "AM39", "LVCMOS15", **SLOW),
        one("i2c_scl", "AK24", "LVCMOS18", **SLOW, PULLUP="TRUE"),
        one("i2c_sda", "AK25", "LVCMOS18", **SLOW, PULLUP="TRUE"),
        lanes("", "A6 B8 C6 D8", "A5 B7 C5 D7", "B4 C2 D4 E2", "B3 C1 D3 E1"),
        # The memory in slot A. These pins go into the memory controller's project, which constrains them.
        bus("ddr3_addr", "G17 J20 H18 D21 D18 C21 J17 E17 B21 A19 E20 A17 K19 C20 F17 K17", "SSTL15"),
        bus("ddr3_ba", "F20 D17 B19", "SSTL15"),
        one("ddr3_ras_n", "B17", "SSTL15"),
        one("ddr3_cas_n", "D20", "SSTL15"),
        one("ddr3_we_n", "H20", "SSTL15"),
        one("ddr3_reset_n", "A15", "LVCMOS15"),
        bus("ddr3_ck_p", "G19", "DIFF_SSTL15"),
        bus("ddr3_ck_n", "F19", "DIFF_SSTL15"),
        bus("ddr3_cke", "M17", "SSTL15"),
        bus("ddr3_cs_n", "C19", "SSTL15"),
        bus("ddr3_odt", "J18", "SSTL15"),
        bus("ddr3_dm", "M13 J13 G14 A14 B23 D26 A31 F31", "SSTL15"),
        bus(
            "ddr3_dq",
            "M11 M12 N14 M14 N13 L12 L14 N15 K15 K14 H14 L16 K13 H13 H15 J15 E14 F15 F16 E15 G12 F12 E13 F14 D15 D16 "
            "B16 C16 E12 C13 "
            "B14 D13 C24 A25 B26 B27 B22 A22 C23 A24 D25 C25 E24 E23 D22 D23 E22 F22 A29 A30 A32 D28 C28 C29 D27 C31 "
            "D30 E30 C30 F30 F27 F26 F29 E29",
            "SSTL15_T_DCI",
        ),
        bus("ddr3_dqs_p", "N16 K12 H16 C15 A26 F25 B28 E27", "DIFF_SSTL15_T_DCI"),
        bus("ddr3_dqs_n", "M16 J12 G16 C14 A27 E25 B29 E28", "DIFF_SSTL15_T_DCI"),
    ),
)

ALVEO_BITSTREAM = (
    ("CFGBVS", "GND"),
    ("CONFIG_VOLTAGE", "1.8"),
    ("BITSTREAM.GENERAL.COMPRESS", "TRUE"),
    ("BITSTREAM.CONFIG.CONFIGFALLBACK", "ENABLE"),
    ("BITSTREAM.CONFIG.EXTMASTERCCLK_EN", "DISABLE"),
    ("BITSTREAM.CONFIG.SPI_32BIT_ADDR", "YES"),
    ("BITSTREAM.CONFIG.SPI_BUSWIDTH", "4"),
    ("BITSTREAM.CONFIG.SPI_FALL_EDGE", "YES"),
    ("BITSTREAM.CONFIG.UNUSEDPIN", "PULLUP"),
    ("BITSTREAM.CONFIG.OVERTEMPSHUTDOWN", "ENABLE"),
)
WEAK = {"SLEW": "SLOW", "DRIVE": "8"}


def quad(x: int, first: int) -> tuple[str, ...]:
    return tuple(f"X{x}Y{y}" for y in range(first, first + 4))


U250 = Platform(
    name="alveo_u250",
    part="xcu250-figd2104-2L-e",
    series="usp",
    clock=Clock("sys_clk", 300),
    refclks=(Clock("refclk0", 161.1328125), Clock("refclk1", 161.1328125)),
    memory="ddr4",
    memory_clock=Clock("ddr_clk", 300),
    lanes=(quad(1, 44), quad(1, 40)),
    bitstream=(*ALVEO_BITSTREAM, ("BITSTREAM.CONFIG.CONFIGRATE", "63.8")),
    pins=every(
        pair("sys_clk", "AW20", "AW19", "LVDS"),
        pair("ddr_clk", "AY37", "AY38", "LVDS"),
        pair("refclk0", "K11", "K10"),
        pair("refclk1", "P11", "P10"),
        bus("led", "BC21 BB21 BA20", "LVCMOS12", **WEAK),
        bus("qsfp_modsel_n", "BE16 AY20", "LVCMOS12", **WEAK),
        bus("qsfp_reset_n", "BE17 BC18", "LVCMOS12", **WEAK),
        bus("qsfp_lpmode", "BD18 AV22", "LVCMOS12", **WEAK),
        bus("qsfp_refclk_reset", "AT22 AR21", "LVCMOS12", **WEAK),
        bus("qsfp_refclk_fs", "AT20 AU22 AR22 AU20", "LVCMOS12", **WEAK),
        lanes("", "N4 M2 L4 K2", "N3 M1 L3 K1", "N9 M7 L9 K7", "N8 M6 L8 K6"),
        lanes("", "U4 T2 R4 P2", "U3 T1 R3 P1", "U9 T7 R9 P7", "U8 T6 R8 P6", first=4),
        bus(
            "ddr4_adr",
            "AT36 AV36 AV37 AW35 AW36 AY36 AY35 BA40 BA37 BB37 AR35 BA39 BB40 AN36 AP35 AP36 AR36",
            "SSTL12_DCI",
        ),
        bus("ddr4_ba", "AT35 AT34", "SSTL12_DCI"),
        bus("ddr4_bg", "BC37 BC39", "SSTL12_DCI"),
        bus("ddr4_ck_t", "AV38", "DIFF_SSTL12_DCI"),
        bus("ddr4_ck_c", "AW38", "DIFF_SSTL12_DCI"),
        bus("ddr4_cke", "BC38", "SSTL12_DCI"),
        bus("ddr4_cs_n", "AR33", "SSTL12_DCI"),
        one("ddr4_act_n", "BB39", "SSTL12_DCI"),
        bus("ddr4_odt", "AP34", "SSTL12_DCI"),
        one("ddr4_parity", "AU36", "SSTL12_DCI"),
        one("ddr4_reset_n", "AU31", "LVCMOS12"),
        bus(
            "ddr4_dq",
            "AW28 AW29 BA28 BA27 BB29 BA29 BC27 BB27 BE28 BF28 BE30 BD30 BF27 BE27 BF30 BF29 BB31 BB32 AY32 AY33 "
            "BC32 BC33 BB34 BC34 "
            "AV31 AV32 AV34 AW34 AW31 AY31 BA35 BA34 AL30 AM30 AU32 AT32 AN31 AN32 AR32 AR31 AP29 AP28 AN27 AM27 "
            "AN29 AM29 AR27 AR28 "
            "AT28 AV27 AU27 AT27 AV29 AY30 AW30 AV28 BD34 BD33 BE33 BD35 BF32 BF33 BF34 BF35 BD40 BD39 BF43 BF42 "
            "BF37 BE37 BE40 BF41",
            "POD12_DCI",
        ),
        bus(
            "ddr4_dqs_t",
            "BA30 BB26 BD28 BD26 BB35 BC31 AV33 BA32 AM31 AP30 AL28 AR30 AU29 AY27 BE35 BE31 BE38 BF39",
            "DIFF_POD12_DCI",
        ),
        bus(
            "ddr4_dqs_c",
            "BB30 BC26 BD29 BE26 BB36 BD31 AW33 BA33 AM32 AP31 AL29 AT30 AU30 AY28 BE36 BE32 BF38 BF40",
            "DIFF_POD12_DCI",
        ),
    ),
)

U280 = Platform(
    name="alveo_u280",
    part="xcu280-fsvh2892-2L-e",
    series="usp",
    clock=Clock("sys_clk", 100),
    refclks=(Clock("refclk0", 161.1328125), Clock("refclk1", 161.1328125)),
    memory="hbm",
    lanes=(quad(0, 40), quad(0, 44)),
    bitstream=(*ALVEO_BITSTREAM, ("CONFIG_MODE", "SPIx4"), ("BITSTREAM.CONFIG.CONFIGRATE", "85.0")),
    pins=every(
        pair("sys_clk", "BJ43", "BJ44", "LVDS"),
        pair("refclk0", "R40", "R41"),
        pair("refclk1", "M42", "M43"),
        one("hbm_cattrip", "D32", "LVCMOS18", **WEAK),
        bus("qsfp_refclk_oe_n", "H32 H30", "LVCMOS18", **WEAK),
        bus("qsfp_refclk_fs", "G32 G33", "LVCMOS18", **WEAK),
        lanes("", "L53 K51 J53 H51", "L54 K52 J54 H52", "L48 L44 K46 J48", "L49 L45 K47 J49"),
        lanes("", "G53 F51 E53 D51", "G54 F52 E54 D52", "G48 E48 C48 A49", "G49 E49 C49 A50", first=4),
    ),
)

U50 = Platform(
    name="alveo_u50",
    part="xcu50-fsvh2104-2-e",
    series="usp",
    clock=Clock("sys_clk", 100),
    refclks=(Clock("refclk0", 161.1328125),),
    memory="hbm",
    lanes=(quad(0, 28),),
    bitstream=(*ALVEO_BITSTREAM, ("CONFIG_MODE", "SPIx4"), ("BITSTREAM.CONFIG.CONFIGRATE", "85.0")),
    pins=every(
        pair("sys_clk", "BB18", "BC18", "LVDS"),
        pair("refclk0", "N36", "N37"),
        one("hbm_cattrip", "J18", "LVCMOS18", **WEAK),
        bus("led", "E18 E16 F17", "LVCMOS18", **WEAK),
        lanes("", "J45 G45 F43 E45", "J46 G46 F44 E46", "D42 C40 B42 A40", "D43 C41 B43 A41"),
    ),
)

PLATFORMS = {platform.name: platform for platform in (SUME, U250, U280, U50)}


class Synchronizers:
    """The synchronisers that Amaranth requests of a platform, marked for Vivado (UG912, ASYNC_REG): placed side by
    side, not merged, and recognised by `report_cdc`."""

    ATTRS = {"ASYNC_REG": "TRUE"}

    def get_ff_sync(self, sync):
        m = Module()
        stages = [
            Signal(sync.i.shape(), name=f"stage{k}", init=sync._init, reset_less=sync._reset_less, attrs=self.ATTRS)
            for k in range(sync._stages)
        ]
        for before, stage in zip((sync.i, *stages), stages, strict=False):
            m.d[sync._o_domain] += stage.eq(before)
        m.d.comb += sync.o.eq(stages[-1])
        return m

    def get_async_ff_sync(self, sync):
        m = Module()
        m.domains += ClockDomain("async_ff", async_reset=True, local=True)
        stages = [Signal(name=f"stage{k}", init=1, attrs=self.ATTRS) for k in range(sync._stages)]
        for before, stage in zip((0, *stages), stages, strict=False):
            m.d.async_ff += stage.eq(before)
        m.d.comb += [
            ResetSignal("async_ff").eq(sync.i if sync._edge == "pos" else ~sync.i),
            ClockSignal("async_ff").eq(ClockSignal(sync._o_domain)),
            sync.o.eq(stages[-1]),
        ]
        return m
