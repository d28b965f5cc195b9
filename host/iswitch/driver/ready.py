"""Waits until a descriptor is readable."""

import select

__all__ = ["Readiness"]


class Readiness:
    """Waits for one descriptor.

    Parameters
    ----------
    descriptor : int
        The descriptor, which may get another file (`os.dup2`).
    """

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._poll = self._new_poll()

    def _new_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return poll

    def wait(self, timeout_s: float) -> bool:
        """Return True if the descriptor is readable in time."""
        milliseconds = max(0.0, timeout_s) * 1000
        try:
            return bool(self._poll.poll(milliseconds))
        except RuntimeError:  # a signal handler waits in the middle of this call: Python forbids that with one object
            return bool(self._new_poll().poll(milliseconds))
