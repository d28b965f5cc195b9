# amaranth: UnusedElaboratable=no
"""Ports that wait share the pipeline's time equally, whatever one of their frames costs."""

import pytest

import hw.ingress.time_shares
from hw.ingress.time_shares import QUANTUM, TimeShares
from sim.bench.mutant import mutant
from sim.bench.stream import Bench


def serve(
    costs: dict[int, int],
    *,
    ports: int = 4,
    cycles: int = 6_000,
    extra: dict[int, int] | None = None,
    starts: dict[int, int] | None = None,
    shares: type[TimeShares] = TimeShares,
) -> dict[int, int]:
    """Return the cycles that each port's frames held a pipeline, of which each frame of a port takes `costs` cycles.

    A frame costs `extra` cycles besides.
    The pipeline takes the next frame of a port that is not deferred, or else of any port, in turn.
    """
    dut = shares(ports=ports, cycles_max=100)
    used = dict.fromkeys(costs, 0)

    async def bench(ctx):
        turn, left, owner = 0, 0, 0
        for cycle in range(cycles):
            waiting = [port for port in costs if cycle >= (starts or {}).get(port, 0)]
            ctx.set(dut.waiting, sum(1 << port for port in waiting))
            if not left:
                fit = [port for port in waiting if not ctx.get(dut.deferred) >> port & 1] or waiting
                owner = min(fit, key=lambda port: (port - turn - 1) % ports)
                turn, left = owner, costs[owner]
                ctx.set(dut.expense.cycles, costs[owner] + (extra or {}).get(owner, 0))
            ctx.set(dut.expense.port, owner)
            left -= 1
            used[owner] += cycle >= max((starts or {0: 0}).values())
            await ctx.tick()
            ctx.set(dut.expense.cycles, 0)

    Bench(dut).drive(bench)
    return used


def is_equal(used: dict[int, int], cost: int) -> bool:
    """Return whether the times differ by no more than the quantum of an unfinished round and two frames."""
    return max(used.values()) - min(used.values()) <= QUANTUM + 2 * cost


def extra_is_paid(shares: type[TimeShares] = TimeShares) -> bool:
    used = serve({0: 3, 1: 10}, extra={1: 90}, shares=shares)
    return abs(used[0] - 10 * used[1]) <= 2 * QUANTUM


def costly_frames_wait(shares: type[TimeShares] = TimeShares) -> bool:
    """Return whether a port whose frames cost several quanta gets no more than its half."""
    used = serve({0: 900, 1: 5}, cycles=10_000, shares=shares)
    return 3500 < used[0] < 6000


@pytest.mark.parametrize("costs", [{0: 2, 3: 140}, {0: 46, 1: 2, 2: 7}, {0: 1, 1: 300}, {0: 5, 1: 5, 2: 5, 3: 5}])
def test_ports_that_wait_have_equal_time(costs):
    assert is_equal(serve(costs), max(costs.values()))


def test_a_frame_may_cost_more_than_it_takes():
    assert extra_is_paid()


def test_frames_that_cost_several_quanta_wait_for_them():
    assert costly_frames_wait()


def test_a_port_that_was_silent_has_one_quantum_and_no_older_claims():
    used = serve({0: 4, 1: 4}, starts={1: 1200}, cycles=1200 + 4 * QUANTUM)
    assert used[1] - used[0] <= QUANTUM + 8


def test_a_port_alone_is_served_all_the_time():
    assert serve({2: 140}, cycles=2000) == {2: 2000}


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("(expense.port == number) & ", ""),
        ("Mux(pays, expense.cycles, 0)", "0"),
        ("Mux(credit >= 0, QUANTUM, credit + QUANTUM)", "QUANTUM"),
        ("Mux(credit >= 0, QUANTUM, credit + QUANTUM)", "credit + QUANTUM"),
        ("Mux(pays, expense.cycles, 0)", "pays"),
        ("(settles == 0) & ", ""),
        ("credit <= -QUANTUM", "0"),
        ("credit > 0", "0"),
        ("credit > 0", "1"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    shares = mutant(hw.ingress.time_shares, sound, wrong).TimeShares
    silent = serve({0: 4, 1: 4}, starts={1: 1200}, cycles=1200 + 4 * QUANTUM, shares=shares)
    assert not (
        is_equal(serve({0: 2, 3: 140}, shares=shares), 140)
        and extra_is_paid(shares)
        and costly_frames_wait(shares)
        and silent[1] - silent[0] <= QUANTUM + 8
    )


@pytest.mark.parametrize("ports", [0, 17])
def test_ports_wrong(ports):
    with pytest.raises(ValueError, match=f"TimeShares ports must be 1 to 16, not {ports}"):
        TimeShares(ports=ports, cycles_max=1)


def test_cycles_max_wrong():
    with pytest.raises(ValueError, match="TimeShares cycles_max must be at least 1, not 0"):
        TimeShares(ports=2, cycles_max=0)
