"""The Join handshake in small trees under every order of frames. The switches are golden ones, the messages frames.

The network remembers everything: any frame ever sent may arrive now, again and again, or never. One worker may reset
the running job, at the root or at a leaf. The root may evict a leaf, and a leaf may lose its memory; then its workers
join anew, with other nonces. A leaf learns of these things by a NOTICE to an uplink, while older answers remain in the
network.

A worker below switch 1 may attack: it knows the job's key, nonce and token of switch 1 at the root, and the root's
present challenge, but not the operator key. It sends Joins of its own to the root.

Checked at each step: a worker that receives *running* receives an epoch and the first seq of the root, where all ranks
have joined; if that is not the job's first epoch, the worker is told so. A leaf empties its slots at most once in an
epoch, also if it has lost its memory meanwhile, and never returns to an earlier one: so no member of the root sends two
different sums to a slot. A Join of the attacker changes nothing while all ranks have an owner at the root.

Checked in each state: if everything in flight is lost, Joins of the workers, and the notices to their uplinks, make the
job run everywhere in one epoch.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from iswitch.config import Config
from iswitch.golden.decide.command import remove_member
from iswitch.golden.decide.job import EntryState, Job, live_ranks
from iswitch.golden.egress import compose
from iswitch.golden.interface.message import Source, SwitchAddress
from iswitch.golden.interface.tuples import replace_at
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.wire import ACK, FRAME_BYTES, NO_MEMBER, UDP_PORT, AckRegister, Action, Format, JobState, Reason, Type
from sim.explore.join_tree_scenario import (
    SWITCH_MAC,
    WORKER_MAC,
    Attacks,
    Evicts,
    FrameArrives,
    Knowledge,
    Resets,
    Restarts,
    SendsJoin,
    SendsNotice,
    SwitchMemory,
    TreeJoinScenario,
    TreeJoinState,
)
from sim.explore.search import Event, Explorer, Violation

__all__ = ["TreeJoinExplorer"]

CONFIG = Config(members=4, window=1, elements=8, ports=8)
OPERATOR_KEY = 7


class TreeJoinExplorer(Explorer[TreeJoinState]):
    """Search of one `TreeJoinScenario`."""

    def __init__(self, scenario: TreeJoinScenario) -> None:
        self.scenario, self.parents, self.homes = scenario, scenario.parents, scenario.homes
        below = [0] * len(self.parents)
        for rank, home in enumerate(self.homes):
            while home != -1:
                below[home] |= 1 << rank
                home = self.parents[home]
        self.below = below
        self.switches = [self._new_switch(k, seed=k + 1) for k in range(len(self.parents))]
        self._answers: dict[tuple[int, SwitchMemory, bytes], tuple[SwitchMemory, list[bytes]]] = {}

    def _new_switch(self, k: int, *, seed: int) -> TreeSwitch:
        number, above = self.parents[k] + 1, {}
        if k:
            above[0] = Parent(0, bytes([SWITCH_MAC, number] * 3), bytes([10, 0, 0, number]), self.below[k])
        return self.scenario.switch(
            CONFIG,
            mac=bytes([SWITCH_MAC, k + 1] * 3),
            ip=bytes([10, 0, 0, k + 1]),
            seed=seed,
            operator_key=OPERATOR_KEY * self.scenario.attacks,
            parents=above,
        )

    def start(self) -> TreeJoinState:
        switches = tuple(SwitchMemory(switch.jobs[0], None, switch.random) for switch in self.switches)
        nothing = (None,) * len(switches)
        state = TreeJoinState(switches, (Knowledge(),) * len(self.homes), frozenset(), nothing)
        return self._settled(state)._replace(sent=frozenset()) if self.scenario.starts_running else state

    def is_covered(self, state: TreeJoinState) -> bool:
        return self._epochs_since(state, state.switches[0].job.epoch) <= self.scenario.epochs

    @staticmethod
    def _epochs_since(state: TreeJoinState, epoch: int) -> int:
        """Return how many epochs lie between the root's first one and an epoch."""
        return 0 if state.first_epoch is None else (epoch - state.first_epoch) % 2**16

    # What may happen

    def events(self, state: TreeJoinState) -> Iterator[Event]:
        for rank in range(len(self.homes)):
            if self._join(state, rank) not in state.sent:
                yield SendsJoin(rank)
        for k, memory in enumerate(state.switches):
            if memory.above and self._notice(state, k) not in {None, *state.sent}:
                yield SendsNotice(k)
        root = state.switches[0].job
        if self.scenario.resets and state.workers[0].running and Resets not in state.done:
            yield Resets()
        if self.scenario.evicts and Evicts not in state.done and self._index_of_leaf(root) not in (None, root.live):
            yield Evicts()
        if self.scenario.restarts and Restarts not in state.done:
            yield Restarts()
        if self.scenario.attacks and live_ranks(root) == (1 << len(self.homes)) - 1:
            yield from (Attacks(*how) for how in product((True, False), (True, False), (True, False)))
        yield from map(FrameArrives, state.sent)

    # What it does

    def after(self, state: TreeJoinState, event: Event) -> TreeJoinState:
        match event:
            case SendsJoin(rank):
                return state._replace(sent=state.sent | {self._join(state, rank)})
            case SendsNotice(switch):
                notice = self._notice(state, switch)
                assert notice
                return state._replace(sent=state.sent | {notice})
            case Resets():
                reset = self._control(0, state.workers[0], Action.RESET)
                return self._arrive(self._having(state, event), FrameArrives(reset))[0]
            case Evicts():
                root = state.switches[0]
                index = self._index_of_leaf(root.job)
                assert index is not None
                without = root._replace(job=remove_member(root.job, index)[0])
                return self._having(state, event)._replace(switches=replace_at(state.switches, 0, without))
            case Restarts():
                return self._restarted(self._having(state, event))
            case Attacks():
                return self._attacked(state, event)
        return self._arrive(state, event)[0]

    @staticmethod
    def _having(state: TreeJoinState, event: Event) -> TreeJoinState:
        return state._replace(done=state.done | {type(event)})

    def _index_of_leaf(self, root: Job) -> int | None:
        """Return the index of switch 1 at the root, or None if it is not a member there."""
        entries = enumerate(root.entries)
        return next((m for m, e in entries if e.state == EntryState.LIVE and e.ranks == self.below[1]), None)

    def _restarted(self, state: TreeJoinState) -> TreeJoinState:
        new = self._new_switch(1, seed=99)
        workers = tuple(
            Knowledge(incarnation=worker.incarnation + 1) if self.homes[rank] == 1 else worker
            for rank, worker in enumerate(state.workers)
        )
        memory = SwitchMemory(new.jobs[0], None, new.random)
        return state._replace(switches=replace_at(state.switches, 1, memory), workers=workers)

    def _attacked(self, state: TreeJoinState, event: Attacks) -> TreeJoinState:
        """Return the state after a Join of the attacker has reached the root by the port of switch 1."""
        root = state.switches[0].job
        leaf = next(entry for entry in root.entries if entry.ranks == self.below[1])
        attacker = SwitchAddress(bytes([WORKER_MAC, 9] * 3), bytes([10, 0, 1, 9]))
        own = self.switches[0].own
        payload = compose.control(
            job=0,
            seq=0,
            member=root.entries.index(leaf) if event.requests_index else NO_MEMBER,
            token=leaf.token,
            ranks=leaf.ranks if event.names_ranks else 0,
            action=Action.JOIN,
            nonce=leaf.nonce + (not event.has_nonce),
            challenge=root.challenge,
            key=root.key,
            **root.settings._asdict(),
        )
        to = Source(1, own.mac, int.from_bytes(own.ip, "big"), UDP_PORT)
        memory, _ = self._answer(0, state.switches[0], compose.frame(attacker, to, payload), port=2)
        if memory != state.switches[0]:
            raise Violation("a worker that does not know the operator key changes a tree that has all its members")
        return state

    def _join(self, state: TreeJoinState, rank: int) -> bytes:
        return self._control(rank, state.workers[rank], Action.JOIN)

    def _control(self, rank: int, worker: Knowledge, action: Action) -> bytes:
        """Return a worker's Join or Reset. Its checksum complement is set as a switch's is, which no switch checks."""
        addresses = SwitchAddress(bytes([WORKER_MAC, rank + 1] * 3), bytes([10, 0, 1, rank + 1]))
        home, world = self.switches[self.homes[rank]].own, len(self.homes)
        member, ranks = (NO_MEMBER, 1 << rank) if self.scenario.states_ranks else (rank, 0)
        is_reset = action == Action.RESET
        identity = worker.incarnation * 16 + rank + 1
        payload = compose.control(
            job=0,
            epoch=worker.running[0] if worker.running and is_reset else 0,
            seq=int(is_reset),
            member=worker.member if is_reset else member,
            token=identity,
            ranks=ranks,
            action=action,
            nonce=identity << 16,
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

    def _notice(self, state: TreeJoinState, switch: int) -> bytes | None:
        """Return the NOTICE with which its parent answers an uplink of a leaf now, or None if it sends none."""
        memory, parent = state.switches[switch], state.switches[self.parents[switch]].job
        above = memory.above
        if not above or memory.job.state != JobState.RUNNING:
            return None
        if parent.state == JobState.NONE:
            reason = Reason.JOB
        elif parent.epoch != memory.job.epoch:
            reason = Reason.EPOCH
        else:
            entry = parent.entries[above.member]
            if entry.state == EntryState.LIVE and entry.token == above.token:
                return None
            reason = Reason.TOKEN if entry.state == EntryState.LIVE else Reason.MEMBER
        payload = compose.notice(
            job=0, epoch=parent.epoch, seq=0, member=above.member, token=above.token, reason=reason
        )
        leaf = self.switches[switch].own
        to = Source(0, leaf.mac, int.from_bytes(leaf.ip, "big"), UDP_PORT)
        return compose.frame(self.switches[self.parents[switch]].own, to, payload)

    def _arrive(self, state: TreeJoinState, event: FrameArrives) -> tuple[TreeJoinState, list[bytes]]:
        """Return the state after a frame arrived, and the frames that this made a switch send."""
        k = event.number
        if not event.is_to_switch:
            return self._receive(state, k, event.frame), []
        before = state.switches[k].job
        memory, sent = self._answer(k, state.switches[k], event.frame)
        state = state._replace(switches=replace_at(state.switches, k, memory), sent=state.sent.union(sent))
        return self._running(state, k, before), sent

    def _running(self, state: TreeJoinState, k: int, before: Job) -> TreeJoinState:
        """Return the state with the epoch in which a switch runs now, for which it has emptied its slots."""
        job, last = state.switches[k].job, state.adopted[k]
        if job.state != JobState.RUNNING or (before.state, before.epoch) == (job.state, job.epoch):
            return state
        if last is not None and not 0 < (job.epoch - last) % 2**16 < 2**15:
            raise Violation("a switch empties its slots twice in an epoch, or returns to an earlier one")
        first = job.epoch if not k and state.first_epoch is None else state.first_epoch
        return state._replace(adopted=replace_at(state.adopted, k, job.epoch), first_epoch=first)

    def _answer(
        self, k: int, memory: SwitchMemory, frame: bytes, port: int | None = None
    ) -> tuple[SwitchMemory, list[bytes]]:
        """Return what a switch remembers after a frame, and what it sends. `port`: if not that of the sender."""
        key = k, memory, frame
        if key not in self._answers:
            switch = self.switches[k]
            switch.jobs[0], switch.random, switch.noticed_us = memory.job, memory.random, {}
            switch.above = {0: memory.above} if memory.above else {}
            sent = [out for _, out in switch.receive(self._port(k, frame) if port is None else port, frame, 0)]
            self._answers[key] = SwitchMemory(switch.jobs[0], switch.above.get(0), switch.random), sent
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
        if int(body["nonce"]) != (worker.incarnation * 16 + rank + 1) << 16 or body["action"] != Action.JOIN:
            return state
        challenge, runs = int(body["registers"][AckRegister.CHALLENGE]), body["state"] == JobState.RUNNING
        if body["reason"] == Reason.CHALLENGE and not worker.running:
            worker = worker._replace(challenge=challenge)
        if body["reason"] == Reason.DONE and (runs or not worker.running):
            member, running = frame[50], worker.running
            if runs:
                running = int.from_bytes(frame[44:46], "little"), int(body["first_seq"])
                self._check_running(state, *running, renewed=bool(body["registers"][AckRegister.RENEWED]))
                if worker.running and (running[0] - worker.running[0]) % 2**16 >= 2**15:
                    return state  # the driver does not ask for an epoch that it had, so this answer is late
            worker = worker._replace(member=member, challenge=challenge, running=running)
        return state._replace(workers=replace_at(state.workers, rank, worker))

    # What is promised

    def _check_running(self, state: TreeJoinState, epoch: int, first_seq: int, *, renewed: bool) -> None:
        """Check *running*, as a worker receives it, against the root."""
        root, first = state.switches[0].job, state.first_epoch
        if first is None or not all(state.switches[home].job.live or state.done for home in self.homes):
            raise Violation("a worker receives running although a rank is missing")
        if self._epochs_since(state, epoch) > self._epochs_since(state, root.epoch) or first_seq != root.first_seq:
            raise Violation("a worker receives an epoch that is not the root's")
        if renewed != (epoch != first):
            raise Violation("a worker is not told that the job has begun anew")

    def check(self, state: TreeJoinState) -> None:
        """Check that Joins, repeated without losses, tell each worker that the job runs, in the root's epoch."""
        self._settled(state)

    def _settled(self, state: TreeJoinState) -> TreeJoinState:
        """Return the state after Joins without losses, when the job runs everywhere."""
        for _ in range(6 * len(self.switches)):
            if self._all_run(state):
                return state
            for rank in range(len(self.homes)):
                state = self._settle(state, self._join(state, rank))
            for k in range(1, len(self.switches)):
                if notice := self._notice(state, k):
                    state = self._settle(state, notice)
        raise Violation("a worker never receives running")

    def _all_run(self, state: TreeJoinState) -> bool:
        epoch = state.switches[0].job.epoch
        known = all(worker.running and worker.running[0] == epoch for worker in state.workers)
        jobs = [memory.job for memory in state.switches]
        knows_leaves = not any(self._notice(state, k) for k in range(1, len(self.switches)))
        return known and knows_leaves and all((job.state, job.epoch) == (JobState.RUNNING, epoch) for job in jobs)

    def _settle(self, state: TreeJoinState, frame: bytes) -> TreeJoinState:
        """Return the state after a frame and all that follow from it have arrived."""
        moving = [frame]
        while moving:
            state, sent = self._arrive(state, FrameArrives(moving.pop(0)))
            moving += sent
        return state
