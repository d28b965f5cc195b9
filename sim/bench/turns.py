"""Threads of which one runs at a time, so that nothing depends on the scheduler, for stand-ins of the switch within one
process."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["in_turns"]

T = TypeVar("T")


def in_turns(turn: threading.Condition, bodies: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of the bodies, each run in a thread of its own. A body holds `turn` while it runs, and lets
    others run by waiting for it; `turn` is notified when one ends. Raises the first exception of any body; waiting
    threads then stay blocked."""
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def run(number: int) -> None:
        with turn:
            try:
                results[number] = bodies[number]()
            except BaseException as failure:
                failures.append(failure)
            turn.notify_all()

    for number in range(len(bodies)):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    with turn:
        turn.wait_for(lambda: failures or len(results) == len(bodies))
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(bodies))]
