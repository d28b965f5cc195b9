"""Read jobs, members and slots from the switch's registers, as any host may. Section 5 of `docs/protocol.md`."""

from enum import IntEnum
from ipaddress import IPv4Address
from typing import NamedTuple, TypeVar

import numpy as np

from iswitch.control.registers import RegisterReader
from iswitch.errors import IswitchError
from iswitch.serial import serial_distance
from iswitch.wire import (
    JOB_VIEW,
    MEMBER_VIEW,
    SILENCE_TICK_US,
    SLOT_VIEW,
    Format,
    JobState,
    MemberState,
    SlotState,
    have_view_register,
    job_view_register,
    member_view_register,
    slot_view_register,
)

__all__ = [
    "JobView",
    "MemberView",
    "SlotView",
    "awaited_ranks",
    "lowest_serial",
    "read_job",
    "read_member",
    "read_progress",
    "read_slot",
]

_Named = TypeVar("_Named", bound=IntEnum)


class JobView(NamedTuple):
    """A job. Its fields up to `evict_us` are of one moment; the others are settings, which never change.

    If its state is NONE, all fields but `job` are zero.

    Attributes
    ----------
    job : int
        Number of the job.
    state : JobState
        Whether the job exists, and whether it forms, runs or is halted.
    format : Format or None
        Number format of its sums; None if there is no job.
    fraction : int
        Elements are rounded to multiples of 2^-fraction.
    epoch : int
        Number of resets, modulo 2^32, from a random start.
    elements : int
        The most elements in a segment.
    world, threshold : int
        Number of workers, and of those that complete a sum.
    live, joining : list of int
        Ranks of the members, and of the members that wait to be admitted, in ascending order.
    first_seq : int
        Number of the first segment after the last reset.
    deadline_us, evict_us : int
        Settings of the job in microseconds; 0: off.
    segments : int
        Segments of an update of an asynchronous job; 0 in a synchronous job.
    staleness : int
        Updates that a vector's weights may lack, in an asynchronous job.
    """

    job: int
    state: JobState
    format: Format | None
    fraction: int
    epoch: int
    elements: int
    world: int
    threshold: int
    live: list[int]
    joining: list[int]
    first_seq: int
    deadline_us: int
    evict_us: int
    segments: int = 0
    staleness: int = 0


class MemberView(NamedTuple):
    """A member at one moment.

    Attributes
    ----------
    rank : int
        Rank of the member.
    standing : MemberState
        How far the member has joined.
    port : int
        The switch's port behind which the member is.
    address, mac : str
        "IP:port" and MAC address from which the member joined.
    silent_s : float
        Seconds since its last sign of life.
    """

    rank: int
    standing: MemberState
    port: int
    address: str
    mac: str
    silent_s: float


class SlotView(NamedTuple):
    """A slot of a job's ring at one moment.

    Attributes
    ----------
    seq : int
        Number of the segment in the slot.
    state : SlotState
        Whether the slot is empty, collects contributions or is complete.
    format : int
        Number format of the contributions; 0 in an empty slot.
    length : int
        Bytes of a contribution's payload.
    arrived, members, expected : list of int
        Ranks that have contributed, that are in the sum, and that the slot waits for, in ascending order.
    """

    seq: int
    state: SlotState
    format: int
    length: int
    arrived: list[int]
    members: list[int]
    expected: list[int]

    @property
    def missing(self) -> list[int]:
        """Ranks that the slot still waits for."""
        if self.state != SlotState.COLLECTING:
            return []
        return [member for member in self.expected if member not in self.arrived]


def read_job(control: RegisterReader, job: int) -> JobView:
    """Read a job by its number.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    IswitchError
        If a register has a value that the protocol does not name.
    """
    row = _read_row(control, job_view_register(job), JOB_VIEW)
    state = _known(control, JobState, row["state"])
    return JobView(
        job,
        state,
        _known(control, Format, row["format"]) if state else None,
        int(row["fraction"]),
        int(row["epoch"]),
        int(row["elements"]),
        int(row["world"]),
        int(row["threshold"]),
        _ranks(row["live"]),
        _ranks(row["joining"]),
        int(row["first_seq"]),
        int(row["deadline_us"]),
        int(row["evict_us"]),
        int(row["segments"]),
        int(row["staleness"]),
    )


def read_member(control: RegisterReader, job: int, rank: int) -> MemberView:
    """Read a member of a job by its rank. If there is no such member, its standing is NONE.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    IswitchError
        If a register has a value that the protocol does not name.
    """
    row = _read_row(control, member_view_register(job, rank), MEMBER_VIEW)
    return MemberView(
        rank,
        _known(control, MemberState, row["standing"]),
        int(row["port"]),
        f"{IPv4Address(int(row['ip']))}:{row['udp']}",
        row["mac"].tobytes().hex(":"),
        int(row["silent"]) * SILENCE_TICK_US / 1e6,
    )


def read_slot(control: RegisterReader, job: int, seq: int, window: int) -> SlotView:
    """Read the slot that belongs to a segment.

    Parameters
    ----------
    control : RegisterReader
        Connection to the switch.
    job : int
        Number of the job.
    seq : int
        Number of the segment. The slot may hold another segment of the same place in the ring.
    window : int
        Window of the switch, in segments; the ring has twice as many slots.

    Returns
    -------
    SlotView
        The slot.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    IswitchError
        If a register has a value that the protocol does not name.
    """
    row = _read_row(control, slot_view_register(job, seq % (2 * window)), SLOT_VIEW)
    return SlotView(
        int(row["seq"]),
        _known(control, SlotState, row["state"]),
        int(row["format"]) & 15,
        int(row["length"]),
        _ranks(row["arrived"]),
        _ranks(row["members"]),
        _ranks(row["expected"]),
    )


def read_progress(control: RegisterReader, job: JobView) -> dict[int, int]:
    """Read how far each live member has acknowledged results.

    Parameters
    ----------
    control : RegisterReader
        Connection to the switch.
    job : JobView
        The job, from `read_job`.

    Returns
    -------
    dict of int to int
        For each live member, by rank, the lowest segment whose result the member has not acknowledged. Up to eight
        members are read at one moment.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    """
    progress = control.registers(have_view_register(job.job, 0), max(job.live, default=-1) + 1)
    return {member: progress[member] for member in job.live}


def lowest_serial(numbers: dict[int, int]) -> int:
    """Return the lowest of serial numbers that are near to each other; 0 if there are none."""
    near = next(iter(numbers.values()), 0)
    return min(numbers.values(), key=lambda number: serial_distance(number, near), default=0)


def awaited_ranks(control: RegisterReader, job: JobView, progress: dict[int, int], window: int) -> list[int]:
    """Find the ranks that keep a job from making progress.

    While the job forms, these are the ranks that have not joined. In a running job, these are the ranks that have not
    contributed to the oldest segment to which others have contributed. If all slots of the ring hold results, these are
    the ranks that have not acknowledged the oldest result. Reads the ring up to that segment.

    Parameters
    ----------
    control : RegisterReader
        Connection to the switch.
    job : JobView
        The job, from `read_job`.
    progress : dict of int to int
        Progress of its members, from `read_progress`.
    window : int
        Window of the switch, in segments.

    Returns
    -------
    list of int
        Ranks; empty if the job waits for no member.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    """
    if job.state == JobState.FORMING:
        return [member for member in range(job.world) if member not in job.live]
    if not progress:
        return []
    low = lowest_serial(progress)
    for seq in range(low, low + 2 * window):
        slot = read_slot(control, job.job, seq, window)
        if slot.seq != seq % 2**32 or slot.state == SlotState.EMPTY:
            return []
        if slot.state == SlotState.COLLECTING:
            return slot.missing
    return [member for member, seq in progress.items() if seq == low]


def _known(control: RegisterReader, kind: type[_Named], value: int) -> _Named:
    """Return what a register names."""
    try:
        return kind(int(value))
    except ValueError as error:
        raise IswitchError(
            f"{control.address} shows {kind.__name__} {value}, which this driver does not know: install the driver of "
            "its version"
        ) from error


def _read_row(control: RegisterReader, address: int, record: np.dtype) -> np.void:
    row: np.void = np.array(control.registers(address, record.itemsize // 4), "<u4").view(record)[0]
    return row


def _ranks(bits: int) -> list[int]:
    """Return the positions of the bits that are 1."""
    return [member for member in range(32) if int(bits) >> member & 1]
