"""Results that wait for room at a port, under every order of writes, refusals and visits of the scan.

One slot is enough, because rows of different slots do not affect each other. Frames write the slot at any time, also if
a member lacks its result: after an eviction or a RESET the job goes on without that member. Each port has room or not,
as the search chooses, whenever a result reaches it and whenever the scan visits the row.

Checked at each copy: the sums are those of the result that the header names. Checked in each state: as long as the slot
holds a result, each recipient has a copy, or the result is on the way to that recipient, or the row names that
recipient.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

from iswitch.golden.egress import waiting_results as rules
from iswitch.golden.egress.waiting_results import Row
from sim.explore.search import Explorer, Scenario, Violation

__all__ = ["WaitingExplorer", "WaitingScenario", "WaitingState"]


@dataclass(frozen=True)
class WaitingScenario(Scenario):
    """One slot and its members, each behind a port of its own.

    Parameters
    ----------
    members : int
    results : int
        How many results the slot holds, one after the other.
    resends : int
        How many retransmissions are answered with the stored result.
    note, visit : callable
        The rules, of `iswitch.golden.egress.waiting_results`.
    may_make : callable
        Takes a row and the slot's number of writes. Returns whether the result may be made now.
    counts : callable
        Returns by how much a write adds to the number of writes; its argument says whether it completes the slot.
    """

    members: int = 2
    results: int = 2
    resends: int = 1
    note: Callable[[Row | None, Row, int], Row | None] = rules.note
    visit: Callable[[Row | None, int, frozenset[int]], tuple[Row | None, Row | None]] = rules.visit
    may_make: Callable[[Row, int], bool] = rules.is_valid
    counts: Callable[[bool], int] = lambda completes: 1


class Made(NamedTuple):
    """A result on its way to the ports: header and number of writes, and the sums, by the seq that they belong to.

    Sums of a slot that still collects have a half seq.
    """

    header: Row
    sums: float


class WaitingState(NamedTuple):
    """The slot's `sums` and number of `writes`, results `under_way`, the `row`, the result that is `chosen` to be made
    again, the last result of which each member has a copy, and the resends so far."""

    sums: float = 0.0
    writes: int = 0
    under_way: tuple[Made, ...] = ()
    row: Row | None = None
    chosen: Row | None = None
    held: tuple[int, ...] = ()
    resends: int = 0


class Write(NamedTuple):
    """A contribution is added; it completes the slot, or it opens the next lap."""

    completes: bool


class Resend(NamedTuple):
    """The stored result is made for one member."""

    member: int


class Reach(NamedTuple):
    """The oldest result under way reaches the ports, of which those of `ready` members have room."""

    ready: frozenset[int]


class Visit(NamedTuple):
    """The scan visits the row. The ports of `ready` members have room."""

    ready: frozenset[int]


class Make(NamedTuple):
    """The aggregator makes the chosen result."""


Event = Write | Resend | Reach | Visit | Make


class WaitingExplorer(Explorer[WaitingState]):
    """Search of one `WaitingScenario`."""

    def __init__(self, scenario: WaitingScenario) -> None:
        self.scenario = scenario
        self.all = frozenset(range(scenario.members))
        sizes = range(scenario.members + 1)
        self.choices = [frozenset(some) for some in chain.from_iterable(combinations(self.all, n) for n in sizes)]

    def start(self) -> WaitingState:
        return WaitingState(held=(0,) * self.scenario.members)

    def events(self, state: WaitingState) -> Iterator[Event]:
        complete = state.sums == int(state.sums)
        if not complete:
            yield Write(True)
        elif state.sums < self.scenario.results:
            yield Write(False)
            yield Write(True)
        if complete and state.sums and state.resends < self.scenario.resends:
            yield from map(Resend, sorted(self.all))
        if state.under_way:
            yield from map(Reach, self.choices)
        if state.row and not state.chosen:
            yield from map(Visit, self.choices)
        if state.chosen:
            yield Make()

    def after(self, state: WaitingState, event: Event) -> WaitingState:
        match event:
            case Write(completes):
                return self._write(state, completes)
            case Resend(member):
                header = Row(int(state.sums), state.writes, frozenset({member}))
                return state._replace(under_way=(*state.under_way, Made(header, state.sums)), resends=state.resends + 1)
            case Reach(ready):
                return self._reach(state, ready)
            case Visit(ready):
                assert state.row
                row, chosen = self.scenario.visit(state.row, state.writes, ready)
                return state._replace(row=row, chosen=chosen)
        assert state.chosen
        if not self.scenario.may_make(state.chosen, state.writes):
            return state._replace(chosen=None)
        return state._replace(chosen=None, under_way=(*state.under_way, Made(state.chosen, state.sums)))

    def _write(self, state: WaitingState, completes: bool) -> WaitingState:
        seq = int(state.sums) + 1
        writes = state.writes + self.scenario.counts(completes)
        if not completes:
            return state._replace(sums=seq - 0.5, writes=writes)
        made = Made(Row(seq, writes, self.all), float(seq))
        return state._replace(sums=float(seq), writes=writes, under_way=(*state.under_way, made))

    def _reach(self, state: WaitingState, ready: frozenset[int]) -> WaitingState:
        made, *rest = state.under_way
        held = list(state.held)
        for member in made.header.recipients & ready:
            if made.sums != made.header.seq:
                raise Violation(f"a result of seq {made.header.seq} has the sums of {made.sums}")
            held[member] = max(held[member], made.header.seq)
        row, refused = state.row, made.header.recipients - ready
        if refused:
            row = self.scenario.note(row, made.header._replace(recipients=refused), state.writes)
        return state._replace(under_way=tuple(rest), row=row, held=tuple(held))

    def check(self, state: WaitingState) -> None:
        if not state.sums or state.sums != int(state.sums):
            return
        on_the_way = [made.header for made in state.under_way] + [row for row in (state.row, state.chosen) if row]
        for member in self.all:
            expected = any(
                row.seq == state.sums and row.writes == state.writes and member in row.recipients for row in on_the_way
            )
            if state.held[member] < state.sums and not expected:
                raise Violation("a recipient of the slot's result is forgotten")
