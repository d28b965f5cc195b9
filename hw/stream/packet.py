"""The packet stream: one bus word of a packet, and a record that goes with every word."""

from amaranth.hdl import Signal
from amaranth.lib import data

__all__ = ["LENGTH_BITS", "Packet", "first_of", "is_truncated", "require_bus", "word_of"]

LENGTH_BITS = 14
"""Bits of a packet's length in bytes."""


def require_bus(owner: str, bus_bits: int) -> None:
    """Raise ValueError unless the 64-byte header is a multiple of `bus_bits` bits."""
    if bus_bits not in (64, 256, 512):
        raise ValueError(f"{owner} bus_bits must be 64, 256 or 512, not {bus_bits!r}")


class Packet(data.StructLayout):
    """One bus word of a packet. Byte 0 of the packet is the lowest byte of its first word.

    Parameters
    ----------
    bus_bits : int
        Width of the data: 64, 256 or 512.
    meta : ShapeLike, optional
        Record that is constant from a packet's first word to its last.
    first : bool
        Whether words carry `first`. A consumer of words without it uses `first_of`, which costs one register.
    parity : bool
        Whether words carry `parity`.

    Members
    -------
    data : bus_bits
        Bytes behind the last valid one have any value.
    count : range(bus_bits // 8 + 1)
        Valid bytes: all of them, but in the word with `last`. In a word with `error`, 0 says that the port had no room
        for the whole packet.
    last : 1
        This is the packet's last word.
    error : 1
        The packet is damaged (a bad FCS) or truncated. Valid only with `last`.
    first : 1
        This is the packet's first word.
    parity : 1
        Even parity of data, `count` and `last`, from before the word was stored. If it is wrong, a memory had a bit
        error.
    meta : meta
    """

    def __init__(self, bus_bits: int, meta=None, *, first: bool = False, parity: bool = False):
        require_bus("Packet", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "data": bus_bits,
                "count": range(bus_bits // 8 + 1),
                "last": 1,
                "error": 1,
                **({"first": 1} if first else {}),
                **({"parity": 1} if parity else {}),
                **({"meta": meta} if meta is not None else {}),
            }
        )


def word_of(payload: data.View) -> data.View:
    """Return the part of a packet's payload that every packet has, without `first`, `parity` and `meta`. It can be
    assigned."""
    word = Packet(payload.shape().bus_bits)
    return data.View(word, payload.as_value()[: word.size])


def is_truncated(word: data.View):
    """Return whether a word ends a packet that a port truncated because it had no room."""
    return word.last & word.error & (word.count == 0)


def first_of(m, packets) -> Signal:
    """Return a signal that is 1 while a packet stream offers, or waits for, the first word of a packet."""
    first = Signal(init=1)
    with m.If(packets.valid if packets.signature.always_ready else packets.valid & packets.ready):
        m.d.sync += first.eq(packets.payload.last)
    return first
