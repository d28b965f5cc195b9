"""The state of a software switch, in arrays that the data path in C and the golden switch both use.

The golden switch reads and writes jobs as immutable tuples. `SharedJobs` makes them from the arrays when the data path
has changed something, and writes what the golden switch has changed back.
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from iswitch.config import Config
from iswitch.golden.decide.claims import Claimant, Grant
from iswitch.golden.decide.job import EntryState, Job
from iswitch.golden.decide.slot import Contributors, Ring, Slot
from iswitch.golden.interface.message import Source
from iswitch.golden.numeric.lane import Stored, accumulate, exponent_limit, patterns
from iswitch.native.records import JOB, SLOT, STORED, SumsForm
from iswitch.wire import SILENCE_TICK_US, Format, JobState

__all__ = ["SharedJobs", "SharedNotices", "SharedSums"]

SLOT_FIELDS = len(Slot._fields)
NO_CONTRIBUTORS = Contributors()

if (SLOT.names or ())[:SLOT_FIELDS] != Slot._fields or len(SLOT.names or ()) != SLOT_FIELDS + len(NO_CONTRIBUTORS):
    raise ImportError(f"SLOT has the fields {SLOT.names}, but the golden switch's slots have {Slot._fields}")


class SharedJobs(Sequence[Job]):
    """The jobs of a switch, as a sequence whose items can be replaced.

    Parameters
    ----------
    config : Config
        What the switch is built for.
    empty : Job
        What each number has in the beginning: no job.
    """

    def __init__(self, config: Config, empty: Job) -> None:
        self.rows, self.slots = np.zeros(config.jobs, JOB), np.zeros((config.jobs, config.slots), SLOT)
        self._changed = self.rows["changed"]
        self._kept = [empty] * config.jobs

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, number: int) -> Job: ...
    @overload
    def __getitem__(self, number: slice) -> list[Job]: ...
    def __getitem__(self, number: int | slice) -> Job | list[Job]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if self._changed[number]:
            self._kept[number] = self._read(number, self._kept[number])
            self._changed[number] = 0
        return self._kept[number]

    def __setitem__(self, number: int, job: Job) -> None:
        before = self[number]
        if job is not before:
            self._kept[number] = job
            self._write(number, before, job)

    def peek(self, number: int) -> Job:
        """Return a job whose ring and times may be older than those in the arrays."""
        return self._kept[number]

    def set_leaf(self, number: int) -> None:
        """Leave the messages of a job that has a parent to the golden switch."""
        self.rows[number]["is_leaf"] = 1

    def _read(self, number: int, before: Job) -> Job:
        """Return a job after the data path has changed its ring and the times of its members."""
        row, ring = self.rows[number], before.ring
        members = row["member"][: len(before.entries)]
        rows = self.slots[number].tolist()
        claims = before.claims
        if claims:
            claims = claims._replace(
                base=int(row["base"]),
                grants=tuple(Grant(*grant) for grant in row["grant"][: row["grants"]].tolist()),
                claimants=tuple(map(Claimant, members["claim"].tolist(), members["waiting"].astype(bool).tolist())),
            )
        contributors = () if claims else tuple(Contributors(*fields[SLOT_FIELDS:]) for fields in rows)
        ring = ring._replace(
            slots=tuple(Slot(*fields[:SLOT_FIELDS]) for fields in rows),
            acknowledged=(*members["acknowledged"].tolist(), *ring.acknowledged[len(members) :]),
            admitted=int(row["admitted"]),
            admitted_seq=int(row["admitted_seq"]),
            contributors=contributors,
        )
        return before._replace(ring=ring, claims=claims, last_heard=tuple(members["heard_tick"].tolist()))

    def _write(self, number: int, before: Job, job: Job) -> None:
        row, ring, settings = self.rows[number], job.ring, job.settings
        row["state"], row["epoch"], row["token"] = job.state, job.epoch, job.token
        if job.state == JobState.NONE:
            return
        row["live"], row["joining"], row["threshold"] = ring.live, ring.joining, ring.threshold
        row["admitted"], row["admitted_seq"], row["deadline_us"] = ring.admitted, ring.admitted_seq, ring.deadline_us
        if settings != before.settings:
            row["evict_ticks"], row["world"] = settings.evict_us // SILENCE_TICK_US, settings.world
            row["fraction"], row["limit"] = settings.fraction, exponent_limit(settings.fraction)
            for name in ("elements", "format", "mode", "segments", "staleness"):
                row[name] = getattr(settings, name)
        if job.claims:
            row["base"], row["grants"] = job.claims.base, len(job.claims.grants)
            for k, grant in enumerate(job.claims.grants):
                row["grant"][k] = grant
        members = row["member"]
        for m, entry in enumerate(job.entries):
            member = members[m]
            member["acknowledged"], member["heard_tick"] = ring.acknowledged[m], job.last_heard[m]
            if job.claims:
                member["claim"], member["waiting"] = job.claims.claimants[m]
            if m >= len(before.entries) or entry is not before.entries[m]:
                member["token"], member["ranks"] = entry.token, entry.ranks
                member["present"] = entry.state == EntryState.LIVE
                member["source"] = source_row(entry.source)
        self._write_slots(number, before.ring, ring)

    def _write_slots(self, number: int, before: Ring, ring: Ring) -> None:
        """Write the slots that are others than before."""
        rows, all_new = self.slots[number], len(before.slots) != len(ring.slots)
        contributors, old = ring.contributors, before.contributors
        for index, slot in enumerate(ring.slots):
            new = contributors[index] if contributors else NO_CONTRIBUTORS
            if all_new or slot is not before.slots[index] or new is not (old[index] if old else NO_CONTRIBUTORS):
                rows[index] = (*slot, *new)


def source_row(source: Source) -> tuple[int, int, int, tuple[int, ...]]:
    """Return a `SOURCE`; an entry that was never used has no addresses."""
    return source.ip, source.udp_port, source.port, tuple(source.mac.ljust(6, b"\0"))


class SharedSums:
    """The accumulators of all slots, by job and slot index.

    Parameters
    ----------
    config : Config
        What the switch is built for.
    slots : numpy.ndarray
        `SLOT`, shape (jobs, slots): how many elements each slot has.

    Attributes
    ----------
    stored : numpy.ndarray
        `STORED`, shape (jobs, slots): the form of each slot's accumulators, which says which other arrays count.
    sums, poison, kept : numpy.ndarray
        int64, bool and uint32, shape (jobs, slots, elements): 64-bit sums, poison bits, and the elements of a result.
    """

    def __init__(self, config: Config, slots: np.ndarray) -> None:
        shape = (config.jobs, config.slots, config.elements)
        self.sums, self.poison, self.kept = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, np.uint32)
        self.stored, self._slots = np.zeros(shape[:2], STORED), slots

    def __getitem__(self, place: tuple[int, int]) -> Stored:
        slot = self._slots[place]
        size = patterns(slot["format"]).itemsize if slot["length"] else 1
        elements = int(slot["length"]) // size
        form, fraction = self.stored[place].item()
        if form == SumsForm.RESULT:
            kept, limit = self.kept[place][:elements], exponent_limit(fraction)
            terms, _ = accumulate(Format.WINDOW64, None, kept, fraction=fraction, limit=limit, include=True, first=True)
            return terms
        poison = self.poison[place][:elements].copy() if form == SumsForm.POISONED else np.zeros(elements, bool)
        return Stored(self.sums[place][:elements].copy(), poison)

    def get(self, place: tuple[int, int]) -> Stored:
        return self[place]

    def __setitem__(self, place: tuple[int, int], stored: Stored) -> None:
        elements = len(stored.accumulator)
        self.sums[place][:elements], self.poison[place][:elements] = stored
        self.stored[place]["form"] = SumsForm.POISONED if stored.poison.any() else SumsForm.CLEAN


class SharedNotices:
    """When a host of a port that is no member last got a NOTICE, by port.

    Parameters
    ----------
    ports : int
        Number of ports.
    """

    def __init__(self, ports: int) -> None:
        self.times, self.present = np.zeros(ports, np.uint32), np.zeros(ports, bool)

    def __contains__(self, port: Any) -> bool:
        return bool(self.present[port])

    def __getitem__(self, port: int) -> int:
        return int(self.times[port])

    def __setitem__(self, port: int, now_us: int) -> None:
        self.times[port], self.present[port] = now_us % 2**32, True
