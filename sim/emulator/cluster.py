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
    """No program can continue, or none within the time limit. The message names each program and what it waits for."""


class Cluster:
    """`add` programs, then `run` them in virtual time.

    With the same seeds of fabric, boards and cluster, bytes, order and times are the same in each run. The driver's
    random numbers come from `seed`, too. `clock_hz` is the clock of the switches.
    """

    def __init__(self, fabric: Fabric, *, seed: int = 1, clock_hz: int = CLOCK_HZ):
        self.fabric, self.seed, self.clock_hz = fabric, seed, clock_hz
        self.programs: list[Program] = []
        self._hosts: dict[Place, Hosts] = {}
        self._places: list[Place] = []

    def add(
        self, place: Place, function: Callable[[Program], Any], *, name: str = "", machine: Machine = MACHINE
    ) -> Program:
        """Add a program on a machine of its own.

        Machines at the same port share its cable, as behind an ordinary switch; the first machine there sets rate and
        faults. Programs that can continue at the same time do so in the order in which they were added, and frames that
        arrive at one time are delivered in the order of ports. Raises ValueError as `Fabric.plug` does.
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
        """Let virtual time pass until all programs have ended, and return that time in seconds. Call it once.

        The first exception in a program ends all programs, and is raised here. Raises DeadlockError if no program can
        continue, or if all wait beyond `limit_s`, and TimeoutError (see `Program`).
        """
        time = VirtualTime(self.fabric, clock_hz=self.clock_hz)
        try:
            for program in self.programs:
                program.start(time, round(limit_s * PS_PER_S), lambda: None if self._waiting() else time.stop())
            time.run()
            if waiting := self._waiting():
                raise DeadlockError(
                    f"after {time.now_ps / PS_PER_S:g} s no program can continue within {limit_s:g} s: "
                    + ", ".join(f"{program.name} waits for {program.waits_for}" for program in waiting)
                )
        finally:
            for program in self.programs:
                program.stop()
        return time.now_ps / PS_PER_S

    def _waiting(self) -> list[Program]:
        return [program for program in self.programs if program.ended_s is None]
