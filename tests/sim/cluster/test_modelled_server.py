"""The server that programs call is held to the event simulation of the same server."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.estimate.costs import Costs
from iswitch.estimate.server import asynchronous_server
from iswitch.estimate.setting import Setting
from sim.cluster.modelled_server import ModelledServer, ServerWorker
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine

COUNT = 20


def seconds_per_round(size_bytes, compute_s, *, workers, overlapped):
    server = ModelledServer(size_bytes=size_bytes, costs=Costs(), rate_bps=10e9)
    applied = []

    def work(program):
        worker = ServerWorker(server, program, overlapped=overlapped)
        for number in range(COUNT):
            program.sleep(compute_s)
            worker.push(np.full(1, number, np.float32))
            applied.append(program.now())
            list(worker.updates())

    with Board(Config()) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric)
        for rank in range(workers):
            cluster.add((0, rank), work, name=f"worker {rank}", machine=Machine())
        cluster.run()
    first, last = 5 * workers, (COUNT - 2) * workers
    return (applied[last] - applied[first]) / (last - first) * workers


@pytest.mark.parametrize("overlapped", [False, True], ids=["waits", "overlapped"])
@pytest.mark.parametrize(
    "size_bytes, compute_s", [(40_020, 0), (40_020, 2.5e-4), (157_520, 6e-4), (6_410_000, 0), (6_410_000, 0.05)]
)
def test_programs_see_the_times_of_the_simulated_server(size_bytes, compute_s, overlapped):
    setting = Setting(size_bytes=size_bytes, compute_s=compute_s)
    expected_s = asynchronous_server(setting, overlapped=overlapped)
    assert seconds_per_round(size_bytes, compute_s, workers=4, overlapped=overlapped) == pytest.approx(
        expected_s, rel=0.1
    )


def test_a_worker_receives_every_update_once_in_order_with_its_own_gradient_last():
    server = ModelledServer(size_bytes=4, costs=Costs(), rate_bps=10e9)
    seen = {}

    def work(rank):
        def program(program):
            worker = ServerWorker(server, program, overlapped=False)
            seen[rank] = []
            for number in range(COUNT):
                program.sleep(1e-5 * (1 + rank))
                worker.push(np.float32([100 * rank + number]))
                seen[rank] += [float(update.mean()[0]) for update in worker.updates()]
                assert seen[rank][-1] == 100 * rank + number

        return program

    with Board(Config()) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric)
        for rank in range(3):
            cluster.add((0, rank), work(rank), name=f"worker {rank}", machine=Machine())
        cluster.run()
    order = [float(update.sum[0]) for update in server.updates]
    assert len(order) == len(set(order)) == 3 * COUNT
    assert all(each == order[: len(each)] for each in seen.values())
