"""The rounds of `sim.bench.soak`: frames of jobs and attacker in, and checks of all that follows."""

import random
from collections import Counter, defaultdict
from typing import NamedTuple

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import REGISTERS_PER_READ, Format, Outcome, PortCounter, Register, Stat, Type, port_counter_register
from sim.bench.attacker import Attacker, Injected, Place
from sim.bench.soak_asynchronous import AsynchronousJob
from sim.bench.soak_job import BrokenPromiseError, Job
from sim.bench.soak_synchronous import SynchronousJob
from sim.emulator.compile import Design
from sim.emulator.counters import read
from sim.emulator.engine import Board, Decision
from sim.frames.client import SWITCH_IP

__all__ = ["Report", "Soak"]

OPERATOR_KEY = 0x6F70
MEMBER_PORTS, OTHER_PORT = (0, 1, 2), 3
FRAMES_PER_ROUND = 48
LOSS = 0.01
"""The share of the members' frames with a bad FCS."""
MOST_CYCLES = 2_000_000
"""Cycles in which the switch must have handled the frames of a round."""
MOST_ROUNDS = 400
"""Rounds within which every job must complete a collective, an update or an event."""
CHANGE_CHANCE = 1 / 80
"""The chance of an event of a job in a round."""
QUIET_ROUNDS = 200
"""Rounds without the attacker at the end."""
OF_MEMBERS = {
    Outcome.ADDED,
    Outcome.QUARANTINED,
    Outcome.RECEIPT,
    Outcome.DUPLICATE,
    Outcome.LATE,
    Outcome.STALE,
    Outcome.WINDOW,
    Outcome.SLOT_HELD,
    Outcome.COLLECTIVE,
    Outcome.HALTED,
    Outcome.UNHELD,
}
"""Outcomes of frames that have passed all checks of the sender."""
DATA = (Type.CONTRIBUTION, Type.RECEIPT, Type.CLAIM)


class Report(NamedTuple):
    """What a soak has done: the attacker's `frames` and `operations`, the members' frames, collectives and updates that
    were checked, events of the jobs, frames by outcome, and the attacker's frames by mutation and outcome."""

    place: Place
    frames: int
    operations: int
    member_frames: int
    complete: dict[str, int]
    events: Counter[str]
    outcomes: Counter[str]
    attacks: Counter[tuple[str, str]]
    cycles: int


class Soak:
    """Five jobs, and an attacker at a `place`. `design` is another switch than the project's.

    Raises
    ------
    BrokenPromiseError
        From `run` and `finish`, if the switch has broken a promise.
    """

    def __init__(self, place: Place, *, seed: int, design: Design | None = None) -> None:
        config = Config()
        self.place, self.config = place, config
        self.random = random.Random(f"soak {seed} {place.name}")
        # Seqs wrap soon.
        start = seed_for_first_seq(-2 * config.slots, seed)
        self.board = Board(config, seed=start, operator_key=OPERATOR_KEY, trace=True, watch=True, design=design)
        shared = {"seed": seed, "operator_key": OPERATOR_KEY}
        elements = config.elements
        self.jobs: list[Job] = [
            SynchronousJob(0, (0, 1, 2), elements=elements, format=Format.WINDOW64, **shared),
            SynchronousJob(1, (0, 1, 2), elements=elements, format=Format.INT32, threshold=2, **shared),
            SynchronousJob(2, (1, 2), elements=elements, format=Format.FP32, **shared),
            AsynchronousJob(
                3, (1, 2, 1), elements=2, format=Format.INT32, segments=3, staleness=2, threshold=2, **shared
            ),
            SynchronousJob(4, (1, 2, 1), elements=elements, format=Format.WINDOW64, **shared),
        ]
        port = OTHER_PORT if place == Place.ANOTHER_PORT else MEMBER_PORTS[0]
        self.attacker = Attacker(
            place,
            seed=seed,
            port=port,
            victims=[client for job in self.jobs for client in job.clients],
            jobs=range(len(self.jobs), config.jobs),
            longest=config.frame_bytes_max,
        )
        self.lost = {
            job.number
            for job in self.jobs
            if place == Place.ON_PATH and any(client.port == port for client in job.clients)
        }
        """Jobs about which docs/security.md promises nothing: the attacker has a member's secrets."""
        self.by_ip = {client.ip: (client, job) for job in self.jobs for client in (*job.clients, job.operator)}
        self.now_us = self.rounds = self.frames = self.operations = self.member_frames = 0
        self.entered: dict[int, Counter[PortCounter]] = {port: Counter() for port in range(config.ports)}
        self.left = Counter[int]()
        self.outcomes, self.attacks = Counter[str](), Counter[tuple[str, str]]()
        self.last_progress = dict.fromkeys(self.jobs, 0)
        self.progress = {job: self.steps(job) for job in self.jobs}

    @staticmethod
    def steps(job: Job) -> int:
        return job.complete + sum(job.events.values())

    def counter_of(self, frame: Injected) -> PortCounter:
        """Return the counter under which a port must count a frame."""
        if frame.overflow:
            return PortCounter.RX_OVERFLOW
        if frame.error:
            return PortCounter.RX_ERROR
        if len(frame.data) < 60:
            return PortCounter.RX_RUNT
        return PortCounter.RX_OVERSIZE if len(frame.data) > self.config.frame_bytes_max else PortCounter.RX_FRAMES

    def run(self, frames: int, operations: int) -> None:
        """Run rounds until the attacker has sent so many frames and operations more."""
        frames, operations = self.frames + frames, self.operations + operations
        share = operations / (frames + operations) if frames + operations else 0
        while self.frames < frames or self.operations < operations:
            injected = []
            for _ in range(self.random.randrange(2 * FRAMES_PER_ROUND)):
                is_operation = self.random.random() < share
                if is_operation and self.operations < operations:
                    injected.append(self.attacker.operation())
                    self.operations += 1
                elif self.frames < frames and self.attacker.seen:
                    injected.append(self.attacker.frame())
                    self.frames += 1
            for job in self.jobs:
                if self.random.random() < CHANGE_CHANCE:
                    job.change()
            self.round(injected)

    def round(self, injected: list[Injected]) -> None:
        """Send frames of all members and these of the attacker, and check what follows."""
        self.rounds += 1
        self.now_us += self.random.choice((0, 20, 100, 500, 3000))
        queues: dict[int, list[tuple[Injected, int | None]]] = defaultdict(list)
        data_frames = Counter[int]()
        for job in self.jobs:
            for client, frame in job.frames():
                is_lost = self.random.random() < LOSS
                queues[client.port].append((Injected("member", frame, error=is_lost), job.number))
                data_frames[client.port] += frame[42] & 0xF in DATA and not is_lost and job.number not in self.lost
                self.member_frames += 1
                if client is not job.operator:
                    self.attacker.record(frame, client.port)
        queues[self.attacker.port] += [(frame, None) for frame in injected]
        self.random.shuffle(queues[self.attacker.port])
        for port, queue in queues.items():
            for frame, _ in queue:
                self.entered[port][self.counter_of(frame)] += 1
                if not self.board.send(port, frame.data, frame.error, overflow=frame.overflow):
                    raise RuntimeError("the board's queue is full")
        if self.board.run(MOST_CYCLES, self.now_us) >= MOST_CYCLES:
            raise BrokenPromiseError(f"round {self.rounds}: the switch has not become idle")
        self.check_decisions(queues, data_frames)
        self.deliver()
        self.check_progress()

    def check_decisions(self, queues: dict[int, list[tuple[Injected, int | None]]], data_frames: Counter[int]) -> None:
        """Check that each frame that entered has one outcome, and that none of the attacker's passes as a member's."""
        decided: dict[int, list[Decision]] = defaultdict(list)
        for decision in self.board.trace():
            decided[decision.port].append(decision)
        for port, queue in queues.items():
            frames = [frame for frame, _ in queue if self.counter_of(frame) == PortCounter.RX_FRAMES]
            if len(frames) != len(decided[port]):
                raise BrokenPromiseError(f"{len(decided[port])} outcomes of {len(frames)} frames of port {port}")
            for frame, decision in zip(frames, decided[port]):
                self.outcomes[decision.outcome.name] += 1
                if frame.kind != "member":
                    self.attacks[frame.kind, decision.outcome.name] += 1
        for port, decisions in decided.items():
            passed = [d for d in decisions if d.outcome in OF_MEMBERS and d.job < len(self.jobs)]
            count = sum(d.job not in self.lost for d in passed)
            if self.place != Place.REPLAYS and count > data_frames[port]:
                raise BrokenPromiseError(f"port {port}: {count} frames of {data_frames[port]} members' pass: {passed}")

    def deliver(self) -> None:
        """Hand frames to the members and the attacker."""
        for port in range(self.config.ports):
            for frame in self.board.receive(port):
                self.left[port] += 1
                data, (client, job) = frame.data, self.by_ip.get(frame.data[30:34], (None, None))
                # A socket looks at IP addresses and ports, not at MAC addresses.
                is_switch = data[12:14] == b"\x08\0" and data[23] == 17 and data[26:30] == SWITCH_IP
                if is_switch and client and job and client.port == port:
                    self.hand_to(job, data, port)
                elif is_switch and client and port != self.attacker.port:
                    raise BrokenPromiseError(f"a frame to {client.ip!r} leaves by port {port}")
                elif port == self.attacker.port:
                    self.attacker.clients.take(data)

    def hand_to(self, job: Job, data: bytes, port: int) -> None:
        try:
            job.receive(data, is_shared=port == self.attacker.port)
        except (BrokenPromiseError, KeyError):
            if job.number not in self.lost:
                raise
            self.begin_anew(job)

    def begin_anew(self, job: Job) -> None:
        """Let the operator end a job that the attacker has taken over, and its workers form it again."""
        job.draw_secrets()
        job.control, job.squatted = None, True

    def check_progress(self) -> None:
        for job in self.jobs:
            if self.steps(job) != self.progress[job]:
                self.progress[job], self.last_progress[job] = self.steps(job), self.rounds
            elif self.rounds - self.last_progress[job] > MOST_ROUNDS:
                if job.number not in self.lost:
                    raise BrokenPromiseError(f"round {self.rounds}: job {job.number} hangs, {job.phase}: {job.events}")
                self.last_progress[job] = self.rounds
                self.begin_anew(job)

    def finish(self, quiet_rounds: int = QUIET_ROUNDS) -> Report:
        """Let the jobs work without the attacker for so many rounds, check all counters, and return a report."""
        before = {job: job.complete for job in self.jobs}
        for _ in range(quiet_rounds):
            self.round([])
        for job in self.jobs:
            if isinstance(job, AsynchronousJob) and job.phase == "running":
                job.check()
            if job.complete <= before[job] and job.number not in self.lost:
                raise BrokenPromiseError(f"job {job.number} does not go on after the attack")
        self.check_counters()
        report = Report(
            self.place,
            self.frames,
            self.operations,
            self.member_frames,
            {f"{job.number} {job.kind}": job.complete for job in self.jobs},
            sum((Counter(job.events) for job in self.jobs), Counter[str]()),
            self.outcomes,
            self.attacks,
            self.board.cycles,
        )
        self.board.close()
        return report

    def check_counters(self) -> None:
        """Compare outcomes and port counters with the frames that entered and left."""
        reads = 0

        def registers(address: int, count: int) -> list[int]:
            nonlocal reads
            found: list[int] = []
            while len(found) < count:
                found += read(self.board, address + len(found), now_us=self.now_us)
                reads += 1
            return found[:count]

        outcomes = registers(Register.OUTCOMES, len(Outcome))
        known = [self.outcomes[outcome.name] for outcome in Outcome]
        if outcomes != known:
            raise BrokenPromiseError(f"outcomes {outcomes} are counted for {known}")
        stats = registers(Register.STATS, len(Stat))
        corrupt = [stat.name for stat in Stat if stat.name.startswith(Outcome.CORRUPT.name) and stats[stat]]
        if corrupt or self.outcomes[Outcome.CORRUPT.name]:
            raise BrokenPromiseError(f"no memory has a bit error, but {corrupt or Outcome.CORRUPT.name} says so")
        for port, entered in self.entered.items():
            # A READ sees itself as received, and its own answer as not yet sent.
            ahead = reads + 1 if port == 0 else 0
            seen = registers(port_counter_register(port, PortCounter(0)), len(PortCounter))
            sent = self.left[port] + (ahead - 1 if port == 0 else 0)
            for counter in (c for c in PortCounter if c.name.startswith("RX")):
                wanted = entered[counter] + (ahead if counter == PortCounter.RX_FRAMES else 0)
                later = counter >= REGISTERS_PER_READ and counter == PortCounter.RX_FRAMES and port == 0
                if seen[counter] != wanted + later:
                    raise BrokenPromiseError(f"port {port}: {counter.name} is {seen[counter]}, not {wanted}")
            if seen[PortCounter.TX_FRAMES] != sent:
                raise BrokenPromiseError(f"port {port}: TX_FRAMES is {seen[PortCounter.TX_FRAMES]}, not {sent}")
        if sum(outcomes) != sum(entered[PortCounter.RX_FRAMES] for entered in self.entered.values()):
            raise BrokenPromiseError("the outcomes are not as many as the frames")
        if broken := self.board.violations():
            raise BrokenPromiseError(f"handshakes: {broken}")
