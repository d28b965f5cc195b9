# amaranth: UnusedElaboratable=no
"""AXI4 by its standard names and directions; a manager and a memory can be connected, two managers cannot."""

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import ConnectionError, connect

from hw.interface.axi import INTO_MEMORY, Axi4, incrementing, pins

FROM_MANAGER = """
awid 2  awaddr 40  awlen 8  awsize 3  awburst 2  awlock 1  awcache 4  awprot 3  awqos 4  awvalid 1
wdata 64  wstrb 8  wlast 1  wvalid 1  bready 1
arid 2  araddr 40  arlen 8  arsize 3  arburst 2  arlock 1  arcache 4  arprot 3  arqos 4  arvalid 1  rready 1
"""
TO_MANAGER = "awready 1  wready 1  bid 2  bresp 2  bvalid 1  arready 1  rid 2  rdata 64  rresp 2  rlast 1  rvalid 1"
"""By hand from Arm IHI 0022, chapter A2, for 40 bits of address and 2 of identifiers."""


def listed(text):
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2])))


def test_names_widths_and_directions_are_the_standards():
    found = list(pins(Axi4(40, id_bits=2).create()))
    assert {name: len(value) for name, flow, value in found if flow.name == "Out"} == listed(FROM_MANAGER)
    assert {name: len(value) for name, flow, value in found if flow.name == "In"} == listed(TO_MANAGER)


def test_channels_can_be_left_out():
    assert [name for name, *_ in pins(Axi4(40).create(), only="b")] == ["bid", "bresp", "bvalid", "bready"]


def test_a_manager_and_a_memory_can_be_connected():
    m = Module()
    connect(m, Axi4(40).create(), Axi4(40).flip().create())
    with pytest.raises(ConnectionError):
        connect(m, Axi4(40).create(), Axi4(41).flip().create())
    with pytest.raises(ConnectionError):
        connect(m, Axi4(40).create(), Axi4(40).create())


def test_a_request_is_whole():
    bus = Axi4(40).create()
    driven = incrementing(bus.ar.payload, 64, 8)
    assert len(driven) == len(list(bus.ar.payload.shape())) and INTO_MEMORY == 0b0011


@pytest.mark.parametrize("beats", [0, 257])
def test_beats_wrong(beats):
    with pytest.raises(ValueError, match=f"a burst's beats must be 1 to 256, not {beats}"):
        incrementing(Axi4(40).create().ar.payload, 0, beats)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"address_bits": 12}, "Axi4 address_bits must be 13 to 64, not 12"),
        ({"address_bits": 40, "data_bits": 48}, "Axi4 data_bits must be a power of two from 8 to 1024, not 48"),
        ({"address_bits": 40, "id_bits": 33}, "Axi4 id_bits must be 1 to 32, not 33"),
    ],
)
def test_parameters_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        Axi4(**wrong)
