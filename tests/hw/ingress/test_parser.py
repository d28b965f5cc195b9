# amaranth: UnusedElaboratable=no
"""What the parser shows of a frame, at every bus width."""

import pytest

from hw.ingress.parser import Parser
from iswitch.wire import CONTROL, FRAME, Action, Type
from sim.bench.stream import STALLS, Bench, from_words, to_words
from sim.frames.client import SWITCH_IP, Client, ordinary

BUSES = [64, 256, 512]
CLIENT = Client.numbered(7)
OURS = {
    **{
        f"contribution of {size}": CLIENT.contribution(5, bytes(range(1, 1 + size)), behind=2)
        for size in (0, 1, 4, 63, 64, 65)
    },
    "receipt": CLIENT.receipt(0xFFFFFFFF, behind=3, want=True),
    "read": CLIENT.read(0x12345678),
    "join": CLIENT.join(world=2, elements=5, member=1),
    "cut control": CLIENT.frame(Type.CONTROL, bytes(range(63))),
    "bare control": CLIENT.frame(Type.CONTROL),
    "long control": CLIENT.frame(Type.CONTROL, bytes(range(70))),
    "result": CLIENT.frame(Type.RESULT, bytes(70)),
    "uplink": CLIENT.frame(Type.UPLINK, bytes(70)),
    "unknown type": CLIENT.frame(15, bytes(70)),
    "longest": CLIENT.contribution(5, bytes(k % 251 for k in range(1450))),
    "no checksum": CLIENT.contribution(1, bytes(8), checksum=False),
}
SAMPLE = CLIENT.contribution(9, bytes(64))


def spoilt(at, value):
    return SAMPLE[:at] + bytes(value) + SAMPLE[at + len(value) :]


OURS["reserved flag"] = spoilt(20, b"\x80\x00")
"""RFC 791 says the bit must be zero; it does not make a fragment of a frame."""


OTHERS = {
    **{f"size {size}": ordinary(b"\xff" * 6, b"\2" * 6, size) for size in (60, 61, 63, 64, 65, 127, 128, 129)},
    "arp": spoilt(12, b"\x08\x06"),
    "vlan": spoilt(12, b"\x81\x00"),
    "options": spoilt(14, b"\x46"),
    "ipv6": spoilt(14, b"\x65"),
    "first fragment": spoilt(20, b"\x20\x00"),
    "later fragment": spoilt(20, b"\x00\x01"),
    "last fragment": spoilt(20, b"\x1f\xff"),
    "tcp": spoilt(23, b"\x06"),
    "other host": spoilt(30, b"\x0a\0\0\x02"),
    "swapped": spoilt(30, b"\x01\0\0\x0a"),
    "other port": spoilt(36, b"\x69\x54"),
    "swapped port": spoilt(36, b"\x53\x69"),
}
FRAMES = {**OURS, **OTHERS}


def laned(frames, bus_bits):
    return [
        word
        for k, frame in enumerate(frames)
        for word in to_words(
            frame, bus_bits, parity=True, meta={"port": k % 16, "scan": {"length": len(frame), "exponent": k}}
        )
    ]


def bench_of(frames, bus_bits, **options):
    dut = Parser(bus_bits=bus_bits)
    bench = Bench(dut, inputs=[(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))], **options)
    return dut, bench, bench.source(dut.i, laned(frames, bus_bits))


def image(view):
    return view.as_value().value.to_bytes(64, "little")


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_headers_of_each_frame_in_order_and_its_words_unchanged(bus_bits, stalls):
    frames = list(FRAMES.values())
    dut, bench, _ = bench_of(frames, bus_bits, stalls=stalls)
    headers, out = bench.sink(dut.headers), bench.sink(dut.o, beside=[dut.payload_only])
    assert bench.run(read=[dut.busy]) == [0]
    assert from_words(out.items, bus_bits) == frames
    # The header of each frame was complete long before its last word leaves.
    alone = [kind for item, [kind] in zip(out.items, out.besides, strict=True) if item.last]
    numbers = (Type.CONTRIBUTION, Type.RESULT, Type.UPLINK)
    assert alone == [name in OURS and frame[42] & 0xF in numbers for name, frame in FRAMES.items()]
    for k, ((name, frame), item) in enumerate(zip(FRAMES.items(), headers.items, strict=True)):
        assert item.ours == (name in OURS), name
        assert image(item.frame)[: len(frame)] == frame[:64], name
        assert (item.arrival.port, item.arrival.scan.length, item.arrival.scan.exponent) == (k % 16, len(frame), k), (
            name
        )
        if item.ours and frame[42] & 0xF == Type.CONTROL:
            assert image(item.body)[: len(frame) - 64] == frame[64:128], name


def test_fields_by_hand():
    dut, bench, _ = bench_of([CLIENT.set_h(3, seq=0x01020304)], 256)
    headers = bench.sink(dut.headers)
    bench.sink(dut.o)
    bench.run()
    [item] = headers.items
    assert (item.frame.version_type, item.frame.seq, item.frame.member) == (0x25, 0x01020304, 255)
    assert bytes(item.frame.eth_src) == bytes([2, 0, 0, 0, 0, 7])
    assert (item.body.action, item.body.threshold) == (Action.SET_H, 3)
    assert FRAME.itemsize == CONTROL.itemsize == 64


@pytest.mark.parametrize("bus_bits", BUSES)
@pytest.mark.parametrize(
    ("name", "shown_at"), [("contribution of 64", 64), ("join", 128), ("cut control", 127), ("size 129", 64)]
)
def test_headers_come_1_cycle_after_the_word_that_completes_them(bus_bits, name, shown_at):
    dut, bench, source = bench_of([FRAMES[name]], bus_bits)
    headers, out = bench.sink(dut.headers), bench.sink(dut.o, beside=[dut.payload_only])
    bench.run()
    assert headers.times == [source.times[-(-shown_at * 8 // bus_bits) - 1] + 1]
    assert out.times == [taken + 3 for taken in source.times]
    header_words = -(-64 * 8 // bus_bits)
    shows = source.times[header_words - 1] + 1
    is_contribution = name.startswith("contribution")
    assert [kind for [kind] in out.besides] == [is_contribution and time >= shows for time in out.times]


@pytest.mark.parametrize("bus_bits", BUSES)
def test_one_word_per_cycle(bus_bits):
    frames = [ordinary(b"\xff" * 6, b"\2" * 6, 60), SAMPLE, CLIENT.read(1), SAMPLE, CLIENT.join(), CLIENT.receipt(1)]
    dut, bench, source = bench_of(frames * 2, bus_bits)
    bench.sink(dut.headers)
    bench.sink(dut.o)
    bench.run()
    assert source.times == list(range(source.times[0], source.times[0] + len(source.times)))


def test_headers_not_taken_hold_the_lane_and_nothing_is_lost():
    dut, bench, source = bench_of([SAMPLE] * 5, 512)
    headers, out = bench.sink(dut.headers, start=100), bench.sink(dut.o)
    bench.run()
    assert sum(taken < 100 for taken in source.times) == 2
    assert len(headers.items) == 5
    assert from_words(out.items, 512) == [SAMPLE] * 5


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Parser bus_bits must be 64, 256 or 512, not 100"):
        Parser(bus_bits=100)


@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_depth_wrong(depth):
    with pytest.raises(ValueError, match=f"Parser depth must be a power of two above 1, not {depth}"):
        Parser(bus_bits=64, depth=depth)
