"""AXI4 as five streams."""

from collections.abc import Iterator
from enum import IntEnum

from amaranth.hdl import Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Flow, In, Out
from amaranth.utils import exact_log2

__all__ = [
    "INTO_MEMORY",
    "Address",
    "Axi4",
    "Burst",
    "ReadData",
    "Response",
    "WriteData",
    "WriteResponse",
    "address_bits_of",
    "incrementing",
    "pins",
]

INTO_MEMORY = 0b0011
"""Value of `cache` for memory controllers (Arm IHI 0022, table A4-5): normal, non-cacheable, bufferable."""


def address_bits_of(memory_bytes: int) -> int:
    """Return the number of address bits of a memory, at least the 13 that `Axi4` requires."""
    return max(13, (memory_bytes - 1).bit_length())


class Burst(IntEnum):
    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(IntEnum):
    """The response to a beat or a burst. Bit 1 is set in error responses."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Address(data.StructLayout):
    """A request for a burst of `len` + 1 beats of 2^`size` bytes, which must not cross a multiple of 4096."""

    def __init__(self, address_bits: int, id_bits: int = 1):
        super().__init__(
            {
                "id": id_bits,
                "addr": address_bits,
                "len": 8,
                "size": 3,
                "burst": Burst,
                "lock": 1,
                "cache": 4,
                "prot": 3,
                "qos": 4,
            }
        )


class WriteData(data.StructLayout):
    def __init__(self, data_bits: int = 64):
        super().__init__({"data": data_bits, "strb": data_bits // 8, "last": 1})


class WriteResponse(data.StructLayout):
    def __init__(self, id_bits: int = 1):
        super().__init__({"id": id_bits, "resp": Response})


class ReadData(data.StructLayout):
    def __init__(self, data_bits: int = 64, id_bits: int = 1):
        super().__init__({"id": id_bits, "data": data_bits, "resp": Response, "last": 1})


class Axi4(wiring.Signature):
    """The bus from a manager, for which it is Out, to a memory.

    Each channel is a stream, whose handshake is AXI's. Fields of payloads have AXI's names, so that `pins` can name
    `ar.payload.addr` as `araddr`.
    """

    def __init__(self, address_bits: int, *, data_bits: int = 64, id_bits: int = 1):
        if not 12 < address_bits <= 64:
            raise ValueError(f"Axi4 address_bits must be 13 to 64, not {address_bits!r}")
        if not (8 <= data_bits <= 1024 and not data_bits & (data_bits - 1)):
            raise ValueError(f"Axi4 data_bits must be a power of two from 8 to 1024, not {data_bits!r}")
        if not 1 <= id_bits <= 32:
            raise ValueError(f"Axi4 id_bits must be 1 to 32, not {id_bits!r}")
        self.address_bits, self.data_bits, self.id_bits = address_bits, data_bits, id_bits
        channel = stream.Signature
        super().__init__(
            {
                "aw": Out(channel(Address(address_bits, id_bits))),
                "w": Out(channel(WriteData(data_bits))),
                "b": In(channel(WriteResponse(id_bits))),
                "ar": Out(channel(Address(address_bits, id_bits))),
                "r": In(channel(ReadData(data_bits, id_bits))),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axi4) and self.members == other.members


def pins(bus: wiring.PureInterface, *, only: str = "aw w b ar r") -> Iterator[tuple[str, Flow, Value]]:
    """Return AXI's name, the direction as seen from a manager, and the value of each wire.

    Parameters
    ----------
    bus : wiring.PureInterface
        An interface of `Axi4`, or an object with such channels.
    only : str
        Names of the channels, separated by spaces.
    """
    for channel in only.split():
        flow, wires = In if channel in ("b", "r") else Out, getattr(bus, channel)
        for field, _ in wires.payload.shape():
            yield channel + field, flow, Value.cast(wires.payload[field])
        yield channel + "valid", flow, Value.cast(wires.valid)
        yield channel + "ready", flow.flip(), Value.cast(wires.ready)


def incrementing(payload: data.View, address: ValueLike, beats: int, data_bits: int = 64):
    """Return the assignments of a request for a burst of `beats` words of `data_bits` from `address` on."""
    if not 1 <= beats <= 256:
        raise ValueError(f"a burst's beats must be 1 to 256, not {beats!r}")
    return [
        payload.id.eq(0),
        payload.addr.eq(address),
        payload.len.eq(beats - 1),
        payload.size.eq(exact_log2(data_bits // 8)),
        payload.burst.eq(Burst.INCR),
        payload.lock.eq(0),
        payload.cache.eq(INTO_MEMORY),
        payload.prot.eq(0),
        payload.qos.eq(0),
    ]
