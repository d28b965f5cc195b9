"""Scenarios for the replay engine alone: bursts of requests, with the frames that the golden service sends."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from iswitch.config import Config
from iswitch.golden.interface.message import Source
from iswitch.golden.replay.service import Service
from iswitch.wire import ADDRESSES
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.bench.replay_client import ReplayClient
from sim.bench.replay_traffic import ReplayTraffic

__all__ = ["Burst", "Sent", "Scenario", "address", "source_of"]


class Sent(NamedTuple):
    """A frame that leaves the engine: its port, its address (mac, ip and udp in wire order, as one number), its
    bytes."""

    port: int
    address: int
    frame: bytes


class Burst(NamedTuple):
    """Requests of one moment, each a port and a frame, and the frames that they cause."""

    now_us: int
    requests: list[tuple[int, bytes]]
    answers: list[Sent]


def source_of(port: int, frame: bytes) -> Source:
    """Return the source of a request."""
    return Source(port, frame[6:12], int.from_bytes(frame[26:30], "big"), int.from_bytes(frame[34:36], "big"))


def address(source: Source) -> int:
    """Return a source's `hw.interface.address.Address` as a number."""
    return int.from_bytes(source.mac + source.ip.to_bytes(4, "big") + source.udp_port.to_bytes(2, "big"), "little")


class Scenario:
    """A source of bursts. `service` is the golden service after all requests so far."""

    def __init__(self, config: Config, seed: int = 1) -> None:
        assert config.replay
        self.config, self.service, self.chance = config, Service(config.replay), random.Random(seed)
        self.now_us = (1 << 32) - 5_000_000

    def burst(self, requests: Iterable[tuple[int, bytes]]) -> Burst:
        """Return a burst of requests. Each request is generated when the requests before it have been executed."""
        burst = Burst(self.now_us, [], [])
        for port, frame in requests:
            source = source_of(port, frame)
            sent = self.service.receive(source, frame[ADDRESSES.itemsize :], self.now_us)
            burst.requests.append((port, frame))
            burst.answers.extend(
                Sent(to.port, address(to), bytes(ADDRESSES.itemsize) + payload) for to, payload in sent
            )
        return burst

    def random(self, requests: int, *, most: int = 1) -> Iterator[Burst]:
        """Yield random bursts of up to `most` requests. Now and then all clients stay silent for so long that others
        take their sessions."""
        traffic, chance, generated = (
            ReplayTraffic(self.config, self.service, self.chance.getrandbits(32)),
            self.chance,
            0,
        )
        while generated < requests:
            self.now_us = (self.now_us + chance.choice([1, 10, 99, 100, 101, 1000])) % 2**32
            if chance.random() < most / 300:
                self.now_us = (self.now_us + 20_000_000) % 2**32
                traffic.clients = [traffic.client(k) for k in range(len(traffic.clients))]
            burst = self.burst(itertools.islice(traffic, chance.randint(1, most)))
            generated += len(burst.requests)
            yield burst

    def scripted(self) -> Iterator[Burst]:
        """Yield bursts with each kind and each outcome, in an order in which it matters, for a service as small as
        `SMALL`."""
        ann, bob, cas, dan, eve = (
            ReplayClient(k, port=k % self.config.ports, nonce=(k + 1) * 0x1_0001_0000_0001) for k in range(5)
        )
        places, chance = self.service.sessions, self.chance
        next = lambda client, more=0: (places[client.session].next + more) % 2**32
        bytes_of = lambda units: chance.randbytes(64 * units)

        def at_once(*frames: tuple[ReplayClient, bytes], later: int = 1000) -> Burst:
            self.now_us = (self.now_us + later) % 2**32
            return self.burst((client.port, frame) for client, frame in frames)

        def opened(client: ReplayClient) -> tuple[ReplayClient, bytes]:
            return client, client.open(challenge=self.service.challenge)

        for k, client in enumerate((ann, bob, cas)):
            client.session, client.token = k, client.nonce % 2**32
            yield at_once(opened(client))
        for count in (1, 19, 19, 19, 19):
            items = [
                (chance.choice([0, 5, 1 << 26, (1 << 27) - 1, 1 << 27, 2**32 - 1]), bytes_of(1)) for _ in range(count)
            ]
            yield at_once((ann, ann.add(next(ann), items)))
        yield at_once((cas, cas.add(next(cas), [(9, bytes_of(1)), (0, bytes_of(1))], table=1)))
        yield at_once((ann, ann.fetch([77, 76, 64, 140, 78, 77 + 63, 0, 100, 139])))
        yield at_once((cas, cas.list(0, 160)), (cas, cas.list(60, 9, table=1)))
        yield at_once((bob, bob.update(next(bob), [(item, item) for item in range(60, 160)])))
        for oldest, units in ((0, 22), (0, 22), (0, 22), (30, 22), (31, 1)):
            yield at_once((bob, bob.write(next(bob), places[bob.session].written, bytes_of(units), oldest)))
        yield at_once(
            (bob, bob.publish(next(bob), 40, 20, 7)), (ann, ann.publish(next(ann), 0, 1, 8)), (cas, cas.look())
        )
        yield at_once((ann, ann.load(50, 17, log=1)), (cas, cas.load(50, 18, log=1)), (ann, ann.load(0, 1, log=3)))
        yield at_once(
            (ann, ann.write(next(ann), 0, bytes_of(3), 0)), (bob, bob.shout(31, 22)), (bob, bob.load(0, 3, log=0))
        )
        yield at_once((cas, cas.shout(0, 1)), (bob, bob.load(31, 1, log=0, kind=Kind.SHOUT)))
        # A list is not overwritten while it is being sent.
        yield at_once((ann, ann.sample(next(ann), 256, 1)))
        yield at_once((ann, ann.sample(next(ann), 161, 2, stride=2**64 // 161)))
        yield at_once((ann, ann.sample(next(ann, -2), 256, 1)), (ann, ann.sample(next(ann), 256, 3, fragments=2)))
        # Items that are sampled too often, and items without a limit.
        for times in (2, 7, 0, 8):
            yield at_once((bob, bob.limit(next(bob), times=times)))
            yield at_once((bob, bob.update(next(bob), [(item, 1000 + item) for item in range(77, 141)])))
            for draws in (16, 64, 256, 256, 2):
                yield at_once((bob, bob.sample(next(bob), draws, chance.getrandbits(128))))
            yield at_once((bob, bob.list(0, 64)))
        yield at_once(
            (bob, bob.add(next(bob), [(3, bytes_of(1))] * 5)),
            (bob, bob.limit(next(bob), times=1)),
            (bob, bob.sample(next(bob), 16, 5)),
        )
        # A sum tree that is rebuilt: samples and lists wait, items are added and updated on both sides of its end.
        for slot, count in ((3, 1), (0, 40), (41, 1), (40, 25), (0, 33), (33, 1), (34, 30), (64, 1)):
            yield at_once((bob, bob.rebuild(next(bob), slot, count)), (cas, cas.list(0, 64)))
            yield at_once((bob, bob.sample(next(bob), 16, slot)), (cas, cas.sample(next(cas), 3, slot, table=1)))
            latest = self.service.tables[0].adds + 63
            yield at_once((bob, bob.update(next(bob), [(latest - k, 1000 + 7 * k) for k in range(-1, 70)])))
            yield at_once((ann, ann.add(next(ann), [(99, bytes_of(1))] * 3)))
        # What has to wait for a ratio, a ticket, items.
        limits = {"size": 2, "ratio": 2 << 16, "behind": 3, "ahead": 5}
        yield at_once((cas, cas.limit(next(cas), header={"table": 1}, **limits)))
        for count in (1, 2, 1):
            yield at_once((cas, cas.add(next(cas), [(1 << 20, bytes_of(1))] * count, table=1)))
        for draws in (5, 3, 4, 2, 1):
            yield at_once(
                (
                    cas,
                    cas.sample(
                        next(cas), draws, draws, table=1, ticket=chance.choice([0, self.service.tables[1].ticket])
                    ),
                )
            )
        yield at_once(
            (cas, cas.add(next(cas), [(1 << 20, bytes_of(1))], table=1, ticket=1)),
            (cas, cas.sample(next(cas), 1, 1, table=1, items=99)),
        )
        yield at_once(
            (cas, cas.add(next(cas), [(1, bytes_of(1))], table=1)),
            (cas, cas.limit(next(cas, 1), header={"table": 1}, **limits)),
            (cas, cas.sample(next(cas, 2), 3, 1, table=1)),
        )
        # Numbers of requests, unknown clients, sessions that change hands.
        for client in (ann, cas):
            yield at_once(*((client, client.skip(next(client, more))) for more in (1, 0, -1, -2, -3)))
        for later in (1000, 99, 1, 1, 98, 1):
            yield at_once((ann, ann.look(token=77)), later=later)
        for wrong in ({"kind": 15}, {"kind": 0x90 + Kind.LOOK}, {"table": 2}, {"count": 1}):
            yield at_once((ann, ann.request(**({"kind": Kind.LOOK} | wrong))))
        yield at_once(opened(dan), later=200)
        yield at_once((cas, cas.close(next(cas))), (cas, cas.look()))
        dan.session, dan.token = 2, dan.nonce % 2**32
        yield at_once((dan, dan.open(challenge=5)), (dan, dan.look(token=77)))
        yield at_once(opened(dan), (dan, dan.skip(0)))
        yield at_once((dan, dan.skip(next(dan, -1))), (dan, dan.skip(next(dan))))
        yield at_once((dan, dan.skip(next(dan, -1))), (dan, dan.skip(next(dan, -2))))
        yield at_once((ann, ann.look()), later=9_999_000)
        yield at_once((eve, eve.open(challenge=5)), later=2000)
        yield at_once(opened(eve))
        eve.nonce, nonce = 5 << 32, eve.nonce
        yield at_once(opened(eve))
        eve.nonce = nonce
        eve.session, eve.token = 1, eve.nonce % 2**32
        yield at_once((eve, eve.skip(next(eve))), (eve, eve.load(40, 20, log=1)), (ann, ann.look()))
        ann.port, ann.udp_port = (ann.port + 1) % self.config.ports, 7
        yield at_once((ann, ann.open(challenge=5)))
        yield at_once(opened(ann), (ann, ann.look()))
        start = places[eve.session].oldest
        yield at_once((eve, eve.shout(start, 1)), (eve, eve.look()))

    @property
    def outcomes(self) -> Counter[ReplayOutcome]:
        return Counter({outcome: count for outcome, count in zip(ReplayOutcome, self.service.outcomes) if count})
