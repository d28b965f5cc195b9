"""Control messages at one switch: Join, commands and READ. Section 4 of `docs/protocol.md`."""

from iswitch.config import Config
from iswitch.golden.decide import claims as claims_of
from iswitch.golden.decide import random, views
from iswitch.golden.decide.command import execute, execute_by_key
from iswitch.golden.decide.job import Verdict, is_abandoned
from iswitch.golden.decide.join import join
from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import parse_control
from iswitch.golden.interface.message import Datagram, Message, Request
from iswitch.golden.jobs import JobTable
from iswitch.golden.replay.service import Service
from iswitch.wire import REGISTERS_PER_READ, AckRegister, Action, JobState, MemberState, Outcome, Reason

__all__ = ["ControlPlane"]


class ControlPlane(JobTable):
    """A switch that handles control messages. Parameters as of `JobTable`."""

    def __init__(self, config: Config, *, mac: bytes, ip: bytes, seed: int, operator_key: int = 0) -> None:
        super().__init__(config, mac=mac, ip=ip, seed=seed, operator_key=operator_key)
        self.service = Service(config.replay) if config.replay else None

    def handle_control(self, message: Message, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Handle a control message: return its outcome, the acknowledgement, and the results that it completes."""
        number, request = message.job, parse_control(message)
        verdict = self.decide(message, request, now_us)
        if number < self.config.jobs:
            self.count_admissions(self.jobs[number], verdict.job.ring)
            self.jobs[number] = verdict.job
        sent = self.reply(message, self.acknowledgement(message, request, verdict, now_us))
        for work in verdict.works:
            sent += self.execute(number, work)
        if number < self.config.jobs:
            sent += self.evict_for_joining(number, verdict, now_us)
            self.admit_at_boundary(number, now_us)
        return Outcome.REFUSED if verdict.reason else Outcome.CONTROL, sent

    def evict_for_joining(self, number: int, verdict: Verdict, now_us: int) -> list[Datagram]:
        """Evict a member that keeps a joining one out of an asynchronous job.

        The repeated Join of the joining member shows that it waits for the next boundary. If all live members are
        silent, the switch may not have heard them, and evicts none of them.
        """
        job, index = verdict.job, verdict.entry_index
        if not job.claims or index is None or job.standing(index) != MemberState.JOINING or is_abandoned(job, now_us):
            return []
        return self.evict(number, claims_of.members_behind(job.claims, job.ring), now_us)

    def decide(self, message: Message, request: Request, now_us: int) -> Verdict:
        """Return what a control message does to its job."""
        job = self.job(message.job)
        unchanged = Verdict(job, Reason.DONE, message.member, message.token)
        if request.action == Action.READ:
            return unchanged
        if request.action not in tuple(Action):
            return unchanged._replace(reason=Reason.ACTION)
        if message.job >= self.config.jobs:
            return unchanged._replace(reason=Reason.JOB)
        if request.action in (Action.END, Action.RESUME):
            return execute_by_key(job, request, self.operator_key)
        if request.action != Action.JOIN:
            is_leaf = bool(self.ranks_below(message.job))
            return execute(self.config, job, request, message.source, is_leaf=is_leaf)
        after, offer = random.offer(self.random, self.config.slots)
        verdict = join(self.config, job, request, message.source, offer, now_us, self.ranks_below(message.job))
        if job.state == JobState.NONE != verdict.job.state:
            self.random = after
        return verdict

    def ranks_below(self, number: int) -> int:
        """Return the ranks that join a job here; 0 for all."""
        return 0

    def acknowledgement(self, message: Message, request: Request, verdict: Verdict, now_us: int) -> bytes:
        """Return the payload of the acknowledgement of a control message."""
        job, settings, index = verdict.job, verdict.job.settings, verdict.entry_index
        registers = [0] * REGISTERS_PER_READ
        if request.action == Action.READ:
            registers = self.registers(request.address, now_us)
        elif request.action in (Action.JOIN, Action.END, Action.RESUME):
            registers[AckRegister.CHALLENGE] = job.challenge
            if index is not None:
                registers[AckRegister.JOB_TOKEN] = job.token
                registers[AckRegister.RENEWED] = job.renewed
        return compose.ack(
            job=message.job,
            epoch=job.epoch,
            seq=message.seq,
            member=verdict.member,
            token=verdict.token,
            registers=tuple(registers),
            action=request.action,
            reason=verdict.reason,
            state=job.state,
            window=self.config.window,
            elements=settings.elements or self.config.elements,
            world=settings.world,
            live=job.live.bit_count(),
            nonce=request.nonce,
            threshold=settings.threshold,
            standing=0 if index is None else job.standing(index),
            first_seq=job.first_seq if index is None else job.member_first_seq(index),
            members=self.config.members,
            address=request.address,
        )

    def registers(self, address: int, now_us: int) -> list[int]:
        """Return `REGISTERS_PER_READ` registers from an address, as READ does."""
        viewed = [
            views.register(self.config, self.jobs, (address + k) % 2**32, now_us) for k in range(REGISTERS_PER_READ)
        ]
        counted = self.counter_registers(address)
        return [count if value is None else value for value, count in zip(viewed, counted, strict=True)]

    def counter_registers(self, address: int) -> list[int]:
        """Return constants and counters from an address; 0 where there are none."""
        values = self.counts.registers(self.service)
        return [values.get((address + k) % 2**32, 0) for k in range(REGISTERS_PER_READ)]

    def counters(self) -> dict[str, int]:
        """Return every counter by name, zeros too: `outcome.ADDED`, `stat.RESULTS`, `port0.RX_ERROR`, `replay.DONE`."""
        return self.counts.by_name(self.service)
