"""Where the cycles of a sum go is what the compiled switch says, and every cycle of a load is accounted for."""

import numpy as np
import pytest

from iswitch.wire import Format
from sim.bench.designs import TWO_PORTS
from sim.bench.stages import load, path
from sim.bench.throughput import SETTLE_CYCLES, joined, queue_cycles
from sim.emulator.engine import Board

ELEMENTS = 2


def test_the_stages_of_a_sum_add_up_to_the_latency_of_the_compiled_switch():
    with Board(TWO_PORTS, stamps=True) as board:
        clients = joined(board, format=Format.WINDOW64, world=TWO_PORTS.ports)
        for client in clients:
            while board.stamp(client.port):
                pass
            board.send(client.port, client.contribution(client.first_seq, np.ones(ELEMENTS, "<f4")))
            board.run(SETTLE_CYCLES)
        entered, [result] = board.stamp(clients[-1].port), board.receive(0)
    assert entered
    words = TWO_PORTS.header_words + ELEMENTS // TWO_PORTS.lanes
    leaves = entered.last + queue_cycles(TWO_PORTS)
    steps = path(ELEMENTS, TWO_PORTS)
    assert (steps[-1].first, steps[-1].last) == (result.first - leaves, result.last - (leaves + words - 1))
    # The header leaves before the sums that are followed.
    firsts = [step.first for step in steps[:-1]]
    assert firsts[0] == 0 and firsts == sorted(firsts)
    assert firsts[-1] - steps[-1].first == TWO_PORTS.header_words


@pytest.mark.parametrize(("name", "jobs"), [("minimum", 1), ("minimum", 2), ("mixed", 1), ("ordinary, 60 bytes", 1)])
def test_each_cycle_of_a_load_passes_a_word_or_is_a_bubble_with_a_name(name, jobs):
    found = load(name, TWO_PORTS, jobs)
    assert found.words + sum(found.bubbles.values()) == found.cycles > 0
    assert all(sum(counts) == found.cycles for counts in found.streams.values())
