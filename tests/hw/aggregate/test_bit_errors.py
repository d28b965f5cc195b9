"""Bit errors in the FIFOs of the aggregator: the frame leaves with a wrong checksum, and all later ones are right."""

from types import ModuleType

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

import hw.aggregate.accumulator
import hw.aggregate.aggregator
import hw.aggregate.result
import hw.aggregate.sequencer
from hw.aggregate.accumulator import SumWord
from hw.interface.result import ResultHeader
from hw.stream.fifo import Fifo
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.wire import Format, Operation, ones_complement_sum
from sim.bench.mutant import mutant
from sim.bench.result_headers import with_parity
from sim.bench.stream import Bench, from_words, to_words

CONFIG = Config(ports=2, bus_bits=64, members=4, jobs=2, window=2, elements=32, queue_bytes=4096, uplinks=False)
ADDRESS_BYTES = 42
WORDS = 16
"""Words of each result's sums."""


class DamagingFifo(wiring.Component):
    """A FIFO that flips bit `flips[k]` of its k-th item."""

    def __init__(self, shape, flips: dict[int, int], **options):
        self.fifo, self.flips = Fifo(shape, **options), flips
        super().__init__(self.fifo.signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = self.fifo
        connect(m, self.fifo.o, flipped(self.o))
        number, put, taken = Signal(range(1000)), Value.cast(self.fifo.i.payload), Signal()
        m.d.comb += [
            self.fifo.i.valid.eq(self.i.valid),
            self.i.ready.eq(self.fifo.i.ready),
            put.eq(self.i.payload),
            self.level.eq(self.fifo.level),
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

    def __init__(self, results: int):
        numbers = np.arange(2 * WORDS, dtype="<u4") * 0x01234567
        self.payload, self.works, self.expected = numbers.tobytes(), [], []
        for k in range(results):
            fields = {"job": 0, "epoch": 9, "seq": 100 + k, "members": 5, "token": 0xCAFEBABE}
            result = {**fields, "numeric": Format.INT32, "length": 4 * len(numbers), "recipients": 5}
            operation = Operation.RESEND if k else Operation.CONTRIBUTE
            self.works.append(
                {"operation": operation, "slot": 0, "include": not k, "first": not k, "write": not k, "emit": 1}
                | {"result": with_parity(CONFIG, result)}
            )
            self.expected.append(compose.result(**fields, format=Format.INT32, flags=0, tainted=0, elements=numbers))
            grant = {**fields, "seq": 7 + k, "length": 0, "recipients": 5}
            self.works.append({"operation": Operation.GRANT, "emit": 1, "result": with_parity(CONFIG, grant)})
            self.expected.append(compose.grant(job=0, epoch=9, base=7 + k, members=5, token=0xCAFEBABE))


def run(monkeypatch, shape: type, flips: dict[int, int], results: int, **parts: ModuleType):
    """Return whether each frame is the model's, the checksum of each frame, and the number of corrupt words."""
    made, corrupted = Frames(results), []
    monkeypatch.setattr(
        hw.aggregate.aggregator,
        "Fifo",
        lambda layout, **options: DamagingFifo(layout, flips if isinstance(layout, shape) else {}, **options),
    )
    for part, module in parts.items():
        name = {"result": "ResultComposer"}.get(part, part.capitalize())
        monkeypatch.setattr(hw.aggregate.aggregator, name, getattr(module, name))
    dut = hw.aggregate.aggregator.Aggregator(CONFIG)
    bench = Bench(dut)
    bench.source(dut.works, made.works)
    bench.source(dut.contributions, to_words(made.payload, 64))
    sink = bench.sink(dut.results)

    async def count(ctx):
        async for _, _, corrupt in ctx.tick().sample(dut.corrupted):
            corrupted.append(corrupt)

    bench.process(count)
    bench.run()
    frames = [frame[ADDRESS_BYTES:] for frame in from_words(sink.items, 64)]
    same = [frame == model for frame, model in zip(frames, made.expected, strict=True)]
    words = [item.meta.words for item in sink.items if item.last]
    return same, [ones_complement_sum(frame) == 0xFFFF for frame in frames], sum(corrupted), words


def check_sums(monkeypatch, **parts) -> None:
    layout = SumWord(CONFIG)
    copies = range(layout["last"].offset, layout["last"].offset + 3)
    flips = [(word, bit) for word in (0, 7, 15) for bit in (0, 31, 63, *copies, layout["corrupt"].offset)]
    flips.append((3, layout["parity"].offset))
    table = {WORDS * 2 * k + word: bit for k, (word, bit) in enumerate(flips)}
    same, right, corrupted, _ = run(monkeypatch, SumWord, table, 2 * len(flips), **parts)
    harmless = [bit in copies for _, bit in flips]
    wanted = [one for is_harmless in harmless for one in (is_harmless, True, True, True)]
    assert right == wanted and all(a for a, one in zip(same, wanted, strict=True) if one)
    assert corrupted == harmless.count(False)


def check_headers(monkeypatch, **parts) -> None:
    layout = ResultHeader(CONFIG)
    bits = {name: range(field.offset, field.offset + field.width) for name, field in layout}
    harmless = [*bits.pop("recipients"), *bits.pop("grant")]
    flips = [*harmless, *(bit for field in bits.values() for bit in {field[0], field[-1]}), *bits["length"]]
    # Each bit of a result's header, then of a GRANT's, with a sound result and a sound GRANT between them.
    table = {4 * k: bit for k, bit in enumerate(flips)} | {4 * (len(flips) + k) + 1: bit for k, bit in enumerate(flips)}
    same, right, corrupted, words = run(monkeypatch, ResultHeader, table, 4 * len(flips), **parts)
    wanted = [k not in table or table[k] in harmless for k in range(8 * len(flips))]
    assert right == wanted and all(a for a, one in zip(same, wanted, strict=True) if one)
    assert corrupted == wanted.count(False)
    # A frame without a right length claims the room of the longest, so that no queue overflows.
    longest = max(words)
    assert all(count == longest for count, one in zip(words, wanted, strict=True) if not one)


def test_sums_with_a_bit_error_leave_under_a_wrong_checksum_and_go_to_no_other_result(monkeypatch):
    check_sums(monkeypatch)


def test_a_frame_whose_header_has_a_bit_error_leaves_under_a_wrong_checksum_and_takes_no_others_sums(monkeypatch):
    check_headers(monkeypatch)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong"),
    [
        ("result", "Cat(sums.data, sums.corrupt, sums.parity).xor()", "0"),
        ("result", "majority(self.sums.payload.last)", "self.sums.payload.last[1]"),
        ("result", "ends & known.corrupt", "0"),
        ("result", "~closed & (corrupt | wrong | found)", "corrupt | wrong | found"),
        ("result", "inserter.corrupt.eq(corrupt | wrong | found)", "inserter.corrupt.eq(wrong | found)"),
        ("result", "inserter.corrupt.eq(corrupt | wrong | found)", "inserter.corrupt.eq(corrupt | found)"),
        ("result", "majority(coming.grant)", "coming.length == 0"),
        ("result", "~fold_carries(m, total) ^ known.corrupt", "~fold_carries(m, total)"),
        ("result", "Mux(known.corrupt, result_words(config), ", "Mux(0, result_words(config), "),
        ("accumulator", "Cat(self.o.payload.data, self.corrupted).xor()", "0"),
    ],
)
def test_a_mutant_is_noticed(part, sound, wrong, monkeypatch):
    broken = mutant(getattr(hw.aggregate, part), sound, wrong)
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check_sums(monkeypatch, **{part: broken})
        check_headers(monkeypatch, **{part: broken})
