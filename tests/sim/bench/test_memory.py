"""The memory of benches refuses what AXI4 forbids, and keeps what is written to itself until it has answered."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from hw.interface.axi import Address, Axi4, Burst, Response
from sim.bench.memory import Memory, Request
from sim.bench.stream import STALLS, Bench


def asked(**fields):
    return {"addr": 0, "len": 7, "size": 3, "burst": Burst.INCR} | fields


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"addr": 4096 - 56}, "a burst from 0xfc8 to 0x1008 crosses a multiple of 4096"),
        ({"burst": Burst.WRAP}, "must be of type INCR"),
        ({"size": 2}, "of whole words"),
        ({"addr": 4}, "must begin with a whole word, not at 0x4"),
    ],
)
def test_a_request_wrong(wrong, message):
    with pytest.raises(AssertionError, match=message):
        Request.of(0, Address(16).const(asked(**wrong)), 8)


def test_a_request_right():
    assert Request.of(5, Address(16).const(asked(addr=4096 - 64, id=1)), 8) == Request(5, 1, 4096 - 64, 8)


class Bus(wiring.Component):
    """Nothing but wires from streams to channels, and back."""

    def __init__(self):
        channels = Axi4(16).members
        super().__init__(
            {name: channels[name].flip() for name in channels} | {f"to_{name}": channels[name] for name in channels}
        )

    def elaborate(self, platform):
        m = Module()
        for name in Axi4(16).members:
            connect(m, flipped(getattr(self, name)), flipped(getattr(self, f"to_{name}")))
        return m


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("beats_first", [False, True])
def test_what_is_written_is_there_with_the_answer(beats_first, stalls):
    """By bytes; two bursts of different lengths, of which the second is in part beyond the end."""
    bench, contents = Bench(dut := Bus(), stalls=stalls), bytearray(range(64))
    memory = Memory(contents, stalls=stalls, latency=20, beats_first=beats_first).attach(
        bench, ar=dut.to_ar, r=dut.to_r, aw=dut.to_aw, w=dut.to_w, b=dut.to_b
    )
    bench.source(dut.aw, [asked(addr=8, len=1), asked(addr=56, len=1, id=1)])
    bench.source(
        dut.w,
        [
            {"data": 2**64 - 1, "strb": 0x81, "last": 0},
            {"data": 0, "strb": 0xFF, "last": 1},
            {"data": 1, "strb": 0xFF, "last": 0},
            {"data": 2, "strb": 0xFF, "last": 1},
        ],
    )
    answers, seen = bench.sink(dut.b), []

    async def follow(ctx):
        async for _, _, valid in ctx.tick().sample(dut.to_b.valid):
            seen.append((bool(valid), bytes(contents)))

    bench.process(follow)
    bench.source(dut.ar, [asked(addr=0, len=2), asked(addr=56, len=1, id=1)], start=200)
    found = bench.sink(dut.r)
    bench.run(quiet=60)
    first = [valid for valid, _ in seen].index(True)
    assert {now for _, now in seen[: first - 1]} == {bytes(range(64))}
    assert [(item.id, item.resp) for item in answers.items] == [(0, Response.OKAY), (1, Response.DECERR)]
    expected = (
        bytes(range(8)) + bytes([255, *range(9, 15), 255]) + bytes(8) + bytes(range(24, 56)) + (1).to_bytes(8, "little")
    )
    assert bytes(contents) == expected and memory.writes == [8, 56] and memory.reads == [0, 56]
    word = lambda at: int.from_bytes(expected[at : at + 8], "little")
    assert [(item.data, item.resp, item.last) for item in found.items] == [
        (word(0), Response.OKAY, 0),
        (word(8), Response.OKAY, 0),
        (word(16), Response.OKAY, 1),
        (1, Response.OKAY, 0),
        (0, Response.DECERR, 1),
    ]
