"""Why a collective makes no progress: what the switch shows of the slot that a worker waits for, and what it has
counted."""

from typing import NoReturn

from iswitch.config import Config
from iswitch.control.client import Control
from iswitch.control.explanations import explain, odd_rises
from iswitch.control.inspection import SlotView, read_job, read_slot
from iswitch.driver.ring import Ring
from iswitch.errors import CollectiveTimeoutError, MismatchError
from iswitch.results import format_ranks
from iswitch.wire import Format, JobState, SlotState

__all__ = ["Stall", "risen_sentences"]

_MISMATCHES = ("LENGTH", "FORMAT")
"""Counters of contributions that differ from those that came before them: LENGTH in the segment's size, FORMAT in the
number format or in whether the segment is the last one. They are the whole switch's, so another job or another program
may have made them rise."""
_SURE_LOOKS = 3
"""So often a worker looks before it raises MismatchError."""


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
        self._low, self._looks = (
            -1,
            0,
        )  # the segment that was waited for at the last look; looks that found others in its slot with another array

    def look(self) -> None:
        """Ask the switch. Raises MismatchError if the slot of this job shows that the workers' arrays differ, and
        SwitchUnreachableError."""
        m, low = self.ring.membership, self.ring.low
        job, slot = read_job(self.control, m.job), read_slot(self.control, m.job, low, m.window)
        if low != self._low:
            self._low, self._looks = low, 0
        if low != self.ring.low or slot.seq != low or slot.state == SlotState.EMPTY:
            return  # results have come meanwhile, or no worker has contributed
        if job.epoch != m.epoch or job.state != JobState.RUNNING or m.member in slot.arrived:
            return  # the job was reset or is halted, or the slot is of arrays like this worker's
        if theirs := self._difference(slot):
            self._looks += 1
            if self._looks >= _SURE_LOOKS:
                self._mismatch(
                    f"{format_ranks(slot.arrived)} {'sum' if len(slot.arrived) > 1 else 'sums'} {theirs}, and this worker, rank {m.member}, "
                    f"sums {self._own()}"
                )

    def _difference(self, slot: SlotView) -> str:
        """What the others sum, as far as the slot shows it; "" if it shows no difference."""
        (index, own_bytes), elements = self.ring.lacked, self.ring.membership.elements
        format = Format(slot.format).name.lower()
        if slot.length == own_bytes:
            return f"elements of {format}" if slot.format != self.format else ""
        count = f"{index * elements + slot.length // 4:,}"
        return (
            f"{count} elements of {format}" if slot.length < 4 * elements else f"at least {count} elements of {format}"
        )

    def _own(self) -> str:
        return f"{self.elements:,} elements of {self.format.name.lower()}"

    def _mismatch(self, finding: str) -> NoReturn:
        raise MismatchError(
            f"the workers of {self.where} do not call the same collective: {finding}. All workers must call the same collectives, on "
            "arrays of the same size and dtype, in the same order: compare the programs. This worker takes part in no collective "
            "until it calls `rejoin`, then `sync_state`"
        )

    def timeout(self, before: dict[str, int], timeout_s: float, progress: str) -> CollectiveTimeoutError:
        """The error after `timeout_s` without a result. before: the counters when the worker joined. Raises
        SwitchUnreachableError."""
        m = self.ring.membership
        risen = odd_rises(before, self.control.counters(self.config.ports))
        live = self.control.job(m.job).live
        slot = read_slot(self.control, m.job, self.ring.low, m.window)
        missing = slot.missing if slot.seq == self.ring.low else []
        absent = (
            f"{format_ranks(missing)} {'are' if len(missing) > 1 else 'is'}"
            if missing
            else "most likely one of them is"
        )
        cause = f"{absent} not in this collective (computing, stopped, killed, or in another collective)"
        if any(name in risen for name in _MISMATCHES):
            cause += ", or the workers sum arrays of different sizes or number formats: print `array.size` and `array.dtype` on each"
        evicted = (
            "the switch evicts it after `evict_s`"
            if m.evict_us
            else "then `iswitch end-job` ends the job, since `evict_s` is 0"
        )
        return CollectiveTimeoutError(
            "\n".join(
                [
                    f"no result for {timeout_s:g} s (`timeout_s`) in a collective of {self.where}: {progress}. "
                    f"{live} of {m.world} workers are members; the switch answers, so {cause}. If a worker computes "
                    "for longer than that, raise `timeout_s`. To go on, all call `rejoin`, then `sync_state`. To go on "
                    f"without a worker that hangs, end its process: {evicted}.",
                    *risen_sentences(risen),
                ]
            ),
            risen,
        )


def risen_sentences(risen: dict[str, int]) -> list[str]:
    """A line for each counter that rose."""
    return [f"  {name} +{rise}: {explain(name)}" for name, rise in risen.items()]
