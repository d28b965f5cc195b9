"""An asynchronous parameter server in virtual time, with the hosts and cables of an estimate: the learning is real, the
server is modelled.

Workers are programs in virtual time (`sim.emulator.program`), and call the server in the order of that time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from iswitch.estimate.costs import TCP, Costs
from sim.emulator.program import Program

__all__ = ["ModelledServer", "ServerUpdate", "ServerWorker"]


class ServerUpdate(NamedTuple):
    """A gradient that the server has applied. It has the part of `iswitch.results.Update` that a trainer reads."""

    sum: np.ndarray

    def mean(self) -> np.ndarray:
        """Return the vector: an update is of one worker."""
        return self.sum.copy()


class Reply(NamedTuple):
    """Weights on their way to a worker: the number of updates in them, and when the last byte is at the worker."""

    version: int
    come_s: float


class ModelledServer:
    """Applies each gradient when it comes, and sends the new weights to that worker.

    The cable to the server, its processor for an update, and the cable from it serve one vector at a time. Bytes pass
    sockets on a core for each connection.

    Parameters
    ----------
    size_bytes : int
        Size of a gradient, and of the weights.
    costs : Costs
        Times of the parts, as in `iswitch.estimate.server.asynchronous_server`.
    rate_bps : float
        Rate of every cable.
    """

    def __init__(self, *, size_bytes: int, costs: Costs, rate_bps: float):
        self.updates: list[ServerUpdate] = []
        self.send_s = (costs.tcp_call_us + size_bytes * costs.tcp_send_byte_ns / 1e3) / 1e6
        """Seconds of a processor for sending a vector."""
        self.receive_s = (costs.tcp_call_us + size_bytes * costs.tcp_receive_byte_ns / 1e3) / 1e6
        """Seconds of a processor for receiving a vector."""
        self._wake_s = costs.wake_us / 1e6
        self._update_s = size_bytes * costs.update_byte_ns / 1e9
        self._vector_s = 8 * TCP.wire_bytes(size_bytes) / rate_bps
        packet_s = 8 * TCP.wire_bytes(min(size_bytes, TCP.payload_bytes)) / rate_bps
        self._way_s = (2 * costs.card_us + 2 * costs.cable_us + costs.forward_us) / 1e6 + packet_s
        self._in_free_s = self._processor_free_s = self._out_free_s = 0.0

    def exchange(self, vector: np.ndarray, now_s: float) -> Reply:
        """Send a gradient at that time, not before that of the last call. Return the reply."""
        self._in_free_s = max(now_s, self._in_free_s) + self._vector_s
        came_s = self._in_free_s + self._way_s + self._wake_s + self.receive_s
        self._processor_free_s = max(came_s, self._processor_free_s) + self._update_s
        self.updates.append(ServerUpdate(vector.copy()))
        self._out_free_s = max(self._processor_free_s + self.send_s, self._out_free_s) + self._vector_s
        return Reply(len(self.updates), self._out_free_s + self._way_s + self._wake_s)


class ServerWorker:
    """A worker of the server. Its methods are those of `iswitch.AsyncWorker` that a trainer calls.

    Parameters
    ----------
    server : ModelledServer
        The server of all workers.
    program : Program
        The worker's program.
    overlapped : bool
        If True, `push` returns when the gradient is sent, so that the worker computes the next one with the weights
        that it has; else when the weights with this gradient are here.
    """

    refused = 0
    """Vectors that the server did not apply."""

    def __init__(self, server: ModelledServer, program: Program, *, overlapped: bool):
        self._server, self._program, self._overlapped = server, program, overlapped
        self._reply: Reply | None = None
        self._version = self._taken = 0

    def updates(self) -> Iterator[ServerUpdate]:
        """Yield the updates in the weights that have come."""
        while self._taken < self._version:
            self._taken += 1
            yield self._server.updates[self._taken - 1]

    def push(self, vector: np.ndarray) -> None:
        """Send a gradient."""
        self._receive()
        self._program.sleep(self._server.send_s)
        self._reply = self._server.exchange(vector, self._program.now())
        if not self._overlapped:
            self._receive()

    def _receive(self) -> None:
        if self._reply:
            self._program.sleep(max(0.0, self._reply.come_s - self._program.now()) + self._server.receive_s)
            self._version, self._reply = self._reply.version, None
