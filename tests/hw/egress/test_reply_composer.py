# amaranth: UnusedElaboratable=no
"""Acknowledgements and notices as frames."""

import random

import numpy as np
import pytest

from hw.egress.reply_composer import ReplyComposer
from iswitch.golden.egress import compose
from iswitch.wire import ACK, HEADER, Reason, ones_complement_sum
from sim.bench.stream import STALLS, Bench, from_words

BUSES = [64, 256, 512]
ADDRESS_BYTES = 42


def reply(k):
    """An item for the composer, without its complement, and the UDP payload that the model makes."""
    rng = random.Random(k)
    fields = {
        "job": rng.randrange(256),
        "epoch": rng.randrange(1 << 16),
        "seq": rng.randrange(1 << 32),
        "member": rng.randrange(256),
        "token": rng.randrange(1 << 32),
    }
    if k % 3:
        body = {"action": k % 6, "reason": k % 16, "nonce": rng.randrange(1 << 64), "first_seq": rng.randrange(1 << 32)}
        payload = compose.ack(registers=tuple(rng.randrange(1 << 32) for _ in range(8)), **fields, **body)
    else:
        payload = compose.notice(reason=Reason(1 + k % 4), **fields)
    header = np.frombuffer(payload, HEADER, 1).copy()
    header["behind"] = rng.randrange(1 << 16)  # is overwritten
    return {
        "port": k % 16,
        "address": {"mac": k, "ip": k + 1, "udp": k + 2},
        "acknowledges": len(payload) > HEADER.itemsize,
        "header": int.from_bytes(header.tobytes(), "little"),
        "body": int.from_bytes(payload[HEADER.itemsize :] or bytes(ACK.itemsize), "little"),
    }, payload


def run(bus_bits, made, stalls=0):
    dut = ReplyComposer(bus_bits=bus_bits)
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.replies, [item for item, _ in made]), bench.sink(dut.o)
    assert bench.run(read=[dut.busy]) == [0]
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_replies_are_the_models_and_sum_to_zero(bus_bits, stalls):
    made = [reply(k) for k in range(12)]
    _, sink = run(bus_bits, made, stalls)
    frames = from_words(sink.items, bus_bits)
    assert [frame[ADDRESS_BYTES:] for frame in frames] == [payload for _, payload in made]
    assert {frame[:ADDRESS_BYTES] for frame in frames} == {bytes(ADDRESS_BYTES)}
    assert {ones_complement_sum(frame) for frame in frames} == {0xFFFF}
    at = 0
    for (item, _), frame in zip(made, frames, strict=True):
        words = sink.items[at : at + len(frame) * 8 // bus_bits]
        at += len(words)
        for word in words:
            assert (word.meta.port, word.meta.length) == (item["port"], len(frame))
            assert {name: word.meta.address[name] for name in item["address"]} == item["address"]


@pytest.mark.parametrize("bus_bits", BUSES)
def test_a_receipt_to_the_parent_keeps_behind_and_a_join_its_ranks(bus_bits):
    fields = {"job": 1, "seq": 0x89ABCDEF, "member": 3, "token": 0xCAFEBABE}
    receipt = compose.receipt(epoch=0xFFFE, behind=5, want=True, **fields)
    join = compose.control(ranks=0xF0, action=1, world=8, key=99, nonce=1 << 63, **fields)
    made = []
    for payload in (receipt, join):
        header = np.frombuffer(payload, HEADER, 1).copy()
        header["members" if payload is receipt else "behind"] = 0
        made.append(
            (
                {
                    "port": 7,
                    "address": {"mac": 1, "ip": 2, "udp": 3},
                    "acknowledges": payload is join,
                    "receipt": payload is receipt,
                    "header": int.from_bytes(header.tobytes(), "little"),
                    "body": int.from_bytes(payload[HEADER.itemsize :] or bytes(ACK.itemsize), "little"),
                },
                payload,
            )
        )
    _, sink = run(bus_bits, made * 2)
    frames = from_words(sink.items, bus_bits)
    assert [frame[ADDRESS_BYTES:] for frame in frames] == [receipt, join] * 2


@pytest.mark.parametrize("bus_bits", BUSES)
@pytest.mark.parametrize(("k", "size"), [(0, 64), (1, 128)])
def test_latency_is_the_words_with_more_than_addresses_and_5_cycles(bus_bits, k, size):
    source, sink = run(bus_bits, [reply(k)])
    words, addresses = size * 8 // bus_bits, ADDRESS_BYTES * 8 // bus_bits
    first = source.times[0] + words - addresses + 5
    assert sink.times == list(range(first, first + words))


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="ReplyComposer bus_bits must be 64, 256 or 512, not 32"):
        ReplyComposer(bus_bits=32)
