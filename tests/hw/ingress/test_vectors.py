"""The frames that were typed by hand from the protocol (`tests/vectors/*.hex`), driven into the gateware: the ingress
queue's checksum verdicts and the headers that the parser shows."""

from pathlib import Path

import numpy as np
import pytest

from hw.ingress.packet_queue import PacketQueue
from hw.ingress.parser import Parser
from iswitch.wire import CONTROL, FRAME, FRAME_BYTES, UDP_PORT, Type
from sim.bench.stream import STALLS, Bench, from_words, to_words

VECTORS = {path.stem: path for path in sorted((Path(__file__).parents[2] / "vectors").glob("*.hex"))}
BUSES = [64, 256, 512]


def vector(name: str) -> bytes:
    lines = VECTORS[name].read_text(encoding="utf-8").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


FRAMES = {name: vector(name) for name in VECTORS}
RECEIVERS = sorted({frame[30:34] for frame in FRAMES.values()})
"""The switch's address, and the worker's: what a switch sends is what a switch below it receives."""


def scans_of(frames: list[bytes], bus_bits: int, stalls: float = 0.0):
    dut = PacketQueue(bus_bits=bus_bits, depth=4096 * 8 // bus_bits, frame_bytes_max=1518)
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.i, [word for frame in frames for word in to_words(frame, bus_bits)])
    out, scans = bench.sink(dut.o), bench.sink(dut.scans)
    bench.run()
    assert from_words(out.items, bus_bits) == frames
    return scans.items


def headers_of(frames: list[bytes], bus_bits: int, stalls: float = 0.0):
    dut = Parser(bus_bits=bus_bits)
    bench = Bench(dut, inputs=[(dut.own_ip, int.from_bytes(frames[0][30:34], "little"))], stalls=stalls)
    bench.source(dut.i, [word for frame in frames for word in to_words(frame, bus_bits, parity=True, meta={})])
    headers = bench.sink(dut.headers)
    bench.sink(dut.o)
    bench.run()
    return headers.items


def differing(view, record: np.dtype, data: bytes) -> list[str]:
    """Names of the fields of a gateware view that differ from numpy's reading of the bytes."""
    image = view.as_value().value.to_bytes(record.itemsize, "little")
    got, want = (np.frombuffer(octets, record, 1)[0] for octets in (image, data))
    numbers = [name for name in record.names if record[name].kind in "ui" and record[name].str[0] != ">"]
    return [name for name in record.names if got[name].tobytes() != want[name].tobytes()] + [
        name for name in numbers if record[name].subdtype is None and int(view[name]) != int(want[name])
    ]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
@pytest.mark.parametrize("receiver", RECEIVERS, ids=lambda address: address.hex("."))
def test_the_gateware_reads_the_vectors(receiver, bus_bits, stalls):
    frames = {name: frame for name, frame in FRAMES.items() if frame[30:34] == receiver}
    scans = scans_of([*frames.values()], bus_bits, stalls)
    shown = headers_of([*frames.values()], bus_bits, stalls)
    for (name, frame), scan, headers in zip(frames.items(), scans, shown, strict=True):
        assert (scan.length, scan.ip_good, scan.udp_good) == (len(frame), 1, 1), name
        assert headers.ours == (frame[36:38] == UDP_PORT.to_bytes(2, "big")), name
        assert differing(headers.frame, FRAME, frame[:FRAME_BYTES]) == [], name
        if headers.ours and frame[42] & 0xF == Type.CONTROL:
            assert differing(headers.body, CONTROL, frame[FRAME_BYTES : FRAME_BYTES + CONTROL.itemsize]) == [], name


@pytest.mark.mutant
def test_a_flipped_bit_of_a_vector_is_noticed():
    # IPv4 header, addresses, our header, the last byte
    flipped = [
        frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :]
        for frame in FRAMES.values()
        for at in (14, 26, 42, len(frame) - 1)
    ]
    assert not any(scan.ip_good and scan.udp_good for scan in scans_of(flipped, 256))
