"""The shell with a flat pin for each field, as the module of a project's Verilog."""

from amaranth.hdl import Module, Shape, Signal, Value

from hw.board.boards import Board
from hw.board.shell import Shell
from hw.interface.axi import pins
from hw.stream.packet import Packet

__all__ = ["shell_module", "shell_pins"]


def shell_pins(config) -> list[tuple[str, str, int, tuple]]:
    """Return the shell's flat pins: name, direction, width, and place in the shell."""
    word = Packet(config.bus_bits)
    found: list[tuple[str, str, int, tuple]] = []
    for p in range(config.ports):
        for side, flow, back in (("rx", "in", "out"), ("tx", "out", "in")):
            for name, member in (("data", "data"), ("bytes", "count"), ("last", "last"), ("error", "error")):
                if (side, name) != ("tx", "error"):
                    found.append(
                        (f"{side}{p}_{name}", flow, Shape.cast(word[member].shape).width, (side, p, "payload", member))
                    )
            found += [
                (f"{side}{p}_valid", flow, 1, (side, p, "valid")),
                (f"{side}{p}_ready", back, 1, (side, p, "ready")),
            ]
    found += [
        ("link", "in", config.ports, ("link",)),
        ("own_mac", "in", 48, ("own_mac",)),
        ("own_ip", "in", 32, ("own_ip",)),
        ("operator_key", "in", 64, ("operator_key",)),
        ("leds", "out", config.ports + 2, ("leds",)),
    ]
    return found


def shell_module(board: Board) -> tuple[Module, list[Signal]]:
    """Return the shell with flat pins, named as by `hw.synthesis.emit.flat`; no job has a parent."""
    m = Module()
    m.submodules.shell = shell = Shell(board.config, clock_hz=round(board.core_mhz * 1e6))
    flat: list[Signal] = []
    for name, flow, width, path in shell_pins(board.config):
        value = shell
        for step in path:
            value = getattr(value, step) if isinstance(step, str) and hasattr(value, step) else value[step]
        flat.append(Signal(width, name=name))
        m.d.comb += value.eq(flat[-1]) if flow == "in" else flat[-1].eq(value)
    if board.config.replay:
        for name, flow, value in pins(shell.memory):
            flat.append(Signal(len(value), name=f"memory_{name}"))
            m.d.comb += flat[-1].eq(value) if flow.name == "Out" else Value.cast(value).eq(flat[-1])
    return m, flat
