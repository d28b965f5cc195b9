"""The one packet stream: words of a frame, and the register that cuts a stream's combinational paths."""

from amaranth.lib import data

__all__ = ["LENGTH_BITS", "Packet", "require_bus"]


def require_bus(owner: str, bus_bits: int) -> None:
    """Raise unless the width is one that our 64-byte header fills exactly."""
    if bus_bits not in (64, 256, 512):
        raise ValueError(f"{owner} bus_bits must be 64, 256 or 512, not {bus_bits!r}")


class Packet(data.StructLayout):
    """One bus word of a frame. `count` is the number of valid bytes: all of them but in the word with `last`. `error`
    (a bad FCS) means something only with `last`. Byte 0 of the frame is the lowest byte of the first word."""

    def __init__(self, bus_bits: int):
        require_bus("Packet", bus_bits)
        self.bus_bits = bus_bits
        super().__init__({"data": bus_bits, "count": range(bus_bits // 8 + 1), "last": 1, "error": 1})


LENGTH_BITS = 14
