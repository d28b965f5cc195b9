"""A program whose workers were all killed starts again, and workers are started by mistake beside it.

The switch is `host/iswitch/golden/decide/join.py` and `command.py`. The workers follow the rule of the driver
(`restart_worker.py`). They do not know what happens between two answers of the switch, and answers get lost: each
worker may do its next step after any number of steps of the others, and its Join may change the switch more often than
it is answered. Copies of earlier messages are not here: `join.py` shows that they change nothing.

The dead members of the running job have been silent for longer than `evict_us`, and each new worker has watched them
for as long. Members that live give signs of life. In an outage the switch does not hear them for longer than
`evict_us`, but then a worker's permit to send a Join ends, and the worker has not watched for as long.

Checked at each step: a member that lives keeps its place, and no worker enters its job.

Checked in each state: a worker of a program that starts again is refused only if another worker of its rank has come,
or more workers than the job needs. If no more answers are lost and all workers go on, each of them runs or is refused.
"""

from collections.abc import Iterator

from iswitch.golden.interface.tuples import replace_at
from sim.explore.messages import is_member
from sim.explore.restart_scenario import (
    FallsSilent,
    IsHeard,
    Joins,
    Leaves,
    ReadsRow,
    RestartScenario,
    RestartState,
    UsesLastLook,
)
from sim.explore.restart_switch import FIRST_CHALLENGE, NOW_US, JoinArrives, LeaveArrives, RestartSwitch
from sim.explore.restart_worker import (
    Look,
    Phase,
    Purpose,
    StartedWorker,
    after_answer,
    after_look,
    blocking_members,
    looks_again,
    next_row,
    with_row,
)
from sim.explore.search import Event, Explorer, Violation

__all__ = ["RestartExplorer"]

NO_RANK = 254
"""An index that no job has."""
STEPS = {Phase.LOOKS: ReadsRow, Phase.JOINS: Joins, Phase.LEAVES: Leaves}


class RestartExplorer(Explorer[RestartState]):
    """Search of one `RestartScenario`."""

    def __init__(self, scenario: RestartScenario) -> None:
        self.scenario, self.switch = scenario, RestartSwitch(scenario)
        self.members = [member for member in range(scenario.world) if is_member(scenario.alive, member)]
        self._ends_well: set[RestartState] = set()

    def start(self) -> RestartState:
        purpose = Purpose.REFUSAL if self.scenario.met_members else Purpose.ENTRY
        worker = StartedWorker(FIRST_CHALLENGE, purpose=purpose)
        return RestartState(self.switch.start(), (worker,) * len(self.scenario.wanted))

    # What may happen

    def events(self, state: RestartState) -> Iterator[Event]:
        for number, worker in enumerate(state.workers):
            if worker.done:
                continue
            yield STEPS[worker.phase](number)
            if not self.scenario.is_slow(number):
                continue
            if worker.phase != Phase.LOOKS:
                yield STEPS[worker.phase](number, False)
            elif worker.look and worker.purpose != Purpose.REFUSAL and next_row(worker.look) is None:
                yield UsesLastLook(number)
        if self.scenario.outage:
            yield from map(IsHeard, self.members)
            yield from map(FallsSilent, self.members)

    # What it does

    def after(self, state: RestartState, event: Event) -> RestartState:
        match event:
            case ReadsRow(number):
                return self._read(state, number)
            case UsesLastLook(number):
                worker = state.workers[number]
                return self._after_look(state, number, worker, worker.look)
            case Joins(number, answered):
                return self._join(state, number, answered=answered)
            case Leaves(number, heard):
                worker = state.workers[number]
                if heard and worker.member is not None:
                    state = self._at_switch(state, LeaveArrives(number, worker.member))
                return self._with_worker(state, number, looks_again(worker, Purpose.REFUSAL))
            case FallsSilent(member) if self.scenario.permits_end:
                workers = tuple(self._without_permit(worker, member) for worker in state.workers)
                return self._at_switch(state._replace(workers=workers), event)
        return self._at_switch(state, event)

    def _at_switch(self, state: RestartState, event: Event) -> RestartState:
        return state._replace(switch=self.switch.step(state.switch, event)[0])

    @staticmethod
    def _with_worker(state: RestartState, number: int, worker: StartedWorker) -> RestartState:
        return state._replace(workers=replace_at(state.workers, number, worker))

    @staticmethod
    def _without_permit(worker: StartedWorker, member: int) -> StartedWorker:
        """Return a worker after a time in which the switch did not hear a member: what its row has shown is old."""
        is_old = worker.look and is_member(worker.look.alive, member) and not worker.done
        return looks_again(worker, worker.purpose) if is_old else worker

    def _read(self, state: RestartState, number: int) -> RestartState:
        """Return the state after a worker has read its next row; a worker that is not slow reads all rows."""
        worker, job = state.workers[number], self.switch.states[state.switch]
        look, member = worker.look, next_row(worker.look)
        if look is None or member is None:
            look = Look(job.epoch, job.state, blocking_members(job, self.scenario.wanted[number]))
            member = None if self.scenario.is_slow(number) else next_row(look)
        while member is not None:
            lives = self.scenario.watches and member in self.members
            look = with_row(look, job, member, NOW_US, lives=lives, shows=self.scenario.shows_live_member)
            member = None if self.scenario.is_slow(number) else next_row(look)
        if next_row(look) is None:
            return self._after_look(state, number, worker, look)
        return self._with_worker(state, number, worker._replace(look=look))

    def _after_look(self, state: RestartState, number: int, worker: StartedWorker, look: Look | None) -> RestartState:
        assert look is not None
        worker = after_look(worker, look)
        return self._with_worker(state, number, worker._replace(probes=worker.probes and self.scenario.probes))

    def _join(self, state: RestartState, number: int, *, answered: bool) -> RestartState:
        worker = state.workers[number]
        wanted = NO_RANK if worker.probes else self.scenario.wanted[number]
        challenge = worker.challenge if worker.member is None else ~worker.challenge % 2**32
        switch, answer = self.switch.step(state.switch, JoinArrives(number, wanted, challenge))
        if not answered:
            return state._replace(switch=switch)
        worker = after_answer(worker, self.switch.states[switch], answer.reason, answer.member)
        return RestartState(switch, replace_at(state.workers, number, worker))

    # What is promised

    def check(self, state: RestartState) -> None:
        passed = set()
        while state not in self._ends_well:
            self._check_refusals(state)
            passed.add(state)
            if all(worker.done for worker in state.workers):
                break
            state = self._after_a_round(state)
            if state in passed:
                raise Violation("workers wait forever")
        self._ends_well |= passed

    def _check_refusals(self, state: RestartState) -> None:
        wanted = self.scenario.wanted
        refused = [wanted[number] for number, worker in enumerate(state.workers) if worker.phase == Phase.REFUSED]
        too_many = len(refused) > len(wanted) - self.scenario.world
        if not self.scenario.alive and (too_many or any(wanted.count(rank) == 1 for rank in refused)):
            raise Violation("a worker of a program that starts again is refused")

    def _after_a_round(self, state: RestartState) -> RestartState:
        """Return the state after one step of each worker, and a sign of life of each member that lives."""
        for number, worker in enumerate(state.workers):
            if not worker.done:
                state = self.after(state, STEPS[worker.phase](number))
        for member in self.members:
            state = self.after(state, IsHeard(member))
        return state
