"""A model of sums at a software switch, whose process shares the cores of one machine with the workers.

`iswitch.estimate.switch` models the gateware, where one worker stands for all. Here every process has its own time: the
driver's loop of `host/iswitch/native/exchange.c`, and the switch's of `host/iswitch/native/server.c`. A process keeps
its core until it waits. What wakes it is part of a burst's time. A socket holds all that is sent, and nothing is lost.
"""

from collections import deque
from typing import NamedTuple

from iswitch.estimate.network import Host
from iswitch.estimate.setting import ITERATIONS, Phases, Setting, Stopwatch
from iswitch.estimate.simulation import Process, Processor, Signal, Simulation
from iswitch.estimate.switch import segments_in_burst

__all__ = ["ServedSwitch", "software_switch"]

PORT_BURSTS = 8
"""Bursts that the switch takes from a port before it looks at the next one."""


class ServedSwitch(NamedTuple):
    """A software switch.

    Parameters
    ----------
    burst_us, datagram_us : float
        Processor time of a burst that it receives or sends, and of each datagram in it.
    elements : int
        Elements in a segment.
    window : int
        Segments that a worker may have in flight.
    """

    burst_us: float
    datagram_us: float
    elements: int
    window: int


class _Bursts:
    """What was sent to a process and is not received yet, as numbers of segments. `came` is fired for each burst."""

    def __init__(self, simulation: Simulation, came: Signal):
        self._simulation, self._waiting, self.came = simulation, deque[int](), came

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, segments: int) -> None:
        self._waiting.append(segments)
        self._simulation.fire(self.came)

    def get(self) -> int:
        return self._waiting.popleft()


def software_switch(setting: Setting, served: ServedSwitch) -> Phases:
    """Sum at the software switch, without cables; the workers do not apply the sum to weights.

    Parameters
    ----------
    setting : Setting
        The workers. `cores` are those that all processes share, the switch's included.
    served : ServedSwitch
        The switch.
    """
    simulation, watch, costs = Simulation(), Stopwatch(setting.workers), setting.costs
    total = -(-setting.size_bytes // (4 * served.elements))
    most, ranks = segments_in_burst(served.elements), range(setting.workers)
    shared = Processor(simulation, setting.cores, until_wait=True)
    hosts = [Host(shared, costs) for _ in ranks]
    at_switch = Signal()
    ports = [_Bursts(simulation, at_switch) for _ in ranks]
    inboxes = [_Bursts(simulation, Signal()) for _ in ranks]
    call_s = costs.udp_call_us / 1e6

    def burst_s(segments: int) -> float:
        return 1e-6 * (costs.udp_burst_us + segments * costs.udp_datagram_us)

    def reduce(rank: int) -> Process:
        host, inbox = hosts[rank], inboxes[rank]
        sent = done = 0
        while done < total:
            end = min(done + served.window, total)
            while sent < end:
                count = min(most, end - sent)
                yield from host.compute(burst_s(count))
                sent += count
                ports[rank].put(count)
            if not inbox:
                yield inbox.came
            while inbox:
                count = inbox.get()
                yield from host.compute(burst_s(count))
                done += count
                if sent == total or sent - done <= served.window * 3 // 4:
                    break

    def work(rank: int) -> Process:
        for _ in range(ITERATIONS):
            begun_s = simulation.now_s
            yield from hosts[rank].compute(setting.compute_s)
            ready_s = simulation.now_s
            yield from hosts[rank].compute(call_s / 2)
            yield from reduce(rank)
            yield from hosts[rank].compute(call_s / 2)
            end_s = simulation.now_s
            watch.record(rank, begun_s, ready_s, end_s, end_s, end_s, end_s)

    def use(segments: int) -> Process:
        yield from shared.use(1e-6 * (served.burst_us + segments * served.datagram_us))

    def send(segments: int) -> Process:
        for inbox in inboxes:
            for at in range(0, segments, most):
                count = min(most, segments - at)
                yield from use(count)
                inbox.put(count)

    def serve() -> Process:
        contributed, summed = [0] * setting.workers, 0
        while summed < ITERATIONS * total:
            if not any(ports):
                yield at_switch
            for rank, port in enumerate(ports):
                for _ in range(min(PORT_BURSTS, len(port))):
                    count = port.get()
                    yield from use(count)
                    contributed[rank] += count
                    if (ready := min(contributed) - summed) >= most:
                        summed += ready
                        yield from send(ready)
                if ready := min(contributed) - summed:
                    summed += ready
                    yield from send(ready)

    for rank in ranks:
        simulation.start(work(rank))
    simulation.start(serve())
    simulation.run()
    return watch.phases()
