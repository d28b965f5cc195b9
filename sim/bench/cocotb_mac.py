"""The emitted Verilog of the MAC at XGMII, against the source and the sink of cocotbext-eth, an outside model. Top:
`sim.bench.mac.Mac`.

Stalls: pauses of the line, as a gearbox makes them, and gaps between frames on the side of the switch.
"""

import itertools
import random
from collections.abc import Iterator

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.eth import XgmiiFrame, XgmiiSink, XgmiiSource

from sim.bench.cocotb_bus import none, until

__all__: list[str] = []

LENGTHS = [*range(60, 84), 127, 128, 129, 130, *range(1511, 1519)]
"""All residues modulo 8, around the shortest and the longest frame."""
CYCLE_NS = 6.4
GAP_BYTES = 12


def bursts(rng: random.Random) -> Iterator[bool]:
    """Yield pauses: every 33rd cycle, as of a synchronous gearbox, and some more at random."""
    while True:
        yield from itertools.repeat(False, 32)
        yield from itertools.repeat(True, rng.choice([1, 1, 1, 5]))


class Bench:
    def __init__(self, dut, stalls):
        self.dut, self.rng, self.stalls = dut, random.Random(cocotb.RANDOM_SEED), stalls
        for name in ("i_payload", "i_valid", "rxd", "rxc"):
            getattr(dut, name).value = 0
        dut.tx_enable.value = dut.rx_enable.value = 1
        self.frames: list[tuple[bytes, bool]] = []
        self.underruns = 0

    async def start(self):
        dut = self.dut
        dut.rst.value, dut.rxd.value, dut.rxc.value = 1, 0x0707070707070707, 0xFF
        Clock(dut.clk, 6.4, unit="ns").start()
        await ClockCycles(dut.clk, 5)
        dut.rst.value = 0
        self.source = XgmiiSource(dut.rxd, dut.rxc, dut.clk, enable=dut.rx_enable)
        self.sink = XgmiiSink(dut.txd, dut.txc, dut.clk, enable=dut.tx_enable)
        for work in (self.pause(dut.tx_enable), self.pause(dut.rx_enable), self.collect()):
            cocotb.start_soon(work)
        await ClockCycles(dut.clk, 20)

    async def pause(self, enable):
        for stalls in self.stalls(random.Random(self.rng.random())):
            enable.value = int(not stalls)
            await RisingEdge(self.dut.clk)

    async def feed(self, frames, pauses):
        """Offer a frame's words without a pause between them, as the transmitter requires."""
        dut = self.dut
        for frame in frames:
            for _ in range(next(pauses)):
                await RisingEdge(dut.clk)
            for at in range(0, len(frame), 8):
                part = frame[at : at + 8]
                dut.i_payload.value = (
                    int.from_bytes(part.ljust(8, b"\xa5"), "little") | len(part) << 64 | (at + 8 >= len(frame)) << 68
                )
                dut.i_valid.value = 1
                await RisingEdge(dut.clk)
                while not int(dut.i_ready.value):
                    await RisingEdge(dut.clk)
                dut.i_valid.value = 0

    async def collect(self):
        dut, frame = self.dut, b""
        while True:
            await RisingEdge(dut.clk)
            self.underruns += int(dut.underrun.value)
            if int(dut.o_valid.value):
                word = int(dut.o_payload.value)
                frame += (word % (1 << 64)).to_bytes(8, "little")[: word >> 64 & 15]
                if word >> 68 & 1:
                    self.frames.append((frame, bool(word >> 69 & 1)))
                    frame = b""

    async def until(self, holds):
        await until(self.dut.clk, holds)


def gaps_of(frames) -> list[float]:
    """Return the gaps in bytes, from a terminate to the next start: the sink stamps both with the time of their
    lanes."""
    byte = CYCLE_NS / 8 * 1000
    return [(after.sim_time_start - before.sim_time_end) / byte for before, after in itertools.pairwise(frames)]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_mac_frames_are_received_from_another_source(dut, stalls):
    """At line rate, back to back, all lengths: with the deficit idle count, without it, and all starts in lane 4."""
    bench = Bench(dut, stalls)
    await bench.start()
    source, sent = bench.source, []
    for deficit, offset in ((True, False), (False, False), (True, True)):
        source.enable_dic, source.force_offset_start = deficit, offset
        batch = [bench.rng.randbytes(length) for length in LENGTHS * 2]
        bench.rng.shuffle(batch)
        lanes: set[int] = set()
        for frame in batch:
            source.send_nowait(
                XgmiiFrame.from_payload(frame, tx_complete=lambda frame, lanes=lanes: lanes.add(frame.start_lane))
            )
        await source.wait()
        sent += batch
        assert lanes == ({4} if offset else {0, 4})
    await bench.until(lambda: len(bench.frames) == len(sent))
    await ClockCycles(dut.clk, 50)
    assert bench.frames == [(frame, False) for frame in sent]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_mac_frames_are_sent_to_another_sink(dut, stalls):
    """With zlib's FCS. Waiting frames are 12 bytes apart on average, and no frame is lost."""
    bench = Bench(dut, stalls)
    await bench.start()
    frames = [bench.rng.randbytes(length) for length in (1, 2, 59, *LENGTHS, *range(60, 68), *range(60, 68), *LENGTHS)]
    cocotb.start_soon(bench.feed(frames, itertools.repeat(0)))
    found = []
    while len(found) < len(frames):
        await bench.until(lambda: not bench.sink.empty())
        found.append(bench.sink.recv_nowait())
    assert all(frame.check_fcs() and frame.ctrl is None for frame in found)
    assert [bytes(frame.get_payload()) for frame in found] == [frame.ljust(60, b"\0") for frame in frames]
    assert {frame.start_lane for frame in found} == {0, 4}
    assert bench.underruns == 0
    if stalls is none:
        gaps = gaps_of(found)
        assert 0 <= GAP_BYTES * len(gaps) - round(sum(gaps)) <= 3 and min(gaps) > 8.5


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_mac_damaged_frames_end_with_an_error(dut, stalls):
    """Wrong FCS, control characters inside, truncated frames, bad preambles; each beside a good frame, which does not
    change."""
    bench = Bench(dut, stalls)
    await bench.start()
    expected = []

    def send(frame, bad):
        bench.source.send_nowait(frame)
        expected.append(bad)

    for length in LENGTHS:
        good = bench.rng.randbytes(length)
        send(XgmiiFrame.from_payload(good), False)
        for damage in ("bit", "error", "cut", "preamble"):
            frame = XgmiiFrame.from_payload(good)
            at = bench.rng.randrange(8, len(frame.data))
            frame.ctrl = [0] * len(frame.data)
            if damage == "bit":
                frame.data[at] ^= 1 << bench.rng.randrange(8)
            elif damage == "error":
                frame.data[at], frame.ctrl[at] = 0xFE, 1
            elif damage == "cut":
                del frame.data[at:], frame.ctrl[at:]
            else:
                frame.data[bench.rng.randrange(1, 7)] ^= 1 << bench.rng.randrange(8)
            send(frame, True)
    await bench.source.wait()
    await bench.until(lambda: len(bench.frames) >= len(expected))
    await ClockCycles(dut.clk, 50)
    assert [bad for _, bad in bench.frames] == expected
    assert [len(frame) for frame, bad in bench.frames if not bad] == LENGTHS


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_mac_faults_are_heard_and_answered(dut, stalls):
    """A local fault is answered by remote faults, a remote fault by idle. Frames that begin meanwhile are discarded;
    frames that begin afterwards leave."""
    bench = Bench(dut, stalls)
    await bench.start()
    for fault, heard, answer in ((0x000001, dut.local, 0x000002), (0x000002, dut.remote, None)):
        bench.source.set_seq_os(fault)
        await bench.until(lambda heard=heard: int(heard.value))
        await ClockCycles(dut.clk, 60)
        bench.sink.get_os()
        await bench.feed([bench.rng.randbytes(100)] * 3, itertools.repeat(0))
        await ClockCycles(dut.clk, 200)
        assert bench.sink.empty() and bench.sink.get_os()[0] == answer
        assert bool(int(dut.local.value)) == (fault == 1) and bool(int(dut.remote.value)) == (fault == 2)
        bench.source.set_seq_os(None)
        await bench.until(lambda heard=heard: not int(heard.value))
        await ClockCycles(dut.clk, 60)
        assert bench.sink.empty()
        await bench.feed([bench.rng.randbytes(100)] * 3, itertools.repeat(0))
        await bench.until(lambda: bench.sink.count() == 3)
        while not bench.sink.empty():
            assert bench.sink.recv_nowait().check_fcs()
