"""The compiled switch as a bridge in a real network: loops, cables that are taken out, and congestion."""

import numpy as np
import pytest

from iswitch.wire import Outcome, PortCounter
from sim.bench.clients import checked_board
from sim.bench.cosimulation import Pair
from sim.bench.designs import TWO_PORTS
from sim.bench.hosts import crowd
from sim.emulator.counters import counters
from sim.emulator.engine import Board
from sim.frames.client import Client, ordinary

BROADCAST, BPDU, LLDP = b"\xff" * 6, bytes.fromhex("0180c2000000"), bytes.fromhex("0180c200000e")
X, Y, Z = (bytes([2, 0, 0, 0, 0, k]) for k in (1, 2, 3))
SECOND = 1_000_000


@pytest.fixture
def board():
    with checked_board(TWO_PORTS) as made:
        yield made


def learn(board: Board) -> None:
    """Station X is behind port 0, and Y behind port 1."""
    board.send(0, ordinary(BROADCAST, X))
    board.run()
    board.send(1, ordinary(BROADCAST, Y))
    board.run()
    assert [len(board.receive(port)) for port in range(2)] == [1, 1]


def test_congestion_is_counted_apart_from_damage(board):
    for k in range(9):
        board.send(0, ordinary(BROADCAST, X), error=k % 3 == 1, overflow=k % 3 == 2)
    board.run()
    found = counters(board)
    assert [found[f"port 0 {name}"] for name in ("RX_ERROR", "RX_OVERFLOW")] == [3, 3]
    assert found["ORDINARY"] == 3 and len(board.receive(1)) == 3


def test_a_broadcast_in_a_loop_of_two_switches_ends_and_a_bpdu_is_seen_by_the_other_side():
    with Board(TWO_PORTS, seed=1) as one, Board(TWO_PORTS, seed=2, mac=bytes([2, 0x57, 0x49, 0, 0, 2])) as other:
        hops, frames = 0, [(one, 0, ordinary(BROADCAST, X))]
        while frames:
            assert (hops := hops + len(frames)) < 5000
            for board, port, frame in frames:
                board.send(port, frame)
            following = []
            for board, peer in ((one, other), (other, one)):
                board.run()
                following += [(peer, port, frame.data) for port in range(2) for frame in board.receive(port)]
            frames = following
        assert 900 < hops < 2100
        limited = [counters(board).get("FLOOD_LIMITED", 0) for board in (one, other)]
        assert sum(limited) == 1
        one.send(0, ordinary(BPDU, X))
        one.send(0, ordinary(LLDP, X))
        one.run()
        [bpdu] = one.receive(1)
        assert bpdu.data[:6] == BPDU and counters(one)["RESERVED"] == 1


def test_a_storm_takes_no_more_than_its_share_and_passes_again_in_time(board):
    def flooded(now_us: int) -> int:
        for _ in range(300):
            board.send(0, ordinary(BROADCAST, X))
        board.run(now_us=now_us)
        return len(board.receive(1))

    times_us = [0, 0, 0, 0, 0, 100 * 1024, 100 * 1024]
    assert [flooded(now_us) for now_us in times_us] == [300, 300, 300, 92, 0, 100, 0]
    board.send(0, ordinary(BPDU, X))
    board.run(now_us=100 * 1024)
    assert len(board.receive(1)) == 1
    assert counters(board, now_us=100 * 1024)["FLOOD_LIMITED"] == 7 * 300 - 1092


def test_made_up_addresses_cut_no_station_of_another_port_off(board):
    """The frames to a station that has no entry are flooded, and a port may flood 992 frames at once."""
    server, *made_up = crowd(TWO_PORTS.mac_entries, 16)
    board.send(1, ordinary(X, server))
    board.send(0, ordinary(server, X))
    board.run()
    assert [len(board.receive(port)) for port in (1, 0)] == [1, 1]
    for _ in range(4):
        for mac in made_up:
            board.send(0, ordinary(X, mac))
        for _ in range(300):
            board.send(0, ordinary(server, X))
        board.run()
        assert len(board.receive(1)) == 300
    assert "FLOOD_LIMITED" not in counters(board)


def test_nothing_comes_out_of_a_cable_that_is_put_in_again_after_ten_minutes(board):
    learn(board)
    board.stall(1, "tx", 1.0, length=1 << 30)  # the MAC stalls a moment before it reports that its link is down
    for k in range(20):
        board.send(0, ordinary(Y, X, 1000 + k))
    board.run(20_000, now_us=SECOND)
    board.link(1, False)
    board.run(20_000, now_us=SECOND)
    board.send(0, ordinary(Y, X))
    board.send(0, ordinary(BROADCAST, X))
    board.run(20_000, now_us=2 * SECOND)
    board.stall(1, "tx", 0.0)
    board.link(1, True)
    for second in range(3, 600, 30):
        board.run(20_000, now_us=second * SECOND)
    assert board.receive(1) == []
    found = counters(board, now_us=600 * SECOND)
    # One frame had been offered to the MAC, which took it while the cable was out. The last two were sent nowhere.
    held = found["port 1 TX_LINK_DOWN"]
    assert held + found.get("port 1 TX_DROP_ORDINARY", 0) == 19 and held >= 1
    board.send(0, ordinary(Y, X))
    board.run(now_us=600 * SECOND)
    assert len(board.receive(1)) == 1  # unknown, so flooded: the station may be anywhere
    board.send(1, ordinary(X, Y))
    board.run(now_us=600 * SECOND)
    assert len(board.receive(0)) == 1


def test_ordinary_frames_that_waited_for_seconds_are_discarded(board):
    learn(board)
    board.stall(1, "tx", 1.0, length=1 << 30)
    sent = [ordinary(Y, X, 200 + k) for k in range(6)]
    for frame in sent:
        board.send(0, frame)
    for second in range(1, 6):
        board.run(2000, now_us=second * SECOND)
    board.stall(1, "tx", 0.0)
    board.run(now_us=6 * SECOND)
    # The MAC had been offered the first frame.
    assert [frame.data for frame in board.receive(1)] == sent[:1]
    assert counters(board, now_us=6 * SECOND)["port 1 TX_AGED"] == 5


def test_frames_that_waited_for_a_second_are_sent(board):
    learn(board)
    board.stall(1, "tx", 1.0, length=1 << 30)
    sent = [ordinary(Y, X, 200 + k) for k in range(6)]
    for frame in sent:
        board.send(0, frame)
    board.run(2000, now_us=SECOND)
    board.run(2000, now_us=2 * SECOND)
    board.stall(1, "tx", 0.0)
    board.run(now_us=2 * SECOND)
    assert [frame.data for frame in board.receive(1)] == sent


def test_a_station_that_was_moved_is_found_as_soon_as_its_old_link_is_down():
    """Against the model, frame by frame: also results for a member whose cable is out."""
    pair = Pair(TWO_PORTS, seed=5)
    workers = [Client.numbered(member, port=member) for member in range(2)]
    pair.exchange(0, ordinary(BROADCAST, X))
    pair.exchange(1, ordinary(BROADCAST, Y))
    for worker in workers * 2:
        for sent in pair.exchange(worker.port, worker.join(world=2, elements=8)):
            if sent[:6] == worker.mac:
                worker.take(sent)
    ones = np.ones(8, np.float32)
    pair.exchange(1, workers[1].contribution(workers[1].first_seq, ones))
    pair.link(1, False)
    assert pair.exchange(0, ordinary(Y, X)) == []
    assert len(pair.exchange(0, workers[0].contribution(workers[0].first_seq, ones))) == 1
    assert pair.model.port_counters[1][PortCounter.TX_LINK_DOWN] == 1  # the result for the other worker
    pair.link(1, True)
    assert len(pair.exchange(0, ordinary(Y, X))) == 1
    pair.exchange(1, ordinary(X, Z))
    assert len(pair.exchange(0, ordinary(Z, X))) == 1
    assert pair.model.outcomes[Outcome.ORDINARY] == 6
    pair.counters_agree()
    pair.close()
