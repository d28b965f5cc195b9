"""Commands of one job by themselves: what is executed once, and what is no command."""

import pytest

from iswitch.config import Config
from iswitch.golden.decide.command import carry_out, execute
from iswitch.golden.decide.job import NO_JOB, Job
from iswitch.golden.decide.join import join
from iswitch.golden.decide.random import Offer
from iswitch.golden.interface.message import Request, Settings, Source
from iswitch.wire import Action, Format, Mode, Reason

CONFIG = Config(members=4, window=1, elements=8)
SETTINGS = Settings(2, 2, Format.INT32, 0, 8, Mode.QUARANTINE, 0, 0)
SOURCES = [Source(k, bytes([k + 1] * 6), k, 1) for k in range(2)]
NO_REQUEST = Request(Action.READ, 0, 0, 0, 0, 0, 0, SETTINGS)


def running_job() -> Job:
    """Return a job of two members, whose tokens are 1 and 2."""
    job = NO_JOB
    for k, source in enumerate(SOURCES):
        request = NO_REQUEST._replace(action=Action.JOIN, member=k, nonce=k + 1, token=k + 1)
        job = join(CONFIG, job, request, source, Offer(7, 0), 0).job
    assert job.live == 0b11
    return job


def command(action: Action, number: int, **settings) -> Request:
    return NO_REQUEST._replace(action=action, token=1, number=number, epoch=7, settings=SETTINGS._replace(**settings))


def test_a_command_is_executed_once_and_its_retransmission_is_acknowledged():
    job = running_job()
    for repeat in range(2):
        verdict = execute(CONFIG, job, command(Action.RESET, 1), SOURCES[0])
        assert (verdict.reason, verdict.job.epoch) == (Reason.DONE, 8), f"repeat {repeat}"
        job = verdict.job


def test_an_older_command_is_refused():
    job = execute(CONFIG, running_job(), command(Action.SET_H, 2, threshold=1), SOURCES[0]).job
    verdict = execute(CONFIG, job, command(Action.SET_H, 1, threshold=2), SOURCES[0])
    assert (verdict.reason, verdict.job.settings.threshold) == (Reason.NUMBER, 1)


def test_a_command_from_another_source_is_refused():
    assert execute(CONFIG, running_job(), command(Action.LEAVE, 1), SOURCES[1]).reason == Reason.MEMBER


def test_carry_out_action_wrong():
    with pytest.raises(ValueError, match="carry_out action must be LEAVE, FBCAST, HALT, SET_H or RESET, not "):
        carry_out(CONFIG, running_job(), command(Action.JOIN, 1))
