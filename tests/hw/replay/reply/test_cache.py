# amaranth: UnusedElaboratable=no
"""The reply cache: a read shows what was written last."""

import random

import pytest
from amaranth.hdl import Value

from hw.replay.reply.cache import Answer, ReplyCache, answer_count, list_rows, scratch_list
from iswitch.config import Replay
from sim.bench.stream import Bench

REPLAYS = [
    Replay(capacity=16, sessions=2, cached_answers=1, samples_per_request=16),
    Replay(capacity=16, sessions=3, cached_answers=4, samples_per_request=32),
]


@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_every_answer_has_a_list_and_one_list_is_free(replay):
    assert answer_count(replay) == replay.sessions * replay.cached_answers
    assert scratch_list(replay) == answer_count(replay) * replay.samples_per_request
    assert list_rows(replay) == scratch_list(replay) + 160


@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_a_read_shows_what_was_written_last(replay):
    """Read and write any rows in each cycle; what is read while it is written is undefined."""
    rng, dut, scratch = random.Random(1), ReplyCache(replay), scratch_list(replay)
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
                for shown, expected in zip((dut.answer, dut.row), expected_reads):
                    assert expected is None or ctx.get(Value.cast(shown)) == expected
            expected_reads = (
                None if write else answers.get(index),
                None if write_row and write_at == at else lists.get(at),
            )
            if write:
                answers[index] = answer
            if write_row:
                lists[write_at] = row
            await ctx.tick()

    Bench(dut).drive(drive)
    assert len(answers) == dut.answers and len(lists) > 60
