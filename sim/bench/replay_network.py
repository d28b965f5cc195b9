"""The golden switch in virtual time, and transports to it over a network that delays, loses, doubles and overtakes.

No thread sleeps and none runs in the background: while a client waits in `receive`, time advances from one event to the
next. So tests are as fast as they can be computed, and the same for the same seed.
"""

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from iswitch.config import Config
from iswitch.driver.transport import Buffer, Keepalive
from iswitch.golden.switch import Switch
from iswitch.wire import ADDRESSES, UDP_PORT
from sim.emulator.endpoint import burst_of
from sim.frames.client import SWITCH_IP, SWITCH_MAC, udp_frame

__all__ = ["Network", "NodeTransport"]

DELAY_S = 0.00005
_BURST_SEGMENTS = 64


class Network:
    """Time, the switch, and frames on their way to it and back. loss, doubled, late: chances for each frame in each
    direction; what is late comes up to ten delays later, and is overtaken. `lose` may say of a payload to the switch
    (True) or from it (False) that it is lost."""

    def __init__(
        self, config: Config, *, loss: float = 0.0, doubled: float = 0.0, late: float = 0.0, seed: int = 1
    ) -> None:
        self.loss, self.doubled, self.late = loss, doubled, late
        self.switch = Switch(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed)
        self.now = 1.0
        self.carried: Counter[str] = Counter()
        self.lose: Callable[[bytes, bool], bool] = lambda payload, there: False
        self.chance = random.Random(seed)
        self._nodes: dict[int, NodeTransport] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def transport(self) -> "NodeTransport":
        """Of a new host."""
        index = len(self._nodes)
        made = self._nodes[index] = NodeTransport(self, index)
        return made

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Calls something when it is that time."""
        heapq.heappush(self._events, (when, next(self._order), what))

    def every(self, seconds: float, what: Callable[[], None]) -> None:
        """Calls something again and again, from now on."""

        def again() -> None:
            what()
            self.at(self.now + seconds, again)

        self.at(self.now + seconds, again)

    def carry(self, payload: bytes, what: Callable[[], None], there: bool) -> None:
        self.carried["to" if there else "from"] += 1
        if self.chance.random() < self.loss or self.lose(payload, there):
            return
        for _ in range(1 + (self.chance.random() < self.doubled)):
            late = 10 * self.chance.random() * (self.chance.random() < self.late)
            self.at(self.now + DELAY_S * (1 + late), what)

    def deliver(self, index: int, payload: bytes) -> None:
        port = index % self.switch.config.ports
        frame = udp_frame(
            eth_dst=SWITCH_MAC,
            eth_src=bytes([2, 0, 0, 0, 2, index]),
            ip_src=bytes([10, 0, 3, index]),
            ip_dst=SWITCH_IP,
            udp_src=50000 + index,
            udp_dst=UDP_PORT,
            payload=payload,
        )
        for _, reply in self.switch.receive(port, frame, int(self.now * 1e6) % 2**32):
            node = self._nodes[int.from_bytes(reply[36:38]) - 50000]
            answer = reply[ADDRESSES.itemsize : ADDRESSES.itemsize + int.from_bytes(reply[38:40]) - 8]
            self.carry(answer, lambda node=node, answer=answer: node.inbox.append(answer), False)  # type: ignore[misc]

    def run(self, until: float, stop: Callable[[], object] = lambda: False) -> None:
        """Lets time pass until then, or until something holds."""
        while not stop():
            if not self._events or self._events[0][0] > until:
                self.now = max(self.now, until)
                return
            when, _, what = heapq.heappop(self._events)
            self.now = max(self.now, when)
            what()


class NodeTransport:
    """A host's `iswitch.driver.transport.Transport`."""

    def __init__(self, network: Network, index: int) -> None:
        self.network, self.index = network, index
        self.inbox: deque[bytes] = deque()
        self.chance = random.Random(index + 1)
        self.closed = False

    def burst_segments(self, segment_bytes: int) -> int:
        return _BURST_SEGMENTS

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        view = memoryview(burst).cast("B")
        for at in range(0, len(view), segment_bytes):
            payload = bytes(view[at : at + segment_bytes])
            self.network.carry(payload, partial(self.network.deliver, self.index, payload), True)

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if not self.inbox:
            self.network.run(self.network.now + timeout_s, lambda: self.inbox)
        return burst_of(self.inbox, into)

    def now(self) -> float:
        return self.network.now

    def sleep(self, seconds: float) -> None:
        self.network.run(self.network.now + seconds)

    def start_keepalive(self, serve: Callable[[], float]) -> Keepalive:
        raise NotImplementedError("no program computes in the background in virtual time")

    def randbits(self, bits: int) -> int:
        return self.chance.getrandbits(bits)

    def close(self) -> None:
        self.closed = True
