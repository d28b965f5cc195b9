"""Replay through hosts in virtual time: through a Redis-style server, through a server that samples, and in the
learner's own memory.

All systems are on the hosts, cards, cables and the ordinary switch of `iswitch.estimate`. What Redis, its clients and
the memory take is measured (`sim.bench.replay_costs`). In each round every actor pushes one message and waits for
the answer; meanwhile the learner adds the messages of the round before, samples a batch and updates its priorities. The
next round begins when all have ended. Training takes no time.
"""

import statistics
from dataclasses import replace
from typing import NamedTuple

from iswitch.estimate.costs import Costs
from iswitch.estimate.network import Connection, Host, Network
from iswitch.estimate.simulation import Process, Processor, Signal, Simulation
from sim.bench.replay_costs import ReplayCosts, Workload
from sim.bench.replay_redis import SAMPLE

__all__ = ["BYPASS_CARD_US", "SYSTEMS", "Model", "Round", "System"]

ROUNDS = 4
"""Rounds that are simulated. The last one counts."""
COMMAND_BYTES = 64
UPDATE_BYTES = 12 * SAMPLE
BYPASS_CARD_US = 1.0
"""A card that a program polls, without an interrupt: a usual figure, not measured here."""


class Round(NamedTuple):
    """Seconds, in a steady state.

    Parameters
    ----------
    push_s : float
        An actor encodes a push, sends it and has the answer: median of the actors.
    access_s : float
        The learner has the pushes of a round in its memory, from its request on; 0 where it does not pull.
    sample_s : float
        The learner has a batch, from its wish for one on: with the access, where sampling needs it.
    round_s : float
        From the begin of a round to that of the next.
    """

    push_s: float
    access_s: float
    sample_s: float
    round_s: float

    @property
    def samples(self) -> float:
        """Samples in a second."""
        return SAMPLE / self.round_s


class System(NamedTuple):
    """Where the replay memory is, and how the server speaks to its card.

    Parameters
    ----------
    server : bool
        Whether a server stands between actors and learner; else actors push to the learner.
    samples : bool
        Whether the server keeps the replay memory and samples.
    bypass : bool
        Whether the server's program polls its card, without the kernel.
    """

    server: bool = True
    samples: bool = False
    bypass: bool = False


SYSTEMS = {
    "Redis": System(),
    "Redis, kernel bypass": System(bypass=True),
    "server samples, kernel bypass": System(samples=True, bypass=True),
    "learner's memory": System(server=False),
}


class Thread(Processor):
    """One thread of a program, on the cores of its machine."""

    def __init__(self, simulation: Simulation, cores: Processor):
        super().__init__(simulation, 1)
        self._cores = cores

    def spend(self, seconds: float) -> Process:
        """Use a core while the thread is taken."""
        yield from self._cores.use(seconds)


class Meeting:
    """Where processes wait for each other."""

    def __init__(self, simulation: Simulation, parties: int):
        self._simulation, self._parties = simulation, parties
        self._signal, self._come = Signal(), 0

    def wait(self) -> Process:
        """Wait until all have come."""
        self._come += 1
        if self._come == self._parties:
            self._come = 0
            self._simulation.fire(self._signal)
        else:
            yield self._signal


class Model:
    """The processes of a system.

    Parameters
    ----------
    system, workload, measured
        What is simulated, and what its programs take.
    actors : int
        Number of actors.
    costs : Costs
        Cards, cables and ordinary switches. Programs have `measured` instead.
    rate_bps : float, optional
        Rate of every cable; None: all are processes of one machine.
    far_us : float
        Additional length of the learner's cable, in microseconds.
    cores : int, optional
        Cores that all processes share; None: each host has as many as it needs.
    """

    def __init__(
        self,
        system: System,
        workload: Workload,
        measured: ReplayCosts,
        actors: int,
        costs: Costs,
        *,
        rate_bps: float | None,
        far_us: float = 0.0,
        cores: int | None = None,
    ):
        self.system, self.workload, self.measured, self.actors = system, workload, measured, actors
        self.simulation = simulation = Simulation()
        self.network = network = Network(simulation, actors + 2, costs, rate_bps=rate_bps)
        self.learner, self.server = actors, actors + 1
        shared = Processor(simulation, cores) if cores else None
        threads = [Thread(simulation, shared or Processor(simulation)) for _ in range(actors + 2)]
        size = workload.push_bytes

        def host(number: int, send_s: float, receive_s: float, *, polls: bool = False) -> Host:
            return Host(
                threads[number],
                replace(
                    costs,
                    tcp_call_us=0.0,  # what is measured includes the calls
                    tcp_send_byte_ns=1e9 * send_s / size,
                    tcp_receive_byte_ns=1e9 * receive_s / size,
                    wake_us=0.0 if polls else 1e6 * measured.wake_s,
                ),
            )

        for number in range(actors):
            network.hosts[number] = host(number, measured.push_kernel_s, 0.0)
        bypass = system.bypass
        kernel_push_s = measured.copy_s if bypass else measured.tcp_receive_s
        kernel_pull_s = measured.copy_s if bypass else measured.tcp_send_s
        network.hosts[self.server] = host(self.server, kernel_pull_s, kernel_push_s, polls=bypass)
        # What the socket takes is in the bytes above.
        self.serve_push_s = max(0.0, measured.serve_push_s - measured.tcp_receive_s)
        self.serve_pull_s = max(0.0, measured.serve_pull_s - measured.tcp_send_s)
        self.pull_s = max(0.0, measured.pull_s - measured.tcp_receive_s)
        network.hosts[self.learner] = host(self.learner, measured.push_kernel_s, measured.tcp_receive_s)
        if rate_bps is not None:
            for link in (network.up[self.learner], network.down[self.learner]):
                link.latency_s += far_us / 1e6
            if bypass:
                for link in (network.up[self.server], network.down[self.server]):
                    link.latency_s -= (costs.card_us - BYPASS_CARD_US) / 1e6
        # The thread that adds and samples, beside the one that speaks to the network.
        self.adder = Host(Thread(simulation, shared or Processor(simulation)), costs)
        self.meeting = Meeting(simulation, actors + 1)
        self.pushes: list[list[float]] = [[] for _ in range(ROUNDS)]
        self.rows: list[tuple[float, float, float]] = []
        self.begins: list[float] = []

    def run(self) -> Round:
        """Simulate the rounds, and return the last one."""
        target = self.server if self.system.server else self.learner
        for number in range(self.actors):
            there, back = self.network.connect(number, target), self.network.connect(target, number)
            self.simulation.start(self._act(number, there, back))
            self.simulation.start(self._take(target, there, back))
        to, back = self.network.connect(self.learner, self.server), self.network.connect(self.server, self.learner)
        self.simulation.start(self._learn(to, back))
        if self.system.server:
            self.simulation.start(self._serve(to, back))
        self.simulation.run()
        access_s, sample_s, _ = self.rows[-1]
        return Round(statistics.median(self.pushes[-1]), access_s, sample_s, self.begins[-1] - self.begins[-2])

    def _meet(self, host: Host) -> Process:
        """Wait for the others, and for a core: a program reads the clock when it runs."""
        yield from self.meeting.wait()
        yield from host.compute(self.measured.wake_s)

    def _act(self, number: int, there: Connection, back: Connection) -> Process:
        host, measured = self.network.hosts[number], self.measured
        for taken in self.pushes:
            yield from self._meet(host)
            begun_s = self.simulation.now_s
            yield from host.compute(measured.encode_s + measured.push_s - measured.push_kernel_s)
            yield from there.send(self.workload.push_bytes)
            yield from back.receive(COMMAND_BYTES)
            taken.append(self.simulation.now_s - begun_s)
        yield from self.meeting.wait()

    def _take(self, target: int, there: Connection, back: Connection) -> Process:
        """Take the pushes of an actor, at the server or at the learner."""
        host, measured = self.network.hosts[target], self.measured
        for _ in range(ROUNDS):
            yield from there.receive(self.workload.push_bytes)
            if self.system.server:
                yield from host.compute(self.serve_push_s)
            else:
                yield from host.compute(self.pull_s + measured.add_s)
            yield from back.send(COMMAND_BYTES)
            if self.system.samples:
                yield from self.adder.compute(measured.add_s)

    def _learn(self, to: Connection, back: Connection) -> Process:
        host, measured, simulation, size = (
            self.network.hosts[self.learner], self.measured, self.simulation, self.workload.push_bytes
        )  # fmt: skip
        for number in range(ROUNDS):
            yield from self._meet(host)
            begun_s = come_s = simulation.now_s
            self.begins.append(begun_s)
            if self.system.samples:
                yield from to.send(COMMAND_BYTES)
                yield from back.receive(self.workload.batch_bytes)
                sampled_s = simulation.now_s
                yield from to.send(UPDATE_BYTES)
                yield from back.receive(COMMAND_BYTES)
            else:
                if self.system.server:
                    yield from to.send(COMMAND_BYTES)
                    if number:
                        yield from back.receive(self.actors * size)
                        yield from host.compute(self.actors * (self.pull_s + measured.add_s))
                    come_s = simulation.now_s
                yield from host.compute(measured.sample_s)
                sampled_s = simulation.now_s
                yield from host.compute(measured.update_s)
            self.rows.append((come_s - begun_s, sampled_s - begun_s, simulation.now_s - begun_s))
        yield from self.meeting.wait()
        self.begins.append(simulation.now_s)

    def _serve(self, to: Connection, back: Connection) -> Process:
        """Answer the learner at the server."""
        host, measured = self.network.hosts[self.server], self.measured
        for number in range(ROUNDS):
            yield from to.receive(COMMAND_BYTES)
            if self.system.samples:
                yield from self.adder.compute(measured.sample_s)
                yield from back.send(self.workload.batch_bytes)
                yield from to.receive(UPDATE_BYTES)
                yield from self.adder.compute(measured.update_s)
                yield from back.send(COMMAND_BYTES)
            elif number:
                yield from host.compute(self.actors * self.serve_pull_s)
                yield from back.send(self.actors * self.workload.push_bytes)
