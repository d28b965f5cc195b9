"""The switch of `restart.py`: the job that dead workers left behind, and each job after it."""

from typing import NamedTuple

from iswitch.config import Config
from iswitch.golden.decide import command, join
from iswitch.golden.decide.job import NO_JOB, EntryState, Job, record_activity
from iswitch.golden.decide.random import Offer
from iswitch.golden.interface.message import Request, Settings, Source
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import SILENCE_TICK_US, SILENCE_TICKS_MAX, Action, Format, Reason
from sim.explore.messages import is_member
from sim.explore.restart_scenario import FallsSilent, IsHeard, RestartScenario
from sim.explore.search import Event, Violation
from sim.explore.switch import ExploredSwitch

__all__ = ["FIRST_CHALLENGE", "NOW_US", "Answer", "JoinArrives", "LeaveArrives", "RestartSwitch"]

CONFIG = Config(members=4, window=1, elements=8)
NOW_US = SILENCE_TICKS_MAX * SILENCE_TICK_US
"""The time at which everything happens. A member that was last heard in tick 0 is stale."""
FIRST_CHALLENGE = 5
_OLD = 100
"""The nonce of the member at index 0 of the job that runs at the start."""


class JoinArrives(NamedTuple):
    """The switch receives the Join of a worker."""

    worker: int
    wanted: int
    challenge: int


class LeaveArrives(NamedTuple):
    """The switch receives the Leave of a worker."""

    worker: int
    member: int


class Answer(NamedTuple):
    """The reason of the switch's answer, and the index that it has granted."""

    reason: Reason = Reason.DONE
    member: int | None = None


class RestartSwitch(ExploredSwitch[Job, Answer]):
    """The switch of one scenario. Its states are jobs."""

    def __init__(self, scenario: RestartScenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.settings = Settings(scenario.world, scenario.world, Format.INT32, 0, 8, 0, 0, 0)

    def start(self) -> int:
        """Return the number of the state with the job that runs."""
        job = NO_JOB._replace(challenge=FIRST_CHALLENGE)
        for member in range(self.scenario.world):
            request = self._request(Action.JOIN, _OLD + member, member, FIRST_CHALLENGE)
            job = join.join(CONFIG, job, request, _source(_OLD + member), Offer(FIRST_CHALLENGE, 0), NOW_US).job
        for member in range(self.scenario.world):
            if is_member(self.scenario.left, member):
                job, _ = command.remove_member(job, member)
        ticks = (
            SILENCE_TICKS_MAX if is_member(self.scenario.alive, member) else 0 for member in range(len(job.entries))
        )
        return self.number(job._replace(last_heard=tuple(ticks), challenge=FIRST_CHALLENGE))

    def _request(self, action: Action, nonce: int, member: int, challenge: int = 0) -> Request:
        key = int(self.scenario.other_program and nonce < _OLD)
        return Request(action, 0, member, nonce, 1, key, nonce, self.settings, challenge=challenge)

    def transition(self, job: Job, event: Event) -> tuple[Job, Answer]:
        match event:
            case JoinArrives(worker, wanted, challenge):
                request = self._request(Action.JOIN, worker + 1, wanted, challenge)
                # Jobs after each other differ in their challenge, so that it serves as epoch, too.
                verdict = join.join(CONFIG, job, request, _source(worker + 1), Offer(job.challenge, 0), NOW_US)
                return self._checked(verdict.job), Answer(verdict.reason, verdict.entry_index)
            case LeaveArrives(worker, member):
                request = self._request(Action.LEAVE, worker + 1, member)
                verdict = command.execute(CONFIG, job, request, _source(worker + 1))
                return self._checked(verdict.job), Answer(verdict.reason)
            case IsHeard(member):
                return record_activity(job, member, NOW_US), Answer()
            case FallsSilent(member):
                return job._replace(last_heard=replace_at(job.last_heard, member, 0)), Answer()
        raise TypeError(f"no switch receives {event!r}")

    def _checked(self, job: Job) -> Job:
        """Return a job. If members live, check that the job is still theirs alone."""
        owners = {entry.nonce: k for k, entry in enumerate(job.entries) if entry.state == EntryState.LIVE}
        for member in range(self.scenario.world):
            if is_member(self.scenario.alive, member) and owners.get(_OLD + member) != member:
                raise Violation("a member that lives loses its place")
        if self.scenario.alive and min(owners) < _OLD:
            raise Violation("a worker enters a job that lives")
        return job


def _source(number: int) -> Source:
    return Source(0, bytes([number] * 6), number, 1)
