"""Layouts are the wire records: every field of every record at its place, checked through numpy."""

import numpy as np
import pytest
from amaranth.hdl import Module, Shape, Signal, signed, unsigned
from amaranth.lib import data
from amaranth.sim import Simulator

from hw.interface.layout import from_big_endian, layout
from iswitch.wire import ACK, ADDRESSES, CONTROL, FRAME, HEADER, RESULT_HEADER, TAIL

RECORDS = {
    "HEADER": HEADER,
    "RESULT_HEADER": RESULT_HEADER,
    "ADDRESSES": ADDRESSES,
    "FRAME": FRAME,
    "TAIL": TAIL,
    "CONTROL": CONTROL,
    "ACK": ACK,
}


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_is_where_numpy_puts_it(name):
    record = RECORDS[name]
    image = np.random.default_rng(1).integers(0, 256, record.itemsize, dtype=np.uint8).tobytes()
    view = layout(record).from_bits(int.from_bytes(image, "little"))
    values = np.frombuffer(image, record, 1)[0]
    assert Shape.cast(layout(record)).width == 8 * record.itemsize
    for field in record.names:
        found, (kind, offset, *_) = view[field], record.fields[field]
        if isinstance(found, data.Const):
            assert bytes(found) == image[offset : offset + kind.itemsize], field
        else:
            assert found == values[field], field


def test_hand_value():
    """A record typed by hand: 0x1234 little-endian, -2 signed, 0x0800 big-endian."""
    record = np.dtype([("number", "<u2"), ("difference", "<i2"), ("eth_type", ">u2"), ("mac", "u1", 3)])
    image = bytes.fromhex("3412 feff 0800 0a0b0c")
    view = layout(record).from_bits(int.from_bytes(image, "little"))
    assert view.number == 0x1234
    assert view.difference == -2
    assert bytes(view.eth_type) == b"\x08\x00"
    assert bytes(view.mac) == b"\x0a\x0b\x0c"
    assert layout(record)["difference"].shape == signed(16)
    assert layout(record)["mac"].shape == data.ArrayLayout(unsigned(8), 3)


def test_big_reads_the_first_byte_as_the_highest():
    record, found = Signal(layout(ADDRESSES)), {}
    m = Module()
    numbers = {name: Signal(8 * ADDRESSES[name].itemsize, name=name) for name in ("eth_type", "ip_src", "udp_dst")}
    m.d.comb += [signal.eq(from_big_endian(record[name])) for name, signal in numbers.items()]

    async def bench(ctx):
        image = np.zeros(1, ADDRESSES)
        image["eth_type"], image["ip_src"], image["udp_dst"] = 0x0800, 0x0A000001, 0x6953
        ctx.set(record.as_value(), int.from_bytes(image.tobytes(), "little"))
        found.update({name: ctx.get(signal) for name, signal in numbers.items()})

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == {"eth_type": 0x0800, "ip_src": 0x0A000001, "udp_dst": 0x6953}


def test_unknown_field_wrong():
    with pytest.raises(KeyError, match="epoc"):
        layout(HEADER)["epoc"]
