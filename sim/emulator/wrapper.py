"""The Verilog between the pins of the emulated board and the switch: a register on every input."""

from collections.abc import Iterator, Sequence

from iswitch.config import Config
from iswitch.wire import Outcome

__all__ = ["PARENT_BITS", "wrapper"]

RESET = "rst"
PARENT_BITS = 128
"""Bits of the configuration of a leaf's parent, for each job."""


def inputs(config: Config) -> Iterator[tuple[str, int]]:
    """Return names and widths of the switch's inputs, except its clock."""
    yield from (
        (RESET, 1),
        ("now_us", 32),
        ("link", config.ports),
        ("seed", 64),
        ("operator_key", 64),
        ("own_mac", 48),
        ("own_ip", 32),
        ("parents", PARENT_BITS * config.jobs),
    )
    for port in range(config.ports):
        yield from (
            (f"rx{port}_data", config.bus_bits),
            (f"rx{port}_bytes", config.bus_bytes.bit_length()),
            (f"rx{port}_last", 1),
            (f"rx{port}_error", 1),
            (f"rx{port}_valid", 1),
            (f"tx{port}_ready", 1),
        )


def outputs(config: Config) -> Iterator[tuple[str, int]]:
    """Return names and widths of the switch's outputs."""
    yield from (
        ("busy", 1),
        ("trace_valid", 1),
        ("trace_outcome", max(Outcome).bit_length()),
        ("trace_port", 4),
        ("trace_job", 8),
        ("trace_member", 8),
        ("trace_seq", 32),
    )
    for port in range(config.ports):
        yield from (
            (f"rx{port}_ready", 1),
            (f"tx{port}_data", config.bus_bits),
            (f"tx{port}_bytes", config.bus_bytes.bit_length()),
            (f"tx{port}_last", 1),
            (f"tx{port}_valid", 1),
        )


def wrapper(config: Config, gated: Sequence[str] = ()) -> str:
    """Return the Verilog of module `board`: the ports of module `switch`, with registers in front of its inputs that
    start in reset. The parts in `gated` have clocks of their own (`hw.switch.gated_parts`)."""
    span = lambda bits: f"[{bits - 1}:0] " if bits > 1 else ""
    clocks, active = ["clk", *(f"{part}_clk" for part in gated)], [f"{part}_active" for part in gated]
    names = [*clocks, *active, *(name for name, _ in (*inputs(config), *outputs(config)))]
    registers = [f"reg {span(bits)}{name}_now = {int(name == RESET)};" for name, bits in inputs(config)]
    return "\n".join(
        [
            f"module board({', '.join(names)});",
            *(f"input {name};" for name in clocks),
            *(f"output {name};" for name in active),
            *(f"input {span(bits)}{name};" for name, bits in inputs(config)),
            *(f"output {span(bits)}{name};" for name, bits in outputs(config)),
            *registers,
            "always @(posedge clk) begin",
            *(f"  {name}_now <= {name};" for name, _ in inputs(config)),
            "end",
            "switch switch(",
            ", ".join(
                [
                    *(f".{name}({name})" for name in (*clocks, *active)),
                    *(f".{name}({name}_now)" for name, _ in inputs(config)),
                    *(f".{name}({name})" for name, _ in outputs(config)),
                ]
            )
            + ");",
            "endmodule",
            "",
        ]
    )
