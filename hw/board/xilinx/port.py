"""A 10G or 25G port as a module of its own, between blocks of 66 bits and words of frames."""

from collections.abc import Iterator

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Shape, Signal

from hw.ethernet.port import Port10G
from hw.stream.packet import Packet
from iswitch.config import Config

__all__ = ["PORT", "port_module", "port_pins"]

PORT = "port"
"""Name of the module."""


def port_pins(bus_bits: int) -> Iterator[tuple[str, str, int]]:
    """Return its pins: name, i or o, width. `clk`, the core's clock, belongs to `rx_data` ... `tx_ready` and `link`;
    `tx_clk` and `rx_clk`, the transceiver's, to the pins that begin with gt_tx and gt_rx
    (`hw.board.xilinx.transceivers.Blocks`)."""
    for name in ("clk", "rst", "tx_clk", "tx_rst", "rx_clk", "rx_rst"):
        yield name, "i", 1
    yield from (
        ("gt_txd", "o", 64),
        ("gt_txh", "o", 2),
        ("gt_tx_ready", "i", 1),
        ("gt_rxd", "i", 64),
        ("gt_rxh", "i", 2),
        ("gt_rx_valid", "i", 1),
        ("gt_rx_slip", "o", 1),
        ("link", "o", 1),
    )
    word = Packet(bus_bits)
    for side, forth, back in (("rx", "o", "i"), ("tx", "i", "o")):
        for name, member in (("data", "data"), ("bytes", "count"), ("last", "last"), ("error", "error")):
            if (side, name) != ("tx", "error"):
                yield f"{side}_{name}", forth, Shape.cast(word[member].shape).width
        yield f"{side}_valid", forth, 1
        yield f"{side}_ready", back, 1


def port_module(config: Config) -> tuple[Module, list[Signal]]:
    """Return `Port10G` with those pins. The transceivers send and receive the highest bit first (UG476, UG578:
    gearbox)."""
    m = Module()
    m.submodules.port = port = Port10G(bus_bits=config.bus_bits, frame_bytes_max=config.frame_bytes_max, msb_first=True)
    flat = {name: Signal(width, name=name) for name, _, width in port_pins(config.bus_bits)}
    for domain, prefix in (("sync", ""), ("tx", "tx_"), ("rx", "rx_")):
        m.domains += ClockDomain(domain)
        m.d.comb += [ClockSignal(domain).eq(flat[f"{prefix}clk"]), ResetSignal(domain).eq(flat[f"{prefix}rst"])]
    for name, flow, _ in port_pins(config.bus_bits):
        if name.endswith(("clk", "rst")):
            continue
        side, _, member = name.partition("_")
        if side == "gt":
            value = getattr(port, member)
        elif name == "link":
            value = port.link
        else:
            words = getattr(port, side)
            value = (
                words.payload["count" if member == "bytes" else member]
                if member not in ("valid", "ready")
                else getattr(words, member)
            )
        m.d.comb += value.eq(flat[name]) if flow == "i" else flat[name].eq(value)
    return m, list(flat.values())
