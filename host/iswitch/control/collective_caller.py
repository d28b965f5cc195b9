"""Collectives of a worker: called at the ring, with the errors that a program sees."""

import numpy as np

from iswitch.control.collective_mismatch import conflict_error
from iswitch.control.recovery import Recovery
from iswitch.control.stalled_collective import StalledCollective
from iswitch.control.switch_info import SwitchInfo
from iswitch.driver.collective_result import CollectiveResult, NoProgressError
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError
from iswitch.errors import SwitchUnreachableError
from iswitch.wire import CollectiveKind, Format
from iswitch.wire.formats import FORMATS

__all__ = ["CollectiveCaller"]

_QUIET_S = 1.0
"""After this time without a result, a collective queries the switch for the cause."""


class CollectiveCaller:
    """Calls collectives of a worker's ring, and turns the ring's errors into the public ones.

    Parameters
    ----------
    recovery : Recovery
        The worker's recovery, with its ring, its control client and the name of its job. After an error,
        `recovery.failure` says that no collective is possible.
    switch_info : SwitchInfo
        Sizes of the switch.
    counters_at_join : dict of str to int
        The switch's counters when the worker joined.
    """

    def __init__(self, recovery: Recovery, switch_info: SwitchInfo, counters_at_join: dict[str, int]):
        self._recovery, self._switch_info, self._counters_at_join = recovery, switch_info, counters_at_join
        self._stall: StalledCollective | None = None  # of the present collective

    def reduce(
        self,
        values: np.ndarray,
        format: Format,
        kind: CollectiveKind,
        *,
        argument: int,
        all_members: bool,
        timeout_s: float,
        switch_timeout_s: float,
    ) -> CollectiveResult:
        """Sum an array over the job, in place. Parameters as in `Ring.reduce`, seconds as in `Worker`.

        Raises
        ------
        CollectiveTimeoutError, SwitchUnreachableError, JobResetError, NotAMemberError, MismatchError, DivergedError
            As `Worker.allreduce`.
        """
        recovery, ring = self._recovery, self._recovery.ring
        self._stall = None
        recovery.failure = "an earlier collective failed. Call `rejoin`, then `sync_state`"
        try:
            result = ring.reduce(
                values,
                format,
                timeout_s,
                kind=kind,
                argument=argument,
                all_members=all_members,
                inquire=lambda: self._inquire(values.size, format),
                inquire_s=min(_QUIET_S, switch_timeout_s),
                confirm=recovery.confirm,
            )
        except MembershipRejectedError as rejection:
            recovery.raise_rejected(rejection.reason)
        except CollectiveConflictError as conflict:
            raise conflict_error(
                ring.collective,
                conflict.theirs,
                job_name=recovery.job_name,
                rank=ring.membership.member,
                array=f"{values.size:,} {FORMATS[format].element_name} elements",
            ) from None
        except NoProgressError as error:
            stall = self._current_stall(values.size, format)
            raise stall.timeout_error(self._counters_at_join, timeout_s, str(error)) from None
        except SwitchUnreachableError as error:
            raise SwitchUnreachableError(
                f"in the middle of a collective of {recovery.job_name}: {error}. `rejoin(timeout_s=...)` waits for the "
                "switch; then call `sync_state`"
            ) from None
        recovery.failure = None
        return result

    def _current_stall(self, elements: int, format: Format) -> StalledCollective:
        """Return the record of why the present collective makes no progress."""
        recovery = self._recovery
        self._stall = self._stall or StalledCollective(
            recovery.control, self._switch_info, recovery.ring, elements, format, recovery.job_name
        )
        return self._stall

    def _inquire(self, elements: int, format: Format) -> None:
        """Query the switch for the reason why no result comes. Raises MismatchError, SwitchUnreachableError."""
        with self._recovery.query():
            self._current_stall(elements, format).check()
