"""Read the switch's registers: sizes, counters, states of jobs. Section 5 of `docs/protocol.md`."""

from typing import Any, NamedTuple

from iswitch.config import Replay
from iswitch.control.exchange import Answer, Exchange
from iswitch.control.switch_info import SwitchInfo
from iswitch.errors import IswitchError
from iswitch.wire import (
    MAGIC,
    REGISTERS_PER_READ,
    VERSION,
    Action,
    JobState,
    Outcome,
    PortCounter,
    Register,
    Stat,
    port_counter_register,
)
from iswitch.wire.replay import ReplayOutcome, ReplayRegister

__all__ = ["JobStatus", "RegisterReader"]


class JobStatus(NamedTuple):
    """A job in short. If there is no such job, all fields but `job` and `state` are 0.

    Attributes
    ----------
    job : int
        Number of the job.
    state : JobState
        Whether the job exists, and whether it forms, runs or is halted.
    epoch : int
        Number of the job's resets, modulo 2^32, from a random start.
    world, live, threshold : int
        Number of workers, of members, and of workers that complete a sum.
    """

    job: int
    state: JobState
    epoch: int
    world: int
    live: int
    threshold: int


class RegisterReader(Exchange):
    """An `Exchange` that reads registers. Every method raises SwitchUnreachableError if the switch does not answer."""

    def read(self, address: int, *, job: int = 0, timeout_s: float | None = None) -> Answer:
        """Read eight registers.

        Parameters
        ----------
        address : int
            The first register.
        job : int
            Job whose state the answer contains.
        timeout_s : float or None
            Seconds to wait for the answer. None: the `timeout_s` of this object.

        Returns
        -------
        Answer
            The registers are `body["registers"]`.
        """
        return self.request(Action.READ, address=address, job=job, timeout_s=timeout_s)

    def registers(self, first: int, count: int) -> list[int]:
        """Return the values of `count` registers from `first` on."""
        values: list[int] = []
        while len(values) < count:
            values += self.read(first + len(values)).body["registers"].tolist()
        return values[:count]

    def switch_info(self) -> SwitchInfo:
        """Return the sizes of the switch.

        Raises
        ------
        IswitchError
            If the address is not that of an iswitch, or if the switch has another version of the protocol.
        """
        magic, version, ports, bus_bits, members, jobs, window, elements = self.registers(
            Register.MAGIC, REGISTERS_PER_READ
        )
        if magic != MAGIC or version != VERSION:
            raise IswitchError(
                f"{self.address} answers as {magic:#010x}, version {version}, but an iswitch of version "
                f"{VERSION} answers as {MAGIC:#010x}: check that this is the address of an iswitch, and install the "
                "driver of its version"
            )
        return SwitchInfo(
            ports=ports,
            bus_bits=bus_bits,
            members=members,
            jobs=jobs,
            window=window,
            elements=elements,
            replay=self.replay(),
        )

    def replay(self) -> Replay | None:
        """Return what the replay service was built with, as the registers report it; None if there is no such
        service.

        Raises
        ------
        IswitchError
            If no service can have such sizes.
        """
        values = self.registers(Register.REPLAY, len(ReplayRegister))
        built: dict[str, Any] = {register.name.lower(): value for register, value in zip(ReplayRegister, values)}
        try:
            return Replay(**built) if any(values) else None
        except ValueError as error:
            raise IswitchError(
                f"{self.address} shows a replay service that this driver does not know ({error}): install the driver "
                "of its version"
            ) from error

    def counters(self, ports: int | None = None) -> dict[str, int]:
        """Return all counters by name.

        Parameters
        ----------
        ports : int or None
            Number of ports. None: read it from the switch.

        Returns
        -------
        dict of str to int
            Counters of frames and of the whole switch with their names in `iswitch.wire` (`LENGTH`, `RESULTS`),
            counters of a port as `port0.RX_ERROR`, and counters of a replay service as `replay.DONE`.
        """
        ports = self.registers(Register.PORTS, 1)[0] if ports is None else ports
        counters = dict(zip(Outcome.__members__, self.registers(Register.OUTCOMES, len(Outcome))))
        counters |= zip(Stat.__members__, self.registers(Register.STATS, len(Stat)))
        for port in range(ports):
            values = self.registers(port_counter_register(port, PortCounter(0)), len(PortCounter))
            counters |= zip((f"port{port}.{name}" for name in PortCounter.__members__), values)
        if self.registers(Register.REPLAY, 1)[0]:
            values = self.registers(Register.REPLAY_OUTCOMES, len(ReplayOutcome))
            counters |= zip((f"replay.{name}" for name in ReplayOutcome.__members__), values)
        return counters

    def job(self, job: int) -> JobStatus:
        """Return the state of one job."""
        header, body = self.read(Register.MAGIC, job=job)
        return JobStatus(
            job,
            JobState(int(body["state"])),
            int(header["epoch"]),
            int(body["world"]),
            int(body["live"]),
            int(body["threshold"]),
        )
