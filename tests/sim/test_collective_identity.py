"""Contributions of different steps are never added: on the compiled switch with its default `Config`."""

from collections.abc import Iterator

import numpy as np
import pytest

from iswitch.wire import Collective, CollectiveKind, Outcome, Reason, Type, result_identity
from sim.bench.clients import checked_board, exchange, form_job
from sim.emulator.engine import Board
from sim.frames.client import Client, Reply

ELEMENTS = 352
STEP = [Collective(position, CollectiveKind.ALLREDUCE, 3).word for position in range(10)]


@pytest.fixture
def board() -> Iterator[Board]:
    with checked_board() as made:
        yield made


def job(board: Board, **settings: int) -> list[Client]:
    """Return two members of a running job."""
    clients = [Client.numbered(k) for k in range(2)]
    form_job(board, clients, **settings)
    return clients


def told(replies: list[Reply]) -> list[Collective]:
    """Return the collectives that notices name."""
    return [
        Collective.from_word(int(reply.header["members"]))
        for reply in replies
        if reply.type == Type.NOTICE and reply.reason == Reason.COLLECTIVE
    ]


def contribute(board: Board, client: Client, step: int, *, value: float = 1.0, digest: int = 7) -> list[Reply]:
    elements = np.full(ELEMENTS, value, np.float32)
    return exchange(
        board, client, client.contribution(client.first_seq, elements, collective=STEP[step], digest=digest)
    )


def test_a_step_is_never_added_to_the_next_one_and_both_workers_are_told(board):
    """After "all reset and do it again", worker A does step 5, and worker B, which has A's results, does step 6."""
    a, b = job(board)
    exchange(board, a, a.reset())
    for client in (a, b):
        exchange(board, client, client.join())
    assert contribute(board, a, 5) == []
    assert told(contribute(board, b, 6)) == [(5, CollectiveKind.ALLREDUCE, 3)]
    assert told(contribute(board, a, 5)) == [(6, CollectiveKind.ALLREDUCE, 3)]
    outcomes = [decision.outcome for decision in board.trace()]
    assert outcomes[-3:] == [Outcome.ADDED, Outcome.COLLECTIVE, Outcome.DUPLICATE]
    (result,) = contribute(board, b, 5, value=2.0)
    assert result.type == Type.RESULT and (result.numbers.view(np.float32) == 3.0).all()
    assert result.tail["identity"] == result_identity(STEP[5], 7)


def test_workers_with_different_results_are_not_added(board):
    a, b = job(board)
    contribute(board, a, 5, digest=7)
    assert told(contribute(board, b, 5, digest=8)) == [(5, CollectiveKind.ALLREDUCE, 3)]
    assert told(contribute(board, a, 5, digest=7)) == [(5, CollectiveKind.ALLREDUCE, 3)]
    outcomes = [decision.outcome for decision in board.trace()]
    assert outcomes[-3:] == [Outcome.ADDED, Outcome.COLLECTIVE, Outcome.DUPLICATE]


def test_a_complete_slot_does_not_answer_another_step(board):
    """With H = 1 the slot completes without the worker that is at another step."""
    a, b = job(board, threshold=1)
    (result,) = contribute(board, a, 6)
    assert result.tail["identity"] == result_identity(STEP[6], 7) != result_identity(STEP[5], 7)
    replies = contribute(board, b, 5)
    assert told(replies) == [(6, CollectiveKind.ALLREDUCE, 3)]
    assert not [reply for reply in replies if reply.type == Type.RESULT]
