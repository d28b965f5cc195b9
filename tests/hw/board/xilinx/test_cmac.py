"""Frames to and from a MAC of another clock: none with a gap, none taken for whole that is not."""

import itertools
import random

import pytest
from amaranth.hdl import ClockDomain, Module, ResetSignal, Signal
from amaranth.sim import Simulator

import hw.board.xilinx.cmac
from hw.board.xilinx.cmac import BYTES, DOMAIN, FrameReader, FrameWriter
from sim.bench.mutant import mutant

LENGTHS = [60, 64, 65, 127, 128, 129, 191, 1514, 1518]
CORE_NS, MAC_NS = 3.333e-9, 3.103e-9


def beats(frame):
    for at in range(0, len(frame), BYTES):
        part = frame[at : at + BYTES]
        yield int.from_bytes(part, "little"), len(part), at + BYTES >= len(frame)


def around(part):
    """A module with the part, its MAC's domain, and the reset of that."""
    m = Module()
    m.domains += ClockDomain("sync"), ClockDomain(DOMAIN)
    m.submodules.part = part
    return m


def simulate(m, *benches):
    simulator = Simulator(m)
    simulator.add_clock(CORE_NS)
    simulator.add_clock(MAC_NS, domain=DOMAIN)
    for bench, background in benches:
        simulator.add_testbench(bench, background=background)
    simulator.run()


def received(frames, *, words=64, stall=0.0, bad=(), cls=FrameWriter, pause=0):
    """What the switch got of frames that came back to back: (frame, error)."""
    part, rng, found = cls(words), random.Random(1), []

    async def mac(ctx):
        for k, frame in enumerate(frames):
            for data, count, last in beats(frame):
                for name, value in (
                    ("valid", 1),
                    ("data", data),
                    ("keep", (1 << count) - 1),
                    ("last", last),
                    ("bad", last and k in bad),
                ):
                    ctx.set(getattr(part, name), value)
                await ctx.tick(DOMAIN)
            ctx.set(part.valid, 0)
            for _ in range(pause):
                await ctx.tick(DOMAIN)
        await ctx.tick(DOMAIN).repeat(60 + int(400 * stall))

    async def switch(ctx):
        frame = b""
        while True:
            ctx.set(part.rx.ready, rng.random() >= stall)
            *_, valid, ready, word, count, last, error = await ctx.tick().sample(
                part.rx.valid,
                part.rx.ready,
                part.rx.payload.data,
                part.rx.payload.count,
                part.rx.payload.last,
                part.rx.payload.error,
            )
            if valid and ready:
                frame += word.to_bytes(BYTES, "little")[:count]
                if last:
                    found.append((frame, error))
                    frame = b""

    simulate(around(part), (mac, False), (switch, True))
    return found


def test_received_frames_are_those_that_came():
    rng = random.Random(2)
    frames = [rng.randbytes(length) for length in LENGTHS]
    assert received(frames, bad={3}, pause=1) == [(frame, k == 3) for k, frame in enumerate(frames)]


def overflowing(cls=FrameWriter, lengths=LENGTHS, pause=0):
    rng = random.Random(3)
    frames = [rng.randbytes(rng.choice(lengths)) for _ in range(60)]
    return frames, received(frames, words=32, stall=0.8, cls=cls, pause=pause)


def accounted(frames, found):
    """Each frame that came has one end, in order: as it came, or marked as truncated (no byte in the last word) behind
    its beginning."""
    return len(found) == len(frames) and all(
        frame.startswith(got) and len(got) % BYTES == 0 if error else got == frame
        for frame, (got, error) in zip(frames, found, strict=True)
    )


@pytest.mark.parametrize("pause", [0, 1])
@pytest.mark.parametrize("lengths", [LENGTHS, [60], [60, 1514]], ids=str)
def test_every_frame_that_does_not_fit_is_reported_and_never_passed_as_complete(lengths, pause):
    frames, found = overflowing(lengths=lengths, pause=pause)
    assert accounted(frames, found) and 5 < sum(error for _, error in found) < len(frames)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"count": 0, "last": 1, "error": 1', '"count": 0, "last": 1, "error": 0'),
        ('"count": 0, "last": 1, "error": 1', '"count": 1, "last": 1, "error": 1'),
        ("cut.eq(~self.last)\n                with m.If(inside)", "cut.eq(0)\n                with m.If(inside)"),
        ("(inside | (owed == 0))", "1"),
        ("adds.eq(owed != OWED_MAX)", "adds.eq(0)"),
    ],
)
def test_a_mutant_of_the_writer_is_noticed(old, new):
    broken = mutant(hw.board.xilinx.cmac, old, new).FrameWriter
    assert not all(accounted(*overflowing(broken, lengths)) for lengths in (LENGTHS, [60], [60, 1514]))


async def offer(ctx, tx, frame, pauses=lambda: False):
    """A frame's words to the reader's `tx`, each after as many cycles as `pauses` says yes."""
    for data, count, last in beats(frame):
        while pauses():
            await ctx.tick()
        for name, value in (("data", data), ("count", count), ("last", last)):
            ctx.set(getattr(tx.payload, name), value)
        ctx.set(tx.valid, 1)
        await ctx.tick().until(tx.ready)
        ctx.set(tx.valid, 0)


def sent(frames, *, stall, words=64, cls=FrameReader, gaps=0.0):
    """Frames as the MAC takes them; and whether one had a gap."""
    part, rng, found, gap = cls(words), random.Random(1), [], []

    async def switch(ctx):
        for frame in frames:
            await offer(ctx, part.tx, frame, lambda: rng.random() < gaps)

    async def mac(ctx):
        frame, cycles = b"", 0
        while len(found) < len(frames) and cycles < 5000:
            ctx.set(part.ready, rng.random() >= stall)
            *_, valid, ready, data, keep, last = await ctx.tick(DOMAIN).sample(
                part.valid, part.ready, part.data, part.keep, part.last
            )
            cycles += 1
            if frame and not valid:
                gap.append(cycles)
            if valid and ready:
                frame += data.to_bytes(BYTES, "little")[: keep.bit_length()]
                if last:
                    found.append(frame)
                    frame = b""

    simulate(around(part), (mac, False), (switch, True))
    return found, gap


@pytest.mark.parametrize("stall", [0.0, 0.3])
@pytest.mark.parametrize("gaps", [0.0, 0.5])
def test_sent_frames_have_no_gap(stall, gaps):
    rng = random.Random(4)
    frames = [rng.randbytes(length) for length in LENGTHS * 2]
    assert sent(frames, stall=stall, gaps=gaps) == (frames, [])


@pytest.mark.mutant
def test_a_reader_that_does_not_wait_is_noticed():
    rng = random.Random(4)
    frames = [rng.randbytes(length) for length in LENGTHS]
    eager = mutant(hw.board.xilinx.cmac, "(sending | begins)", "1").FrameReader
    found, gap = sent(frames, stall=0, gaps=0.5, cls=eager)
    assert gap or found != frames


def test_what_a_reset_of_the_mac_left_of_a_frame_is_not_sent():
    """A reset in the middle of the first frame: the second comes whole, the first's rest does not."""
    rng = random.Random(5)
    first, second = rng.randbytes(1514), rng.randbytes(700)
    part, found = FrameReader(64), []
    m = Module()
    mac_reset = Signal()
    m.domains += ClockDomain("sync"), ClockDomain(DOMAIN)
    m.submodules.part = part
    m.d.comb += ResetSignal(DOMAIN).eq(mac_reset)

    async def switch(ctx):
        for frame in (first, second):
            await offer(ctx, part.tx, frame)

    async def mac(ctx):
        frame = b""
        for cycle in range(400):
            resets = cycle == 60
            ctx.set(part.ready, cycle > 50)
            ctx.set(mac_reset, resets)
            *_, valid, ready, data, keep, last = await ctx.tick(DOMAIN).sample(
                part.valid, part.ready, part.data, part.keep, part.last
            )
            if resets:  # a MAC in reset forgets what it had, and looks at nothing
                assert frame and not last
                frame = b""
            elif valid and ready:
                frame += data.to_bytes(BYTES, "little")[: keep.bit_length()]
                if last:
                    found.append(frame)
                    frame = b""

    simulate(m, (mac, False), (switch, True))
    assert found == [second]


def sent_around_a_loss_of_the_link(cls=FrameReader):
    """Return the frames that the MAC took. The link goes down inside the second frame, which the MAC takes to its end
    (PG203, ctl_tx_enable); until the link is back it takes no other."""
    rng = random.Random(9)
    frames = [rng.randbytes(length) for length in (700, 1514, 60, 128, 900, 64, 300)]
    part, found = cls(64), []

    async def switch(ctx):
        for k, frame in enumerate(frames):
            if k == 5:
                await ctx.tick().repeat(400)
            await offer(ctx, part.tx, frame)

    async def mac(ctx):
        frame, words = b"", 0
        for cycle in range(900):
            link = words < 20 or cycle > 300
            ctx.set(part.link, link)
            ctx.set(part.ready, link or bool(frame))
            *_, valid, ready, data, keep, last = await ctx.tick(DOMAIN).sample(
                part.valid, part.ready, part.data, part.keep, part.last
            )
            if valid and ready:
                words += 1
                frame += data.to_bytes(BYTES, "little")[: keep.bit_length()]
                if last:
                    found.append(frame)
                    frame = b""

    simulate(around(part), (mac, False), (switch, True))
    return [frames.index(frame) for frame in found]


def test_a_frame_that_waits_while_the_link_is_down_is_not_sent_afterwards():
    assert sent_around_a_loss_of_the_link() == [0, 1, 5, 6]


def sent_around_a_reset_of_all(at, cls=FrameReader):
    """Frames that came whole after a reset of core and MAC alike, what was sent then, and cycles in which a frame had a
    gap."""
    rng, part, found, gap, later = random.Random(6), cls(64), [], [], []
    m = around(part)
    reset = Signal()
    m.d.comb += [ResetSignal().eq(reset), ResetSignal(DOMAIN).eq(reset)]

    async def switch(ctx):
        while True:
            frame = rng.randbytes(rng.choice(LENGTHS))
            for data, count, last in beats(frame):
                while rng.random() < 0.5:
                    await ctx.tick()
                for name, value in (("data", data), ("count", count), ("last", last)):
                    ctx.set(getattr(part.tx.payload, name), value)
                ctx.set(part.tx.valid, 1)
                taken = was = 0
                while not taken and not was:
                    _, was, taken = await ctx.tick().sample(part.tx.ready)
                ctx.set(part.tx.valid, 0)
                if was:
                    later.clear()
                    break
            else:
                later.append(frame)

    async def mac(ctx):
        frame = b""
        for cycle in range(1200):
            ctx.set(part.ready, 1)
            ctx.set(reset, at <= cycle < at + 20)
            _, was, valid, data, keep, last = await ctx.tick(DOMAIN).sample(part.valid, part.data, part.keep, part.last)
            if was:
                frame = b""
                found.clear()
                gap.clear()
                continue
            if frame and not valid:
                gap.append(cycle)
            if valid:
                frame += data.to_bytes(BYTES, "little")[: keep.bit_length()]
                if last:
                    found.append(frame)
                    frame = b""

    simulate(m, (mac, False), (switch, True))
    return later, found, gap


def goes_on(later, found, gap):
    return not gap and len(found) > 30 and found == later[: len(found)]


@pytest.mark.parametrize("at", range(300, 340, 5))
def test_after_a_reset_of_core_and_mac_frames_are_sent_as_before(at):
    assert goes_on(*sent_around_a_reset_of_all(at))


@pytest.mark.mutant
def test_a_frame_that_outlives_a_reset_is_noticed():
    outlives = mutant(hw.board.xilinx.cmac, "sending.eq(0)", "sending.eq(sending)").FrameReader
    assert not all(goes_on(*sent_around_a_reset_of_all(at, outlives)) for at in (300, 330))


def received_around_a_reset(domain, at, stall, cls=FrameWriter):
    """Frames that the MAC gave, each whole but for the one in a reset of its own, and what the switch took: (frame,
    error)."""
    rng, part, frames, found = random.Random(7), cls(32), [], []
    m, resets = around(part), {name: Signal(name=f"reset_{name}") for name in ("sync", DOMAIN)}
    m.d.comb += [ResetSignal(name).eq(reset) for name, reset in resets.items()]

    async def mac(ctx):
        for _ in range(60):
            frames.append(rng.randbytes(rng.choice(LENGTHS)))
            for data, count, last in beats(frames[-1]):
                for name, value in (("valid", 1), ("data", data), ("keep", (1 << count) - 1), ("last", last)):
                    ctx.set(getattr(part, name), value)
                _, was = await ctx.tick(DOMAIN)
                if was:
                    break
            ctx.set(part.valid, 0)
            for _ in range(2):
                await ctx.tick(DOMAIN)
        await ctx.tick(DOMAIN).repeat(100)

    async def switch(ctx):
        frame, chance = b"", random.Random(8)
        for cycle in itertools.count():
            ctx.set(part.rx.ready, chance.random() >= stall)
            ctx.set(resets[domain], at <= cycle < at + 12)
            _, was, valid, ready, word, count, last, error = await ctx.tick().sample(
                part.rx.valid,
                part.rx.ready,
                part.rx.payload.data,
                part.rx.payload.count,
                part.rx.payload.last,
                part.rx.payload.error,
            )
            if was:
                frame = b""
            elif valid and ready:
                frame += word.to_bytes(BYTES, "little")[:count]
                if last:
                    found.append((frame, error))
                    frame = b""

    simulate(m, (mac, False), (switch, True))
    return frames, found


def whole_ones_came(frames, found):
    """And the one that was cut, if there is one, ended once."""
    good, left = [frame for frame, error in found if not error], iter(frames)
    return (
        all(frame in left for frame in good)
        and len(good) > 40
        and good[-1] == frames[-1]
        and len(found) <= len(good) + 1
    )


@pytest.mark.parametrize("stall", [0.0, 0.1])
@pytest.mark.parametrize("at", [90, 103, 116])
@pytest.mark.parametrize("domain", ["sync", DOMAIN])
def test_after_a_reset_of_either_side_no_rest_of_a_frame_is_taken_for_a_whole_one(domain, at, stall):
    assert whole_ones_came(*received_around_a_reset(domain, at, stall))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("domain", "sound", "wrong"),
    [
        ("sync", "skips.eq(inside & ~begun)", "skips.eq(0)"),
        (DOMAIN, "queue.r_rst & ~broken", "queue.r_rst"),
        (DOMAIN, "broken.eq(begun)", "broken.eq(0)"),
    ],
)
def test_a_mutant_around_a_reset_is_noticed(domain, sound, wrong):
    broken = mutant(hw.board.xilinx.cmac, sound, wrong).FrameWriter
    assert not all(whole_ones_came(*received_around_a_reset(domain, at, 0.0, broken)) for at in (90, 103, 116))
