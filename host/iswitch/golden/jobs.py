"""The jobs of one switch: operations on their slots, and what these send to members."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from iswitch.config import Config
from iswitch.golden.aggregate.sums import StoredSums, Sums
from iswitch.golden.counters import Counters
from iswitch.golden.decide import random
from iswitch.golden.decide.checks import is_from_member
from iswitch.golden.decide.command import remove_member
from iswitch.golden.decide.job import NO_JOB, Job, Jobs, admit_at_boundary, is_silent, keep_silences
from iswitch.golden.decide.slot import Contributors, Ring, Slot, Work
from iswitch.golden.egress import compose
from iswitch.golden.interface.message import Datagram, Message, SwitchAddress
from iswitch.wire import NOTICE_INTERVAL_US, Operation, Reason, ResultFlag, Stat

__all__ = ["JobTable", "TimesByPort"]

SILENCES_KEPT_US = 2**28
"""How much time passes until the silences of all members are looked at."""


class TimesByPort(Protocol):
    """Times in microseconds of some ports: a dictionary, or arrays."""

    def __contains__(self, port: object, /) -> bool: ...
    def __getitem__(self, port: int, /) -> int: ...
    def __setitem__(self, port: int, now_us: int, /) -> None: ...


class JobTable:
    """The state that all messages of jobs share.

    Parameters
    ----------
    config : Config
    mac, ip : bytes
        The switch's own addresses.
    seed : int
        Where epochs, first seqs and the first challenge come from.
    operator_key : int
        A key that ends any job, and that a Join of a switch must carry; 0 for none.
    """

    def __init__(self, config: Config, *, mac: bytes, ip: bytes, seed: int, operator_key: int = 0) -> None:
        self.operator_key = operator_key
        self.config, self.own = config, SwitchAddress(mac, ip)
        self.random = random.initial(seed)
        self.jobs = self.new_jobs(NO_JOB._replace(challenge=random.first_challenge(seed)))
        self.sums = Sums(self.new_sums())
        self.counts = self.new_counters()
        self.outcomes, self.stats, self.ages = self.counts.outcomes, self.counts.stats, self.counts.ages
        self.port_counters = self.counts.ports
        self.noticed_us: TimesByPort = {}
        self._silences_kept_us = 0

    def new_jobs(self, empty: Job) -> Jobs:
        """Return the jobs, none of which exists."""
        return [empty] * self.config.jobs

    def new_sums(self) -> StoredSums:
        """Return a place for accumulators."""
        return {}

    def new_counters(self) -> Counters:
        """Return counters."""
        return Counters(self.config)

    def keep_silences(self, now_us: int) -> None:
        """Let no silence of a member be forgotten when the clock wraps. Call it at least every 2^31 us; it looks at the
        members every 2^28 us."""
        if (now_us - self._silences_kept_us) % 2**32 >= SILENCES_KEPT_US:
            self._silences_kept_us = now_us
            for number, job in enumerate(self.jobs):
                self.jobs[number] = keep_silences(job, now_us)

    def job(self, number: int) -> Job:
        """Return a job; NO_JOB if the switch has no such number."""
        return self.jobs[number] if number < self.config.jobs else NO_JOB

    def execute(self, number: int, work: Work, payload: bytes = b"") -> list[Datagram]:
        """Execute an operation on the accumulators of a slot, and return the copies of the result that it sends."""
        slot = self.jobs[number].ring.slots[work.slot]
        if work.operation == Operation.RESEND:
            self.stats[Stat.RESENT] += 1
            return self.send_result(number, slot, work.receivers, ResultFlag.RESENT)
        self.accumulate(number, work, payload)
        self.stats[Stat.RESULTS] += work.emit
        return self.send_result(number, slot, work.receivers) if work.emit else []

    def accumulate(self, number: int, work: Work, payload: bytes) -> None:
        """Execute an operation on the accumulators of a slot, and count what it did."""
        job = self.jobs[number]
        flushed = self.sums.execute(number, job.settings, work, job.ring.slots[work.slot], payload)
        self.stats[Stat.TERMS_FLUSHED] += flushed
        self.stats[Stat.FORCED] += work.operation == Operation.FORCE

    def send_result(self, number: int, slot: Slot, receivers: int, flags: int = 0) -> list[Datagram]:
        """Return the result in a complete slot, once for each member in the set `receivers`."""
        job = self.jobs[number]
        contributors, elements = self.result_content(number, slot)
        flags |= (
            ResultFlag.PARTIAL * contributors.partial
            | ResultFlag.TAINTED * bool(contributors.tainted)
            | ResultFlag.MEMBERS_CHANGED * slot.members_changed
        )
        payload = compose.result(
            job=number,
            epoch=job.epoch,
            seq=slot.seq,
            format=slot.format,
            flags=flags,
            members=contributors.ranks,
            tainted=contributors.tainted,
            token=job.token,
            identity=slot.identity,
            elements=elements,
        )
        return self.send_to_members(job, receivers, payload)

    def result_content(self, number: int, slot: Slot) -> tuple[Contributors, np.ndarray]:
        """Return the contributors to a complete slot, and the elements that leave."""
        contributors = Contributors(slot.members, slot.tainted, bool(slot.expected & ~slot.members))
        fraction = self.jobs[number].settings.fraction
        return contributors, self.sums.result(number, slot.seq % self.config.slots, slot.format, fraction)

    def send_to_members(self, job: Job, receivers: int, payload: bytes) -> list[Datagram]:
        """Return one payload for each member in the set `receivers`, by port and on a port by member."""
        members = [entry.source for m, entry in enumerate(job.entries) if receivers >> m & 1]
        return [Datagram(to, payload) for to in sorted(members, key=lambda member: member.port)]

    def evict(self, number: int, waits_for: int, now_us: int) -> list[Datagram]:
        """Evict the first awaited member that has been silent for too long.

        Only members that others wait for are evicted, one for each message, so a switch needs no timers.
        """
        before = self.jobs[number]
        silent = [m for m in range(len(before.entries)) if waits_for >> m & 1 and is_silent(before, m, now_us)]
        if not silent:
            return []
        self.stats[Stat.EVICTED] += 1
        after, works = remove_member(before, silent[0])
        self.jobs[number] = self.close_slots(number, after, works)
        self.count_admissions(before, after.ring)
        return [frame for work in works for frame in self.execute(number, work)]

    def close_slots(self, number: int, job: Job, works: Sequence[Work]) -> Job:
        """Return the job after operations that completed some of its slots."""
        return job

    def admit_at_boundary(self, number: int, now_us: int) -> None:
        """Admit joining members of an asynchronous job, after a message was handled."""
        after = admit_at_boundary(self.jobs[number], now_us)
        self.count_admissions(self.jobs[number], after.ring)
        self.jobs[number] = after

    def count_admissions(self, before: Job, ring: Ring) -> None:
        """Count that a boundary admitted members, if it did."""
        self.stats[Stat.ADMITTED] += bool(ring.live & ~before.live & before.ring.joining)

    def send_notice(self, message: Message, reason: Reason, now_us: int, collective: int = 0) -> list[Datagram]:
        """Return a NOTICE. `collective`: with which the sender's differs.

        A member always gets it. All other hosts of a port share one in an interval, so that an unknown host can neither
        make the switch flood a network nor use up the NOTICEs of others.
        """
        if not is_from_member(self.job(message.job), message):
            port = message.source.port
            if port in self.noticed_us and (now_us - self.noticed_us[port]) % 2**32 < NOTICE_INTERVAL_US:
                self.stats[Stat.NOTICES_SUPPRESSED] += 1
                return []
            self.noticed_us[port] = now_us
        self.stats[Stat.NOTICES] += 1
        payload = compose.notice(
            job=message.job,
            epoch=self.job(message.job).epoch,
            seq=message.seq,
            member=message.member,
            token=message.token,
            reason=reason,
            collective=collective,
        )
        return self.reply(message, payload)

    def reply(self, message: Message, payload: bytes) -> list[Datagram]:
        """Return a payload for the sender of a message."""
        return [Datagram(message.source, payload)]
