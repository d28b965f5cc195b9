# amaranth: UnusedElaboratable=no
"""The age of the head of a queue, against a list of the ticks at which each frame came."""

import random

import pytest

import hw.egress.queue_age
from hw.egress.queue_age import QueueAge
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

FRAMES = 12


def play(component, *, seed: int, cycles: int = 3000) -> set[bool]:
    dut, rng, queue, seen = component(frames=FRAMES), random.Random(seed), [], set()

    async def bench(ctx):
        ticks = 0
        for cycle in range(cycles):
            assert ctx.get(dut.aged) == (bool(queue) and ticks - queue[0] >= 2)
            seen.add(bool(ctx.get(dut.aged)))
            rate = 0.9 if cycle // 200 % 2 else 0.3
            enters = len(queue) < FRAMES and rng.random() < rate
            leaves = bool(queue) and rng.random() < 1 - rate
            tick = rng.random() < 0.08
            for name, value in (("enters", enters), ("leaves", leaves), ("tick", tick)):
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            del queue[:leaves]
            ticks += tick
            queue.extend([ticks] * enters)

    Bench(dut).drive(bench)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_a_frame_is_aged_after_two_ticks_and_not_before(seed):
    assert play(QueueAge, seed=seed) == {False, True}


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("old.eq(old_waits | self.tick)", "old.eq(old_waits)"),
        ("old.eq(old_waits | self.tick)", "old.eq(old | self.tick)"),
        ("oldest.eq(Mux(self.tick, old_waits, self.aged))", "oldest.eq(Mux(self.tick, old, self.aged))"),
        ("oldest.eq(Mux(self.tick, old_waits, self.aged))", "oldest.eq(Mux(self.tick, old_waits, oldest))"),
        ("oldest.eq(Mux(self.tick, old_waits, self.aged))", "oldest.eq(old_waits)"),
        ("oldest_mark.eq(old_mark)", "oldest_mark.eq(entered)"),
        ("old_mark.eq(entered), ", "old_mark.eq(entered + self.enters), "),
        ("left.eq(left + 1)", "left.eq(left)"),
        ("self.aged.eq(oldest & (left != oldest_mark))", "self.aged.eq(oldest)"),
    ],
)
def test_mutant_is_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        for seed in range(3):
            play(mutant(hw.egress.queue_age, sound, wrong).QueueAge, seed=seed)


def test_frames_wrong():
    with pytest.raises(ValueError, match="QueueAge frames must be at least 1, not 0"):
        QueueAge(frames=0)
