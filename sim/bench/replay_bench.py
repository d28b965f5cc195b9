"""A golden switch with a replay service, and clients that send one frame at a time."""

from iswitch.config import Config
from iswitch.golden.switch import Switch
from sim.bench.replay_client import ParsedFrame, ReplayClient, parse_frame
from sim.frames.client import SWITCH_IP, SWITCH_MAC

__all__ = ["ReplayBench", "fields"]


class ReplayBench:
    """A switch and its clients. `ask` sends a request and returns the frames that its sender receives; other clients
    must receive nothing. `now_us` is the time, which only the caller changes."""

    def __init__(self, config: Config) -> None:
        self.switch = Switch(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        self.now_us = 0

    def send(self, client: ReplayClient, frame: bytes) -> list[tuple[int, bytes]]:
        return self.switch.receive(client.port, frame, self.now_us)

    def ask(self, client: ReplayClient, frame: bytes) -> list[ParsedFrame]:
        sent = self.send(client, frame)
        assert all(copy[:6] == client.mac and port == client.port for port, copy in sent)
        return [parse_frame(copy) for _, copy in sent]

    def one(self, client: ReplayClient, frame: bytes) -> ParsedFrame:
        """Send a request and return its only answer."""
        (answer,) = self.ask(client, frame)
        return answer

    def client(self, index: int = 0, **known: int) -> ReplayClient:
        """Return a client with a session."""
        client = ReplayClient(index, **known)
        client.opened(self.one(client, self.open(client)))
        return client

    def open(self, client: ReplayClient, **fields: int) -> bytes:
        """Return an OPEN with the service's challenge."""
        assert self.switch.service
        return client.open(challenge=self.switch.service.challenge, **fields)

    def outcomes(self) -> dict[str, int]:
        """Return the outcomes that requests have had, with their counts."""
        return {
            name.removeprefix("replay."): count
            for name, count in self.switch.counters().items()
            if name.startswith("replay.") and count
        }


def fields(answer: ParsedFrame, *names: str) -> tuple[int, ...]:
    """Return fields of an ANSWER's STATUS."""
    assert answer.status is not None
    return tuple(int(answer.status[name]) for name in names)
