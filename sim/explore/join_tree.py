"""Every state of the Join handshake in small trees. The switches are golden ones, `sim/model/tree_switch.py`, and the
messages are frames.

As in `join.py` the network remembers everything: any frame ever sent may arrive now, again and again, or
never. One worker may reset the running job at the root, which a leaf learns by a NOTICE, while answers of the earlier
epoch haunt on.

Checked at each step: who is told that the job runs is told the epoch and first seq of the root, where all ranks have
joined; no switch that runs goes back to an earlier epoch. Checked in each state: if all that is under way is lost,
fresh Joins of the workers alone make the job run everywhere.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.wire import ACK, FRAME_BYTES, NO_MEMBER, UDP_PORT, Action, Format, JobState, Reason, Type
from sim.explore.search import Violation, put, search
from sim.model.decide.membership import Job, Source
from sim.model.egress import compose
from sim.model.tree_switch import Parent, ParentMembership, TreeSwitch

__all__ = ["JoinTreeExplorer", "State"]

End = tuple[str, int]
"""A switch or a worker."""


class Memory(NamedTuple):
    """What a switch knows."""

    job: Job
    above: ParentMembership | None
    random: int


class Mind(NamedTuple):
    """What a worker knows. `running`: (epoch, first seq), once it was told."""

    member: int = NO_MEMBER
    token: int = 0
    running: tuple[int, int] | None = None


class State(NamedTuple):
    """`sent`: every frame ever sent, and to whom."""

    memories: tuple[Memory, ...]
    minds: tuple[Mind, ...]
    sent: frozenset[tuple[End, bytes]]
    reset: bool


class JoinTreeExplorer:
    """`parents`, `homes` as in `tree.py`; `resets`: worker 0, at the root, may reset the job. `knowing`:
    workers say their ranks; else they ask for them as their indices, as if there was no tree. `switch` makes
    mutants."""

    def __init__(
        self,
        parents: tuple[int, ...],
        homes: tuple[int, ...],
        *,
        resets: bool = False,
        knowing: bool = True,
        switch: type[TreeSwitch] = TreeSwitch,
    ) -> None:
        self.parents, self.homes, self.resets, self.knowing = parents, homes, resets, knowing
        config = Config(members=4, window=1, elements=8, ports=8)
        below = [0] * len(parents)
        for rank, home in enumerate(homes):
            while home != -1:
                below[home] |= 1 << rank
                home = parents[home]
        self.switches = [
            switch(
                config,
                mac=bytes([2, k + 1] * 3),
                ip=bytes([10, 0, 0, k + 1]),
                seed=k + 1,
                parents=(
                    {0: Parent(0, bytes([2, parent + 1] * 3), bytes([10, 0, 0, parent + 1]), below[k])} if k else {}
                ),
            )
            for k, parent in enumerate(parents)
        ]
        self.answers: dict[tuple[int, Memory, bytes], tuple[Memory, list[tuple[End, bytes]]]] = {}

    def start(self) -> State:
        memories = tuple(Memory(switch.jobs[0], None, switch.random) for switch in self.switches)
        return State(memories, (Mind(),) * len(self.homes), frozenset(), False)

    def ask(self, rank: int, mind: Mind, action: Action) -> bytes:
        """A worker's Join, or its Reset. Switches never compare the checksums' complement, so workers may use it
        too."""
        worker = compose.Own(bytes([4, rank + 1] * 3), bytes([10, 0, 1, rank + 1]))
        home = self.switches[self.homes[rank]].own
        world = len(self.homes)
        epoch = mind.running[0] if mind.running and action == Action.RESET else 0
        member, ranks = (NO_MEMBER, 1 << rank) if self.knowing else (rank, 0)
        if action == Action.RESET:
            member = mind.member
        payload = compose.control(
            job=0,
            epoch=epoch,
            seq=int(action == Action.RESET),
            member=member,
            token=mind.token,
            ranks=ranks,
            action=action,
            nonce=rank + 1,
            key=1,
            world=world,
            threshold=world,
            format=Format.WINDOW64,
            fraction=44,
            elements=8,
        )
        return compose.address(worker, Source(1, home.mac, int.from_bytes(home.ip, "big"), UDP_PORT), payload)

    def port(self, end: int, frame: bytes) -> int:
        """Where a frame comes in: from the parent, from a child (each at a port of its own), or from a worker."""
        sender = frame[7] - 1
        if frame[6] == 4:
            return 1
        return 0 if sender == self.parents[end] else 1 + sender

    def notices(self, state: State) -> Iterator[tuple[End, bytes]]:
        """What the root says to an uplink of the epoch before the reset."""
        for k, memory in enumerate(state.memories):
            if state.reset and self.parents[k] == 0 and memory.above and memory.above.running:
                root, own = self.switches[0].own, self.switches[k].own
                payload = compose.notice(
                    job=0,
                    epoch=state.memories[0].job.epoch,
                    seq=0,
                    member=memory.above.member,
                    token=memory.above.token,
                    reason=Reason.EPOCH,
                )
                yield (
                    ("switch", k),
                    compose.address(root, Source(0, own.mac, int.from_bytes(own.ip, "big"), UDP_PORT), payload),
                )

    def receiver(self, frame: bytes) -> End:
        return ("switch" if frame[0] == 2 else "worker", frame[1] - 1)

    def answer(self, k: int, memory: Memory, frame: bytes) -> tuple[Memory, list[tuple[End, bytes]]]:
        key = k, memory, frame
        if key not in self.answers:
            switch = self.switches[k]
            switch.jobs[0], switch.random, switch.noticed_us = memory.job, memory.random, None
            switch.above = {0: memory.above} if memory.above else {}
            sent = [(self.receiver(out), out) for _, out in switch.receive(self.port(k, frame), frame, 0)]
            after = Memory(switch.jobs[0], switch.above.get(0), switch.random)
            both_run = memory.job.state == after.job.state == JobState.RUNNING
            if both_run and (after.job.epoch - memory.job.epoch) % 2**16 >= 2**15:
                raise Violation("a switch goes back to an earlier epoch")
            self.answers[key] = after, sent
        return self.answers[key]

    def arrive(self, state: State, end: End, frame: bytes) -> tuple[State, list[tuple[End, bytes]]]:
        """A frame arrives; what it causes is sent."""
        kind, k = end
        if kind == "worker":
            return self.hear(state, k, frame), []
        memory, sent = self.answer(k, state.memories[k], frame)
        return state._replace(memories=put(state.memories, k, memory), sent=state.sent | frozenset(sent)), sent

    def hear(self, state: State, rank: int, frame: bytes) -> State:
        """A worker makes of an acknowledged Join what the driver does."""
        if frame[42] & 0xF != Type.ACK:
            return state
        body, mind = np.frombuffer(frame[FRAME_BYTES:], ACK, 1)[0], state.minds[rank]
        if body["action"] != Action.JOIN or body["reason"] or mind.running:
            return state
        member, token, running = frame[50], int.from_bytes(frame[60:64], "little"), None
        if body["state"] == JobState.RUNNING:
            running = int.from_bytes(frame[44:46], "little"), int(body["first_seq"])
            root = state.memories[0].job
            epochs = {root.epoch, (root.epoch - state.reset) % 2**16}
            if root.state != JobState.RUNNING or not all(state.memories[home].job.live for home in self.homes):
                raise Violation("a worker is told that the job runs, and somebody is missing")
            if running[0] not in epochs or running[1] != root.first_seq:
                raise Violation("a worker is told an epoch that is not the root's")
        return state._replace(minds=put(state.minds, rank, Mind(member, token, running)))

    def successors(self, state: State) -> Iterator[tuple[Any, State]]:
        for rank, mind in enumerate(state.minds):
            asked = ("switch", self.homes[rank]), self.ask(rank, mind, Action.JOIN)
            if asked not in state.sent:
                yield ("join", rank), state._replace(sent=state.sent | {asked})
        for noticed in self.notices(state):
            if noticed not in state.sent:
                yield "notice", state._replace(sent=state.sent | {noticed})
        if self.resets and state.minds[0].running and not state.reset:
            yield (
                "reset",
                self.arrive(state._replace(reset=True), ("switch", 0), self.ask(0, state.minds[0], Action.RESET))[0],
            )
        for end, frame in state.sent:
            after = self.arrive(state, end, frame)[0]
            if after != state:
                yield (end, frame.hex()), after

    def check_progress(self, state: State) -> None:
        """All Joins, repeated without losses until each worker was told that the job runs."""
        for _ in range(6 * len(self.switches)):
            if all(mind.running for mind in state.minds):
                return
            for rank, mind in enumerate(state.minds):
                moving = [(("switch", self.homes[rank]), self.ask(rank, mind, Action.JOIN))]
                while moving:
                    state, sent = self.arrive(state, *moving.pop(0))
                    moving += sent
        raise Violation("a worker is never told that the job runs")

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)
