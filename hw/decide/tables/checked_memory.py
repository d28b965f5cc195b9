"""A memory that finds its bit errors."""

from amaranth.hdl import Cat, Module, Shape, ShapeLike, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.stream.parity import with_parity

__all__ = ["REGISTERS_MAX", "CheckedMemory"]

REGISTERS_MAX = 2
"""Up to so many rows, a memory consists of flip-flops. Four bits of LUT RAM take six LUTs of an ECP5, at any depth up
to 16; two rows of flip-flops take one LUT a bit, which selects the row."""


class CheckedMemory(wiring.Component):
    """A memory with a write port and a read port, and a parity bit in each granule of a row.

    `read` follows `address` by 1 cycle, and with it `wrong`: the parity of a granule read does not fit its content. In
    the cycle of a write `read` will be the row from before it. The parity is even, so a row that was never written,
    which is 0, is sound. An even number of wrong bits in a granule is not found. One write and one read per cycle,
    without stalls.

    A memory of flip-flops (`is_registers`) has no parity, as no other register of the switch has one.

    Parameters
    ----------
    shape : ShapeLike
        The content of a granule.
    depth : int
        Number of rows.
    granules : int
        Granules of a row; `write` selects those that a write replaces.
    """

    def __init__(self, shape: ShapeLike, depth: int, *, granules: int = 1):
        if depth < 2:
            raise ValueError(f"CheckedMemory depth must be at least 2, not {depth!r}")
        if granules < 1:
            raise ValueError(f"CheckedMemory granules must be at least 1, not {granules!r}")
        self.shape, self.depth, self.granules = shape, depth, granules
        self.is_registers = depth <= REGISTERS_MAX
        row = data.ArrayLayout(shape, granules)
        super().__init__(
            {
                "write_address": In(range(depth)),
                "write": In(granules),
                "written": In(row),
                "address": In(range(depth)),
                "read": Out(row),
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self.shape).width
        attrs = {"ram_style": "registers"} if self.is_registers else {}
        stored = data.ArrayLayout(unsigned(width if self.is_registers else width + 1), self.granules)
        m.submodules.rows = rows = Memory(shape=stored, depth=self.depth, init=[], attrs=attrs)
        put, get = rows.write_port(granularity=1), rows.read_port()
        m.d.comb += [put.addr.eq(self.write_address), put.en.eq(self.write), get.addr.eq(self.address)]
        for k in range(self.granules):
            content = Value.cast(self.written[k])
            m.d.comb += [
                put.data[k].eq(content if self.is_registers else with_parity(content)),
                Value.cast(self.read[k]).eq(get.data[k][:width]),
            ]
        if not self.is_registers:
            m.d.comb += self.wrong.eq(Cat(granule.xor() for granule in get.data).any())
        return m
