"""A tree of compiled switches, each with the golden model beside it, in a network with faults.

A root and two leaves. Jobs of one switch, jobs of the tree, an asynchronous job, clients of the replay service and
ordinary stations send frames at once. Cables lose, repeat, reorder and damage frames, are taken out and put in; ports
stall; switches restart, idle or with frames inside. `python -m sim.bench.soak_long` runs it.

Every frame that leaves a switch is compared with the golden model's, and every register now and then. The jobs compare
every sum with exact integers or with numpy, so that an error of switch and model is noticed, too.
"""

import random
from collections import Counter, defaultdict, deque
from functools import partial
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.golden.tree_switch import Parent
from iswitch.wire import Format, Outcome
from sim.bench.cosimulation import DivergenceError
from sim.bench.designs import SOAK
from sim.bench.hosts import Hosts
from sim.bench.replay_traffic import ReplayTraffic
from sim.bench.soak_job import BrokenPromiseError, Worker
from sim.bench.soak_pair import Cable, Entry, Frames, LoggedPair, Registers, Stalls, Step
from sim.bench.soak_recovering import Asynchronous, Place, Recovering, Synchronous, TreeJob
from sim.bench.tree import address
from sim.emulator.compile import Design
from sim.emulator.faults import PS_PER_US, Faults, Rates
from sim.frames.client import SWITCH_IP, parse

__all__ = ["Figures", "NetworkSoak", "SoakError"]

OPERATOR_KEY = 0x6F70
LINKS: dict[Place, Place] = {(0, 3): (1, 0), (0, 2): (2, 0)}
PEERS = LINKS | {below: above for above, below in LINKS.items()}
HOSTS: list[Place] = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
RANKS = {0: {1: {1, 2}, 2: {3}}, 1: {1: {1}, 2: {2, 3}}, 2: {2: {1}}}
"""By job of the tree and leaf: the ranks below."""
BEHIND = {0: (0, 0), 1: (0, 1), 2: (2, 3), 3: (1, 3)}
"""By port of the root: where the clients of its replay service are."""
MOST_ENTRIES = 9
"""Frames that enter a port at once, so that no queue is full."""
MOST_WAITING = 30
"""Frames that wait in front of a port. Others are lost, as in front of a slow cable."""
ACTS_CHANCE = 0.4
"""The chance in a round that a job's workers send: that timers expire."""
MOST_ORDINARY = 3
KEPT_FRAMES = 4000
MOST_REQUESTS = 3
MOST_ROUNDS = 1500
"""Rounds within which every job must complete a collective, an update or an event."""
CHANGE_CHANCE = 1 / 100
CABLE_CHANCE = 1 / 100
RESTART_CHANCE = 1 / 400
STALL_CHANCE = 1 / 8
WEATHER_CHANCE = 1 / 60
CHECK_CHANCE = 1 / 400
"""The chances of events in a round."""
STALLS = ((0.0, 1), (0.3, 1), (0.9, 1), (0.9, 3), (0.02, 400), (0.001, 5000))
"""Chance and length of a port's stalls: none, some, a slow host, a slower one, a busy one, one that is stuck."""
WEATHER = {
    "calm": (0.4, Rates()),
    "usual": (0.4, Rates(loss=0.01, duplicate=0.01, reorder=0.02, corrupt=0.01, silent_corrupt=0.005)),
    "burst of losses": (0.1, Rates(loss=0.5)),
    "deep reordering": (0.1, Rates(reorder=0.5, overtakers=100)),
}
"""What cables do for a while: the share of the time, and the rates."""


class SoakError(AssertionError):
    """The switches and their models, or a job's sums, differ. `switch`: where, if it is one."""

    def __init__(self, message: str, switch: int | None) -> None:
        super().__init__(message)
        self.switch = switch


class Figures(NamedTuple):
    """What a soak has done.

    Attributes
    ----------
    cycles, frames, rounds : int
        Cycles of all switches, frames that entered them, rounds.
    faults : Counter
        By kind.
    complete : Counter
        Collectives and asynchronous segments whose sums were checked at all workers, by kind of job.
    events : Counter
        Of the jobs.
    outcomes : Counter
        Frames by outcome.
    """

    cycles: int
    frames: int
    rounds: int
    faults: Counter[str]
    complete: Counter[str]
    events: Counter[str]
    outcomes: Counter[str]


class NetworkSoak:
    """The network. `design` is another switch than the project's.

    Raises
    ------
    SoakError
        From `run` and `finish`, if something differs.
    """

    def __init__(self, *, seed: int, config: Config = SOAK, design: Design | None = None) -> None:
        self.random, self.seed, self.config, self.design = random.Random(f"soak {seed}"), seed, config, design
        self.pairs = [self.new_pair(number) for number in range(3)]
        shared = {"seed": seed, "operator_key": OPERATOR_KEY, "elements": config.elements}
        self.jobs: list[Recovering] = [
            TreeJob(0, [(0, 0), (1, 1), (1, 2), (2, 1)], format=Format.WINDOW64, **shared),
            TreeJob(1, [(0, 1), (1, 3), (2, 2), (2, 3)], format=Format.INT32, **shared),
            TreeJob(2, [(0, 1), (2, 1)], format=Format.FP32, **shared),
            Synchronous(3, [(1, 1), (1, 2), (1, 3)], switch=1, format=Format.INT32, threshold=2, **shared),
            Asynchronous(
                4,
                [(2, 1), (2, 2), (2, 1)],
                switch=2,
                format=Format.INT32,
                segments=3,
                staleness=2,
                threshold=2,
                **shared | {"elements": 2},
            ),
            # Its last worker is behind a leaf, which forwards the frames.
            Synchronous(5, [(0, 0), (0, 1), (1, 2)], switch=0, format=Format.WINDOW64, **shared),
        ]
        self.clients = {}
        for job in self.jobs:
            job.knows = partial(self.knows, job)
            for client, place in zip((*job.clients, job.operator), (*job.places, job.places[0])):
                self.clients[client.ip] = client, job, place
        chance = np.random.default_rng(seed)
        self.stations = [Hosts(config, chance) for _ in self.pairs]
        self.requests = ReplayTraffic(config, self.pairs[0].model.service, seed)
        self.cables = {
            (place, way): Faults(Rates(), seed=seed, port=16 * place[0] + place[1], direction=way)
            for place in [*HOSTS, *PEERS]
            for way in ("rx", "tx")
        }
        self.backlog: dict[Place, list[Entry]] = defaultdict(list)
        self.out: dict[Place, int] = {}
        """Ports without a cable, with the round in which it comes back."""
        self.rounds = self.frames = self.now_us = 0
        self.last: deque[tuple[int, Place, bytes]] = deque(maxlen=KEPT_FRAMES)
        """The last frames of all hosts' cables, with their times."""
        self.faults, self.outcomes = Counter[str](), Counter[str]()
        self.progress = {job: (0, 0) for job in self.jobs}
        """By job: its steps, and the round of the last one."""

    def new_pair(self, number: int, seed: int | None = None) -> LoggedPair:
        """Return a switch as it is after it was switched on; by default with the seed of its first time."""
        parents = {
            job: Parent(0, *address(0), sum(1 << rank for rank in below[number]))
            for job, below in RANKS.items()
            if number in below
        }
        mac, ip = address(number)
        if seed is None:
            seed = seed_for_first_seq(-2 * self.config.slots, self.seed + number)  # seqs wrap soon
        return LoggedPair(
            self.config, mac=mac, ip=ip, seed=seed, operator_key=OPERATOR_KEY, parents=parents, design=self.design
        )

    def knows(self, job: Recovering, worker: Worker) -> bool:
        """Return whether a worker's switch has it as a member."""
        (switch,) = (pair for pair in self.pairs if pair.mac == worker.client.switch_mac)
        return any(entry.nonce == worker.client.nonce for entry in switch.model.jobs[job.number].entries)

    # Rounds

    def run(self, rounds: int, *, is_quiet: bool = False) -> None:
        """Run so many rounds; `is_quiet`: without faults and without new events."""
        for _ in range(rounds):
            try:
                self.round(is_quiet)
            except BrokenPromiseError as error:
                raise SoakError(f"round {self.rounds}: {error}", None) from error

    def round(self, is_quiet: bool) -> None:
        self.rounds += 1
        self.now_us += self.random.choice((0, 20, 100, 500, 3000))
        if not is_quiet:
            self.disturb()
        self.send_from_hosts(is_quiet)
        for number, pair in enumerate(self.pairs):
            self.let_enter(number, pair, may_restart=not is_quiet)
        self.deliver()
        for job in self.jobs:
            steps, last = self.progress[job]
            now = job.complete + sum(job.events.values())
            if now != steps:
                self.progress[job] = now, self.rounds
            elif self.rounds - last > MOST_ROUNDS:
                raise SoakError(f"round {self.rounds}: job {job.number} hangs, {job.phase}: {job.events}", None)

    def disturb(self) -> None:
        """Begin and end faults."""
        chance = self.random.random
        for cable in self.cables.values():
            if chance() < WEATHER_CHANCE:
                (name,) = self.random.choices(list(WEATHER), [share for share, _ in WEATHER.values()])
                cable.rates = WEATHER[name][1]
        for place in [place for place, until in self.out.items() if until <= self.rounds]:
            self.put_in(place)
        if chance() < CABLE_CHANCE:
            place = self.random.choice([*HOSTS, *LINKS])
            if place not in self.out:
                self.take_out(place)
        if chance() < STALL_CHANCE:
            port = self.random.randrange(self.config.ports)
            strength, length = self.random.choice(STALLS)
            way = self.random.choice(("rx", "tx"))
            switch = self.random.randrange(len(self.pairs))
            self.take(switch, Stalls(port, way, strength, length, self.rounds))
            self.faults["a port stalls"] += strength > 0
        for job in self.jobs:
            if chance() < CHANGE_CHANCE:
                job.change()
        if chance() < CHECK_CHANCE:
            self.check_registers(self.random.randrange(len(self.pairs)))

    def ends(self, place: Place) -> list[Place]:
        """Return the ports at the ends of a cable."""
        return [place, PEERS[place]] if place in PEERS else [place]

    def take_out(self, place: Place) -> None:
        self.faults["a cable is taken out"] += 1
        self.out[place] = self.rounds + self.random.choice((1, 5, 40))
        for switch, port in self.ends(place):
            self.lose((switch, port))
            self.take(switch, Cable(self.now_us, port, up=False))

    def lose(self, place: Place) -> None:
        """Lose what is on the cable of a port."""
        self.backlog[place].clear()
        for way in ("rx", "tx"):
            while self.cables[place, way].due_ps is not None:
                self.cables[place, way].pop_due(1 << 63)

    def put_in(self, place: Place) -> None:
        del self.out[place]
        for switch, port in self.ends(place):
            self.take(switch, Cable(self.now_us, port, up=True))

    def is_out(self, place: Place) -> bool:
        return any(place in self.ends(other) for other in self.out)

    def take(self, switch: int, step: Step) -> list[tuple[int, bytes]]:
        """Let a switch and its model take a step."""
        try:
            return self.pairs[switch].take(step)
        except DivergenceError as error:
            raise SoakError(f"round {self.rounds}, switch {switch}: {error}", switch) from error

    def send_from_hosts(self, is_quiet: bool) -> None:
        """Put the frames of jobs, stations and replay clients on their cables."""
        for job in self.jobs:
            if self.random.random() > ACTS_CHANCE:
                continue
            places = dict(zip(job.clients, job.places))
            for client, frame in job.frames():
                self.put(places.get(client, job.places[0]), "rx", frame)
        if is_quiet:
            return
        for switch, stations in enumerate(self.stations):
            for _ in range(self.random.randrange(MOST_ORDINARY)):
                port, frame = stations.frame(self.random.choice((100, 100, 100, 1514)))
                if (switch, port) in HOSTS:
                    self.put((switch, port), "rx", frame)
        for _ in range(self.random.randrange(MOST_REQUESTS)):
            port, frame = next(self.requests)
            self.put(BEHIND[port], "rx", frame)

    def put(self, place: Place, way: str, frame: bytes, error: bool = False) -> None:
        """Put a frame on a cable: "rx" towards the switch, "tx" out of it."""
        if place in HOSTS:
            self.last.append((self.now_us, place, frame))
        if not self.is_out(place):
            self.cables[place, way].put(frame, self.now_us * PS_PER_US, error)

    def due(self, place: Place, way: str) -> list[tuple[bytes, bool]]:
        return [tuple(passed) for passed in self.cables[place, way].pop_due(self.now_us * PS_PER_US)]

    def let_enter(self, number: int, pair: LoggedPair, *, may_restart: bool) -> None:
        """Give a switch what has come through the cables, and put on cables what it sends."""
        entries: list[Entry] = []
        for port in range(self.config.ports):
            queue = self.backlog[number, port]
            queue += [Entry(port, *passed) for passed in self.due((number, port), "rx")]
            entries += queue[:MOST_ENTRIES]
            self.faults["lost in a full queue"] += max(0, len(queue) - MOST_ENTRIES - MOST_WAITING)
            queue[:] = queue[MOST_ENTRIES : MOST_ENTRIES + MOST_WAITING]
        self.random.shuffle(entries)
        self.frames += len(entries)
        step = Frames(self.now_us, tuple(entries))
        if may_restart and self.random.random() < RESTART_CHANCE and not any(number == at for at, _ in self.out_ends()):
            sent = self.restart(number, pair, step)
        else:
            sent = self.take(number, step)
        for port, frame in sent:
            place = number, port
            if place in PEERS:
                self.put(PEERS[place], "rx", frame)
            else:
                self.put(place, "tx", frame)

    def out_ends(self) -> list[Place]:
        return [end for place in self.out for end in self.ends(place)]

    def restart(self, number: int, pair: LoggedPair, step: Frames) -> list[tuple[int, bytes]]:
        """Take the power of a switch away for a moment: while it is idle, or in the middle of frames."""
        self.check_registers(number)
        self.note(pair)
        seed = self.random.getrandbits(64)
        try:
            if self.random.random() < 0.3:
                self.faults["a switch restarts idle"] += 1
                pair.restart(seed)
                sent = pair.take(step)
            else:
                self.faults["a switch restarts in traffic"] += 1
                sent = pair.restart_in_traffic(step, self.random.randrange(1, 2000), seed)
        except DivergenceError as error:
            raise SoakError(f"round {self.rounds}, switch {number}: {error}", number) from error
        if not number:
            self.requests.golden = pair.model.service
        return sent

    def deliver(self) -> None:
        """Hand frames that have left the network to the members of jobs."""
        for place in HOSTS:
            for frame, error in self.due(place, "tx"):
                client, job, at = self.clients.get(frame[30:34], (None, None, None))
                if error or client is None or job is None or at != place or frame[:6] != client.mac:
                    continue
                if frame[12:14] != b"\x08\0" or frame[23] != 17 or frame[26:29] != SWITCH_IP[:3]:
                    continue
                try:
                    parse(frame)
                except ValueError:
                    self.faults["refused by a host for its checksums"] += 1
                    continue
                job.receive(frame, is_shared=True)

    # Checks

    def note(self, pair: LoggedPair) -> None:
        """Note the outcomes of a model that is to be forgotten."""
        for outcome in Outcome:
            self.outcomes[outcome.name] += pair.model.outcomes[outcome]

    def check_registers(self, number: int) -> None:
        """Compare all registers of a switch with its model's. A port without a cable cannot be asked."""
        if not self.is_out((number, 0)):
            self.take(number, Registers(self.now_us))
            self.now_us = max(self.now_us, self.pairs[number].now_us)

    def finish(self, rounds: int = 600) -> Figures:
        """Let all jobs work in a sound network, compare all registers, and return what was done."""
        for cable in self.cables.values():
            cable.rates = Rates()
        for place in list(self.out):
            self.put_in(place)
        before = {job: job.complete for job in self.jobs}
        self.run(rounds, is_quiet=True)
        for job in self.jobs:
            if isinstance(job, Asynchronous) and job.phase == "running":
                job.check()
            if job.complete <= before[job]:
                raise SoakError(f"job {job.number} does not go on in a sound network, {job.phase}: {job.events}", None)
        for number, pair in enumerate(self.pairs):
            self.check_registers(number)
            self.note(pair)
        for cable in self.cables.values():
            self.faults.update(cable.counts)
        self.faults["a sum expires"] = sum(pair.expired for pair in self.pairs)
        figures = Figures(
            sum(pair.cycles + pair.board.cycles for pair in self.pairs),
            self.frames,
            self.rounds,
            self.faults,
            sum((Counter({job.kind: job.complete}) for job in self.jobs), Counter[str]()),
            sum((Counter(job.events) for job in self.jobs), Counter[str]()),
            self.outcomes,
        )
        self.close()
        return figures

    def close(self) -> None:
        for pair in self.pairs:
            pair.close()
