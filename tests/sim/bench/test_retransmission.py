"""Sums on a lossy network in virtual time: the driver beside a client from outside, and four workers behind one
port."""

from functools import partial

import numpy as np
import pytest

from iswitch import Worker
from iswitch.config import Config
from sim.bench.retransmission import RATE_BPS, SIZES, in_virtual_time
from sim.emulator.cluster import Cluster
from sim.emulator.defaults import EMULATED
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric

REPETITIONS = {"1.4 KB": 50, "40 KB": 8, "400 KB": 4}
SUMS = dict(size=100_000, repetitions=5, loss=0, rate_bps=100e9)


@pytest.mark.parametrize("loss", [0.01, 0.05])
@pytest.mark.parametrize("name", SIZES)
def test_loss_costs_at_most_one_and_a_half_times_what_it_costs_an_outside_client(name, loss):
    driver, outside = (
        in_virtual_time(client, size=SIZES[name], repetitions=REPETITIONS[name], loss=loss)[0]
        for client in ("driver", "outside")
    )
    assert driver.mean_s <= 1.5 * outside.mean_s


@pytest.mark.parametrize("name", ["40 KB", "400 KB"])
def test_a_fifth_of_all_frames_lost_costs_no_more_than_a_client_with_a_fixed_time_out(name):
    """Most results wait for a retransmission of one of four workers there, so the usual delay says nothing."""
    driver, fixed = (
        in_virtual_time(client, size=SIZES[name], repetitions=2, loss=0.2, rate_bps=RATE_BPS, config=EMULATED)[0]
        for client in ("driver", "fixed")
    )
    assert driver.mean_s <= fixed.mean_s


@pytest.mark.parametrize("name", SIZES)
def test_nothing_is_sent_again_without_loss(name):
    sums, counters = in_virtual_time("driver", size=SIZES[name], repetitions=4, loss=0)
    assert sums.repeats == 0
    assert "DUPLICATE" not in counters


@pytest.mark.parametrize("name", SIZES)
def test_repeats_while_a_worker_computes_for_a_second_are_few(name):
    """Each of the others sends one segment again, less and less often."""

    def work(rank, program):
        with Worker(world=4, rank=rank, transport=program.transport()) as worker:
            worker.barrier()
            resent = []
            for _ in range(3):
                program.sleep(1.0 if rank == 0 else 0.0)
                resent.append(worker.allreduce(np.ones(SIZES[name], np.float32)).retransmissions)
            return resent

    with Board(Config()) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric)
        programs = [cluster.add((0, rank), partial(work, rank), name=f"rank {rank}") for rank in range(4)]
        cluster.run()
    assert max(max(program.result) for program in programs) <= 11
    assert not any(programs[0].result)


@pytest.mark.parametrize("config", [EMULATED, Config()], ids=["queues of a window", "queues of a board"])
def test_four_workers_at_one_port_take_as_long_as_at_four_ports(config):
    alone, _ = in_virtual_time("driver", **SUMS, config=config)
    shared, counters = in_virtual_time("driver", **SUMS, config=config, ports=1)
    assert ("port 0 TX_WAIT_RESULT" in counters) == (config == Config())
    assert not {"RESENT", "DUPLICATE", "port 0 TX_EXPIRED_RESULT"} & counters.keys()
    assert shared.mean_s <= 1.5 * alone.mean_s
