"""Sums of up to 32 workers through the whole compiled switch, in whatever order they arrive, against exact
arithmetic."""

from functools import reduce

import numpy as np
import pytest

from iswitch.wire import Format, Mode, Outcome, ResultFlag, Type
from sim.bench.designs import MANY_MEMBERS
from sim.bench.oracle import NAN, mpfr_add, patterns, window64_sum
from sim.emulator.engine import Board
from sim.frames.client import Client, parse

CONFIG = MANY_MEMBERS
SIZES = [64, 1, 63, 2]
WORLDS = [1, 2, 3, 17, 32]
FRACTIONS = [44, 126, 149, 0, -126]


class Job:
    """`world` workers, spread over the ports, that have joined a board."""

    def __init__(self, world: int, **settings):
        self.board = Board(CONFIG, watch=True, trace=True)
        self.clients = [Client.numbered(k, port=k % CONFIG.ports) for k in range(world)]
        self.rng = np.random.default_rng(world)
        self.seq = 0
        for turn in range(3):
            for client in self.clients:
                self.board.send(
                    client.port,
                    client.join(**({} if turn else {"world": world, "elements": CONFIG.elements} | settings)),
                )
                self.board.run(100_000)
                for frame in self.board.receive(client.port):
                    client.take(frame.data)
        self.board.trace()

    def sum(self, payloads):
        """One segment from everybody, in random order and racing between the ports. The results, by client, and the
        order in which the switch took the contributions."""
        order = self.rng.permutation(len(self.clients)).tolist()
        for k in order:
            client = self.clients[k]
            self.board.send(client.port, client.contribution(client.first_seq + self.seq, payloads[k]))
        self.board.run(1_000_000)
        taken = [
            decision for decision in self.board.trace() if decision.outcome in (Outcome.ADDED, Outcome.QUARANTINED)
        ]
        assert len(taken) == len(order)
        found = {}
        for port in range(CONFIG.ports):
            for frame in self.board.receive(port):
                reply = parse(frame.data)
                assert reply.type == Type.RESULT
                [k] = [k for k, client in enumerate(self.clients) if frame.data[:6] == client.mac]
                assert k not in found
                found[k] = reply
        assert len(found) == len(order)
        assert not self.board.violations()
        self.seq += 1
        by_member = {client.member: k for k, client in enumerate(self.clients)}
        return found, [by_member[decision.member] for decision in taken]


def adverse(rng, world, size, limit):
    """Bit patterns (world, size): near the limit of the range, cancelling, subnormal, both zeros, far apart, ties."""
    low = max(0, limit - 60)
    payloads = np.stack([patterns(rng, size, low, limit) for _ in range(world)])
    columns = [
        np.full(world, (limit - 1 << 23) | 0x7FFFFF),
        np.full(world, 1 << 31),
        rng.integers(0, 2, world) << 31 | 1,
        (rng.integers(0, 2, world) << 31) | rng.integers(0, 1 << 23, world),
    ]
    columns.append(np.where(np.arange(world) % 2, columns[0] | 1 << 31, columns[0]))
    if size > len(columns) + 8:
        payloads[:, : len(columns)] = np.array(columns).T
        half = world // 2
        payloads[half : 2 * half, -8:] = (
            payloads[:half, -8:] ^ 1 << 31
        )  # all that cancels leaves an exact 0, or the odd one out
    return payloads.astype(np.uint32)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("world", WORLDS)
def test_window64_sum_is_the_rounded_exact_sum_in_any_order(world, fraction):
    job = Job(world, fraction=fraction)
    for size in SIZES * 2:
        payloads = adverse(job.rng, world, size, min(255, 185 - fraction))
        expected = [window64_sum(column, fraction) for column in payloads.T.tolist()]
        found, _ = job.sum(payloads)
        for reply in found.values():
            assert reply.numbers.tolist() == expected
            assert (reply.header["members"], reply.flags) == (2**world - 1, 0)


@pytest.mark.parametrize("world", WORLDS)
def test_int32_sum_is_pythons_modulo_two_to_the_32(world):
    job = Job(world, format=Format.INT32)
    for size in SIZES * 2:
        payloads = job.rng.integers(0, 1 << 32, (world, size), dtype=np.uint32)
        found, _ = job.sum(payloads)
        for reply in found.values():
            assert reply.numbers.tolist() == [sum(column) % 2**32 for column in payloads.T.tolist()]


@pytest.mark.parametrize("world", WORLDS)
def test_fp32_sum_is_numpys_and_mpfrs_in_the_order_of_the_trace(world):
    job = Job(world, format=Format.FP32)
    for size in SIZES * 2:
        payloads = adverse(job.rng, world, size, 254)
        found, order = job.sum(payloads)
        with np.errstate(over="ignore"):
            numpys = reduce(np.add, payloads[order].view(np.float32)).view(np.uint32).tolist()
        assert numpys == [reduce(mpfr_add, column) for column in payloads[order].T.tolist()]
        for reply in found.values():
            assert reply.numbers.tolist() == numpys


@pytest.mark.parametrize("world", [2, 32])
@pytest.mark.parametrize("mode", [Mode.QUARANTINE, Mode.PROPAGATE])
@pytest.mark.parametrize(
    "poison", [0x7FC00001, 0x7F800000, 0xFF800000, 141 << 23], ids=["nan", "inf", "minus-inf", "out-of-range"]
)
def test_what_the_format_rejects_is_kept_out_and_named(world, mode, poison):
    job = Job(world, mode=mode)
    bad = int(job.rng.integers(world))
    member = job.clients[bad].member
    payloads = adverse(job.rng, world, 64, 141)
    payloads[bad, 20] = poison
    found, _ = job.sum(payloads)
    sound = [k for k in range(world) if k != bad] if mode == Mode.QUARANTINE else list(range(world))
    expected = [
        window64_sum(column, 44) if mode == Mode.QUARANTINE or k != 20 else NAN
        for k, column in enumerate(np.where(payloads == poison, 0, payloads)[sound].T.tolist())
    ]
    for reply in found.values():
        assert reply.numbers.tolist() == expected
        assert int(reply.header["members"]).bit_count() == len(sound)
        assert reply.header["tainted"] == 1 << member  # of a result: who is tainted
        partial = ResultFlag.PARTIAL if mode == Mode.QUARANTINE else 0
        assert reply.flags == ResultFlag.TAINTED | partial
