"""A load from a fixed seed that is to reach every part of the switch, each frame beside the golden model.

`sim.coverage.crosses` counts what it reaches.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from iswitch.config import Config
from iswitch.wire import Format, Mode, PortCounter, Type, port_counter_register
from sim.bench.clients import form_job
from sim.bench.cosimulation import Pair
from sim.bench.delivery import STALLED
from sim.bench.designs import SOAK, TWO_PORTS
from sim.bench.replay_traffic import ReplayTraffic
from sim.bench.soak_network import NetworkSoak
from sim.bench.traffic import Traffic
from sim.bench.tree import TREES, Tree
from sim.coverage.directed import directed
from sim.emulator.counters import read
from sim.emulator.engine import Board
from sim.frames.client import Client, parse
from sim.fuzz.rtl import PatientPair

__all__ = ["ONE_PORT", "OPERATOR_KEY", "SWITCHES", "Part", "parts"]

ONE_PORT = replace(TWO_PORTS, ports=1)
OPERATOR_KEY = 0x6F70
MEMBERS = 3
ROUNDS = 100
"""Of 1,000 cycles, in which an answer leaves a slow port."""
WAITS_US = (0, 40_000_000, 290_000_000, 310_000_000, 3_000_000_000)
"""A bridge forgets after 285 to 302 s; the clock wraps after 4,295 s."""

Part = tuple[str, Callable[[], None]]
"""A part of the load: its name, and a function that runs it."""


def traffic(config: Config, steps: int) -> None:
    """Random traffic of two jobs, with ordinary stations."""
    pair = PatientPair(config, seed=5)
    made = Traffic(config, seed=12, workers=3, jobs=2, exchange=pair.exchange)
    made.form(0)
    made.form(1, mode=Mode.PROPAGATE, format=Format.FP32)
    for us in WAITS_US:
        pair.wait(us)
        made.steps(steps // len(WAITS_US))
    pair.counters_agree()
    pair.close()


def stalled_bursts(config: Config, bursts: int) -> None:
    """Broadcasts of all ports at once, at ports that stall."""
    pair = PatientPair(config, seed=6)
    made = Traffic(config, seed=13, workers=3, jobs=2, exchange=pair.exchange)
    for port in range(config.ports):
        pair.board.stall(port, "rx", 0.3, seed=port + 1)
        pair.board.stall(port, "tx", 0.5, length=3, seed=port + 100)
    made.form(0)
    made.form(1)
    for _ in range(bursts):
        made.steps(5)
        pair.burst([made.hosts.frame(300) for _ in range(4)])
    pair.close()


def replay(config: Config, requests: int) -> None:
    """Random requests to the replay service."""
    pair = PatientPair(config, seed=7)
    assert pair.model.service
    made = ReplayTraffic(config, pair.model.service, 3)
    for _ in range(2):
        for _, (port, frame) in zip(range(requests // 2), made):
            pair.exchange(port, frame)
        pair.wait(20_000_000)  # all sessions have been silent: new clients take their places
        made.clients = [made.client(k) for k in range(len(made.clients))]
    pair.counters_agree()
    pair.close()


def soak(config: Config, rounds: int) -> None:
    """A tree of three switches in a network with faults."""
    made = NetworkSoak(seed=1, config=config)
    made.run(rounds)
    made.finish(rounds=200)


def tree(config: Config, segments: int) -> None:
    """A job of a tree that forms and sums."""
    for name, format in (("chain", Format.WINDOW64), ("two leaves", Format.INT32)):
        made = Tree(TREES[name], config, switch=Pair, operator_key=OPERATOR_KEY)
        made.join(format=format)
        payloads = np.random.default_rng(1).normal(0, 1, (made.world, segments, 16)).astype(np.float32)
        made.reduce(payloads)
        made.agree()
        for pair in made.switches:
            pair.close()


def waiting_results(config: Config) -> None:
    """Two jobs with all their members behind one port, which is so slow that results wait in their slots."""
    pair, numbers = Pair(config, seed=8), np.random.default_rng(3)
    contributions = []
    for job in (0, 1):
        members = [Client.numbered(8 * job + k, port=0, job=job) for k in range(MEMBERS)]
        for settings in ({"world": MEMBERS, "elements": config.elements}, {}, {}):
            for member in members:
                for answer in pair.exchange(0, member.join(**settings)):
                    member.take(answer)
        contributions += [
            member.contribution(member.first_seq + k, numbers.normal(size=config.elements - k).astype("<f4"), behind=k)
            for member in members
            for k in range(config.window)
        ]
    pair.board.stall(0, "tx", STALLED)
    pair.burst([(0, frame) for frame in contributions], waits=True)
    pair.counters_agree()
    pair.close()


def ended_while_results_wait(config: Config) -> None:
    """A job whose results wait at a slow port ends. A host behind that port creates the next one, and gets none of
    them."""
    with Board(config, seed=5) as board:
        members = [Client.numbered(k, port=port) for k, port in enumerate((0, config.ports - 1))]
        form_job(board, members)
        board.stall(0, "tx", 0.99)
        for k in range(config.window):
            for member in members:
                ones = np.ones(config.elements, np.float32)
                board.send(member.port, member.contribution(member.first_seq + k, ones, behind=k))
        for member in members:
            board.send(member.port, member.leave())
        creator, got = Client.numbered(66, port=0, key=123), []
        for _ in range(2):  # the first answer has the challenge for the second Join
            board.send(0, creator.join(world=1, elements=1))
            for _ in range(ROUNDS):
                board.run(1000, now_us=3)
                sent = [frame.data for frame in board.receive(0) if frame.data[:6] == creator.mac]
                got += [creator.take(data).type for data in sent]
                if sent:
                    break
        board.stall(0, "tx", 0.0)
        board.run(now_us=5)
        got += [parse(frame.data).type for frame in board.receive(0) if frame.data[:6] == creator.mac]
        board.receive(config.ports - 1)
        expired, *_ = read(board, port_counter_register(0, PortCounter.TX_EXPIRED_RESULT), now_us=6)
        if got != [Type.ACK, Type.ACK] or not expired:
            raise AssertionError(f"{expired} results of the old job have expired, and the creator got {got}")


def parts(config: Config, *, scale: float = 1.0) -> Iterator[Part]:
    """Yield the parts of the load of one configuration. `scale` is a factor of all lengths."""
    long = lambda count: max(1, round(count * scale))
    yield "directed frames", lambda: directed(config)
    yield "traffic", lambda: traffic(config, long(1500))
    yield "bursts", lambda: stalled_bursts(config, long(60))
    yield "waiting results", lambda: waiting_results(config)
    yield "a job that ends while results wait", lambda: ended_while_results_wait(config)
    if config.replay:
        yield "replay", lambda: replay(config, long(2000))
    if config.uplinks and config.ports >= 4:
        yield "tree", lambda: tree(config, long(12))
        yield "soak", lambda: soak(config, long(300))


SWITCHES = (SOAK, TWO_PORTS, ONE_PORT)
"""Switches of four ports, of two and of one."""
