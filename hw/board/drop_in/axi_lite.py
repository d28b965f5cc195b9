"""Registers behind AXI4-Lite."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interface.axi import Response

__all__ = ["ADDRESS_BITS", "AxiLite", "Register", "Registers"]

ADDRESS_BITS = 12
"""Address bits of a block of 4 KiB, the least that AXI interconnects assign."""
BITS = 32


@dataclass(frozen=True)
class Register:
    """A register at `address`, in bytes. A writable register has an `init` value; a read-only one has None. A `secret`
    one reads as 0."""

    name: str
    address: int
    meaning: str
    init: int | None = None
    secret: bool = False

    @property
    def written(self) -> bool:
        return self.init is not None


class AxiLite(wiring.Signature):
    """AXI4-Lite with AXI's own names (Arm IHI 0022, chapter B1); Out for the manager."""

    def __init__(self, address_bits: int = ADDRESS_BITS):
        forth = {
            "awaddr": address_bits,
            "awprot": 3,
            "awvalid": 1,
            "wdata": BITS,
            "wstrb": BITS // 8,
            "wvalid": 1,
            "bready": 1,
            "araddr": address_bits,
            "arprot": 3,
            "arvalid": 1,
            "rready": 1,
        }
        back = {
            "awready": 1,
            "wready": 1,
            "bresp": 2,
            "bvalid": 1,
            "arready": 1,
            "rdata": BITS,
            "rresp": 2,
            "rvalid": 1,
        }
        super().__init__(
            {**{name: Out(width) for name, width in forth.items()}, **{name: In(width) for name, width in back.items()}}
        )


class Registers(wiring.Component):
    """`registers` behind `bus`: `read(name)` is the input of a read-only register, `written(name)` the value of a
    writable one.

    One write and one read at a time, each answered in the cycle after its address (and data) were taken. A write is
    taken when address and data are there. Bytes without a strobe keep their value. A read of an address without a
    register gives 0 and DECERR. A write there gives DECERR, and a write to a read-only register SLVERR; both change
    nothing. Addresses count in words; the two lowest bits are ignored.
    """

    def __init__(self, registers: Sequence[Register]):
        addresses = [register.address for register in registers]
        for register in registers:
            if (
                register.address % 4
                or not 0 <= register.address < 1 << ADDRESS_BITS
                or addresses.count(register.address) > 1
            ):
                raise ValueError(
                    f"Registers {register.name} address must be a multiple of 4 below {1 << ADDRESS_BITS} that no "
                    "other has, "
                    f"not {register.address:#x}"
                )
        self.registers = tuple(registers)
        self.values = {
            register.name: Signal(BITS, name=register.name, init=register.init or 0) for register in registers
        }
        super().__init__({"bus": In(AxiLite())})

    def read(self, name: str) -> Signal:
        if self._named(name).written:
            raise ValueError(f"Registers read must be of one that is read only, not {name!r}")
        return self.values[name]

    def written(self, name: str) -> Signal:
        if not self._named(name).written:
            raise ValueError(f"Registers written must be of one that is written, not {name!r}")
        return self.values[name]

    def _named(self, name: str) -> Register:
        return next(register for register in self.registers if register.name == name)

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        word = lambda address: address[2:]
        takes = Signal()
        m.d.comb += [
            takes.eq(bus.awvalid & bus.wvalid & (~bus.bvalid | bus.bready)),
            bus.awready.eq(takes),
            bus.wready.eq(takes),
        ]
        mask = Cat(strobe.replicate(8) for strobe in bus.wstrb)
        with m.If(takes):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(Response.DECERR)]
            with m.Switch(word(bus.awaddr)):
                for register in self.registers:
                    with m.Case(register.address // 4):
                        m.d.sync += bus.bresp.eq(Response.OKAY if register.written else Response.SLVERR)
                        if register.written:
                            value = self.values[register.name]
                            m.d.sync += value.eq(value & ~mask | bus.wdata & mask)
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        m.d.comb += bus.arready.eq(~bus.rvalid | bus.rready)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(0), bus.rresp.eq(Response.DECERR)]
            with m.Switch(word(bus.araddr)):
                for register in self.registers:
                    with m.Case(register.address // 4):
                        m.d.sync += bus.rresp.eq(Response.OKAY)
                        if not register.secret:
                            m.d.sync += bus.rdata.eq(Value.cast(self.values[register.name]))
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return m
