"""Parameter servers: workers send gradients, and receive sums or weights, over TCP."""

from collections import deque

from iswitch.estimate.network import Connection, Network
from iswitch.estimate.setting import ITERATIONS, Phases, Setting, Stopwatch
from iswitch.estimate.simulation import Process, Processor, Signal, Simulation

__all__ = ["asynchronous_server", "parameter_server", "sharded_server", "streaming_server"]

CHUNK_BYTES = 65536
"""What a streaming server sums at a time."""
WARM_UP, MEASURED = 4, 12
"""Gradients of each worker before and within the measurement of an asynchronous server."""


def parameter_server(setting: Setting, *, eager: bool = True, update: bool = True) -> Phases:
    """One server sums the vectors, updates the weights when it has all, and sends them to one worker after another.

    Parameters
    ----------
    setting : Setting
        The workers.
    eager : bool
        If True, the server adds each vector as soon as it has it, while the next one comes; else when it has all.
    update : bool
        If True, the server updates the weights and sends these; else it sends the sum.
    """
    simulation, watch = Simulation(), Stopwatch(setting.workers)
    network = setting.network(simulation, servers=1)
    host = network.hosts[-1]
    up = [network.connect(rank, setting.workers) for rank in range(setting.workers)]
    down = [network.connect(setting.workers, rank) for rank in range(setting.workers)]

    def serve() -> Process:
        for _ in range(ITERATIONS):
            for number, connection in enumerate(up):
                yield from connection.receive(setting.size_bytes)
                if number and eager:
                    yield from host.compute(setting.sum_s)
            yield from host.compute(setting.sum_s * (0 if eager else setting.workers - 1) + setting.update_s * update)
            for connection in down:
                yield from connection.send(setting.size_bytes)

    for rank in range(setting.workers):
        simulation.start(_worker(network, setting, watch, rank, [up[rank]], [down[rank]], [setting.size_bytes]))
    simulation.start(serve())
    simulation.run()
    return watch.phases()


def streaming_server(setting: Setting) -> Phases:
    """One server sums chunk by chunk, and sends a chunk of the new weights while others still come."""
    simulation, watch = Simulation(), Stopwatch(setting.workers)
    network = setting.network(simulation, servers=1)
    host, costs = network.hosts[-1], setting.costs
    up = [network.connect(rank, setting.workers) for rank in range(setting.workers)]
    down = [network.connect(setting.workers, rank) for rank in range(setting.workers)]
    summed: deque[int] = deque()
    ready = Signal()
    chunks = _cut(setting.size_bytes, CHUNK_BYTES) * ITERATIONS

    def add() -> Process:
        for chunk in chunks:
            for connection in up:
                yield from connection.receive(chunk)
            each_ns = (setting.workers - 1) * costs.sum_byte_ns + costs.update_byte_ns
            yield from host.compute(1e-9 * each_ns * chunk)
            summed.append(chunk)
            simulation.fire(ready)

    def give() -> Process:
        for _ in chunks:
            while not summed:
                yield ready
            chunk = summed.popleft()
            for connection in down:
                yield from connection.send(chunk)

    for rank in range(setting.workers):
        simulation.start(_worker(network, setting, watch, rank, [up[rank]], [down[rank]], [setting.size_bytes]))
    simulation.start(add())
    simulation.start(give())
    simulation.run()
    return watch.phases()


def sharded_server(setting: Setting) -> Phases:
    """Each worker's machine is also the server of an equal part of the vector, for all workers."""
    simulation, watch = Simulation(), Stopwatch(setting.workers)
    network = setting.network(simulation)
    ranks = range(setting.workers)
    sizes = _parts(setting.size_bytes, setting.workers)
    up = {(a, b): network.connect(a, b) for a in ranks for b in ranks if a != b}
    down = {(a, b): network.connect(a, b) for a in ranks for b in ranks if a != b}

    def serve(rank: int) -> Process:
        others = [(rank + step) % setting.workers for step in range(1, setting.workers)]
        part = sizes[rank] / setting.size_bytes
        for _ in range(ITERATIONS):
            for other in others[::-1]:  # the worker that sends to this one first
                yield from up[other, rank].receive(sizes[rank])
                yield from network.hosts[rank].compute(setting.sum_s * part)
            yield from network.hosts[rank].compute(setting.update_s * part)
            for other in others:
                yield from down[rank, other].send(sizes[rank])

    for rank in ranks:
        others = [(rank + step) % setting.workers for step in range(1, setting.workers)]
        simulation.start(
            _worker(
                network,
                setting,
                watch,
                rank,
                [up[rank, other] for other in others],
                [down[other, rank] for other in others[::-1]],
                [sizes[other] for other in others],
            )
        )
        simulation.start(serve(rank))
    simulation.run()
    return watch.phases()


def asynchronous_server(setting: Setting, *, overlapped: bool = False) -> float:
    """Each worker's gradient updates the server's weights when it comes, and that worker receives the new weights.

    Parameters
    ----------
    setting : Setting
        The workers.
    overlapped : bool
        If True, a worker computes its next gradient with the weights that it has while it waits for newer ones; else it
        waits first.

    Returns
    -------
    float
        Seconds in which the server applies as many gradients as there are workers.
    """
    simulation = Simulation()
    network = setting.network(simulation, servers=1)
    host, lock = network.hosts[-1], Processor(simulation, 1)
    applied: list[float] = []
    count = WARM_UP + MEASURED

    def serve(up: Connection, down: Connection) -> Process:
        for _ in range(count):
            yield from up.receive(setting.size_bytes)
            yield from lock.use(setting.update_s)
            applied.append(simulation.now_s)
            yield from down.send(setting.size_bytes)

    def work(up: Connection, down: Connection, rank: int) -> Process:
        yield setting.compute_s * rank / setting.workers  # not in step
        for number in range(count):
            yield from host.compute(setting.compute_s)
            if overlapped and number:
                yield from down.receive(setting.size_bytes)
            yield from up.send(setting.size_bytes)
            if not overlapped or number == count - 1:
                yield from down.receive(setting.size_bytes)

    for rank in range(setting.workers):
        up, down = network.connect(rank, setting.workers), network.connect(setting.workers, rank)
        simulation.start(serve(up, down))
        simulation.start(work(up, down, rank))
    simulation.run()
    first, last = WARM_UP * setting.workers, (WARM_UP + MEASURED - 2) * setting.workers
    return (applied[last] - applied[first]) / (last - first) * setting.workers


def _worker(
    network: Network,
    setting: Setting,
    watch: Stopwatch,
    rank: int,
    up: list[Connection],
    down: list[Connection],
    sizes: list[int],
) -> Process:
    """Compute, send the parts, receive the parts, in every iteration. The server has updated the weights."""
    simulation, host = network.simulation, network.hosts[rank]
    for _ in range(ITERATIONS):
        begun_s = simulation.now_s
        yield from host.compute(setting.compute_s)
        ready_s = simulation.now_s
        for connection, size in zip(up, sizes, strict=True):
            yield from connection.send(size)
        yield from down[0].wait()
        came_s = simulation.now_s
        for connection, size in zip(down, sizes[::-1], strict=True):
            yield from connection.receive(size)
        end_s = simulation.now_s
        watch.record(rank, begun_s, ready_s, max(connection.left_s for connection in up), came_s, end_s, end_s)


def _cut(size: int, chunk: int) -> list[int]:
    return [min(chunk, size - at) for at in range(0, size, chunk)]


def _parts(size: int, count: int) -> list[int]:
    """Return the sizes of nearly equal parts of whole elements."""
    elements = size // 4
    return [4 * (elements * (k + 1) // count - elements * k // count) for k in range(count)]
