"""Recovery of a worker: how it returns to its job after a failed collective."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from iswitch.control.client import Control
from iswitch.control.lost_membership import lost_membership_error
from iswitch.driver.membership import Membership
from iswitch.driver.notices import MembershipRejectedError
from iswitch.driver.ring import Ring
from iswitch.errors import JobResetError, NotAMemberError, RefusedError, SwitchUnreachableError
from iswitch.wire import Reason, Register

__all__ = ["REMEDY", "Recovery"]

REMEDY = "call `rejoin`, then `sync_state`, or make a new Worker"
_LEAST_STEP_S = 0.1
"""The shortest time limit of a step of `rejoin`, and the pause between two steps."""

logger = logging.getLogger("iswitch")


class Recovery:
    """Records why a worker cannot call collectives, and brings the worker back into its job.

    Parameters
    ----------
    control : Control
        Carries the requests to the switch.
    ring : Ring
        The worker's ring; it restarts whenever the job begins a new epoch.
    state : dict of str to bool
        "member": True while this worker has recorded itself as a member.
    job_name : str
        The job and the switch, for messages.
    """

    def __init__(self, control: Control, ring: Ring, *, state: dict[str, bool], job_name: str) -> None:
        self.control, self.ring, self.job_name = control, ring, job_name
        self._state = state
        self._renewed: Membership  # in the job's new epoch, since the last rejection
        self.failure: str | None = None
        """Why collectives are refused, as the end of a sentence; None if they are not."""
        self.needs_sync = False
        """The next collective must be `sync_state`."""
        self.querying = False
        """True while the worker queries the switch during a collective; results that arrive meanwhile are accepted."""

    @contextmanager
    def query(self) -> Iterator[None]:
        """Accept results in this context, while the worker waits for an answer of the switch."""
        self.querying = True
        try:
            yield
        finally:
            self.querying = False

    # The switch rejects a frame of this worker

    def confirm(self, rejection: MembershipRejectedError) -> None:
        """Check at the switch whether a rejection belongs to the present epoch. The network may have delayed an earlier
        one. A worker that has moved to another port or address is bound to that.

        Returns
        -------
        None
            If the job is still in this worker's epoch.

        Raises
        ------
        MembershipRejectedError
            If the rejection is valid.
        NotAMemberError
            If the switch has no record of this worker.
        SwitchUnreachableError
            If the switch does not answer.
        """
        if rejection.reason != Reason.EPOCH and not rejection.moved:
            raise rejection
        try:
            with self.query():
                self._renewed = self.control.renew(self.ring.membership)
        except NotAMemberError as error:
            self.failure, self._state["member"] = str(error), False
            raise
        if self._renewed.epoch != self.ring.membership.epoch:
            raise MembershipRejectedError(Reason.EPOCH)

    def raise_rejected(self, reason: Reason) -> NoReturn:
        """Raise the error of a confirmed rejection, and be ready for the call that follows it.

        Raises
        ------
        JobResetError
            If another worker has reset the job.
        NotAMemberError
            If the switch has no record of this worker.
        """
        if reason == Reason.EPOCH:
            self.ring.restart(self._renewed)
            self.failure, self.needs_sync = None, True
            raise JobResetError(
                f"another worker has reset {self.job_name}, and the collective in progress is lost: call "
                "`sync_state`, which brings all "
                "workers to the same step, then go on"
            ) from None
        self._state["member"] = False
        self.failure = (
            f"the switch has no record of this worker as a member of {self.job_name}. Call `rejoin`, then "
            "`sync_state`, or make "
            "a new Worker"
        )
        raise self._lost_membership_error(reason) from None

    def _lost_membership_error(self, reason: Reason) -> NotAMemberError:
        return lost_membership_error(self.ring, self.job_name, reason, REMEDY)

    # The worker resets the job, or joins it again

    def reset(self) -> None:
        """Reset the job, or follow another worker's reset. The next collective must be `sync_state`.

        Raises
        ------
        NotAMemberError
            If the switch has no record of this worker.
        RefusedError
            If the switch forbids the reset.
        SwitchUnreachableError
            If the switch does not answer.
        """
        try:
            self._begin_epoch()
        except NotAMemberError as error:
            self.failure, self._state["member"] = str(error), False
            raise
        self.needs_sync = True

    def _begin_epoch(self) -> None:
        """Restart the ring in a new epoch. The first of several workers that call this resets the job for all."""
        membership = self.ring.membership
        renewed = self.control.renew(membership) if self.failure else membership
        if renewed.epoch == membership.epoch:
            try:
                renewed = self.control.reset(membership)
            except RefusedError as refusal:
                if refusal.reason in (Reason.JOB, Reason.MEMBER, Reason.TOKEN):
                    raise self._lost_membership_error(refusal.reason) from None
                if refusal.reason != Reason.EPOCH:
                    raise
                renewed = self.control.renew(membership)
        self.ring.restart(renewed)
        self.failure = None

    def rejoin(self, join: Callable[[float], Membership], *, timeout_s: float) -> None:
        """Bring the worker back into its job, as soon as the switch answers.

        Parameters
        ----------
        join : callable
            Joins the job within a number of seconds and returns the membership.
        timeout_s : float
            Seconds for all steps.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer within `timeout_s`.
        CollectiveTimeoutError, RefusedError
            As `join` does.
        """
        transport = self.control.transport
        deadline = transport.now() + timeout_s

        def left_s() -> float:
            return max(deadline - transport.now(), _LEAST_STEP_S)

        while self.failure:
            try:
                transport.reopen()  # the address of this machine may have changed
                self.control.read(Register.MAGIC, timeout_s=left_s())  # waits until the switch answers
                self._rejoin_once(join, left_s)
            except SwitchUnreachableError as error:
                if transport.now() >= deadline:
                    raise SwitchUnreachableError(
                        f"{error}. `rejoin` gave up after its `timeout_s` of {timeout_s:g} s; call it again to wait "
                        "longer"
                    ) from None
                transport.sleep(_LEAST_STEP_S)
        self.needs_sync = True
        logger.info("rank %d is back in %s", self.ring.membership.member, self.job_name)

    def _rejoin_once(self, join: Callable[[float], Membership], left_s: Callable[[], float]) -> None:
        """Begin a new epoch if this worker is recorded as a member and the switch confirms it; otherwise join again."""
        if self._state["member"]:
            try:
                return self._begin_epoch()
            except NotAMemberError:
                self._state["member"] = False
        self.ring.restart(join(left_s()))
        self._state["member"], self.failure = True, None
