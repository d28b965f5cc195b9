"""A gigabit port at its pins, against the RGMII models of cocotbext-eth, an outside model. Tops: `rgmii` is a port as
on a board, `shallow` has a small receive memory."""

import itertools
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, Timer
from cocotbext.eth import GmiiFrame, RgmiiSink, RgmiiSource

from sim.bench.cocotb_bus import Handshake, Sink, Source, StreamBus, bursts, none, until, watch

__all__ = ["LENGTHS"]

LENGTHS = (60, 61, 64, 67, 68, 127, 128, 590, 1514, 1518)
LIMIT_CYCLES = 100_000
LONGEST_PAUSES = 20, 60
"""Cycles, each 2.5 bytes on the wire, for which the consumer and the producer of words pause: words come faster than on
the wire, or slower."""
SYNC_NS, WIRE_NS = 20, 8


class Bench:
    def __init__(self, dut, stalls):
        self.dut, self.rng = dut, random.Random(cocotb.RANDOM_SEED)
        rx, tx = StreamBus(dut, "rx"), StreamBus(dut, "tx")
        takes, gives = LONGEST_PAUSES
        self.out = Source(tx, stalls(self.rng, gives), lambda: self.rng.getrandbits(64))
        self.got = Sink(rx, stalls(self.rng, takes), marked=True)
        self.tx_error = tx.error
        self.watch = Handshake("rx", 8)
        self.rx_bus = rx

    async def start(self):
        dut = self.dut
        dut.rst.value = dut.wire_rst.value = 1
        dut.tx_error.value = 0
        Clock(dut.clk, SYNC_NS, unit="ns").start()
        Clock(dut.wire_clk, WIRE_NS, unit="ns").start()
        cocotb.start_soon(self.sample())
        self.phy_out = RgmiiSource(dut.rgmii_rx_data, dut.rgmii_rx_ctl, dut.wire_clk)
        self.phy_in = RgmiiSink(dut.rgmii_tx_data, dut.rgmii_tx_ctl, dut.sample)
        await ClockCycles(dut.clk, 5)
        dut.rst.value = dut.wire_rst.value = 0
        await ClockCycles(dut.clk, 5)
        cocotb.start_soon(self.out.run())
        cocotb.start_soon(self.got.run())
        cocotb.start_soon(watch(self.rx_bus, self.watch))

    async def sample(self):
        """The pins' clock a quarter of a period later, as a PHY that delays it makes; the transmitted clock is right
        then."""
        while True:
            await RisingEdge(self.dut.wire_clk)
            await Timer(WIRE_NS / 4, unit="ns")
            assert int(self.dut.rgmii_tx_clk.value) == 1
            self.dut.sample.value = 1
            await FallingEdge(self.dut.wire_clk)
            await Timer(WIRE_NS / 4, unit="ns")
            assert int(self.dut.rgmii_tx_clk.value) == 0
            self.dut.sample.value = 0

    async def until(self, holds):
        await until(self.dut.clk, holds, LIMIT_CYCLES)

    def payload(self, length):
        return self.rng.randbytes(length)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_rgmii_sends_whole_frames_with_gaps(dut, stalls):
    """The source pauses inside frames. Short frames are padded; the gap between waiting frames is exactly 12 bytes."""
    bench = Bench(dut, stalls)
    await bench.start()
    sent = [bench.payload(length) for length in (1, 14, 59, *LENGTHS, *LENGTHS, 60, 60, 60, 60)]
    for frame in sent:
        bench.out.put(frame)
    await bench.until(lambda: bench.phy_in.count() == len(sent))
    got = [bench.phy_in.recv_nowait() for _ in sent]
    assert [bytes(frame.get_payload()) for frame in got] == [frame.ljust(60, b"\0") for frame in sent]
    assert all(
        frame.check_fcs() and frame.error is None and bytes(frame.get_preamble()) == b"\x55" * 7 + b"\xd5"
        for frame in got
    )
    gaps = [
        (after.sim_time_start - frame.sim_time_start) // (WIRE_NS * 1000) - len(frame)
        for frame, after in itertools.pairwise(got)
    ]
    assert min(gaps) >= 12
    if stalls is none:
        assert set(gaps[-8:]) == {12}
    await ClockCycles(dut.clk, 500)
    assert bench.phy_in.empty()


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_rgmii_gives_every_frame_once_and_marks_the_damaged(dut, stalls):
    """At line rate, with gaps of 12 bytes and of one: good frames arrive unchanged, also those that are too short;
    frames with a bad FCS or a bad start and fragments arrive with an error; after each of these a good frame."""
    bench = Bench(dut, stalls)
    await bench.start()
    good = lambda length: (frame := bench.payload(length), GmiiFrame.from_payload(frame, min_len=0), False)

    def damaged(length):
        frame = GmiiFrame.from_payload(bench.payload(length))
        frame.data[bench.rng.randrange(8, len(frame.data))] ^= 1 << bench.rng.randrange(8)
        return b"", frame, True

    fragment = lambda length: (b"", GmiiFrame.from_raw_payload(bench.payload(length)), True)
    bad_start = lambda length: (b"", GmiiFrame(b"\x55" * length), True)
    for gap in (12, 1):
        bench.phy_out.ifg = gap
        sent = [good(length) for length in LENGTHS] + [good(60)] * 20
        for length in LENGTHS:
            sent += [damaged(length), good(length)]
        for length in (1, 2, 3, 4, 5):
            sent += [fragment(length), good(60)]
        for length in (1, 7, 8, 72):
            sent += [bad_start(length), good(60)]
        for length in (1, 7, 8, 9, 20, 59):
            sent += [good(length), good(60)]
        bench.got.frames.clear()
        for _, frame, _ in sent:
            await bench.phy_out.send(frame)
        await bench.until(lambda: len(bench.got.frames) >= len(sent))
        await ClockCycles(dut.clk, 500)
        received = [(not error and frame, error) for frame, error in bench.got.frames]
        for number, (got, (frame, sent_frame, error)) in enumerate(zip(received, sent)):
            assert got == (not error and frame, error), (
                f"frame {number} with a gap of {gap}: sent {bytes(sent_frame)!r}"
            )
        assert len(received) == len(sent)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_rgmii_sends_while_it_receives(dut, stalls):
    bench = Bench(dut, stalls)
    await bench.start()
    ways = [[bench.payload(length) for length in LENGTHS] for _ in range(2)]
    for out, back in zip(*ways):
        bench.out.put(out)
        await bench.phy_out.send(GmiiFrame.from_payload(back))
    await bench.until(lambda: bench.phy_in.count() == len(LENGTHS) and len(bench.got.frames) == len(LENGTHS))
    assert [bytes(bench.phy_in.recv_nowait().get_payload()) for _ in LENGTHS] == ways[0]
    assert bench.got.frames == [(frame, False) for frame in ways[1]]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_shallow_cuts_what_finds_no_room_and_counts_it(dut, stalls):
    """While the consumer stalls for long, each frame arrives once, complete or with an error; good frames arrive again
    afterwards."""
    bench = Bench(dut, stalls)
    pausing = bench.got.stalls
    blocked = True
    bench.got.stalls = (blocked or next(pausing) for _ in itertools.count())
    await bench.start()
    sent = [bench.payload(length) for length in (60, 1514, 60, 300, 60, 60, 60)]
    for frame in sent:
        await bench.phy_out.send(GmiiFrame.from_payload(frame))
    await bench.phy_out.wait()
    await ClockCycles(dut.clk, 100)
    assert bench.got.frames == []
    blocked = False
    await bench.until(lambda: len(bench.got.frames) == len(sent))
    assert [error for _, error in bench.got.frames] == [False, *[True] * (len(sent) - 1)]
    assert bench.got.frames[0] == (sent[0], False)
    await ClockCycles(dut.clk, 500)
    after = bench.payload(64)
    await bench.phy_out.send(GmiiFrame.from_payload(after))
    await bench.until(lambda: len(bench.got.frames) > len(sent))
    assert bench.got.frames[len(sent) :] == [(after, False)]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_rgmii_shows_the_link_that_the_phy_tells_between_frames(dut, stalls):
    bench = Bench(dut, stalls)
    await bench.start()
    for status, link in ((0b1101, 1), (0b0000, 0), (0b0001, 1), (0b1110, 0)):
        dut.rgmii_rx_data.value = status
        await ClockCycles(dut.clk, 10)
        assert int(dut.link.value) == link
