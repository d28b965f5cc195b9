"""What the replay engine alone is to take and to send: random requests in bursts, with what the golden service makes of them."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from iswitch.config import Config
from iswitch.replay_wire import Fate
from iswitch.wire import ADDRESSES

from sim.bench.replay_traffic import ReplayTraffic
from sim.model.control.membership import Source
from sim.model.replay.service import Service

__all__ = ["Burst", "Sent", "Story", "address", "source_of"]


class Sent(NamedTuple):
    """A frame that leaves the engine: to which port and which address (mac, ip and udp in wire order, as one number), and all of its bytes."""

    port: int
    address: int
    frame: bytes


class Burst(NamedTuple):
    """Requests at one time, each a port and a frame, and what is sent because of them."""

    now_us: int
    requests: list[tuple[int, bytes]]
    answers: list[Sent]


def source_of(port: int, frame: bytes) -> Source:
    """Of a request."""
    return Source(port, frame[6:12], int.from_bytes(frame[26:30], "big"), int.from_bytes(frame[34:36], "big"))


def address(source: Source) -> int:
    """`hw.control.tables.Address` as a number."""
    return int.from_bytes(source.mac + source.ip.to_bytes(4, "big") + source.udp_port.to_bytes(2, "big"), "little")


class Story:
    """`service`: the golden one, after all that was told. `bursts`: up to `most` requests at a time; now and then all clients are silent for so
    long that others take their places."""

    def __init__(self, config: Config, seed: int) -> None:
        assert config.replay
        self.service = Service(config.replay)
        self.traffic = ReplayTraffic(config, self.service, seed)
        self.now_us = (1 << 32) - 5_000_000

    def bursts(self, requests: int, *, most: int = 1) -> Iterator[Burst]:
        chance, told = self.traffic.chance, 0
        while told < requests:
            self.now_us = (self.now_us + chance.choice([1, 10, 99, 100, 101, 1000])) % 2**32
            if chance.random() < most / 300:
                self.now_us = (self.now_us + 20_000_000) % 2**32
                self.traffic.clients = [self.traffic.client(k) for k in range(len(self.traffic.clients))]
            burst = Burst(self.now_us, [], [])
            for _, (port, frame) in zip(range(chance.randint(1, most)), self.traffic):
                source = source_of(port, frame)
                sent = self.service.receive(source, frame[ADDRESSES.itemsize:], self.now_us)
                burst.requests.append((port, frame))
                burst.answers.extend(Sent(to.port, address(to), bytes(ADDRESSES.itemsize) + payload) for to, payload in sent)
            told += len(burst.requests)
            yield burst

    @property
    def fates(self) -> Counter[Fate]:
        return Counter({fate: count for fate, count in zip(Fate, self.service.fates) if count})
