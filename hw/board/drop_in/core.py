"""The switch as a core for other pipelines: in place of the output port lookup of NetFPGA's reference switch, or in
OpenNIC's user box.

`python -m hw.board.drop_in.core [netfpga|opennic]` writes its Verilog to `build/<core>/`.
"""

import sys
from pathlib import Path

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.board.boards import DEFAULT_IP, DEFAULT_MAC
from hw.board.drop_in.axi_lite import AxiLite, Register, Registers
from hw.board.drop_in.axi_stream import NETFPGA, OPENNIC, AxiStream, RxSplit, Tuser, TxMerge
from hw.board.shell import Shell, wire_order
from hw.interface.axi import pins
from iswitch.config import Config
from iswitch.wire import MAGIC, VERSION

__all__ = ["CORES", "DropIn", "flat", "registers"]

ROOT = Path(__file__).parents[3]
CORES = {
    "netfpga": (Config(ports=4, bus_bits=256, window=64), NETFPGA, 200_000_000),
    "opennic": (Config(ports=2, bus_bits=512, window=64), OPENNIC, 250_000_000),
}
"""Each core's Config, its tuser layout, and the clock from which it counts microseconds."""
PARENT_WORDS = ("mac_low", "mac_high", "ip", "ranks", "port", "valid")


def registers(config: Config) -> list[Register]:
    """Return the register map: the configuration as built, the settings, and the state."""
    mac, ip = wire_order(DEFAULT_MAC), wire_order(DEFAULT_IP)
    found = [
        Register("magic", 0x00, "as the switch's own registers begin"),
        Register("version", 0x04, "of the protocol"),
        Register("ports", 0x08, "Config.ports"),
        Register("bus_bits", 0x0C, "Config.bus_bits"),
        Register("members", 0x10, "Config.members"),
        Register("jobs", 0x14, "Config.jobs"),
        Register("window", 0x18, "Config.window"),
        Register("elements", 0x1C, "Config.elements"),
        Register("own_mac_low", 0x20, "first four bytes of the switch's MAC, the first lowest", mac & 0xFFFF_FFFF),
        Register("own_mac_high", 0x24, "its last two", mac >> 32),
        Register("own_ip", 0x28, "the switch's IPv4 address, first byte lowest", ip),
        Register("now_us", 0x30, "microseconds since the reset"),
        Register("status", 0x34, "the LEDs: each port, then a contribution, then a loss"),
        Register("operator_key_low", 0x38, "the switch's operator key, its lowest 32 bits; 0 for none", 0, secret=True),
        Register("operator_key_high", 0x3C, "its highest 32 bits", 0, secret=True),
        Register("packets_in", 0x40, "packets taken"),
        Register("packets_out", 0x44, "packets sent"),
        Register("unknown_sources", 0x48, "packets from a source that is not one of our ports, dropped"),
    ]
    for job in range(config.jobs):
        at = 0x100 + 0x20 * job
        found += [
            Register(f"parent_{job}_{word}", at + 4 * k, f"of job {job}'s parent: {word.replace('_', ' ')}", 0)
            for k, word in enumerate(PARENT_WORDS)
        ]
    return found


class DropIn(wiring.Component):
    """`s_axis` in, `m_axis` out, registers at `s_axi`, all with one clock; `memory` if the Config has a replay service.

    Packets come without FCS and undamaged, as the MACs of those pipelines deliver them. A frame for several ports
    leaves as several packets, each with one destination. Addresses, parents and operator key may be set while no job
    runs. `inside` replaces the switch, with the interface of `Shell`.
    """

    def __init__(self, config: Config, tuser: Tuser, *, clock_hz: int, inside: wiring.Component | None = None):
        if config.ports != len(tuser.places):
            raise ValueError(
                f"DropIn config.ports must be as many as tuser has places, {len(tuser.places)}, not {config.ports!r}"
            )
        self.config, self.tuser = config, tuser
        self.shell = inside or Shell(config, clock_hz=clock_hz)
        bus = AxiStream(config.bus_bits, tuser)
        super().__init__(
            {
                "s_axis": In(bus),
                "m_axis": Out(bus),
                "s_axi": In(AxiLite()),
                **({"memory": Out(self.shell.memory.signature)} if config.replay else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        longest = -(-config.frame_bytes_max // config.bus_bytes)
        m.submodules.shell = shell = self.shell
        m.submodules.split = split = RxSplit(config.bus_bits, self.tuser)
        m.submodules.merge = merge = TxMerge(config.bus_bits, self.tuser, words=1 << (4 * longest - 1).bit_length())
        m.submodules.registers = file = Registers(registers(config))
        connect(m, flipped(self.s_axis), split.i)
        connect(m, merge.o, flipped(self.m_axis))
        connect(m, flipped(self.s_axi), file.bus)
        for port in range(config.ports):
            connect(m, split.rx[port], shell.rx[port])
            connect(m, shell.tx[port], merge.tx[port])
        if config.replay:
            connect(m, shell.memory, flipped(self.memory))

        counted = {"packets_in": split.frame, "packets_out": merge.frame, "unknown_sources": split.stat_unknown_source}
        shown = {
            "magic": MAGIC,
            "version": VERSION,
            "now_us": shell.clock.now,
            "status": shell.leds,
            **{name: getattr(config, name) for name in ("ports", "bus_bits", "members", "jobs", "window", "elements")},
        }
        for name, event in counted.items():
            total = Signal(32, name=f"total_{name}")
            m.d.sync += total.eq(total + event)
            shown[name] = total
        m.d.comb += [file.read(name).eq(value) for name, value in shown.items()]
        m.d.comb += [
            shell.link.eq(-1),
            shell.own_ip.eq(file.written("own_ip")),
            shell.own_mac.eq(Cat(file.written("own_mac_low"), file.written("own_mac_high")[:16])),
            shell.operator_key.eq(Cat(file.written("operator_key_low"), file.written("operator_key_high"))),
        ]
        for job, parent in enumerate(shell.parents):
            word = {name: file.written(f"parent_{job}_{name}") for name in PARENT_WORDS}
            m.d.comb += [
                parent.mac.eq(Cat(word["mac_low"], word["mac_high"][:16])),
                parent.ip.eq(word["ip"]),
                parent.ranks.eq(word["ranks"]),
                parent.port.eq(word["port"]),
                parent.valid.eq(word["valid"]),
            ]
        return m


def flat(core: DropIn) -> tuple[Module, list[Signal]]:
    """Return the core with the pin names of those pipelines: axis_aclk, axis_resetn, s_axis_tdata, ..., s_axi_awaddr,
    ..., m_axi_awaddr, ..."""
    m = Module()
    m.submodules.core = core
    clock, reset_n = Signal(name="axis_aclk"), Signal(name="axis_resetn")
    m.domains.sync = ClockDomain()
    m.d.comb += [ClockSignal().eq(clock), ResetSignal().eq(~reset_n)]
    listed = [clock, reset_n]

    def port(name: str, value, inward: bool) -> None:
        listed.append(Signal(len(value), name=name))
        m.d.comb += value.eq(listed[-1]) if inward else listed[-1].eq(value)

    tuser, bits = core.tuser, core.tuser.field_bits
    for name, bus, inward in (("s_axis", core.s_axis, True), ("m_axis", core.m_axis, False)):
        for member in ("tdata", "tkeep", "tlast", "tvalid"):
            port(f"{name}_{member}", getattr(bus, member), inward)
        port(f"{name}_tready", bus.tready, not inward)
        if tuser.split:
            for part, at, width in (
                ("size", tuser.length, 16),
                ("src", tuser.source, bits),
                ("dst", tuser.destination, bits),
            ):
                port(f"{name}_tuser_{part}", bus.tuser[at : at + width], inward)
        else:
            port(f"{name}_tuser", bus.tuser, inward)
    for path, member, value in core.s_axi.signature.flatten(core.s_axi):
        port(f"s_axi_{path[0]}", value, member.flow == In)
    if core.config.replay:
        for name, flow, value in pins(core.memory):
            port(f"m_axi_{name}", Value.cast(value), flow == In)
    return m, listed


def main(arguments: list[str]) -> int:
    from hw.board.xilinx.emission import emit

    if len(arguments) > 1 or not set(arguments) <= CORES.keys():
        print(f"python -m hw.board.drop_in.core [{'|'.join(CORES)}]", file=sys.stderr)
        return 2
    for name in arguments or CORES:
        config, tuser, clock_hz = CORES[name]
        folder = ROOT / "build" / f"iswitch_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        module, ports = flat(DropIn(config, tuser, clock_hz=clock_hz))
        (folder / "iswitch_core.v").write_text(emit(module, "iswitch_core", ports))
        print(folder / "iswitch_core.v")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
