"""ECP5 boards: pins, the design around the shell, and the build of a bitstream with Yosys and nextpnr."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.build import Pins, PinsN, Platform, Resource, Subsignal
from amaranth.hdl import Cat, ClockDomain, ClockSignal, Elaboratable, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import connect
from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform
from amaranth_boards.ecpix5 import ECPIX585Platform
from amaranth_boards.versa_ecp5 import VersaECP5Platform
from rich.console import Console

from hw.board.boards import DEFAULT_IP, DEFAULT_MAC, Board
from hw.board.ecp5.clocks import PLL_DOMAIN, Clocks, wire_domain
from hw.board.ecp5.liteeth import verilog
from hw.board.ecp5.rgmii import MAC, RgmiiPort
from hw.board.shell import Shell, wire_order
from hw.synthesis import place_and_route as route
from hw.synthesis.emit import for_synthesis

__all__ = ["WIRE_MHZ", "WIRINGS", "Top", "Wiring", "make", "platform_of", "prepare"]

WIRE_MHZ = 125.0
"""Clock of RGMII at 1 Gbit/s: four bits at each edge (RGMII 2.0, table 3)."""

PINS = {"tx_clk": "o", "tx_ctl": "o", "tx_data": "o", "rx_clk": "i", "rx_ctl": "i", "rx_data": "i"}


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """The used resources of a board. `clock`: an oscillator of `mhz`. `leds`: where the shell's LEDs appear, by number,
    as (resource, number, part of it). `straps`: switches that change the lowest bits of the addresses. `restart`: a
    button that resets the core, if the board has one. Delays: those that the PHY does not add to its transmit clock
    (tx), and to the received data against their clock (rx). `placer`: nextpnr's. The wires of `static` are shorter than
    those of `heap` by a tenth or more, which the fullest board needs. But its logic is so dense that nextpnr had
    not routed the Versa's after 16 minutes of processor time."""

    platform: type[Platform]
    clock: str
    mhz: float
    leds: dict[int, tuple[str, int, str]]
    straps: int = 0
    restart: str = ""
    tx_delay_ns: float = 0.0
    rx_delay_ns: float = 0.0
    placer: str = "heap"


WIRINGS = {
    # The only LED shows accepted contributions. The sockets have LEDs for the links.
    "colorlight_5a_75b": Wiring(
        platform=Colorlight_5A75B_R70Platform,
        clock="clk25",
        mhz=25.0,
        leds={2: ("led", 0, "")},
        rx_delay_ns=2.0,
        placer="static",
    ),
    "versa_ecp5": Wiring(
        platform=VersaECP5Platform,
        clock="clk100",
        mhz=100.0,
        leds={k: ("led", k, "") for k in range(4)},
        straps=4,
        restart="rst",
    ),
    "ecpix5_85f": Wiring(
        platform=ECPIX585Platform,
        clock="clk100",
        mhz=100.0,
        restart="rst",
        tx_delay_ns=2.0,
        leds={0: ("rgb_led", 0, "g"), 1: ("rgb_led", 0, "b"), 2: ("rgb_led", 0, "r")},
    ),
}


def platform_of(wiring: Wiring) -> Platform:
    """Return the board's platform with its ports in resources of one form, `port` 0, 1, ..., and each PHY reset pin
    once, as `phy_reset` 0, ..."""
    resources: list[Resource] = []
    resets: list[str] = []
    for resource in wiring.platform.resources:
        if resource.name != "eth_rgmii":
            resources.append(resource)
            continue
        parts = {part.name.replace("ctrl", "ctl"): part.ios[0] for part in resource.ios}
        resources.append(
            Resource(
                "port",
                resource.number,
                *(Subsignal(name, Pins(" ".join(parts[name].names), dir=parts[name].dir)) for name in PINS),
                resource.attrs,
            )
        )
        # Two PHYs can share a reset.
        if parts["rst"].names[0] not in resets:
            resources.append(Resource("phy_reset", len(resets), PinsN(parts["rst"].names[0], dir="o"), resource.attrs))
            resets.append(parts["rst"].names[0])
    return type(
        "Platform",
        (wiring.platform,),
        {"resources": resources, "default_clk": None, "default_rst": None, "phy_resets": len(resets)},
    )()


class Top(Elaboratable):
    """The shell, a MAC for each port, clocks and pins."""

    def __init__(self, board: Board, *, mac: str, ip: str, operator_key: int):
        self.board, self.mac, self.ip, self.operator_key = board, wire_order(mac), wire_order(ip), operator_key

    def elaborate(self, platform):
        m = Module()
        wiring, config = WIRINGS[self.board.name], self.board.config
        domains = tuple(f"port_{port}" for port in range(config.ports))
        restarts = bool(wiring.restart)
        m.domains += [ClockDomain("sync", reset_less=not restarts), *map(wire_domain, domains)]
        m.submodules.clocks = clocks = Clocks(
            board_mhz=wiring.mhz, core_mhz=self.board.core_mhz, domains=domains, restarts=restarts
        )
        m.submodules.shell = shell = Shell(config, clock_hz=round(self.board.core_mhz * 1e6))

        def pin(port, direction: str):
            m.submodules += (buffer := io.Buffer(direction, port))
            return buffer.i if direction == "i" else buffer.o

        m.d.comb += [
            clocks.clock.eq(pin(platform.request(wiring.clock, dir="-"), "i")),
            ClockSignal("sync").eq(clocks.core),
            *(
                pin(platform.request("phy_reset", number, dir="-"), "o").eq(clocks.phy_reset)
                for number in range(platform.phy_resets)
            ),
        ]
        if restarts:
            m.d.comb += clocks.restart.eq(pin(platform.request(wiring.restart, dir="-"), "i"))

        for number, domain in enumerate(domains):
            m.submodules[domain] = port = RgmiiPort(
                bus_bits=config.bus_bits, domain=domain, frame_bytes_max=config.frame_bytes_max
            )
            pins = platform.request("port", number, dir={name: "-" for name in PINS})
            platform.add_clock_constraint(pins.rx_clk.io, WIRE_MHZ * 1e6)
            m.d.comb += ClockSignal(domain).eq(pin(pins.rx_clk, "i"))
            for name, direction in PINS.items():
                if name != "rx_clk":
                    here, there = getattr(port, name), pin(getattr(pins, name), direction)
                    m.d.comb += there.eq(here) if direction == "o" else here.eq(there)
            connect(m, port.rx, shell.rx[number])
            connect(m, shell.tx[number], port.tx)
            m.d.comb += shell.link[number].eq(port.link)

        straps = Signal(8)
        if wiring.straps:
            switches = Cat(pin(platform.request("switch", number, dir="-"), "i") for number in range(wiring.straps))
            m.submodules.straps = FFSynchronizer(switches, straps[: wiring.straps])
        m.d.comb += [
            shell.own_mac.eq(self.mac ^ straps << 40),
            shell.own_ip.eq(self.ip ^ straps << 24),
            shell.operator_key.eq(self.operator_key),
        ]
        requested: dict[tuple[str, int], Any] = {}
        for led_index, (resource, number, part) in wiring.leds.items():
            if (resource, number) not in requested:
                requested[resource, number] = platform.request(
                    resource, number, dir={name: "-" for name in "rgb"} if part else "-"
                )
            led = requested[resource, number]
            m.d.comb += pin(getattr(led, part) if part else led, "o").eq(shell.leds[led_index])
        return m


def prepare(board: Board, folder: Path, *, mac: str = DEFAULT_MAC, ip: str = DEFAULT_IP, operator_key: int = 0) -> None:
    """Write the inputs of Yosys and nextpnr: `<board>.il`, `<MAC>.v` and the constraints `<board>.lpf`."""
    wiring = WIRINGS[board.name]
    with for_synthesis():
        plan = platform_of(wiring).prepare(Top(board, mac=mac, ip=ip, operator_key=operator_key), board.name)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (f"{board.name}.il", f"{board.name}.lpf"):
        text = plan.files[name]
        (folder / name).write_text(text if isinstance(text, str) else text.decode())
    (folder / f"{MAC}.v").write_text(verilog(MAC, tx_delay_ns=wiring.tx_delay_ns, rx_delay_ns=wiring.rx_delay_ns))


def make(
    board: Board, folder: Path, *, mac: str = DEFAULT_MAC, ip: str = DEFAULT_IP, operator_key: int = 0
) -> dict[str, Any]:
    """Make `<board>.bit` and `.svf` in the folder, and return the report. Raises RuntimeError if a tool fails."""
    with Console(stderr=True).status("gateware") as status:
        prepare(board, folder, mac=mac, ip=ip, operator_key=operator_key)
        required = {route.CORE: route.Clock("clk", board.core_mhz)}
        ports = tuple(f"port_{port}" for port in range(board.config.ports))
        required |= {port: route.Clock(f"{port}.", WIRE_MHZ) for port in ports}
        if not WIRINGS[board.name].restart:
            required[PLL_DOMAIN] = route.Clock(f"clocks.{PLL_DOMAIN}", board.core_mhz)
        return route.bitstream(
            board.name,
            folder,
            part=board.part,
            core_mhz=board.core_mhz,
            required=required,
            apart=ports,
            sources=[f"{MAC}.v"],
            progress=status.update,
            placer=WIRINGS[board.name].placer,
        )
