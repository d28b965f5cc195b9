"""AllReduce among the workers, over TCP: a ring, and a tree by halving and doubling."""

from iswitch.estimate.network import Connection, Network
from iswitch.estimate.setting import ITERATIONS, Phases, Setting, Stopwatch
from iswitch.estimate.simulation import Process, Simulation

__all__ = ["PIECE_BYTES", "ring", "tree"]

PIECE_BYTES = 65536
"""What a worker of a ring receives, adds and sends on at a time."""


def ring(setting: Setting, *, piece_bytes: int | None = PIECE_BYTES, update: bool = True) -> Phases:
    """Each worker sends parts to the next one: N - 1 steps that add, and N - 1 that spread the sums.

    Parameters
    ----------
    setting : Setting
        The workers.
    piece_bytes : int, optional
        A piece of a part is sent on as soon as it is added; None: only whole parts are.
    update : bool
        If True, each worker applies the sum to its weights.
    """
    simulation, watch = Simulation(), Stopwatch(setting.workers)
    network, workers = setting.network(simulation), setting.workers
    following = [network.connect(rank, (rank + 1) % workers, blocking=False) for rank in range(workers)]
    elements = setting.size_bytes // 4
    parts = [4 * (elements * (k + 1) // workers - elements * k // workers) for k in range(workers)]

    def cut(part: int) -> list[int]:
        size = parts[part % workers]
        piece = piece_bytes or max(size, 1)
        return [min(piece, size - at) for at in range(0, size, piece)]

    def work(rank: int) -> Process:
        out, before, host = following[rank], following[rank - 1], network.hosts[rank]
        for _ in range(ITERATIONS):
            begun_s = simulation.now_s
            yield from host.compute(setting.compute_s)
            ready_s = simulation.now_s
            for size in cut(rank):
                yield from out.send(size)
            sent_s, added_s = out.left_s, ready_s
            for step in range(2 * (workers - 1)):
                for size in cut(rank - step - 1):
                    yield from before.receive(size)
                    if step < workers - 1:
                        yield from host.compute(1e-9 * setting.costs.sum_byte_ns * size)
                        added_s = simulation.now_s
                    if step < 2 * (workers - 1) - 1:
                        yield from out.send(size)
            received_s = simulation.now_s
            yield from host.compute(setting.update_s * update)
            watch.record(rank, begun_s, ready_s, sent_s, added_s, received_s, simulation.now_s)

    for rank in range(workers):
        simulation.start(work(rank))
    simulation.run()
    return watch.phases()


def tree(setting: Setting) -> Phases:
    """Pairs of workers exchange halves, quarters, ... and add them, then the sums in the opposite order.

    Neighbours exchange the halves, workers at twice the distance the quarters, and so on, so that racks add before
    anything leaves them: recursive vector halving and distance doubling (Thakur, Rabenseifner and Gropp, 2005). If the
    number of workers is no power of two, some of the first workers do not take part: each gives its vector to its
    neighbour first, and receives the sum at the end.
    """
    simulation, watch = Simulation(), Stopwatch(setting.workers)
    network = setting.network(simulation)
    power = 1 << (setting.workers.bit_length() - 1)
    extra = setting.workers - power  # ranks 1, 3, ... 2 * extra - 1 do not take part
    taking_part = [rank for rank in range(setting.workers) if rank >= 2 * extra or rank % 2 == 0]
    places = {rank: place for place, rank in enumerate(taking_part)}
    pairs = _Pairs(network)

    def send(rank: int, other: int, size: int) -> Process:
        yield from pairs.get(rank, other).send(size)

    def work(rank: int) -> Process:
        host, size, place = network.hosts[rank], setting.size_bytes, places.get(rank)
        for _ in range(ITERATIONS):
            begun_s = simulation.now_s
            yield from host.compute(setting.compute_s)
            ready_s = sent_s = added_s = simulation.now_s
            if place is None:
                yield from send(rank, rank - 1, size)
                sent_s = pairs.get(rank, rank - 1).left_s
                yield from pairs.get(rank - 1, rank).wait()
                added_s = simulation.now_s
                yield from pairs.get(rank - 1, rank).receive(size)
            else:
                if rank < 2 * extra:
                    yield from pairs.get(rank + 1, rank).receive(size)
                    yield from host.compute(setting.sum_s)
                rounds: list[tuple[int, int]] = []
                part, distance = size, 1
                while distance < power:
                    part, other = part // 2, taking_part[place ^ distance]
                    yield from send(rank, other, part)
                    sent_s = sent_s if rounds else pairs.get(rank, other).left_s
                    yield from pairs.get(other, rank).receive(part)
                    yield from host.compute(1e-9 * setting.costs.sum_byte_ns * part)
                    rounds.append((other, part))
                    distance *= 2
                added_s = simulation.now_s
                for other, part in rounds[::-1]:
                    yield from send(rank, other, part)
                    yield from pairs.get(other, rank).receive(part)
                if rank < 2 * extra:
                    yield from send(rank, rank + 1, size)
            received_s = simulation.now_s
            yield from host.compute(setting.update_s)
            watch.record(rank, begun_s, ready_s, sent_s, added_s, received_s, simulation.now_s)

    for rank in range(setting.workers):
        simulation.start(work(rank))
    simulation.run()
    return watch.phases()


class _Pairs:
    """Connections, made when they are first used."""

    def __init__(self, network: Network):
        self._network = network
        self._made: dict[tuple[int, int], Connection] = {}

    def get(self, source: int, target: int) -> Connection:
        if (source, target) not in self._made:
            self._made[source, target] = self._network.connect(source, target, blocking=False)
        return self._made[source, target]
