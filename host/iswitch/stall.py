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
_SURE_RISES = 2
"""So often the counters must have risen between two looks: a single rise may come from elsewhere."""
_SURE_LOOKS = 5
"""So often a worker whose contribution is refused looks before it raises Mismatch. Meanwhile it sends the contribution again, so that the
counters rise and the other workers find out, too."""


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
        self._rises = self._refusals = 0  # of the counters; looks that found this worker's contribution refused

    def look(self) -> None:
        """Ask the switch. Raises Mismatch if the workers' arrays differ, and SwitchUnreachable."""
        m, low = self.ring.membership, self.ring.low
        slot = read_slot(self.control, m.job, low, m.window)
        counts = [self.control.registers(Register.OUTCOMES + Outcome[name], 1)[0] for name in _MISMATCHES]
        if low != self._low:
            self._before, self._low, self._rises, self._refusals = None, low, 0, 0
        self._rises += self._before is not None and counts != self._before
        self._before = counts
        if low != self.ring.low or slot.seq != low or slot.state == SlotState.EMPTY:
            return  # results have come meanwhile, or no worker has contributed
        if m.member in slot.arrived:
            if slot.missing and self._rises >= _SURE_RISES and self._is_only_job():
                self._mismatch(f"the switch refuses the contribution of {ranks(slot.missing, 'or')}, because it differs in size or format from "
                               f"that of {ranks(slot.arrived)}. This worker, rank {m.member}, sums {self._own()}")
            return
        theirs = self._difference(slot)
        self._refusals += bool(theirs or self._rises)
        if self._refusals >= _SURE_LOOKS and (theirs or self._rises >= _SURE_RISES):
            theirs = theirs or f"an array of another size: segment {self.ring.lacked[0]} is the last one of one array only"
            self._mismatch(f"{ranks(slot.arrived)} {'sum' if len(slot.arrived) > 1 else 'sums'} {theirs}, and this worker, rank {m.member}, sums "
                           f"{self._own()}")

    def _difference(self, slot: SlotView) -> str:
        """What the others sum, as far as the slot shows it; "" if it shows no difference."""
        (index, own_bytes), elements = self.ring.lacked, self.ring.membership.elements
        format = Format(slot.format).name.lower()
        if slot.length == own_bytes:
            return f"elements of {format}" if slot.format != self.format else ""
        count = f"{index * elements + slot.length // 4:,}"
        return f"{count} elements of {format}" if slot.length < 4 * elements else f"at least {count} elements of {format}"

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
