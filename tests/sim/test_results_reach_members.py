"""Results reach all members, however they are distributed over the ports, and only those for whom they were made."""

from collections import Counter
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

from hw.board.boards import BOARDS
from iswitch import Worker
from iswitch.config import Config
from iswitch.wire import PortCounter, Type, port_counter_register
from sim.bench.cosimulation import Pair
from sim.emulator.cluster import Cluster
from sim.emulator.counters import counters
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.link import Link
from sim.emulator.program import Machine
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary, parse

STALLED = 0.8
"""The share of stalled cycles at which a line of the default switch has a fifth of the bus."""


def exchange(board, client, frame):
    """Send a frame, and hand all answers to the client."""
    board.send(client.port, frame)
    board.run(now_us=1)
    answers = [frame for port in range(board.config.ports) for frame in board.receive(port)]
    return [client.take(frame.data) for frame in answers if frame.data[:6] == client.mac]


def joined(board, ports, **settings):
    """Return a running job's members, one behind each of `ports`."""
    workers = [Client.numbered(k, port=port) for k, port in enumerate(ports)]
    for worker in workers:
        exchange(board, worker, worker.join(**({"world": len(ports), "elements": board.config.elements} | settings)))
        exchange(board, worker, worker.join())
    for worker in workers:
        exchange(board, worker, worker.join())
    return workers


def count(board, client, counter, port=0):
    """Read a counter of a port."""
    board.send(client.port, client.read(port_counter_register(port, counter)))
    board.run(now_us=4)
    frames = [parse(frame.data) for port in range(board.config.ports) for frame in board.receive(port)]
    (ack,) = [frame.ack for frame in frames if frame.type == Type.ACK]
    return int(ack["registers"][0])


def stall(board, chance):
    for port in range(board.config.ports):
        for direction in ("rx", "tx"):
            board.stall(port, direction, chance, seed=2 * port + 1)


def assert_all_results_arrive(config, ports, order):
    """Send a window of segments in `order`, of pairs (member, segment), and expect each result once at each member."""
    with Board(config, seed=5) as board:
        workers, window = joined(board, ports), config.window
        sums = sum(range(1, len(ports) + 1))
        stall(board, STALLED)
        for member, k in order:
            worker, numbers = workers[member], np.full(config.elements, member + 1 + k, np.float32)
            assert board.send(worker.port, worker.contribution(worker.first_seq + k, numbers, behind=k))
        board.run(10_000_000, now_us=3)
        copies: Counter[tuple[bytes, int]] = Counter()
        for port in range(config.ports):
            for frame in board.receive(port):
                result = parse(frame.data)
                k = int(result.header["seq"]) - workers[0].first_seq
                assert result.type == Type.RESULT
                assert (result.numbers.view("<f4") == sums + k * len(ports)).all()
                copies[frame.data[:6], k] += 1
        assert copies == {(worker.mac, k): 1 for worker in workers for k in range(window)}
        stall(board, 0.0)
        for port in range(config.ports):
            assert count(board, workers[0], PortCounter.TX_DROP_GRANT, port) == 0
            assert count(board, workers[0], PortCounter.TX_EXPIRED_RESULT, port) == 0
        return count(board, workers[0], PortCounter.TX_WAIT_RESULT)


def trains(config, world):
    """Return the order in which each member sends its whole window at once."""
    return [(member, k) for member in range(world) for k in range(config.window)]


@pytest.mark.parametrize("together", [1, 3, 7])
def test_all_members_get_all_results_with_several_behind_one_port(together):
    """The last member, alone at another port, sends its window when those of the others have arrived."""
    config = Config()
    waits = assert_all_results_arrive(config, [0] * together + [1], trains(config, together + 1))
    assert (waits > 0) == (together > 1)


@pytest.mark.parametrize("train", [1, 16, 64])
def test_all_members_get_all_results_behind_the_same_port(train):
    config = Config()
    order = [
        (member, first + k) for first in range(0, config.window, train) for member in range(8) for k in range(train)
    ]
    waits = assert_all_results_arrive(config, [0] * 8, order)
    assert (waits > 0) == (train > 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["colorlight_5a_75b", "versa_ecp5", "ecpix5_85f", "netfpga_sume", "alveo_u250"])
def test_all_members_get_all_results_on_each_board(name):
    config = BOARDS[name].config
    assert_all_results_arrive(config, [0] * config.members, trains(config, config.members))


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
    assert count(pair.board, jobs[0][0], PortCounter.TX_WAIT_RESULT) > 64
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
        assert copies + count(board, b, PortCounter.TX_EXPIRED_RESULT, 1) == 40


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
