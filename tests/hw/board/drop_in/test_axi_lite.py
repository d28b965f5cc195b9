# amaranth: UnusedElaboratable=no
"""Registers by a manager that takes its time; what cocotbext-axi's manager sees is in
tests/hw/board/drop_in/test_core.py."""

import pytest
from amaranth.sim import Simulator

from hw.board.drop_in.axi_lite import Register, Registers
from hw.interface.axi import Response

MAP = [
    Register("shown", 0x00, "read only"),
    Register("set", 0x04, "written", 0x1234_5678),
    Register("far", 0xFFC, "written", 0),
]


async def wait(ctx, cycles):
    for _ in range(cycles):
        await ctx.tick()


def run(steps):
    """(address, None) reads, (address, (data, strobes)) writes, one after another; the answers."""
    dut, found = Registers(MAP), []

    async def bench(ctx):
        bus = dut.bus
        ctx.set(dut.read("shown"), 0xCAFE)
        for address, write in steps:
            if write is None:
                ctx.set(bus.araddr, address)
                ctx.set(bus.arvalid, 1)
                await ctx.tick().until(bus.arready)
                ctx.set(bus.arvalid, 0)
                await wait(ctx, len(found) % 3)
                assert ctx.get(bus.rvalid)
                found.append((ctx.get(bus.rdata), ctx.get(bus.rresp)))
                ctx.set(bus.rready, 1)
                await ctx.tick()
                ctx.set(bus.rready, 0)
            else:
                ctx.set(bus.awaddr, address)
                ctx.set(bus.awvalid, 1)
                await wait(ctx, len(found) % 2)
                assert not ctx.get(bus.awready), "an address is taken without data"
                ctx.set(bus.wdata, write[0])
                ctx.set(bus.wstrb, write[1])
                ctx.set(bus.wvalid, 1)
                await ctx.tick().until(bus.awready & bus.wready)
                ctx.set(bus.awvalid, 0)
                ctx.set(bus.wvalid, 0)
                await wait(ctx, len(found) % 3)
                assert ctx.get(bus.bvalid)
                found.append((None, ctx.get(bus.bresp)))
                ctx.set(bus.bready, 1)
                await ctx.tick()
                ctx.set(bus.bready, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def test_what_is_written_is_read_by_bytes():
    assert run(
        [(4, None), (4, (0xAABB_CCDD, 0b0101)), (4, None), (6, None), (0xFFC, (7, 15)), (0xFFC, None), (0, None)]
    ) == [
        (0x1234_5678, Response.OKAY),
        (None, Response.OKAY),
        (0x12BB_56DD, Response.OKAY),
        (0x12BB_56DD, Response.OKAY),
        (None, Response.OKAY),
        (7, Response.OKAY),
        (0xCAFE, Response.OKAY),
    ]


def test_what_cannot_be_written_or_read_says_so():
    assert run([(0, (1, 15)), (0, None), (8, (1, 15)), (8, None)]) == [
        (None, Response.SLVERR),
        (0xCAFE, Response.OKAY),
        (None, Response.DECERR),
        (0, Response.DECERR),
    ]


@pytest.mark.parametrize("address", [2, 4096, -4, 4])
def test_address_wrong(address):
    with pytest.raises(
        ValueError, match="Registers extra address must be a multiple of 4 below 4096 that no other has"
    ):
        Registers([Register("extra", address, "", 0), Register("set", 4, "", 0)])


def test_the_two_kinds_of_registers_are_distinguished():
    dut = Registers(MAP)
    with pytest.raises(ValueError, match="read must be of one that is read only, not 'set'"):
        dut.read("set")
    with pytest.raises(ValueError, match="written must be of one that is written, not 'shown'"):
        dut.written("shown")
    dut._MustUse__used = True
