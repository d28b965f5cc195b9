"""The Join handshake in small trees under every order of frames. The switches are golden ones, the messages frames.

The network remembers everything: any frame ever sent may arrive now, again and again, or never. One worker may reset
the running job at the root, which a leaf learns by a NOTICE, while answers of the earlier epoch remain in the network.

Checked at each step: a worker that receives *running* receives the epoch and first seq of the root, where all
ranks have joined. No running switch returns to an earlier epoch.

Checked in each state: if everything in flight is lost, fresh Joins of the workers alone make the job run everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.wire import ACK, FRAME_BYTES, NO_MEMBER, UDP_PORT, AckRegister, Action, Format, JobState, Reason, Type
from sim.explore.search import Event, Explorer, Scenario, Violation
from sim.model.decide.job import Job
from sim.model.egress import compose
from sim.model.interface.message import Source, SwitchAddress
from sim.model.interface.tuples import replace_at
from sim.model.tree_switch import Parent, ParentMembership, TreeSwitch

__all__ = ["TreeJoinExplorer", "TreeJoinScenario", "TreeJoinState"]

CONFIG = Config(members=4, window=1, elements=8, ports=8)
SWITCH_MAC, WORKER_MAC = 2, 4
"""First byte of the MAC addresses of switches and of workers; the second is the number, plus 1."""


@dataclass(frozen=True)
class TreeJoinScenario(Scenario):
    """One job that forms in a tree.

    Parameters
    ----------
    parents : tuple of int
        The switch above each switch. Switch 0 is the root, with -1.
    homes : tuple of int
        The switch of each worker.
    resets : bool
        Whether worker 0, at the root, may reset the job once.
    states_ranks : bool
        Whether workers state their ranks in `members`; otherwise they request them as indices, as if there was no tree.
    switch : type
        The golden switch; a subclass makes a mutant.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    resets: bool = False
    states_ranks: bool = True
    switch: type[TreeSwitch] = TreeSwitch


class SwitchMemory(NamedTuple):
    """What a switch remembers."""

    job: Job
    above: ParentMembership | None
    random: int


class Knowledge(NamedTuple):
    """What a worker has recorded. `running`: (epoch, first seq), once received."""

    member: int = NO_MEMBER
    challenge: int = 0
    running: tuple[int, int] | None = None


class SendsJoin(NamedTuple):
    """A worker sends a Join with what it knows."""

    rank: int


class SendsNotice(NamedTuple):
    """The root answers an uplink of the epoch before the reset with a NOTICE to a leaf."""

    switch: int


class Resets(NamedTuple):
    """Worker 0 resets the job at the root."""


class FrameArrives(NamedTuple):
    """A frame reaches the station that it is addressed to."""

    frame: bytes

    def __repr__(self) -> str:
        to = "switch" if self.is_to_switch else "worker"
        header = self.frame[FRAME_BYTES - 22 :]
        kind = Type(header[0] & 0xF).name
        return f"{kind} to {to} {self.number}, epoch {int.from_bytes(header[2:4], 'little')}: {self.frame[42:].hex()}"

    @property
    def is_to_switch(self) -> bool:
        return self.frame[0] == SWITCH_MAC

    @property
    def number(self) -> int:
        """The receiver's number among switches, or workers."""
        return self.frame[1] - 1


class TreeJoinState(NamedTuple):
    """What the switches remember, what the workers know, and every frame ever sent."""

    switches: tuple[SwitchMemory, ...]
    workers: tuple[Knowledge, ...]
    sent: frozenset[bytes]
    reset: bool


class TreeJoinExplorer(Explorer[TreeJoinState]):
    """Search of one `TreeJoinScenario`."""

    def __init__(self, scenario: TreeJoinScenario) -> None:
        self.scenario, self.parents, self.homes = scenario, scenario.parents, scenario.homes
        below = [0] * len(self.parents)
        for rank, home in enumerate(self.homes):
            while home != -1:
                below[home] |= 1 << rank
                home = self.parents[home]
        self.switches = [
            scenario.switch(
                CONFIG,
                mac=bytes([SWITCH_MAC, k + 1] * 3),
                ip=bytes([10, 0, 0, k + 1]),
                seed=k + 1,
                parents=(
                    {0: Parent(0, bytes([SWITCH_MAC, parent + 1] * 3), bytes([10, 0, 0, parent + 1]), below[k])}
                    if k
                    else {}
                ),
            )
            for k, parent in enumerate(self.parents)
        ]
        self._answers: dict[tuple[int, SwitchMemory, bytes], tuple[SwitchMemory, list[bytes]]] = {}

    def start(self) -> TreeJoinState:
        switches = tuple(SwitchMemory(switch.jobs[0], None, switch.random) for switch in self.switches)
        return TreeJoinState(switches, (Knowledge(),) * len(self.homes), frozenset(), False)

    # What may happen

    def events(self, state: TreeJoinState) -> Iterator[Event]:
        for rank in range(len(self.homes)):
            if self._join(state, rank) not in state.sent:
                yield SendsJoin(rank)
        for k, memory in enumerate(state.switches):
            uplinks = state.reset and self.parents[k] == 0 and memory.above and memory.above.running
            if uplinks and self._notice(state, k) not in state.sent:
                yield SendsNotice(k)
        if self.scenario.resets and state.workers[0].running and not state.reset:
            yield Resets()
        yield from map(FrameArrives, state.sent)

    # What it does

    def after(self, state: TreeJoinState, event: Event) -> TreeJoinState:
        match event:
            case SendsJoin(rank):
                return state._replace(sent=state.sent | {self._join(state, rank)})
            case SendsNotice(switch):
                return state._replace(sent=state.sent | {self._notice(state, switch)})
            case Resets():
                reset = self._control(0, state.workers[0], Action.RESET)
                return self._arrive(state._replace(reset=True), FrameArrives(reset))[0]
        return self._arrive(state, event)[0]

    def _join(self, state: TreeJoinState, rank: int) -> bytes:
        return self._control(rank, state.workers[rank], Action.JOIN)

    def _control(self, rank: int, worker: Knowledge, action: Action) -> bytes:
        """Return a worker's Join or Reset. Its checksum complement is set as a switch's is, which no switch checks."""
        addresses = SwitchAddress(bytes([WORKER_MAC, rank + 1] * 3), bytes([10, 0, 1, rank + 1]))
        home, world = self.switches[self.homes[rank]].own, len(self.homes)
        member, ranks = (NO_MEMBER, 1 << rank) if self.scenario.states_ranks else (rank, 0)
        is_reset = action == Action.RESET
        payload = compose.control(
            job=0,
            epoch=worker.running[0] if worker.running and is_reset else 0,
            seq=int(is_reset),
            member=worker.member if is_reset else member,
            token=rank + 1,
            ranks=ranks,
            action=action,
            nonce=rank + 1,
            challenge=worker.challenge,
            job_token=rank + 100,
            key=1,
            world=world,
            threshold=world,
            format=Format.WINDOW64,
            fraction=44,
            elements=8,
        )
        return compose.frame(addresses, Source(1, home.mac, int.from_bytes(home.ip, "big"), UDP_PORT), payload)

    def _notice(self, state: TreeJoinState, switch: int) -> bytes:
        """Return the root's NOTICE to a leaf that sent an uplink of the earlier epoch."""
        above = state.switches[switch].above
        assert above
        root, leaf = self.switches[0].own, self.switches[switch].own
        payload = compose.notice(
            job=0, epoch=state.switches[0].job.epoch, seq=0, member=above.member, token=above.token, reason=Reason.EPOCH
        )
        return compose.frame(root, Source(0, leaf.mac, int.from_bytes(leaf.ip, "big"), UDP_PORT), payload)

    def _arrive(self, state: TreeJoinState, event: FrameArrives) -> tuple[TreeJoinState, list[bytes]]:
        """Return the state after a frame arrived, and the frames that this made a switch send."""
        k = event.number
        if not event.is_to_switch:
            return self._receive(state, k, event.frame), []
        memory, sent = self._answer(k, state.switches[k], event.frame)
        return state._replace(switches=replace_at(state.switches, k, memory), sent=state.sent.union(sent)), sent

    def _answer(self, k: int, memory: SwitchMemory, frame: bytes) -> tuple[SwitchMemory, list[bytes]]:
        """Return what a switch remembers after a frame, and what it sends."""
        key = k, memory, frame
        if key not in self._answers:
            switch = self.switches[k]
            switch.jobs[0], switch.random, switch.noticed_us = memory.job, memory.random, {}
            switch.above = {0: memory.above} if memory.above else {}
            sent = [out for _, out in switch.receive(self._port(k, frame), frame, 0)]
            after = SwitchMemory(switch.jobs[0], switch.above.get(0), switch.random)
            both_run = memory.job.state == after.job.state == JobState.RUNNING
            if both_run and (after.job.epoch - memory.job.epoch) % 2**16 >= 2**15:
                raise Violation("a switch returns to an earlier epoch")
            self._answers[key] = after, sent
        return self._answers[key]

    def _port(self, switch: int, frame: bytes) -> int:
        """Return the port by which a frame comes in: the parent's, a child's (one each), or that of the workers."""
        sender = frame[7] - 1
        if frame[6] == WORKER_MAC:
            return 1
        return 0 if sender == self.parents[switch] else 1 + sender

    def _receive(self, state: TreeJoinState, rank: int, frame: bytes) -> TreeJoinState:
        """Return the state after a worker received a frame. It handles an acknowledged Join as the driver does."""
        if frame[42] & 0xF != Type.ACK:
            return state
        body, worker = np.frombuffer(frame[FRAME_BYTES:], ACK, 1)[0], state.workers[rank]
        if body["action"] != Action.JOIN or body["reason"] not in (Reason.DONE, Reason.CHALLENGE) or worker.running:
            return state
        challenge = int(body["registers"][AckRegister.CHALLENGE])
        if body["reason"] == Reason.CHALLENGE:
            return state._replace(workers=replace_at(state.workers, rank, worker._replace(challenge=challenge)))
        member, running = frame[50], None
        if body["state"] == JobState.RUNNING:
            running = int.from_bytes(frame[44:46], "little"), int(body["first_seq"])
            self._check_running(state, *running)
        return state._replace(workers=replace_at(state.workers, rank, Knowledge(member, challenge, running)))

    # What is promised

    def _check_running(self, state: TreeJoinState, epoch: int, first_seq: int) -> None:
        """Check *running*, as a worker receives it, against the root."""
        root = state.switches[0].job
        if root.state != JobState.RUNNING or not all(state.switches[home].job.live for home in self.homes):
            raise Violation("a worker receives running although a rank is missing")
        if epoch not in {root.epoch, (root.epoch - state.reset) % 2**16} or first_seq != root.first_seq:
            raise Violation("a worker receives an epoch that is not the root's")

    def check(self, state: TreeJoinState) -> None:
        """Check that Joins, repeated without losses, tell each worker that the job runs."""
        for _ in range(6 * len(self.switches)):
            if all(worker.running for worker in state.workers):
                return
            for rank in range(len(self.homes)):
                moving = [self._join(state, rank)]
                while moving:
                    state, sent = self._arrive(state, FrameArrives(moving.pop(0)))
                    moving += sent
        raise Violation("a worker never receives running")
