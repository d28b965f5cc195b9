"""Results reach all members, however they are distributed over the ports, and only those for whom they were made."""

from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

from hw.board.boards import BOARDS
from iswitch import Worker
from iswitch.config import Config
from iswitch.wire import PortCounter, Type, port_counter_register
from sim.bench.clients import exchange, form_job
from sim.bench.cosimulation import Pair
from sim.bench.delivery import STALLED, deliver, trains, wiring
from sim.emulator.cluster import Cluster
from sim.emulator.counters import counters, read
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.link import Link
from sim.emulator.program import Machine
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary, parse


def joined(board, ports):
    """Return a running job's members, one behind each of `ports`."""
    workers = [Client.numbered(k, port=port) for k, port in enumerate(ports)]
    form_job(board, workers)
    return workers


def count(board, counter, port=0):
    """Read a counter of a port."""
    return read(board, port_counter_register(port, counter), now_us=10)[0]


@pytest.mark.parametrize("length", [1, 16, 64])
@pytest.mark.parametrize("together", [1, 3, 7, 8])
def test_all_members_get_all_results_with_several_behind_one_port(together, length):
    """With trains of 64, the last member sends its window when those of the others have arrived."""
    config, ports = Config(), wiring(together)
    lost, repeated, wrong, waited = deliver(config, ports, trains(config, len(ports), length))
    assert (lost, repeated, wrong) == (0, 0, 0)
    if length == config.window:
        assert (waited > 0) == (together > 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["colorlight_5a_75b", "versa_ecp5", "ecpix5_85f", "netfpga_sume", "alveo_u250"])
def test_all_members_get_all_results_on_each_board(name):
    config = BOARDS[name].config
    found = deliver(config, [0] * config.members, trains(config, config.members, config.window))
    assert found[:3] == (0, 0, 0)


def test_results_that_wait_are_those_of_the_model():
    """Two jobs have all their members behind one port."""
    pair, rng = Pair(Config(), seed=5), np.random.default_rng(3)
    jobs = []
    for job in (0, 1):
        workers = [Client.numbered(8 * job + k, port=0, job=job) for k in range(5)]
        for settings in ({"world": 5, "elements": 352}, {}, {}):
            for worker in workers:
                for answer in pair.exchange(0, worker.join(**settings)):
                    worker.take(answer)
        jobs.append(workers)
    pair.board.stall(0, "tx", STALLED)
    contributions = [
        worker.contribution(worker.first_seq + k, rng.normal(size=352 - k).astype("<f4"), behind=k)
        for workers in jobs
        for worker in workers
        for k in range(64)
    ]
    frames = pair.burst([(0, frame) for frame in contributions], waits=True)
    assert len(frames) == 2 * 5 * 64
    pair.board.stall(0, "tx", 0.0)
    assert count(pair.board, PortCounter.TX_WAIT_RESULT) > 64
    pair.close()


def test_queued_results_are_not_sent_to_the_creator_of_the_next_job():
    """Results wait for a busy port. Their job ends, and a host behind that port creates a job of the same number."""
    with Board(Config(), seed=5) as board:
        a, b = workers = joined(board, [1, 2])
        board.stall(1, "tx", 1.0, length=1000)
        for k in range(40):  # more than the queue holds
            for worker in workers:
                board.send(
                    worker.port, worker.contribution(worker.first_seq + k, np.full(352, 9, np.float32), behind=k)
                )
            board.run(2000, now_us=2)
        for worker in workers:
            board.send(worker.port, worker.leave())
        board.run(10_000, now_us=3)
        creator = Client.numbered(66, port=1, key=123)
        board.send(1, creator.join(world=1, elements=1))
        board.run(10_000, now_us=4)
        board.stall(1, "tx", 0.0)
        board.run(1_000_000, now_us=5)
        frames, _ = board.receive(1), board.receive(2)
        results = [frame.data[:6] for frame in frames if parse(frame.data).type == Type.RESULT]
        assert creator.mac not in results
        assert any(parse(frame.data).type == Type.ACK for frame in frames if frame.data[:6] == creator.mac)
        copies = len([mac for mac in results if mac == a.mac])
        assert copies + count(board, PortCounter.TX_EXPIRED_RESULT, 1) == 40


def arp_request(host):
    """Return an ARP request of a host for the switch's address (RFC 826)."""
    request = bytes.fromhex("0001080006040001") + host.mac + host.ip + bytes(6) + SWITCH_IP
    return (b"\xff" * 6 + host.mac + b"\x08\x06" + request).ljust(60, b"\0")


def test_ordinary_frames_and_arp_replies_leave_a_port_that_is_full_of_results():
    """Members request 512 results behind one port. A host floods it, and another asks for the switch's address."""
    config = Config()
    with Board(config, seed=5) as board:
        workers, host, flood = joined(board, [0] * 8), Client.numbered(70, port=0), Client.numbered(71, port=1)
        exchange(board, host, host.read(0))
        for k in range(config.window):
            for worker in workers:
                numbers = np.ones(config.elements, np.float32)
                board.send(0, worker.contribution(worker.first_seq + k, numbers, behind=k))
            board.run(now_us=2)
        board.stall(0, "tx", STALLED)
        for k in range(512):
            worker = workers[k // 64]
            board.send(0, worker.receipt(worker.first_seq + k % 64, want=True, behind=k % 64))
        board.run(30_000, now_us=3)
        board.receive(0)
        for _ in range(64):
            board.send(1, ordinary(host.mac, flood.mac, 1000))
        board.run(4_000, now_us=3)
        board.send(0, arp_request(host))
        board.run(40_000, now_us=3)
        kinds = [frame.data[12:14] for frame in board.receive(0)]
        assert kinds.count(b"\x08\x06") == 1
        before = kinds[: kinds.index(b"\x08\x06")]
        assert 100 < len(before) < 200
        assert 7 * (len(before) // 8) - 8 <= before.count(b"\x08\x00") <= 7 * (len(before) // 8) + 8


def test_uplinks_and_results_of_a_leaf_wait_for_slow_links_and_keep_their_bits():
    """Three workers behind one port of a leaf, and one at the root. The link between the switches is slow, too."""
    elements, world = 30_000, 4
    numbers = np.random.default_rng(1).normal(size=(world, elements)).astype(np.float32)

    def work(rank, program):
        with Worker(world=world, rank=rank, elements=176, transport=program.transport()) as worker:
            sums = numbers[rank].copy()
            worker.allreduce(sums)
            return sums

    rates = Rates(delay_us=1)
    with ExitStack() as stack:
        addresses = [(SWITCH_MAC[:5] + bytes([k]), SWITCH_IP[:3] + bytes([k])) for k in (1, 2)]
        root, leaf = (
            stack.enter_context(Board(Config(), mac=mac, ip=ip, seed=k)) for k, (mac, ip) in enumerate(addresses)
        )
        leaf.parent(0, port=0, mac=root.mac, ip=root.ip, ranks=0b0111)
        leaf.stall(0, "tx", 0.9)
        leaf.stall(1, "tx", 0.9)
        root.stall(3, "tx", 0.9)
        cluster = Cluster(stack.enter_context(Fabric([root, leaf], [Link((1, 0), (0, 3), 100e9, rates)])))
        for rank, place in enumerate([(1, 1), (1, 1), (1, 1), (0, 0)]):
            cluster.add(place, partial(work, rank), machine=Machine(rates=rates, rate_bps=100e9))
        cluster.run()
        sums = [program.result for program in cluster.programs]
        for port in (0, 1):
            leaf.stall(port, "tx", 0.0)
        waits = counters(leaf)
    assert all((found == sums[0]).all() for found in sums)
    assert np.abs(sums[0] - numbers.astype(np.float64).sum(axis=0)).max() < 1e-6
    assert waits["port 0 TX_WAIT_RESULT"] > 0 and waits["port 1 TX_WAIT_RESULT"] > 0
