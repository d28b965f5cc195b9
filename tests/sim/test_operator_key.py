"""Who can end a job: on the compiled switch with its default `Config`."""

import pytest

from iswitch.config import Config
from iswitch.wire import JobState, Reason
from sim.bench.clients import exchange
from sim.emulator.engine import Board
from sim.frames.client import Client

OPERATOR_KEY = 0x6F7065726174


@pytest.mark.parametrize("operator_key", [0, OPERATOR_KEY])
def test_the_operators_key_ends_any_job_and_a_copy_of_its_end_none(operator_key):
    with Board(Config(), operator_key=operator_key) as board:
        member, operator = Client.numbered(0), Client.numbered(3)
        for _ in range(2):
            reply = exchange(board, member, member.join(world=1, elements=16))[-1]
        assert reply.ack["state"] == JobState.RUNNING
        end = operator.end_job(key=0, operator_key=OPERATOR_KEY)
        assert exchange(board, operator, end)[-1].reason == Reason.CHALLENGE
        captured = operator.end_job(key=0, operator_key=OPERATOR_KEY)
        reply = exchange(board, operator, captured)[-1]
        if not operator_key:
            assert (reply.reason, reply.ack["state"]) == (Reason.KEY, JobState.RUNNING)
            return
        assert (reply.reason, reply.ack["state"]) == (Reason.DONE, JobState.NONE)
        member.forget(77)
        for _ in range(2):
            reply = exchange(board, member, member.join())[-1]
        assert reply.ack["state"] == JobState.RUNNING
        assert exchange(board, operator, captured)[-1].reason == Reason.CHALLENGE
        assert exchange(board, member, member.join())[-1].ack["state"] == JobState.RUNNING


@pytest.mark.parametrize("key", [-1, 1 << 64])
def test_operator_key_wrong(key):
    with pytest.raises(ValueError, match=r"Board operator_key must be 0 to 2\^64 - 1"):
        Board(Config(), operator_key=key)
