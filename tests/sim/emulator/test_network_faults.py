"""Faults of cables and of the switch's power, and what a worker and the switch's counters say, in virtual time against
the compiled switch.

docs/diagnostics.md, "Faults, and what you see", has the same list.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from iswitch import JobResetError, NotAMemberError, RecoverableError, Worker
from iswitch.config import Config
from iswitch.wire import FRAME_BYTES, Format
from sim.bench.clients import exchange, form_job
from sim.emulator.cluster import Cluster
from sim.emulator.counters import counters
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Rates
from sim.emulator.program import Machine, Program
from sim.frames.client import Client

SIZES = (1, 353, 64 * 352, 5, 3000)
WORLD = 3
pytestmark = pytest.mark.filterwarnings("ignore:rank.* not in the sum")


def exact(worker: Worker, number: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a worker's array, and the sum of those of all workers."""
    numbers = np.arange(size, dtype=np.float32) % 1000
    ranks = WORLD * (WORLD - 1) // 2
    return numbers + 1000 * worker.rank + number, WORLD * numbers + 1000 * ranks + WORLD * number


def summing(program: Program, reached: list[int], sums: int = 5) -> int:
    """Sum arrays, and return how many contributions were sent again. `reached`: how many sums each rank has."""
    resent = 0
    with Worker(world=WORLD, transport=program.transport()) as worker:
        for number in range(sums):
            reached[worker.rank] = number
            array, total = exact(worker, number, SIZES[number % len(SIZES)])
            reduction = worker.allreduce(array)
            assert np.array_equal(array, total) and reduction.complete
            resent += reduction.retransmissions
        reached[worker.rank] = sums
    return resent


def run(
    work: Callable[[Program, list[int]], Any],
    hand: Callable[[Program, Fabric, list[int]], None] | None = None,
    *,
    rates: Rates | None = None,
) -> tuple[list[Any], dict[str, int]]:
    """Return what each worker returns, and the switch's counters. `hand` is a program that has the switch in hand."""
    machine, reached = Machine(rates=rates or Rates(delay_us=1)), [-1] * WORLD
    with Board(Config(), seed=1) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric)
        for port in range(WORLD):
            cluster.add((0, port), lambda program: work(program, reached), name=f"worker {port}", machine=machine)
        if hand:
            cluster.add((0, WORLD), lambda program: hand(program, fabric, reached), name="hand")
        cluster.run(1000)
        return [program.result for program in cluster.programs[:WORLD]], counters(board)


def until(program: Program, reached: list[int], sums: int) -> None:
    """Wait until all workers have so many sums."""
    while min(reached) < sums:
        program.sleep(1e-4)


def test_half_of_all_frames_are_lost_for_a_while_and_the_sums_are_right():
    def lose(program: Program, fabric: Fabric, reached: list[int]) -> None:
        until(program, reached, 2)
        wires = [wire for port in fabric.nodes[0].ports[:WORLD] for wire in (port.inbound, port.outbound)]
        for wire in wires:
            wire.faults.rates = Rates(delay_us=1, loss=0.5)
        until(program, reached, 12)
        for wire in wires:
            wire.faults.rates = Rates(delay_us=1)

    resent, found = run(lambda program, reached: summing(program, reached, 14), lose)
    assert min(resent) > 50 and found["DUPLICATE"] > 0 and found["RESENT"] > 50


def test_frames_that_a_hundred_others_overtake_change_no_sum():
    _, found = run(summing, rates=Rates(delay_us=1, reorder=0.3, overtakers=100))
    assert found["ADDED"] >= sum(-(-size // 352) for size in SIZES) * WORLD


def test_bits_that_change_behind_the_fcs_change_no_sum_and_are_counted():
    """As in the memory of another switch on the path. The checksums of IPv4 and UDP find them."""
    resent, found = run(summing, rates=Rates(delay_us=1, silent_corrupt=0.05))
    assert min(resent) > 0 and found["UDP_CHECKSUM"] > 0 and "RX_ERROR" not in str(found)


def test_two_bits_that_cancel_out_in_the_checksum_reach_the_sum():
    """The limit of what protects a payload behind the FCS: a ones' complement sum of 16-bit words."""
    with Board(Config(), seed=1) as board:
        worker = Client.numbered(0)
        form_job(board, [worker], format=Format.INT32)
        frame = bytearray(worker.contribution(worker.first_seq, np.array([0, 1], np.int32)))
        frame[FRAME_BYTES] ^= 1
        assert exchange(board, worker, bytes(frame)) == [] and counters(board)["UDP_CHECKSUM"] == 1
        frame[FRAME_BYTES + 4] ^= 1
        (result,) = exchange(board, worker, bytes(frame))
        assert result.numbers.tolist() == [1, 0]


def test_a_bad_fcs_is_counted_at_its_port():
    resent, found = run(summing, rates=Rates(delay_us=1, corrupt=0.05))
    assert min(resent) > 0 and all(found[f"port {port} RX_ERROR"] > 0 for port in range(WORLD))
    assert "UDP_CHECKSUM" not in found


def test_a_cable_that_flaps_costs_retransmissions_and_no_error():
    def flap(program: Program, fabric: Fabric, reached: list[int]) -> None:
        until(program, reached, 1)
        while min(reached) < 20:
            program.sleep(0.001)
            fabric.nodes[0].board.link(1, False)
            program.sleep(0.0005)
            fabric.nodes[0].board.link(1, True)

    resent, found = run(lambda program, reached: summing(program, reached, 22), flap)
    assert resent[1] > 0 and found["port 1 TX_LINK_DOWN"] > 0


@pytest.mark.parametrize("after_us", [0, 150, 400])
def test_after_a_power_cycle_in_the_middle_of_a_sum_workers_rejoin_and_sum_right(after_us):
    """The switch has forgotten all. Each worker gets a RecoverableError, and goes on from the step at which all are."""
    errors: dict[str, list[RecoverableError]] = {}

    def press(program: Program, fabric: Fabric, reached: list[int]) -> None:
        until(program, reached, 4)
        program.sleep(1e-6 * after_us)
        fabric.nodes[0].board.reset()

    def work(program: Program, reached: list[int]) -> None:
        step, state = 0, np.zeros(1)
        with Worker(world=WORLD, transport=program.transport(), elastic=True) as worker:
            while step < 12:
                try:
                    if worker.needs_sync:
                        step = worker.sync_state(state, step)
                    reached[worker.rank] = step
                    array, total = exact(worker, step, 64 * 352)
                    assert worker.allreduce(array).complete and np.array_equal(array, total)
                    step += 1
                except RecoverableError as error:
                    errors.setdefault(program.name, []).append(error)
                    worker.rejoin()

    _, found = run(work, press)
    assert len(errors) == WORLD and {type(error) for seen in errors.values() for error in seen} <= {
        JobResetError,
        NotAMemberError,
    }
    assert "reason JOB" in str(errors["worker 0"][0]) and found["ADDED"] > 0
