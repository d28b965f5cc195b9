"""Programs at the ports of a fabric, all in virtual time."""

from collections.abc import Callable
from typing import Any

from sim.emulator.endpoint import Hosts
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Faults
from sim.emulator.link import Place
from sim.emulator.program import Machine, Program
from sim.emulator.virtual import CLOCK_HZ, PS_PER_S, VirtualTime
from sim.emulator.wire import Wire

__all__ = ["Cluster", "DeadlockError"]

LIMIT_S = 3600.0
MACHINE = Machine()


class DeadlockError(RuntimeError):
    """No program can go on, or not in time; the message says who waits for what."""


class Cluster:
    """`add` programs, then `run` them. With the same seeds of fabric, boards and cluster everything is the same at each
    run: bytes, order and times; what the driver draws at random comes from `seed` too. clock_hz: of the switches."""

    def __init__(self, fabric: Fabric, *, seed: int = 1, clock_hz: int = CLOCK_HZ):
        self.fabric, self.seed, self.clock_hz = fabric, seed, clock_hz
        self.programs: list[Program] = []
        self._hosts: dict[Place, Hosts] = {}
        self._places: list[Place] = []

    def add(
        self, place: Place, function: Callable[[Program], Any], *, name: str = "", machine: Machine = MACHINE
    ) -> Program:
        """Add a program on a machine of its own. Machines at the same port share its cable, as behind an ordinary
        switch: rate and faults are those of the first one there.

        Programs that can go on at the same time do so as they were added, but what comes to them at one time comes in
        the order of ports. ValueError as of `Fabric.plug`.
        """
        switch, port = place
        if place not in self._hosts:
            cables = [
                Wire(
                    Faults(machine.rates, seed=self.seed + switch, port=port, direction=direction),
                    rate_bps=machine.rate_bps,
                )
                for direction in ("rx", "tx")
            ]
            board = self.fabric.nodes[switch].board
            hosts = Hosts(board.mac, board.ip)
            self.fabric.plug(place, hosts, inbound=cables[0], outbound=cables[1])
            self._hosts[place] = hosts
        before = sum(other == place for other in self._places)
        self._places.append(place)
        program = Program(
            function,
            name=name or f"program {len(self.programs)}",
            machine=machine,
            hosts=self._hosts[place],
            ip=bytes([10, 1 + before, switch, 1 + port]),
            seed=f"{self.seed} {switch}:{port}" + f":{before}" * (before > 0),
        )
        self.programs.append(program)
        return program

    def run(self, limit_s: float = LIMIT_S) -> float:
        """Lets virtual time pass until all programs have ended; returns the time, in seconds. Once only. The first
        exception in a program ends all of them, and is raised here; DeadlockError, also if all wait for what is later than
        `limit_s`; TimeoutError (see `Program`)."""
        time = VirtualTime(self.fabric, clock_hz=self.clock_hz)
        try:
            for program in self.programs:
                program.start(time, round(limit_s * PS_PER_S), lambda: None if self._waiting() else time.stop())
            time.run()
            if waiting := self._waiting():
                raise DeadlockError(
                    f"after {time.now_ps / PS_PER_S:g} s nobody can go on within {limit_s:g} s: "
                    + ", ".join(f"{program.name} waits for {program.waits_for}" for program in waiting)
                )
        finally:
            for program in self.programs:
                program.stop()
        return time.now_ps / PS_PER_S

    def _waiting(self) -> list[Program]:
        return [program for program in self.programs if program.ended_s is None]
