"""Threads in turns: one at a time, and an error in one is reported though others wait."""

import threading
from functools import partial

import pytest

from sim.bench.turns import in_turns


def test_results_are_in_the_order_of_the_bodies_and_one_runs_at_a_time():
    turn, counted = threading.Condition(), []

    def body(number):
        turn.wait_for(lambda: len(counted) == 2 - number)  # the last is the first to go on
        seen = len(counted)
        for _ in range(10_000):
            assert len(counted) == seen
        counted.append(number)
        turn.notify_all()
        return 10 * number

    assert in_turns(turn, [partial(body, number) for number in range(3)]) == [0, 10, 20]
    assert counted == [2, 1, 0]


def test_an_exception_is_raised_though_others_wait():
    turn = threading.Condition()

    def fail():
        raise ArithmeticError("this one")

    with pytest.raises(ArithmeticError, match="this one"):
        in_turns(turn, [turn.wait, fail])
