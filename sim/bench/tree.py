"""Trees of switches with their workers, for tests: golden switches, or compiled ones beside them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from iswitch.config import Config
from iswitch.golden.network import Network
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.wire import (
    ADDRESSES,
    FRAME_BYTES,
    HEADER,
    NO_MEMBER,
    UDP_PORT,
    AckRegister,
    Format,
    JobState,
    Reason,
    ResultFlag,
    Type,
    version_type,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, Reply, udp_frame

__all__ = [
    "BAD",
    "CONFIG",
    "FLAT",
    "OPERATOR_KEY",
    "TREES",
    "Tree",
    "address",
    "facts",
    "frames_as_leaf",
    "spoilt",
    "with_fields",
]

CONFIG = Config(ports=8, members=8, window=2, elements=16, half_width=True)
BAD = {"loss": 0.05, "duplicate": 0.05, "reorder": 0.05}
FLAT = ((-1,), (0,) * 8)
TREES = {
    "two leaves": ((-1, 0, 0), (1, 1, 1, 1, 2, 2, 2, 2)),
    "uneven, a worker at the root": ((-1, 0, 0), (2, 1, 2, 0, 2, 2, 1, 2)),
    "three levels": ((-1, 0, 1, 1), (2, 3, 2, 3, 1, 0, 3, 2)),
    "chain": ((-1, 0, 1), (2,) * 8),
}
"""Parents of the switches and homes of the workers, as in `sim/explore/tree.py`."""
TWO = TREES["two leaves"]
OPERATOR_KEY = 0x6F70657261746F72

Shape = tuple[tuple[int, ...], tuple[int, ...]]


def address(switch: int) -> tuple[bytes, bytes]:
    """Return MAC and IP address of a switch."""
    return SWITCH_MAC[:5] + bytes([switch + 1]), SWITCH_IP[:3] + bytes([switch + 1])


class Tree:
    """Switches, links and workers. Uplinks leave by port 0, to the parent's highest ports; workers share ports 1 and 2.

    `switch` makes one, as `TreeSwitch` does. All have the operator key `operator_key`; only if that is 0, the workers
    may name their ranks, and do. `rates` are the links' faults. `held`: each worker's results by seq.
    `log`: all frames to a worker. `gone`: workers that take no further part.
    """

    def __init__(
        self,
        shape: Shape = TWO,
        config: Config = CONFIG,
        seed: int = 7,
        switch: Callable[..., Any] = TreeSwitch,
        operator_key: int = 0,
        **rates: float,
    ):
        parents, homes = shape
        self._made, self._config, self._operator_key = switch, config, operator_key
        below = [
            sum(1 << r for r, home in enumerate(homes) if self.under(parents, home, k)) for k in range(len(parents))
        ]
        links: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self.switches: list[Any] = []
        self._parents: list[dict[int, Parent]] = []
        for k, parent in enumerate(parents):
            port = config.ports - 1 - [c for c, p in enumerate(parents) if p == parent].index(k)
            self._parents.append({0: Parent(0, *address(parent), below[k])} if k else {})
            self.switches.append(self._new_switch(k, seed=seed + k))
            links += [((k, 0), (parent, port))] if k else []
        self.network = Network(self.switches, links, seed=seed, **rates)
        self.clients = [Client.numbered(rank, port=1 + rank % 2) for rank in range(len(homes))]
        self.homes, self.world = homes, len(homes)
        self.held: list[dict[int, Reply]] = [{} for _ in homes]
        self.log: list[list[Reply]] = [[] for _ in homes]
        self.gone: set[int] = set()
        for rank, client in enumerate(self.clients):
            client.switch_mac, client.switch_ip = address(homes[rank])
            if operator_key:
                client.member = rank
            else:
                client.ranks = 1 << rank
        for end in {(home, client.port) for home, client in zip(homes, self.clients)}:
            self.network.hosts[end] = self.take

    @staticmethod
    def under(parents: Sequence[int], home: int, switch: int) -> bool:
        while home not in (switch, -1):
            home = parents[home]
        return home == switch

    def _new_switch(self, number: int, *, seed: int) -> Any:
        mac, ip = address(number)
        return self._made(
            self._config, mac=mac, ip=ip, seed=seed, operator_key=self._operator_key, parents=self._parents[number]
        )

    def take(self, frame: bytes) -> None:
        (rank,) = [rank for rank, client in enumerate(self.clients) if client.mac == frame[:6]]
        reply = self.clients[rank].take(frame)
        self.log[rank].append(reply)
        if reply.type == Type.RESULT and reply.header["epoch"] == self.clients[rank].epoch:
            seq = int(reply.header["seq"])
            old = self.held[rank].setdefault(seq, reply)
            assert old.numbers.tolist() == reply.numbers.tolist()
            assert facts([old]) == facts([reply])

    def send(self, rank: int, frame: bytes) -> None:
        """Send a worker's frame, and handle all frames that follow from it."""
        self.network.send((self.homes[rank], self.clients[rank].port), frame)

    def running(self, rank: int) -> bool:
        """Return True if the worker has received an answer that the job runs."""
        return any(
            reply.ack is not None and reply.reason == Reason.DONE and reply.ack["state"] == JobState.RUNNING
            for reply in self.log[rank]
        )

    def join(self, **settings: int) -> "Tree":
        """Let all workers join, with retransmissions until the job runs for all."""
        settings = {"world": self.world, "elements": 16} | settings
        for _ in range(200):
            for rank, client in enumerate(self.clients):
                if not self.running(rank):
                    self.send(rank, client.join(**settings))
        assert all(self.running(rank) for rank in range(self.world))
        return self

    def reduce(
        self, payloads: np.ndarray, *, start: int = 0, format: int | None = None, turns: int = 400
    ) -> list[Reply]:
        """Let all workers send all segments (workers, segments, elements), with retransmissions, in changing order.
        Returns results by segment."""
        first, segments = self.clients[0].first_seq + start, payloads.shape[1]
        order = np.random.default_rng(start)
        for _ in range(turns):
            lacking = {
                rank: [s for s in range(segments) if (first + s) % 2**32 not in self.held[rank]]
                for rank in range(self.world)
            }
            busy = [rank for rank in range(self.world) if lacking[rank] and rank not in self.gone]
            if not busy:
                present = next(rank for rank in range(self.world) if rank not in self.gone)
                return [self.held[present][(first + s) % 2**32] for s in range(segments)]
            for rank in order.permutation(busy):
                low = lacking[rank][0]
                for s in lacking[rank]:
                    if s < low + self.clients[rank].window:
                        self.send(
                            rank,
                            self.clients[rank].contribution(
                                first + s, payloads[rank, s], behind=s - low, format=format
                            ),
                        )
        raise AssertionError(f"after {turns} turns {busy} still wait")

    def follow(self, old: int, numbers: np.ndarray) -> None:
        """Continue after a Reset of the epoch `old`: each worker that sends gets a notice, and joins again. Seqs begin
        anew, so no worker holds a result. `numbers`: (workers, elements)."""
        for held in self.held:
            held.clear()
        for _ in range(60):
            for rank, client in enumerate(self.clients):
                if client.epoch == old:
                    self.network.now_us += 1000
                    self.send(rank, client.contribution(client.first_seq + 6, numbers[rank]))
                    self.network.now_us += 1000
                    self.send(rank, client.join())
        assert {client.epoch for client in self.clients} == {old + 1 & 0xFFFF}

    def restart(self, number: int) -> Any:
        """Put a switch without memory in the place of one. Return the old one."""
        old = self.switches[number]
        self.switches[number] = self._new_switch(number, seed=4711)
        return old

    def come_back(self, old: int, turns: int = 40) -> int:
        """Let all workers go on and join, until the tree runs in one other epoch than `old`. Return that epoch."""
        one = np.ones(16, np.float32)
        present = [rank for rank in range(self.world) if rank not in self.gone]
        for _ in range(turns):
            for rank in present:
                self.network.now_us += 100_000
                client = self.clients[rank]
                if client.epoch == old or client.epoch != self.switches[0].jobs[0].epoch:
                    self.send(rank, client.contribution(client.first_seq + len(self.held[rank]), one))
                epoch = client.epoch
                self.send(rank, client.join())
                if client.epoch != epoch:
                    self.held[rank].clear()
            jobs = [switch.jobs[0] for switch in self.switches]
            epochs = {job.epoch for job in jobs} | {self.clients[rank].epoch for rank in present}
            if epochs == {jobs[0].epoch} != {old} and all(job.state == JobState.RUNNING for job in jobs):
                for held in self.held:
                    held.clear()
                return int(jobs[0].epoch)
        raise AssertionError(f"after {turns} turns the epochs are {sorted(epochs)}")

    def told_renewed(self, ranks: Sequence[int]) -> list[int]:
        """Return what the last granted Joins of workers said: 1 if the job has begun anew."""
        granted = [
            [reply for reply in self.log[rank] if reply.ack is not None and reply.reason == Reason.DONE][-1]
            for rank in ranks
        ]
        return [int(reply.ack["registers"][AckRegister.RENEWED]) for reply in granted if reply.ack is not None]

    def agree(self) -> None:
        """Check that workers with a result have the same one."""
        for seq in set().union(*self.held):
            first, *others = facts([held[seq] for held in self.held if seq in held])
            assert others == [first] * len(others)


def frames_as_leaf(tree: Tree, rank: int) -> Iterator[bytes]:
    """Yield the frames with which a worker below a leaf can try to take the place of the leaf at the root, or to act
    as the leaf there.

    The worker's Join created the job at the leaf, so it knows the leaf's nonce and token. It learns the root's present
    challenge, and does not know the operator key. It names the leaf's ranks, its own, or none; with the leaf's nonce or
    with another one.
    """
    root = tree.switches[0]
    leaf = next(entry for entry in root.jobs[0].entries if entry.ranks >> rank & 1)
    attacker = Client.numbered(rank)
    attacker.switch_mac, attacker.switch_ip = address(0)
    attacker.token, attacker.settings = leaf.token, tree.clients[rank].settings
    lowest = (leaf.ranks & -leaf.ranks).bit_length() - 1
    forms = root.jobs[0].state == JobState.FORMING  # then anyone may have a free rank
    for ranks in (leaf.ranks, 1 << rank, 0):
        for nonce in (leaf.nonce, leaf.nonce + 1):
            for member in (lowest,) if forms else (lowest, NO_MEMBER):
                attacker.ranks, attacker.challenge = ranks, root.jobs[0].challenge
                yield attacker.join(nonce=nonce, member=member)
    attacker.member, attacker.epoch = lowest, root.jobs[0].epoch
    yield from (attacker.leave(), attacker.reset(), attacker.set_h(tree.world), attacker.fbcast(root.jobs[0].first_seq))
    uplink = bytes(8 * 16) + np.array([leaf.ranks, 0, 0], "<u4").tobytes()
    yield attacker.frame(Type.UPLINK, uplink, seq=root.jobs[0].first_seq, format_flags=Format.FIXED64)


def facts(replies: Sequence[Reply]) -> list[tuple[Any, ...]]:
    """Return the fields of results that must be equal at all workers."""
    return [
        (
            reply.numbers.tolist(),
            int(reply.header["members"]),
            int(reply.header["tainted"]),
            reply.flags & ~ResultFlag.RESENT,
            int(reply.header["member"]),
        )
        for reply in replies
    ]


def with_fields(frame: bytes, **fields: int) -> bytes:
    """Return an iswitch frame with other header fields, and correct checksums."""
    header = np.frombuffer(frame, HEADER, 1, ADDRESSES.itemsize).copy()
    for name, value in fields.items():
        header[name] = value
    return rebuilt(frame, header.tobytes() + frame[FRAME_BYTES:])


def rebuilt(frame: bytes, payload: bytes, ip: bytes | None = None) -> bytes:
    return udp_frame(
        eth_dst=frame[:6],
        eth_src=frame[6:12],
        ip_src=ip or frame[26:30],
        ip_dst=frame[30:34],
        udp_src=int.from_bytes(frame[34:36], "big"),
        udp_dst=UDP_PORT,
        payload=payload,
    )


def spoilt(frame: bytes, rng: np.random.Generator) -> bytes:
    """Return an iswitch frame with one or two fields changed, or its payload truncated, and correct checksums."""
    header = np.frombuffer(frame, HEADER, 1, ADDRESSES.itemsize).copy()
    body = frame[FRAME_BYTES:]
    for _ in range(int(rng.integers(1, 3))):
        name = str(rng.choice([*HEADER.names, "type", "low", "cut", "body"]))
        if name == "type":
            header["version_type"] = version_type(int(rng.choice(list(Type))))
        elif name == "low":
            header[str(rng.choice(["seq", "behind", "epoch", "count"]))] += int(rng.choice([-4, -1, 1, 4])) % 2**16
        elif name == "cut":
            body = body[: int(rng.integers(0, len(body) + 1))]
        elif name == "body" and body:
            at = int(rng.integers(0, len(body)))
            body = body[:at] + bytes([int(rng.integers(0, 4))]) + body[at + 1 :]
        elif name in HEADER.names:
            header[name] = (
                int(rng.integers(0, 2**63)) >> int(rng.integers(0, 60)) & 2 ** (8 * HEADER[name].itemsize) - 1
            )
    return rebuilt(frame, header.tobytes() + body, None if rng.random() < 0.97 else bytes(4))
