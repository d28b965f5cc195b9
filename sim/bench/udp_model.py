"""A software switch behind UDP sockets on loopback, one for each of its ports, with a faulty network between.

A datagram to port p's socket becomes the frame that a NIC would have sent into port p; each UDP client is a worker with
addresses of its own. For tests of the driver, which may read the state of the switch.
"""

import random
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from iswitch import Worker
from iswitch.config import Config
from iswitch.control.job_worker import JobWorker
from iswitch.golden.tree_switch import TreeSwitch
from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import ADDRESSES, UDP_PORT
from sim.frames.client import SWITCH_IP, SWITCH_MAC, udp_frame

__all__ = ["Faults", "UdpModel", "kill", "together"]

_BURST_BYTES = 1 << 16
_GRO = (17, 104)


@dataclass
class Faults:
    """Probabilities, 0 to 1, that a datagram is lost, duplicated, or held back until one to eight others have passed
    it; in both directions."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0


class UdpModel:
    """`with UdpModel(config) as model:` serves at `model.address(port)` from a thread of its own. `model.faults` may be
    replaced, and `model.deaf` set, at any time; `model.switch` may be read while `model.lock` is held."""

    def __init__(self, config: Config | None = None, *, seed: int = 1, faults: Faults | None = None) -> None:
        self.config = config or Config()
        self.switch = SoftwareSwitch(self.config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed)
        self.faults, self.deaf = faults or Faults(), False
        self.lock = threading.Condition(threading.Lock())  # is notified after every frame
        self._chance = random.Random(seed)
        self._held: list[tuple[int, int, bytes, tuple[str, int]]] = []  # (datagrams yet to pass, port, payload, peer)
        self._clients: dict[tuple[int, int], tuple[str, int]] = {}  # (switch port, UDP port) -> socket address
        self._sockets = [self._socket() for _ in range(self.config.ports)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="udp-model", daemon=True)

    @staticmethod
    def _socket() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        made.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
        made.bind(("127.0.0.1", 0))
        return made

    def address(self, port: int = 0) -> str:
        """Return the address to which a driver at `port` connects."""
        return f"127.0.0.1:{self._sockets[port].getsockname()[1]}"

    def until(self, holds: Callable[[TreeSwitch], Any], seconds: float = 30.0) -> None:
        """Wait until a condition of the switch holds. Raises AssertionError after so many seconds."""
        with self.lock:
            assert self.lock.wait_for(lambda: holds(self.switch), seconds), f"not within {seconds:g} s"

    def __enter__(self) -> "UdpModel":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for each in self._sockets:
            each.close()

    def _serve(self) -> None:
        ports = {each.fileno(): port for port, each in enumerate(self._sockets)}
        poll = select.poll()
        for descriptor in ports:
            poll.register(descriptor, select.POLLIN)
        while not self._stop.is_set():
            for descriptor, _ in poll.poll(1 if self._held else 20):
                port = ports[descriptor]
                payload, peer = self._sockets[port].recvfrom(_BURST_BYTES)
                if not self.deaf:
                    self._clients[port, peer[1]] = peer
                    for arrived in self._pass(port, payload, peer):
                        self._deliver(*arrived)
            self._release()

    def _pass(self, port: int, payload: bytes, peer: tuple[str, int]) -> list[tuple[int, bytes, tuple[str, int]]]:
        """Return the datagrams that leave the faulty network after this one enters."""
        if self._chance.random() < self.faults.loss:
            return []
        out = [(port, payload, peer)] * (1 + (self._chance.random() < self.faults.duplication))
        if self._chance.random() < self.faults.reordering:
            self._held.append((self._chance.randint(1, 8), *out.pop()))
        return out

    def _release(self) -> None:
        """Return held datagrams that enough others have passed. A network holds none forever, so each round counts."""
        waiting = [(left - 1, *rest) for left, *rest in self._held]
        self._held = [held for held in waiting if held[0] > 0]
        for left, *rest in waiting:
            if left <= 0:
                self._deliver(*rest)

    def _deliver(self, port: int, payload: bytes, peer: tuple[str, int]) -> None:
        udp_port = peer[1]
        frame = udp_frame(
            eth_dst=SWITCH_MAC,
            eth_src=bytes([2, 0, 0, port, *udp_port.to_bytes(2)]),
            ip_src=bytes([10, 0, 1, port]),
            ip_dst=SWITCH_IP,
            udp_src=udp_port,
            udp_dst=UDP_PORT,
            payload=payload,
        )
        with self.lock:
            sent = self.switch.receive(port, frame, time.monotonic_ns() // 1000 % 2**32)
            self.lock.notify_all()
        for egress, reply in sent:
            to = int.from_bytes(reply[36:38])
            size = int.from_bytes(reply[38:40]) - 8
            answer = reply[ADDRESSES.itemsize : ADDRESSES.itemsize + size]
            if (client := self._clients.get((egress, to))) is None:
                continue
            for _ in range(1 + (self._chance.random() < self.faults.duplication)):
                if self._chance.random() >= self.faults.loss:
                    self._sockets[egress].sendto(answer, client)


def kill(worker: JobWorker) -> None:
    """Do what SIGKILL does: no further keepalives, and no Leave."""
    worker._keepalive.stop()
    worker._transport.close()
    worker._finalizer.detach()


def together(model: UdpModel, world: int, body: Callable[[Worker], Any], **options: Any) -> list[Any]:
    """Run `body` for `world` workers in threads, rank r at port r. Returns its results by rank, or raises the first
    exception of any. `options` go to every Worker."""

    def run(rank: int) -> Any:
        with Worker(model.address(rank % model.config.ports), world=world, rank=rank, **options) as worker:
            return body(worker)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(run, range(world)))
