"""Operations and payloads in, results out: the four parts together, against the golden model."""

import random

import numpy as np
import pytest
from amaranth.lib.memory import Memory

import hw.aggregate.accumulator
import hw.aggregate.aggregator
import hw.aggregate.narrower
import hw.aggregate.result
import hw.aggregate.sequencer
import hw.aggregate.widener
from hw.aggregate.aggregator import Aggregator
from hw.aggregate.result import ResultComposer
from hw.interface.result import HEADER_LEAD
from hw.numeric.lane import Lane
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.golden.numeric import lane as model
from iswitch.wire import Format, Operation, ones_complement_sum
from sim.bench.mutant import mutant
from sim.bench.result_headers import with_parity
from sim.bench.stream import STALLS, Bench, from_words, to_words
from sim.bench.traffic import adverse_elements, adverse_numbers

ADDRESS_BYTES = 42


FULL_WIDTH = Format.WINDOW64, Format.FP32, Format.INT32
HALF_WIDTH = Format.BF16, Format.FP16


def config(bus_bits=64, half_width=False, elements=32):
    small = {"ports": 2, "members": 4, "jobs": 2, "window": 2, "queue_bytes": 16384}
    return Config(bus_bits=bus_bits, half_width=half_width, elements=elements, **small)


def element_form(format):
    return {"half": format in HALF_WIDTH, "binary16": format == Format.FP16, "as_is": 0}


class Works:
    """Operations, their payloads, and what the model makes of them, for a switch with or without half-width formats."""

    def __init__(self, half_width=False, longest=32):
        self.half_width, self.longest = half_width, longest
        self.stored, self.form = {}, {}
        self.works, self.payloads, self.frames, self.flushed = [], [], [], 0

    def operate(
        self,
        operation,
        slot,
        *,
        numbers=None,
        elements=None,
        first=False,
        emit=True,
        format=Format.WINDOW64,
        fraction=44,
    ):
        include = operation == Operation.CONTRIBUTE
        writes = include or (operation == Operation.FORCE and first)
        if first:
            self.form[slot] = format, fraction, len(numbers) if include else elements
        format, fraction, elements = self.form[slot]
        limit, seq = model.exponent_limit(fraction), 100 + len(self.works)
        if writes:
            terms = numbers if include else np.zeros(elements, model.patterns(format))
            self.stored[slot], flushed = model.accumulate(
                format, self.stored.get(slot), terms, fraction=fraction, limit=limit, include=include, first=first
            )
            self.flushed += flushed
        self.works.append(
            {
                "operation": operation,
                "slot": slot,
                "include": include,
                "first": first,
                "write": writes,
                "emit": emit,
                "fraction": fraction,
                "limit": limit,
                "result": with_parity(
                    config(half_width=self.half_width, elements=self.longest),
                    {
                        "job": 0,
                        "epoch": 9,
                        "seq": seq,
                        "numeric": format,
                        "members": 5,
                        "token": 0xCAFEBABE,
                        "length": 4 * elements,
                        "recipients": 5,
                    },
                ),
            }
        )
        if include:
            self.payloads.append((numbers.astype(model.patterns(format)).tobytes(), element_form(format)))
        if emit:
            self.frames.append(
                compose.result(
                    job=0,
                    epoch=9,
                    seq=seq,
                    format=format,
                    flags=0,
                    members=5,
                    tainted=0,
                    token=0xCAFEBABE,
                    elements=model.result(format, self.stored[slot], fraction),
                )
            )

    def words(self, bus_bits=64):
        """Return the words of each payload."""
        return [
            to_words(payload, bus_bits, **({"meta": form} if self.half_width else {}))
            for payload, form in self.payloads
        ]


def run(made, bus_bits=64, *, stalls=0, payload_start=0):
    dut = Aggregator(config(bus_bits, made.half_width, made.longest))
    bench, flushed = Bench(dut, stalls=stalls), []
    works = bench.source(dut.works, made.works)
    contributions = bench.source(
        dut.contributions, [word for words in made.words(bus_bits) for word in words], start=payload_start
    )
    sink = bench.sink(dut.results)

    async def count(ctx):
        async for _, _, terms in ctx.tick().sample(dut.flushed):
            flushed.append(terms)

    bench.process(count)
    assert bench.run(read=[dut.busy]) == [0]
    frames = from_words(sink.items, bus_bits)
    assert [frame[ADDRESS_BYTES:] for frame in frames] == made.frames
    assert sum(flushed) == made.flushed
    return works, contributions, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(("bus_bits", "count"), [(64, 50), (256, 12)])
@pytest.mark.parametrize("half_width", [False, True])
def test_random_operations_give_the_models_results(bus_bits, count, half_width, stalls):
    rng, choose, made = np.random.default_rng(1), random.Random(1), Works(half_width)
    formats = FULL_WIDTH + HALF_WIDTH * 2 * half_width
    for _ in range(count):
        slot = choose.randrange(3)
        operation = choose.choice((Operation.CONTRIBUTE,) * 4 + (Operation.RESEND, Operation.FORCE))
        first = slot not in made.form or (operation != Operation.RESEND and choose.random() < 0.3)
        operation = Operation.FORCE if first and operation == Operation.RESEND else operation
        elements = choose.choice((1, 2, 3, 15, 16, 17, 32)) if first else made.form[slot][2]
        format = choose.choice(formats) if first else made.form[slot][0]
        numbers = adverse_elements(rng, format, elements, 0.05)
        made.operate(
            operation,
            slot,
            numbers=numbers,
            elements=len(numbers),
            first=first,
            emit=operation != Operation.CONTRIBUTE or choose.random() < 0.5,
            format=format,
            fraction=choose.choice((30, 42) if format == Format.FP16 else (44, 0, 126)),
        )
    run(made, bus_bits, stalls=stalls)


@pytest.mark.parametrize("elements", [2, 64, 128])
@pytest.mark.parametrize(("bus_bits", "scale"), [(64, 1), (256, 4), (512, 8)])
def test_a_half_width_result_leaves_without_a_gap_although_its_words_come_every_other_cycle(bus_bits, scale, elements):
    _, _, sink = run(sum_of(2, scale * elements, Format.BF16, scale * 128), bus_bits)
    assert sink.times == list(range(sink.times[0], sink.times[-1] + 1))


def sum_of(count, elements=32, format=Format.WINDOW64, longest=32):
    """`count` contributions to one slot, the last of which completes it."""
    rng, made = np.random.default_rng(4), Works(format in HALF_WIDTH, longest)
    for k in range(count):
        numbers = adverse_elements(rng, format, elements, 0)
        made.operate(
            Operation.CONTRIBUTE, 0, numbers=numbers, first=k == 0, emit=k == count - 1, format=format, fraction=42
        )
    return made


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_sums_leave_as_many_cycles_after_their_operation_as_its_parts_take_and_the_header_a_little_before(bus_bits):
    works, _, sink = run(sum_of(1), bus_bits)
    words, sequencer = config(bus_bits).header_words, 2
    assert sink.times[words] - works.times[-1] == sequencer + Lane.RESULT_AT + ResultComposer.LATENCY
    assert sink.times[words:] == list(range(sink.times[words], sink.times[words] + len(sink.times) - words))
    assert sink.times[:words] == list(range(sink.times[0], sink.times[0] + words))
    # A narrow bus takes longer for the header than the lanes for their first sums.
    assert sink.times[words] - sink.times[words - 1] - 1 == (0 if bus_bits == 64 else HEADER_LEAD)


def test_sums_go_in_one_word_per_cycle():
    _, contributions, _ = run(sum_of(5))
    # The first waits with its operation.
    assert contributions.times[1:] == list(range(contributions.times[1], contributions.times[1] + 5 * 16 - 1))


@pytest.mark.parametrize("format", HALF_WIDTH)
def test_half_width_sums_go_in_half_a_word_per_cycle(format):
    _, contributions, _ = run(sum_of(5, format=format))
    # The first two wait with their operation.
    begun = contributions.times[2]
    assert contributions.times[2:] == list(range(begun, begun + 2 * (5 * 8 - 2), 2))


def test_results_of_every_contribution_never_overrun_what_is_kept():
    """Results take longer than payloads (header, tail): the operations wait, nothing is lost."""
    rng, made = np.random.default_rng(5), Works()
    for k in range(16):
        made.operate(Operation.CONTRIBUTE, k % 8, numbers=adverse_numbers(rng, 32, 0), first=True)
    for k in range(8):
        made.operate(Operation.RESEND, k % 8)
    _, contributions, sink = run(made)
    assert sink.times == list(range(sink.times[0], sink.times[0] + len(sink.times)))
    assert contributions.times[-1] - contributions.times[0] > 16 * 16


def upset(monkeypatch, bit: int, *, word: int = 0, module=hw.aggregate.accumulator, format=Format.WINDOW64):
    """Flip a bit of a stored sum after the first of two contributions; a retransmission and the next lap follow.

    Return the frames that leave, those that the model expects, and the number of corrupt words that were read.
    """
    made, rng, memories = Works(format in HALF_WIDTH), np.random.default_rng(6), []
    first, second, third = (adverse_elements(rng, format, 32, 0) for _ in range(3))
    settings = {"format": format, "fraction": 42}
    made.operate(Operation.CONTRIBUTE, 0, numbers=first, first=True, emit=False, **settings)
    made.operate(Operation.CONTRIBUTE, 0, numbers=second)
    made.operate(Operation.RESEND, 0)
    made.operate(Operation.CONTRIBUTE, 0, numbers=third, first=True, **settings)
    monkeypatch.setattr(module, "Memory", lambda **options: memories.append(Memory(**options)) or memories[-1])
    monkeypatch.setattr(hw.aggregate.aggregator, "Accumulator", module.Accumulator)
    dut = Aggregator(config(half_width=made.half_width))
    bench, corrupted = Bench(dut), []
    bench.source(dut.works, made.works)
    bench.source(dut.contributions, [word for words in made.words() for word in words])
    sink = bench.sink(dut.results)

    async def flip(ctx):
        while not memories or not ctx.get(memories[0].data[word]):
            await ctx.tick()
        ctx.set(memories[0].data[word], ctx.get(memories[0].data[word]) ^ 1 << bit)

    async def count(ctx):
        async for _, _, corrupt in ctx.tick().sample(dut.corrupted):
            corrupted.append(corrupt)

    bench.simulator.add_testbench(flip, background=True)
    bench.process(count)
    bench.run()
    return [frame[ADDRESS_BYTES:] for frame in from_words(sink.items, 64)], made.frames, sum(corrupted)


def check_upset(monkeypatch, bit: int, **options) -> None:
    frames, expected, corrupted = upset(monkeypatch, bit, **options)
    assert corrupted == 2  # by the second contribution and by the retransmission
    assert [ones_complement_sum(frame) == 0xFFFF for frame in frames] == [False, False, True]
    assert frames[2] == expected[2]


@pytest.mark.parametrize("bit", [0, 45, 63, 64, 65, 66, 111, 131])
def test_no_result_of_a_slot_with_a_bit_error_has_a_right_checksum_until_its_next_lap(bit, monkeypatch):
    check_upset(monkeypatch, bit)


@pytest.mark.parametrize("format", [Format.WINDOW64, *HALF_WIDTH])
def test_a_bit_error_in_the_last_word_is_found(format, monkeypatch):
    check_upset(monkeypatch, 20, word=15, format=format)


@pytest.mark.parametrize("bit", [63, 131])
@pytest.mark.parametrize("word", [2, 3], ids=["lower half", "upper half"])
@pytest.mark.parametrize("format", HALF_WIDTH)
def test_no_packed_word_of_a_sum_with_a_bit_error_leaves_under_a_right_checksum(format, word, bit, monkeypatch):
    check_upset(monkeypatch, bit, word=word, format=format)


def corrupt_payload(contribution: int, word: int, format=Format.WINDOW64) -> tuple[list[bool], int]:
    """Report a bit error in a word of the payload of one of two contributions. The result of another slot follows, a
    retransmission, and the next lap.

    Return whether the frames that leave have a right checksum, and the number of corrupt words.
    """
    made, rng = Works(format in HALF_WIDTH), np.random.default_rng(7)
    numbers = [adverse_elements(rng, format, 32, 0) for _ in range(4)]
    settings = {"format": format, "fraction": 42}
    made.operate(Operation.CONTRIBUTE, 1, numbers=numbers[0], first=True, emit=False, **settings)
    for k in (1, 2):
        made.operate(Operation.CONTRIBUTE, 0, numbers=numbers[k], first=k == 1, emit=k == 2, **settings)
        made.operate(Operation.RESEND, 1)
    made.operate(Operation.RESEND, 0)
    made.operate(Operation.CONTRIBUTE, 0, numbers=numbers[3], first=True, **settings)
    words = made.words()
    words[contribution][word]["error"] = True
    dut = Aggregator(config(half_width=made.half_width))
    bench, corrupted = Bench(dut), []
    bench.source(dut.works, made.works)
    bench.source(dut.contributions, [part for one in words for part in one], stalls=0.6)
    sink = bench.sink(dut.results)

    async def count(ctx):
        async for _, _, corrupt in ctx.tick().sample(dut.corrupted):
            corrupted.append(corrupt)

    bench.process(count)
    bench.run()
    frames = [frame[ADDRESS_BYTES:] for frame in from_words(sink.items, 64)]
    right = [ones_complement_sum(frame) == 0xFFFF for frame in frames]
    assert all(frame == model for frame, model, one in zip(frames, made.frames, right, strict=True) if one)
    return right, sum(corrupted)


@pytest.mark.parametrize("word", [0, 9, 15])
@pytest.mark.parametrize("contribution", [1, 2])
def test_no_result_with_a_corrupt_payload_has_a_right_checksum_until_the_slots_next_lap(contribution, word):
    """The first contribution to a slot replaces the sum. The results of another slot are right."""
    right, corrupted = corrupt_payload(contribution, word)
    assert right == [True, False, True, False, True]
    assert corrupted == 4 - contribution  # by each operation on the slot from this contribution on


@pytest.mark.parametrize("word", [0, 7])
@pytest.mark.parametrize("contribution", [1, 2])
@pytest.mark.parametrize("format", HALF_WIDTH)
def test_no_half_width_result_with_a_corrupt_payload_has_a_right_checksum(format, contribution, word):
    """A word of the payload is two words of the slot."""
    right, corrupted = corrupt_payload(contribution, word, format)
    assert right == [True, False, True, False, True]
    assert corrupted == 2 * (4 - contribution)


def put_mutant(part, sound, wrong, monkeypatch):
    """Let the aggregator have a mutant of a part, which is the name of the part's module."""
    broken = mutant(getattr(hw.aggregate, part), sound, wrong)
    name = {"result": "ResultComposer"}.get(part, part.capitalize())
    monkeypatch.setattr(hw.aggregate.aggregator, name, getattr(broken, name))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong"),
    [
        ("sequencer", "work.takes & word.error", "word.error"),
        ("sequencer", "work.takes & word.error", "0"),
        ("sequencer", "word.error.eq(self.contributions.payload.error)", "word.error.eq(0)"),
        ("accumulator", "sum_read.xor() & added | damaged", "sum_read.xor() & added | damaged & added"),
        ("accumulator", "delayed(beat.valid & beat.corrupt, Lane.READ_AT)", "delayed(beat.corrupt, Lane.READ_AT)"),
        ("accumulator", "delayed(beat.valid & beat.corrupt, Lane.READ_AT)", "Const(0)"),
        ("accumulator", "Cat(self.o.payload.data, self.corrupted).xor()", "self.o.payload.data.xor()"),
        ("result", "found.eq(takes & sums.corrupt)", "found.eq(0)"),
    ],
)
def test_a_mutant_of_the_payloads_mark_is_noticed(part, sound, wrong, monkeypatch):
    put_mutant(part, sound, wrong, monkeypatch)
    found = [corrupt_payload(contribution, word) for contribution in (1, 2) for word in (0, 15)]
    assert found != [
        ([True, False, True, False, True], 4 - contribution) for contribution in (1, 2) for word in (0, 15)
    ]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong"),
    [
        ("widener", "self.o.payload.error.eq(held.error)", "self.o.payload.error.eq(held.error & upper)"),
        ("widener", "self.o.payload.error.eq(held.error)", "self.o.payload.error.eq(self.i.payload.error)"),
        ("narrower", "corrupt.eq(word.corrupt | lower_corrupt)", "corrupt.eq(word.corrupt)"),
        ("narrower", "corrupt.eq(word.corrupt | lower_corrupt)", "corrupt.eq(lower_corrupt)"),
        ("narrower", "lower_parity ^ parity ^ corrupt", "lower_parity ^ parity"),
        ("accumulator", "delayed(beat.form, Lane.RESULT_AT)", "delayed(beat.form, Lane.RESULT_AT + 1)"),
        ("result", "Mux(known.half | known.corrupt, enough, starts)", "starts"),
    ],
)
def test_a_mutant_of_the_half_width_path_is_noticed(part, sound, wrong, monkeypatch):
    put_mutant(part, sound, wrong, monkeypatch)
    with pytest.raises((AssertionError, TimeoutError, ValueError)):
        for contribution, word in ((1, 0), (2, 7)):
            test_no_half_width_result_with_a_corrupt_payload_has_a_right_checksum(Format.BF16, contribution, word)
        test_a_half_width_result_leaves_without_a_gap_although_its_words_come_every_other_cycle(64, 1, 128)
        test_random_operations_give_the_models_results(64, 50, True, 0)
        for word in (2, 3):  # last: it puts the sound accumulator into the place of a mutant
            check_upset(monkeypatch, 20, word=word, format=Format.BF16)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("lane.sum.xor() ^ corrupt[k]", "lane.sum.xor()"),
        ("sum_read.xor() & added | damaged", "damaged"),
        ("sum_read.xor() & added | damaged", "sum_read.xor() | damaged"),
        ("Cat(*corrupt).any()", "corrupt[0]"),
        ("Lane.WRITE_AT - Lane.READ_AT - 1", "Lane.WRITE_AT - Lane.READ_AT"),
    ],
)
def test_a_mutant_of_the_parity_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.aggregate.accumulator, sound, wrong)
    with pytest.raises(AssertionError):
        for bit in (45, 111):
            check_upset(monkeypatch, bit, module=broken)
        check_upset(monkeypatch, 20, word=15, module=broken)
