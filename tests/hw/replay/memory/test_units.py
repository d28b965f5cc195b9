# amaranth: UnusedElaboratable=no
"""Units of memory, read and written: every byte, in order, whatever the memory does; every plausible mutant is
killed."""

import random

import pytest
from amaranth.hdl import Value

import hw.replay.memory.units
import hw.stream.fifo
from hw.interface.axi import Response
from hw.replay.memory.units import UnitReader, UnitWriter, beats_of
from iswitch.wire.replay import UNIT_BYTES
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.memory import Memory
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

ADDRESS_BITS = 20
SIZE = 1 << 16
WIDTHS = [64, 256, 512]


def addresses(count, *, seed=1):
    """In a row, again and again the same, and anywhere; each side of a multiple of 4096. The low bits mean nothing."""
    rng = random.Random(seed)
    places = [0, 4096 - UNIT_BYTES, 4096, SIZE - UNIT_BYTES]
    while len(places) < count:
        places += rng.choice(
            [[places[-1]] * 2, [(places[-1] + UNIT_BYTES) % SIZE], [rng.randrange(0, SIZE, UNIT_BYTES)]]
        )
    return [place + rng.randrange(UNIT_BYTES) for place in places[:count]]


def words(contents, address, data_bits=64):
    start, word = address // UNIT_BYTES * UNIT_BYTES, data_bits // 8
    return [int.from_bytes(contents[at : at + word], "little") for at in range(start, start + UNIT_BYTES, word)]


def check_reader(
    reader=UnitReader, *, data_bits=64, outstanding=8, stalls=0.0, latency=1, count=60, slow=None, size=SIZE
):
    """Check a reader. `slow`: stalls of the consumer of beats, if they differ from `stalls`."""
    contents = bytearray(random.Random(2).randbytes(size))
    asked, beats = addresses(count), beats_of(data_bits)
    dut = reader(ADDRESS_BITS, data_bits=data_bits, outstanding=outstanding)
    bench, outstanding = Bench(dut, stalls=stalls), dut.outstanding
    memory = Memory(contents, stalls=stalls, latency=latency).attach(bench, ar=dut.ar, r=dut.r)
    source, sink = bench.source(dut.units, asked), bench.sink(dut.beats, stalls=stalls if slow is None else slow)
    errors, ahead = [], []

    async def follow(ctx):
        asking = waiting = given = 0
        async for _, _, error, asks, goes, comes, ready in ctx.tick().sample(
            dut.error, dut.ar.valid, dut.ar.ready, dut.r.valid, dut.r.ready
        ):
            asking, given, waiting = (
                asking + (asks and goes),
                given + (comes and ready),
                waiting + (comes and not ready),
            )
            errors.append(error)
            ahead.append(asking - given // beats)
            assert not waiting, "memory was made to wait"

    bench.process(follow)
    bench.run(quiet=60 + latency)
    there = lambda address: address < len(contents)
    expected = [
        (word, not there(address))
        for address in asked
        for word in (words(contents, address, data_bits) if there(address) else [0] * beats)
    ]
    odd = lambda item: (item.data.bit_count() + item.parity) % 2
    assert [(item.data, odd(item)) for item in sink.items] == expected
    assert memory.reads == [address // UNIT_BYTES * UNIT_BYTES for address in asked]
    assert sum(errors) == beats * sum(not there(address) for address in asked)
    assert max(ahead) <= outstanding
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("latency", [1, 30])
@pytest.mark.parametrize(("data_bits", "outstanding"), [(64, 1), (64, 2), (64, 8), (256, 3), (512, 1), (512, 8)])
def test_what_is_read_is_what_is_there(data_bits, outstanding, latency, stalls):
    check_reader(data_bits=data_bits, outstanding=outstanding, latency=latency, stalls=stalls)


def test_stalled_beats_never_stall_memory():
    check_reader(slow=0.9)


@pytest.mark.parametrize("data_bits", WIDTHS)
def test_a_beat_a_cycle(data_bits):
    source, sink = check_reader(data_bits=data_bits, latency=40, outstanding=None)
    assert sink.times[-1] - sink.times[0] == len(sink.times) - 1


def check_bit_errors(monkeypatch, reader=UnitReader):
    """Flip bits of beats in the FIFO. Those beats have a wrong parity, and no others."""
    memories = keep_memories(monkeypatch, hw.stream.fifo)
    rng, dut, found = random.Random(3), reader(ADDRESS_BITS, outstanding=4), []

    async def drive(ctx):
        for round in range(4):
            ctx.set(dut.beats.ready, 0)
            sent = []
            for _ in range(4):
                ctx.set(dut.units.valid, 1)
                while not ctx.get(dut.units.ready):
                    await ctx.tick()
                await ctx.tick()
                ctx.set(dut.units.valid, 0)
                ctx.set(dut.ar.ready, 1)
                await ctx.tick()
                ctx.set(dut.ar.ready, 0)
                for _ in range(8):
                    sent.append(rng.getrandbits(64))
                    ctx.set(dut.r.payload.data, sent[-1])
                    ctx.set(dut.r.valid, 1)
                    await ctx.tick()
                ctx.set(dut.r.valid, 0)
            await ctx.tick().repeat(3)
            wrong = {5: 0, 9: 63, 17 + round: 64}  # the FIFO's memory holds all but the beat that it shows
            for place, bit in wrong.items():
                row = next(k for k in range(32) if ctx.get(Value.cast(memories[0].data[k])) % 2**64 == sent[place])
                flip(ctx, memories[0], row, bit)
            ctx.set(dut.beats.ready, 1)
            for k in range(4 * 8):
                assert ctx.get(dut.beats.valid)
                data = ctx.get(dut.beats.payload.data)
                found.append((data.bit_count() + ctx.get(dut.beats.payload.parity)) % 2 == (k in wrong))
                assert data == sent[k] or k in wrong
                await ctx.tick()
            assert not ctx.get(dut.beats.valid)

    Bench(dut).drive(drive)
    assert len(found) == 16 * 8 and all(found)


def test_a_beat_with_a_bit_error_has_a_wrong_parity(monkeypatch):
    check_bit_errors(monkeypatch)


def test_what_is_not_there_is_an_error():
    """Memory says so for each beat. The bytes that it gives are passed on, with a wrong parity."""
    check_reader(size=4096)


def check_writer(
    writer=UnitWriter,
    *,
    data_bits=64,
    outstanding=8,
    stalls=0.0,
    latency=1,
    count=60,
    beats_first=False,
    beats_late=0,
    size=SIZE,
):
    rng = random.Random(3)
    contents, expected, asked = bytearray(size), bytearray(SIZE), addresses(count)
    data = [rng.randbytes(UNIT_BYTES) for _ in asked]
    for address, unit in zip(asked, data):
        start = address // UNIT_BYTES * UNIT_BYTES
        expected[start : start + UNIT_BYTES] = unit
    dut = writer(ADDRESS_BITS, data_bits=data_bits, outstanding=outstanding)
    bench = Bench(dut, stalls=stalls)
    memory = Memory(contents, stalls=stalls, latency=latency, beats_first=beats_first).attach(
        bench, aw=dut.aw, w=dut.w, b=dut.b
    )
    bench.source(dut.units, asked)
    rows = bench.source(dut.rows, [word for unit in data for word in words(unit, 0)], start=beats_late)
    begun = done = errors = 0

    async def follow(ctx):
        nonlocal begun, done, errors
        offered = ended = 0  # addresses on the bus, and units whose last beat was
        async for _, _, valid, ready, busy, error, answers, taken, asks, goes, puts, last, took in ctx.tick().sample(
            dut.units.valid,
            dut.units.ready,
            dut.busy,
            dut.error,
            dut.b.valid,
            dut.b.ready,
            dut.aw.valid,
            dut.aw.ready,
            dut.w.valid,
            dut.w.payload.last,
            dut.w.ready,
        ):
            assert busy == (begun != done), f"{begun - done} units on their way, and busy is {busy}"
            assert begun - done <= outstanding
            assert not puts or ended < offered + asks, "a beat is there before its address"
            begun, done, errors = begun + (valid and ready), done + (answers and taken), errors + error
            offered, ended = offered + (asks and goes), ended + (puts and last and took)

    bench.process(follow)
    bench.run(quiet=60 + latency)
    assert contents == expected[:size] and begun == done == count
    assert memory.writes == [address // UNIT_BYTES * UNIT_BYTES for address in asked]
    assert errors == sum(address >= size for address in asked)
    return rows


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("latency", [1, 30])
@pytest.mark.parametrize(("data_bits", "outstanding"), [(64, 1), (64, 2), (64, 8), (256, 3), (512, 1), (512, 8)])
def test_what_was_written_is_there_when_the_writer_is_not_busy(data_bits, outstanding, latency, stalls):
    check_writer(data_bits=data_bits, outstanding=outstanding, latency=latency, stalls=stalls)


@pytest.mark.parametrize("data_bits", WIDTHS)
def test_a_row_a_cycle_is_written(data_bits):
    rows = check_writer(data_bits=data_bits, latency=40)
    assert rows.times[-1] - rows.times[0] == len(rows.times) - 1


@pytest.mark.parametrize("stalls", STALLS)
def test_memory_may_want_to_see_the_beats_first(stalls):
    """AXI4 lets it wait for them before it takes their address."""
    check_writer(beats_first=True, stalls=stalls)


def test_beats_that_come_late_keep_the_writer_busy():
    check_writer(beats_late=100)


def test_what_cannot_be_written_is_an_error():
    check_writer(size=4096)


def check_strays(*, reader=UnitReader, writer=UnitWriter):
    """Beats and answers that were asked for before a reset, of which the part knows nothing."""
    for channel, dut in (("r", reader(ADDRESS_BITS)), ("b", writer(ADDRESS_BITS))):

        async def testbench(ctx, channel=channel, dut=dut):
            stray = getattr(dut, channel)
            ctx.set(stray.payload.resp, Response.SLVERR)
            ctx.set(stray.valid, 1)
            for _ in range(11):
                await ctx.tick()
                assert not ctx.get(dut.error) and not ctx.get(dut.beats.valid if channel == "r" else dut.busy)
            ctx.set(stray.valid, 0)
            ctx.set(dut.units.valid, 1)
            await ctx.tick()
            ctx.set(dut.units.valid, 0)
            if channel == "b":
                assert ctx.get(dut.busy)
                return
            found = []
            ctx.set(stray.valid, 1)
            ctx.set(dut.beats.ready, 1)
            for k in range(14):
                ctx.set(stray.payload.data, k)
                await ctx.tick()
                if ctx.get(dut.beats.valid):
                    found.append(ctx.get(dut.beats.payload.data))
            assert found == list(range(8))

        Bench(dut).drive(testbench)


def test_what_was_asked_for_before_a_reset_is_not_taken():
    check_strays()


@pytest.mark.parametrize("unit", [UnitReader, UnitWriter])
def test_parameters_wrong(unit):
    with pytest.raises(ValueError, match=f"{unit.__name__} address_bits must be 13 to 64, not 12"):
        unit(12)
    with pytest.raises(ValueError, match=f"{unit.__name__} data_bits must be 64, 128, 256 or 512, not 32"):
        unit(ADDRESS_BITS, data_bits=32)
    with pytest.raises(ValueError, match=f"{unit.__name__} outstanding must be 1 to 64, not 0"):
        unit(ADDRESS_BITS, outstanding=0)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # a beat is dropped, or memory is stalled, while the consumer stalls
        ("has_room = reserved != self.outstanding", "has_room = Const(1)"),
        ("self.outstanding * self.unit_beats)", "self.outstanding * self.unit_beats - 1)"),
        ("leaves & (leaving == self.unit_beats - 1)", "leaves"),
        ("leaving + leaves", "leaving + self.beats.ready"),
        ("self.r.payload.data.xor() ^ self.r.payload.resp[1]", "self.r.payload.data.xor()"),
        ("self.r.payload.data.xor() ^ self.r.payload.resp[1]", "self.r.payload.resp[1]"),
        ("leaves & (leaving == self.unit_beats - 1)", "leaves & (leaving == 0)"),
        ("reserved + accepted - released", "reserved + accepted"),
        ("beat == self.unit_beats - 1\n        m.d.comb", "beat == 0\n        m.d.comb"),
        ("beat + arrived", "beat + 1"),
        ("self.beats.valid & self.beats.ready)", "self.beats.valid)"),
        ("arrived & self.r.payload.resp[1]", "0"),
        ("arrived & self.r.payload.resp[1]", "self.r.payload.resp[1]"),
        ("self.r.valid & (awaited_units != 0)", "self.r.valid"),
        # an address is lost, is sent twice, changes while it is offered
        ("addresses.i.ready & has_room", "has_room"),
        ("self.units.valid & has_room", "self.units.valid"),
        ("addresses.o.ready.eq(self.ar.ready)", "addresses.o.ready.eq(1)"),
        (
            "aligned(addresses.o.payload), self.unit_beats, self.data_bits",
            "aligned(addresses.o.payload), self.unit_beats",
        ),
        # units come in another order
        ("self.ar.payload, aligned(", "self.ar.payload, UNIT_BYTES ^ aligned("),
        ("Const(0, exact_log2(UNIT_BYTES)), address", "address[:exact_log2(UNIT_BYTES)], address"),
    ],
)
def test_a_mutant_in_the_reader_is_noticed(sound, wrong):
    broken = mutant(hw.replay.memory.units, sound, wrong).UnitReader
    with pytest.raises((AssertionError, TimeoutError)):
        check_reader(broken, count=20)
        check_reader(broken, count=20, data_bits=512, outstanding=2)
        check_reader(broken, count=40, stalls=0.5)
        check_reader(broken, count=20, slow=0.95)
        check_reader(broken, count=20, size=4096, stalls=0.5)
        check_strays(reader=broken)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # busy ends before memory has answered
        ("self.busy.eq(pending != 0)", "self.busy.eq(awaiting_rows != 0)"),
        ("pending + accepted - confirmed", "pending + accepted - unit_complete"),
        ("pending + accepted - confirmed", "pending + accepted"),
        ("self.b.ready.eq(1)", "self.b.ready.eq(0)"),
        ("(pending != self.outstanding)", "1"),
        ("self.b.payload.resp[1]", "0"),
        ("confirmed & self.b.payload.resp[1]", "self.b.payload.resp[1]"),
        ("self.b.valid & self.busy", "self.b.valid"),
        # beats
        ("self.rows.valid & awaits", "self.rows.valid"),
        ("buffer.i.ready & awaits", "buffer.i.ready"),
        ("awaits.eq(awaiting_rows != 1)", "awaits.eq(1)"),
        ("with m.Elif(unit_complete & ~accepted):", "with m.Elif(unit_complete):"),
        ("put.strb.eq(-1)", "put.strb.eq(127)"),
        ("put.last.eq(beat == self.unit_beats - 1)", "put.last.eq(beat == 0)"),
        ("beat + (taken & ends_beat)", "beat + buffer.i.valid"),
        ("row + taken", "row + self.rows.valid"),
        ("& ends_beat),\n            put", "),\n            put"),
        ("Cat(kept, self.rows.payload)[row_bits:]", "Cat(self.rows.payload, kept)[:-row_bits]"),
        ("self.rows.valid & awaits", "self.rows.valid & awaits & ~self.aw.valid"),
        # addresses
        ("self.units.ready.eq(~self.aw.valid & (pending", "self.units.ready.eq((pending"),
        ("self.aw.valid.eq(0)", "self.aw.valid.eq(self.aw.valid)"),
    ],
)
def test_a_mutant_in_the_writer_is_noticed(sound, wrong):
    broken = mutant(hw.replay.memory.units, sound, wrong).UnitWriter
    with pytest.raises((AssertionError, TimeoutError)):
        check_writer(broken, count=20, latency=40)
        check_writer(broken, count=40, stalls=0.5)
        check_writer(broken, count=20, stalls=0.5, data_bits=256)
        check_writer(broken, count=10, beats_first=True)
        check_writer(broken, count=20, size=4096, stalls=0.5)
        check_strays(writer=broken)
