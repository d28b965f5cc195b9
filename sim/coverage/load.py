"""A load from a fixed seed that is to reach every part of the switch, each frame beside the golden model.

`sim.coverage.crosses` counts what it reaches.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from iswitch.config import Config
from iswitch.wire import Format, Mode
from sim.bench.cosimulation import Pair
from sim.bench.designs import SOAK, TWO_PORTS
from sim.bench.replay_traffic import ReplayTraffic
from sim.bench.soak_network import NetworkSoak
from sim.bench.traffic import Traffic
from sim.bench.tree import TREES, Tree
from sim.coverage.directed import directed
from sim.fuzz.rtl import PatientPair

__all__ = ["ONE_PORT", "OPERATOR_KEY", "SWITCHES", "Part", "parts"]

ONE_PORT = replace(TWO_PORTS, ports=1)
OPERATOR_KEY = 0x6F70
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


def parts(config: Config, *, scale: float = 1.0) -> Iterator[Part]:
    """Yield the parts of the load of one configuration. `scale` is a factor of all lengths."""
    long = lambda count: max(1, round(count * scale))
    yield "directed frames", lambda: directed(config)
    yield "traffic", lambda: traffic(config, long(1500))
    yield "bursts", lambda: stalled_bursts(config, long(60))
    if config.replay:
        yield "replay", lambda: replay(config, long(2000))
    if config.uplinks and config.ports >= 4:
        yield "tree", lambda: tree(config, long(12))
        yield "soak", lambda: soak(config, long(300))


SWITCHES = (SOAK, TWO_PORTS, ONE_PORT)
"""Switches of four ports, of two and of one."""
