"""The switches of `tree.py`: rings on one side, accumulators and everything that was promised on the other.

A payload is one bit that names its worker and segment; the accumulators are sets of such bits. Each step is checked as
it is made.
"""

from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState
from sim.explore.cores import Cores
from sim.explore.ring_switch import SERIAL, UNKNOWN, Contribution, Leave, Receipt
from sim.explore.search import Violation, put
from sim.model.decide import ring as flat
from sim.model.decide import tree
from sim.model.decide.ring import Ring, Slot, Work
from sim.model.decide.tree import RULES, Rules

__all__ = ["Core", "Down", "Event", "Expire", "Part", "Report", "Scenario", "Sent", "SwitchTree", "Uplink", "known"]

Event = Any
"""One of the tuples below."""


class Scenario(NamedTuple):
    """`parents`: the switch above each switch; switch 0 is the root, with -1. `homes`: each worker's switch.

    `threshold`: how many of the root's *members* make a result, 0 for all. `deadlines`: switches whose slots may
    expire. `leaves`: how many workers may leave. `evicted`: switches that their parent may evict. `tainted`: (worker,
    segment) pairs to be quarantined. `silent`: sets of workers without whose contributions the others must get on,
    given their receipts. The last four make mutants; `answers`: the root repeats its results to switches, `reports`:
    leaves send receipts up.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    window: int = 1
    segments: int = 4
    threshold: int = 0
    deadlines: tuple[int, ...] = ()
    leaves: int = 0
    evicted: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    silent: tuple[frozenset[int], ...] = (frozenset(),)
    receipts: bool = True
    rules: Rules = RULES
    answers: bool = True
    reports: bool = True


class Uplink(NamedTuple):
    """`ranks` are in the partial sum; nobody below the switch lacked anything below `low`."""

    switch: int
    segment: int
    ranks: int
    low: int


class Report(NamedTuple):
    """A leaf's receipt."""

    switch: int
    low: int
    wanted: int


class Down(NamedTuple):
    """A result of its parent reaches a leaf."""

    switch: int
    segment: int
    ranks: int


class Part(NamedTuple):
    """A switch leaves its parent, having nobody below, or is evicted."""

    switch: int


class Expire(NamedTuple):
    """The deadline of a collecting slot is over."""

    switch: int
    slot: int


class Core(NamedTuple):
    """One switch, by its number: ring, accumulators (bit `segment * workers + worker` for each payload in the sum). For
    the checks and the network: the ranks in each segment as sent up and in its result, and of members that have left
    the results (bit mask) that they may still get."""

    switch: int
    ring: Ring
    memory: tuple[int, ...]
    up: tuple[int, ...]
    truth: tuple[int, ...]
    told: tuple[int, ...]


class Sent(NamedTuple):
    """What a step made a switch send: a message to the parent, a result (segment or -1) to a set of members."""

    up: Event | None
    segment: int
    receivers: int


def known(marks: tuple[int, ...]) -> int:
    """Bit mask of what is not UNKNOWN."""
    return sum(1 << segment for segment, mark in enumerate(marks) if mark != UNKNOWN)


class SwitchTree(Cores[Core]):
    """First seq is the last multiple of 2W before 2^32, so that seq wraps. A switch's members are its switches, then
    its workers: `children` and `locals` of each switch; `seat` of a switch and `place` of a worker are its indices as a
    member."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        s = self.scenario = scenario
        self.first_seq = SERIAL - 2 * s.window
        self.workers, self.switches = range(len(s.homes)), range(len(s.parents))
        self.children = [[c for c in self.switches if s.parents[c] == k] for k in self.switches]
        self.locals = [[w for w in self.workers if s.homes[w] == k] for k in self.switches]
        self.seat = [self.children[s.parents[c]].index(c) if c else UNKNOWN for c in self.switches]
        self.place = [len(self.children[k]) + self.locals[k].index(w) for w, k in enumerate(s.homes)]
        self.strict = not s.threshold and not s.deadlines
        longest = s.rules.reach(flat.new_ring(0, s.window, 0, 0, 0)) or s.window
        self.reach = (
            s.window if self.strict else longest
        )  # with H = N nobody, switches too, is a window behind what it sends

    def start(self) -> tuple[int, ...]:
        s, cores = self.scenario, []
        for k in self.switches:
            members = len(self.children[k]) + len(self.locals[k])
            threshold = s.threshold if s.threshold and not k else len(self.workers)
            ring = flat.new_ring(self.first_seq, s.window, members, (1 << members) - 1, threshold)
            cores.append(
                self.intern(Core(k, ring, (0,) * len(ring.slots), *((UNKNOWN,) * s.segments,) * 2, (0,) * members))
            )
        return tuple(cores)

    def perform(self, core: Core, event: Event) -> tuple[Core, Sent]:
        """Members that have left are not asked for here: the explorer delivers nothing of theirs."""
        s, switch, ring = self.scenario, core.switch, core.ring
        leaf = switch != 0
        works: list[Work] = []
        up: Event | None = None
        outcome = None
        if isinstance(event, (Leave, Part)):
            member = self.place[event.worker] if isinstance(event, Leave) else self.seat[event.switch]
            core = core._replace(told=put(core.told, member, known(core.truth)))
            if ring.live == 1 << member:  # the job ends here; what may still be under way says what the last one held
                ring = ring._replace(live=0, acknowledged=(ring.acknowledged[member],) * len(ring.acknowledged))
            else:
                ring, works = tree.leave(ring, member, leaf=leaf)
        elif isinstance(event, Expire):
            ring, work = flat.force(ring, event.slot)
            ring, works = tree.close(ring, work, leaf), [work]
        elif isinstance(event, Down):
            step = tree.install(ring, seq=self.seq(event.segment), ranks=event.ranks, rules=s.rules)
            if step.outcome in (Outcome.SLOT_HELD, Outcome.WINDOW):
                raise Violation(f"a result from above is {step.outcome.name}")
            ring, works = step.ring, [step.work] if step.work else []
        elif isinstance(event, (Contribution, Uplink)):
            worker = isinstance(event, Contribution)
            step = tree.contribute(
                ring,
                leaf=leaf,
                member=self.member(event),
                ranks=self.ranks(event),
                seq=self.seq(event.segment),
                behind=event.segment - event.low,
                tainted=1 << event.worker if worker and (event.worker, event.segment) in s.tainted else 0,
                uplink=not worker,
                rules=s.rules,
            )
            ring, works, outcome = step.ring, [step.work] if step.work else [], step.outcome
            report = tree.sign_of_life(step, leaf=leaf, rules=s.rules)
            if report and s.receipts and s.reports:
                up = Report(switch, self.segment(report.seq), UNKNOWN)
        else:
            asked = event.low if event.wanted == UNKNOWN else event.wanted
            step, report = tree.receipt(
                ring,
                leaf=leaf,
                member=self.member(event),
                seq=self.seq(asked),
                behind=asked - event.low,
                want=event.wanted != UNKNOWN,
                rules=s.rules,
            )
            ring, works, outcome = step.ring, [step.work] if step.work else [], step.outcome
            if report and s.reports:
                wanted = self.segment(report.seq)
                up = Report(switch, wanted - report.behind, wanted if report.want else UNKNOWN)
        if outcome == Outcome.WINDOW or self.strict and outcome == Outcome.SLOT_HELD:
            raise Violation(f"an honest sender is told {outcome.name}")
        core = core._replace(ring=ring)
        segment, receivers = UNKNOWN, 0
        for work in works:
            core = self.execute(core, work, event)
            slot = core.ring.slots[work.slot]
            if slot.state == SlotState.SENT_UP and work.emit:
                up = self.uplink(core, self.segment(slot))
            elif work.emit:
                segment, receivers = self.segment(slot), core.ring.live
            elif work.operation == Operation.RESEND and (s.answers or work.receivers >> len(self.children[switch])):
                segment, receivers = self.segment(slot), work.receivers
        return core, Sent(up, segment, receivers)

    def execute(self, core: Core, work: Work, event: Event) -> Core:
        """The accumulators obey; what leaves is compared with the header that goes with it."""
        slot, content = core.ring.slots[work.slot], core.memory[work.slot]
        segment = self.segment(slot)
        if work.operation in (Operation.CONTRIBUTE, Operation.FORCE, Operation.INSTALL_DOWN):
            content = 0 if work.first else content
            adds = work.operation in (Operation.CONTRIBUTE, Operation.INSTALL_DOWN)
            terms = self.payload(self.ranks(event), event.segment) if adds else 0
            if content & terms:
                raise Violation("a worker is twice in a sum")
            content |= terms
            core = core._replace(memory=put(core.memory, work.slot, content))
            if not work.emit:
                return core
        ranks = tree.names(core.ring, work.slot).ranks
        if content != self.payload(ranks, segment):
            raise Violation("a sum is not that of its ranks' payloads")
        if slot.state == SlotState.SENT_UP:
            if core.up[segment] not in (UNKNOWN, ranks):
                raise Violation("a partial sum changes")
            if segment - self.worst(core) >= self.reach:
                raise Violation("an honest switch is too far behind")
            return core._replace(up=put(core.up, segment, ranks))
        if slot.state != SlotState.COMPLETE:
            raise Violation("a result leaves an open slot")
        if core.truth[segment] not in (UNKNOWN, ranks):
            raise Violation("a result changes")
        if not core.switch:
            self.check_result(core.ring, slot, ranks)
        return core._replace(truth=put(core.truth, segment, ranks))

    def check_result(self, ring: Ring, slot: Slot, ranks: int) -> None:
        s = self.scenario
        if not s.deadlines and ring.live & ~slot.arrived and slot.members.bit_count() < ring.threshold:
            raise Violation("a slot completes with too few workers")
        if self.strict and not s.leaves and not s.evicted and not s.tainted and ranks != (1 << len(self.workers)) - 1:
            raise Violation("H = N, but a result lacks somebody")

    def member(self, event: Event) -> int:
        return self.place[event.worker] if isinstance(event, (Contribution, Receipt)) else self.seat[event.switch]

    def ranks(self, event: Event) -> int:
        """Whose payloads a message carries into the sum."""
        if isinstance(event, Contribution):
            return 0 if (event.worker, event.segment) in self.scenario.tainted else 1 << event.worker
        return event.ranks

    def payload(self, ranks: int, segment: int) -> int:
        return ranks << segment * len(self.workers)

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, slot: Slot | int) -> int:
        return ((slot if isinstance(slot, int) else slot.seq) - self.first_seq) % SERIAL

    def uplink(self, core: Core, segment: int) -> Uplink:
        return Uplink(core.switch, segment, core.up[segment], self.worst(core))

    def worst(self, core: Core) -> int:
        """The `low` that a leaf may say to have."""
        return self.segment(self.scenario.rules.lowest(core.ring) if core.ring.live else core.ring.acknowledged[0])
