"""Bit errors in the FIFOs of the aggregator: the frame leaves with a wrong checksum, and all later ones are right."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

import hw.aggregate.accumulator
import hw.aggregate.aggregator
import hw.aggregate.result
import hw.aggregate.sequencer
from hw.aggregate.accumulator import SumWord
from hw.interface.result import ResultHeader
from hw.stream.fifo import Fifo
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.golden.numeric import lane as model
from iswitch.wire import Format, Operation, ones_complement_sum
from iswitch.wire.formats import FORMATS as ALL_FORMATS
from sim.bench.mutant import mutant
from sim.bench.result_headers import with_parity
from sim.bench.stream import Bench, from_words, to_words
from sim.bench.traffic import adverse_elements

CONFIG = Config(ports=2, bus_bits=64, members=4, jobs=2, window=2, elements=32, queue_bytes=4096, uplinks=False)
HALF_WIDTH = replace(CONFIG, half_width=True)
LONG = replace(HALF_WIDTH, elements=256)
"""With results of two-byte elements that have begun too early if they begin with their first word."""
ADDRESS_BYTES = 42
FRACTION = 42
FORMATS = pytest.mark.parametrize("format", [Format.INT32, Format.BF16, Format.FP16])


def config_of(format: Format) -> Config:
    return HALF_WIDTH if ALL_FORMATS[format].is_half_width else CONFIG


class DamagingFifo(wiring.Component):
    """A FIFO that flips bit `flips[k]` of its k-th item."""

    def __init__(self, shape, flips: dict[int, int], **options):
        self.fifo, self.flips = Fifo(shape, **options), flips
        super().__init__({**self.fifo.signature.members, "waits": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = self.fifo
        connect(m, self.fifo.o, flipped(self.o))
        number, put, taken = Signal(range(10_000)), Value.cast(self.fifo.i.payload), Signal()
        m.d.comb += [
            self.fifo.i.valid.eq(self.i.valid),
            self.i.ready.eq(self.fifo.i.ready),
            put.eq(self.i.payload),
            self.level.eq(self.fifo.level),
            self.waits.eq(self.fifo.level != 0),
            taken.eq(self.i.valid & self.i.ready),
        ]
        with m.Switch(number):
            for k, bit in self.flips.items():
                with m.Case(k):
                    m.d.comb += put.eq(Value.cast(self.i.payload) ^ 1 << bit)
        m.d.sync += number.eq(number + taken)
        return m


class Frames:
    """The results of one slot, again and again, with a GRANT after each; and what the model makes of them."""

    def __init__(self, results: int, format: Format, config: Config):
        limit = model.exponent_limit(FRACTION)
        numbers = adverse_elements(np.random.default_rng(3), format, config.elements, 0)
        stored, _ = model.accumulate(format, None, numbers, fraction=FRACTION, limit=limit, include=True, first=True)
        sums = model.result(format, stored, FRACTION)
        self.payload, self.works, self.expected = numbers.tobytes(), [], []
        for k in range(results):
            fields = {"job": 0, "epoch": 9, "seq": 100 + k, "members": 5, "token": 0xCAFEBABE}
            result = {**fields, "numeric": format, "length": 4 * len(numbers), "recipients": 5}
            operation = Operation.RESEND if k else Operation.CONTRIBUTE
            self.works.append(
                {"operation": operation, "slot": 0, "include": not k, "first": not k, "write": not k, "emit": 1}
                | {"fraction": FRACTION, "limit": limit, "result": with_parity(config, result)}
            )
            self.expected.append(compose.result(**fields, format=format, flags=0, tainted=0, elements=sums))
            grant = {**fields, "seq": 7 + k, "length": 0, "recipients": 5}
            self.works.append({"operation": Operation.GRANT, "emit": 1, "result": with_parity(config, grant)})
            self.expected.append(compose.grant(job=0, epoch=9, base=7 + k, members=5, token=0xCAFEBABE))


def run(
    monkeypatch, shape: type, flips: dict[int, int], results: int, format: Format, config: Config, **parts: ModuleType
):
    """Return whether each frame is the model's, the checksum of each frame, and the number of corrupt words."""
    made, corrupted, form = Frames(results, format, config), [], {}
    if ALL_FORMATS[format].is_half_width:
        form = {"meta": {"half": 1, "binary16": format == Format.FP16, "as_is": 0}}
    monkeypatch.setattr(
        hw.aggregate.aggregator,
        "Fifo",
        lambda layout, **options: DamagingFifo(layout, flips if isinstance(layout, shape) else {}, **options),
    )
    # The FIFO of sums is one without a bypass here: a sum that passes the memory meets no bit error.
    monkeypatch.setattr(
        hw.aggregate.aggregator,
        "BypassFifo",
        lambda layout, **options: DamagingFifo(layout, flips if isinstance(layout, shape) else {}, **options),
    )
    for part, module in parts.items():
        name = {"result": "ResultComposer"}.get(part, part.capitalize())
        monkeypatch.setattr(hw.aggregate.aggregator, name, getattr(module, name))
    dut = hw.aggregate.aggregator.Aggregator(config)
    bench = Bench(dut)
    bench.source(dut.works, made.works)
    bench.source(dut.contributions, to_words(made.payload, 64, **form))
    sink = bench.sink(dut.results)

    async def count(ctx):
        async for _, _, corrupt in ctx.tick().sample(dut.corrupted):
            corrupted.append(corrupt)

    bench.process(count)
    bench.run(quiet=30 + config.elements)
    frames = [frame[ADDRESS_BYTES:] for frame in from_words(sink.items, 64)]
    same = [frame == model for frame, model in zip(frames, made.expected, strict=True)]
    words = [item.meta.room for item in sink.items if item.last]
    assert not any(gaps_within(sink, config, header_leads=not ALL_FORMATS[format].is_half_width))
    return same, [ones_complement_sum(frame) == 0xFFFF for frame in frames], sum(corrupted), words


def gaps_within(sink, config: Config, *, header_leads: bool) -> Iterator[int]:
    """Yield the cycles between the words of a frame, but, if `header_leads`, those between its header and its sums."""
    place = 0
    for item, time, before in zip(sink.items[1:], sink.times[1:], sink.times, strict=False):
        place = 0 if item.first else place + 1
        if not item.first and not (header_leads and place == config.header_words):
            yield time - before - 1


def check_sums(monkeypatch, format: Format, **parts) -> None:
    config = config_of(format)
    layout, words = SumWord(config), config.segment_words >> ALL_FORMATS[format].is_half_width
    copies = range(layout["last"].offset, layout["last"].offset + 3)
    bits = (0, 31, 63, *copies, layout["corrupt"].offset)
    flips = [(word, bit) for word in (0, words // 2 - 1, words - 1) for bit in bits]
    flips.append((3, layout["parity"].offset))
    table = {words * 2 * k + word: bit for k, (word, bit) in enumerate(flips)}
    same, right, corrupted, _ = run(monkeypatch, SumWord, table, 2 * len(flips), format, config, **parts)
    harmless = [bit in copies for _, bit in flips]
    wanted = [one for is_harmless in harmless for one in (is_harmless, True, True, True)]
    assert right == wanted and all(a for a, one in zip(same, wanted, strict=True) if one)
    assert corrupted == harmless.count(False)


def check_headers(
    monkeypatch, format: Format, *, config: Config | None = None, fields: Collection[str] = (), **parts
) -> None:
    """With `fields`, only their bits are flipped."""
    config = config or config_of(format)
    layout = ResultHeader(config)
    bits = {name: range(field.offset, field.offset + field.width) for name, field in layout}
    harmless = [*bits.pop("recipients"), *bits.pop("grant")]
    flips = [*harmless, *(bit for field in bits.values() for bit in {field[0], field[-1]})]
    flips += [*bits["length"], *bits["numeric"]]
    if fields:
        flips, harmless = [bit for name in fields for bit in bits[name]], []
    # Each bit of a result's header, then of a GRANT's, with a sound result and a sound GRANT between them.
    table = {4 * k: bit for k, bit in enumerate(flips)} | {4 * (len(flips) + k) + 1: bit for k, bit in enumerate(flips)}
    same, right, corrupted, words = run(monkeypatch, ResultHeader, table, 4 * len(flips), format, config, **parts)
    wanted = [k not in table or table[k] in harmless for k in range(8 * len(flips))]
    assert right == wanted and all(a for a, one in zip(same, wanted, strict=True) if one)
    assert corrupted == wanted.count(False)
    # A frame without a right length claims the room of the longest, so that no queue overflows.
    longest = max(words)
    assert all(count == longest for count, one in zip(words, wanted, strict=True) if not one)


@FORMATS
def test_sums_with_a_bit_error_leave_under_a_wrong_checksum_and_go_to_no_other_result(format, monkeypatch):
    check_sums(monkeypatch, format)


@FORMATS
def test_a_frame_whose_header_has_a_bit_error_leaves_under_a_wrong_checksum_and_takes_no_others_sums(
    format, monkeypatch
):
    check_headers(monkeypatch, format)


def test_a_long_half_width_result_whose_header_has_a_bit_error_waits_until_it_can_leave_without_a_gap(monkeypatch):
    """Nothing says how many words come, nor how fast. A gap inside a frame would starve a MAC."""
    check_headers(monkeypatch, Format.BF16, config=LONG, fields=("length", "numeric"))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong"),
    [
        ("result", "(Cat(sums.data, sums.corrupt).xor() ^ sums.parity)", "0"),
        ("result", "majority(self.sums.payload.last)", "self.sums.payload.last[1]"),
        ("result", "ends & known.corrupt", "0"),
        ("result", "~closed & (corrupt | wrong | found)", "corrupt | wrong | found"),
        ("result", "inserter.corrupt.eq(corrupt | wrong | found)", "inserter.corrupt.eq(wrong | found)"),
        ("result", "inserter.corrupt.eq(corrupt | wrong | found)", "inserter.corrupt.eq(corrupt | found)"),
        ("result", "majority(coming.grant)", "coming.length == 0"),
        ("result", "~fold_carries(m, before + behind) ^ known.corrupt", "~fold_carries(m, before + behind)"),
        ("result", "Mux(known.corrupt, result_words(config)", "Mux(0, result_words(config)"),
        ("accumulator", "Cat(self.o.payload.data, self.corrupted).xor()", "0"),
    ],
)
def test_a_mutant_is_noticed(part, sound, wrong, monkeypatch):
    broken = mutant(getattr(hw.aggregate, part), sound, wrong)
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check_sums(monkeypatch, Format.INT32, **{part: broken})
        check_headers(monkeypatch, Format.INT32, **{part: broken})


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("Mux(known.half | known.corrupt, enough, starts)", "Mux(known.half, enough, starts)"),
        ("~known.corrupt & (self.level", "(self.level"),
    ],
)
def test_a_mutant_of_half_width_results_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.aggregate.result, sound, wrong)
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check_headers(monkeypatch, Format.BF16, config=LONG, fields=("length", "numeric"), result=broken)
