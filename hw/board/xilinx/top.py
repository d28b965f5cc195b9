"""The top module of a Xilinx board: clocks, resets, transceivers, MACs and memory around the shell."""

from dataclasses import dataclass, field

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    Const,
    DomainRenamer,
    Elaboratable,
    Fragment,
    Instance,
    IOPort,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.lib.cdc import ResetSynchronizer

from hw.board.boards import DEFAULT_IP, DEFAULT_MAC, Board
from hw.board.shell import wire_order
from hw.board.xilinx import ip as xilinx_ip
from hw.board.xilinx.cmac import Cmac
from hw.board.xilinx.flat_shell import shell_pins
from hw.board.xilinx.i2c import I2cWriter
from hw.board.xilinx.ip import Ip
from hw.board.xilinx.memory import MEMORIES
from hw.board.xilinx.platform import PLATFORMS, Platform, Synchronizers
from hw.board.xilinx.port import PORT, port_pins
from hw.board.xilinx.si5324 import writes
from hw.board.xilinx.transceivers import GthQuad, GtyQuad, domains
from hw.interface.axi import Axi4, address_bits_of, pins

__all__ = ["FREERUN_MHZ", "Crossing", "Domain", "Top"]

FREERUN_MHZ = 100
"""Clock of domain `init`, which runs before transceivers and memory do, and resets them."""
I2C_KHZ = 100
POWER_UP_MS = 10
"""Time before the Si5324 answers (data sheet, 'ready for I2C')."""
MMCM = {
    200: {200: (1, 5.0, 5.0, 10)},
    300: {250: (3, 10.0, 4.0, 10), 300: (1, 4.0, 4.0, 12)},
    100: {250: (1, 10.0, 4.0, 10), 300: (1, 12.0, 4.0, 12)},
}
"""By MHz in and MHz of the core: divider, multiplier, the core's divider, the divider of `init`. The oscillator runs at
1000 or 1200 MHz, within 600 to 1440 of a 7 series part of grade -3 (DS183) and 800 to 1600 of an UltraScale+
(DS923)."""


@dataclass(frozen=True)
class Domain:
    """A clock domain by its name in constraints. `pin` is the cell's pin that carries the clock."""

    name: str
    mhz: float
    pin: str


@dataclass(frozen=True)
class Crossing:
    """A clock domain crossing: all its signals pass synchronisers."""

    source: str
    sink: str


@dataclass
class Wiring:
    """Results of the elaboration, for constraints and checker."""

    ips: dict[str, Ip] = field(default_factory=dict)
    ports: dict[str, Signal | IOPort] = field(default_factory=dict)
    domains: list[Domain] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)


class Top(Elaboratable):
    """The top module of a board. After `elaborate`, `wiring` has its ports, IP, clocks and crossings. The shell is an
    instance of module `shell`, a 10G or 25G port one of module `port`; both are emitted separately, once."""

    def __init__(self, board: Board, *, mac: str = DEFAULT_MAC, ip: str = DEFAULT_IP, operator_key: int = 0):
        self.board, self.config, self.mac, self.ip, self.operator_key = board, board.config, mac, ip, operator_key
        self.platform: Platform = PLATFORMS[board.platform]
        self.wiring = Wiring()
        self.buses = {pin.port.partition("[")[0] for pin in self.platform.pins if "[" in pin.port}

    # Pins

    def width(self, name: str) -> int:
        return sum(pin.port == name or pin.port.startswith(f"{name}[") for pin in self.platform.pins)

    def port(self, name: str, width: int | None = None) -> Signal:
        """Return a port that logic drives or reads."""
        return self.wiring.ports.setdefault(name, Signal(width or self.width(name), name=name))

    def pad(self, name: str) -> IOPort:
        """Return a bidirectional port, or one of IP with buffers of its own."""
        return self.wiring.ports.setdefault(name, IOPort(self.width(name), name=name))

    def serial(self, first: int, count: int) -> dict[str, Signal]:
        """Return the serial ports of these lanes."""
        return {name: self.port(name, self.lanes)[first : first + count] for name in ("rx_p", "rx_n", "tx_p", "tx_n")}

    @property
    def lanes(self) -> int:
        return 4 if self.board.gbps == 100 else self.config.ports

    # Clock domain crossings

    def domain(self, name: str, mhz: float, pin: str) -> None:
        self.wiring.domains.append(Domain(name, mhz, pin))

    def cross(self, *names: str) -> None:
        """Declare a crossing in both directions."""
        self.wiring.crossings += [Crossing(names[0], names[1]), Crossing(names[1], names[0])]

    def take(self, *ips: Ip) -> None:
        self.wiring.ips |= {ip.module: ip for ip in ips}

    def elaborated(self) -> Fragment:
        """Return the elaborated design, with `wiring` filled in."""
        return Fragment.get(self, Synchronizers())

    def elaborate(self, platform):
        m = Module()
        self._clocks(m)
        shell = self._shell(m)
        reset = self._before_transceivers(m)
        if self.board.gbps == 100:
            self._ports_100g(m, shell, reset)
        else:
            self._ports_serial(m, shell, reset)
        if self.config.replay:
            MEMORIES[self.platform.memory](self, m)
        self._lights(m, shell)
        return m

    def _clocks(self, m):
        series = self.platform.series
        core_mhz, source = self.board.core_mhz, self.platform.clock
        divide, multiply, core_divide, init_divide = MMCM[round(source.mhz)][round(core_mhz)]
        self.raw, feedback, self.locked = Signal(name="raw"), Signal(name="feedback"), Signal(name="locked")
        made, clocks = Signal(2, name="made"), Signal(2, name="clocks")
        self.reset = self.port("reset") if self.width("reset") else Const(0)
        m.submodules.sys_clk = Instance("IBUFDS", i_I=self.port("sys_clk_p"), i_IB=self.port("sys_clk_n"), o_O=self.raw)
        m.submodules.mmcm = Instance(
            "MMCME2_BASE" if series == "7" else "MMCME4_BASE",
            p_CLKIN1_PERIOD=1e3 / source.mhz,
            p_DIVCLK_DIVIDE=divide,
            p_CLKFBOUT_MULT_F=multiply,
            p_CLKOUT0_DIVIDE_F=core_divide,
            p_CLKOUT1_DIVIDE=init_divide,
            i_CLKIN1=self.raw,
            i_CLKFBIN=feedback,
            o_CLKFBOUT=feedback,
            i_RST=self.reset,
            i_PWRDWN=Const(0),
            o_CLKOUT0=made[0],
            o_CLKOUT1=made[1],
            o_LOCKED=self.locked,
        )
        for k, (domain, name, mhz) in enumerate((("sync", "core", core_mhz), ("init", "init", FREERUN_MHZ))):
            m.domains += ClockDomain(domain)
            m.submodules[f"{name}_clock"] = Instance("BUFG", i_I=made[k], o_O=clocks[k])
            m.d.comb += ClockSignal(domain).eq(clocks[k])
            m.submodules[f"{name}_reset"] = ResetSynchronizer(~self.locked, domain=domain)
            self.domain(name, mhz, f"mmcm/CLKOUT{k}")

    def _shell(self, m):
        wires = {name: Signal(width, name=f"shell_{name}") for name, _, width, _ in shell_pins(self.config)}
        connections = {f"{flow[0]}_{name}": wires[name] for name, flow, _, _ in shell_pins(self.config)}
        if self.config.replay:
            self.address_bits = address_bits_of(self.config.replay.memory_bytes)
            self.memory = Axi4(self.address_bits, data_bits=self.config.bus_bits).create(path=("memory",))
            connections |= {
                f"{'o' if flow.name == 'Out' else 'i'}_memory_{name}": value for name, flow, value in pins(self.memory)
            }
        m.submodules.shell = Instance("shell", i_clk=ClockSignal(), i_rst=ResetSignal(), **connections)
        m.d.comb += [
            wires["own_mac"].eq(wire_order(self.mac)),
            wires["own_ip"].eq(wire_order(self.ip)),
            wires["operator_key"].eq(self.operator_key),
        ]
        return wires

    def _before_transceivers(self, m):
        """Add the logic that must be done before the transceivers run, and return their reset."""
        reset = Signal(name="transceiver_reset", init=1)
        ready = Const(1)
        if self.width("i2c_scl"):
            m.submodules.i2c = i2c = DomainRenamer("init")(
                I2cWriter(
                    writes(),
                    quarter_cycles=FREERUN_MHZ * 1000 // I2C_KHZ // 4,
                    delay_cycles=FREERUN_MHZ * 1000 * POWER_UP_MS,
                )
            )
            for line in ("scl", "sda"):
                m.submodules[line] = Instance(
                    "IOBUF",
                    io_IO=self.pad(f"i2c_{line}"),
                    i_I=Const(0),
                    i_T=getattr(i2c, f"{line}_o"),
                    o_O=getattr(i2c, f"{line}_i"),
                )
            m.d.comb += [self.port("i2c_mux_reset").eq(0), self.port("si5324_reset").eq(ResetSignal("init"))]
            ready = i2c.done
        cages = self.width("qsfp_modsel_n")
        used = -(-self.lanes // 4)
        if cages:
            held = Signal(name="refclk_reset", init=1)
            m.d.init += held.eq(0)
            for cage in range(used):
                for name, value in (("modsel_n", 0), ("reset_n", 1), ("lpmode", 0), ("refclk_reset", held)):
                    m.d.comb += self.port(f"qsfp_{name}", used)[cage].eq(value)
                m.d.comb += self.port("qsfp_refclk_fs", 2 * used)[2 * cage : 2 * cage + 2].eq(0b10)  # 161.1328125 MHz
        elif self.width("qsfp_refclk_fs"):
            m.d.comb += [
                self.port("qsfp_refclk_oe_n", used).eq(0),
                self.port("qsfp_refclk_fs", used).eq((1 << used) - 1),
            ]
        m.d.init += reset.eq(~ready)
        return reset

    def _ports_serial(self, m, shell, reset):
        """Add 10G or 25G ports: transceivers, and our PCS and MAC for each port."""
        tall, platform = self.board.gbps > 11, self.platform
        blocks = []
        if platform.series == "7":
            ip = xilinx_ip.gth(channels=platform.lanes[0], refclk="REFCLK0", quad=8, freerun_mhz=FREERUN_MHZ)
            self.take(ip)
            m.submodules.quad = quad = GthQuad(ip, platform.lanes[0], 8)
            m.d.comb += [
                quad.reset.eq(reset),
                quad.refclk_p.eq(self.port("refclk_p")),
                quad.refclk_n.eq(self.port("refclk_n")),
            ]
            self._pads(m, quad, 0, self.config.ports)
            blocks += quad.blocks
            order = sorted(platform.lanes[0], key=lambda place: int(place.rpartition("Y")[2]))
            for port, place in enumerate(platform.lanes[0]):
                for side, name in zip(("tx", "rx"), domains(port), strict=True):
                    self.domain(name, 10312.5 / 64, f"quad/wizard/gt{order.index(place)}_{side}usrclk2_out")
        else:
            ips = xilinx_ip.gty(
                gbps=25.78125 if tall else 10.3125, refclk_mhz=platform.refclks[0].mhz, freerun_mhz=FREERUN_MHZ
            )
            self.take(*ips)
            for cage, first in enumerate(range(0, self.config.ports, 4)):
                lanes = min(4, self.config.ports - first)
                refclk = Signal(name=f"refclk_{cage}")
                m.submodules[f"refclk_{cage}"] = Instance(
                    "IBUFDS_GTE4",
                    i_I=self.port(f"refclk{cage}_p"),
                    i_IB=self.port(f"refclk{cage}_n"),
                    i_CEB=Const(0),
                    o_O=refclk,
                    o_ODIV2=Signal(name=f"half_{cage}"),
                )
                m.submodules[f"quad_{cage}"] = quad = GtyQuad(ips, first=first, lanes=lanes)
                m.d.comb += [quad.reset.eq(reset), quad.refclk.eq(refclk)]
                self._pads(m, quad, first, lanes)
                blocks += quad.blocks
                for lane in range(lanes):
                    for side, name in zip(("tx", "rx"), domains(first + lane), strict=True):
                        self.domain(
                            name,
                            (25781.25 if tall else 10312.5) / 66,
                            f"quad_{cage}/lane_{lane}/gtwiz_userclk_{side}_usrclk2_out",
                        )
        for port, lane in enumerate(blocks):
            tx, rx = domains(port)
            own = {
                "clk": ClockSignal(),
                "rst": ResetSignal(),
                "tx_clk": ClockSignal(tx),
                "tx_rst": ResetSignal(tx),
                "rx_clk": ClockSignal(rx),
                "rx_rst": ResetSignal(rx),
                "link": shell["link"][port],
            }
            connections = {}
            for name, flow, _ in port_pins(self.config.bus_bits):
                value = own.get(name)
                if value is None:
                    value = getattr(lane, name[3:]) if name.startswith("gt_") else shell[f"{name[:2]}{port}_{name[3:]}"]
                connections[f"{flow}_{name}"] = value
            m.submodules[f"port_{port}"] = Instance(PORT, **connections)
            self.cross("core", tx)
            self.cross("core", rx)
            self.cross(tx, rx)
        if platform.series == "7":
            m.d.comb += [self.port("sfp_tx_disable").eq(0), self.port("sfp_rs").eq(-1), self.port("sfp_rs_tx").eq(-1)]

    def _pads(self, m, quad, first, count):
        pads = self.serial(first, count)
        m.d.comb += [
            quad.rx_p.eq(pads["rx_p"]),
            quad.rx_n.eq(pads["rx_n"]),
            pads["tx_p"].eq(quad.tx_p),
            pads["tx_n"].eq(quad.tx_n),
        ]

    def _ports_100g(self, m, shell, reset):
        places = {"alveo_u250": "CMACE4_X0Y8", "alveo_u280": "CMACE4_X0Y6", "alveo_u50": "CMACE4_X0Y4"}
        ip = xilinx_ip.cmac(
            refclk_mhz=self.platform.refclks[0].mhz,
            freerun_mhz=FREERUN_MHZ,
            core=places[self.platform.name],
            lanes=self.platform.lanes[0],
            longest=self.config.frame_bytes_max + 4,
        )
        self.take(ip)
        m.submodules.port_0 = mac = Cmac(ip)
        m.d.comb += [
            mac.reset.eq(reset),
            mac.refclk_p.eq(self.port("refclk0_p")),
            mac.refclk_n.eq(self.port("refclk0_n")),
        ]
        self._pads(m, mac, 0, 4)
        m.d.comb += shell["link"].eq(mac.link)
        for name, member in (("data", "data"), ("bytes", "count"), ("last", "last"), ("error", "error")):
            m.d.comb += shell[f"rx0_{name}"].eq(mac.rx.payload[member])
            if name != "error":
                m.d.comb += mac.tx.payload[member].eq(shell[f"tx0_{name}"])
        m.d.comb += [
            shell["rx0_valid"].eq(mac.rx.valid),
            mac.rx.ready.eq(shell["rx0_ready"]),
            mac.tx.valid.eq(shell["tx0_valid"]),
            shell["tx0_ready"].eq(mac.tx.ready),
        ]
        self.domain("port0_mac", 322.265625, "port_0/mac/gt_txusrclk2")
        self.cross("core", "port0_mac")

    def _lights(self, m, shell):
        lit = shell["leds"]
        ports = self.config.ports
        if self.width("sfp_led"):
            m.d.comb += [self.port("sfp_led").eq(lit[:ports]), self.port("led").eq(lit[ports:])]
        elif self.width("led"):
            m.d.comb += self.port("led").eq(Cat(lit[:ports].any(), lit[ports:]))
        if not self.config.replay and self.width("hbm_cattrip"):
            m.d.comb += self.port("hbm_cattrip").eq(0)
