"""The thread of a `CallQueue` at the end of a program."""

import subprocess
import sys

BEGIN = """
import atexit
import threading
from iswitch.control import call_queue
from iswitch.control.call_queue import CallQueue

queue = CallQueue()
exit_begins = threading.Event()
atexit.register(exit_begins.set)


def compute_at_exit(*_):
    exit_begins.wait()
    for _ in range(100_000):
        pass
"""


def output_of(program: str) -> str:
    """Return what a program prints that ends without an error."""
    done = subprocess.run([sys.executable, "-c", BEGIN + program], text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_interpreter_ends_after_the_callbacks_of_the_last_call():
    """A future wakes the program before it makes its callbacks."""
    program = """
begin = threading.Event()
future = queue.submit(begin.wait)
future.add_done_callback(compute_at_exit)
future.add_done_callback(lambda _: print("the callbacks have ended"))
begin.set()
future.result()
"""
    assert output_of(program) == "the callbacks have ended\n"


def test_the_interpreter_ends_although_a_call_never_does():
    program = """
call_queue._JOIN_S = 0.01
queue.submit(threading.Event().wait)
print("the program has ended")
"""
    assert output_of(program) == "the program has ended\n"


def test_a_dropped_queue_makes_the_calls_that_wait_before_the_interpreter_ends():
    program = """
queue.submit(compute_at_exit)
queue.submit(print, "the call was made")
del queue
"""
    assert output_of(program) == "the call was made\n"
