"""`python -m sim.cluster.host_costs`: what this machine takes for messages, bytes and sums, by real sockets.

The processes speak over loopback. Processor time is that of a process itself (`time.process_time`), so waiting does not
count. On loopback the sender's call also does the receiver's part of the network stack; a card does it in an interrupt.
`sim/cluster/driver_costs.py` measures the driver, with the segments of the default gateware.
"""

import json
import multiprocessing
import socket
import statistics
import time
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.costs import Costs, describe_costs
from iswitch.estimate.network import Connection
from sim.cluster.driver_costs import measure_driver
from sim.cluster.processor_time import add_cpu_s, median_cpu_s
from sim.cluster.realtime import before_others

__all__ = ["OUT", "measure", "measure_copy_s", "measure_sums", "measure_tcp", "read"]

OUT = Path(__file__).parents[2] / "build" / "host_costs.json"
HOST = "127.0.0.1"
SPAWN = multiprocessing.get_context("spawn")
MESSAGE_BYTES = 64
ROUNDS, ROUND_BYTES, WARM_UP = 500, 60_000_000, 3
VECTOR_BYTES = 3_310_000


def _exact(peer: socket.socket, into: memoryview) -> None:
    while len(into):
        into = into[peer.recv_into(into, 0, socket.MSG_WAITALL) :]


def _converse(peer: socket.socket, size: int, rounds: int, buffers: int, *, first: bool) -> tuple[float, float, float]:
    """Send and receive a vector in turns, each turn from and to the next buffer. Return the medians of: processor time
    of a send, of a receive, time of a turn, all in seconds."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        peer.setsockopt(socket.SOL_SOCKET, option, Connection.BUFFER_BYTES)
    vectors, turns = [memoryview(bytearray(size)) for _ in range(buffers)], []
    sending: list[float] = []
    receiving: list[float] = []
    for turn in range(rounds + WARM_UP):
        vector = vectors[turn % buffers]
        send, receive = partial(peer.sendall, vector), partial(_exact, peer, vector)
        begun_s = time.perf_counter()
        if first:
            add_cpu_s(send, sending)
        add_cpu_s(receive, receiving)
        if not first:
            add_cpu_s(send, sending)
        turns.append(time.perf_counter() - begun_s)
    send_s, receive_s, turn_s = (statistics.median(times[WARM_UP:]) for times in (sending, receiving, turns))
    return send_s, receive_s, turn_s


def _tcp_peer(control: Pipe, sizes: tuple[int, ...], buffers: int, realtime: bool) -> None:
    with socket.create_server((HOST, 0)) as listener, before_others(realtime):
        control.send(listener.getsockname()[1])
        for size in sizes:
            with listener.accept()[0] as peer:
                control.send(_converse(peer, size, _rounds(size), buffers, first=False))


def _rounds(size: int) -> int:
    return max(9, min(ROUNDS, ROUND_BYTES // size))


def measure_tcp(size_bytes: int = VECTOR_BYTES, *, buffers: int = 1, realtime: bool = False) -> dict[str, float]:
    """Return the costs of a TCP socket by two processes that send each other short messages, and then vectors.

    What a short message takes is the call and the wake of the process that waits for it. A vector takes its bytes
    beyond that. They include that it does not stay in a cache, if it is large, and that the two ends compete for the
    memory.

    Parameters
    ----------
    size_bytes : int
        Size of a vector.
    buffers : int
        Buffers from which each process sends and into which it receives, one after the other: the vectors that a
        server holds, or the parts of a worker's vector.
    realtime : bool
        If True, both run before all other programs.
    """
    here, there = SPAWN.Pipe()
    sizes = (MESSAGE_BYTES, size_bytes)
    process = SPAWN.Process(target=_tcp_peer, args=(there, sizes, buffers, realtime), daemon=True)
    process.start()
    port, found = here.recv(), []
    with before_others(realtime):
        for size in sizes:
            with socket.create_connection((HOST, port)) as peer:
                ours = _converse(peer, size, _rounds(size), buffers, first=True)
            found.append(tuple(statistics.mean(both) for both in zip(ours, here.recv(), strict=True)))
    process.join()
    (short_send_s, short_receive_s, short_turn_s), (send_s, receive_s, _) = found
    call_us = 1e6 * min(short_send_s, short_receive_s) / 2
    return {
        "tcp_call_us": call_us,
        "wake_us": max(0.0, 1e6 * short_turn_s / 2 - 2 * call_us),
        "tcp_send_byte_ns": max(0.0, 1e9 * (send_s - short_send_s) / size_bytes),
        "tcp_receive_byte_ns": max(0.0, 1e9 * (receive_s - short_receive_s) / size_bytes),
    }


def measure_sums(size_bytes: int = VECTOR_BYTES, *, realtime: bool = False) -> dict[str, float]:
    """Return the costs of adding a vector to another, and of a step of gradient descent, with numpy."""
    vectors = [np.full(size_bytes // 4, number, np.float32) for number in range(4)]
    scaled = np.empty_like(vectors[0])

    def add() -> None:
        for vector in vectors[1:]:
            vectors[0] += vector

    def update() -> None:
        for vector in vectors[1:]:
            np.multiply(vector, np.float32(1e-3), out=scaled)
            vectors[0] -= scaled

    with before_others(realtime):
        return {
            name: 1e9 * median_cpu_s(function) / (3 * size_bytes)
            for name, function in (("sum_byte_ns", add), ("update_byte_ns", update))
        }


def measure_copy_s(size_bytes: int, *, realtime: bool = False) -> float:
    """Return the processor time of a copy of a vector."""
    source, target = (np.full(size_bytes // 4, number, np.float32) for number in range(2))
    with before_others(realtime):
        return median_cpu_s(lambda: np.copyto(target, source))


def measure(repetitions: int = 3) -> Costs:
    """Return the costs of this machine: medians of the repetitions, in which the measurements take turns."""
    found: list[dict[str, float]] = [
        {**measure_driver(VECTOR_BYTES).driver, **measure_tcp(), **measure_sums()} for _ in range(repetitions)
    ]
    return Costs.from_dict({name: statistics.median(one[name] for one in found) for name in found[0]})


def read(path: Path = OUT) -> Costs:
    """Return the costs that `main` has written, or the default costs if it has not."""
    given: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return Costs.from_dict(given)


def main(
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements of each cost; the median counts.")] = 5,
    out: Annotated[
        Path, typer.Option(help="File of the costs, which the cluster's models read at its usual place.")
    ] = OUT,
) -> None:
    """Measure the costs of this machine, print them, and write them into a file."""
    costs = measure(repetitions)
    table = Table("cost", "here", "default", "source")
    for (name, value, source), (_, usual, _) in zip(describe_costs(costs), describe_costs(Costs()), strict=True):
        table.add_row(name, f"{value:.3g}", f"{usual:.3g}", source)
    Console().print(table)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(asdict(costs), indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
