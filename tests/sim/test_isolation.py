"""What an attacker at a port of its own can do to the others: on the compiled switch with its default `Config`.

The attackers know no key, no token and no nonce of the others' job; what they know of it they have read from the
registers.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from iswitch.golden.egress import compose
from iswitch.wire import UDP_PORT, Format, Outcome
from sim.bench.clients import checked_board
from sim.bench.hosts import Host, spoofed
from sim.bench.isolation import ATTACKER_PORT, ATTACKS, FLOODS, NOTICES, PLACES, count_notices, victim_cycles
from sim.bench.tree import Tree, address
from sim.emulator.engine import Board
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary, udp_frame


@pytest.fixture
def board() -> Iterator[Board]:
    with checked_board() as made:
        yield made


def forged_result(job: int, epoch: int, seq: int, members: int) -> bytes:
    """Return the payload of a RESULT that no switch has sent."""
    return compose.result(
        job=job,
        epoch=epoch,
        seq=seq,
        format=Format.WINDOW64,
        flags=0,
        members=members,
        tainted=0,
        token=0xBAD,
        elements=np.full(16, -666.0, np.float32).view("<u4"),
    )


def from_switch(to: Client, payload: bytes, *, mac: bytes = SWITCH_MAC, ip: bytes = SWITCH_IP) -> bytes:
    """Return a frame to a worker with the switch's addresses as its source."""
    return udp_frame(
        eth_dst=to.mac, eth_src=mac, ip_src=ip, ip_dst=to.ip, udp_src=UDP_PORT, udp_dst=to.udp_port, payload=payload
    )


def test_no_frame_with_the_switchs_own_source_leaves_by_any_port(board):
    """A forged RESULT by MAC and IP, by IP alone, by MAC alone, behind tags that hosts remove, and a forged ARP."""
    victim, attacker = Client.numbered(0), Host(bytes([2, 0, 0, 0, 9, 9]), bytes([10, 0, 0, 99]), ATTACKER_PORT)
    payload = forged_result(0, 1, 0, 3)
    both, other = from_switch(victim, payload), from_switch(victim, payload, mac=attacker.mac)
    frames = [both, other, from_switch(victim, payload, ip=attacker.ip)]
    frames += [
        frame[:12] + bytes.fromhex(tag) + frame[12:] for frame in (both, other) for tag in ("81000000", "88a80000")
    ]
    frames += [spoofed(attacker, tags=tags, arp=arp) for tags in ((), ("8100",)) for arp in (False, True)]
    board.send(victim.port, ordinary(b"\xff" * 6, victim.mac))
    board.run(now_us=1)
    for port in range(4):
        board.receive(port)
    board.trace()
    for frame in frames:
        board.send(ATTACKER_PORT, frame)
    board.run(now_us=2)
    assert [board.receive(port) for port in range(4)] == [[]] * 4
    assert [decision.outcome for decision in board.trace()] == [Outcome.SPOOFED] * len(frames)


def test_a_group_address_joins_no_job(board):
    """Otherwise acknowledgements and results would go to all stations behind the port."""
    mac, ip = bytes([2, 0, 0, 0, 0, 7]), bytes([10, 0, 0, 107])
    for source in ((b"\xff" * 6, ip), (bytes([1, 0, 0x5E, 0, 0, 1]), ip), (mac, bytes([224, 0, 0, 1]))):
        group = Client(*source, 40009, 2, 5, 1, nonce=3)
        board.send(2, group.join(world=1, elements=352))
        board.run(now_us=1)
        assert [board.receive(port) for port in range(4)] == [[]] * 4
    assert [decision.outcome for decision in board.trace()] == [Outcome.SPOOFED] * 3


def test_a_forged_result_of_the_root_is_not_installed_at_a_leaf():
    """All but one of eight workers below two leaves have contributed. The attacker at the root knows job and seq."""
    tree = Tree(seed=7).join()
    root, leaf = address(0), address(1)
    first, epoch = tree.clients[0].first_seq, tree.clients[0].epoch
    numbers = np.ones((8, 16), np.float32)
    for rank in range(7):
        tree.send(rank, tree.clients[rank].contribution(first, numbers[rank]))
    forged = udp_frame(
        eth_dst=leaf[0],
        eth_src=root[0],
        ip_src=root[1],
        ip_dst=leaf[1],
        udp_src=UDP_PORT,
        udp_dst=UDP_PORT,
        payload=forged_result(0, epoch, first, 0xFF),
    )
    tree.network.send((0, 3), forged)
    assert tree.switches[0].outcomes[Outcome.SPOOFED] == 1
    assert tree.held == [{}] * 8
    tree.send(7, tree.clients[7].contribution(first, numbers[7]))
    assert [set(tree.held[rank][first].numbers.view("<f4")) for rank in range(8)] == [{8.0}] * 8


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("flood", FLOODS)
def test_a_members_notices_arrive_beside_a_flood(flood, place):
    """A member of a job that was reset repeats its contribution, beside eight bad frames for each of them."""
    assert count_notices(flood, place) == NOTICES


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_victims_frame_costs_at_most_twice_what_it_costs_alone(attack):
    """The attacker's frames may take as long as they do: each port has an equal share of the pipeline's time."""
    assert victim_cycles(attack) <= 2 * victim_cycles()
