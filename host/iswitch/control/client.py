"""Control messages: membership of a job, and the switch's registers. Section 4 and 5 of `docs/protocol.md`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from iswitch.config import Config, Replay
from iswitch.control.explanations import REFUSALS
from iswitch.driver.membership import Membership
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.errors import CollectiveTimeoutError, IswitchError, NotAMemberError, RefusedError, SwitchUnreachableError
from iswitch.wire import (
    ACK,
    CONTROL,
    HEADER,
    MAGIC,
    NO_MEMBER,
    REGISTERS_PER_READ,
    VERSION,
    Action,
    JobState,
    Outcome,
    PortCounter,
    Reason,
    Register,
    Standing,
    Stat,
    Type,
    port_counter_register,
    version_type,
)
from iswitch.wire.replay import Fate, ReplayRegister

__all__ = ["Answer", "Control", "JobRunningError", "JobStatus"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 0.5
_FIRST_POLL_S, _LONGEST_POLL_S = 0.001, 0.05
_ACK_VERSION_TYPE = version_type(Type.ACK)


class Answer(NamedTuple):
    """An acknowledgement: records of `HEADER` and `ACK`."""

    header: np.void
    body: np.void

    @property
    def reason(self) -> Reason:
        return Reason(int(self.body["reason"]))


class JobRunningError(RefusedError):
    """The switch would let this worker into a running job, but the worker did not ask for that (`elastic`)."""


class JobStatus(NamedTuple):
    """A job as seen from outside; all but `job` and `state` are 0 if there is none."""

    job: int
    state: JobState
    epoch: int
    world: int
    live: int
    threshold: int


class Control:
    """Sends requests to the switch, each again and again until the answer comes.

    Parameters
    ----------
    transport : Transport
        Carries the messages.
    address : str
        Of the switch, for messages.
    timeout_s : float
        Seconds without an answer until SwitchUnreachableError.
    timeout_name : str
        The caller's parameter that sets `timeout_s`, for messages; "" if there is none.
    strangers : callable or None
        Called with (buffer, bytes, segment_bytes) of all other frames that are received meanwhile.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        address: str = "the switch",
        timeout_s: float = 10.0,
        timeout_name: str = "",
        strangers: Callable[[memoryview, int, int], None] | None = None,
    ):
        self.transport, self.address, self.timeout_s, self.strangers = transport, address, timeout_s, strangers
        self.timeout_name = timeout_name
        self._number = 0  # of the last LEAVE, RESET, SET_H or HALT
        self.newcomer = False
        """The last `join` was of a job that ran already."""
        self.seat: Membership | None = None
        """What the last Join was granted, also while `join` still waits for the other workers."""
        self._serial = self.transport.randbits(31)  # tells the answers to other requests apart
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def request(
        self,
        action: Action,
        *,
        job: int = 0,
        member: int = NO_MEMBER,
        token: int = 0,
        epoch: int = 0,
        seq: int | None = None,
        timeout_s: float | None = None,
        **body: int,
    ) -> Answer:
        """Sends one control message and returns its answer, refusals too. `body` names fields of `wire.CONTROL`. Raises
        SwitchUnreachableError if no answer comes within `timeout_s` (None: that of this object)."""
        if seq is None:
            self._serial = seq = (self._serial + 1) % 2**32
        nonce = body.setdefault("nonce", self.transport.randbits(64))
        record = np.zeros(1, np.dtype(HEADER.descr + CONTROL.descr))
        fields = {
            "version_type": version_type(Type.CONTROL),
            "job": job,
            "epoch": epoch,
            "seq": seq,
            "member": member,
            "token": token,
            "action": action,
        } | body
        for name, value in fields.items():
            record[name] = value
        message = record.tobytes()

        now = self.transport.now()
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        deadline, wait_s = now + limit_s, _FIRST_WAIT_S
        while now < deadline:
            self.transport.send(message, len(message))
            until = min(now + wait_s, deadline)
            while (now := self.transport.now()) < until:
                size, segment_bytes = self.transport.receive(self._buffer, until - now)
                if size and (answer := self._find(size, segment_bytes, action, seq, nonce)):
                    return answer
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        shut, fault = getattr(self.transport, "refused", False), getattr(self.transport, "fault", "")
        found = f"{fault}; " if fault else "its host says that no program listens at this port; " if shut else ""
        name = f" (`{self.timeout_name}`)" if self.timeout_name and timeout_s is None else ""
        port = "" if ":" in self.address else " (26963, since the address names none)"
        raise SwitchUnreachableError(
            f"the switch at {self.address} has not answered for {limit_s:g} s{name}: "
            f"{found}start the switch (a board, or the emulator on this machine), and check the address and the port{port}"
        )

    def _find(self, size: int, segment_bytes: int, action: int, seq: int, nonce: int) -> Answer | None:
        for at in range(0, size, segment_bytes):
            if min(segment_bytes, size - at) == HEADER.itemsize + ACK.itemsize:
                header = np.frombuffer(self._buffer, HEADER, 1, at).copy()[0]
                body = np.frombuffer(self._buffer, ACK, 1, at + HEADER.itemsize).copy()[0]
                if (header["version_type"], header["seq"], body["action"], body["nonce"]) == (
                    _ACK_VERSION_TYPE,
                    seq,
                    action,
                    nonce,
                ):
                    return Answer(header, body)
        if self.strangers:
            self.strangers(self._buffer, size, segment_bytes)
        return None

    def _granted(self, answer: Answer, wish: str) -> Answer:
        """Returns the answer. Raises RefusedError if the answer is a refusal."""
        if answer.reason == Reason.DONE:
            return answer
        meaning, remedy = REFUSALS[answer.reason]
        body = answer.body
        job = (
            (
                f" (the job: world {body['world']}, {body['live']} of them joined, threshold {body['threshold']}, "
                f"elements {body['elements']})"
            )
            if body["state"]
            else ""
        )
        raise RefusedError(
            f"the switch at {self.address} refused to {wish}: {meaning}{job}. {remedy[:1].upper()}{remedy[1:]}",
            answer.reason,
        )

    # Membership

    def join(
        self,
        membership: Membership,
        *,
        timeout_s: float,
        timeout_name: str = "join_timeout_s",
        elastic: bool = False,
        waiting: Callable[[bool], None] | None = None,
    ) -> Membership:
        """Becomes a member of a job, and waits until all `world` workers are members.

        Parameters
        ----------
        membership : Membership
            What is wished for.
        timeout_s : float
            Seconds until CollectiveTimeoutError.
        timeout_name : str
            The caller's parameter that sets `timeout_s`, for messages.
        elastic : bool
            Join also a job that runs already, when its present collective ends.
        waiting : callable or None
            Called each time before a running job is asked again, with whether the switch has refused the rank.

        Returns
        -------
        Membership
            What the switch granted.

        Raises RefusedError, SwitchUnreachableError, CollectiveTimeoutError.
        """
        deadline, pause_s = self.transport.now() + timeout_s, _FIRST_POLL_S
        standing, state, self.newcomer, self.seat = Standing.NONE, JobState.NONE, False, None
        try:
            while standing != Standing.LIVE or state == JobState.FORMING:
                answer = self._request_join(membership)
                state, late = JobState(int(answer.body["state"])), self.transport.now() > deadline
                if answer.reason == Reason.TOKEN and membership.token:
                    # The entry yielded to another worker before it was confirmed, or the job ended: start over.
                    membership, standing, self.seat = replace(membership, token=0), Standing.NONE, None
                    continue
                taken = answer.reason == Reason.MEMBER and elastic and state > JobState.FORMING and not late
                if not taken:  # else: perhaps by one that is dead, and will be evicted when the others wait for it
                    membership = self._learn(
                        membership, self._granted(answer, f"let a worker join job {membership.job}")
                    )
                    self.seat = membership
                    standing = Standing(int(answer.body["standing"]))
                    if (
                        standing != Standing.LIVE
                    ):  # a job that forms waits for who is pending, so that a newcomer is told from the others there
                        self.newcomer = state != JobState.FORMING
                if self.newcomer and not elastic:
                    raise JobRunningError(
                        f"job {membership.job} at {self.address} is running already: join it with elastic=True, or use another "
                        "job number",
                        Reason.MEMBER,
                    )
                if late:
                    raise self._late(membership, answer, f"within {timeout_s:g} s (`{timeout_name}`)")
                if taken or standing == Standing.JOINING or (standing == Standing.LIVE and state == JobState.FORMING):
                    if waiting and state > JobState.FORMING:
                        waiting(taken)
                    self.transport.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_POLL_S)
        except BaseException as error:
            if membership.token and not isinstance(error, SwitchUnreachableError):
                self.leave(membership, timeout_s=0.2)
            raise
        self._number = 0
        return membership

    def _late(self, membership: Membership, answer: Answer, within: str) -> CollectiveTimeoutError:
        where = f"job {membership.job} at {self.address}"
        if answer.body["state"] == JobState.FORMING:
            return CollectiveTimeoutError(
                f"{where} waits for {membership.world} workers, of which {answer.body['live']} have joined {within}: "
                "start the others, with the same address, job and key"
            )
        return CollectiveTimeoutError(
            f"{where} is running and has not let this worker in {within}. A running job lets workers in when a collective ends: "
            f"check that its {answer.body['live']} workers are at work, and that this worker's rank is free"
        )

    def _request_join(self, membership: Membership) -> Answer:
        m = membership
        return self.request(
            Action.JOIN,
            job=m.job,
            member=m.wanted,
            token=m.token,
            key=m.key,
            nonce=m.nonce,
            world=m.world,
            threshold=m.threshold,
            format=m.format,
            fraction=m.fraction,
            elements=m.elements,
            mode=m.mode,
            deadline_us=m.deadline_us,
            evict_us=m.evict_us,
            staleness=m.staleness,
            segments=m.segments,
        )

    @staticmethod
    def _learn(membership: Membership, answer: Answer) -> Membership:
        header, body = answer
        return replace(
            membership,
            member=int(header["member"]),
            token=int(header["token"]),
            epoch=int(header["epoch"]),
            window=int(body["window"]),
            first_seq=int(body["first_seq"]),
            threshold=int(body["threshold"]),
        )

    def renew(self, membership: Membership) -> Membership:
        """The same membership after a reset of the job: its new epoch. NotAMemberError if it is gone."""
        answer = self._request_join(membership)
        if answer.reason != Reason.DONE:
            raise NotAMemberError(
                f"job {membership.job} at {self.address} was ended, and the switch does not know this worker any more "
                f"({REFUSALS[answer.reason][0]}): call `rejoin`, then `sync_state`, or make a new Worker"
            )
        renewed = self._learn(membership, answer)
        if (renewed.token, renewed.member) != (membership.token, membership.member):
            self.leave(renewed, timeout_s=0.2)  # a Join of a job that has ended is a new one
            raise NotAMemberError(
                f"job {membership.job} at {self.address} was ended and created again: call `rejoin`, then `sync_state`, or make a "
                "new Worker"
            )
        return renewed

    def _rising(self, action: Action, membership: Membership, timeout_s: float | None = None, **body: int) -> Answer:
        self._number += 1
        return self.request(
            action,
            job=membership.job,
            member=membership.member,
            token=membership.token,
            epoch=membership.epoch,
            seq=self._number,
            timeout_s=timeout_s,
            **body,
        )

    def leave(self, membership: Membership, *, timeout_s: float = 1.0) -> bool:
        """Gives the membership up. False if the switch did not confirm it: it is silent, or knew nothing of it."""
        try:
            return self._rising(Action.LEAVE, membership, timeout_s).reason == Reason.DONE
        except (SwitchUnreachableError, OSError):
            return False

    def reset(self, membership: Membership) -> Membership:
        """Empties the job's ring; returns the membership in the new epoch. RefusedError, SwitchUnreachableError."""
        answer = self._granted(self._rising(Action.RESET, membership), f"reset job {membership.job}")
        return replace(membership, epoch=int(answer.header["epoch"]), first_seq=int(answer.body["first_seq"]))

    def set_h(self, membership: Membership, threshold: int) -> Membership:
        """Changes the number of workers that complete a sum, for all members. RefusedError, SwitchUnreachableError."""
        self._granted(
            self._rising(Action.SET_H, membership, threshold=threshold),
            f"set the threshold of job {membership.job} to {threshold}",
        )
        return replace(membership, threshold=threshold)

    def halt(self, membership: Membership, on: bool) -> None:
        """Suspends the job for all its members, or lets it go on. RefusedError, SwitchUnreachableError."""
        self._granted(
            self._rising(Action.HALT, membership, mode=int(on)), f"{'halt' if on else 'resume'} job {membership.job}"
        )

    def end_job(self, job: int, key: int) -> None:
        """Ends a job whoever is in it, which frees its number. RefusedError, SwitchUnreachableError."""
        self._granted(self.request(Action.RESET, job=job, key=key), f"end job {job}")

    # Registers

    def read(self, address: int, *, job: int = 0, timeout_s: float | None = None) -> Answer:
        """Eight registers from `address` in `Answer.body["registers"]`, with the state of `job`.
        SwitchUnreachableError."""
        return self.request(Action.READ, address=address, job=job, timeout_s=timeout_s)

    def registers(self, first: int, count: int) -> list[int]:
        """`count` registers from `first`."""
        values: list[int] = []
        while len(values) < count:
            values += self.read(first + len(values)).body["registers"].tolist()
        return values[:count]

    def config(self) -> Config:
        """What the switch is built with. IswitchError if it is none of ours, or of another version."""
        magic, version, ports, bus_bits, members, jobs, window, elements = self.registers(
            Register.MAGIC, REGISTERS_PER_READ
        )
        if magic != MAGIC or version != VERSION:
            raise IswitchError(
                f"{self.address} answers as {magic:#010x}, version {version}, but an iswitch of version "
                f"{VERSION} says {MAGIC:#010x}: use a driver of the switch's version"
            )
        return Config(
            ports=ports,
            bus_bits=bus_bits,
            members=members,
            jobs=jobs,
            window=window,
            elements=elements,
            replay=self.replay(),
        )

    def replay(self) -> Replay | None:
        """What the switch's replay service is built with, as far as its registers say. How it stores priorities, they
        do not."""
        values = self.registers(Register.REPLAY, len(ReplayRegister))
        built: dict[str, Any] = {register.name.lower(): value for register, value in zip(ReplayRegister, values)}
        return Replay(**built) if any(values) else None

    def counters(self, ports: int | None = None) -> dict[str, int]:
        """Every counter by its name in `iswitch.wire` (`LENGTH`, `RESULTS`), those of ports as `port0.RX_ERROR`, those
        of a replay service, if there is one, as `replay.DONE`."""
        ports = self.registers(Register.PORTS, 1)[0] if ports is None else ports
        counts = dict(zip(Outcome.__members__, self.registers(Register.OUTCOMES, len(Outcome))))
        counts |= zip(Stat.__members__, self.registers(Register.STATS, len(Stat)))
        for port in range(ports):
            values = self.registers(port_counter_register(port, PortCounter(0)), len(PortCounter))
            counts |= zip((f"port{port}.{name}" for name in PortCounter.__members__), values)
        if self.registers(Register.REPLAY, 1)[0]:
            counts |= zip(
                (f"replay.{name}" for name in Fate.__members__), self.registers(Register.REPLAY_FATES, len(Fate))
            )
        return counts

    def job(self, job: int) -> JobStatus:
        """The state of one job."""
        header, body = self.read(Register.MAGIC, job=job)
        return JobStatus(
            job,
            JobState(int(body["state"])),
            int(header["epoch"]),
            int(body["world"]),
            int(body["live"]),
            int(body["threshold"]),
        )
