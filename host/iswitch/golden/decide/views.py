"""The registers that show jobs, members and slots. Section 5 of `docs/protocol.md`."""

from typing import Any

import numpy as np

from iswitch.config import Config
from iswitch.golden.decide.job import EntryState, Job, Jobs, silence
from iswitch.wire import JOB_VIEW, MEMBER_VIEW, SLOT_VIEW, VIEWED_JOBS, VIEWED_MEMBERS, VIEWED_SLOTS, JobState, Register

__all__ = ["register"]

Fields = dict[str, Any]


def register(config: Config, jobs: Jobs, address: int, now_us: int) -> int | None:
    """Return the register at an address; 0 if its job, member or slot does not exist, None if it belongs to no view."""
    number, member = divmod(address - Register.HAVE_VIEW, VIEWED_MEMBERS)
    if 0 <= number < VIEWED_JOBS:
        return jobs[number].ring.acknowledged[member] if exists(config, jobs, number) and member < config.members else 0
    for base, rows, show, record in (
        (Register.JOBS_VIEW, 1, job_fields, JOB_VIEW),
        (Register.MEMBERS_VIEW, VIEWED_MEMBERS, member_fields, MEMBER_VIEW),
        (Register.SLOTS_VIEW, VIEWED_SLOTS, slot_fields, SLOT_VIEW),
    ):
        row, word = divmod(address - base, record.itemsize // 4)
        number, index = divmod(row, rows)
        if 0 <= number < VIEWED_JOBS:
            shown = np.zeros(1, record)
            for name, value in (show(jobs[number], index, now_us) if exists(config, jobs, number) else {}).items():
                shown[name] = value
            return int(shown.view("<u4")[word])
    return None


def exists(config: Config, jobs: Jobs, number: int) -> bool:
    """Return whether there is such a job."""
    return number < config.jobs and jobs[number].state != JobState.NONE


def job_fields(job: Job, _: int, __: int) -> Fields:
    """Return the fields of a job's row."""
    settings = job.settings
    return {
        "state": job.state,
        "format": settings.format,
        "fraction": settings.fraction,
        "epoch": job.epoch,
        "elements": settings.elements,
        "world": settings.world,
        "threshold": settings.threshold,
        "mode": settings.mode,
        "live": job.live,
        "joining": job.ring.joining,
        "first_seq": job.first_seq,
        "deadline_us": settings.deadline_us,
        "evict_us": settings.evict_us,
        "segments": settings.segments,
        "staleness": settings.staleness,
    }


def member_fields(job: Job, member: int, now_us: int) -> Fields:
    """Return the fields of a member's row; none if the entry is free."""
    if member >= len(job.entries) or job.entries[member].state != EntryState.LIVE:
        return {}
    source = job.entries[member].source
    return {
        "standing": job.standing(member),
        "port": source.port,
        "udp": source.udp_port,
        "ip": source.ip,
        "mac": np.frombuffer(source.mac, np.uint8),
        "silent": silence(job, member, now_us),
    }


def slot_fields(job: Job, slot: int, _: int) -> Fields:
    """Return the fields of a slot's row."""
    if slot >= len(job.ring.slots):
        return {}
    at = job.ring.slots[slot]
    return {
        "seq": at.seq,
        "state": at.state,
        "format": at.format,
        "length": at.length,
        "arrived": at.arrived,
        "members": at.members,
        "expected": at.expected,
        "collective": at.collective,
        "rival": at.rival,
        "tainted": job.ring.contributors[slot].tainted if job.ring.contributors else at.tainted,
    }
