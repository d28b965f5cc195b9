"""What is said about leaves, and jobs of real drivers in trees of compiled switches, in virtual time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sim.emulator.__main__
from examples.ppo import Options, train
from iswitch import RefusedError, Worker
from iswitch.config import Config
from iswitch.wire import Reason
from sim.bench.oracle import window64_sum
from sim.emulator.__main__ import app
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board, BoardError
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.link import Link
from sim.emulator.program import Machine, Program
from sim.emulator.tree import Leaf, configure_leaves, parse_leaf

LOSSY = Rates(delay_us=1, loss=0.05)
TWO_LEAVES = [Leaf(1, 0, frozenset({0, 1, 2})), Leaf(2, 0, frozenset({3, 4, 5}))]
LINKS = [Link((1, 3), (0, 0)), Link((2, 3), (0, 1))]
UNEVEN = [Leaf(1, 0, frozenset({0, 2, 4})), Leaf(2, 0, frozenset({1, 5}))]
"""Worker 3 is at the root."""


# What is said


class Told:
    """Stands in for a `Board`: what it is told of its parents."""

    def __init__(self, number: int) -> None:
        self.mac, self.ip = bytes([2, 0, 0, 0, 0, number]), bytes([10, 0, 0, number])
        self.parents: dict[int, dict[str, Any]] = {}

    def parent(self, job: int, **where: Any) -> None:
        self.parents[job] = where


@pytest.mark.parametrize(
    ("given", "leaf"),
    [
        ("1-0:0-3", Leaf(1, 0, frozenset({0, 1, 2, 3}))),
        ("2-1:7,9,30-31:job=3", Leaf(2, 1, frozenset({7, 9, 30, 31}), job=3)),
        ("0-1:5", Leaf(0, 1, frozenset({5}))),
    ],
)
def test_leaves_are_read(given: str, leaf: Leaf) -> None:
    assert parse_leaf(given) == leaf


@pytest.mark.parametrize(
    "given",
    [
        "",
        "1:0",
        "1-1:0",
        "1-0",
        "1-0:",
        "1-0:3-2",
        "1-0:32",
        "1-0:0-99999999999",
        "1-0:0:2",
        "1-0:0:job=",
        "1-0-2:0",
        "1-0:0:job=1:job=2",
        "1-0:a",
        "-1-0:0",
        "1-0:0:job=-1",
    ],
)
def test_what_is_no_leaf_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="a leaf must be switch-parent:ranks or "):
        parse_leaf(given)


def test_boards_are_told_where_their_parents_are() -> None:
    boards = [Told(number) for number in range(3)]
    configure_leaves(boards, LINKS, [*TWO_LEAVES, Leaf(0, 1, frozenset({0, 1}), job=4)])
    assert boards[1].parents == {0: {"port": 3, "mac": boards[0].mac, "ip": boards[0].ip, "ranks": 0b111}}
    assert boards[2].parents[0]["ranks"] == 0b111000
    assert boards[0].parents == {4: {"port": 0, "mac": boards[1].mac, "ip": boards[1].ip, "ranks": 0b11}}


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        (["1-0:0", "2-0:0,3"], "a rank must be below one leaf, but 0 is below switches 1 and 2"),
        (["1-0:0", "1-2:0"], "a leaf must have one parent in a job, but switch 1 has several in job 0"),
        (["1-2:0"], "a leaf must have one link to its parent, but switch 1 has none to switch 2"),
        (["3-0:0"], "a leaf's switches must be 0 to 2, not 3"),
        (["1-3:0"], "a leaf's switches must be 0 to 2, not 3"),
        (["1-0:0", "0-1:0"], "a tree must have a root, but the parents of switch 1 in job 0 form a cycle"),
        (
            ["1-0:0,1", "0-2:0"],
            "a leaf's parent must have all ranks of the leaf, but rank 1 of switch 1 is not one of switch 0",
        ),
    ],
)
def test_what_is_no_tree_is_refused(leaves: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure_leaves([Told(number) for number in range(3)], LINKS, [parse_leaf(given) for given in leaves])


def test_two_links_to_the_parent_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="switch 1 has 2 to switch 0"):
        configure_leaves([Told(number) for number in range(3)], [*LINKS, Link((0, 2), (1, 2))], TWO_LEAVES)


def test_all_switches_have_one_random_operator_key_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []

    def board(*_: Any, operator_key: int, **__: Any) -> Told:
        keys.append(operator_key)
        if len(keys) % 2 == 0:
            raise BoardError("enough")
        return Told(1)

    monkeypatch.setattr(sim.emulator.__main__, "open_device", board)
    monkeypatch.setattr(sim.emulator.__main__.signal, "signal", lambda *_: None)
    for arguments in ([], [], ["--operator-key", "5"], ["--operator-key", "0"]):
        assert CliRunner().invoke(app, ["--switches", "2", *arguments]).exit_code == 2
    one, other, *given = keys[::2]
    assert keys[1::2] == keys[::2] and 0 < one != other > 0 and given == [5, 0]


# Jobs

CONFIG = Config()


def run(
    work: Callable[[Program, int], Any],
    leaves: Sequence[Leaf],
    *,
    workers: int = 6,
    rates: Rates = LOSSY,
    keys: Sequence[int] = (7,) * 4,
) -> list[Any]:
    """Each worker at a port of its own; the same faults on every cable. What each returns. `keys`: operator keys."""
    boards = [
        Board(
            CONFIG,
            seed=3 + number,
            operator_key=keys[number],
            mac=bytes([2, 0, 0, 0, 0, number]),
            ip=bytes([10, 0, 0, number + 1]),
        )
        for number in range(len(leaves) + 1)
    ]
    links = [Link((leaf.switch, 3), (leaf.parent, leaf.switch - 1), 10e9, rates) for leaf in leaves]
    taken = {end for link in links for end in (link.one, link.other)}
    free = {number: [port for port in range(4) if (number, port) not in taken] for number in range(len(boards))}
    try:
        configure_leaves(boards, links, leaves)
        with Fabric(boards, links, seed=5) as fabric:
            cluster = Cluster(fabric, seed=1)
            for rank in range(workers):
                home = next((leaf.switch for leaf in leaves if rank in leaf.ranks), 0)
                program = lambda program, rank=rank: work(program, rank)
                cluster.add((home, free[home].pop(0)), program, name=f"worker {rank}", machine=Machine(rates=rates))
            cluster.run()
    finally:
        for board in boards:
            board.close()
    return [program.result for program in cluster.programs]


def numbers(rank: int, size: int) -> np.ndarray:
    rng = np.random.default_rng([rank, size])
    return np.ldexp(rng.standard_normal(size), rng.integers(-40, 8, size)).astype(np.float32)


CHAIN = [Leaf(1, 0, frozenset({0, 1, 2}))]


@pytest.mark.parametrize(
    ("leaves", "workers"), [(TWO_LEAVES, 6), (UNEVEN, 6), (CHAIN, 3)], ids=["two", "uneven", "chain"]
)
def test_drivers_get_exact_sums_from_a_tree(leaves: list[Leaf], workers: int) -> None:
    """Over cables that lose a frame in twenty, and with sizes about a segment of a tree, one of a switch and a
    window."""
    sizes = (1, 179, 180, 181, 352, 353, 180 * 64 + 1)

    def work(program: Program, rank: int) -> list[Any]:
        elements = CONFIG.uplink_elements if leaves == UNEVEN else None
        with Worker(world=workers, rank=rank, elements=elements, transport=program.transport()) as worker:
            found: list[Any] = [worker.elements]
            for size in sizes:
                reduction = worker.allreduce(sums := numbers(rank, size))
                worker.allreduce(whole := np.full(size, (1 << 30) + rank, np.int32))
                found.append(
                    (
                        sums.view(np.uint32).tolist(),
                        set(whole.tolist()),
                        set(reduction.member_masks.tolist()),
                        reduction.missing,
                    )
                )
            found.append(worker.broadcast(bytes(range(250)) * 4 if rank == 2 else bytes(1000), root=2))
            worker.barrier()
            return found

    everybody = (1 << workers) - 1
    whole = ((workers << 30) + sum(range(workers)) + 2**31) % 2**32 - 2**31
    expected = [180]
    for size in sizes:
        columns = np.stack([numbers(rank, size).view(np.uint32) for rank in range(workers)], axis=1)
        expected.append(([window64_sum(column, 44) for column in columns.tolist()], {whole}, {everybody}, ()))
    assert run(work, leaves, workers=workers) == [[*expected, bytes(range(250)) * 4]] * workers


def test_workers_of_a_leaf_need_not_say_their_ranks() -> None:
    def work(program: Program, _: int) -> tuple[int, int]:
        with Worker(world=6, transport=program.transport()) as worker:
            return worker.rank, int(worker.allreduce(np.full(1, 1 << worker.rank, np.int32)).member_masks[0])

    found = run(work, TWO_LEAVES, rates=Rates(delay_us=1))
    assert sorted(rank for rank, _ in found[:3]) == [0, 1, 2] and sorted(rank for rank, _ in found[3:]) == [3, 4, 5]
    assert {members for _, members in found} == {0b111111}


def test_a_leaf_refuses_ranks_that_do_not_belong_below_it() -> None:
    def work(program: Program, rank: int) -> Reason:
        with pytest.raises(RefusedError, match="not one of those below this switch") as refusal:
            Worker(world=6, rank=(rank + 3) % 6, transport=program.transport())
        return refusal.value.reason

    assert run(work, TWO_LEAVES) == [Reason.MEMBER] * 6


def test_workers_below_a_leaf_with_another_operator_key_are_told_which_setting_is_wrong() -> None:
    def work(program: Program, rank: int) -> Reason:
        with pytest.raises(RefusedError, match="a switch has another operator key than the switch above it") as refusal:
            Worker(world=3, rank=rank, transport=program.transport())
        return refusal.value.reason

    assert run(work, CHAIN, workers=3, keys=(7, 8)) == [Reason.OPERATOR_KEY] * 3


def test_a_policy_that_trains_across_a_tree_is_the_one_that_one_switch_trains() -> None:
    options = Options(workers=4, num_envs=1, total_steps=4 * 128 * 2)
    leaves = [Leaf(1, 0, frozenset({0, 1})), Leaf(2, 0, frozenset({2, 3}))]

    def work(program: Program, rank: int) -> str:
        with Worker(world=4, rank=rank, transport=program.transport()) as worker:
            return train(worker, rank, options).weights_sha256

    assert len({*run(work, leaves, workers=4), *run(work, [], workers=4)}) == 1
