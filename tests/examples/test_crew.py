"""Processes that end, fail or die, and what the launcher is told."""

import multiprocessing
import os

import pytest

from examples.crew import Crew, Done, LaunchError
from iswitch.errors import IswitchError


def count(upto, send):
    for number in range(upto):
        send(number)
    send(Done(upto))


def fail(error, send):
    raise error


def die(code, send):
    os._exit(code)


def launched(*parts, died=None):
    heard = []
    with Crew("examples.crew") as crew:
        for rank, part in enumerate(parts):
            crew.start(rank, f"worker {rank}", *part)
        results = crew.run(
            lambda: None,
            lambda rank, message: heard.append((rank, message)),
            died and (lambda rank, code: died(crew, rank, code)),
        )
    return results, heard


def test_results_are_by_rank_and_messages_in_their_order():
    results, heard = launched((count, 3), (count, 0), (count, 2))
    assert results == [3, 0, 2]
    assert [number for rank, number in heard if rank == 0] == [0, 1, 2] and sorted(heard) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (2, 0),
        (2, 1),
    ]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("not so"), "^worker 1: not so$"),
        (TimeoutError("too late"), "^worker 1: too late$"),
        (IswitchError("no switch"), "^worker 1: no switch$"),
        (KeyError("slip"), "(?s)^worker 1: Traceback .*KeyError: 'slip'"),
    ],
)
def test_who_fails_says_why_and_ends_all(error, told):
    with pytest.raises(LaunchError, match=told):
        launched((count, 1), (fail, error))
    assert not multiprocessing.active_children()


def test_death_ends_all():
    with pytest.raises(LaunchError, match=r"^worker 0 died \(exit code 7\)$"):
        launched((die, 7), (count, 1))
    assert not multiprocessing.active_children()


def test_who_has_died_may_be_started_again():
    deaths = []

    def again(crew, rank, code):
        deaths.append((rank, code))
        crew.start(rank, "another", count, 2)

    results, heard = launched((count, 1), (die, 7), died=again)
    assert deaths == [(1, 7)] and results == [1, 2] and (1, 1) in heard


def test_an_end_from_outside_leaves_nobody_behind():
    def watch():
        raise LaunchError("the switch is gone")

    with pytest.raises(LaunchError, match="the switch is gone"), Crew("examples.crew") as crew:
        crew.start(0, "worker 0", count, 10**12)
        crew.run(watch, lambda rank, message: None)
    assert not multiprocessing.active_children()
