"""The ring of a switch outside any tree: every state that hostile frames reach in a small job, and every frame in it.

The state is the golden model's: the ring, the claims of an asynchronous job, and the members that have fallen silent.
Any live member may send any frame of the case at any time, so each state is compared with each frame. What is no frame
of the ring (departures, Joins, SET_H, FBCAST, RESET, a member that falls silent) leads to other states, by the golden
rules, and is not compared.
"""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np

from hw.interface.rows import ROSTER_FIELDS
from iswitch.config import Config
from iswitch.golden.decide import ring as golden
from iswitch.golden.decide.slot import Step
from iswitch.golden.interface.serial import SERIAL
from iswitch.wire import SILENCE_TICK_US, Outcome, SlotState
from sim.bench.compiled import Compiled
from sim.explore.search import Explorer
from sim.refine.case import (
    Content,
    Contribution,
    FallsSilent,
    Forces,
    Frame,
    JobState,
    Joins,
    Leaves,
    Receipt,
    Resets,
    RingCase,
    SetsThreshold,
)
from sim.refine.comparison import Comparison, Numbers, Variant
from sim.refine.decider import CYCLES
from sim.refine.rows import INCARNATION, ClaimsColumns, SlotColumns, roster

__all__ = ["TICK", "RingComparison", "RingRefinement"]

EVICT_TICKS = 2
"""The silence that a job allows, in ticks. A member has been silent for as long or one tick longer."""
TICK = 1
"""The tick of each frame. The ring has it beside the time."""
GRANT_FORMAT = 3
"""The job's own format, which the result of a segment without members has."""


class RingComparison(Comparison):
    """The decisions about frames, each also as behind a frame of any member whose writes the rows do not show."""

    OF_FRAME: tuple[str, ...] = (
        *(f"request_{name}" for name in ("receipt", "want", "seq", "behind", "numeric", "length", "tainted")),
        *(f"request_{name}" for name in ("boundary", "requires_all", "collective", "digest")),
        *("member", "now_us", "tick", "at"),
    )
    JOB = (
        *("deadline_us", "mode", "evict_us", "segments", "staleness", "numeric", "incarnation", "empty_lap"),
        *("threshold", *ROSTER_FIELDS),
    )
    SAID: tuple[str, ...] = (
        *("outcome", "accepts", "advances", "works", "operation", "first", "emit", "receivers", "completes"),
        *("tells", "told", "evicts", "victim"),
    )
    HOLD, AT = CYCLES, CYCLES

    def __init__(self, part: Compiled, config: Config, frames: list[Numbers]) -> None:
        self.members = range(config.members)
        slot = SlotColumns(config).names
        rows = [*(f"job_{name}" for name in self.JOB), *(f"slot_{name}" for name in slot)]
        rows += [f"{name}_{m}" for name in ("acknowledged", "heard") for m in self.members]
        rows += [f"row_{name}" for name in ClaimsColumns(config).names]
        said = [*self.SAID, *(f"roster_{name}" for name in ROSTER_FIELDS)]
        said += [*(f"slot_{name}" for name in slot), *(f"acknowledged_{m}" for m in self.members)]
        super().__init__(
            part,
            of_frame=self.OF_FRAME,
            of_rows=rows,
            frames=frames,
            said=[f"decided_{name}" for name in said],
            hold=self.HOLD,
            at=self.AT,
        )

    def variants(self, given: np.ndarray, said: np.ndarray) -> Iterator[Variant]:
        yield from super().variants(given, said)
        # The core lets a frame enter early only while no member is joining, or was admitted at the last boundary.
        settled = (given[:, self.input["job_joining"]] | given[:, self.input["job_admitted"]]) == 0
        for m, advances in product(self.members, (0, 1)):
            live = (given[:, self.input["job_live"]] >> np.uint64(m) & np.uint64(1)) == 1
            index = np.flatnonzero(settled & live)
            inputs, outputs = given[index], said[index]
            known, heard = self.input[f"acknowledged_{m}"], self.input[f"heard_{m}"]
            row = inputs[:, known].copy()
            other = row ^ np.uint64(0xA5A5A5A5)
            before = {
                "valid": 1,
                "member": m,
                "tick": inputs[:, heard],
                "advances": advances,
                "low": row if advances else other,
            }
            for name, value in before.items():
                inputs[:, self.input[f"before_{name}"]] = value
            inputs[:, heard] ^= np.uint64(0x5A5A)
            if advances:
                inputs[:, known] = other
                after = outputs[:, m - len(self.members)]
                np.copyto(after, other, where=after == row)
            yield index, inputs, outputs


class RingRefinement(Explorer[JobState]):
    """Search of one `RingCase`. Each frame in each state is compared with what the compiled gateware decides."""

    updates: Numbers = (0, 0)
    """M and S of an asynchronous job."""
    comparison: type[RingComparison] = RingComparison

    def __init__(self, case: RingCase, part: Compiled) -> None:
        self.case, config = case, case.config()
        self.frames, self.slot_row = case.frames(), cache(SlotColumns(config).row)
        self.number = {frame: k for k, frame in enumerate(self.frames)}
        self.compared = self.comparison(part, config, [self.of_frame(frame) for frame in self.frames])
        self.comparisons: tuple[Comparison, ...] = (self.compared,)
        self._frames_of: dict[int, Sequence[Any]] = {}
        self._state: JobState | None = None

    def start(self) -> JobState:
        c = self.case
        ring = golden.new_ring(c.first, c.window, c.members, (1 << c.members) - 1, c.thresholds[0], c.deadline_us)
        return JobState(ring)

    def is_covered(self, state: JobState) -> bool:
        return bool(state.ring.live)

    # What may happen

    def events(self, state: JobState) -> Iterator[tuple]:
        c, ring = self.case, state.ring
        members = range(c.members)
        yield from self.frames_of(ring.live)
        if c.leaves:
            yield from (Leaves(m) for m in members if (ring.live | ring.joining) >> m & 1)
        if c.joins:
            yield from (Joins(m) for m in members if not (ring.live | ring.joining) >> m & 1)
        if c.silences:
            yield from (FallsSilent(m) for m in members if ring.live & ~state.silent & 1 << m)
        yield from (SetsThreshold(h) for h in c.thresholds if h != ring.threshold)
        if c.forces:
            yield from (Forces(k) for k, slot in enumerate(ring.slots) if slot.state == SlotState.COLLECTING)
        if c.resets:
            yield Resets()

    def frames_of(self, live: int) -> Sequence[Any]:
        """Return every frame of the live members."""
        if live not in self._frames_of:
            self._frames_of[live] = [frame for frame in self.frames if live >> frame.member & 1]
        return self._frames_of[live]

    # What it does

    def after(self, state: JobState, event: tuple) -> JobState:
        ring = state.ring
        match event:
            case Contribution() | Receipt():
                step = self.step(state, event)
                victim = self.victim(state, event.member, step.waits_for)
                self.compare(state, event, step, victim)
                state = state._replace(ring=step.ring, silent=state.silent & ~(1 << event.member))
                return self.settled(state if victim is None else self.without(state, victim))
            case Leaves(member):
                return self.settled(self.without(state, member))
            case Joins(member):
                return self.settled(state._replace(ring=ring._replace(joining=ring.joining | 1 << member)))
            case FallsSilent(member):
                return state._replace(silent=state.silent | 1 << member)
            case SetsThreshold(threshold):
                return state._replace(ring=ring._replace(threshold=threshold))
            case Forces(slot):
                return state._replace(ring=golden.force(ring, slot)[0])
        c = self.case
        new = golden.new_ring(c.first, c.window, c.members, ring.live, ring.threshold, ring.deadline_us)
        return state._replace(ring=new._replace(joining=ring.joining))

    def step(self, state: JobState, frame: Frame) -> Step:
        """Return what the golden rules make of a frame, as `golden/switch.py` calls them."""
        granted = self.granted(state, frame.seq)
        if isinstance(frame, Receipt):
            return golden.receipt(
                state.ring,
                member=frame.member,
                seq=frame.seq,
                behind=frame.behind,
                want=frame.want,
                granted=granted,
                format=GRANT_FORMAT,
                length=4,
            )
        content = frame.content
        return golden.contribute(
            state.ring,
            member=frame.member,
            seq=frame.seq,
            behind=frame.behind,
            format=content.format,
            length=content.length,
            boundary=content.boundary and not state.claims,
            requires_all=content.requires_all or bool(state.claims),
            tainted=content.tainted,
            quarantine=self.case.quarantine,
            now_us=frame.now_us,
            granted=granted or 0 if state.claims else None,
            collective=content.collective,
            digest=content.digest,
        )

    @staticmethod
    def victim(state: JobState, sender: int, waits_for: int) -> int | None:
        """Return the first silent member that the sender waits for, or None."""
        late = waits_for & state.silent & ~(1 << sender)
        return (late & -late).bit_length() - 1 if late else None

    def granted(self, state: JobState, seq: int) -> int | None:
        """Return the members to which a seq is granted in an asynchronous job, or None."""
        return None

    def without(self, state: JobState, member: int) -> JobState:
        """Return the state after a member left or was evicted."""
        return state._replace(ring=golden.leave(state.ring, member)[0], silent=state.silent & ~(1 << member))

    def settled(self, state: JobState) -> JobState:
        """Return the state after whatever follows an event."""
        return state

    # What is compared

    def compare(self, state: JobState, frame: Frame, step: Step, victim: int | None) -> None:
        """Compare a frame's decision, and the rows after it."""
        index = frame.seq % self.case.slots
        before, after = state.ring.slots[index], step.ring.slots[index]
        row = self.slot_row(before)
        work, told = step.work, step.differs_from
        accepts = step.outcome in (Outcome.ADDED, Outcome.QUARANTINED)
        said = (
            step.outcome,
            accepts,
            accepts and step.ring.acknowledged[frame.member] != state.ring.acknowledged[frame.member],
            *((1, work.operation, work.first, work.emit, work.receivers) if work else (0,) * 5),
            work is not None and work.emit,
            *((0, 0) if told is None else (1, told)),
            *((0, 0) if victim is None else (1, victim)),
            *roster(step.ring),
            *(row if after is before or after == before else self.slot_row(after)),
            *step.ring.acknowledged,
        )
        self.compared.add((state, frame), self.rows(state, row), self.number[frame], said)

    def rows(self, state: JobState, slot: Numbers) -> Numbers:
        """Return the rows of a job, one of its slots, its members and its claims."""
        if state is not self._state:
            c, ring = self.case, state.ring
            self._state = state
            self._job = (*self.constant, ring.threshold, *roster(ring))
            self._rest = (
                *ring.acknowledged,
                *((TICK - EVICT_TICKS - (state.silent >> m & 1)) % 2**16 for m in range(c.members)),
                *self.claims_columns(state),
            )
        return (*self._job, *slot, *self._rest)

    def claims_columns(self, state: JobState) -> Numbers:
        """Return the row of the claims, which a synchronous job does not have."""
        return (0,) * len(ClaimsColumns(self.case.config()).names)

    @cached_property
    def constant(self) -> Numbers:
        """What the row of the job contains in each state."""
        c = self.case
        return (
            c.deadline_us,
            not c.quarantine,
            EVICT_TICKS * SILENCE_TICK_US if c.silences else 0,
            *self.updates,
            GRANT_FORMAT,
            INCARNATION,
            (c.first // c.slots - 1) % (SERIAL // c.slots),
        )

    def of_frame(self, frame: Any) -> Numbers:
        """Return what the gateware is given of a frame."""
        receipt, asynchronous = isinstance(frame, Receipt), bool(self.updates[0])
        content = Content() if isinstance(frame, Receipt) else frame.content
        return (
            receipt,
            isinstance(frame, Receipt) and frame.want,
            frame.seq,
            frame.behind,
            content.format,
            content.length,
            content.tainted,
            content.boundary and not asynchronous,
            content.requires_all or asynchronous,
            content.collective,
            content.digest,
            frame.member,
            frame.now_us,
            TICK,
            frame.seq,
        )
