"""The control client: join and leave a job, reset, halt and end it. Section 4 of `docs/protocol.md`."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from iswitch.control.exchange import Answer
from iswitch.control.refusals import NO_JOB_FOR_OPERATOR, REFUSALS, REFUSED_OPERATOR, Refusal
from iswitch.control.registers import RegisterReader
from iswitch.driver.membership import Membership
from iswitch.driver.transport import Transport
from iswitch.errors import ClosedError, CollectiveTimeoutError, NotAMemberError, RefusedError, SwitchUnreachableError
from iswitch.wire import VIEWED_MEMBERS, AckRegister, Action, JobState, MemberState, Reason

__all__ = ["Control", "EntryPermit", "JobRunningError"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
"""Pauses between two Joins of a worker that waits for other workers or to be admitted."""
_CHALLENGES = 2 * VIEWED_MEMBERS
"""The most Joins in a row. A challenge changes when another worker ends, leaves or replaces something: once for each
other worker of a program that starts again."""
_UNANSWERED = 8
"""The most Joins in a row that get no answer while their permit lasts."""
_CANCEL_TIMEOUT_S = 0.2
"""The longest wait when a Join is taken back."""


_NO_RANK = 254
"""An index that no job has. The switch refuses a Join that requests it after it has checked key and settings, so such a
Join never makes a member."""


class EntryPermit(NamedTuple):
    """Whether a worker may send a Join with the challenge of a running job.

    Attributes
    ----------
    seconds : float
        For how long it may be sent.
    alive : bool
        The switch has lately heard a live member of the job.
    """

    seconds: float
    alive: bool


class JobRunningError(RefusedError):
    """The job is running, and the worker did not request to join a running job (`elastic`)."""


class Control(RegisterReader):
    """A client of the switch's control messages. Parameters as in `Exchange`; registers as in `RegisterReader`.

    Each command of a member or by key raises RefusedError if the switch refuses the command, and SwitchUnreachableError
    if it does not answer. `leave` raises neither.

    Attributes
    ----------
    joined_running_job : bool
        True if the last `join` was of a job that was running already, or has begun anew: its members have a state.
    granted : Membership or None
        What the switch granted to the last Join, also while `join` still waits for other workers.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        address: str = "the switch",
        timeout_s: float = 10.0,
        timeout_name: str = "",
        on_other_burst: Callable[[memoryview, int, int], None] | None = None,
    ):
        super().__init__(
            transport, address=address, timeout_s=timeout_s, timeout_name=timeout_name, on_other_burst=on_other_burst
        )
        self.joined_running_job = False
        self.granted: Membership | None = None
        self._challenges: dict[int, tuple[int, JobState]] = {}  # by job number, with the state of that time
        self._requested: Membership | None = None  # of the Join in progress
        self._state_before = JobState.NONE  # of the job, when it had the challenge of the last Join
        self._number = 0  # of the last LEAVE, RESET, SET_H or HALT

    # Joining

    def join(
        self,
        request: Membership,
        *,
        timeout_s: float,
        timeout_name: str = "join_timeout_s",
        elastic: bool = False,
        on_wait: Callable[[bool], None] | None = None,
        is_alive: Callable[[], bool] | None = None,
        before_entry: Callable[[], EntryPermit] | None = None,
    ) -> Membership:
        """Join a job, and wait until all its `world` workers are members.

        Without `elastic`, this worker never becomes a member of a running job that has live members, not even for a
        moment: the next boundary would admit it, and the members would have to give it their state.

        Parameters
        ----------
        request : Membership
            The requested membership.
        timeout_s : float
            Seconds until CollectiveTimeoutError.
        timeout_name : str
            The caller's parameter that sets `timeout_s`, for messages.
        elastic : bool
            Also join a job that is running, when its present collective ends.
        on_wait : callable or None
            Called before each further Join of a running job. Its argument is True if another member has the rank.
        is_alive : callable or None
            Called if this worker has entered a running job and `elastic` is False: its members seemed dead. If the
            result is False, the worker waits until workers have joined in the place of all members, and the job ends.
        before_entry : callable or None
            Called before each Join with which this worker would become a member of a running job, and with which the
            switch may end the job or remove a silent member. None: such a Join may always be sent, and the job has live
            members.

        Returns
        -------
        Membership
            What the switch granted.

        Raises
        ------
        RefusedError
            If the switch refuses the Join.
        JobRunningError
            If the job is running and `elastic` is False.
        CollectiveTimeoutError
            If workers are missing, or the job does not admit this worker, for `timeout_s`.
        SwitchUnreachableError
            If the switch does not answer.
        """
        deadline, pause_s = self.transport.now() + timeout_s, _FIRST_PAUSE_S
        membership, standing, state = request, MemberState.NONE, JobState.NONE
        self.joined_running_job, self.granted, self._requested = False, None, request
        try:
            while standing != MemberState.LIVE or state == JobState.FORMING:
                answer, probed = self._send_join(membership, before_entry, elastic=elastic)
                state, late = JobState(int(answer.body["state"])), self.transport.now() > deadline
                rank_taken = answer.reason == Reason.MEMBER and elastic and state > JobState.FORMING and not late
                if probed and answer.reason == Reason.MEMBER:  # key and settings are the job's
                    raise self._running_error(membership)
                if not rank_taken:  # else its owner may be dead, and is evicted as soon as a member waits for it
                    self._require_done(answer, f"let a worker join job {membership.job}")
                    standing = MemberState(int(answer.body["standing"]))
                    # The answer that says JOINING may be lost. A running job has a free index only after a departure,
                    # which has changed the challenge: so the state that came with this challenge says the same.
                    if standing == MemberState.JOINING or not self.granted and self._state_before > JobState.FORMING:
                        self.joined_running_job = True
                    self.granted = membership = self._with_grant(membership, answer)
                if self.joined_running_job and not elastic and (is_alive is None or is_alive()):
                    raise self._running_error(membership)
                if late:
                    raise self._late_error(membership, answer, f"within {timeout_s:.3g} s (`{timeout_name}`)")
                waits_for_others = standing == MemberState.LIVE and state == JobState.FORMING
                if rank_taken or standing == MemberState.JOINING or waits_for_others:
                    if on_wait and state > JobState.FORMING:
                        on_wait(rank_taken)
                    self.transport.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except ClosedError:
            raise  # the thread that closes the worker takes the Join back
        except BaseException as error:
            if not isinstance(error, SwitchUnreachableError):
                self.take_back_join(timeout_s=_CANCEL_TIMEOUT_S)
            self._requested = None
            raise
        self._requested = None
        if answer.body["registers"][AckRegister.RENEWED]:
            self.joined_running_job = True
        self._number = 0
        return membership

    @property
    def joining(self) -> bool:
        """True if a Join is in progress, or was interrupted."""
        return self._requested is not None

    def take_back_join(self, *, timeout_s: float) -> None:
        """Leave the job that a Join in progress has entered, also if its acknowledgement has not come.

        Parameters
        ----------
        timeout_s : float
            Seconds to wait for each answer of the switch.
        """
        membership = self.granted
        if self._requested and not membership:
            with contextlib.suppress(SwitchUnreachableError, ClosedError, OSError):
                # The same Join again: its answer has the rank. Without the challenge it makes no new member.
                answer = self._request_join(self._requested, timeout_s, with_challenge=False)
                membership = self._with_grant(self._requested, answer) if answer.reason == Reason.DONE else None
        if membership:
            self.leave(membership, timeout_s=timeout_s)

    def _running_error(self, membership: Membership) -> JobRunningError:
        return JobRunningError(
            f"job {membership.job} at {self.address} is running already: join it with elastic=True, or use another "
            "job number",
            Reason.MEMBER,
        )

    def _send_join(
        self, membership: Membership, before_entry: Callable[[], EntryPermit] | None, *, elastic: bool
    ) -> tuple[Answer, bool]:
        """Send a Join with the job's challenge, and once more with each new one that the switch answers.

        A member's Join does not need the challenge. Without it, the Join of a worker that is no longer a member changes
        nothing.

        Returns
        -------
        answer : Answer
            The switch's answer.
        probed : bool
            The Join requested an index that no job has, because the job runs and `elastic` is False. The switch refuses
            it: for the key, a setting or, if these are the job's, the index.
        """
        unanswered = 0
        for _ in range(_CHALLENGES):
            _, self._state_before = self._challenges.get(membership.job, (0, JobState.NONE))
            guarded = not self.granted and self._state_before > JobState.FORMING
            permit = before_entry() if before_entry and guarded else None
            probed = guarded and not elastic and (permit is None or permit.alive)
            try:
                answer = self._request_join(
                    replace(membership, wanted=_NO_RANK) if probed else membership,
                    permit.seconds if permit else None,
                    with_challenge=not self.granted,
                )
            except SwitchUnreachableError:
                unanswered += 1
                if permit is None or unanswered == _UNANSWERED:
                    raise
                continue
            if answer.reason != Reason.CHALLENGE:
                break
            self.joined_running_job, self.granted = False, None
        return answer, probed

    def _request_join(
        self, membership: Membership, timeout_s: float | None = None, *, with_challenge: bool = True
    ) -> Answer:
        m, challenge = membership, self._challenge(membership.job)
        answer = self.request(
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
            job_token=m.job_token,
            challenge=challenge if with_challenge else ~challenge % 2**32,  # far from those that may follow
            timeout_s=timeout_s,
        )
        self._record_challenge(m.job, answer)
        return answer

    def _record_challenge(self, job: int, answer: Answer) -> None:
        challenge, state = int(answer.body["registers"][AckRegister.CHALLENGE]), JobState(int(answer.body["state"]))
        self._challenges[job] = challenge, state

    def _challenge(self, job: int) -> int:
        """Return the job's challenge, as the switch has answered last; 0 before its first answer."""
        return self._challenges.get(job, (0, JobState.NONE))[0]

    @staticmethod
    def _with_grant(membership: Membership, answer: Answer) -> Membership:
        """Return the membership with what the switch granted in its answer to a Join."""
        header, body = answer
        return replace(
            membership,
            member=int(header["member"]),
            job_token=int(body["registers"][AckRegister.JOB_TOKEN]),
            epoch=int(header["epoch"]),
            window=int(body["window"]),
            first_seq=int(body["first_seq"]),
            threshold=int(body["threshold"]),
        )

    def _late_error(self, membership: Membership, answer: Answer, within: str) -> CollectiveTimeoutError:
        job_name = f"job {membership.job} at {self.address}"
        if answer.body["state"] == JobState.FORMING:
            return CollectiveTimeoutError(
                f"{job_name} waits for {membership.world} workers, of which {answer.body['live']} have joined "
                f"{within}: "
                "start the others, with the same address, job and key"
            )
        return CollectiveTimeoutError(
            f"{job_name} is running and has not admitted this worker {within}. A running job admits workers when a "
            "collective "
            f"ends: check that its {answer.body['live']} workers call collectives, and that this worker's rank is free"
        )

    def renew(self, membership: Membership, *, timeout_s: float | None = None) -> Membership:
        """Return a membership with the job's present epoch, after a reset of the job. A member that has moved to
        another port or address is bound to that.

        A worker that is no longer a member sends no Join with the job's challenge. Such a Join could end a job of live
        workers, if the switch has not heard them in an outage of its links.

        Parameters
        ----------
        membership : Membership
            The membership in an earlier epoch, or at another port or address.
        timeout_s : float or None
            Seconds to wait for each answer. None: the `timeout_s` of this object.

        Raises
        ------
        NotAMemberError
            If the switch no longer has a record of the member.
        SwitchUnreachableError
            If the switch does not answer.
        """
        answer = self._request_join(membership, timeout_s, with_challenge=False)
        for _ in range(_CHALLENGES):  # another member that moves at the same time changes the challenge, too
            if answer.reason != Reason.CHALLENGE or not self._is_member_elsewhere(membership, timeout_s):
                break
            answer = self._request_join(membership, timeout_s)
        if answer.reason != Reason.DONE:
            raise NotAMemberError(
                f"job {membership.job} at {self.address} has ended, or this worker is no longer a member of it "
                f"({REFUSALS[answer.reason].meaning}): call `rejoin`, then `sync_state`, or make a new Worker"
            )
        renewed = self._with_grant(membership, answer)
        if answer.body["standing"] != MemberState.LIVE or renewed.member != membership.member:
            self.leave(renewed, timeout_s=_CANCEL_TIMEOUT_S)  # after the end of the membership, the Join was a new one
            raise NotAMemberError(
                f"this worker is no longer a member of job {membership.job} at {self.address}: call `rejoin`, "
                "then `sync_state`, or make a "
                "new Worker"
            )
        return renewed

    def _is_member_elsewhere(self, membership: Membership, timeout_s: float | None) -> bool:
        """Return whether the switch has this worker as a member at another port or address.

        The switch finds a member by nonce and token before it looks at anything else of a Join. So it refuses a Join
        with another key for the key, and without the challenge it refuses everybody else for the challenge.
        """
        other_key = replace(membership, key=membership.key ^ 1)
        return self._request_join(other_key, timeout_s, with_challenge=False).reason == Reason.KEY

    # Commands of a member

    def _command(self, action: Action, membership: Membership, timeout_s: float | None = None, **body: int) -> Answer:
        """Send a command of a member, with the next number."""
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
        """Leave the job.

        Parameters
        ----------
        membership : Membership
            The member that leaves.
        timeout_s : float
            Seconds to wait for the switch.

        Returns
        -------
        bool
            False if the switch did not confirm it, because it does not answer or has no record of the member.
        """
        try:
            return self._command(Action.LEAVE, membership, timeout_s).reason == Reason.DONE
        except (SwitchUnreachableError, ClosedError, OSError):
            return False

    def reset(self, membership: Membership) -> Membership:
        """Empty the job's ring. Its members stay. To end the job instead, call `end_job`.

        Parameters
        ----------
        membership : Membership
            The member that sends the command.

        Returns
        -------
        Membership
            The membership in the new epoch.
        """
        answer = self._command(Action.RESET, membership)
        self._require_done(answer, f"reset job {membership.job}")
        epoch = int(answer.header["epoch"])
        if answer.body["state"] == JobState.FORMING and epoch == membership.epoch:
            return self._wait_for_next_epoch(membership)
        return replace(membership, epoch=epoch, first_seq=int(answer.body["first_seq"]))

    def _wait_for_next_epoch(self, membership: Membership) -> Membership:
        """Repeat the Join of a member until the switch has the next epoch from its parent, in a tree of switches."""
        deadline, pause_s = self.transport.now() + self.timeout_s, _FIRST_PAUSE_S
        while (renewed := self.renew(membership)).epoch == membership.epoch:
            if self.transport.now() > deadline:
                raise SwitchUnreachableError(
                    f"the switch at {self.address} waits for the switch above it: it has not received the next epoch "
                    f"of job {membership.job} within {self.timeout_s:g} s (`{self.timeout_name}`)"
                )
            self.transport.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return renewed

    def set_threshold(self, membership: Membership, threshold: int) -> Membership:
        """Set for all members how many workers complete a sum.

        Parameters
        ----------
        membership : Membership
            The member that sends the command.
        threshold : int
            Workers, 1 to `world`.

        Returns
        -------
        Membership
            The membership with the new threshold.
        """
        answer = self._command(Action.SET_H, membership, threshold=threshold)
        self._require_done(answer, f"set the threshold of job {membership.job} to {threshold}")
        return replace(membership, threshold=threshold)

    def halt(self, membership: Membership, on: bool) -> None:
        """Halt or resume the job, for all its members.

        Parameters
        ----------
        membership : Membership
            The member that sends the command.
        on : bool
            True: halt the job. False: resume it.
        """
        answer = self._command(Action.HALT, membership, mode=int(on))
        self._require_done(answer, f"{'halt' if on else 'resume'} job {membership.job}")

    # Commands by key

    def end_job(self, job: int, key: int = 0, *, operator_key: int = 0) -> None:
        """End a job with all its members, and free its number. The caller need not be a member.

        Parameters
        ----------
        job : int
            Number of the job.
        key : int
            The job's key.
        operator_key : int
            The operator key of the switch, which ends any job. Then the job's key may be anything.
        """
        answer, asked = self._command_by_key(Action.END, job, key, operator_key)
        if answer.reason == Reason.JOB and asked:
            return  # the job has ended meanwhile: by this message, whose answer was lost, or otherwise
        self._require_done(answer, f"end job {job}", _operator_refusals(operator_key))

    def resume_job(self, job: int, key: int = 0, *, operator_key: int = 0) -> None:
        """Let a halted job go on. The caller need not be a member.

        Parameters
        ----------
        job : int
            Number of the job.
        key, operator_key : int
            As of `end_job`.
        """
        answer, _ = self._command_by_key(Action.RESUME, job, key, operator_key)
        self._require_done(answer, f"resume job {job}", _operator_refusals(operator_key))

    def _command_by_key(self, action: Action, job: int, key: int, operator_key: int) -> tuple[Answer, bool]:
        """Send a command by key. Return the answer, and whether the switch had another challenge than the first one."""
        asked = False
        for _ in range(_CHALLENGES):
            answer = self.request(action, job=job, key=key, operator_key=operator_key, challenge=self._challenge(job))
            self._record_challenge(job, answer)
            if answer.reason != Reason.CHALLENGE:
                break
            asked = True
        return answer, asked

    def _require_done(self, answer: Answer, request: str, refusals: Mapping[Reason, Refusal] = REFUSALS) -> None:
        """Raise RefusedError if an answer is a refusal.

        `request` completes "the switch refused to". `refusals` say what the reasons mean to the caller.
        """
        if answer.reason == Reason.DONE:
            return
        meaning, remedy = refusals[answer.reason]
        body = answer.body
        job = (
            f" (the job: world {body['world']}, {body['live']} of them joined, threshold {body['threshold']}, "
            f"elements {body['elements']})"
            if body["state"]
            else ""
        )
        raise RefusedError(
            f"the switch at {self.address} refused to {request}: {meaning}{job}. {remedy[:1].upper()}{remedy[1:]}",
            answer.reason,
        )


def _operator_refusals(operator_key: int) -> Mapping[Reason, Refusal]:
    """Return what refusals mean to an operator, with the operator key of the switch or with the key of a job."""
    own = {Reason.JOB: NO_JOB_FOR_OPERATOR}
    return REFUSALS | own | ({Reason.KEY: REFUSED_OPERATOR} if operator_key else {})
