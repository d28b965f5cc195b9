"""Jobs and ports that do not disturb each other: the compiled switch, frames in, frames out, numpy as the oracle."""

import numpy as np
import pytest

from iswitch.wire import ContributionFlag, Format, Outcome, PortCounter, Reason, Register, Type, port_counter_register
from sim.bench.designs import MANY_MEMBERS
from sim.emulator.engine import Board
from sim.frames.client import Client, parse

CONFIG = MANY_MEMBERS


def taken(board: Board, clients: list[Client]) -> list[tuple[Client, object]]:
    """What has left the switch since, each with whom it is for."""
    found = []
    for port in range(CONFIG.ports):
        for frame in board.receive(port):
            [client] = [client for client in clients if frame.data[:6] == client.mac]
            assert client.port == port
            found.append((client, parse(frame.data)))
            client.take(frame.data)
    return found


def ask(
    board: Board, client: Client, frame: bytes, clients: list[Client], *, port: int | None = None
) -> list[tuple[Client, object]]:
    board.send(client.port if port is None else port, frame)
    board.run(100_000)
    return taken(board, clients)


def joined(board: Board, job: int, world: int, everybody: list[Client], **settings: int) -> list[Client]:
    clients = [
        Client.numbered(8 * job + k, port=(job + k) % CONFIG.ports, job=job, key=1000 + job) for k in range(world)
    ]
    everybody += clients
    for turn in range(3):
        for client in clients:
            ask(
                board,
                client,
                client.join(**({} if turn else {"world": world, "elements": 64, "format": Format.INT32} | settings)),
                everybody,
            )
    return clients


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_eight_jobs_at_once_have_their_own_sums_slots_and_members(stall):
    rng, everybody = np.random.default_rng(7), []
    with Board(CONFIG, watch=True) as board:
        jobs = [joined(board, job, 2 + job % 3, everybody) for job in range(CONFIG.jobs)]
        for port in range(CONFIG.ports):
            board.stall(port, "rx", stall, seed=port + 1)
            board.stall(port, "tx", stall, seed=port + 9)
        for turn in range(2 * CONFIG.slots + 1):  # round the ring, and every job's turn is another's open slot
            payloads = {
                client.mac: rng.integers(-(2**31), 2**31, 1 + turn * 7 % 64).astype(np.int32) for client in everybody
            }
            for k in rng.permutation(len(everybody)).tolist():
                client = everybody[k]
                board.send(client.port, client.contribution(client.first_seq + turn, payloads[client.mac]))
            board.run(1_000_000)
            results = [(client, reply) for client, reply in taken(board, everybody) if reply.type == Type.RESULT]
            assert len(results) == len(everybody)
            for client, reply in results:
                mine = jobs[client.job]
                assert (int(reply.header["job"]), int(reply.header["members"])) == (client.job, 2 ** len(mine) - 1)
                assert np.array_equal(
                    reply.numbers.view(np.int32), sum(payloads[other.mac] for other in mine).astype(np.int32)
                )
        assert not board.violations()


def test_a_job_that_waits_holds_no_slots_of_other_jobs():
    everybody: list[Client] = []
    with Board(CONFIG) as board:
        stuck, going = joined(board, 0, 2, everybody), joined(board, 1, 2, everybody)
        for seq in range(CONFIG.window):
            ask(
                board,
                stuck[0],
                stuck[0].contribution(stuck[0].first_seq + seq, np.ones(4, np.int32), behind=seq),
                everybody,
            )
        for seq in range(3 * CONFIG.slots):
            for client in going:
                found = ask(board, client, client.contribution(client.first_seq + seq, np.ones(4, np.int32)), everybody)
            assert [reply.numbers[0] for client, reply in found] == [2, 2]
        [(client, reply), *_] = ask(
            board, stuck[1], stuck[1].contribution(stuck[1].first_seq, np.ones(4, np.int32)), everybody
        )
        assert reply.numbers[0] == 2 and client.job == 0


def counted(board: Board, reader: Client, everybody: list[Client], address: int) -> list[int]:
    [(_, reply)] = ask(board, reader, reader.read(address), everybody)
    return reply.ack["registers"].tolist()


@pytest.mark.parametrize(
    "fault", ["wrong key", "wrong port", "wrong MAC", "wrong IP", "wrong UDP port", "wrong token", "wrong nonce"]
)
def test_an_unknown_host_changes_nothing_and_is_counted(fault):
    everybody: list[Client] = []
    with Board(CONFIG) as board:
        one, two = joined(board, 0, 2, everybody)
        unknown_host = Client(one.mac, one.ip, one.udp_port, one.port, one.job, one.key)
        unknown_host.nonce, unknown_host.member, unknown_host.token, unknown_host.epoch, unknown_host.format = (
            one.nonce,
            one.member,
            one.token,
            one.epoch,
            Format.INT32,
        )
        unknown_host.settings = dict(one.settings)
        change = {
            "wrong MAC": ("mac", bytes([2, 9, 9, 9, 9, 9])),
            "wrong IP": ("ip", bytes([10, 9, 9, 9])),
            "wrong UDP port": ("udp_port", 1),
            "wrong token": ("token", one.token ^ 4),
            "wrong nonce": ("nonce", 5),
            "wrong port": ("port", (one.port + 2) % CONFIG.ports),
        }.get(fault)
        if change:
            setattr(unknown_host, *change)
        seq = one.first_seq
        unknown_host.challenge = one.challenge
        if fault == "wrong key":
            attempts = {
                unknown_host.end_job(key=1): Reason.KEY,
                unknown_host.end_job(challenge=one.challenge - 1): Reason.CHALLENGE,
                unknown_host.join(nonce=6, **unknown_host.settings | {"key": 1}): Reason.KEY,
            }
        elif fault == "wrong nonce":
            attempts = {unknown_host.join(): Reason.MEMBER, unknown_host.join(challenge=0): Reason.CHALLENGE}
        else:
            contribution = {"wrong port": Outcome.PORT, "wrong token": Outcome.TOKEN}.get(fault, Outcome.ADDRESS)
            refused = Reason.TOKEN if fault == "wrong token" else Reason.MEMBER
            attempts = {
                unknown_host.contribution(seq, np.ones(4, np.int32)): contribution,
                unknown_host.receipt(seq + 1): contribution,
                unknown_host.leave(): refused,
                unknown_host.reset(): refused,
                unknown_host.set_h(1): refused,
                unknown_host.halt(): refused,
                unknown_host.fbcast(seq): refused,
                unknown_host.join(nonce=6): Reason.MEMBER,
            }
        for frame, expected in attempts.items():
            outcome = expected if isinstance(expected, Outcome) else Outcome.REFUSED
            before = counted(board, two, everybody, Register.OUTCOMES + 8 * (outcome // 8))[outcome % 8]
            board.send(unknown_host.port, frame)
            board.run(100_000)
            answers = [parse(frame.data) for frame in board.receive(unknown_host.port)]
            if isinstance(expected, Reason):
                assert [reply.reason for reply in answers] == [expected]
            assert counted(board, two, everybody, Register.OUTCOMES + 8 * (outcome // 8))[outcome % 8] == before + 1
        for client in (one, two):
            found = ask(board, client, client.contribution(seq, np.full(4, 5, np.int32)), everybody)
        assert [reply.numbers.tolist() for _, reply in found] == [[10] * 4] * 2


def test_a_stalled_port_stops_no_other_port():
    """Its results wait until their slots are written again. Then they expire, and never leave with other sums."""
    everybody: list[Client] = []
    with Board(CONFIG) as board:
        clients = joined(board, 0, 3, everybody, threshold=2)
        slow = clients[2]
        board.stall(slow.port, "tx", 1.0, length=1 << 30)
        rounds = 40  # far more than the port's store holds
        for seq in range(rounds):
            for client in clients[:2]:
                ask(board, client, client.receipt(client.first_seq + seq), everybody)
                found = ask(
                    board, client, client.contribution(client.first_seq + seq, np.full(64, seq, np.int32)), everybody
                )
            ask(
                board, slow, slow.receipt(slow.first_seq + seq + 1, behind=0), everybody
            )  # it says so, whether it has it or not
            assert sorted(client.member for client, _ in found) == [0, 1]
        for counter in (PortCounter.TX_WAIT_RESULT, PortCounter.TX_EXPIRED_RESULT):
            register = port_counter_register(slow.port, counter)
            assert counted(board, clients[0], everybody, register)[0] > 0
        board.stall(slow.port, "tx", 0.0)
        board.run(100_000)
        for client, reply in taken(board, everybody):
            if client is slow and reply.type == Type.RESULT:
                assert reply.numbers.tolist() == [2 * (int(reply.header["seq"]) - slow.first_seq)] * 64
        [(client, reply)] = ask(board, slow, slow.receipt(slow.first_seq + rounds - 1, want=True), everybody)
        assert client is slow and reply.numbers.tolist() == [2 * (rounds - 1)] * 64


def test_flags_of_different_collectives_are_counted_and_not_added():
    everybody: list[Client] = []
    with Board(CONFIG) as board:
        one, two = joined(board, 0, 2, everybody)
        ask(board, one, one.contribution(one.first_seq, np.ones(4, np.int32)), everybody)
        other = two.contribution(two.first_seq, np.ones(4, np.int32), flags=ContributionFlag.BOUNDARY)
        assert ask(board, two, other, everybody) == []
        assert counted(board, two, everybody, Register.OUTCOMES + 16)[Outcome.FORMAT - 16] == 1
