"""Why a collective makes no progress: what the switch shows of the slot that a worker waits for, and what it has counted."""

from typing import NoReturn

from iswitch.config import Config
from iswitch.control import Control
from iswitch.errors import Mismatch, Timeout
from iswitch.explain import explain, odd_rises
from iswitch.reduction import ranks
from iswitch.ring import Ring
from iswitch.views import SlotView, read_slot
from iswitch.wire import Format, JobState, Outcome, Register, SlotState

__all__ = ["Stall", "risen_sentences"]

_MISMATCHES = ("LENGTH", "FORMAT")
"""Counters of contributions that differ from those that came before them: LENGTH in the segment's size, FORMAT in the number format or in
whether the segment is the last one."""
_SURE = 2
"""So often in turn the counters must have risen: one rise may come from somebody else."""


class Stall:
    """One collective of a worker, looked at each time that no result has come for a while.

    Parameters
    ----------
    control, config
        Of the worker.
    ring : Ring
        In the middle of a collective.
    elements : int
        Of this worker's array.
    format : Format
        In which this worker's array is summed.
    where : str
        The job and the switch, for messages.
    """

    def __init__(self, control: Control, config: Config, ring: Ring, elements: int, format: Format, where: str):
        self.control, self.config, self.ring = control, config, ring
        self.elements, self.format, self.where = elements, format, where
        self._before: list[int] | None = None  # of the counters, at the last look
        self._low = -1  # the segment that was waited for then
        self._rises = 0  # looks in turn that found the counters risen

    def look(self) -> None:
        """Ask the switch. Raises Mismatch if the workers' arrays differ, and SwitchUnreachable."""
        m, low = self.ring.membership, self.ring.low
        slot = read_slot(self.control, m.job, low, m.window)
        counts = [self.control.registers(Register.OUTCOMES + Outcome[name], 1)[0] for name in _MISMATCHES]
        risen = self._before is not None and low == self._low and counts != self._before
        self._before, self._low, self._rises = counts, low, self._rises + 1 if risen else 0
        if low != self.ring.low or slot.seq != low or slot.state == SlotState.EMPTY:
            return  # results have come meanwhile, or no worker has contributed
        index, own_bytes = self.ring.lacked
        if m.member not in slot.arrived:
            if (slot.length, slot.format) != (own_bytes, self.format):
                self._differ(slot, index)
            if self._rises >= _SURE:
                self._mismatch(f"{ranks(slot.arrived)} and this worker, rank {m.member}, sum arrays of different sizes: segment {index} is the "
                               f"last one of one array only. This worker's array has {self._own()}")
        elif slot.missing and self._rises >= _SURE and self._is_only_job():
            self._mismatch(f"the switch refuses the contribution of {ranks(slot.missing, 'or')}, because it differs in size or format from that "
                           f"of {ranks(slot.arrived)}. The array of this worker, rank {m.member}, has {self._own()}")

    def _differ(self, slot: SlotView, index: int) -> NoReturn:
        elements = self.ring.membership.elements
        count = index * elements + slot.length // 4
        known = slot.length < 4 * elements or self.ring.lacked[1] == slot.length
        theirs = f"{'' if known else 'at least '}{count:,} elements of {Format(slot.format).name.lower()}"
        if slot.length == self.ring.lacked[1]:  # only the format is known to differ
            theirs = f"elements of {Format(slot.format).name.lower()}"
        self._mismatch(f"{ranks(slot.arrived)} {'have arrays' if len(slot.arrived) > 1 else 'has an array'} of {theirs}, and this worker, rank "
                       f"{self.ring.membership.member}, has one of {self._own()}")

    def _own(self) -> str:
        return f"{self.elements:,} elements of {self.format.name.lower()}"

    def _mismatch(self, finding: str) -> NoReturn:
        raise Mismatch(f"the workers of {self.where} do not call the same collective: {finding}. All workers must call the same collectives, on "
                       "arrays of the same size and dtype, in the same order: compare the programs. This worker takes part in no collective "
                       "until it calls `rejoin`, then `share`")

    def _is_only_job(self) -> bool:
        """No other job can have made the counters rise."""
        own = self.ring.membership.job
        return all(self.control.job(job).state == JobState.NONE for job in range(self.config.jobs) if job != own)

    def timeout(self, before: dict[str, int], timeout_s: float, progress: str) -> Timeout:
        """The error after `timeout_s` without a result. before: the counters when the worker joined. Raises SwitchUnreachable."""
        m = self.ring.membership
        risen = odd_rises(before, self.control.counters(self.config.ports))
        live = self.control.job(m.job).live
        slot = read_slot(self.control, m.job, self.ring.low, m.window)
        missing = slot.missing if slot.seq == self.ring.low else []
        absent = f"{ranks(missing)} {'are' if len(missing) > 1 else 'is'}" if missing else "most likely one of them is"
        differ = ("most likely they sum arrays of different sizes or number formats" if any(name in risen for name in _MISMATCHES) else
                  f"{absent} not in this collective (computing, stopped, killed, or in another collective)")
        return Timeout("\n".join([
            f"no result for {timeout_s:g} s (`timeout_s`) in a collective of {self.where}: {progress}. {live} of {m.world} workers are members; "
            f"the switch answers, so {differ}. If a worker computes for longer than that, raise `timeout_s`. To go on, all call `rejoin`, then "
            "`share`. To go on without a worker that hangs, end its process: the switch evicts it after `evict_s`.", *risen_sentences(risen)]), risen)


def risen_sentences(risen: dict[str, int]) -> list[str]:
    """A line for each counter that rose."""
    return [f"  {name} +{rise}: {explain(name)}" for name, rise in risen.items()]
