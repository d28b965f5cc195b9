"""A 10G or 25G port as a module of its own: what stands between blocks of 66 bits and words of frames."""

from collections.abc import Iterator

from amaranth.hdl import Shape

from hw.frame import Word

__all__ = ["PORT", "port_pins"]

PORT = "port"
"""The module's name."""


def port_pins(bus_bits: int) -> Iterator[tuple[str, str, int]]:
    """Its pins: name, i or o, width. `clk`: the core's clock, of `rx_data` ... `tx_ready` and `link`; `tx_clk`, `rx_clk` the transceiver's, of what
    begins with gt_tx and gt_rx, which is `hw.board.transceivers.Blocks`."""
    for name in ("clk", "rst", "tx_clk", "tx_rst", "rx_clk", "rx_rst"):
        yield name, "i", 1
    yield from (("gt_txd", "o", 64), ("gt_txh", "o", 2), ("gt_tx_ready", "i", 1), ("gt_rxd", "i", 64), ("gt_rxh", "i", 2), ("gt_rx_valid", "i", 1),
                ("gt_rx_slip", "o", 1), ("link", "o", 1))
    word = Word(bus_bits)
    for side, forth, back in (("rx", "o", "i"), ("tx", "i", "o")):
        for name, member in (("data", "data"), ("bytes", "count"), ("last", "last"), ("error", "error")):
            if (side, name) != ("tx", "error"):
                yield f"{side}_{name}", forth, Shape.cast(word[member].shape).width
        yield f"{side}_valid", forth, 1
        yield f"{side}_ready", back, 1
