"""The switches of `tree.py`: the golden rules of a tree, and beside them accumulators and every promise made so far.

A payload is one bit that names its worker and segment. The accumulators are sets of such bits. Each step is checked as
it is made.
"""

from typing import NamedTuple

from iswitch.golden.decide import ring as flat
from iswitch.golden.decide import tree as golden
from iswitch.golden.decide.slot import Ring, Slot, Work
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Operation, Outcome, SlotState
from sim.explore.messages import UNKNOWN, Contribution, Leave, Receipt, SegmentNumbers, known
from sim.explore.search import Event, Violation
from sim.explore.switch import ExploredSwitch
from sim.explore.tree_scenario import LeafReceipt, MemberLeaves, ParentResult, SlotExpires, TreeScenario, Uplink

__all__ = ["SwitchTree", "TreeCore", "TreeSent"]


class TreeCore(NamedTuple):
    """One switch, by its number, and what its promises refer to.

    `accumulators`: per slot, bit `segment * workers + worker` for each payload in the sum. `sent_up` and `results`: per
    segment, the ranks in it, or UNKNOWN. `still_deliverable`: per member that has left, the bit mask of results that it
    may still get.
    """

    switch: int
    ring: Ring
    accumulators: tuple[int, ...]
    sent_up: tuple[int, ...]
    results: tuple[int, ...]
    still_deliverable: tuple[int, ...]


class TreeSent(NamedTuple):
    """What a step makes a switch send: a message to its parent, and the result of `segment` to the set `receivers`."""

    up: Event | None
    segment: int
    receivers: int


class SwitchTree(ExploredSwitch[TreeCore, TreeSent]):
    """All switches of a tree; a state is that of one of them.

    The members of a switch are its switches, then its workers. `children` and `locals` list them for each switch.
    `child_index` of a switch and `worker_index` of a worker are their indices as members.
    """

    def __init__(self, scenario: TreeScenario) -> None:
        super().__init__()
        s = self.scenario = scenario
        self.numbers = SegmentNumbers(s.window)
        self.workers, self.switches = range(len(s.homes)), range(len(s.parents))
        self.children = [[c for c in self.switches if s.parents[c] == k] for k in self.switches]
        self.locals = [[w for w in self.workers if s.homes[w] == k] for k in self.switches]
        self.child_index = [self.children[s.parents[c]].index(c) if c else UNKNOWN for c in self.switches]
        self.worker_index = [len(self.children[k]) + self.locals[k].index(w) for w, k in enumerate(s.homes)]
        self.all_contribute = not s.threshold and not s.deadlines
        longest = s.rules.behind_limit(flat.new_ring(0, s.window, 0, 0, 0)) or s.window
        # With H = N nothing, switches included, is a window behind what it sends.
        self.reach = s.window if self.all_contribute else longest

    def start(self) -> tuple[int, ...]:
        """Return the number of each switch's first state: all members live, all slots empty."""
        s, numbers = self.scenario, []
        for k in self.switches:
            members = len(self.children[k]) + len(self.locals[k])
            threshold = s.threshold if s.threshold and not k else len(self.workers)
            ring = flat.new_ring(self.numbers.first_seq, s.window, members, (1 << members) - 1, threshold)
            nothing = (UNKNOWN,) * s.segments
            numbers.append(self.number(TreeCore(k, ring, (0,) * len(ring.slots), nothing, nothing, (0,) * members)))
        return tuple(numbers)

    def transition(self, state: TreeCore, event: Event) -> tuple[TreeCore, TreeSent]:
        """Return the switch after an event. Messages of members that have left are not given to it."""
        up: Event | None = None
        match event:
            case Leave() | MemberLeaves():
                state, works = self._depart(state, event)
            case SlotExpires(_, index):
                ring, work = flat.force(state.ring, index)
                state, works = state._replace(ring=golden.close(ring, work, state.switch != 0)), [work]
            case ParentResult():
                state, works = self._install(state, event)
            case _:
                state, works, up = self._receive(state, event)
        segment, receivers = UNKNOWN, 0
        for work in works:
            state = self._execute(state, work, event)
            slot = state.ring.slots[work.slot]
            if slot.state == SlotState.SENT_UP and work.emit:
                up = self._uplink(state, self.segment(slot))
            elif work.emit:
                segment, receivers = self.segment(slot), state.ring.live
            elif work.operation == Operation.RESEND and self._may_resend(state, work):
                segment, receivers = self.segment(slot), work.receivers
        return state, TreeSent(up, segment, receivers)

    def _depart(self, state: TreeCore, event: Leave | MemberLeaves) -> tuple[TreeCore, list[Work]]:
        """A member leaves. With the last one the job ends here; what is in flight still says what that one held."""
        ring, member = state.ring, self.member(event)
        deliverable = replace_at(state.still_deliverable, member, known(state.results))
        state = state._replace(still_deliverable=deliverable)
        if ring.live == 1 << member:
            acknowledged = (ring.acknowledged[member],) * len(ring.acknowledged)
            return state._replace(ring=ring._replace(live=0, acknowledged=acknowledged)), []
        ring, works = golden.leave(ring, member, leaf=state.switch != 0)
        return state._replace(ring=ring), works

    def _install(self, state: TreeCore, event: ParentResult) -> tuple[TreeCore, list[Work]]:
        step = golden.install(
            state.ring, seq=self.numbers.seq(event.segment), ranks=event.ranks, rules=self.scenario.rules
        )
        if step.outcome in (Outcome.SLOT_HELD, Outcome.WINDOW):
            raise Violation(f"a leaf refuses its parent's result with {step.outcome.name}")
        return state._replace(ring=step.ring), [step.work] if step.work else []

    def _receive(self, state: TreeCore, event: Event) -> tuple[TreeCore, list[Work], LeafReceipt | None]:
        """A member's contribution, uplink or receipt, and the receipt that it makes a leaf send up."""
        s, leaf, up = self.scenario, state.switch != 0, None
        seq, behind = self.numbers.seq(event.segment), event.segment - event.low
        if isinstance(event, (Contribution, Uplink)):
            worker = isinstance(event, Contribution)
            step = golden.contribute(
                state.ring,
                leaf=leaf,
                member=self.member(event),
                ranks=self._ranks(event),
                seq=seq,
                behind=behind,
                tainted=1 << event.worker if worker and (event.worker, event.segment) in s.tainted else 0,
                uplink=not worker,
                rules=s.rules,
            )
            report = golden.keepalive(step, leaf=leaf, rules=s.rules) if s.receipts else None
        else:
            step, report = golden.receipt(
                state.ring,
                leaf=leaf,
                member=self.member(event),
                seq=seq,
                behind=behind,
                want=event.wanted != UNKNOWN,
                rules=s.rules,
            )
        if report and s.reports:
            segment = self.numbers.segment(report.seq)
            up = LeafReceipt(state.switch, segment - report.behind, segment if report.want else UNKNOWN)
        if step.outcome == Outcome.WINDOW or self.all_contribute and step.outcome == Outcome.SLOT_HELD:
            raise Violation(f"an honest sender is refused with {step.outcome.name}")
        return state._replace(ring=step.ring), [step.work] if step.work else [], up

    def _may_resend(self, state: TreeCore, work: Work) -> bool:
        return self.scenario.answers or work.receivers >> len(self.children[state.switch]) > 0

    def _execute(self, state: TreeCore, work: Work, event: Event) -> TreeCore:
        """Execute an operation on the accumulators, and check what leaves against the header that goes with it."""
        slot, content = state.ring.slots[work.slot], state.accumulators[work.slot]
        segment = self.segment(slot)
        if work.operation in (Operation.CONTRIBUTE, Operation.FORCE, Operation.INSTALL_DOWN):
            content = 0 if work.first else content
            terms = 0 if work.operation == Operation.FORCE else self._payload(self._ranks(event), event.segment)
            if content & terms:
                raise Violation("a worker is in a sum twice")
            content |= terms
            state = state._replace(accumulators=replace_at(state.accumulators, work.slot, content))
            if not work.emit:
                return state
        ranks = golden.contributors(state.ring, work.slot).ranks
        if content != self._payload(ranks, segment):
            raise Violation("a sum differs from its ranks' payloads")
        if slot.state == SlotState.SENT_UP:
            return self._check_sent_up(state, segment, ranks)
        if slot.state != SlotState.COMPLETE:
            raise Violation("a slot that is not complete sends a result")
        if state.results[segment] not in (UNKNOWN, ranks):
            raise Violation("a result changes")
        if not state.switch:
            self._check_root_result(state.ring, slot, ranks)
        return state._replace(results=replace_at(state.results, segment, ranks))

    def _check_sent_up(self, state: TreeCore, segment: int, ranks: int) -> TreeCore:
        if state.sent_up[segment] not in (UNKNOWN, ranks):
            raise Violation("a partial sum changes")
        if segment - self.low(state) >= self.reach:
            raise Violation("an honest switch is too far behind")
        return state._replace(sent_up=replace_at(state.sent_up, segment, ranks))

    def _check_root_result(self, ring: Ring, slot: Slot, ranks: int) -> None:
        s, everyone = self.scenario, (1 << len(self.workers)) - 1
        if not s.deadlines and ring.live & ~slot.arrived and slot.members.bit_count() < ring.threshold:
            raise Violation("a slot completes with too few workers")
        if self.all_contribute and not s.leaves and not s.evicted and not s.tainted and ranks != everyone:
            raise Violation("H = N, but a result lacks a worker")

    def place(self, event: Event) -> int:
        """Return the switch that an event concerns."""
        match event:
            case Contribution() | Receipt() | Leave():
                return self.scenario.homes[event.worker]
            case Uplink() | LeafReceipt() | MemberLeaves():
                return self.scenario.parents[event.switch]
        return event.switch

    def member(self, event: Event) -> int:
        """Return the index of an event's sender at the switch that the event concerns."""
        if isinstance(event, (Contribution, Receipt, Leave)):
            return self.worker_index[event.worker]
        return self.child_index[event.switch]

    def _ranks(self, event: Event) -> int:
        """Return the ranks whose payloads a message carries into the sum."""
        if isinstance(event, Contribution):
            return 0 if (event.worker, event.segment) in self.scenario.tainted else 1 << event.worker
        return event.ranks

    def _payload(self, ranks: int, segment: int) -> int:
        return ranks << segment * len(self.workers)

    def segment(self, slot: Slot) -> int:
        """Return the segment of a slot."""
        return self.numbers.segment(slot.seq)

    def _uplink(self, state: TreeCore, segment: int) -> Uplink:
        return Uplink(state.switch, segment, state.sent_up[segment], self.low(state))

    def low(self, state: TreeCore) -> int:
        """Return the lowest segment whose result a member below a switch may lack, as the switch reports it."""
        ring = state.ring
        return self.numbers.segment(
            self.scenario.rules.lowest_acknowledged(ring) if ring.live else ring.acknowledged[0]
        )
