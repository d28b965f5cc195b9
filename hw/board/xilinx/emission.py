"""The Verilog of a Xilinx board: top, port and shell, a file each, with the attributes that Vivado reads."""

import re
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import Elaboratable, Fragment
from amaranth.lib.wiring import Out

from hw.board.boards import Board
from hw.board.xilinx.flat_shell import shell_module, shell_pins
from hw.board.xilinx.ip import PRIMITIVES, Port, stub
from hw.board.xilinx.platform import Synchronizers
from hw.board.xilinx.port import PORT, port_module
from hw.board.xilinx.top import Top
from hw.interface.axi import Axi4, address_bits_of, pins
from hw.synthesis.emit import payload_memories_uninitialised, tool
from iswitch.config import Config

__all__ = ["emit", "emit_port", "emit_shell", "emit_top", "shell_stub", "stubs"]


def emit(module: Elaboratable | Fragment, name: str, ports) -> str:
    """Return a module as Verilog-2005, with its attributes and without paths of this machine."""
    with payload_memories_uninitialised():
        text = rtlil_backend.convert(module, name=name, platform=Synchronizers(), ports=ports, emit_src=False)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in.il").write_text(text)
        # As in `hw.synthesis.emit.verilog`; attributes of Amaranth and Yosys have no meaning in Vivado.
        tool(
            "yosys",
            [
                "-q",
                "-p",
                "read_rtlil in.il; proc; opt_expr; opt_clean; memory_collect; setattr -mod -unset generator; "
                "setattr -mod -unset top; write_verilog out.v",
            ],
            Path(folder),
        )
        return (Path(folder) / "out.v").read_text()


def emit_top(board: Board, **settings: Any) -> tuple[Top, str]:
    """Emit the board without the inside of its shell, in seconds. `settings` are `mac`, `ip` and `operator_key`, if
    they differ from the defaults."""
    top = Top(board, **settings)
    fragment = top.elaborated()
    text = emit(fragment, "top", list(top.wiring.ports.values()))
    # A bus of one bit stays a bus: the vendor's IP brings constraints for name[0].
    for name, port in top.wiring.ports.items():
        if name in top.buses and len(port) == 1:
            text = re.sub(
                rf"^(  (?:input|output|inout|wire|reg)) {name}( = .*)?;$",
                rf"\1 [0:0] {name}\2;",
                text,
                flags=re.MULTILINE,
            )
    return top, text


def emit_shell(board: Board) -> str:
    """Emit the shell with the switch: minutes for a large one."""
    module, ports = shell_module(board)
    return emit(module, "shell", ports)


def emit_port(board: Board) -> dict[str, str]:
    """Emit the module `port` as a file, for boards with our own MAC: seconds."""
    return {"port.v": port_text(board.config)} if board.gbps < 100 else {}


@lru_cache(maxsize=4)
def port_text(config: Config) -> str:
    module, ports = port_module(config)
    return emit(module, PORT, ports)


def shell_stub(board: Board) -> str:
    """Return a black box with the shell's pins, for quick checks of its surroundings; a project has the switch
    itself."""
    return stub("shell", shell_ports(board))


def shell_ports(board: Board) -> dict[str, Port]:
    found = {"clk": Port("clk", "in", 1, "clock"), "rst": Port("rst", "in", 1, "clk")}
    found |= {name: Port(name, flow, width, "clk") for name, flow, width, _ in shell_pins(board.config)}
    if board.config.replay:
        memory = Axi4(address_bits_of(board.config.replay.memory_bytes), data_bits=board.config.bus_bits)
        found |= {
            f"memory_{name}": Port(f"memory_{name}", "out" if flow == Out else "in", len(value), "clk")
            for name, flow, value in pins(memory.create())
        }
    return found


def stubs(board: Board, top: Top) -> dict[str, dict[str, Port]]:
    """Return the modules that `top` instantiates, with their pins."""
    return {**PRIMITIVES, **{ip.module: dict(ip.pins) for ip in top.wiring.ips.values()}, "shell": shell_ports(board)}
