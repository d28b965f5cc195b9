"""Warnings of a worker name the line of the program that called it."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iswitch import AsyncWorker, HaltedWarning, TaintWarning, Worker
from iswitch.caller_warning import on_behalf_of, program_line, warn_program
from iswitch.config import Config
from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport
from sim.bench.udp_model import UdpModel

SMALL = Config(ports=4, window=4, elements=16, members=8)
KEY = 7


def warnings_name_the_line_of(call, category):
    """Return whether a function of one line causes warnings of a category, and all of them name its line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    places = {(warning.filename, warning.lineno) for warning in caught if warning.category is category}
    return places == {(__file__, call.__code__.co_firstlineno)}


def nan():
    return np.full(3, np.nan, np.float32)


@pytest.fixture
def worker():
    options = {"key": KEY, "mode": "propagate", "on_taint": "warn", "timeout_s": 2.0}
    with UdpModel(SMALL) as model, Worker(model.address(), world=1, **options) as made:
        yield made


def test_a_warning_names_the_line_of_the_collective(worker):
    assert warnings_name_the_line_of(lambda: worker.allreduce(nan(), op="mean"), TaintWarning)
    assert warnings_name_the_line_of(lambda: worker.allreduce([nan(), nan()]), TaintWarning)


def test_a_warning_of_a_collective_that_does_not_wait_names_the_line_that_called_it(worker):
    """The collective runs in another thread, whose only caller is `concurrent.futures`."""
    assert warnings_name_the_line_of(lambda: worker.allreduce(nan(), async_op=True).result(timeout=30), TaintWarning)


def test_a_warning_of_the_ring_names_the_line_of_the_collective(worker):
    transport = UdpTransport(worker.address)  # the worker itself is in its collective then
    worker.halt()
    resume = threading.Timer(0.8, Control(transport).resume_job, (0, KEY))
    resume.start()
    assert warnings_name_the_line_of(lambda: worker.barrier(), HaltedWarning)
    resume.join()
    transport.close()


def test_a_warning_about_an_update_names_the_line_that_took_it():
    options = {"world": 1, "size": 3, "on_taint": "warn", "timeout_s": 5.0}
    with UdpModel(SMALL) as model, AsyncWorker(model.address(), **options) as worker:
        worker.push(nan())
        assert worker.wait()
        assert warnings_name_the_line_of(lambda: list(worker.updates()), TaintWarning)


def test_a_line_with_the_same_text_is_shown_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for text in ("the same", "the same", "another"):
            warn_program(text, UserWarning)
    assert [str(warning.message) for warning in caught] == ["the same", "another"]


def test_a_thread_works_on_behalf_of_a_line_only_within_the_context():
    line = program_line()

    def work():
        with on_behalf_of(line):
            within = program_line()
        return within, program_line()

    with ThreadPoolExecutor(1) as pool:
        within, after = pool.submit(work).result()
    assert within == line and after.number != line.number


def test_work_within_work_for_another_line_does_not_change_the_outer_line():
    outer, inner = (program_line()._replace(number=number) for number in (1, 2))
    seen = []
    with on_behalf_of(outer):
        with on_behalf_of(inner):
            seen.append(program_line())
        seen.append(program_line())
    assert seen == [inner, outer] and program_line() not in seen
