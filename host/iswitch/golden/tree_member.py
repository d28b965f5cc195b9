"""Golden model of a switch as a member of another: how it joins its parent, leaves it, and follows its epochs.

**Joining.** A Join names in the header's `members` the global ranks that come with it. When all ranks that belong below
a leaf are live, each further Join from below makes the leaf send its own Join up, with all their ranks: the workers'
retransmissions carry it through any loss. The root, where all ranks come together, answers *running*. On the way down
each switch adopts its parent's epoch and first seq, empties its slots and only then reports to its members that the
job runs. Before that it accepts no contribution (FORMING).

**Beginning anew.** No member below a leaf may take part in sums that another part of the tree has begun without it. So
the root begins its next epoch when a member joins a tree that runs, and all come to it with empty slots. A leaf that
needs another epoch joins its parent again, as if it had restarted: with its next nonce, in the place that it had. It
does this after a RESET, after the Join of a new member, and when it learns that the parent does not know it any more.
Meanwhile its job forms.

**Leaving.** The last member's Leave is passed up. It is answered (JOB: the job has ended) when the parent has answered,
because only that member repeats it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.golden.decide import tree
from iswitch.golden.decide.job import Job, Verdict, ended, live_ranks
from iswitch.golden.decide.renewal import begin_anew
from iswitch.golden.decide.ring import new_ring
from iswitch.golden.decide.slot import Work
from iswitch.golden.egress import compose
from iswitch.golden.ingress.parse import parse_control
from iswitch.golden.interface.message import Datagram, Message, Request, Source
from iswitch.golden.switch import Switch
from iswitch.wire import ACK, NO_MEMBER, UDP_PORT, AckRegister, Action, JobState, Outcome, Reason

__all__ = ["Parent", "ParentMembership", "TreeMember", "has_several"]

NONCE_COUNT_BITS = 16
"""The lowest bits of a leaf's nonce, which count how often the leaf has begun anew."""


class Parent(NamedTuple):
    """Where a job's parent is: the port that leads there and its addresses.

    `ranks`: the global ranks that join below this switch. `udp_port`: iswitch's, unless the parent is a software switch
    at another port.
    """

    port: int
    mac: bytes
    ip: bytes
    ranks: int
    udp_port: int = UDP_PORT

    @property
    def source(self) -> Source:
        return Source(self.port, self.mac, int.from_bytes(self.ip, "big"), self.udp_port)


class ParentMembership(NamedTuple):
    """What a leaf is at its parent.

    `nonce`, `token`: those of the Join that created the job here; the leaf has no secrets of its own. The nonce rises
    by one each time that the leaf begins anew. `job_token`: that
    of the parent's job. `challenge`: the parent's, as it said last. `ran`: the parent has once reported that the job
    runs. `reason`: why the parent refused the leaf's last Join.
    """

    nonce: int
    token: int
    member: int = NO_MEMBER
    job_token: int = 0
    challenge: int = 0
    ran: bool = False
    reason: Reason = Reason.DONE


def has_several(ranks: int) -> bool:
    """Return whether a mask has more than one rank."""
    return bool(ranks & ranks - 1)


class TreeMember(Switch):
    """A switch that may be a member of a parent in some jobs.

    Parameters
    ----------
    config, mac, ip, seed, operator_key
        As of `JobTable`.
    parents : dict of int to Parent, optional
        The parents of the jobs in which this switch is a leaf.
    """

    def __init__(
        self,
        config: Config,
        *,
        mac: bytes,
        ip: bytes,
        seed: int,
        operator_key: int = 0,
        parents: dict[int, Parent] | None = None,
    ) -> None:
        super().__init__(config, mac=mac, ip=ip, seed=seed, operator_key=operator_key)
        self.parents = parents or {}
        self.above: dict[int, ParentMembership] = {}

    def ranks_below(self, number: int) -> int:
        return self.parents[number].ranks if number in self.parents else 0

    def send_up(self, number: int, payload: bytes) -> list[Datagram]:
        """Return a payload for the parent of a job."""
        to = self.parents[number].source
        return [Datagram(to, payload)]

    # Control messages of members

    def handle_control(self, message: Message, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Handle a control message. At a leaf, the last Leave goes up, and a Join or a RESET makes the leaf join."""
        number, request = message.job, parse_control(message)
        if number not in self.parents or request.action not in (Action.JOIN, Action.LEAVE, Action.RESET, Action.END):
            return super().handle_control(message, now_us)
        if request.action == Action.LEAVE and self.is_last_leave(message, request, now_us):
            return Outcome.CONTROL, self.request_parent(number, Action.LEAVE)
        outcome, sent = super().handle_control(message, now_us)
        job = self.jobs[number]
        if job.state == JobState.NONE:
            self.above.pop(number, None)
        elif request.action in (Action.JOIN, Action.RESET) and self.may_join(number, job):
            sent += self.request_parent(number)
        return outcome, sent

    def is_last_leave(self, message: Message, request: Request, now_us: int) -> bool:
        """Return whether this is a valid Leave of the last member of a job in which the parent knows this switch."""
        job = self.jobs[message.job]
        return bool(
            message.job in self.above
            and self.above[message.job].member != NO_MEMBER
            and job.live == 1 << request.member
            and self.decide(message, request, now_us).job.state == JobState.NONE
        )

    def may_join(self, number: int, job: Job) -> bool:
        """Return whether this leaf may join its parent: all ranks that belong below are live, or the job has run."""
        is_complete = self.above[number].ran or live_ranks(job) == self.parents[number].ranks
        return job.state == JobState.FORMING and is_complete

    def request_parent(self, number: int, action: Action = Action.JOIN) -> list[Datagram]:
        """Return this leaf's own Join or Leave.

        The parent recognises retransmissions by the nonce of a Join and by the number of a Leave. That is always 1, for
        a leaf sends no other command.
        """
        job, above = self.jobs[number], self.above[number]
        return self.send_up(
            number,
            compose.control(
                job=number,
                seq=int(action == Action.LEAVE),
                member=above.member,
                token=above.token,
                ranks=self.parents[number].ranks,
                action=action,
                key=job.key,
                nonce=above.nonce,
                job_token=job.token,
                challenge=above.challenge,
                operator_key=self.operator_key if action == Action.JOIN else 0,
                **job.settings._asdict(),
            ),
        )

    def decide(self, message: Message, request: Request, now_us: int) -> Verdict:
        number, leaf = message.job, message.job in self.parents
        request = request._replace(ranks=message.members if self.config.uplinks else 0)
        job = self.job(number)
        reason = self.tree_objection(request, job, leaf)
        if reason != Reason.DONE:
            return Verdict(job, reason, request.member, request.token)
        verdict = super().decide(message, request, now_us)
        if not leaf or verdict.job.state == JobState.NONE:
            return verdict
        if number not in self.above:
            self.above[number] = ParentMembership(request.nonce, request.token)
        if job.state == JobState.RUNNING and verdict.job.state == JobState.FORMING:
            self.take_next_nonce(number)
        if request.action == Action.JOIN and verdict.reason == Reason.DONE:
            verdict = verdict._replace(reason=self.above[number].reason)
        runs = job.state == verdict.job.state == JobState.RUNNING  # only the parent makes a leaf's job run
        state = JobState.RUNNING if runs else JobState.FORMING
        return verdict._replace(job=self.close_slots(number, verdict.job, verdict.works)._replace(state=state))

    def take_next_nonce(self, number: int) -> None:
        """Make this leaf another member to its parent, which takes the place of the one that it was."""
        above = self.above[number]
        low_bits = (1 << NONCE_COUNT_BITS) - 1
        nonce = above.nonce & ~low_bits | (above.nonce + 1) & low_bits
        self.above[number] = above._replace(nonce=nonce, reason=Reason.DONE)

    def join_again(self, number: int) -> list[Datagram]:
        """Return the Join of this leaf, which its parent does not know. If the job runs here, it begins anew."""
        if self.jobs[number].state == JobState.RUNNING:
            self.jobs[number] = begin_anew(self.config, self.jobs[number], is_leaf=True)
            self.take_next_nonce(number)
        return self.request_parent(number)

    def tree_objection(self, request: Request, job: Job, leaf: bool) -> Reason:
        """Return why a tree forbids a request; DONE if it does not.

        A Join that names ranks is that of a switch, whose sums are added unchecked. So it proves by the operator key
        that it is one of this tree. A tree has no asynchronous jobs, no sums of fewer than all workers, no segments
        whose uplink fits no frame, and no HALT. FBCAST belongs to the root, because it must happen everywhere at once.
        """
        settings, action = request.settings, request.action
        in_tree = leaf or job.tree
        if action == Action.JOIN and request.ranks and request.operator_key != self.operator_key:
            return Reason.OPERATOR_KEY
        if action == Action.JOIN and settings.segments and (leaf or request.ranks):
            return Reason.SEGMENTS
        if action == Action.JOIN and (leaf or has_several(request.ranks)):
            if settings.threshold != settings.world:
                return Reason.THRESHOLD
            return Reason.ELEMENTS if settings.elements > self.config.uplink_elements else Reason.DONE
        if action == Action.SET_H and in_tree and settings.threshold != job.settings.world:
            return Reason.THRESHOLD
        if leaf and action == Action.FBCAST:
            return Reason.ACTION
        return Reason.ACTION if action == Action.HALT and in_tree else Reason.DONE

    def close_slots(self, number: int, job: Job, works: Sequence[Work]) -> Job:
        """Return the job after operations that completed slots. At a leaf these slots go up instead."""
        ring = job.ring
        for work in works:
            ring = tree.close(ring, work, number in self.parents)
        return job._replace(ring=ring)

    # Answers of the parent

    def handle_parent_ack(self, message: Message) -> tuple[Outcome, list[Datagram]]:
        """Handle the parent's answer to a Join or a Leave.

        The first Join carries no challenge that the parent has said. The leaf answers another CHALLENGE at once by
        another Join; if that is lost, the members' retransmissions repeat it. While the job runs, such a CHALLENGE
        means that the leaf is not a member any more.
        """
        number, body = message.job, np.frombuffer(message.payload, ACK, 1)[0]
        above, reason = self.above[number], Reason(min(int(body["reason"]), max(Reason)))
        if int(body["nonce"]) != above.nonce:
            return Outcome.TOKEN, []
        if body["action"] == Action.LEAVE:
            self.end_job(number)
            return Outcome.CONTROL, []
        registers = body["registers"]
        challenge = int(registers[AckRegister.CHALLENGE])
        forms = self.jobs[number].state == JobState.FORMING
        if reason == Reason.CHALLENGE:
            if challenge != above.challenge:
                self.above[number] = above._replace(challenge=challenge)
                return Outcome.CONTROL, self.join_again(number)
        elif reason != Reason.DONE:
            refused = above._replace(member=NO_MEMBER, reason=reason)
            self.above[number] = refused if forms else above
        elif int(body["window"]) != self.config.window:
            self.above[number] = above._replace(reason=Reason.ELEMENTS)
        else:
            if forms:
                job_token = int(registers[AckRegister.JOB_TOKEN])
                self.above[number] = above._replace(member=message.member, job_token=job_token, reason=Reason.DONE)
            if body["state"] == JobState.RUNNING:
                renewed = bool(registers[AckRegister.RENEWED])
                self.adopt_epoch(number, message.epoch, int(body["first_seq"]), renewed=renewed)
        return Outcome.CONTROL, []

    def adopt_epoch(self, number: int, epoch: int, first_seq: int, *, renewed: bool) -> None:
        """Adopt the epoch of the parent's job, which runs or has begun anew, and empty the slots.

        While the job runs here, only a later epoch is adopted, because an answer to an earlier Join may come late.
        Epochs rise by one when the job begins anew.
        """
        job, above = self.jobs[number], self.above[number]
        if job.state == JobState.RUNNING and not 0 < (epoch - job.epoch) % 2**16 < 2**15:
            return
        ring = new_ring(
            first_seq, self.config.window, self.config.members, job.live, job.ring.threshold, job.ring.deadline_us
        )
        self.jobs[number] = job._replace(
            ring=ring, epoch=epoch, first_seq=first_seq, state=JobState.RUNNING, renewed=renewed
        )
        self.above[number] = above._replace(ran=True)

    def handle_parent_notice(self, message: Message) -> tuple[Outcome, list[Datagram]]:
        """Handle a NOTICE of the parent.

        If a slot that was sent up belongs to another collective there, the slot remembers that. If the parent is in
        another epoch, the leaf requests that. If the parent has no such job, the job ends here, and its members learn
        it by NOTICE and join anew. For all other reasons the parent does not know this leaf any more, and the leaf
        joins again; but a notice of an earlier epoch came late.
        """
        number, above, job = message.job, self.above[message.job], self.jobs[message.job]
        if message.token != above.token or job.state == JobState.FORMING:
            return Outcome.TOKEN, []
        if message.reason == Reason.COLLECTIVE:
            if message.epoch != job.epoch:
                return Outcome.EPOCH, []
            ring, outcome = tree.contest(job.ring, seq=message.seq, collective=message.collective)
            self.jobs[number] = job._replace(ring=ring)
            return outcome, []
        if message.reason == Reason.EPOCH:
            return Outcome.CONTROL, self.request_parent(number) if message.epoch != job.epoch else []
        if message.reason == Reason.JOB:
            self.end_job(number)
            return Outcome.CONTROL, []
        return Outcome.CONTROL, self.join_again(number) if message.epoch == job.epoch else []

    def end_job(self, number: int) -> None:
        """End a job at this switch."""
        self.jobs[number] = ended(self.jobs[number])
        del self.above[number]
