# amaranth: UnusedElaboratable=no
"""Packets of ports in one stream: in, out, with stalls everywhere. Mutants are noticed."""

import random

import pytest
from amaranth.sim import Simulator

import hw.board.drop_in.axi_stream
from hw.board.drop_in.axi_stream import NETFPGA, OPENNIC, RxSplit, Tuser, TxMerge
from sim.bench.mutant import mutant

BITS = 256
BYTES = BITS // 8
LENGTHS = [1, 31, 32, 33, 60, 64, 65, 95, 96, 97, 128, 129, 1514, 1518]


def beats(frame):
    for at in range(0, len(frame), BYTES):
        part = frame[at : at + BYTES]
        yield int.from_bytes(part, "little"), len(part), at + BYTES >= len(frame)


async def put(ctx, stream, frames, rng, stall):
    for frame in frames:
        for data, count, last in beats(frame):
            while rng.random() < stall:
                await ctx.tick()
            for name, value in (("data", data), ("count", count), ("last", last)):
                ctx.set(getattr(stream.payload, name), value)
            ctx.set(stream.valid, 1)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)


async def get(ctx, stream, found, rng, stall):
    """Frames of a port. For ever."""
    frame = b""
    while True:
        ctx.set(stream.ready, rng.random() >= stall)
        _, _, valid, ready, data, count, last = await ctx.tick().sample(
            stream.valid, stream.ready, stream.payload.data, stream.payload.count, stream.payload.last
        )
        if valid and ready:
            frame += data.to_bytes(BYTES, "little")[:count]
            if last:
                found.append(frame)
                frame = b""


def bench(function, *arguments):
    async def run(ctx):
        await function(ctx, *arguments)

    return run


def split(stall, cls=RxSplit, tuser=NETFPGA, seed=1):
    """Sends packets of all places; what came out of each port, what should have, unknown_sources seen and sent."""
    rng = random.Random(seed)
    dut = cls(BITS, tuser)
    packets = [(rng.randbytes(length), place) for length in LENGTHS * 2 for place in [rng.randrange(tuser.field_bits)]]
    found = [[] for _ in tuser.places]
    unknown_sources = 0

    async def source(ctx):
        nonlocal unknown_sources
        for frame, place in packets:
            for data, count, last in beats(frame):
                while rng.random() < stall:
                    await ctx.tick()
                ctx.set(dut.i.tdata, data)
                ctx.set(dut.i.tkeep, (1 << count) - 1)
                ctx.set(dut.i.tlast, last)
                # Only the first beat's says something.
                ctx.set(
                    dut.i.tuser,
                    len(frame) | (1 << place if data == next(beats(frame))[0] else rng.getrandbits(8)) << tuser.source,
                )
                ctx.set(dut.i.tvalid, 1)
                *_, unknown_source = await ctx.tick().sample(dut.stat_unknown_source).until(dut.i.tready)
                unknown_sources += unknown_source
                ctx.set(dut.i.tvalid, 0)
        await ctx.tick().repeat(20)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(source)
    for port, rx in enumerate(dut.rx):
        simulator.add_testbench(bench(get, rx, found[port], random.Random(seed + port), stall), background=True)
    simulator.run()
    wanted = [[frame for frame, at in packets if at == place] for place in tuser.places]
    return found, wanted, unknown_sources, sum(place not in tuser.places for _, place in packets)


def merge(stall, cls=TxMerge, tuser=NETFPGA, seed=1):
    """Frames of all ports; the packets that came out, (frame, tuser), and what each port sent."""
    rng = random.Random(seed)
    dut = cls(BITS, tuser, words=128)
    sent = [[rng.randbytes(length) for length in rng.sample(LENGTHS, 8)] for _ in tuser.places]
    packets, done = [], []

    async def sink(ctx):
        frame, users, offered = b"", set(), None
        while sum(map(len, sent)) > len(packets):
            ctx.set(dut.o.tready, rng.random() >= stall)
            *_, valid, ready, data, keep, last, user = await ctx.tick().sample(
                dut.o.tvalid, dut.o.tready, dut.o.tdata, dut.o.tkeep, dut.o.tlast, dut.o.tuser
            )
            now = (data, keep, last, user) if valid else None
            assert offered is None or offered == now, "what was offered changed"
            offered = None if ready else now
            if valid and ready:
                count = keep.bit_length()
                assert keep == (1 << count) - 1 and (last or count == BYTES)
                frame += data.to_bytes(BYTES, "little")[:count]
                users.add(user)
                if last:
                    assert len(users) == 1, "tuser changed within a packet"
                    packets.append((frame, users.pop()))
                    frame, users = b"", set()
            done.append(0)
            assert len(done) < 20_000, "nothing comes any more"

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(sink)
    for port, tx in enumerate(dut.tx):
        simulator.add_testbench(bench(put, tx, sent[port], random.Random(seed + port), stall), background=True)
    simulator.run()
    return packets, sent


def holds(packets, sent, tuser):
    """Each packet is its port's next, with its length and place."""
    left = [list(frames) for frames in sent]
    for frame, user in packets:
        port = tuser.places.index((user >> tuser.destination).bit_length() - 1)
        if user & 0xFFFF != len(frame) or left[port].pop(0) != frame:
            return False
    return not any(left)


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("tuser", [NETFPGA, OPENNIC], ids=["netfpga", "opennic"])
def test_packets_go_to_the_port_of_their_source(stall, tuser):
    found, wanted, unknown_sources, sent = split(stall, tuser=tuser)
    assert found == wanted and unknown_sources == sent > 0


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("tuser", [NETFPGA, OPENNIC], ids=["netfpga", "opennic"])
def test_frames_leave_whole_with_length_and_port(stall, tuser):
    packets, sent = merge(stall, tuser=tuser)
    assert holds(packets, sent, tuser)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("put.length.eq(length + word.count)", "put.length.eq(length)"),
        ("[about.port]", "[0]"),
        ("put.port.eq(arbiter.grant)", "put.port.eq(0)"),
        ("o.tvalid.eq(words.o.valid & lengths.o.valid)", "o.tvalid.eq(words.o.valid)"),
    ],
)
def test_a_mutant_of_the_merge_is_noticed(old, new):
    try:
        packets, sent = merge(0.5, mutant(hw.board.drop_in.axi_stream, old, new).TxMerge)
    except (AssertionError, ValueError):
        return
    assert not holds(packets, sent, NETFPGA)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wanted.eq(Mux(inside, kept, lowest[:len(ours)]))", "wanted.eq(lowest[:len(ours)])"),
        ("| (wanted == 0)", "| 1"),
        ("Mux(i.tlast, count, self.bus_bits // 8)", "self.bus_bits // 8"),
    ],
)
def test_a_mutant_of_the_split_is_noticed(old, new):
    found, wanted, *_ = split(0.5, mutant(hw.board.drop_in.axi_stream, old, new).RxSplit)
    assert found != wanted


def test_places_wrong():
    with pytest.raises(ValueError, match="Tuser places must be different bits below 8, not \\(0, 0\\)"):
        Tuser(width=128, length=0, source=16, destination=24, field_bits=8, places=(0, 0))


def test_words_wrong():
    with pytest.raises(ValueError, match="TxMerge words must be at least 4, not 3"):
        TxMerge(BITS, NETFPGA, words=3)
