# amaranth: UnusedElaboratable=no
"""Memory on the chip: units come back as they were written, after as many cycles as promised; what is not there is said
not to be."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

import hw.replay.memory.ram
from hw.interface.axi import Burst, Response
from hw.replay.memory.ram import OUTSTANDING, OnChipRam
from hw.replay.memory.units import beats_of
from iswitch.wire.replay import UNIT_BYTES
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench
from sim.bench.units import Units

ADDRESS_BITS = 16


class Memory(wiring.Component):
    """Reader, writer and memory together."""

    def __init__(self, ram):
        self.ram, self.units = ram, Units(ADDRESS_BITS, data_bits=ram.data_bits)
        super().__init__({name: member for name, member in self.units.signature.members.items() if name != "axi"})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram, m.submodules.units = ram, units = self.ram, self.units
        connect(m, units.axi, ram.axi)
        for name, member in self.signature.members.items():
            if member.is_port:
                m.d.comb += getattr(self, name).eq(getattr(units, name))
            else:
                connect(m, getattr(units, name), flipped(getattr(self, name)))
        return m


def check(ram=OnChipRam, *, bytes=1 << 12, latency=16, count=40, stalls=0.0, data_bits=64):
    """Writes, with reads between them of what is there already and of what never was written: zeros."""
    rng = random.Random(bytes)
    dut = Memory(ram(bytes=bytes, latency=latency, address_bits=ADDRESS_BITS, data_bits=data_bits))
    units, contents = bytes // UNIT_BYTES, {}
    asked = [rng.randrange(units) for _ in range(count)]
    for unit in asked:
        contents[unit] = rng.randbytes(UNIT_BYTES)
    written = [contents[unit] for unit in asked]
    split = lambda unit, word: [int.from_bytes(unit[k : k + word], "little") for k in range(0, UNIT_BYTES, word)]
    reads = [rng.randrange(units + 2) for _ in range(count)]
    bench = Bench(dut, stalls=stalls)
    writes = bench.source(dut.writes, [unit * UNIT_BYTES for unit in asked])
    bench.source(dut.put, [row for unit in written for row in split(unit, 8)])
    late = 100 + count * 8 * (3 if stalls else 1)
    source, sink = bench.source(dut.reads, [unit * UNIT_BYTES for unit in reads], start=late), bench.sink(dut.found)
    idle = []

    async def follow(ctx):
        cycle = 0
        async for _, _, busy in ctx.tick().sample(dut.busy):
            cycle += 1
            if busy:
                idle[:] = [cycle]

    bench.process(follow)
    bench.run(quiet=30 + latency)
    assert idle[0] < late and writes.done
    expected = [word for unit in reads for word in split(contents.get(unit, b"\0" * UNIT_BYTES), data_bits // 8)]
    assert [item.data for item in sink.items] == expected
    assert bench.strobes["stat_error"] == beats_of(data_bits) * sum(unit >= units for unit in reads)
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("latency", [2, 3, 16])
@pytest.mark.parametrize("bytes", [1 << 12, 3 << 10, 1 << 16])
def test_units_come_back_as_they_were_written(bytes, latency, stalls):
    check(bytes=bytes, latency=latency, stalls=stalls)


@pytest.mark.parametrize("data_bits", [256, 512])
def test_units_come_back_over_a_wider_bus(data_bits):
    check(stalls=0.5, data_bits=data_bits)


@pytest.mark.parametrize(("latency", "data_bits"), [(2, 64), (16, 64), (40, 64), (24, 256), (24, 512)])
def test_a_beat_a_cycle(latency, data_bits):
    _, sink = check(latency=latency, data_bits=data_bits)
    assert sink.times[-1] - sink.times[0] == len(sink.times) - 1


class Bursts:
    """The memory's own channels."""

    def __init__(self, ram=OnChipRam, *, bytes=256, latency=5, stalls=0.0):
        self.dut = ram(bytes=bytes, latency=latency, address_bits=ADDRESS_BITS, id_bits=3)
        self.bench = Bench(self.dut, stalls=stalls)

    @staticmethod
    def request(address, beats, *, id=0, burst=Burst.INCR, size=3):
        return {"addr": address, "len": beats - 1, "id": id, "burst": burst, "size": size, "cache": 3}

    def run(self, *, writes=(), beats=(), reads=(), reads_from=100, answers_from=0):
        axi, bench = self.dut.axi, self.bench
        bench.source(axi.aw, writes)
        bench.source(axi.w, [{"data": word, "strb": strobe, "last": last} for word, strobe, last in beats])
        self.asked, answers, found = (
            bench.source(axi.ar, reads, start=reads_from),
            bench.sink(axi.b, start=answers_from),
            bench.sink(axi.r),
        )
        bench.run(quiet=30 + self.dut.latency)
        return answers, found


def first_beats(ram=OnChipRam, *, latency=16):
    bursts = Bursts(ram, latency=latency)
    _, found = bursts.run(reads=[bursts.request(0, 3), bursts.request(8, 1), bursts.request(16, 2)])
    first, second, third = bursts.asked.times
    assert found.times[:3] == [first + latency, first + latency + 1, first + latency + 2]
    assert (second, third) == (first + 1, first + 2)  # wait for the one before, but not longer
    assert found.times[3:] == [first + latency + 3, first + latency + 4, first + latency + 5]


@pytest.mark.parametrize("latency", [2, 3, 4, 16, 100])
def test_the_first_beat_comes_as_late_as_promised(latency):
    first_beats(latency=latency)


def late_answers(ram=OnChipRam):
    count = OUTSTANDING + 12  # more than can wait for their answers
    bursts = Bursts(ram, bytes=8 * count)
    answers, found = bursts.run(
        writes=[bursts.request(8 * k, 1, id=k % 8) for k in range(count)],
        beats=[(k, 0xFF, 1) for k in range(count)],
        reads=[bursts.request(0, count)],
        reads_from=150,
        answers_from=100,
    )
    assert [item.id for item in answers.items] == [k % 8 for k in range(count)]
    assert [item.data for item in found.items] == list(range(count))


def test_stalled_responses_are_not_lost():
    late_answers()


def outcomes(ram=OnChipRam, *, stalls=0.0):
    """Of a burst across the end the beats before the end are good; a write with one that is not there says that it has
    failed."""
    bursts = Bursts(ram, stalls=stalls)
    word = lambda k: 0x0101010101010101 * k
    answers, found = bursts.run(
        writes=[
            bursts.request(240, 4, id=5),
            bursts.request(0, 1, id=2),
            bursts.request(256, 1, id=7),
            bursts.request(8, 2, id=1),
        ],
        beats=[
            (word(1), 0xFF, 0),
            (word(2), 0xFF, 0),
            (word(3), 0xFF, 0),
            (word(4), 0xFF, 1),
            (word(5), 0x0F, 1),
            (word(6), 0xFF, 1),
            (word(7), 0x81, 0),
            (word(8), 0, 1),
        ],
        reads=[bursts.request(240, 4, id=6), bursts.request(0, 3, id=1)],
    )
    assert [(item.id, item.resp) for item in answers.items] == [
        (5, Response.DECERR),
        (2, Response.OKAY),
        (7, Response.DECERR),
        (1, Response.OKAY),
    ]
    assert [(item.id, item.data, item.resp, item.last) for item in found.items] == [
        (6, word(1), Response.OKAY, 0),
        (6, word(2), Response.OKAY, 0),
        (6, 0, Response.DECERR, 0),
        (6, 0, Response.DECERR, 1),
        (1, 0x05050505, Response.OKAY, 0),
        (1, 0x0700000000000007, Response.OKAY, 0),
        (1, 0, Response.OKAY, 1),
    ]


@pytest.mark.parametrize("stalls", STALLS)
def test_every_beat_says_what_became_of_it(stalls):
    outcomes(stalls=stalls)


def unknown(ram=OnChipRam, **wrong):
    bursts = Bursts(ram)
    answers, found = bursts.run(
        writes=[bursts.request(0, 2, **wrong), bursts.request(16, 1)],
        beats=[(1, 0xFF, 0), (2, 0xFF, 1), (3, 0xFF, 1)],
        reads=[bursts.request(0, 3), bursts.request(0, 2, **wrong)],
    )
    assert [item.resp for item in answers.items] == [Response.SLVERR, Response.OKAY]
    assert [(item.data, item.resp) for item in found.items] == [
        (0, Response.OKAY),
        (0, Response.OKAY),
        (3, Response.OKAY),
        (0, Response.SLVERR),
        (0, Response.SLVERR),
    ]


@pytest.mark.parametrize("wrong", [{"burst": Burst.FIXED}, {"burst": Burst.WRAP}, {"size": 2}])
def test_bursts_that_it_does_not_know_change_nothing(wrong):
    unknown(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bytes": 12}, r"OnChipRam bytes must be a multiple of 8 from 16 to 2\^32, not 12"),
        (
            {"bytes": 1 << 14, "address_bits": 13},
            r"OnChipRam bytes must be a multiple of 8 from 16 to 2\^13, not 16384",
        ),
        ({"bytes": 64, "latency": 1}, "OnChipRam latency must be 2 to 256, not 1"),
        ({"bytes": 64, "address_bits": 12}, "Axi4 address_bits must be 13 to 64, not 12"),
        ({"bytes": 64, "id_bits": 0}, "Axi4 id_bits must be 1 to 32"),
    ],
)
def test_parameters_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        OnChipRam(**wrong)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("~axi.r.valid | axi.r.ready", "Mux(1, 1, axi.r.ready)"),
        ("burst_waits & answers.i.ready", "burst_waits"),
        ("beat == first.len", "beat == first.len + 1"),
        ("Mux(ends, 0, beat + 1)", "beat + 1"),
        ("first.word + beat", "first.word"),
        ("word < self.words", "word <= self.words"),
        ("bursts_due + becomes_due - ends", "bursts_due + becomes_due"),
        ("[self.latency - 2]", "[self.latency - 3]"),
        ("Mux(ends, 0, worst_response | response)", "response"),
        ("worst_response.eq(Mux(ends, 0, worst_response", "worst_response.eq(Mux(0, 0, worst_response"),
        ("(request.burst == Burst.INCR) & ", ""),
        (" & (request.size == within)", ""),
        ("Mux(shown.resp == Response.OKAY, port.data, 0)", "port.data"),
        ("Mux(steps & (response == Response.OKAY), axi", "Mux(steps, axi"),
        ("shown.last.eq(ends)", "shown.last.eq(1)"),
        ("(delay_line << 1 | (axi.ar.valid & axi.ar.ready))[self.latency - 2]", "axi.ar.valid & axi.ar.ready"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.memory.ram, sound, wrong).OnChipRam
    with pytest.raises((AssertionError, TimeoutError)):
        check(broken, count=15, bytes=192, stalls=0.5)
        first_beats(broken)
        late_answers(broken)
        outcomes(broken, stalls=0.5)
        unknown(broken, burst=Burst.WRAP)
        unknown(broken, size=2)
