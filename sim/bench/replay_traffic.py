"""Random requests of several clients of the replay service: correct, repeated, out of order, and wrong in every
field."""

import random
from collections.abc import Iterator

from iswitch.config import Config, Replay
from iswitch.wire.replay import ADD_ROW, BODY_BYTES, PAYLOAD_BYTES, UNIT_BYTES, Kind
from sim.bench.replay_client import ReplayClient

__all__ = ["NARROW", "SMALL", "ReplayTraffic"]

SMALL = Replay(
    tables=2, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, samples_per_request=256, sample_count_bits=3
)
NARROW = Config(
    ports=2, bus_bits=64, members=2, jobs=2, window=4, mac_entries=64, staleness=0, uplinks=False, replay=SMALL
)
"""A small switch with the replay service `SMALL`."""


class Erring(ReplayClient):
    """A client whose next request has the header fields `wrong`."""

    def __init__(self, index: int, **options: int) -> None:
        super().__init__(index, **options)
        self.wrong: dict[str, int] = {}

    def request(self, kind: int, body: bytes = b"", **fields: int) -> bytes:
        wrong, self.wrong = self.wrong, {}
        return super().request(kind, body, **(fields | wrong))


class ReplayTraffic:
    """Iterates over random requests.

    It knows about each client what a driver knows, the next number and the end of the log, which it reads from the
    golden service of the switch.
    """

    def __init__(self, config: Config, golden, seed: int) -> None:
        assert config.replay
        self.config, self.replay, self.golden, self.chance = config, config.replay, golden, random.Random(seed)
        self.clients = [self.client(k) for k in range(self.replay.sessions + 1)]
        self.said: list[tuple[int, bytes]] = []

    def client(self, k: int) -> Erring:
        return Erring(k, port=self.chance.randrange(self.config.ports), nonce=self.chance.getrandbits(64))

    def priority(self) -> int:
        top = self.replay.priority_bits
        usual = [0, 0, 1, 1 << self.chance.randrange(top), self.chance.getrandbits(top), (1 << top) - 1]
        return self.chance.choice([*usual, self.chance.getrandbits(32)])

    def item(self, table: int) -> int:
        """Return an item's handle, which is mostly not stale."""
        adds = self.golden.tables[table].adds
        return (adds + self.replay.capacity - 1 - self.chance.randrange(int(1.2 * self.replay.capacity) + 2)) % 2**32

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self

    def __next__(self) -> tuple[int, bytes]:
        """Return a port, and a frame that arrives there."""
        if self.said and self.chance.random() < 0.1:
            return self.chance.choice(self.said[-12:])
        client = self.chance.choice(self.clients if self.chance.random() < 0.2 else self.clients[:-1])
        said = client.port, self.request(client)
        self.said.append(said)
        return said

    def request(self, client: Erring) -> bytes:
        chance, replay = self.chance, self.replay
        place = next(
            (k for k, place in enumerate(self.golden.sessions) if place.open and place.nonce == client.nonce), None
        )
        if place is None or chance.random() < 0.01:
            if place is None and chance.random() < 0.1:
                return client.look()
            challenge = self.golden.challenge if chance.random() < 0.8 else chance.choice([0, 1, 2])
            return client.open(seq=chance.randrange(9), challenge=challenge)
        client.session, client.token, client.table = place, client.nonce % 2**32, chance.randrange(replay.tables)
        state, table = self.golden.sessions[place], self.golden.tables[client.table]
        fields = {}
        if chance.random() < 0.1:
            fields["ticket"] = table.ticket + chance.choice([0, 0, 1])
        if chance.random() < 0.03:
            client.wrong = chance.choice(
                [{"token": 1}, {"session": 7}, {"session": 200}, {"table": replay.tables}, {"count": 0}, {"count": 999}]
            )
        seq = (state.next + chance.choice([0] * 30 + [1, -1, -2, -3, 1 << 31])) % 2**32
        if chance.random() < 0.01:
            return client.request(chance.choice([15, 255]), seq=seq)
        kind = chance.choices(
            [
                Kind.CLOSE,
                Kind.WRITE,
                Kind.ADD,
                Kind.SAMPLE,
                Kind.UPDATE,
                Kind.PUBLISH,
                Kind.LIMIT,
                Kind.SKIP,
                Kind.FETCH,
                Kind.LOAD,
                Kind.LOOK,
                Kind.LIST,
                Kind.SHOUT,
                Kind.REBUILD,
            ],
            [0.3, 6, 10, 10, 8, 2, 1, 1, 8, 6, 1, 2, 3, 1 if table.sums.restored == replay.capacity else 12],
        )[0]
        most = PAYLOAD_BYTES // UNIT_BYTES
        units, log_units = chance.choice([1, 2, most, chance.randrange(1, most + 1)]), replay.log_units
        start = (state.written - chance.randrange(-1, log_units + 3)) % 2**32
        if kind == Kind.WRITE:
            at = state.written if chance.random() < 0.9 else start
            oldest = (
                max(0, state.written - chance.randrange(log_units)) if chance.random() < 0.9 else chance.getrandbits(32)
            )
            return client.write(seq, at, chance.randbytes(units * UNIT_BYTES), oldest, **fields)
        if kind == Kind.ADD:
            items = BODY_BYTES // (ADD_ROW.itemsize + replay.record_bytes)
            count = chance.choice([1, 2, items, chance.randrange(1, items + 1)])
            return client.add(
                seq, [(self.priority(), chance.randbytes(replay.record_bytes)) for _ in range(count)], **fields
            )
        if kind == Kind.SAMPLE:
            count = chance.choice(
                [1, 2, 159, 160, 161, replay.samples_per_request, chance.randrange(1, replay.samples_per_request)]
            )
            stride = (1 << 64) // count if count > 1 and chance.random() < 0.5 else 0
            items = max(0, table.adds + chance.choice([0, 0, -5, 1])) if chance.random() < 0.2 else 0
            fields["fragments"] = chance.choice([0xFFFF, 0xFFFF, 1, 2, 3])
            return client.sample(seq, count, chance.getrandbits(128), items=items, stride=stride, **fields)
        if kind == Kind.UPDATE:
            count = chance.choice([1, 2, 177, chance.randrange(1, 178)])
            return client.update(seq, [(self.item(client.table), self.priority()) for _ in range(count)], **fields)
        if kind == Kind.REBUILD:
            slot = chance.choice([0, *[table.sums.restored % replay.capacity] * 4, chance.randrange(replay.capacity)])
            return client.rebuild(
                seq, slot, chance.choice([1, *[replay.capacity - slot] * 4, replay.capacity]), **fields
            )
        if kind == Kind.PUBLISH:
            return client.publish(seq, start, units, chance.getrandbits(32), **fields)
        if kind == Kind.LIMIT:
            ratio = chance.choice([0, 1 << 16, 8 << 16, chance.getrandbits(22)])
            return client.limit(
                seq,
                header=fields,
                size=chance.choice([0, 1, 10]),
                ratio=ratio,
                behind=chance.getrandbits(9),
                ahead=chance.getrandbits(9),
                times=chance.choice([0, 0, 1, 2, 7, 8]),
            )
        if kind == Kind.FETCH:
            count = chance.choice([1, 2, replay.records, chance.randrange(1, replay.records + 1)])
            return client.fetch([self.item(client.table) for _ in range(count)], seq=seq, **fields)
        if kind in (Kind.LOAD, Kind.SHOUT):
            log = client.session if chance.random() < 0.8 else chance.choice([0, 1, 2, 3, 255])
            return client.load(start, units, log=log, kind=kind, seq=seq, **fields)
        if kind == Kind.LIST:
            return client.list(
                chance.randrange(2 * replay.capacity),
                chance.choice([1, 2, 160, chance.randrange(1, 161)]),
                seq=seq,
                **fields,
            )
        return (
            {Kind.CLOSE: client.close, Kind.SKIP: client.skip}[kind](seq, **fields)
            if kind != Kind.LOOK
            else client.look(seq=seq, **fields)
        )
