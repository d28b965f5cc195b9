# amaranth: UnusedElaboratable=no
"""A port between the switch's words and a line of single bits: its own blocks come back to it, wherever they begin."""

import functools
import itertools
import random

import pytest

import hw.ethernet.port
from hw.ethernet.port import Port10G
from sim.bench.domains import Clocks, drain, feed
from sim.bench.mutant import mutant
from sim.bench.stream import to_words
from sim.bench.transceiver import Transceiver, characters_on
from sim.bench.xgmii import IDLE, PREAMBLE, frames_in, ordered_set, whole

GEARBOXES = {"synchronous": (64 / 10.3125, 33), "asynchronous": (66 / 10.3125, 0)}
"""Period of the user clocks in ns, and which cycles pause."""
CORE_NS = 5.0
OFFSET = 61
"""Of the line's first block: so many slips to 66 are what it takes to find that."""
REMOTE = ordered_set(2)


def noise(length, seed=0):
    return random.Random(1000 * seed + length).randbytes(length)


class Bench:
    """A port, its transceiver, and what the switch has sent and got."""

    def __init__(self, frames, *, bus_bits=256, gearbox="asynchronous", stalls=(0.0, 0.0), make=Port10G, **options):
        self.dut = make(bus_bits=bus_bits, slip_cycles=2, ber_blocks=200)
        period, pause = GEARBOXES[gearbox]
        self.transceiver = Transceiver(self.dut, **{"pause": pause, "offset": OFFSET} | options)
        self.clocks, self.frames, self.bus_bits, self.words = (
            Clocks(self.dut, {"sync": CORE_NS, "rx": period, "tx": period}),
            frames,
            bus_bits,
            [],
        )
        words = [to_words(frame, bus_bits) for frame in frames]
        for process in (
            self.transceiver.transmit,
            self.transceiver.receive,
            functools.partial(self.send, frames=words, stalls=stalls[0]),
            functools.partial(drain, target=self.dut.rx, found=self.words, domain="sync", stalls=stalls[1]),
        ):
            self.clocks.process(process)

    async def send(self, ctx, *, frames, stalls):
        """Offer frames as soon as the link is up: before, the transmitter discards them."""
        await ctx.tick("sync").until(self.dut.link)
        await feed(ctx, target=self.dut.tx, frames=frames, domain="sync", stalls=stalls)

    def ends(self):
        return sum(word is not None and bool(word.last) for word, _ in self.words)

    def got(self):
        """Frames and their errors; what a reset of the switch has cut is not there."""
        found, frame = [], b""
        for word, _ in self.words:
            frame = b"" if word is None else frame + word.data.to_bytes(self.bus_bits // 8, "little")[: word.count]
            if word is not None and word.last:
                found.append((frame, bool(word.error)))
                frame = b""
        return found

    def run(self, cycles, *, at=lambda ctx, cycle: None, ends=None):
        async def watch(ctx):
            for cycle in range(cycles):
                await ctx.tick("sync")
                at(ctx, cycle)
                if self.ends() == (len(self.frames) if ends is None else ends):
                    break
            self.link = ctx.get(self.dut.link)

        self.clocks.run(watch)
        return self


def sent(line):
    """The frames on it, once remote faults are over."""
    characters = characters_on(line)
    columns = [characters[k : k + 4] for k in range(0, len(characters), 4)]
    return frames_in([character for column in columns for character in ([IDLE] * 4 if column == REMOTE else column)])


@pytest.mark.parametrize(
    "bus_bits, gearbox", [(64, "asynchronous"), (256, "synchronous"), (256, "asynchronous"), (512, "synchronous")]
)
def test_frames_come_back_whole_and_the_line_is_full(bus_bits, gearbox):
    """Also when the switch pauses in the middle of frames: gaps between those that wait are 12 bytes in the mean."""
    rng = random.Random(1)
    frames = [noise(rng.randrange(60, 150), k) for k in range(14)] + [noise(700)]
    bench = Bench(frames, bus_bits=bus_bits, gearbox=gearbox, stalls=(0.05 if bus_bits == 64 else 0.4, 0.0)).run(4000)
    assert bench.got() == [(frame, False) for frame in frames]
    found = sent(bench.transceiver.line)
    assert [bytes(byte for byte, _ in frame.content) for frame in found] == [
        PREAMBLE + whole(frame) for frame in frames
    ]
    gaps = [after.start - before.end for before, after in itertools.pairwise(found)]
    # Between frames that wait: not behind the first, nor before the last, which takes longer to be whole than the line
    # takes for those before it.
    waiting = gaps[1:-1]
    assert 0 <= 12 * len(waiting) - sum(waiting) <= 3
    assert bench.link and bench.transceiver.slips == 66 - OFFSET


def test_short_frames_are_padded_and_bad_ones_never_come_back_whole():
    frames = [noise(length) for length in (1, 8, 31, 32, 33, 59)]
    assert Bench(frames).run(3000).got() == [(frame.ljust(60, b"\0"), False) for frame in frames]


def test_wrong_bits_on_the_line_make_no_wrong_frame():
    """Each frame that comes whole was sent, in order; each that was hit comes with an error or, if its start was hit,
    not."""
    frames = [noise(60 + k, k) for k in range(40)]
    hit = random.Random(4)
    places = {66 * 200 + hit.randrange(66 * 300) for _ in range(12)}
    bench = Bench(frames, spoil=lambda place, bit: bit ^ (place in places)).run(1200, ends=-1)
    good = [frame for frame, error in bench.got() if not error]
    assert [frame for frame in frames if frame in good] == good
    assert 20 < len(good) < len(frames) and bench.got()[-1] == (frames[-1], False)


def test_a_frame_that_the_switch_takes_too_late_is_reported():
    frames = [noise(200, k) for k in range(24)]
    bench = Bench(frames, stalls=(0.0, 0.96)).run(5000)
    got = bench.got()
    assert len(got) == len(frames)
    assert 0 < sum(error for _, error in got) < len(frames)
    assert all(error or out == frame for (out, error), frame in zip(got, frames, strict=True))


def test_a_broken_line_takes_the_link_down_answers_with_remote_faults_and_comes_back():
    frames, broken = [noise(100, k) for k in range(50)], range(66 * 250, 66 * 500)
    links = []
    rng = random.Random(5)

    bench = Bench(frames, spoil=lambda place, bit: rng.randrange(2) if place in broken else bit)
    bench.run(2200, at=lambda ctx, cycle: links.append(ctx.get(bench.dut.link)), ends=-1)
    changes = [value for k, value in enumerate(links) if k == 0 or links[k - 1] != value]
    assert changes == [0, 1, 0, 1]
    characters = characters_on(bench.transceiver.line)
    assert characters[8 * 400 : 8 * 404] == REMOTE * 8
    good = [frame for frame, error in bench.got() if not error]
    assert [frame for frame in frames if frame in good] == good and good[-1] == frames[-1] and len(good) < len(frames)


@pytest.mark.parametrize("domain", ["rx", "tx", "sync"])
def test_a_reset_of_one_clock_makes_no_frame_whole_that_is_not(domain):
    frames = [noise(60 + 8 * k, k) for k in range(30)]
    resets = [*range(330, 336), *range(400, 408)]
    bench = Bench(frames, stalls=(0.85, 0.0))
    bench.run(1600, at=lambda ctx, cycle: ctx.set(bench.clocks.domains[domain].rst, int(cycle in resets)), ends=-1)
    good = [frame for frame, error in bench.got() if not error]
    assert [frame for frame in frames if frame in good] == good
    assert good[-1] == frames[-1] and 5 < len(good) < len(frames)


def judge(make):
    frames = [noise(600 + k, k) for k in range(3)]
    bench = Bench(frames, gearbox="synchronous", stalls=(0.95, 0.0), make=make).run(1800)
    assert bench.got() == [(frame, False) for frame in frames]
    assert [bytes(byte for byte, _ in frame.content) for frame in sent(bench.transceiver.line)] == [
        PREAMBLE + whole(frame) for frame in frames
    ]


@pytest.mark.mutant
def test_the_judge_of_mutants_finds_none_in_the_port():
    judge(Port10G)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("store_and_forward=True), Narrow", "store_and_forward=False), Narrow"),
        ("receiver.o.valid & self.rx_valid", "receiver.o.valid"),
        ("transmitter.i.ready & self.tx_ready", "transmitter.i.ready"),
        ("bits[::-1] if self.msb_first", "bits if self.msb_first"),
    ],
)
def test_mutants_are_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        judge(mutant(hw.ethernet.port, sound, wrong).Port10G)


def test_the_memory_for_frames_that_leave_holds_the_longest():
    for bus_bits, longest, words in (
        (64, 1518, 256),
        (256, 1518, 64),
        (512, 1518, 64),
        (256, 9018, 512),
        (512, 9018, 256),
    ):
        assert Port10G(bus_bits=bus_bits, frame_bytes_max=longest).tx_words == words


def test_parameters_wrong():
    with pytest.raises(ValueError, match="Port10G bus_bits must be 64, 256 or 512, not 32"):
        Port10G(bus_bits=32)
    with pytest.raises(ValueError, match="Port10G frame_bytes_max must be at least 60, not 59"):
        Port10G(bus_bits=64, frame_bytes_max=59)
