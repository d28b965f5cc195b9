"""Processor time of the iswitch driver and of a software switch, by sums of a real `iswitch.Worker` over loopback.

With a window of 1 each datagram is a burst. With a larger window that fits one burst, bursts have so many datagrams. A
sum of one element is nearly the call alone. These three kinds of sums take turns, and give three unknowns. Worker and
switch take turns, too, as the two ends of a TCP connection do in `sim/cluster/host_costs.py`. The processor time of a
process that waits for a burst, and is woken, is part of the burst.
"""

import multiprocessing
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import ceil
from multiprocessing.connection import Connection as Pipe
from typing import Any, NamedTuple

import numpy as np

from iswitch import Worker
from iswitch.config import Config
from iswitch.estimate.switch import segments_in_burst
from iswitch.switch.server import SwitchServer
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from sim.cluster.processor_time import median_cpu_s, process_cpu_s
from sim.cluster.realtime import run_before_others

__all__ = ["DriverCosts", "PartTimes", "SumTimes", "measure_driver", "split"]

HOST = "127.0.0.1"
SPAWN = multiprocessing.get_context("spawn")
ROUNDS, ROUND_BYTES, REPETITIONS = (3, 60), 10_000_000, 5


class SumTimes(NamedTuple):
    """Processor time of a process for a sum, in seconds.

    Parameters
    ----------
    one_element_s : float
        For a sum of one element.
    single_s, burst_s : float
        For a sum of the vector, with a burst for each datagram and with longer bursts.
    """

    one_element_s: float
    single_s: float
    burst_s: float


class PartTimes(NamedTuple):
    """Microseconds of a call, of a burst, and of a datagram, of which each is sent or received."""

    call_us: float
    burst_us: float
    datagram_us: float


class DriverCosts(NamedTuple):
    """What a worker and the switch take.

    Parameters
    ----------
    driver : dict
        Costs of the driver, by the names of `iswitch.estimate.costs.Costs`.
    switch_burst_us, switch_datagram_us : float
        Processor time of the software switch for a burst that it receives or sends, and for each datagram in it. Half
        of the time of adding, rounding and sending is that of the contributions, half that of the results.
    """

    driver: dict[str, float]
    switch_burst_us: float
    switch_datagram_us: float


def split(times: SumTimes, segments: int, burst_segments: int) -> PartTimes:
    """Return what the parts of a sum take.

    Parameters
    ----------
    times : SumTimes
        Times of the three kinds of sums.
    segments : int
        Segments of the vector.
    burst_segments : int
        Segments in one of the longer bursts.

    Raises
    ------
    ValueError
        If the vector fits one datagram, or bursts are no longer than that.
    """
    bursts = ceil(segments / burst_segments)
    if bursts == segments:
        raise ValueError(f"{segments} segments in {bursts} bursts do not tell a burst from a datagram")
    burst_s = max(0.0, (times.single_s - times.burst_s) / (2 * (segments - bursts)))
    call_s = max(0.0, times.one_element_s - 2 * burst_s)
    datagram_s = max(0.0, (times.burst_s - call_s - 2 * bursts * burst_s) / (2 * segments))
    return PartTimes(1e6 * call_s, 1e6 * burst_s, 1e6 * datagram_s)


def _serve(control: Pipe, window: int, elements: int, realtime: bool) -> None:
    sockets = open_ports(HOST, [0])
    config = config_for(sockets, window=window, elements=elements)
    with SwitchServer(SoftwareSwitch(config, mac=bytes(6), ip=bytes(4), seed=1), sockets) as server:
        control.send(server.sockets[0].getsockname()[1])
        if realtime:
            run_before_others()
        server.serve()


def _work(control: Pipe, ports: list[int], rank: int, world: int, size_bytes: int, realtime: bool) -> None:
    """Sum at the switch and with the size that come by the pipe, until None comes. Send the processor time of a sum."""
    arrays = {size: np.zeros(size // 4, np.float32) for size in (4, size_bytes)}
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(f"{HOST}:{port}", world=world, rank=rank, key=1)) for port in ports]
        if realtime:
            run_before_others()
        control.send(None)
        while (given := control.recv()) is not None:
            number, size = given
            array, reduce = arrays[size], workers[number].allreduce
            reduce(array)
            control.send(median_cpu_s(partial(reduce, array), _rounds(size)))


def _rounds(size: int) -> int:
    return max(ROUNDS[0], min(ROUNDS[1], ROUND_BYTES // size))


def measure_driver(
    size_bytes: int, *, elements: int = Config.elements, workers: int = 1, realtime: bool = False
) -> DriverCosts:
    """Return the costs of the driver and of the software switch for vectors of one size.

    Parameters
    ----------
    size_bytes : int
        Size of the vector.
    elements : int
        Elements in a segment. Default: those of the default gateware.
    workers : int
        Workers of the job.
    realtime : bool
        If True, workers and switch run before all other programs.
    """
    segments = ceil(size_bytes / (4 * elements))
    most = 1 << (segments_in_burst(elements).bit_length() - 1)  # a window is a power of two
    kinds = {"one element": (1, 4), "single": (0, size_bytes), "burst": (1, size_bytes)}
    driver: dict[str, list[float]] = {kind: [] for kind in kinds}
    switch: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        ports, switches = [], []
        for window in (1, most):
            here, process = _start(stack, _serve, window, elements, realtime)
            ports.append(here.recv())
            switches.append(process)
        pipes = [_start(stack, _work, ports, rank, workers, size_bytes, realtime)[0] for rank in range(workers)]
        for pipe in pipes:
            pipe.recv()
        for _ in range(REPETITIONS):
            for kind, (number, size) in kinds.items():
                served_s = process_cpu_s(switches[number])
                for pipe in pipes:
                    pipe.send((number, size))
                driver[kind].append(statistics.mean(pipe.recv() for pipe in pipes))
                served_s = process_cpu_s(switches[number]) - served_s
                switch[kind].append(served_s / (workers * (1 + _rounds(size))))
        for pipe in pipes:
            pipe.send(None)
    parts, served = (
        split(SumTimes(*(statistics.median(found[kind]) for kind in kinds)), segments, most)
        for found in (driver, switch)
    )
    costs = {"udp_call_us": parts.call_us, "udp_burst_us": parts.burst_us, "udp_datagram_us": parts.datagram_us}
    return DriverCosts(costs, served.burst_us, served.datagram_us)


def _start(stack: ExitStack, target: Callable[..., None], *arguments: Any) -> tuple[Pipe, int]:
    """Start a process, and return the pipe to it, and its id. It ends with the stack."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    stack.callback(process.join)
    stack.callback(process.kill)
    assert process.pid is not None
    return here, process.pid
