"""The compiled switch with the software switch beside it, for payloads that follow each other without a pause."""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import parse_payload
from iswitch.golden.interface.message import Datagram, Source, SwitchAddress
from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import ADDRESSES, JobState, Outcome, PortCounter, Type
from sim.bench.cosimulation import DivergenceError
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client
from sim.fuzz.frames import frames_of
from sim.fuzz.rtl import PatientPair
from sim.fuzz.steps import WORKERS, Senders, Sent, sent_by

__all__ = ["BURST", "BurstPair"]

BURST = 6
"""The most payloads that follow each other without a pause. Their results fit into a port's queue."""
CYCLES = 1_000_000
"""The most that the switch may take for a burst."""


class Arrival(NamedTuple):
    """A payload with its sender and its frame."""

    source: Source
    payload: bytes
    frame: bytes


def arrivals_of(sent: Sent) -> list[Arrival]:
    """Return payloads, all of which arrive, one by one."""
    sources, lengths = sent.arrivals["source"].tolist(), sent.arrivals["length"].tolist()
    return [
        Arrival(Source(port, bytes(mac), ip, udp_port), payload[:length].tobytes(), frame)
        for (ip, udp_port, port, mac), length, payload, frame in zip(
            sources, lengths, sent.payloads, frames_of(sent), strict=True
        )
    ]


def bursts_of(waits: list[int]) -> Iterator[slice]:
    """Yield the steps of each burst: the first one may wait, and the next ones, up to `BURST` in all, do not."""
    first = 0
    while first < len(waits):
        end = first + 1
        while end < min(len(waits), first + BURST) and not waits[end]:
            end += 1
        yield slice(first, end)
        first = end


@cache
def addresses(to: Source, length: int) -> bytes:
    """Return what stands before a payload that the switch sends. No checksum depends on the payload, which sums to
    zero."""
    return compose.frame(SwitchAddress(SWITCH_MAC, SWITCH_IP), to, bytes(length))[: ADDRESSES.itemsize]


class BurstPair(PatientPair):
    """A compiled switch, and the software switch beside it as the model.

    Payloads in a burst enter at both ports at once, one behind the other. The model is given them in the order of the
    compiled switch's decisions. Every difference of outcomes or frames raises an error.
    """

    model: SoftwareSwitch

    def new_model(self) -> SoftwareSwitch:
        return SoftwareSwitch(self.config, **self.settings)

    def payloads(self, clients: list[Client], steps: np.ndarray) -> list[Outcome]:
        """Give both switches the payloads of steps, and return the outcomes in their order.

        Parameters
        ----------
        clients : list of Client
            The senders. They learn from what the switch answers to commands.
        steps : numpy.ndarray
            `STEP`, shape (length,). A step that waits 0 us follows the one before it without a pause, unless that has
            `BURST` - 1 such steps before it.

        Raises
        ------
        AssertionError
            If the switches differ.
        """
        steps = steps[steps["present"] != 0]
        if not len(steps):
            return []
        arrivals = arrivals_of(sent_by(self.senders(clients), steps))
        outcomes: list[Outcome] = []
        wanted: list[tuple[int, bytes]] = []
        for burst in bursts_of(steps["wait_us"].tolist()):
            self.wait(int(steps["wait_us"][burst.start]))
            for outcome, datagrams in self.decide(arrivals[burst]):
                outcomes.append(outcome)
                wanted += [(to.port, addresses(to, len(payload)) + payload) for to, payload in datagrams]
        self.frames += len(steps)
        self._same(wanted, "bursts")
        self.teach(clients, wanted)
        return outcomes

    def decide(self, burst: list[Arrival]) -> Iterator[tuple[Outcome, list[Datagram]]]:
        """Give the compiled switch a burst, and then the model, in the order of the switch's decisions. Yields the
        outcome of each payload and what the model sends because of it."""
        waiting: tuple[deque[Arrival], ...] = tuple(deque() for _ in range(self.config.ports))
        for arrival in burst:
            self.board.send(arrival.source.port, arrival.frame)
            waiting[arrival.source.port].append(arrival)
        self.board.run(CYCLES, self.now_us)
        decisions = self.board.trace()
        if len(decisions) != len(burst):
            raise DivergenceError(f"{len(burst)} frames had {len(decisions)} decisions")
        for decision in decisions:
            source, payload, _ = waiting[decision.port].popleft()
            outcome, datagrams = self.handle(source, payload)
            if outcome != decision.outcome:
                raise DivergenceError(
                    f"the switch decided {decision.outcome.name} and the model {outcome.name}: {payload.hex()}"
                )
            yield outcome, datagrams

    def handle(self, source: Source, payload: bytes) -> tuple[Outcome, list[Datagram]]:
        """Give the model a payload, and count what a frame counts."""
        model = self.model
        payload = payload or b"\0"  # the padding of a frame without a payload stands in its place
        done = model.handle_usual(source, payload, self.now_us)
        if done is None:
            message = parse_payload(source, payload, model.accepted_types())
            done = (message, []) if isinstance(message, Outcome) else model.handle(message, payload, self.now_us)
        outcome, datagrams = done
        model.outcomes[outcome] += 1
        model.port_counters[source.port][PortCounter.RX_FRAMES] += 1
        for datagram in datagrams:
            model.port_counters[datagram.to.port][PortCounter.TX_FRAMES] += 1
        return outcome, datagrams

    def teach(self, clients: list[Client], frames: list[tuple[int, bytes]]) -> None:
        """Let clients learn from the answers to commands."""
        for _, frame in frames:
            if frame[ADDRESSES.itemsize] & 0xF == Type.ACK:
                for client in clients:
                    if frame[:6] == client.mac:
                        client.take(frame)

    def senders(self, clients: list[Client]) -> Senders:
        """Return what is right for each client now: its next segment is the first one that a live member lacks."""
        senders, jobs = Senders.of(clients), self.model.shared_jobs
        for k, client in enumerate(clients):
            job, m = jobs.peek(client.job), client.member
            row = jobs.rows[client.job]
            if job.state != JobState.RUNNING or m >= len(job.entries):
                continue
            live = [j for j in range(WORKERS) if job.ring.live >> j & 1]
            acknowledged = row["member"]["acknowledged"]
            ahead = [(int(acknowledged[j]) - int(acknowledged[m])) % 2**32 for j in live]
            lag = min((distance - (distance >> 31 << 32) for distance in ahead), default=0)
            senders.first_seq[k] = (int(acknowledged[m]) + lag) % 2**32
            senders.header["epoch"][k] = job.epoch
            senders.vector[k], senders.number[k] = row["member"]["claim"][m], job.entries[m].number
        return senders
