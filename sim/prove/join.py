"""A Join and the rows of its job: whatever the job's state is, each rank belongs to one member afterwards."""

import itertools
from functools import reduce
from operator import or_
from typing import Any
from unittest import mock

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data

import hw.decide.membership.entry_search
import hw.decide.membership.join
from hw.interface.rows import job_row, member_row
from iswitch.config import Config
from iswitch.wire import JobState
from sim.prove.harness import Harness
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

CONFIG = Config(ports=2, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)
MEMBERS = range(CONFIG.members)
CYCLES = 36
"""A Join takes fewer, also if two entries are cleared for it."""


class Rows:
    """The rows of one job and of its members, as `hw.decide.tables` shows and writes them.

    Attributes
    ----------
    job : data.View
        The job's row.
    entries : list of data.View
        The members' rows.
    job_before, before : data.View and list of data.View
        The rows before the Join, arbitrary.
    """

    def __init__(self, h: Harness, tables: Any):
        m, job, member = h.m, job_row(CONFIG), member_row(CONFIG)
        constant = lambda layout, name: data.View(layout, h.constant(layout.size, name))
        self.job_before = constant(job, "job_before")
        self.before = [constant(member, f"entry_{k}_before") for k in MEMBERS]
        self.job = Signal(job, reset_less=True)
        self.entries = [Signal(member, name=f"entry_{k}", reset_less=True) for k in MEMBERS]
        first = Signal(init=1)
        m.d.sync += first.eq(0)
        pairs = zip([self.job, *self.entries], [self.job_before, *self.before], strict=True)
        h.assume(~first | Cat(Value.cast(now) == Value.cast(before) for now, before in pairs).all())

        # A write is in the rows two cycles later.
        entries_now = [Signal(member, name=f"entry_{k}_now") for k in MEMBERS]
        m.d.comb += [now.eq(entry) for now, entry in zip(entries_now, self.entries, strict=True)]
        at = Signal.like(tables.member, name="pointed")
        m.d.sync += at.eq(tables.member)
        for record in ("settings", "status", "roster", "sender", "entry"):
            after, write = getattr(tables, f"{record}_next"), Signal(name=f"late_{record}_write")
            late = Signal(after.shape(), name=f"late_{record}", reset_less=True)
            m.d.sync += [write.eq(getattr(tables, f"{record}_write")), late.eq(after)]
            if record in ("sender", "entry"):
                for k, now in enumerate(entries_now):
                    with m.If(write & (at == k)):
                        m.d.comb += [now[field].eq(late[field]) for field in after.shape().members]
            else:
                with m.If(write):
                    m.d.sync += [self.job[field].eq(late[field]) for field in after.shape().members]
        m.d.sync += [entry.eq(now) for entry, now in zip(self.entries, entries_now, strict=True)]
        shown = Signal(member, reset_less=True)
        behind_last = data.View(member, h.free(member.size, "behind_last"))
        m.d.sync += shown.eq(Array([*(Value.cast(now) for now in entries_now), behind_last.as_value()])[tables.member])
        m.d.comb += [tables.job_row.eq(self.job), tables.member_row.eq(shown)]


def are_sound(job: Any, entries: list[Any], *, is_leaf: Value) -> Value:
    """Return whether each member has ranks of its own, the lowest of which is its index, and the job's row knows the
    members."""
    live = Cat(entry.live for entry in entries)
    exists = job.state != JobState.NONE
    rules = [live == (job.live | job.joining), (job.live & job.joining) == 0, exists | (live == 0)]
    rules += [~exists | ((job.world != 0) & (job.world <= CONFIG.members))]
    for k, entry in enumerate(entries):
        rules.append(~entry.live | (Mux(entry.sends_uplinks, entry.ranks[: k + 1], entry.ranks) == 1 << k))
        rules.append(~entry.live | ~entry.sends_uplinks | job.tree)
        rules.append(~entry.live | is_leaf | ((entry.ranks >> job.world) == 0))
    for one, other in itertools.combinations(entries, 2):
        rules.append(~(one.live & other.live) | ((one.ranks & other.ranks) == 0))
    union = reduce(or_, (Mux(entry.live, entry.ranks, 0) for entry in entries))
    # In a tree nobody is joining. The job's row is asked for the ranks at a leaf, and while the job forms.
    forms = job.state == JobState.FORMING
    rules.append(~exists | ~(is_leaf | forms | job.tree) | (job.joining == 0))
    rules.append(~exists | ~(is_leaf | forms) | (job.ranks == union))
    return Cat(*rules).all()


class JoinedJob:
    """A Join, and the rows of its job before and after. `after`: the Join is done, and the rows show what it wrote."""

    def __init__(self, part: Any):
        with mock.patch.object(hw.decide.membership.join, "EntrySearch", part.EntrySearch):
            self.h = h = Harness(dut := hw.decide.membership.join.Join(CONFIG))
        tables = dut.tables
        h.constant_inputs(dut.start, tables.job_row, tables.member_row)
        self.dut, self.request, self.frame = dut, dut.request, dut.request.headers.frame
        self.rows = rows = Rows(h, tables)
        age, ended, self.after = Signal(range(CYCLES + 1)), Signal(3), Signal()
        h.m.d.sync += [age.eq(age + (age != CYCLES)), ended.eq(Cat(dut.done | ended[0], ended))]
        h.m.d.comb += [dut.start.eq(age == 1), self.after.eq(ended[-1])]
        h.require((age != CYCLES - 1) | self.after)
        h.assume(self.request.job_in_range == (self.frame.job < CONFIG.jobs))
        h.assume(are_sound(rows.job_before, rows.before, is_leaf=self.request.is_leaf))
        # A job that becomes a tree while a member is joining is left out.
        h.assume((self.frame.members == 0) | (rows.job_before.joining == 0))


def rows_stay_sound(part: Any) -> Harness:
    """If the rows are sound before a Join, they are sound after it."""
    c = JoinedJob(part)
    rows, h = c.rows, c.h
    h.require(~c.after | are_sound(rows.job, rows.entries, is_leaf=c.request.is_leaf))
    h.reach(c.after & (rows.job_before.state == JobState.NONE) & rows.entries[1].live)
    h.reach(c.after & rows.before[2].live & ~rows.entries[2].live)
    h.reach(c.after & (rows.job_before.state == JobState.FORMING) & (rows.job.state == JobState.RUNNING))
    return h


PROOFS = [
    Proof(
        law="after a Join each rank belongs to one live member, and the job's row knows the members and their ranks",
        part=hw.decide.membership.entry_search,
        harness=rows_stay_sound,
        depth=CYCLES,
        covers_all=True,
        mutants=(
            ("empty, wants_any = free & ~ranks_taken,", "empty, wants_any = free,"),
            ("status_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0))", "status_next.ranks.eq(job.ranks)"),
            ("(wanted != NO_MEMBER) & holder_found", "0"),
            ("tables.roster_next.live.eq(job.live & ~(1 << index))", "tables.roster_next.live.eq(job.live)"),
            ("objection.eq(rank_is_taken | rank_not_allowed |", "objection.eq(rank_is_taken |"),
        ),
    )
]
