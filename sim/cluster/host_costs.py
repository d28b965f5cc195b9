"""`python -m sim.cluster.host_costs`: what this machine takes for messages, bytes and sums, by real sockets.

The processes speak over loopback. Processor time is that of a process itself (`time.process_time`), so waiting does not
count. On loopback the sender's call also does the receiver's part of the network stack; a card does it in an interrupt.
The driver's costs are those of `iswitch.Worker` at a software switch with the segments of the default gateware: sums
with a window of 1 (a burst for each datagram) and of 32 segments give the two unknowns.
"""

import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch import Worker
from iswitch.config import Config
from iswitch.estimate.costs import Costs, describe_costs
from iswitch.estimate.network import Connection
from iswitch.switch.server import SwitchServer
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from sim.cluster.realtime import before_others

__all__ = ["OUT", "measure", "measure_copy_s", "measure_sums", "measure_tcp", "read"]

OUT = Path(__file__).parents[2] / "build" / "host_costs.json"
HOST = "127.0.0.1"
SPAWN = multiprocessing.get_context("spawn")
MESSAGE_BYTES = 64
ROUNDS, ROUND_BYTES, WARM_UP = 500, 60_000_000, 3
VECTOR_BYTES = 3_310_000
SEGMENTS = 2000
WINDOWS = (1, 32)


def _exact(peer: socket.socket, into: memoryview) -> None:
    while len(into):
        into = into[peer.recv_into(into, 0, socket.MSG_WAITALL) :]


def _timed(function: Callable[[], Any], times: list[float]) -> None:
    """Call a function, and keep its processor time in seconds."""
    begun_s = time.process_time()
    function()
    times.append(time.process_time() - begun_s)


def _converse(peer: socket.socket, size: int, rounds: int, *, first: bool) -> tuple[float, float, float]:
    """Send and receive a vector in turns. Return the medians of: processor time of a send, of a receive, time of a
    turn, all in seconds."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        peer.setsockopt(socket.SOL_SOCKET, option, Connection.BUFFER_BYTES)
    vector, turns = memoryview(bytearray(size)), []
    sending: list[float] = []
    receiving: list[float] = []
    for _ in range(rounds + WARM_UP):
        begun_s = time.perf_counter()
        if first:
            _timed(lambda: peer.sendall(vector), sending)
        _timed(lambda: _exact(peer, vector), receiving)
        if not first:
            _timed(lambda: peer.sendall(vector), sending)
        turns.append(time.perf_counter() - begun_s)
    send_s, receive_s, turn_s = (statistics.median(times[WARM_UP:]) for times in (sending, receiving, turns))
    return send_s, receive_s, turn_s


def _tcp_peer(control: Pipe, sizes: tuple[int, ...], realtime: bool) -> None:
    with socket.create_server((HOST, 0)) as listener, before_others(realtime):
        control.send(listener.getsockname()[1])
        for size in sizes:
            with listener.accept()[0] as peer:
                control.send(_converse(peer, size, _rounds(size), first=False))


def _rounds(size: int) -> int:
    return max(9, min(ROUNDS, ROUND_BYTES // size))


def measure_tcp(size_bytes: int = VECTOR_BYTES, *, realtime: bool = False) -> dict[str, float]:
    """Return the costs of a TCP socket by two processes that send each other short messages, and then vectors.

    What a short message takes is the call and the wake of the process that waits for it. A vector takes its bytes
    beyond that. They include that it does not stay in a cache, if it is large, and that the two ends compete for the
    memory.
    """
    here, there = SPAWN.Pipe()
    sizes = (MESSAGE_BYTES, size_bytes)
    process = SPAWN.Process(target=_tcp_peer, args=(there, sizes, realtime), daemon=True)
    process.start()
    port, found = here.recv(), []
    with before_others(realtime):
        for size in sizes:
            with socket.create_connection((HOST, port)) as peer:
                ours = _converse(peer, size, _rounds(size), first=True)
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
            name: 1e9 * _median_cpu_s(function) / (3 * size_bytes)
            for name, function in (("sum_byte_ns", add), ("update_byte_ns", update))
        }


def measure_copy_s(size_bytes: int, *, realtime: bool = False) -> float:
    """Return the processor time of a copy of a vector."""
    source, target = (np.full(size_bytes // 4, number, np.float32) for number in range(2))
    with before_others(realtime):
        return _median_cpu_s(lambda: np.copyto(target, source))


def _median_cpu_s(function: Callable[[], Any], repetitions: int = 9) -> float:
    times: list[float] = []
    for _ in range(repetitions):
        _timed(function, times)
    return statistics.median(times)


def _serve(control: Pipe, window: int) -> None:
    sockets = open_ports(HOST, [0])
    config = config_for(sockets, window=window, elements=Config.elements)
    with SwitchServer(SoftwareSwitch(config, mac=bytes(6), ip=bytes(4), seed=1), sockets) as server:
        control.send(server.sockets[0].getsockname()[1])
        server.serve()


def measure_driver() -> dict[str, float]:
    """Return the costs of the driver for a burst and for a datagram, there and back."""
    segment_us = {}
    for window in WINDOWS:
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=_serve, args=(there, window), daemon=True)
        process.start()
        vector = np.ones(SEGMENTS * Config.elements, np.float32)
        try:
            with Worker(f"{HOST}:{here.recv()}", world=1, rank=0, key=1) as worker:
                worker.allreduce(vector)
                segment_us[window] = 1e6 * _median_cpu_s(lambda: worker.allreduce(vector), 5) / SEGMENTS
        finally:
            process.kill()
            process.join()
    one, many = WINDOWS
    burst_us = (segment_us[one] - segment_us[many]) / (1 - 1 / many) / 2
    return {"udp_burst_us": max(0.0, burst_us), "udp_datagram_us": max(0.0, segment_us[one] / 2 - burst_us)}


def measure(repetitions: int = 3) -> Costs:
    """Return the costs of this machine: medians of the repetitions, in which the measurements take turns."""
    found: list[dict[str, float]] = [
        {**measure_tcp(), **measure_sums(), **measure_driver()} for _ in range(repetitions)
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
