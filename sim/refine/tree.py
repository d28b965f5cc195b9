"""The ring of a switch in a tree, a leaf or the root: every state of small jobs, and in it every contribution, uplink
and receipt, and every result and notice of the parent.

A *leaf* is any switch with a parent. In a tree no member joins a running job, so no boundary admits one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from iswitch.config import Config
from iswitch.golden.decide import tree as golden
from iswitch.golden.decide.slot import Step
from iswitch.golden.decide.tree import LeafReceipt
from iswitch.wire import Outcome, SlotState
from sim.refine.case import Content, Contribution, JobState, Receipt, RingCase
from sim.refine.comparison import Comparison, Numbers
from sim.refine.ring import TICK, RingComparison, RingRefinement
from sim.refine.rows import roster

__all__ = ["Notice", "Result", "TreeCase", "TreeRefinement", "Uplink"]


class Uplink(NamedTuple):
    """A member that is a switch sends up what it has summed. `ranks`, `tainted`: whether its rank is in the sum, and
    whether the rank's elements were rejected."""

    member: int
    seq: int
    behind: int
    now_us: int
    content: Content
    ranks: bool
    tainted: bool
    partial: bool


class Result(NamedTuple):
    """A result of the parent."""

    seq: int
    format: int
    length: int
    ranks: int
    tainted: int
    partial: bool
    identity: int


class Notice(NamedTuple):
    """A notice of the parent about another collective."""

    seq: int
    collective: int


FROM_PARENT = Result | Notice
TreeFrame = Contribution | Receipt | Uplink | Result | Notice


@dataclass(frozen=True)
class TreeCase(RingCase):
    """A small job at a switch of a tree.

    Parameters
    ----------
    leaf : bool
        Whether the switch has a parent.
    uplinks : tuple of (bool, bool, bool)
        `ranks`, `tainted` and `partial` of uplinks.
    results : tuple of tuple
        What results of the parent contain behind their seq.
    collectives : tuple of int
        The collectives that the parent's notices name.
    """

    leaf: bool = True
    uplinks: tuple[tuple[bool, bool, bool], ...] = ()
    results: tuple[tuple[int, int, int, int, bool, int], ...] = ()
    collectives: tuple[int, ...] = ()

    def config(self) -> Config:
        return replace(super().config(), uplinks=True)

    def frames(self) -> Sequence[Any]:
        """Return every frame of every member and of the parent."""
        frames: list[TreeFrame] = [*super().frames()]
        for member, offset, behind, now_us in product(range(self.members), self.seqs, self.behinds, self.times):
            about = member, self.seq(offset), behind, now_us
            frames += [Uplink(*about, content, *said) for content in self.contents for said in self.uplinks]
        for offset in self.seqs if self.leaf else ():
            frames += [Result(self.seq(offset), *said) for said in self.results]
            frames += [Notice(self.seq(offset), collective) for collective in self.collectives]
        return frames


class TreeComparison(RingComparison):
    """The decisions in a tree. What a leaf reports is there a cycle later."""

    OF_FRAME = (
        *RingComparison.OF_FRAME,
        *(f"request_{name}" for name in ("uplink", "install", "contest", "ranks", "tainted_ranks", "partial")),
        "is_leaf",
    )
    SAID = (*RingComparison.SAID, "up", "reports", "report_seq", "behind", "want")
    HOLD, AT = 5, 4

    variants = Comparison.variants


class TreeRefinement(RingRefinement):
    """Search of one `TreeCase`."""

    case: TreeCase
    comparison = TreeComparison

    def frames_of(self, live: int) -> Sequence[Any]:
        """Return every frame of the live members, and of the parent."""
        if live not in self._frames_of:
            of_parent = [frame for frame in self.frames if isinstance(frame, FROM_PARENT)]
            of_members = [
                frame for frame in self.frames if not isinstance(frame, FROM_PARENT) and live >> frame.member & 1
            ]
            self._frames_of[live] = [*of_members, *of_parent]
        return self._frames_of[live]

    def after(self, state: JobState, event: tuple) -> JobState:
        if not isinstance(event, TreeFrame):
            return super().after(state, event)
        step, report = self.decide(state, event)
        if self.case.leaf and not step.ring.admitted:
            # Of a boundary that admits no member nothing remains; a leaf does not record it.
            step = step._replace(ring=step.ring._replace(admitted_seq=state.ring.admitted_seq))
        victim, silent = None, state.silent
        if not isinstance(event, FROM_PARENT):
            victim = self.victim(state, event.member, step.waits_for)
            silent &= ~(1 << event.member)
        self.compare_in_tree(state, event, step, victim, report)
        state = state._replace(ring=step.ring, silent=silent)
        return state if victim is None else self.without(state, victim)

    def without(self, state: JobState, member: int) -> JobState:
        ring = golden.leave(state.ring, member, leaf=self.case.leaf)[0]
        if self.case.leaf and not ring.admitted:
            ring = ring._replace(admitted_seq=state.ring.admitted_seq)
        return state._replace(ring=ring, silent=state.silent & ~(1 << member))

    def decide(self, state: JobState, frame: TreeFrame) -> tuple[Step, LeafReceipt | None]:
        """Return what the golden rules make of a frame, as `golden/tree_switch.py` calls them, and what a leaf
        reports."""
        ring, leaf = state.ring, self.case.leaf
        match frame:
            case Notice(seq, collective):
                ring, outcome = golden.contest(ring, seq=seq, collective=collective)
                return Step(ring, outcome), None
            case Result():
                return golden.install(ring, **frame._asdict()), None
            case Receipt(member, seq, behind, _, want):
                return golden.receipt(ring, leaf=leaf, member=member, seq=seq, behind=behind, want=want)
        content, rank = frame.content, 1 << frame.member
        if isinstance(frame, Uplink):
            ranks, tainted, partial = rank * frame.ranks, rank * frame.tainted, frame.partial
        else:
            tainted, partial = rank * content.tainted, False
            ranks = 0 if tainted and self.case.quarantine else rank
        step = golden.contribute(
            ring,
            leaf=leaf,
            member=frame.member,
            ranks=ranks,
            seq=frame.seq,
            behind=frame.behind,
            format=content.format,
            length=content.length,
            boundary=content.boundary,
            requires_all=content.requires_all,
            tainted=tainted,
            partial=partial,
            uplink=isinstance(frame, Uplink),
            collective=content.collective,
            digest=content.digest,
            now_us=frame.now_us,
        )
        return step, golden.keepalive(step, leaf=leaf)

    def compare_in_tree(
        self, state: JobState, frame: TreeFrame, step: Step, victim: int | None, report: LeafReceipt | None
    ) -> None:
        """Compare a frame's decision, the rows after it, and what a leaf reports."""
        index = frame.seq % self.case.slots
        row = self.slot_row(state.ring.slots[index], golden.contributors(state.ring, index))
        after, work, told = step.ring.slots[index], step.work, step.differs_from
        accepts = step.outcome in (Outcome.ADDED, Outcome.QUARANTINED) and not isinstance(frame, Result)
        up = self.case.leaf and work is not None and work.emit and after.state == SlotState.SENT_UP
        said = (
            step.outcome,
            accepts,
            accepts and step.ring.acknowledged != state.ring.acknowledged,
            *((1, work.operation, work.first, work.emit, 0 if up else work.receivers) if work else (0,) * 5),
            work is not None and work.emit and not self.case.leaf,
            *((0, 0) if told is None else (1, told)),
            *((0, 0) if victim is None else (1, victim)),
            up,
            *((1, *report) if report else (0,) * 4),
            *roster(step.ring),
            *self.slot_row(after, golden.contributors(step.ring, index)),
            *step.ring.acknowledged,
        )
        self.compared.add((state, frame), self.rows(state, row), self.number[frame], said)

    def of_frame(self, frame: Any) -> Numbers:
        return (*self.request(frame), self.case.leaf)

    def request(self, frame: TreeFrame) -> Numbers:
        """Return the fields of a frame."""
        if isinstance(frame, Notice):
            return (0, 0, frame.seq, *(0,) * 6, frame.collective, 0, 0, 0, TICK, frame.seq, 0, 0, 1, 0, 0, 0)
        if isinstance(frame, Result):
            request = (0, 0, frame.seq, 0, frame.format, frame.length, *(0,) * 4, frame.identity, 0, 0, TICK)
            return (*request, frame.seq, 0, 1, 0, frame.ranks, frame.tainted, frame.partial)
        rank = 1 << frame.member
        if isinstance(frame, Uplink):
            named = 1, 0, 0, rank * frame.ranks, rank * frame.tainted, int(frame.partial)
            return (*super().of_frame(Contribution(*frame[:5])), *named)
        tainted = isinstance(frame, Contribution) and frame.content.tainted
        return (*super().of_frame(frame), 0, 0, 0, rank, rank * tainted, 0)
