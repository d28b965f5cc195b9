"""What a stranger at a port of its own can do to the others: on the compiled switch with its default `Config`.

The strangers know no key, no token and no nonce of the others' job; what they know of it they have read from the
registers.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.wire import UDP_PORT, Format, Outcome, Reason, Type
from sim.bench.hosts import Host, spoofed
from sim.bench.tree import Tree, address
from sim.emulator.engine import Board
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, Reply, ordinary, parse, udp_frame
from sim.model.egress import compose

STRANGER = 3
"""The port of the stranger; members are behind ports 0 and 1."""


@pytest.fixture
def board() -> Iterator[Board]:
    with Board(Config(), seed=5, trace=True, watch=True) as made:
        yield made
        assert not made.violations()


def give(board: Board, client: Client, frame: bytes, now_us: int = 1) -> list[Reply]:
    """Send a client's frame, and return what the client receives."""
    board.send(client.port, frame)
    board.run(now_us=now_us)
    return [client.take(f.data) for port in range(4) for f in board.receive(port) if f.data[:6] == client.mac]


def form(board: Board, *clients: Client, **settings: int) -> None:
    """Let the clients form a job."""
    for _ in range(2):
        for client in clients:
            give(board, client, client.join(**{"world": len(clients), "elements": 352} | settings))


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
    victim, stranger = Client.numbered(0), Host(bytes([2, 0, 0, 0, 9, 9]), bytes([10, 0, 0, 99]), STRANGER)
    payload = forged_result(0, 1, 0, 3)
    both, other = from_switch(victim, payload), from_switch(victim, payload, mac=stranger.mac)
    frames = [both, other, from_switch(victim, payload, ip=stranger.ip)]
    frames += [
        frame[:12] + bytes.fromhex(tag) + frame[12:] for frame in (both, other) for tag in ("81000000", "88a80000")
    ]
    frames += [spoofed(stranger, tags=tags, arp=arp) for tags in ((), ("8100",)) for arp in (False, True)]
    board.send(victim.port, ordinary(b"\xff" * 6, victim.mac))
    board.run(now_us=1)
    for port in range(4):
        board.receive(port)
    board.trace()
    for frame in frames:
        board.send(STRANGER, frame)
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
    """All but one of eight workers below two leaves have contributed. The stranger at the root knows job and seq."""
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


FLOODS = {
    "no such job": lambda stranger: stranger.contribution(0, np.zeros(1, np.float32)),
    "another token": lambda stranger: stranger.contribution(0, np.zeros(1, np.float32), job=0, token=1),
    "another epoch": lambda stranger: stranger.contribution(0, np.zeros(1, np.float32), job=0, epoch=1),
}


@pytest.mark.parametrize("at", ["own port", "the member's port"])
@pytest.mark.parametrize("flood", FLOODS)
def test_a_members_notices_arrive_beside_a_flood(board, flood, at):
    """A member of a job that was reset repeats its contribution, beside eight bad frames for each of them."""
    a, b = Client.numbered(0), Client.numbered(1)
    form(board, a, b)
    stale = b.contribution(b.first_seq, np.zeros(4, np.float32))
    give(board, a, a.reset(), 2)
    stranger = Client.numbered(9, port=STRANGER if at == "own port" else b.port, job=7)
    bad = FLOODS[flood](stranger)
    for turn in range(50):
        for k in range(8):
            board.send(stranger.port, bad)
            if k == turn % 8:
                board.send(b.port, stale)
        board.run(now_us=3 + turn)
        told = [parse(frame.data) for frame in board.receive(b.port) if frame.data[:6] == b.mac]
        assert [(reply.type, reply.reason) for reply in told] == [(Type.NOTICE, Reason.EPOCH)]


def resets(a: Client, b: Client, count: int) -> list[bytes]:
    """RESETs of the stranger's own job."""
    sent = []
    for _ in range(count):
        sent.append(a.reset())
        a.epoch = (a.epoch + 1) % 65536
    return sent


def jobs_of_one(a: Client, b: Client, count: int) -> list[bytes]:
    """Joins of an unused job number and ends of it by key; most of them have an old challenge."""
    a.job, a.settings = 6, {"world": 1, "threshold": 1, "format": 1, "elements": 1, "mode": 0, "key": 5}
    return [frame for _ in range(count // 2) for frame in (a.join(member=255, token=0), a.end_job(5))]


ATTACKS = {
    "RESETs": resets,
    "Joins and ends by key": jobs_of_one,
    "receipts that want a stored result": lambda a, b, count: [a.receipt(a.first_seq, want=True)] * count,
    "READs": lambda a, b, count: [a.read(0)] * count,
    "Joins of the stranger's own member": lambda a, b, count: [a.join()] * count,
    "long frames": lambda a, b, count: [ordinary(b.mac, a.mac, 1514)] * count,
}
VICTIMS_FRAMES = 600


def victims_cycles(board: Board, attack) -> float:
    """Return the cycles that each of a victim's shortest frames takes, beside as many frames of a stranger."""
    members = [Client.numbered(k, port=STRANGER, job=7) for k in (8, 9)]
    form(board, *members)
    x, y = bytes([2, 0, 0, 0, 1, 1]), bytes([2, 0, 0, 0, 1, 2])
    for port, frame in ((0, ordinary(y, x)), (1, ordinary(x, y))):
        board.send(port, frame)
    for member in members:  # a complete slot of full size
        give(board, member, member.contribution(member.first_seq, np.ones(352, np.float32)))
    for port in range(4):
        board.receive(port)
    board.limit(8192)
    for frame in attack(*members, VICTIMS_FRAMES) if attack else []:
        board.send(STRANGER, frame)
    for _ in range(VICTIMS_FRAMES):
        board.send(0, ordinary(y, x, 60))
    before = board.cycles
    board.run(5_000_000, now_us=3)
    received = board.receive(1)
    return (received[-1].last - before) / VICTIMS_FRAMES


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_victims_frame_costs_at_most_twice_what_it_costs_alone(attack):
    """The stranger's frames may take as long as they do: each port has an equal share of the pipeline's time."""
    with Board(Config(), seed=5) as quiet, Board(Config(), seed=5) as attacked:
        assert victims_cycles(attacked, ATTACKS[attack]) <= 2 * victims_cycles(quiet, None)
