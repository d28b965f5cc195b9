# amaranth: UnusedElaboratable=no
"""Lock and error monitor, header by header."""

import random

import pytest

import hw.ethernet.lock
from hw.ethernet.lock import BerMonitor, BlockLock
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

GOOD, WRONG = (0b01, 0b10), (0b00, 0b11)


def run(dut, headers, names, inputs=()):
    """The outputs behind each header. Headers are numbers, or True and False for any good or wrong one."""
    found = []

    async def feed(ctx):
        for port, value in inputs:
            ctx.set(port, value)
        for k, header in enumerate(headers):
            ctx.set(dut.header, (GOOD if header else WRONG)[k % 2])
            await ctx.tick()
            found.append(tuple(ctx.get(getattr(dut, name)) for name in names))

    Bench(dut).drive(feed)
    return found


def locks(headers, *, make=BlockLock, slip_cycles=3):
    return run(make(slip_cycles=slip_cycles), headers, ("locked", "slip"))


def model(headers, slip_cycles):
    """Figure 49-14 in words: windows of 64, each begun anew by a slip."""
    found, locked, window, wait = [], 0, [], 0
    for header in headers:
        slip = 0
        if wait:
            wait -= 1
        else:
            window.append(header)
            if not header and (not locked or window.count(False) == 16):
                locked, slip, window, wait = 0, 1, [], slip_cycles
            elif len(window) == 64:
                locked, window = int(locked or all(window)), []
        found.append((locked, slip))
    return found


def test_locked_after_64_good_headers_and_not_after_63():
    assert locks([True] * 64) == [(0, 0)] * 63 + [(1, 0)]
    assert locks([True] * 63 + [False]) == [(0, 0)] * 63 + [(0, 1)]


@pytest.mark.mutant
def test_without_lock_a_wrong_header_mutants_once_and_nothing_is_looked_at_meanwhile():
    assert locks([False] * 9) == [(0, 1), (0, 0), (0, 0), (0, 0)] * 2 + [(0, 1)]


def test_the_lock_survives_15_wrong_of_64_and_not_16():
    few = [False] * 15 + [True] * 49
    assert locks([True] * 64 + few * 3)[64:] == [(1, 0)] * 192
    # 15 at a window's end and 16 at the next one's begin are never 16 in one.
    assert locks([True] * 64 + [True] * 49 + [False] * 30 + [True] * 34)[64:] == [(1, 0)] * 113
    lost = locks([True] * 64 + [True] * 40 + [False] * 16 + [True] * 4)
    assert lost[64 + 54 :] == [(1, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)]


def test_lock_agrees_with_the_figure_on_noise():
    rng = random.Random(1)
    headers = [rng.random() >= share for share in (0, 0.01, 0.2, 0.3, 0, 0.5, 0.1, 0) for _ in range(400)]
    found = locks(headers)
    assert found == model(headers, 3)
    assert {locked for locked, _ in found} == {0, 1}


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("WINDOW = 64", "WINDOW = 63"),
        ("INVALID_MAX = 16", "INVALID_MAX = 15"),
        ("m.d.sync += wait.eq(wait - 1)", "m.d.sync += wait.eq(0)"),
        ("self.slip.eq(1), seen.eq(0)", "seen.eq(0)"),
    ],
)
def test_mutants_of_the_lock_are_noticed(sound, wrong):
    make = mutant(hw.ethernet.lock, sound, wrong).BlockLock
    headers = [True] * 64 + [False] * 15 + [True] * 49 + [False] * 16 + [True] * 3 + [False] * 6 + [True] * 64
    assert locks(headers, make=make) != model(headers, 3)


def test_errors_are_high_at_the_limit_and_through_the_first_window_below_it():
    dut = BerMonitor(blocks=50, limit=4)
    wrong = {10, 20, 30, 40, 60, 70, 80}
    high = [value for (value,) in run(dut, [k not in wrong for k in range(160)], ("high",), [(dut.locked, 1)])]
    assert high.index(1) == 40 + 2
    assert high[42:99] == [1] * 57 and high[99:] == [0] * 61


def test_errors_below_the_limit_and_errors_without_lock_do_not_count():
    dut = BerMonitor(blocks=50, limit=4)
    assert run(dut, [k % 20 != 0 for k in range(200)], ("high",), [(dut.locked, 1)]).count((1,)) == 0
    dut = BerMonitor(blocks=50, limit=4)
    assert run(dut, [False] * 200, ("high",), [(dut.locked, 0)]).count((1,)) == 0


@pytest.mark.mutant
def test_a_mutant_of_the_monitor_is_noticed():
    for sound, wrong in (
        ("self.high.eq(wrong == self.limit)]", "self.high.eq(0)]"),
        ("with m.If(~self.locked):", "with m.If(0):"),
    ):
        dut = mutant(hw.ethernet.lock, sound, wrong).BerMonitor(blocks=50, limit=4)
        locked = "locked" not in sound
        high = [value for (value,) in run(dut, [False] * 200, ("high",), [(dut.locked, locked)])]
        assert (0 in high[60:]) == locked or not locked and 1 in high


@pytest.mark.parametrize("slip_cycles", [0, -1])
def test_slip_cycles_wrong(slip_cycles):
    with pytest.raises(ValueError, match=f"BlockLock slip_cycles must be at least 1, not {slip_cycles}"):
        BlockLock(slip_cycles=slip_cycles)


@pytest.mark.parametrize("limit", [0, 51])
def test_limit_wrong(limit):
    with pytest.raises(ValueError, match=f"BerMonitor limit must be 1 to blocks, not {limit}"):
        BerMonitor(blocks=50, limit=limit)
