"""The whole path in Amaranth's simulator: two workers join, sum, lose, repeat; every stream of the ports watched.

The oracles are plain Python: integers for `int32`, fractions for `window64`, and the golden switch for every byte that
leaves.
"""

from fractions import Fraction

import numpy as np
import pytest

from hw.switch import Switch
from iswitch.config import Config
from iswitch.golden.tree_switch import TreeSwitch as Model
from iswitch.wire import Format, Type
from sim.bench.stream import Bench, from_words, pack, to_words
from sim.bench.traffic import broken_frames
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary, parse

SEED = 11


def config(bus_bits: int) -> Config:
    return Config(ports=2, bus_bits=bus_bits, members=2, window=2, elements=32, queue_bytes=4096, mac_entries=64)


class Scene:
    """The simulated switch and the model; `give` hands a frame to both and compares what they send."""

    def __init__(self, bus_bits: int, stalls: float) -> None:
        self.config = config(bus_bits)
        self.dut = Switch(self.config)
        self.model = Model(self.config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=SEED)
        self.bench = Bench(
            self.dut,
            stalls=stalls,
            inputs=[
                (self.dut.own_mac, int.from_bytes(SWITCH_MAC, "little")),
                (self.dut.own_ip, int.from_bytes(SWITCH_IP, "little")),
                (self.dut.seed, SEED),
            ],
        )
        self.sources = [self.bench.source(rx) for rx in self.dut.rx]
        self.sinks = [self.bench.sink(tx) for tx in self.dut.tx]
        self.paused = 0
        for tx in self.dut.tx:
            self.bench.process(self.watching(tx))
        self.workers = [Client.numbered(k, port=k) for k in range(2)]
        self.ctx = None

    def watching(self, tx):
        async def watch(ctx):
            """A MAC cannot wait in the middle of a frame."""
            within = False
            async for _, _, valid, ready, last in ctx.tick().sample(tx.valid, tx.ready, tx.payload.last):
                self.paused += within and not valid
                within = (within or valid) and not (valid and ready and last)

        return watch

    async def give(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        source = self.sources[port]
        source.items += [pack(source.shape, word) for word in to_words(frame, self.config.bus_bits, error=error)]
        quiet = 0
        for _ in range(4000):
            await self.ctx.tick()
            quiet = 0 if self.ctx.get(self.dut.busy) or not source.done else quiet + 1
            if quiet == 8:
                break
        assert quiet == 8, "the switch stays busy"
        sent = self.model.receive(port, frame, 0, error)
        for egress, sink in enumerate(self.sinks):
            assert from_words(sink.items, self.config.bus_bits) == [f for at, f in sent if at == egress]
            sink.items.clear()
        return [f for _, f in sent]

    async def join(self, **settings: int) -> None:
        for turn in range(3):
            for worker in self.workers:
                options = {"world": 2, "elements": self.config.elements} | settings
                for answer in await self.give(worker.port, worker.join(**({} if turn else options))):
                    worker.take(answer)

    def play(self, scenario) -> None:
        async def testbench(ctx):
            self.ctx = ctx
            await scenario()

        self.bench.drive(testbench)
        assert self.paused == 0, "a frame that had begun at a port paused"


def numbers_of(answers: list[bytes]) -> list[np.ndarray]:
    return [reply.numbers for reply in map(parse, answers) if reply.type == Type.RESULT]


@pytest.mark.parametrize(("bus_bits", "stalls"), [(64, 0), (256, 0.3), (512, 0)])
def test_two_workers_get_the_sum_at_both_ports(bus_bits, stalls):
    scene = Scene(bus_bits, stalls)
    rng = np.random.default_rng(1)

    async def scenario():
        await scene.join()
        a, b = scene.workers
        whole = rng.integers(-(2**31), 2**31, (2, 32), dtype=np.int64).astype(np.int32)
        await scene.give(0, a.contribution(a.first_seq, whole[0], format=Format.INT32))
        sums = numbers_of(await scene.give(1, b.contribution(b.first_seq, whole[1], format=Format.INT32)))
        wanted = [(int(x) + int(y)) % 2**32 for x, y in whole.T]
        assert [list(result) for result in sums] == [wanted, wanted]

        for length in (1, 31):
            real = rng.normal(0, 1, (2, length)).astype(np.float32)
            seq = a.first_seq + (1 if length == 1 else 2)
            await scene.give(1, b.contribution(seq, real[1], behind=0))
            sums = numbers_of(await scene.give(0, a.contribution(seq, real[0], behind=0)))
            for result in sums:
                for x, y, got in zip(*real, result.view(np.float32), strict=True):
                    terms = [Fraction(round(Fraction(float(v)) * 2**44), 2**44) for v in (x, y)]
                    assert got == np.float32(float(sum(terms)))  # 46 bits: exact in binary64, rounded once

    scene.play(scenario)


@pytest.mark.parametrize("bus_bits", [64, 256])
def test_a_lost_result_is_sent_again_and_never_changed(bus_bits):
    scene = Scene(bus_bits, 0)

    async def scenario():
        await scene.join()
        a, b = scene.workers
        ones = np.ones(5, np.float32)
        frame = a.contribution(a.first_seq, ones)
        await scene.give(0, frame)
        assert await scene.give(0, frame) == []
        first = numbers_of(await scene.give(1, b.contribution(b.first_seq, 2 * ones)))
        again = numbers_of(await scene.give(0, frame))
        wanted = numbers_of(await scene.give(1, b.receipt(b.first_seq, want=True)))
        assert len(first) == 2
        assert len(again) == len(wanted) == 1
        for result in (*first, *again, *wanted):
            assert list(result.view(np.float32)) == [3.0] * 5
        assert scene.model.counters()["outcome.DUPLICATE"] == 2

    scene.play(scenario)


@pytest.mark.parametrize("bus_bits", [64, 256])
def test_a_broken_frame_changes_nothing_and_has_its_own_counter(bus_bits):
    scene = Scene(bus_bits, 0.2)

    async def scenario():
        await scene.join()
        a, b = scene.workers
        frame = a.contribution(a.first_seq, np.ones(3, np.float32))
        for name, spoilt in broken_frames(frame).items():
            before = scene.model.counters()
            assert await scene.give(0, spoilt) == []
            after = scene.model.counters()
            kind = name.split("/")[0]
            fate = f"port0.{kind}" if kind.startswith("RX_") else f"outcome.{kind}"
            seen = {} if kind.startswith("RX_") else {"port0.RX_FRAMES": 1}
            assert {key: after[key] - before[key] for key in after if after[key] != before[key]} == {fate: 1} | seen
        assert await scene.give(0, frame, error=True) == []
        await scene.give(0, frame)
        sums = numbers_of(await scene.give(1, b.contribution(b.first_seq, np.ones(3, np.float32))))
        assert [list(result.view(np.float32)) for result in sums] == [[2.0] * 3] * 2
        for port in range(2):
            await scene.give(port, ordinary(b"\xff" * 6, a.mac, 61 + port))
        for address in range(0, 64 + 16, 8):  # the registers, as the golden switch has them
            await scene.give(0, a.read(address))

    scene.play(scenario)
