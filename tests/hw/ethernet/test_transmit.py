"""Frames to XGMII: what stands on the line, and how far apart. The line is read character by character; zlib makes the
FCS."""

import itertools
import random

import pytest

import hw.ethernet.transmit
from hw.ethernet.transmit import Transmitter
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, to_words
from sim.bench.xgmii import PREAMBLE, START, characters, frames_in, ordered_set, whole

LENGTHS = [1, 2, 7, 8, 9, 55, 56, 57, 58, 59, *range(60, 77), 127, 128, 1514]
GAP_BYTES = 12


def noise(length):
    return random.Random(length).randbytes(length)


def run(items, *, make=Transmitter, stalls=0.0, start=4):
    """The line, strobes, and in which cycle each word was offered first."""
    dut = make()
    bench = Bench(dut)
    source = bench.source(dut.i, items, stalls=stalls, start=start)
    seen = []

    async def look(ctx):
        async for _, _, data, control in ctx.tick().sample(dut.xgmii.data, dut.xgmii.control):
            seen.append((data, control))

    bench.process(look)
    bench.run()
    return seen, bench.strobes, source.offered


def sent(frames, *, bad=(), **options):
    """The frames on the line; those in `bad` are marked with an error."""
    seen, strobes, offered = run(
        [word for k, frame in enumerate(frames) for word in to_words(frame, 64, error=k in bad)], **options
    )
    assert strobes == {"stat_frame": len(frames), "stat_underrun": 0}
    return frames_in(characters(seen))


def contents(found):
    """Up to the first control character."""
    return [bytes(byte for byte, is_control in frame.content if not is_control) for frame in found]


def inverted(frame):
    """With an FCS that is wrong in every bit."""
    return whole(frame)[:-4] + bytes(byte ^ 0xFF for byte in whole(frame)[-4:])


def gaps(found):
    """From a terminate, which is in the gap, to the next start."""
    return [after.start - before.end for before, after in itertools.pairwise(found)]


def test_frames_have_preamble_padding_and_fcs():
    frames = [noise(length) for length in LENGTHS]
    assert contents(sent(frames)) == [PREAMBLE + whole(frame) for frame in frames]


@pytest.mark.parametrize("residue", range(4))
def test_gap_is_12_in_the_mean_for_every_residue(residue):
    found = sent([noise(60 + residue)] * 41)
    assert sum(gaps(found)) == GAP_BYTES * 40
    assert min(gaps(found)) >= GAP_BYTES - 3 and max(gaps(found)) <= GAP_BYTES + 3


def test_gap_is_12_in_the_mean_for_mixed_lengths_and_no_more_than_3_are_ever_owed():
    rng, owed = random.Random(2), 0
    found = sent([noise(rng.choice(LENGTHS[:-1])) for _ in range(120)])
    for gap in gaps(found):
        owed += GAP_BYTES - gap
        assert 0 <= owed <= 3
    assert {frame.start % 8 for frame in found} == {0, 4}


@pytest.mark.parametrize("length", [60, 61, 62, 63, 64, 65, 66, 67])
def test_after_a_pause_a_frame_starts_in_lane_0_as_soon_as_it_is_offered(length):
    seen, _, offered = run([*to_words(noise(length), 64)], start=20)
    (found,) = frames_in(characters(seen))
    assert found.start % 8 == 0
    assert found.start // 8 == offered[0] + Transmitter.LATENCY


def test_a_frame_marked_bad_leaves_with_its_fcs_inverted_and_its_neighbours_do_not():
    frames = [noise(length) for length in (20, 21, 59, 59, 60, 60, 61, 64, 65, 67, 67, 100)]
    found = contents(sent(frames, bad=range(0, len(frames), 2)))
    assert found == [PREAMBLE + (whole if k % 2 else inverted)(frame) for k, frame in enumerate(frames)]


def test_a_word_that_comes_late_is_an_error_on_the_line_and_counted():
    items = to_words(noise(100), 64)
    seen, strobes, _ = run(items, stalls=0.3)
    (found,) = frames_in(characters(seen))
    assert strobes["stat_underrun"] > 0
    assert found.content.count((0xFE, True)) == 8 * strobes["stat_underrun"]
    assert [one for one in found.content if not one[1]][:-4] == [(byte, False) for byte in PREAMBLE + noise(100)]


@pytest.mark.parametrize(("signal", "column"), [("remote_fault", ordered_set(2)), ("halt", [(0x07, True)] * 4)])
def test_frames_that_begin_during_a_fault_are_discarded(signal, column):
    interrupted(Transmitter, signal, column)


def interrupted(make, signal, column):
    dut, frames = make(), [noise(100 + k) for k in range(7)]
    bench, seen = Bench(dut), []
    source = bench.source(dut.i, [word for frame in frames for word in to_words(frame, 64)], start=4)

    async def disturb(ctx):
        cycle = 0
        async for _, _, data, control in ctx.tick().sample(dut.xgmii.data, dut.xgmii.control):
            seen.append((data, control))
            cycle += 1
            ctx.set(getattr(dut, signal), 12 <= cycle < 60)

    bench.process(disturb)
    bench.run(quiet=100)
    line = characters(seen)
    columns = [line[at : at + 4] for at in range(0, len(line), 4)]
    halted = columns[2 * 42 : 2 * 60]
    assert halted == [column] * len(halted)
    assert [
        bytes(byte for byte, _ in frame.content)
        for frame in frames_in([one for four in columns for one in ([(0x07, True)] * 4 if four == column else four)])
    ] == [PREAMBLE + whole(frame) for frame in (frames[0], *frames[4:])]
    starts = [at // 8 for at, one in enumerate(line) if one == START]
    assert starts[0] < 30 and starts[1] >= 60 and len(source.times) == len(source.items)


def judge(make):
    """What a transmitter must do, in short."""
    frames = [noise(length) for length in (20, 21, 22, *range(60, 69), *range(60, 69))]
    found = sent(frames, bad=[0, 4], make=make)
    assert contents(found) == [PREAMBLE + (inverted if k in (0, 4) else whole)(frame) for k, frame in enumerate(frames)]
    assert 0 <= sum(GAP_BYTES - gap for gap in gaps(found)) <= 3


@pytest.mark.mutant
def test_the_judge_of_mutants_finds_none_in_the_transmitter():
    judge(Transmitter)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("GAP_COLUMNS = 3", "GAP_COLUMNS = 2"),
        ("+ late + owed[2]", "+ late"),
        ("deficit.eq(owed)]", "deficit.eq(0)]"),
        ("wait.eq((columns >> 1) - 1)", "wait.eq(columns >> 1)"),
        ("late_next.eq(columns[0])", "late_next.eq(0)"),
        ("checked.spoilt.replicate(32)", "0"),
        ("plan.spoilt.eq(spoilt)", "plan.spoilt.eq(0)"),
        ("FRAME_BYTES_MIN = 60", "FRAME_BYTES_MIN = 59"),
        ("(lane - checked.count)[:2]", "(lane + checked.count)[:2]"),
        ("Mux(word.count > lane, word.data", "Mux(word.count >= lane, word.data"),
    ],
)
def test_mutants_are_noticed(sound, wrong):
    with pytest.raises((AssertionError, ValueError)):
        judge(mutant(hw.ethernet.transmit, sound, wrong).Transmitter)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ('with m.If(self.i.valid): m.next = "DISCARD"', "pass"),
        ('with m.If(self.i.valid & word.last): m.next = "GAP"', 'with m.If(self.i.valid): m.next = "GAP"'),
        ("[self.i.ready.eq(1), plan.kind.eq(Mux(self.remote_fault", "[self.i.ready.eq(1), plan.kind.eq(Mux(0"),
    ],
)
def test_mutants_of_the_reaction_to_a_fault_are_noticed(sound, wrong):
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        interrupted(mutant(hw.ethernet.transmit, sound, wrong).Transmitter, "remote_fault", ordered_set(2))
