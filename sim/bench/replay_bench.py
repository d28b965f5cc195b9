"""A golden switch with a replay service and its clients, a frame at a time."""

from iswitch.config import Config
from sim.bench.replay_client import ReplayClient, Told, told
from sim.frames.client import SWITCH_IP, SWITCH_MAC
from sim.model.switch import Switch

__all__ = ["ReplayBench", "fields"]


class ReplayBench:
    """`ask` sends a request and returns what its sender hears of it; nobody else may hear anything. Time passes only as
    `now_us` says."""

    def __init__(self, config: Config) -> None:
        self.switch = Switch(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        self.now_us = 0

    def send(self, client: ReplayClient, frame: bytes) -> list[tuple[int, bytes]]:
        return self.switch.receive(client.port, frame, self.now_us)

    def ask(self, client: ReplayClient, frame: bytes) -> list[Told]:
        sent = self.send(client, frame)
        assert all(copy[:6] == client.mac and port == client.port for port, copy in sent)
        return [told(copy) for _, copy in sent]

    def one(self, client: ReplayClient, frame: bytes) -> Told:
        """The only answer."""
        (answer,) = self.ask(client, frame)
        return answer

    def client(self, index: int = 0, **known: int) -> ReplayClient:
        """One with a session."""
        client = ReplayClient(index, **known)
        client.opened(self.one(client, client.open()))
        return client

    def fates(self) -> dict[str, int]:
        """Those that some request has had."""
        return {
            name.removeprefix("replay."): count
            for name, count in self.switch.counters().items()
            if name.startswith("replay.") and count
        }


def fields(answer: Told, *names: str) -> tuple[int, ...]:
    """Of an ANSWER's STATUS."""
    assert answer.status is not None
    return tuple(int(answer.status[name]) for name in names)
