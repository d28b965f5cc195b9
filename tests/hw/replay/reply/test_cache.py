# amaranth: UnusedElaboratable=no
"""ReplyCache answers and lists: what was put last is shown."""

import random

import pytest
from amaranth.hdl import Value

from hw.replay.reply.cache import Answer, ReplyCache
from iswitch.config import Replay
from sim.bench.stream import Bench

REPLAYS = [Replay(capacity=16, sessions=2, kept=1, draws=16), Replay(capacity=16, sessions=3, kept=4, draws=32)]


@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_places_of_answers_and_lists(replay):
    kept = ReplyCache(replay)
    assert kept.answers == replay.sessions * replay.kept
    assert kept.scratch == kept.answers * replay.draws and kept.rows == kept.scratch + 160


@pytest.mark.parametrize("replay", REPLAYS, ids=str)
def test_what_was_put_last_is_shown_a_cycle_after_it_was_asked_for(replay):
    """Both at once, in any place: what is put while the same is asked for may be seen or not."""
    rng, dut = random.Random(1), ReplyCache(replay)
    answers: dict[int, int] = {}
    lists: dict[int, int] = {}
    bits = Value.cast(dut.put_answer).shape().width
    assert bits == Answer.as_shape().size

    async def drive(ctx):
        asked = None
        for _ in range(3000):
            index, at, put_at = (
                rng.randrange(dut.answers),
                rng.choice([0, dut.scratch - 1, dut.scratch, dut.rows - 1, rng.randrange(dut.rows)]),
                rng.choice([0, dut.scratch - 1, dut.scratch, dut.rows - 1, rng.randrange(dut.rows)]),
            )
            put, list_put, answer, row = (
                rng.getrandbits(1),
                rng.getrandbits(1),
                rng.getrandbits(bits),
                rng.getrandbits(64),
            )
            for signal, value in (
                (dut.index, index),
                (dut.at, at),
                (dut.put, put),
                (dut.list_put, list_put),
                (dut.put_at, put_at),
            ):
                ctx.set(signal, value)
            ctx.set(Value.cast(dut.put_answer), answer)
            ctx.set(Value.cast(dut.put_row), row)
            if asked is not None:
                for shown, expected in zip((dut.answer, dut.row), asked):
                    assert expected is None or ctx.get(Value.cast(shown)) == expected
            asked = None if put else answers.get(index), None if list_put and put_at == at else lists.get(at)
            if put:
                answers[index] = answer
            if list_put:
                lists[put_at] = row
            await ctx.tick()

    Bench(dut).drive(drive)
    assert len(answers) == dut.answers and len(lists) > 60
