"""A compiled switch of `sim.bench.soak_network` beside its golden model, with a log by which a failure is repeated."""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.wire import FRAME, JobState, PortCounter, Type
from sim.bench.cosimulation import DivergenceError, Pair

__all__ = ["Cable", "Entry", "Frames", "LoggedPair", "Registers", "Stalls", "Step"]

MOST_CYCLES = 1_000_000
"""Cycles within which a switch must have handled the frames of a step."""


class Entry(NamedTuple):
    """A frame that enters by a port; `error`: its FCS is wrong."""

    port: int
    frame: bytes
    error: bool = False


class Frames(NamedTuple):
    """Frames that enter a switch at once."""

    now_us: int
    entries: tuple[Entry, ...]


class Cable(NamedTuple):
    """A cable that is taken out of a port, or put in."""

    now_us: int
    port: int
    up: bool


class Stalls(NamedTuple):
    """Stalls of a port, as of `Board.stall`."""

    port: int
    direction: str
    chance: float
    length: int
    seed: int


class Registers(NamedTuple):
    """A comparison of all registers, which READs ask for."""

    now_us: int


Step = Frames | Cable | Stalls | Registers


class LoggedPair(Pair):
    """A pair that is given steps. Its `log` has all steps since it was switched on. Parameters as of `Pair`."""

    def __init__(self, config: Config, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.log: list[Step] = []
        self.stalls: dict[tuple[int, str], Stalls] = {}
        self.cycles = 0
        """Cycles of earlier boards."""
        self.expired = 0
        """Sums that expired before they left."""

    def take(self, step: Step) -> list[tuple[int, bytes]]:
        """Carry out a step, and return the frames that left, with their ports.

        Raises
        ------
        DivergenceError
            If the switch sends other frames than the model, does not come to rest, or gives a frame no outcome or two.
        """
        self.log.append(step)
        if isinstance(step, Frames):
            return self.give(step)
        if isinstance(step, Registers):
            self.now_us = step.now_us
            self.counters_agree()
        elif isinstance(step, Cable):
            self.now_us = step.now_us
            self.link(step.port, step.up)
        else:
            self.stalls[step.port, step.direction] = step
            self.board.stall(step.port, step.direction, step.chance, length=step.length, seed=step.seed)
        return []

    def give(self, step: Frames) -> list[tuple[int, bytes]]:
        """Let frames enter at once, and compare what leaves with the model's frames."""
        self.now_us = step.now_us
        for entry in step.entries:
            if not self.board.send(*entry):
                raise RuntimeError("the board's queue is full")
        return self._handle(step.entries)

    def _handle(self, entries: tuple[Entry, ...]) -> list[tuple[int, bytes]]:
        """Let the switch handle frames that wait at its ports, and compare."""
        self.frames += len(entries)
        waiting = self._waiting(entries)
        self._run(MOST_CYCLES)
        sent = self._decided(waiting)
        if left := {port: len(rest) for port, rest in waiting.items() if rest}:
            raise DivergenceError(f"after {self.frames} frames: no outcome of so many frames, by port: {left}")
        self._same(sent, f"{len(entries)} frames at once")
        return sent

    def _waiting(self, entries: tuple[Entry, ...]) -> dict[int, list[bytes]]:
        """Give the model the frames that a port refuses, and return the others by port: each has an outcome."""
        waiting: dict[int, list[bytes]] = defaultdict(list)
        for port, frame, error in entries:
            if self.model.rejected_by_port(frame, error) is None:
                waiting[port].append(frame)
            else:
                self.model.receive(port, frame, self.now_us, error)
        return waiting

    def _run(self, cycles: int) -> None:
        if self.board.run(cycles, self.now_us) >= MOST_CYCLES:
            raise DivergenceError(f"after {self.frames} frames: the switch is not idle after {MOST_CYCLES:,} cycles")

    def _decided(self, waiting: dict[int, list[bytes]]) -> list[tuple[int, bytes]]:
        """Give the model the frames in the order of the switch's decisions, and return what it sends."""
        sent: list[tuple[int, bytes]] = []
        for decision in self.board.trace():
            if not waiting[decision.port]:
                raise DivergenceError(f"after {self.frames} frames: an outcome without a frame: {decision}")
            before = self.model.outcomes[decision.outcome]
            sent += self.model.receive(decision.port, waiting[decision.port].pop(0), self.now_us)
            if self.model.outcomes[decision.outcome] != before + 1:
                raise DivergenceError(f"after {self.frames} frames: the model has another outcome than {decision}")
        return sent

    def _expired(self, port: int, got: dict[str, list[bytes]], want: dict[str, list[bytes]]) -> bool:
        """Return whether all that a port has not sent are sums that expired: docs/bridge.md, "Results that wait".

        The model knows no time between a sum and its way out. So a job that ends, begins anew or uses the slot again in
        the same step has no such sums there. The model's counters become those of a switch that has counted each one,
        and the next comparison of registers shows whether the switch has.
        """
        sums, sent = "result", iter(got.get("result", []))
        if any(got.get(store) != want.get(store) for store in (got.keys() | want.keys()) - {sums}):
            return False
        following, missing = next(sent, None), []
        for frame in want.get(sums, []):
            if frame == following:
                following = next(sent, None)
            else:
                missing.append(frame)
        if following is not None or not all(map(self._is_past, missing)):
            return False
        self.model.port_counters[port][PortCounter.TX_FRAMES] -= len(missing)
        self.model.port_counters[port][PortCounter.TX_EXPIRED_RESULT] += len(missing)
        self.expired += len(missing)
        return True

    def _is_past(self, frame: bytes) -> bool:
        """Return whether the model does not have the slot of a sum any more."""
        header = np.frombuffer(frame, FRAME, 1)[0]
        job, seq = self.model.jobs[int(header["job"])], int(header["seq"])
        if int(header["version_type"]) & 0xF not in (Type.RESULT, Type.UPLINK):
            return False
        is_here = job.state == JobState.RUNNING and job.epoch == int(header["epoch"])
        return not is_here or job.ring.slots[seq % self.config.slots].seq != seq

    def restart(self, seed: int) -> None:
        """Take the power away for a moment while the switch is idle. Afterwards it draws other random numbers."""
        self.cycles += self.board.cycles
        self.board.close()
        self.settings["seed"] = seed
        self.switch_on()
        self.log.clear()
        for stalls in self.stalls.values():
            self.take(stalls)

    def restart_in_traffic(self, step: Frames, cycles: int, seed: int) -> list[tuple[int, bytes]]:
        """Take the power away while the switch handles frames, after so many cycles, and return all that leaves before
        and after.

        What leaves before must be of what the model sends. Frames inside are lost, frames that wait at the ports enter
        afterwards.

        Raises
        ------
        DivergenceError
            If a frame leaves that the model does not send.
        """
        self.now_us = step.now_us
        for entry in step.entries:
            self.board.send(*entry)
        self._run(cycles)
        possible = self._decided(self._waiting(step.entries))
        out = [(port, frame.data) for port in range(self.config.ports) for frame in self.board.receive(port)]
        for sent in out:
            if sent not in possible:
                raise DivergenceError(f"before a restart, port {sent[0]} sent what the model does not: {sent[1].hex()}")
            possible.remove(sent)
        rest: list[Entry] = []
        for port in range(self.config.ports):
            if kept := self.board.waiting(port):
                rest += [entry for entry in step.entries if entry.port == port][-kept:]
        self.restart(seed)
        return out + self.take(Frames(self.now_us, tuple(rest)))
