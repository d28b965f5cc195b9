# amaranth: UnusedElaboratable=no
"""The reply cache: a read shows what was written last."""

import random

import pytest
from amaranth.hdl import Value

import hw.replay.reply.cache
from hw.replay.reply.cache import Answer, ReplyCache, answer_count, list_rows, scratch_list
from iswitch.config import Replay
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

REPLAYS = [
    Replay(capacity=16, sessions=2, cached_answers=1, samples_per_request=16),
    Replay(capacity=16, sessions=3, cached_answers=4, samples_per_request=32),
]
WIDTHS = [64, 256, 512]


@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_every_answer_has_a_list_and_one_list_is_free(replay):
    assert answer_count(replay) == replay.sessions * replay.cached_answers
    assert scratch_list(replay) == answer_count(replay) * replay.samples_per_request
    assert list_rows(replay) == scratch_list(replay) + 160


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_a_read_shows_what_was_written_last(replay, bus_bits):
    check_reads(replay, bus_bits)


def check_reads(replay, bus_bits, cache=ReplyCache):
    """Read and write any rows in each cycle; what is read while it is written is undefined."""
    rng, dut, scratch = random.Random(1), cache(replay, bus_bits=bus_bits), scratch_list(replay)
    per_word = bus_bits // 64
    answers: dict[int, int] = {}
    lists: dict[int, int] = {}
    bits = Value.cast(dut.answer_next).shape().width
    assert bits == Answer.as_shape().size

    async def drive(ctx):
        expected_reads = None
        for _ in range(3000):
            index, at, write_at = (
                rng.randrange(dut.answers),
                rng.choice([0, scratch - 1, scratch, dut.rows - 1, rng.randrange(dut.rows)]),
                rng.choice([0, scratch - 1, scratch, dut.rows - 1, rng.randrange(dut.rows)]),
            )
            write, write_row, answer, row = (
                rng.getrandbits(1),
                rng.getrandbits(1),
                rng.getrandbits(bits),
                rng.getrandbits(64),
            )
            for signal, value in (
                (dut.index, index),
                (dut.row_address, at),
                (dut.write, write),
                (dut.write_row, write_row),
                (dut.write_row_address, write_at),
            ):
                ctx.set(signal, value)
            ctx.set(Value.cast(dut.answer_next), answer)
            ctx.set(Value.cast(dut.row_next), row)
            if expected_reads is not None:
                shown = [dut.answer, dut.row, *(dut.word[k] for k in range(per_word))]
                for value, expected in zip(shown, expected_reads, strict=True):
                    assert expected is None or ctx.get(Value.cast(value)) == expected
            listed = lambda row: None if write_row and write_at == row else lists.get(row)
            first = at // per_word * per_word
            expected_reads = [
                None if write else answers.get(index),
                listed(at),
                *(listed(row) for row in range(first, first + per_word)),
            ]
            if write:
                answers[index] = answer
            if write_row:
                lists[write_at] = row
            await ctx.tick()

    Bench(dut).drive(drive)
    assert len(answers) == dut.answers and len(lists) > 60


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("row.eq(row_read.data[place])", "row.eq(row_read.data[0])"),
        ("place.eq(self.row_address[:place_bits])", "place.eq(self.write_row_address[:place_bits])"),
        ("self.write_row << self.write_row_address[:place_bits]", "self.write_row.replicate(self.rows_per_word)"),
        ("self.word[k].eq(row_read.data[k].row)", "self.word[k].eq(row_read.data[0].row)"),
        ("row_read.addr.eq(self.row_address >> place_bits)", "row_read.addr.eq(self.row_address)"),
    ],
)
def test_a_mutant_of_the_words_is_noticed(sound, wrong):
    broken = mutant(hw.replay.reply.cache, sound, wrong).ReplyCache
    with pytest.raises((AssertionError, IndexError)):
        check_reads(REPLAYS[0], 256, broken)


def check_bit_errors(monkeypatch, *, module=hw.replay.reply.cache, replay=REPLAYS[1], bus_bits=256, steps=400):
    """An answer or a row with a bit error is corrupt until it is written, and so is an answer whose list is lost."""
    memories = keep_memories(monkeypatch, module)
    rng, dut, per_word = random.Random(2), module.ReplyCache(replay, bus_bits=bus_bits), bus_bits // 64
    samples, corrupt, corrupt_rows = replay.samples_per_request, set(), set()
    bits = Answer.as_shape().size

    async def drive(ctx):
        answers, lists = memories

        async def write(index):
            ctx.set(dut.index, index)
            ctx.set(dut.write, 1)
            ctx.set(Value.cast(dut.answer_next), rng.getrandbits(bits))
            await ctx.tick()
            ctx.set(dut.write, 0)
            corrupt.discard(index)

        async def write_row(row):
            ctx.set(dut.write_row_address, row)
            ctx.set(dut.write_row, 1)
            ctx.set(Value.cast(dut.row_next), rng.getrandbits(64))
            await ctx.tick()
            ctx.set(dut.write_row, 0)
            corrupt_rows.discard(row)

        rows = [0, samples - 1, samples, scratch_list(replay) - 1, scratch_list(replay), dut.rows - 1]
        for index in range(dut.answers):
            await write(index)
        for row in rows:
            for neighbour in range(row // per_word * per_word, (row // per_word + 1) * per_word):
                await write_row(neighbour)
        for _ in range(steps):
            index, row, event = rng.randrange(dut.answers), rng.choice(rows), rng.randrange(5)
            if event == 0 and index not in corrupt:
                flip(ctx, answers, index, rng.choice([0, bits, rng.randrange(bits + 1)]))
                corrupt.add(index)
            elif event == 1 and row not in corrupt_rows:
                flip(ctx, lists, row // per_word, row % per_word * 65 + rng.randrange(65))
                corrupt_rows.add(row)
            elif event == 2:
                await write(index)
            elif event == 3:
                await write_row(row)
            else:
                ctx.set(dut.lost, 1)
                scratch = rng.random() < 0.2
                ctx.set(dut.lost_list, scratch_list(replay) if scratch else index * samples)
                await ctx.tick()
                ctx.set(dut.lost, 0)
                if not scratch:
                    corrupt.add(index)
                if dut.answers > 1 and rng.random() < 0.5:  # another answer is written first
                    await write((index + 1) % dut.answers)
                await ctx.tick()
            for index in rng.sample(range(dut.answers), min(3, dut.answers)):
                ctx.set(dut.index, index)
                row = rng.choice(rows)
                ctx.set(dut.row_address, row)
                await ctx.tick()
                first = row // per_word * per_word
                assert ctx.get(dut.word_corrupt) == sum((first + k in corrupt_rows) << k for k in range(per_word))
                await ctx.tick()
                assert ctx.get(dut.row_corrupt) == (row in corrupt_rows)
                await ctx.tick()
                assert ctx.get(dut.answer_corrupt) == (index in corrupt)

    Bench(dut).drive(drive)


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_an_answer_or_a_row_with_a_bit_error_is_corrupt_until_it_is_written(replay, bus_bits, monkeypatch):
    check_bit_errors(monkeypatch, replay=replay, bus_bits=bus_bits)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.row_corrupt.eq(row.as_value().xor())", "self.row_corrupt.eq(row.row.as_value().xor())"),
        ("Cat(row_read.data[k].as_value().xor()", "Cat(row_read.data[0].as_value().xor()"),
        ("Cat(row_read.data[k].as_value().xor()", "Cat(row_read.data[k].row.as_value().xor()"),
        ("with_parity(self.row_next)", "self.row_next.as_value()"),
        ("self.answer_corrupt.eq(parts.xor())", "self.answer_corrupt.eq(parts[:-1].xor())"),
        ("self.answer_corrupt.eq(parts.xor())", "self.answer_corrupt.eq(parts.any())"),
        ("Mux(self.write, with_parity(self.answer_next), 1)", "with_parity(self.answer_next)"),
        ("Mux(self.write, with_parity(self.answer_next), 1)", "Mux(self.write, with_parity(self.answer_next), 0)"),
        ("with m.If(~self.write):", "with m.If(1):"),
        ("with m.If(~self.write):", "with m.If(0):"),
        ("self.lost & (self.lost_list < scratch_list(self.replay))", "self.lost"),
        ("self.lost_list >> exact_log2(self.replay.samples_per_request)", "self.lost_list"),
        ("Mux(self.write, self.index, lost_index)", "self.index"),
    ],
)
def test_a_mutant_of_the_parity_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.replay.reply.cache, sound, wrong)
    with pytest.raises(AssertionError):
        for replay in REPLAYS:
            check_bit_errors(monkeypatch, module=broken, replay=replay)
