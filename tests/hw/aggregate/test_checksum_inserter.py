# amaranth: UnusedElaboratable=no
"""Packets sum to zero, whatever stands between their words, and keep everything else."""

import random

import pytest

import hw.aggregate.checksum_inserter
from hw.aggregate.checksum_inserter import ChecksumInserter
from iswitch.wire import ones_complement_sum
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words, to_words


def packets_of(seed):
    """Packets that end with two bytes for the complement, and one that has no place for it."""
    rng = random.Random(seed)
    packets = [rng.randbytes(size - 2) + bytes(2) for size in (4, 8, 64, 68, 72, 128, 132, 1024)]
    return [*packets, b"\xff" * 1022 + bytes(2), bytes(64)]


def run(bus_bits, packets, *, gap=0.0, inserter=ChecksumInserter):
    """Return what leaves, and the latencies of the words. Meta is the packet's index."""
    dut = inserter(bus_bits=bus_bits, meta=8)
    bench, rng, sent = Bench(dut), random.Random(3), []
    sink = bench.sink(dut.o)

    async def drive(ctx):
        cycle = 0
        for k, packet in enumerate(packets):
            for word in to_words(packet, bus_bits, first=True, meta=k):
                while rng.random() < gap:
                    ctx.set(dut.valid, 0)
                    ctx.set(dut.packet.data, rng.getrandbits(bus_bits))
                    await ctx.tick()
                    cycle += 1
                behind = (1 << 8 * word["count"]) - 1
                ctx.set(dut.valid, 1)
                for name, value in (word | {"data": word["data"] & behind}).items():
                    ctx.set(dut.packet[name], value)
                has_place = word["last"] and packet[-2:] == bytes(2) and any(packet)
                ctx.set(dut.complement_at, has_place << (word["count"] // 4 - 1))
                sent.append(cycle)
                await ctx.tick()
                cycle += 1
        ctx.set(dut.valid, 0)
        for _ in range(20):
            await ctx.tick()

    bench.drive(drive)
    return sink, [left - taken for left, taken in zip(sink.times, sent, strict=True)]


def check(bus_bits, packets, **options):
    sink, latencies = run(bus_bits, packets, **options)
    out = from_words(sink.items, bus_bits)
    assert [packet[:-2] for packet in out] == [packet[:-2] for packet in packets]
    assert [ones_complement_sum(packet) for packet in out[:-1]] == [0xFFFF] * (len(packets) - 1)
    assert out[-1] == packets[-1]
    starts = [k for k, item in enumerate(sink.items) if item.first]
    assert [sink.items[k].meta for k in starts] == list(range(len(packets)))
    assert set(latencies) == {ChecksumInserter.LATENCY}


@pytest.mark.parametrize("gap", [0.0, 0.5])
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_packets_sum_to_zero_after_4_cycles(bus_bits, gap):
    check(bus_bits, packets_of(bus_bits), gap=gap)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("Mux(summed.first, 0, total)", "total"),
        ("with m.If(valid[1]):", "if True:"),
        ("complement=~fold_carries", "complement=fold_carries"),
        ("with m.If(folded.at[k]):", "with m.If(0):"),
        ("Cat(self.valid, valid)", "Cat(1, valid)"),
    ],
)
def test_a_mutant_of_the_inserter_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, ValueError)):
        check(
            64, packets_of(1), gap=0.5, inserter=mutant(hw.aggregate.checksum_inserter, sound, wrong).ChecksumInserter
        )


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="ChecksumInserter bus_bits must be 64, 256 or 512, not 32"):
        ChecksumInserter(bus_bits=32, meta=8)
