# amaranth: UnusedElaboratable=no
"""The writer against a device that follows the lines as UM10204 says, and is not ours in any part of its code."""

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from hw.board.xilinx.i2c import I2cWriter

WRITES = [(0x74, 0x10), (0x68, 0, 0x54), (0x68, 136, 0x40), (0x51, 0xFF, 0x00, 0xA5)]


def listen(writes, present=(0x74, 0x68, 0x51), stretch=0, quarter_cycles=5, delay_cycles=7):
    """Runs the writer; what a device on the lines has seen, cycles until `done`, and whether something was missed."""
    m = Module()
    m.submodules.writer = writer = I2cWriter(writes, quarter_cycles=quarter_cycles, delay_cycles=delay_cycles)
    seen, cycles, result = [], 0, {}

    async def device(ctx):
        nonlocal cycles
        before, pulled, held, frame, octet, bits, acknowledging = (1, 1), False, 0, None, 0, 0, False
        while not ctx.get(writer.done):
            scl = ctx.get(writer.scl_o) and not held
            sda = ctx.get(writer.sda_o) and not pulled
            ctx.set(writer.scl_i, int(scl))
            ctx.set(writer.sda_i, int(sda))
            now = (int(bool(scl)), int(bool(sda)))
            if before[0] and now[0] and before[1] != now[1]:
                if before[1]:
                    assert frame is None, "a start within a transfer"
                    frame, octet, bits = [], 0, 0
                else:
                    seen.append(tuple(frame))
                    frame = None
            elif frame is not None and not before[0] and now[0]:
                if bits < 8:
                    octet, bits = octet << 1 | now[1], bits + 1
                else:
                    acknowledging = True
            elif frame is not None and before[0] and not now[0]:
                held = stretch
                if acknowledging:
                    pulled, acknowledging, octet, bits = False, False, 0, 0
                elif bits == 8:
                    frame.append(octet if frame else octet >> 1)
                    assert frame[1:] or not octet & 1, "a read"
                    pulled = frame[0] in present
            held = max(held - 1, 0)
            before = now
            cycles += 1
            assert cycles < 100_000
            await ctx.tick()
        result.update(missed=ctx.get(writer.missed))

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(device)
    simulator.run()
    return seen, cycles, result["missed"]


@pytest.mark.parametrize("stretch", [0, 3, 40])
def test_writes_arrive_in_order(stretch):
    seen, _, missed = listen(WRITES, stretch=stretch)
    assert seen == WRITES and not missed


def test_a_bit_takes_four_quarters():
    _, short, _ = listen([(0x74, 0x10)])
    _, longer, _ = listen([(0x74, 0x10, 0x11)])
    assert longer - short == 9 * 4 * 5


def test_missing_acknowledge_is_reported():
    seen, _, missed = listen(WRITES, present=(0x74, 0x51))
    assert seen == WRITES and missed


def test_nothing_happens_before_the_delay():
    _, begun, _ = listen([(0x74, 0x10)], delay_cycles=7)
    _, late, _ = listen([(0x74, 0x10)], delay_cycles=207)
    assert late - begun == 200


def test_quarter_cycles_wrong():
    with pytest.raises(ValueError, match=r"quarter_cycles must be at least 4, .*, not 3"):
        I2cWriter(WRITES, quarter_cycles=3)


def test_writes_wrong():
    for bad in ((0x80, 1), (0x10,), (0x10, 256)):
        with pytest.raises(ValueError, match="writes must be an address below 128 and at least one byte"):
            I2cWriter([bad], quarter_cycles=4)
