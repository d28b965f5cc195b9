"""Sums in the switch, and over gloo while the switch does not answer.

Either all ranks apply a sum or no rank does, and its bits are the same on both paths:

- Every rank counts its collectives. A rank can complete a collective only with the contributions of all ranks, so the
  ranks' counts differ by one at most.
- If a collective of one rank fails, that rank sets a flag in the store of the process group. The other ranks see the
  flag while they wait, and leave the switch, too.
- All ranks then compare their counts over gloo. If some ranks have completed the collective already, one of them gives
  its result to the others. Otherwise gloo computes the sum.
- While gloo computes, each rank probes the switch. All ranks return to the switch after the first collective before
  which the switch has answered all of them.
"""

import atexit
import contextlib
import logging
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport
from iswitch.errors import ClosedError, IswitchError, RecoverableError
from iswitch.torch.reducer import RESTART, GlooReducer, SwitchReducer, WorkersMissingError
from iswitch.worker import Worker

__all__ = ["FallbackReducer", "FallbackWarning"]

_CHECK_S = 0.5
"""Pause between two looks at the flag, and between two probes of the switch."""
_PROBE_TIMEOUT_S = 1.0
_JOIN_S = 5.0
"""The longest wait of `close` for the thread that probes the switch, or leaves it."""

logger = logging.getLogger("iswitch")


class FallbackWarning(UserWarning):
    """The switch does not answer, and gloo computes the sums until it does."""


def _answers(address: str) -> bool:
    """Return True if a switch answers at the address."""
    try:
        transport = UdpTransport(address)
    except (IswitchError, OSError):
        return False
    try:
        Control(transport, address=address, timeout_s=_PROBE_TIMEOUT_S).switch_info()
    except (IswitchError, OSError):
        return False
    finally:
        transport.close()
    return True


class FallbackReducer:
    """Sums in the switch, and over gloo while the switch does not answer.

    Parameters
    ----------
    make_worker : callable
        Joins the job of a period, given the number of the period. All ranks call it with the same numbers. A period is
        the time from a join to the moment at which the ranks leave the switch.
    gloo : GlooReducer
        Sums over the same ranks.
    store : torch.distributed.Store
        A store that the ranks share.
    rank, size : int
        This rank, and the number of ranks.
    answers : callable
        Returns True if the switch answers, given its address.
    """

    def __init__(
        self,
        make_worker: Callable[[int], Worker],
        gloo: GlooReducer,
        store: Any,
        rank: int,
        size: int,
        *,
        answers: Callable[[str], bool] = _answers,
    ) -> None:
        self._make_worker, self._gloo, self._store, self._rank, self._size = make_worker, gloo, store, rank, size
        self._answers = answers
        self._period, self._completed = 0, 0
        self._last = np.zeros(0, np.uint8), False  # bytes of the last result, and whether it was tainted
        self._switch: SwitchReducer | None = SwitchReducer(make_worker(0))
        self._address = self._switch.worker.address
        self._waiting_since: float | None = None  # of the present sum in the switch
        self._switch_answers = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._monitor, name="iswitch-fallback", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def uses_switch(self) -> bool:
        """True if the next sum is one of the switch."""
        return self._switch is not None

    def finish(self) -> None:
        """Wait until every rank has the results of all sums, so that no rank leaves with one that another rank lacks.

        If a rank has died, the wait ends with the error of the sum or of gloo, which is not raised.
        """
        if not self._closed.is_set():
            with contextlib.suppress(IswitchError, RuntimeError):
                self.sum(np.zeros(1, np.int32))

    def close(self) -> None:
        """Leave the job at once, and end the thread that probes the switch, at the latest at the interpreter's exit.

        The thread holds this object. If it dropped the last reference to the group of gloo while the interpreter ends,
        the process would abort.
        """
        atexit.unregister(self.close)
        self._closed.set()
        if self._switch is not None:
            self._switch.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def sum(self, values: np.ndarray) -> bool:
        """Sum as `Reducer.sum`. Raises WorkersMissingError if gloo fails, too."""
        if self._switch is not None:
            try:
                self._waiting_since = time.monotonic()
                tainted = self._switch.sum(values)
            except (RecoverableError, ClosedError) as error:
                result = self._result_after(self._leave_switch(self._switch, error), values)
                if result is not None:
                    return result
            else:
                self._keep(values, tainted)
                return tainted
            finally:
                self._waiting_since = None
        outcome = self._gloo.sum_flagged(values, flag=self._switch_answers)
        self._keep(values, outcome.tainted)
        if outcome.flags == self._size:
            self._return_to_switch()
        return outcome.tainted

    def _keep(self, values: np.ndarray, tainted: bool) -> None:
        """Count a collective as completed, and keep its result for ranks that have not received it."""
        octets = values.view(np.uint8)
        if self._last[0].size != octets.size:
            self._last = np.empty(octets.size, np.uint8), tainted
        self._last[0][:] = octets
        self._last = self._last[0], tainted
        self._completed += 1

    def _leave_switch(self, switch: SwitchReducer, error: Exception) -> str:
        """Leave the job, and make the other ranks do so. Return why."""
        if self._closed.is_set():
            raise error
        flag = f"left/{self._period}"
        if isinstance(error, ClosedError):  # `_monitor` has seen the flag
            why = self._store.get(flag).decode()
        else:
            why = str(error.__context__ or error)  # `Worker` puts the collective before it, and advice behind
            self._store.set(flag, f"rank {self._rank} has left the switch: {why}")
        self._switch, self._switch_answers = None, False
        switch.close()
        return why

    def _result_after(self, why: str, values: np.ndarray) -> bool | None:
        """Return `_result_of_others` after the switch was left. Say so if gloo reaches all ranks."""
        try:
            result = self._result_of_others(values)
        except WorkersMissingError as missing:
            if RESTART in why:  # the switch has said which ranks
                raise WorkersMissingError(why) from missing
            raise WorkersMissingError(f"{why}. And {missing}") from missing
        message = (
            f"gloo computes the sums of this group, to the same bits, until the switch at {self._address} answers all "
            f"ranks again: {why}"
        )
        if self._rank == 0:
            warnings.warn(FallbackWarning(message), stacklevel=2)
        logger.warning(message)
        return result

    def _gather(self, number: int) -> list[int]:
        """Return a number of each rank."""
        table = np.zeros(self._size, np.int32)
        table[self._rank] = number
        self._gloo.sum(table)
        return [int(entry) for entry in table]

    def _result_of_others(self, values: np.ndarray) -> bool | None:
        """Compare the counts of all ranks. Give the last result to the ranks that lack it, or receive it.

        Returns
        -------
        bool or None
            As `sum`, if another rank has completed this rank's collective. None if the sum is still to be computed.
        """
        counts = self._gather(self._completed)
        if min(counts) == max(counts):
            return None
        giver = counts.index(max(counts))
        behind = self._completed < counts[giver]
        octets, tainted = self._last
        # All ranks know which rank gives; only that rank knows the size and the flag, so it sends them first
        size, tainted_sum = np.zeros(1, np.int32), np.zeros(1, np.int32)
        if self._rank == giver:
            size[0], tainted_sum[0] = octets.size // 4, tainted
        self._gloo.sum(size)
        self._gloo.sum(tainted_sum)
        words = np.zeros(int(size[0]), np.int32)
        if self._rank == giver:
            words.view(np.uint8)[:] = octets
        self._gloo.sum(words)
        if not behind:
            return None
        if words.size != values.size:
            raise RuntimeError(
                f"the ranks call different collectives: rank {giver} has completed one of {words.size} elements, this "
                f"rank's has {values.size}"
            )
        values.view(np.uint8)[:] = words.view(np.uint8)
        self._keep(values, bool(tainted_sum[0]))
        return bool(tainted_sum[0])

    def _return_to_switch(self) -> None:
        """Join the job anew. All ranks call it after the same collective, and either all return or no rank does."""
        self._period += 1
        worker: Worker | None = None
        try:
            worker = self._make_worker(self._period)
        except Exception as error:  # whatever it is, the other ranks wait for this one's answer
            logger.warning("rank %d cannot return to the switch at %s: %s", self._rank, self._address, error)
        joined = self._gather(worker is not None)
        if all(joined):
            assert worker is not None
            self._switch = SwitchReducer(worker)
            logger.info("rank %d sums in the switch at %s again", self._rank, self._address)
        elif worker is not None:
            worker.close()
        self._switch_answers = False

    def _monitor(self) -> None:
        """Interrupt a sum whose job another rank has left; probe the switch while gloo computes."""
        while not self._closed.wait(_CHECK_S):
            switch, since, period = self._switch, self._waiting_since, self._period
            if switch is None:
                self._switch_answers = self._answers(self._address)
            elif since is not None and time.monotonic() - since > 2 * _CHECK_S:
                with contextlib.suppress(RuntimeError):  # the store has gone with its process: the sum fails by itself
                    if self._store.check([f"left/{period}"]):
                        switch.close()
