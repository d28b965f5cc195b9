"""Asynchronous workers on the compiled switch, over links that lose, duplicate, reorder and corrupt frames.

Every granted vector is in its sum exactly once, and all workers receive the same sums, while members leave and join.
"""

import numpy as np
import pytest

from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import Action, Format, Type
from sim.bench.asynchronous import AsynchronousWorker, Ledger, element
from sim.bench.designs import TWO_PORTS
from sim.emulator.engine import Board
from sim.emulator.faults import DIRECTIONS, PS_PER_US, Faults, Rates
from sim.frames.client import Client

SMALL = TWO_PORTS
RATES = Rates(loss=0.03, duplicate=0.03, reorder=0.05, corrupt=0.01)
ROUND_US = 20


class Cluster:
    """Workers of one job, two at a port, with faulty links to the switch."""

    def __init__(
        self, workers: int = 4, *, staleness: int = 2, segments: int = 3, threshold: int = 2, seed: int = 1
    ) -> None:
        self.board = Board(SMALL, seed=seed_for_first_seq(-8 * SMALL.window, seed), watch=True)
        self.rng = np.random.default_rng(seed)
        self.links = {(port, way): Faults.none() for port in range(SMALL.ports) for way in DIRECTIONS}
        self.now_us = self.frames = self.incarnation = 0
        self.clients = [Client.numbered(k, port=k % SMALL.ports) for k in range(workers)]
        self.workers: dict[bytes, AsynchronousWorker] = {}
        self.origin: int | None = None
        self.leaving: dict[bytes, bytes] = {}
        settings = {
            "world": workers,
            "elements": 16,
            "format": Format.INT32,
            "staleness": staleness,
            "segments": segments,
            "threshold": threshold,
        }
        for _ in range(3):
            self.exchange({client: [client.join(**settings)] for client in self.clients})
        self.workers = {client.mac: AsynchronousWorker(client, segments=segments) for client in self.clients}
        self.origin = self.clients[0].first_seq
        self.ledger = Ledger(segments, staleness)
        self.links = {
            (port, way): Faults(RATES, seed=seed, port=port, direction=way)
            for port in range(SMALL.ports)
            for way in DIRECTIONS
        }

    def exchange(self, frames: dict[Client, list[bytes]]) -> None:
        """Run one round: send these frames, and deliver what the switch sends."""
        self.now_us += ROUND_US
        now_ps = self.now_us * PS_PER_US
        for client, sent in frames.items():
            self.frames += len(sent)
            for frame in sent:
                self.links[client.port, "rx"].put(frame, now_ps)
        for port in range(SMALL.ports):
            for passed in self.links[port, "rx"].pop_due(now_ps):
                self.board.send(port, passed.data, passed.error)
        self.board.run(1_000_000, self.now_us)
        by_mac = {client.mac: client for client in self.clients}
        for port in range(SMALL.ports):
            for frame in self.board.receive(port):
                self.frames += 1
                self.links[port, "tx"].put(frame.data, now_ps)
            for passed in self.links[port, "tx"].pop_due(now_ps):
                if not passed.error and passed.data[:6] in by_mac:
                    self.deliver(by_mac[passed.data[:6]], passed.data)

    def deliver(self, client: Client, frame: bytes) -> None:
        """Deliver a frame to its client."""
        worker = self.workers.get(client.mac)
        if worker is None:
            self.deliver_to_joining(client, frame)
        elif worker.take(frame) == Type.ACK and client.mac in self.leaving and frame[64] == Action.LEAVE:
            self.ledger.record_departure(worker)
            del self.workers[client.mac], self.leaving[client.mac]
            self.incarnation += 1
            client.forget(self.incarnation)

    def deliver_to_joining(self, client: Client, frame: bytes) -> None:
        """Deliver a frame to a client that is not a member yet."""
        if self.origin is None:
            client.take(frame)
            return
        worker = AsynchronousWorker(client, segments=self.ledger.segments, origin=self.origin)
        if worker.enters(frame):
            self.workers[client.mac] = worker

    def due(self, client: Client, departures: float) -> list[bytes]:
        """Return the frames that a client sends in a round: some of those that it may send."""
        worker, rng = self.workers.get(client.mac), self.rng
        if worker is None:
            return [client.join()]
        if client.mac in self.leaving:
            return [self.leaving[client.mac]]
        if not self.leaving and len(self.workers) == len(self.clients) and rng.random() < departures:
            self.leaving[client.mac] = client.leave()
            return [self.leaving[client.mac]]
        if rng.random() < 0.2:
            worker.compute()
        frames = worker.due()
        return [frames[k] for k in rng.permutation(len(frames))[: int(rng.integers(0, 4))]]

    def work(self, frames: int, departures: float = 0.001) -> None:
        """Run rounds until so many frames have been on the links."""
        while self.frames < frames:
            for _ in range(50):
                self.exchange({client: self.due(client, departures) for client in self.clients})
            for worker in self.workers.values():
                self.ledger.record(worker)
            low = min(worker.low for worker in self.workers.values())
            self.ledger.check_below(low)
            for worker in self.workers.values():
                worker.forget(low)
        assert not self.board.violations()


@pytest.mark.parametrize(
    ("frames", "settings"),
    [
        (20_000, {}),
        (20_000, {"staleness": 0, "threshold": 4}),
        (20_000, {"staleness": 7, "segments": 9, "threshold": 1}),
        pytest.param(1_000_000, {"seed": 2}, marks=pytest.mark.slow),
    ],
    ids=["fast", "lockstep", "far apart", "million"],
)
def test_each_granted_vector_is_counted_exactly_once(frames, settings):
    cluster = Cluster(**settings)
    cluster.work(frames)
    assert cluster.ledger.checked > frames / 40 and cluster.ledger.vectors > frames / 200
    assert cluster.incarnation >= 1
    cluster.board.close()


@pytest.mark.parametrize("wrong", ["twice", "missing", "another", "old"])
def test_ledger_notices_a_wrong_sum(wrong):
    client = Client.numbered(0)
    client.member = 0
    worker = AsynchronousWorker(client, segments=1)
    worker.granted[5] = (2, 5 if wrong != "old" else 3)
    k, members = (3 if wrong == "another" else 2), (0 if wrong == "missing" else 1)
    numbers = [members, element(client, k, 5) * (2 if wrong == "twice" else members)]
    worker.results[5] = (members, numbers)
    ledger = Ledger(segments=1, staleness=1)
    with pytest.raises(AssertionError):
        ledger.record(worker)
        ledger.check_below(6)
