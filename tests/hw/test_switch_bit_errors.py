"""Bit errors in the switch's queue of a port: no sum contains one, no decision follows from one, and each frame is
counted once."""

import numpy as np
from amaranth.hdl import Value
from amaranth.lib.memory import Memory

import hw.ingress.packet_queue
from hw.switch import Switch
from iswitch.config import Config
from iswitch.golden.tree_switch import TreeSwitch as Model
from iswitch.wire import Format, Outcome, ones_complement_sum
from sim.bench.stream import Bench, from_words, pack, to_words
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

SEED = 11
PAYLOAD = 42
"""Bytes of a frame before its UDP payload, which sums to zero in every frame of the switch."""


class Scene:
    """The simulated switch and the model, and two workers of one job."""

    def __init__(self, monkeypatch) -> None:
        self.config = Config(
            ports=2, bus_bits=64, members=2, window=2, elements=32, queue_bytes=4096, mac_entries=64, uplinks=False
        )
        self.memories, self.stored, self.outcomes = [], [0, 0], []
        monkeypatch.setattr(
            hw.ingress.packet_queue,
            "Memory",
            lambda **options: self.memories.append(Memory(**options)) or self.memories[-1],
        )
        self.dut = dut = Switch(self.config)
        self.model = Model(self.config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=SEED)
        self.bench = Bench(
            dut,
            inputs=[
                (dut.own_mac, int.from_bytes(SWITCH_MAC, "little")),
                (dut.own_ip, int.from_bytes(SWITCH_IP, "little")),
                (dut.seed, SEED),
            ],
        )
        self.sources = [self.bench.source(rx) for rx in dut.rx]
        self.sinks = [self.bench.sink(tx) for tx in dut.tx]
        self.bench.process(self.trace)
        self.errors = []
        self.workers = [Client.numbered(k, port=k) for k in range(2)]

    async def trace(self, ctx) -> None:
        async for _, _, traced, outcome in ctx.tick().sample(self.dut.traced, self.dut.trace.outcome):
            self.outcomes.extend([Outcome(outcome)] * traced)

    async def send(self, port: int, frame: bytes, flip: tuple[int, int] | None = None) -> tuple[list[bytes], Outcome]:
        """Send a frame, and flip a bit of one of its words while it waits. Return the frames that leave, and its
        outcome."""
        source, words = self.sources[port], to_words(frame, self.config.bus_bits)
        source.items += [pack(source.shape, word) for word in words]
        while not source.done:
            await self.ctx.tick()
        if flip is not None:
            rows, (word, bit) = self.memories[port], flip
            row = Value.cast(rows.data[(self.stored[port] + word) % rows.depth])
            self.ctx.set(row, self.ctx.get(row) ^ 1 << bit)
        self.stored[port] += len(words)
        quiet = 0
        while quiet < 8:
            await self.ctx.tick()
            quiet = 0 if self.ctx.get(self.dut.busy) else quiet + 1
        sent = [frame for sink in self.sinks for frame in from_words(sink.items, self.config.bus_bits)]
        for sink in self.sinks:
            self.errors += [item.error for item in sink.items if item.last]
            sink.items.clear()
        (outcome,), self.outcomes = self.outcomes, []
        return sent, outcome

    async def give(self, port: int, frame: bytes) -> list[bytes]:
        """Send a frame without an error; what leaves is what the model sends."""
        sent, _ = await self.send(port, frame)
        expected = sorted(self.model.receive(port, frame, 0), key=lambda egress_and_frame: egress_and_frame[0])
        assert sent == [frame for _, frame in expected]
        return sent

    def play(self, scenario) -> None:
        async def testbench(ctx):
            self.ctx = ctx
            for turn in range(3):
                for worker in self.workers:
                    options = {"world": 2, "elements": self.config.elements}
                    for answer in await self.give(worker.port, worker.join(**({} if turn else options))):
                        worker.take(answer)
            await scenario()

        self.bench.drive(testbench)


def sums(frames: list[bytes]) -> list[bool]:
    """Return whether the checksum of each frame is right."""
    return [ones_complement_sum(frame[PAYLOAD:]) == 0xFFFF for frame in frames]


def test_an_ordinary_frame_with_a_bit_error_leaves_with_an_error(monkeypatch):
    """So a MAC that can do so gives it a bad FCS. The frame after it has none."""
    scene = Scene(monkeypatch)

    async def scenario():
        station, other = bytes([2, 0, 0, 0, 0, 9]), bytes([2, 0, 0, 0, 0, 8])
        frame = ordinary(other, station, 100)
        for flip, error in (((10, 5), 1), (None, 0), ((12, 30), 1), (None, 0)):
            before = len(scene.errors)
            sent, outcome = await scene.send(0, frame, flip)
            assert outcome == Outcome.ORDINARY and len(sent) == 1
            assert scene.errors[before:] == [error] and (sent == [frame]) == (not error)

    scene.play(scenario)


def test_no_sum_and_no_decision_has_a_bit_error_from_before_it(monkeypatch):
    scene, rng = Scene(monkeypatch), np.random.default_rng(1)

    async def scenario():
        a, b = scene.workers
        numbers = rng.integers(-(2**31), 2**31, (4, 2, 32), dtype=np.int64).astype(np.int32)
        contribution = lambda worker, seq: worker.contribution(
            a.first_seq + seq, numbers[seq][worker.port], format=Format.INT32, behind=0
        )
        # A bit error in the headers: the frame is lost, and sent again.
        await scene.give(0, contribution(a, 0))
        for flip in ((5, 60), (7, 3), (3, 71)):
            assert await scene.send(1, contribution(b, 0), flip) == ([], Outcome.CORRUPT)
        assert len(await scene.give(1, contribution(b, 0))) == 2
        # A bit error in the payload of the first contribution, then of the second: the results have wrong checksums,
        # also those that are sent again. Otherwise they are the model's.
        for seq, damaged in ((1, 0), (2, 1)):
            for worker in (a, b):
                frame = contribution(worker, seq)
                flip = (12, 33) if worker.port == damaged else None
                sent, outcome = await scene.send(worker.port, frame, flip)
                assert outcome == Outcome.ADDED
                expected = scene.model.receive(worker.port, frame, 0)
            assert len(sent) == len(expected) == 2 and sums(sent) == [False] * 2
            sent, _ = await scene.send(0, contribution(a, seq))
            scene.model.receive(0, contribution(a, seq), 0)
            assert sums(sent) == [False]
        # Another slot is not touched.
        await scene.give(0, contribution(a, 3))
        assert sums(await scene.give(1, contribution(b, 3))) == [True] * 2

    scene.play(scenario)
