"""Half-width jobs of real drivers through the emulated switch, in virtual time."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from examples.ppo import Options, train
from iswitch import Worker
from iswitch.wire.formats import FORMATS, JOB_FORMATS
from sim.bench.designs import HALF_WIDTH
from sim.bench.oracle import nearest_half
from sim.emulator.cluster import Cluster
from sim.emulator.device import Device, open_device
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.program import Machine, Program
from sim.frames.client import SWITCH_IP, SWITCH_MAC

WORLD = 3
PERFECT, LOSSY = Rates(delay_us=1), Rates(delay_us=1, loss=0.05, duplicate=0.02, reorder=0.02)
SIZES = (1, 2, 63, 64, 65, 5 * 64 + 17)
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16}


def run(
    work: Callable[[Program, int], Any], *, board: Device | None = None, rates: Rates = PERFECT, workers: int = WORLD
) -> tuple[list[Any], list[float | None]]:
    """Run a program for each worker; rank 2 shares the port of rank 0. Return what each returns, and its time."""
    board = board or Board(HALF_WIDTH, seed=3)
    try:
        with Fabric([board], seed=5) as fabric:
            cluster = Cluster(fabric, seed=1)
            for rank in range(workers):
                cluster.add((0, rank % 2), lambda program, rank=rank: work(program, rank), machine=Machine(rates=rates))
            cluster.run()
    finally:
        board.close()
    return [program.result for program in cluster.programs], [program.ended_s for program in cluster.programs]


def numbers(rank: int, size: int) -> np.ndarray:
    rng = np.random.default_rng([rank, size])
    return np.ldexp(rng.standard_normal(size), rng.integers(-20, 8, size)).astype(np.float32)


def exact_sum(vectors: list[np.ndarray], name: str) -> list[float]:
    """Return the sums of float32 vectors that are rounded to the format, added exactly, and rounded once."""
    format = JOB_FORMATS[name]
    scale = Fraction(2) ** min(44, FORMATS[format].fractions.stop - 1)
    halves = [torch.from_numpy(vector).to(TORCH[name]).tolist() for vector in vectors]
    sums = [sum(round(Fraction(x) * scale) for x in column) / scale for column in zip(*halves, strict=True)]
    bits = np.array([nearest_half(total, format) for total in sums], np.uint16)
    return torch.from_numpy(bits.view(np.int16)).view(TORCH[name]).tolist()


def sums(name: str) -> Callable[[Program, int], Any]:
    """Return a program that sums float32 arrays and lists of tensors in a job of a format, and integers beside them."""

    def work(program: Program, rank: int) -> Any:
        found = []
        with Worker(world=WORLD, rank=rank, format=name, transport=program.transport()) as worker:
            for size in SIZES:
                array, whole = numbers(rank, size), np.full(size, (1 << 30) + rank, np.int32)
                tensors = list(torch.from_numpy(numbers(rank, size)).to(TORCH[name]).split(100))
                reduction = worker.allreduce(array)
                worker.allreduce(whole)
                worker.allreduce(tensors)
                found.append((array.tolist(), torch.cat(tensors).tolist(), set(whole.tolist()), reduction.complete))
        return found

    return work


@pytest.mark.parametrize("rates", [PERFECT, LOSSY], ids=["perfect", "lossy"])
@pytest.mark.parametrize("name", TORCH)
def test_a_driver_receives_the_exact_sums_of_two_byte_elements_rounded_once(name: str, rates: Rates) -> None:
    found, _ = run(sums(name), rates=rates)
    totals = [exact_sum([numbers(rank, size) for rank in range(WORLD)], name) for size in SIZES]
    integers = {(3 * (1 << 30) + 3) % 2**32 - 2**32}
    assert found == [[(total, total, integers, True) for total in totals]] * WORLD


def test_stopped_clocks_change_no_half_width_sum_and_no_time() -> None:
    assert run(sums("bf16"), rates=LOSSY) == run(
        sums("bf16"), rates=LOSSY, board=Board(HALF_WIDTH, seed=3, all_clocks=True)
    )


def test_a_policy_that_trains_with_two_byte_gradients_is_the_one_that_the_software_switch_trains() -> None:
    options = Options(workers=2, num_envs=1, total_steps=2 * 128)

    def work(program: Program, rank: int) -> str:
        with Worker(world=2, rank=rank, format=name, transport=program.transport()) as worker:
            return train(worker, rank, options).weights_sha256

    found = {}
    for name, engine in (("bf16", "verilator"), ("bf16", "software"), ("window64", "software")):
        board = open_device(HALF_WIDTH, engine=engine, seed=3, mac=SWITCH_MAC, ip=SWITCH_IP)
        found[name, engine], _ = run(work, board=board, workers=2)
    assert len({*found["bf16", "verilator"], *found["bf16", "software"]}) == 1
    assert found["bf16", "software"] != found["window64", "software"]
