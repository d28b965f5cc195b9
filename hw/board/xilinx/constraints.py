"""Constraints of a Xilinx board, from its pins and from the elaborated design: the text of `constraints/<board>.xdc`.

`python -m hw.board.xilinx.constraints` writes these files.
"""

from collections.abc import Iterator
from pathlib import Path

from hw.board.boards import BOARDS, Board
from hw.board.xilinx.top import Crossing, Domain, Top

__all__ = ["xdc"]

SLOW_OUTPUTS = (
    "led",
    "sfp_led",
    "sfp_tx_disable",
    "sfp_rs",
    "sfp_rs_tx",
    "si5324_reset",
    "i2c_mux_reset",
    "qsfp_modsel_n",
    "qsfp_reset_n",
    "qsfp_lpmode",
    "qsfp_refclk_reset",
    "qsfp_refclk_fs",
    "qsfp_refclk_oe_n",
    "hbm_cattrip",
)
SLOW_INPUTS = ("reset",)
SLOW_BOTH = ("i2c_scl", "i2c_sda")


def ns(mhz: float) -> str:
    return f"{1e3 / mhz:.3f}"


def xdc(board: Board, top: Top | None = None) -> str:
    """Return all constraints. `top` is the board's elaborated design, if there is one already."""
    if top is None:
        top = Top(board)
        top.elaborated()
    return (
        "\n".join(
            ("\n".join(part))
            for part in (
                [f"# {board.title}. Written by hw/board/xilinx/constraints.py; a test holds the two together."],
                *parts(top),
            )
        )
        + "\n"
    )


def parts(top: Top) -> Iterator[list[str]]:
    platform, wiring = top.platform, top.wiring
    yield [
        "",
        "# Configuration",
        *(f"set_property {name} {value} [current_design]" for name, value in platform.bitstream),
    ]
    yield ["", "# Pins", *pins(top)]
    clocks = [
        clock
        for clock in (platform.clock, platform.memory_clock, *platform.refclks)
        if clock and f"{clock.name}_p" in wiring.ports
    ]
    yield [
        "",
        "# Input clocks",
        *(f"create_clock -period {ns(clock.mhz)} -name {clock.name} [get_ports {clock.name}_p]" for clock in clocks),
    ]
    hidden = [(pattern, mhz) for ip in wiring.ips.values() for pattern, mhz in ip.hidden]
    if hidden:
        yield [
            "",
            "# Clocks of the transceivers, which Vivado does not derive in this family",
            *(
                f"create_clock -period {ns(mhz)} -name {name(pattern)} [get_pins -hierarchical -filter {{NAME =~ "
                f"{pattern}}}]"
                for pattern, mhz in hidden
            ),
        ]
    yield ["", "# Clocks of the design", *(define(domain) for domain in wiring.domains)]
    periods = {domain.name: 1e3 / domain.mhz for domain in wiring.domains}
    yield [
        "",
        "# Clock domain crossings: between any two of these clocks there are only synchronisers and FIFOs with Gray "
        "code",
        "# pointers. No path may take longer than the shorter of the two periods, so that at most one bit of a "
        "pointer is",
        "# in flight. The phase is not constrained.",
        *(bound(crossing, periods) for crossing in sorted(set(wiring.crossings), key=lambda c: (c.source, c.sink))),
    ]
    yield [
        "",
        "# Resets are asserted asynchronously, and released by two registers of the clock that they reset",
        "set_false_path -to [get_pins -hierarchical -filter {NAME =~ *stage*_reg*/PRE}]",
    ]
    yield ["", "# Slow pins, without a clock", *slow(top)]


def name(pattern: str) -> str:
    """Return the name of the clock that a pin makes: *gt0_*gthe2_i/TXOUTCLK is gt0_txoutclk."""
    gt, _, pin = pattern.strip("*").partition("_")
    return f"{gt}_{pin.rpartition('/')[2].lower()}"


def pins(top: Top) -> Iterator[str]:
    own = {entry for ip in top.wiring.ips.values() if ip.files for entry in ip.pins}  # constrained by the IP itself
    for pin in top.platform.pins:
        base, _, index = pin.port.partition("[")
        if base not in top.wiring.ports or base in own:
            continue
        port = top.wiring.ports[base]
        if index and int(index.rstrip("]")) >= len(port):
            continue
        properties = [
            ("PACKAGE_PIN", pin.site),
            *([("IOSTANDARD", pin.standard)] if pin.standard else []),
            *pin.properties,
        ]
        listed = " ".join(f"{key} {value}" for key, value in properties)
        yield f"set_property -dict {{{listed}}} [get_ports {{{pin.port}}}]"


def define(domain: Domain) -> str:
    if domain.pin.startswith("mmcm/"):
        return f"create_generated_clock -name {domain.name} [get_pins {domain.pin}]"
    return f"set {domain.name} [get_clocks -of_objects [get_pins {domain.pin}]]"


def reference(domain: str) -> str:
    return f"[get_clocks {domain}]" if domain in ("core", "init") else f"${domain}"


def bound(crossing: Crossing, periods: dict[str, float]) -> str:
    limit = min(periods[crossing.source], periods[crossing.sink])
    return f"set_max_delay -datapath_only -from {reference(crossing.source)} -to {reference(crossing.sink)} {limit:.3f}"


def slow(top: Top) -> Iterator[str]:
    there = top.wiring.ports
    for names, commands in ((SLOW_OUTPUTS, ("-to",)), (SLOW_INPUTS, ("-from",)), (SLOW_BOTH, ("-from", "-to"))):
        listed = " ".join(f"{port}[*]" if port in top.buses else port for port in names if port in there)
        for direction in commands:
            if listed:
                yield f"set_false_path {direction} [get_ports {{{listed}}}]"


def main() -> None:
    folder = Path(__file__).parents[3] / "constraints"
    folder.mkdir(exist_ok=True)
    for name, board in BOARDS.items():
        if board.maker == "hw.board.xilinx.vivado:make":
            (folder / f"{name}.xdc").write_text(xdc(board))


if __name__ == "__main__":
    main()
