"""Jobs, members and slots as the switch shows them to anybody; section 5 of `docs/protocol.md`."""

from ipaddress import IPv4Address
from typing import NamedTuple

import numpy as np

from iswitch.control.client import Control
from iswitch.wire import (
    JOB_VIEW,
    MEMBER_VIEW,
    SILENCE_TICK_US,
    SLOT_VIEW,
    Format,
    JobState,
    SlotState,
    Standing,
    have_view_register,
    job_view_register,
    member_view_register,
    slot_view_register,
)

__all__ = [
    "JobView",
    "MemberView",
    "SlotView",
    "awaited",
    "lowest",
    "read_have",
    "read_job",
    "read_member",
    "read_slot",
    "serial",
]


class JobView(NamedTuple):
    """A job at one moment; of a job that is NONE all but `job` is zero. `live`, `joining`: its members, rising."""

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


class MemberView(NamedTuple):
    """A member at one moment. `port`: of the switch."""

    member: int
    standing: Standing
    port: int
    address: str
    mac: str
    silent_s: float


class SlotView(NamedTuple):
    """A slot at one moment. `length`: bytes of a contribution's payload; `format`: its numbers' (0 in an empty slot).
    The rest: members, rising."""

    seq: int
    state: SlotState
    format: int
    length: int
    arrived: list[int]
    members: list[int]
    expected: list[int]

    @property
    def missing(self) -> list[int]:
        """Whom it waits for."""
        return (
            [member for member in self.expected if member not in self.arrived]
            if self.state == SlotState.COLLECTING
            else []
        )


def read_job(control: Control, job: int) -> JobView:
    """SwitchUnreachableError."""
    row = _row(control, job_view_register(job), JOB_VIEW)
    state = JobState(int(row["state"]))
    return JobView(
        job,
        state,
        Format(int(row["format"])) if state else None,
        int(row["fraction"]),
        int(row["epoch"]),
        int(row["elements"]),
        int(row["world"]),
        int(row["threshold"]),
        _set(row["live"]),
        _set(row["joining"]),
        int(row["first_seq"]),
        int(row["deadline_us"]),
        int(row["evict_us"]),
    )


def read_member(control: Control, job: int, member: int) -> MemberView:
    """SwitchUnreachableError."""
    row = _row(control, member_view_register(job, member), MEMBER_VIEW)
    return MemberView(
        member,
        Standing(int(row["standing"])),
        int(row["port"]),
        f"{IPv4Address(int(row['ip']))}:{row['udp']}",
        row["mac"].tobytes().hex(":"),
        int(row["silent"]) * SILENCE_TICK_US / 1e6,
    )


def read_slot(control: Control, job: int, seq: int, window: int) -> SlotView:
    """The slot in which `seq` has its place; `window`: the switch's. SwitchUnreachableError."""
    row = _row(control, slot_view_register(job, seq % (2 * window)), SLOT_VIEW)
    return SlotView(
        int(row["seq"]),
        SlotState(int(row["state"])),
        int(row["format"]) & 15,
        int(row["length"]),
        _set(row["arrived"]),
        _set(row["members"]),
        _set(row["expected"]),
    )


def read_have(control: Control, job: JobView) -> dict[int, int]:
    """The lowest seq whose result each live member may lack, as far as it has said; of up to eight members at one
    moment. SwitchUnreachableError."""
    have = control.registers(have_view_register(job.job, 0), job.world)
    return {member: have[member] for member in job.live}


def lowest(have: dict[int, int]) -> int:
    """Of serial numbers that are near to each other; 0 without any."""
    near = next(iter(have.values()), 0)
    return min(have.values(), key=lambda seq: serial(seq, near), default=0)


def awaited(control: Control, job: JobView, have: dict[int, int], window: int) -> list[int]:
    """Who keeps a job from going on: while it forms, whoever has not joined; then whoever has not contributed to the
    oldest segment that others have contributed to; or, if the whole ring is full of results, those who have not said
    that they hold the oldest. Reads the ring up to there. SwitchUnreachableError."""
    if job.state == JobState.FORMING:
        return [member for member in range(job.world) if member not in job.live]
    if not have:
        return []
    low = lowest(have)
    for seq in range(low, low + 2 * window):
        slot = read_slot(control, job.job, seq, window)
        if slot.seq != seq % 2**32 or slot.state == SlotState.EMPTY:
            return []
        if slot.state == SlotState.COLLECTING:
            return slot.missing
    return [member for member, seq in have.items() if seq == low]


def serial(newer: int, older: int) -> int:
    """How far `newer` is ahead of `older` modulo 2^32, in [-2^31, 2^31) (RFC 1982)."""
    return (newer - older + (1 << 31)) % (1 << 32) - (1 << 31)


def _row(control: Control, address: int, record: np.dtype) -> np.void:
    row: np.void = control.read(address).body["registers"].astype("<u4").view(record)[0]
    return row


def _set(bits: int) -> list[int]:
    return [member for member in range(32) if int(bits) >> member & 1]
