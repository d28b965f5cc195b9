"""Read a switch again and again for `iswitch report`: what `iswitch top` reads, and the use of each job's slots."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from iswitch.control.client import Control
from iswitch.control.inspection import lowest_serial, read_progress, read_slot
from iswitch.control.switch_info import SwitchInfo
from iswitch.errors import IswitchError, SwitchUnreachableError
from iswitch.serial import serial_distance
from iswitch.tools.snapshot import JobSnapshot, Snapshot, read_snapshot
from iswitch.wire import SlotState

__all__ = ["Sample", "Sampling", "SlotUse", "read_slot_use", "take_samples"]

_SLOTS_READ = 128
"""The most slots of a job that a sample reads. Of a longer ring, slots at equal distances are read."""


class SlotUse(NamedTuple):
    """How much of a job's ring is in use, as shares from 0 to 1.

    Attributes
    ----------
    collecting : float
        Slots that wait for contributions, or for the switch above in a tree.
    waiting : float
        Slots that hold a result which some member has not acknowledged.
    """

    collecting: float
    waiting: float


class Sample(NamedTuple):
    """A switch at about one moment.

    Attributes
    ----------
    snapshot : Snapshot
        Counters, jobs and members.
    slots : dict of int to SlotUse
        The use of the slots, by job.
    """

    snapshot: Snapshot
    slots: dict[int, SlotUse]


@dataclass
class Sampling:
    """All samples of a switch.

    Attributes
    ----------
    address : str
        Address of the switch.
    info : SwitchInfo
        Sizes of the switch.
    began : datetime
        Local time of the start.
    start_s : float
        The start in monotonic seconds, as `Snapshot.time_s`.
    samples : list of Sample
        What was read, in order.
    silences : list of float
        Seconds after the start at which the switch had not answered for a whole timeout.
    ended : str
        Why the sampling ended early, as a sentence; "" if the time was over.
    """

    address: str
    info: SwitchInfo
    began: datetime
    start_s: float
    samples: list[Sample] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    ended: str = ""

    def at(self, sample: Sample) -> float:
        """Return the seconds after the start at which a sample was read."""
        return sample.snapshot.time_s - self.start_s


def take_samples(
    control: Control,
    *,
    seconds: float,
    interval_s: float,
    on_sample: Callable[[Sampling], None] = lambda sampling: None,
) -> Sampling:
    """Read a switch once, and again each `interval_s` seconds until `seconds` have passed.

    If the switch stops answering, it is asked until the time is over, because it may come back. Ctrl-C ends the
    sampling.

    Parameters
    ----------
    control : Control
        Connection to the switch.
    seconds, interval_s : float
        Length of the sampling, and seconds between two samples.
    on_sample : callable
        Called after each sample, and after each timeout.

    Returns
    -------
    Sampling
        At least one sample.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer at the start.
    IswitchError
        If the address is not that of an iswitch of this version.
    """
    sampling = Sampling(control.address, control.switch_info(), datetime.now().astimezone(), time.monotonic())
    due, end, silent = sampling.start_s, sampling.start_s + seconds, False
    try:
        while not sampling.ended:
            try:
                if silent and control.switch_info() != sampling.info:
                    sampling.ended = "Another switch answers at this address now. Its samples would not fit."
                    break
                before = sampling.samples[-1].snapshot if sampling.samples else None
                sampling.samples.append(_read_sample(control, sampling.info, before))
                silent = False
            except SwitchUnreachableError:
                if not sampling.samples:
                    raise
                sampling.silences.append(time.monotonic() - sampling.start_s)
                silent = True
            except IswitchError as error:
                if not sampling.samples:
                    raise
                sampling.ended = f"The sampling ended with an error: {error}"
            on_sample(sampling)
            now = time.monotonic()
            due = max(due + interval_s, now)
            if due > end:
                break
            time.sleep(due - now)
    except KeyboardInterrupt:
        if not sampling.samples:
            raise
        sampling.ended = "Ctrl-C ended the sampling early."
    return sampling


def _read_sample(control: Control, info: SwitchInfo, before: Snapshot | None) -> Sample:
    snapshot = read_snapshot(control, info, before)
    return Sample(snapshot, {number: read_slot_use(control, info, job) for number, job in snapshot.jobs.items()})


def read_slot_use(control: Control, info: SwitchInfo, job: JobSnapshot) -> SlotUse:
    """Read how much of a job's ring is in use. The job goes on meanwhile, so that the shares are estimates."""
    ring = 2 * info.window
    numbers = range(0, ring, -(-ring // _SLOTS_READ))
    low = lowest_serial(read_progress(control, job.job))
    slots = [read_slot(control, job.job.job, number, info.window) for number in numbers]
    collecting = sum(slot.state in (SlotState.COLLECTING, SlotState.SENT_UP) for slot in slots)
    waiting = sum(slot.state == SlotState.COMPLETE and serial_distance(slot.seq, low) >= 0 for slot in slots)
    return SlotUse(collecting / len(slots), waiting / len(slots))
