"""Processes that end, fail or die, and what the launcher reports."""

import multiprocessing
import os

import pytest

from examples.common.processes import Done, LaunchError, ProcessGroup
from iswitch.errors import IswitchError


def count(upto, send):
    for number in range(upto):
        send(number)
    send(Done(upto))


def fail(error, send):
    raise error


def die(code, send):
    os._exit(code)


def launch(*parts, on_death=None):
    messages = []
    with ProcessGroup("examples.common.processes") as group:
        for rank, part in enumerate(parts):
            group.start(rank, f"worker {rank}", *part)
        results = group.run(
            lambda: None,
            lambda rank, message: messages.append((rank, message)),
            on_death and (lambda rank, code: on_death(group, rank, code)),
        )
    return results, messages


def test_results_are_by_rank_and_messages_in_their_order():
    results, messages = launch((count, 3), (count, 0), (count, 2))
    assert results == [3, 0, 2]
    assert [number for rank, number in messages if rank == 0] == [0, 1, 2] and sorted(messages) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (2, 0),
        (2, 1),
    ]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("not so"), "^worker 1: not so$"),
        (TimeoutError("too late"), "^worker 1: too late$"),
        (IswitchError("no switch"), "^worker 1: no switch$"),
        (KeyError("bug"), "(?s)^worker 1: Traceback .*KeyError: 'bug'"),
    ],
)
def test_the_failure_of_a_process_is_reported_and_ends_all(error, message):
    with pytest.raises(LaunchError, match=message):
        launch((count, 1), (fail, error))
    assert not multiprocessing.active_children()


def test_death_ends_all():
    with pytest.raises(LaunchError, match=r"^worker 0 died \(exit code 7\)$"):
        launch((die, 7), (count, 1))
    assert not multiprocessing.active_children()


def test_a_process_that_died_can_be_started_again():
    deaths = []

    def again(group, rank, code):
        deaths.append((rank, code))
        group.start(rank, "another", count, 2)

    results, messages = launch((count, 1), (die, 7), on_death=again)
    assert deaths == [(1, 7)] and results == [1, 2] and (1, 1) in messages


def test_an_exception_of_the_check_ends_all_processes():
    def check():
        raise LaunchError("the switch has ended")

    with pytest.raises(LaunchError, match="the switch has ended"), ProcessGroup("examples.common.processes") as group:
        group.start(0, "worker 0", count, 10**12)
        group.run(check, lambda rank, message: None)
    assert not multiprocessing.active_children()
