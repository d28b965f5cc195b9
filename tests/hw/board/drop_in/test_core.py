# amaranth: UnusedElaboratable=no
"""The drop-in core between third-party models of AXI4-Stream and AXI4-Lite, with a reflector in place of the switch
and, slow, with the switch.

Mutants of the splitter and the merger of packets are in tests/hw/board/drop_in/test_axi_stream.py, in seconds.
"""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from scapy.layers.l2 import ARP, Ether

from hw.board.drop_in.axi_stream import NETFPGA, OPENNIC
from hw.board.drop_in.core import CORES, DropIn, flat, registers
from hw.board.shell import Microseconds
from hw.board.xilinx.emission import emit
from hw.interface.address import Parent
from hw.stream.packet import Packet
from iswitch.config import Config
from sim.bench.run_cocotb import BUILD, simulate

SMALL = Config(
    ports=4,
    bus_bits=256,
    members=2,
    jobs=2,
    window=1,
    elements=64,
    queue_bytes=4096,
    mac_entries=64,
    staleness=0,
    uplinks=False,
)
WIDE = Config(
    ports=2,
    bus_bits=512,
    members=2,
    jobs=2,
    window=1,
    elements=64,
    queue_bytes=4096,
    mac_entries=64,
    staleness=0,
    uplinks=False,
)
CLOCK_HZ = 1_000_000


class Reflector(wiring.Component):
    """With the shell's interface: frames of port p leave by port p + 1."""

    def __init__(self, config, clock_hz):
        self.config, self.clock = config, Microseconds(clock_hz=clock_hz)
        word = stream.Signature(Packet(config.bus_bits))
        super().__init__(
            {
                "rx": In(word).array(config.ports),
                "tx": Out(word).array(config.ports),
                "link": In(config.ports),
                "own_mac": In(48),
                "own_ip": In(32),
                "operator_key": In(64),
                "parents": In(Parent).array(config.jobs),
                "leds": Out(config.ports + 2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = self.clock
        for port, rx in enumerate(self.rx):
            tx = self.tx[(port + 1) % self.config.ports]
            m.submodules[f"fifo_{port}"] = fifo = SyncFIFOBuffered(width=Packet(self.config.bus_bits).size, depth=8)
            m.d.comb += [
                fifo.w_data.eq(rx.payload),
                fifo.w_en.eq(rx.valid),
                rx.ready.eq(fifo.w_rdy),
                tx.payload.eq(fifo.r_data),
                tx.valid.eq(fifo.r_rdy),
                fifo.r_en.eq(tx.ready),
            ]
        # No port of the core may drive an LED.
        m.d.comb += self.leds.eq(Signal.like(self.leds))
        return m


def run(monkeypatch, top, core):
    monkeypatch.setenv("ISWITCH_TOP", top)
    module, ports = flat(core)
    text = emit(module, top, ports)
    if core.tuser.split:
        text = joined(text, top)
    return simulate(top, text, "sim.bench.cocotb_netfpga", only=f"test_{top}_", folder=BUILD / top)


def joined(text, top):
    """The core with one tuser in front: cocotbext-axi knows no other."""
    inner = text.replace(f"module {top}(", f"module {top}_split(")
    lines = [
        "",
        f"module {top}(axis_aclk, axis_resetn, "
        + ", ".join(
            f"{side}_{name}"
            for side in ("s_axis", "m_axis")
            for name in ("tdata", "tkeep", "tlast", "tvalid", "tready", "tuser")
        )
        + ", "
        + ", ".join(f"s_axi_{name}" for name in AXI)
        + ");",
        "  input axis_aclk, axis_resetn;",
    ]
    for side, forth, back in (("s_axis", "input", "output"), ("m_axis", "output", "input")):
        lines += [
            f"  {forth} [511:0] {side}_tdata;",
            f"  {forth} [63:0] {side}_tkeep;",
            f"  {forth} {side}_tlast, {side}_tvalid;",
            f"  {back} {side}_tready;",
            f"  {forth} [47:0] {side}_tuser;",
        ]
    lines += [
        f"  {flow} {f'[{width - 1}:0] ' if width > 1 else ''}s_axi_{name};" for name, (flow, width) in AXI.items()
    ]
    parts = [
        f".{side}_tuser_{part}({side}_tuser[{at + 15}:{at}])"
        for side in ("s_axis", "m_axis")
        for part, at in (("size", 0), ("src", 16), ("dst", 32))
    ]
    names = [
        "axis_aclk",
        "axis_resetn",
        *(
            f"{side}_{name}"
            for side in ("s_axis", "m_axis")
            for name in ("tdata", "tkeep", "tlast", "tvalid", "tready")
        ),
        *(f"s_axi_{name}" for name in AXI),
    ]
    lines += [
        f"  {top}_split core (" + ", ".join([*(f".{name}({name})" for name in names), *parts]) + ");",
        "endmodule",
        "",
    ]
    return inner + "\n".join(lines)


AXI = {
    "awaddr": ("input", 12),
    "awprot": ("input", 3),
    "awvalid": ("input", 1),
    "awready": ("output", 1),
    "wdata": ("input", 32),
    "wstrb": ("input", 4),
    "wvalid": ("input", 1),
    "wready": ("output", 1),
    "bresp": ("output", 2),
    "bvalid": ("output", 1),
    "bready": ("input", 1),
    "araddr": ("input", 12),
    "arprot": ("input", 3),
    "arvalid": ("input", 1),
    "arready": ("output", 1),
    "rdata": ("output", 32),
    "rresp": ("output", 2),
    "rvalid": ("output", 1),
    "rready": ("input", 1),
}


def reflector(config=SMALL, tuser=NETFPGA, clock_hz=CLOCK_HZ):
    return DropIn(config, tuser, clock_hz=clock_hz, inside=Reflector(config, 200_000_000))


def test_frames_and_registers(monkeypatch):
    assert len(run(monkeypatch, "reflector", reflector())) == 4


@pytest.mark.slow
def test_frames_of_opennic(monkeypatch):
    assert len(run(monkeypatch, "opennic", reflector(WIDE, OPENNIC))) == 2


@pytest.mark.slow
def test_the_switch_itself(monkeypatch):
    assert len(run(monkeypatch, "core", DropIn(SMALL, NETFPGA, clock_hz=200_000_000))) == 2


def test_the_switch_answers_and_floods():
    """A quick sibling of the slow one: ARP is answered at its port, a frame to an unknown address leaves by all
    others."""
    dut, alice, found = DropIn(SMALL, NETFPGA, clock_hz=200_000_000), "02:00:00:00:00:0a", []
    asked = bytes(
        Ether(src=alice, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=alice, psrc="10.0.0.1", pdst="10.0.0.100")
    ).ljust(60, b"\0")
    unknown = bytes(Ether(src=alice, dst="02:00:00:00:00:0c", type=0x88B5)) + bytes(range(63))

    async def bench(ctx):
        await ctx.tick().repeat(100)
        ctx.set(dut.m_axis.tready, 1)
        for frame in (asked, unknown):
            for at in range(0, len(frame), 32):
                part = frame[at : at + 32]
                for name, value in (
                    ("tdata", int.from_bytes(part, "little")),
                    ("tkeep", (1 << len(part)) - 1),
                    ("tlast", at + 32 >= len(frame)),
                    ("tuser", len(frame) | 1 << 16 + 4),
                    ("tvalid", 1),
                ):
                    ctx.set(getattr(dut.s_axis, name), value)
                await ctx.tick().until(dut.s_axis.tready)
                ctx.set(dut.s_axis.tvalid, 0)
            got = b""
            for _ in range(110):
                *_, valid, data, keep, last, user = await ctx.tick().sample(
                    dut.m_axis.tvalid, dut.m_axis.tdata, dut.m_axis.tkeep, dut.m_axis.tlast, dut.m_axis.tuser
                )
                if valid:
                    got += data.to_bytes(32, "little")[: keep.bit_length()]
                    if last:
                        assert user & 0xFFFF == len(got)
                        found.append((got, user >> 24))
                        got = b""

    simulator = Simulator(dut)
    simulator.add_clock(5e-9)
    simulator.add_testbench(bench)
    simulator.run()
    (answer, place), *floods = found
    assert (
        place == 1 << 4
        and Ether(answer)[ARP].op == 2
        and Ether(answer)[ARP].hwsrc == "02:69:73:77:00:01"
        and Ether(answer).dst == alice
    )
    assert sorted(floods) == [(unknown, 1 << 0), (unknown, 1 << 2), (unknown, 1 << 6)]


def test_registers_do_not_overlap_and_begin_with_what_is_built():
    for config, _, _ in CORES.values():
        listed = registers(config)
        assert (
            len({register.address for register in listed}) == len({register.name for register in listed}) == len(listed)
        )
        assert [register.name for register in listed[:2]] == ["magic", "version"]


def test_config_ports_wrong():
    with pytest.raises(ValueError, match=r"config\.ports must be as many as tuser has places, 2, not 4"):
        DropIn(SMALL, OPENNIC, clock_hz=CLOCK_HZ)
