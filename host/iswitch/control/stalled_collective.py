"""Why a collective makes no progress: what the slot that a worker waits for and the switch's counters show."""

from iswitch.control.client import Control
from iswitch.control.counters import rise_lines, unusual_rises
from iswitch.control.inspection import SlotView, read_job, read_slot
from iswitch.control.switch_info import SwitchInfo
from iswitch.driver.ring import Ring
from iswitch.errors import CollectiveTimeoutError, MismatchError
from iswitch.results import format_ranks
from iswitch.wire import Format, JobState, SlotState
from iswitch.wire.formats import FORMATS

__all__ = ["StalledCollective"]

_MISMATCHES = ("LENGTH", "FORMAT")
"""Counters of contributions that differ from those that came before them: LENGTH in the size of the segment, FORMAT in
the number format or in whether the segment is the last one. They count for the whole switch, so another job or another
program may have made them rise."""
_CERTAIN_AFTER = 3
"""Looks that must find another worker's array in the slot before the worker raises MismatchError."""


class StalledCollective:
    """One collective of a worker, which looks at the switch whenever no result has come for a while.

    Parameters
    ----------
    control : Control
        Carries the messages.
    switch_info : SwitchInfo
        Sizes of the switch.
    ring : Ring
        The worker's ring, in the middle of the collective.
    elements : int
        Elements of this worker's array.
    format : Format
        Number format in which this worker's array is summed.
    job_name : str
        The job and the switch, for messages.
    """

    def __init__(
        self, control: Control, switch_info: SwitchInfo, ring: Ring, elements: int, format: Format, job_name: str
    ):
        self.control, self.switch_info, self.ring = control, switch_info, ring
        self.elements, self.format, self.job_name = elements, format, job_name
        self._low = -1  # the segment that the worker waited for at the last look
        self._mismatches = 0  # looks that found another worker's array in its slot
        self._counters: dict[str, int] = {}  # at the last look at this worker's own size in that slot

    def check(self) -> None:
        """Look at the slot that the worker waits for.

        Raises
        ------
        MismatchError
            If the slot shows that the workers' arrays differ.
        SwitchUnreachableError
            If the switch does not answer.
        """
        m, low = self.ring.membership, self.ring.low_seq
        job, slot = read_job(self.control, m.job), read_slot(self.control, m.job, low, m.window)
        if low != self._low:
            self._low, self._mismatches, self._counters = low, 0, {}
        if low != self.ring.low_seq or slot.seq != low or slot.state == SlotState.EMPTY:
            return  # results have come meanwhile, or no worker has contributed
        if job.epoch != m.epoch or job.state != JobState.RUNNING or m.member in slot.arrived:
            return  # the job was reset or is halted, or the slot belongs to arrays like this worker's
        if theirs := self._describe_difference(slot) or self._describe_other_end():
            self._mismatches += 1
            if self._mismatches >= _CERTAIN_AFTER:
                raise self._mismatch_error(slot, theirs)

    def _describe_difference(self, slot: SlotView) -> str:
        """Return what the other workers sum, as far as the slot shows it; "" if it shows no difference."""
        (index, own_bytes), elements = self.ring.lacked, self.ring.membership.elements
        format = FORMATS[Format(slot.format)]
        dtype, size = format.element_name, format.element.itemsize
        if slot.length == own_bytes:
            return f"{dtype} elements" if slot.format != self.format else ""
        count = f"{index * elements + slot.length // size:,}"
        at_least = "" if slot.length < size * elements else "at least "
        return f"{at_least}{count} {dtype} elements"

    def _describe_other_end(self) -> str:
        """Return that the arrays differ by multiples of 16 segments, "" if nothing says so.

        Then a collective has the same identity, and a slot does not show whether its segment is the last one. But the
        switch refuses this worker's segment each time, and counts it.
        """
        before, self._counters = self._counters, self.control.counters(self.switch_info.ports)
        if not before or "FORMAT" not in unusual_rises(before, self._counters):
            return ""
        return "another number of segments (at least 16 more or fewer)"

    def _mismatch_error(self, slot: SlotView, theirs: str) -> MismatchError:
        verb = "sum" if len(slot.arrived) > 1 else "sums"
        dtype = FORMATS[self.format].element_name
        return MismatchError(
            f"the workers of {self.job_name} do not call the same collective: {format_ranks(slot.arrived)} {verb} "
            f"{theirs}, and this "
            f"worker, rank {self.ring.membership.member}, sums {self.elements:,} {dtype} elements. All workers must "
            "call the same collectives, on arrays of the same size and dtype, in the same order: compare the "
            "programs, correct them, "
            "and start all workers again"
        )

    def timeout_error(self, before: dict[str, int], timeout_s: float, progress: str) -> CollectiveTimeoutError:
        """Return the error for a collective without progress.

        Parameters
        ----------
        before : dict of str to int
            The switch's counters when the worker joined.
        timeout_s : float
            Seconds without a result.
        progress : str
            How far the collective is, for the message.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer.
        """
        m = self.ring.membership
        rises = unusual_rises(before, self.control.counters(self.switch_info.ports))
        live = self.control.job(m.job).live
        slot = read_slot(self.control, m.job, self.ring.low_seq, m.window)
        missing = slot.missing if slot.seq == self.ring.low_seq else []
        absent = (
            f"{format_ranks(missing)} {'are' if len(missing) > 1 else 'is'}"
            if missing
            else "most likely one of them is"
        )
        cause = f"{absent} not in this collective (computing, stopped, killed, or in another collective)"
        if any(name in rises for name in _MISMATCHES):
            cause += (
                ", or the workers sum arrays of different sizes or number formats: print `array.size` and "
                "`array.dtype` on each"
            )
        next_step = (
            "the switch evicts it after `evict_s`"
            if m.evict_us
            else "then `iswitch end-job` ends the job, because `evict_s` is 0"
        )
        message = (
            f"no result for {timeout_s:g} s (`timeout_s`) in a collective of {self.job_name}: {progress}. "
            f"{live} of {m.world} workers are members; the switch answers, so {cause}. If a worker computes "
            "for longer than that, raise `timeout_s`. To go on, call `rejoin`, then `sync_state`, on all workers. To "
            "go on "
            f"without a worker that hangs, end its process: {next_step}."
        )
        return CollectiveTimeoutError("\n".join([message, *rise_lines(rises)]), rises)
