"""XGMII to frames: one for each start, whole and sound or with an error. The line is written character by character;
zlib makes the FCS."""

import random
import zlib

import pytest

import hw.ethernet.receive
from hw.ethernet.receive import Receiver
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words
from sim.bench.xgmii import IDLE, TERMINATE, frame_of, ordered_set, whole, words

LENGTHS = [60, 61, 62, 63, 64, 65, 66, 67, 68, 127, 1514]
ERROR = (0xFE, True)


def noise(length):
    return random.Random(length).randbytes(length)


def run(line, *, make=Receiver):
    """Frames, which of them had an error, and in which cycles their last words came; the line's first word is in cycle
    0."""
    dut = make()
    bench, sink = Bench(dut), None
    sink = bench.sink(dut.o, stalls=0)
    given = list(words(line))

    async def feed(ctx):
        for data, control in given + [(0x0707070707070707, 0xFF)] * 20:
            ctx.set(dut.xgmii.data, data)
            ctx.set(dut.xgmii.control, control)
            await ctx.tick()

    bench.drive(feed)
    assert all(word.count for word in sink.items)
    last = [word for word in sink.items if word.last]
    times = [time for word, time in zip(sink.items, sink.times, strict=True) if word.last]
    return from_words(sink.items, 64), [bool(word.error) for word in last], times


def aligned(line, lane):
    """The line, idle as far as the lane."""
    return line + [IDLE] * ((lane - len(line)) % 8)


@pytest.mark.parametrize("lane", [0, 4])
def test_frames_come_without_preamble_and_fcs(lane):
    line, terminates = [IDLE] * 8, []
    for length in LENGTHS:
        line = aligned(line + [IDLE] * 12, lane) + frame_of(whole(noise(length)))
        # In the frame's own alignment, which is half a word, and therefore a cycle, later for a start in lane 4.
        terminates.append((len(line) - 1 + 8 - (lane or 8)) // 8)
    frames, errors, times = run(line)
    assert (frames, errors) == ([noise(length) for length in LENGTHS], [False] * len(LENGTHS))
    assert times == [
        at + Receiver.LATENCY + ((length + 4) % 8 > 4) for at, length in zip(terminates, LENGTHS, strict=True)
    ]


@pytest.mark.parametrize("first", [0, 4])
def test_frames_follow_each_other_with_the_least_gaps(first):
    """5 bytes from a terminate to the next start at least, in either lane."""
    frames = [noise(60 + k % 16) for k in range(64)]
    line = [IDLE] * (8 + first)
    for frame in frames:
        line += frame_of(whole(frame)) + [IDLE] * 4
        line += [IDLE] * (-len(line) % 4)
    assert run(line)[:2] == (frames, [False] * len(frames))


DAMAGE = {
    "a bit of the frame": lambda line: [*line[:20], (line[20][0] ^ 4, False), *line[21:]],
    "a bit of the FCS": lambda line: [*line[:-2], (line[-2][0] ^ 0x80, False), line[-1]],
    "a bit of the preamble": lambda line: [*line[:3], (0x54, False), *line[4:]],
    "no SFD": lambda line: [*line[:7], (0x55, False), *line[8:]],
    "a control character in the preamble": lambda line: [*line[:5], ERROR, *line[6:]],
    "an error": lambda line: [*line[:30], ERROR, *line[31:]],
    "an error in the FCS": lambda line: [*line[:-2], ERROR, line[-1]],
    "an error in place of the terminate": lambda line: [*line[:-1], ERROR],
    "idle inside": lambda line: [*line[:30], IDLE, *line[31:]],
    "a sequence inside": lambda line: [*line[:32], *ordered_set(1), *line[36:]],
    "no terminate": lambda line: [*line[:-1], IDLE],
    "a byte more": lambda line: [*line[:-1], (0, False), TERMINATE],
    "a byte less": lambda line: [*line[:-2], TERMINATE],
}


@pytest.mark.parametrize("lane", [0, 4])
def test_a_damaged_frame_ends_once_with_an_error_and_its_neighbours_do_not(lane):
    line, good = [IDLE] * 8, []
    for damage in DAMAGE.values():
        for k in range(8):
            good.append(noise(60 + k))
            line = aligned(line + [IDLE] * 8, lane) + frame_of(whole(good[-1]))
            line = aligned(line + [IDLE] * 8, lane) + damage(frame_of(whole(noise(80 + k))))
    frames, errors, _ = run(line)
    assert errors == [False, True] * len(good)
    assert frames[::2] == good


@pytest.mark.parametrize("lane", [0, 4])
def test_what_is_too_short_to_have_an_fcs_still_ends_once_with_an_error(lane):
    line, sizes = [IDLE] * 8, range(13)
    for size in sizes:
        # Four zeros are what an empty frame's FCS would be.
        line = aligned(line + [IDLE] * 9, lane) + frame_of(bytes(size) if size == 4 else noise(size))
        line = aligned(line + [IDLE] * 9, lane) + frame_of(whole(noise(60)))
    frames, errors, _ = run(line)
    assert errors == [True, False] * len(sizes) and frames[1::2] == [noise(60)] * len(sizes)
    assert [len(frame) for frame in frames[::2]] == [max(size - 4, 1) for size in sizes]


def test_short_frames_with_a_right_fcs_are_frames():
    """A consumer that has a minimum length checks it itself."""
    line = [IDLE] * 8
    for length in range(1, 60):
        line = aligned(line + [IDLE] * 8, 0) + frame_of(noise(length) + zlib.crc32(noise(length)).to_bytes(4, "little"))
    assert run(line)[:2] == ([noise(length) for length in range(1, 60)], [False] * 59)


@pytest.mark.parametrize("lane", [0, 4])
def test_a_start_inside_a_frame_ends_that_with_an_error(lane):
    line, cuts = [IDLE] * 8, range(1 + 4 * (lane == 0), 40)
    for cut in cuts:
        line = line + [IDLE] * 12 + [IDLE] * (-len(line) % 4) + frame_of(whole(noise(100)))[:cut]
        line += [(k, False) for k in range((lane - len(line)) % 8)] + frame_of(whole(noise(60)))
    frames, errors, _ = run(line)
    assert errors == [True, False] * len(cuts) and frames[1::2] == [noise(60)] * len(cuts)


def test_idle_faults_and_stray_characters_are_no_frames():
    line = (
        [IDLE] * 8 + ordered_set(1) * 8 + [ERROR] * 8 + [TERMINATE] + [(byte, False) for byte in noise(23)] + [IDLE] * 8
    )
    assert run([*line, *frame_of(whole(noise(60)))])[:2] == ([noise(60)], [False])


def judge(make):
    line, good = [IDLE] * 8, []
    for k, damage in enumerate(DAMAGE.values()):
        good.append(noise(60 + k))
        line = aligned(line + [IDLE] * 4, k % 2 * 4) + frame_of(whole(good[-1]))
        line = aligned(line + [IDLE] * 4, k // 2 % 2 * 4) + damage(frame_of(whole(noise(80 + k))))
    frames, errors, _ = run(line + [IDLE] * 12 + [IDLE] * (-len(line) % 8) + frame_of(bytes(4)), make=make)
    assert errors == [False, True] * len(DAMAGE) + [True]
    assert frames[:-1:2] == good and len(frames[-1]) == 1


@pytest.mark.mutant
def test_the_judge_of_mutants_finds_none_in_the_receiver():
    judge(Receiver)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("right.eq(crc.fcs == RESIDUE)", "right.eq(1)"),
        ("part.word.error | ~right", "~right"),
        ("held.bad.eq(~seen.sound)", "held.bad.eq(0)"),
        ("m.d.sync += shifted.eq(late)", "m.d.sync += shifted.eq(0)"),
        ("takes_half = shifted & ~early", "takes_half = shifted"),
        ("(seen.count > FCS_BYTES)", "(seen.count >= FCS_BYTES)"),
        ("part.word.count.eq(FCS_BYTES + seen.count)", "part.word.count.eq(BYTES)"),
        ("m.d.sync += [part.word.count.eq(1), part.word.error.eq(1)]", "pass"),
        ("seen.sound.eq(Mux(start, is_preamble, sound))", "seen.sound.eq(sound)"),
    ],
)
def test_mutants_are_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        judge(mutant(hw.ethernet.receive, sound, wrong).Receiver)
