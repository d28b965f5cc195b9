"""Link faults, against the machine of clause 46.3.4.2 written column by column."""

import random

import pytest

import hw.ethernet.fault
from hw.ethernet.fault import LinkFault
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.bench.xgmii import IDLE, ordered_set, words

QUIET = [IDLE] * 4
LOCAL, REMOTE, OTHER = ordered_set(1), ordered_set(2), ordered_set(3)


def run(columns, *, make=LinkFault):
    """What is believed behind each word: 0 nothing, 1 a local fault, 2 a remote one."""
    dut, found = make(), []

    async def feed(ctx):
        for data, control in [*words([one for column in columns for one in column]), (0x0707070707070707, 0xFF)]:
            ctx.set(dut.xgmii.data, data)
            ctx.set(dut.xgmii.control, control)
            await ctx.tick()
            found.append(ctx.get(dut.local) + 2 * ctx.get(dut.remote))

    Bench(dut).drive(feed)
    return found[1:]


def model(columns):
    """One column after the other; seen behind each second one."""
    found, last, count, since, fault = [], None, 0, 0, 0
    for k, column in enumerate(columns):
        if column in (LOCAL, REMOTE):
            count, last, since = count + 1 if column == last else 1, column, 0
            if count >= 4:
                fault = 1 if column == LOCAL else 2
        else:
            since += 1
            if since >= 128:
                count, fault, last = 0, 0, None
        if k % 2:
            found.append(fault)
    return found


def traffic(seed):
    """Sequences in runs of one kind, apart by up to a little more than is allowed; both columns of a word are alike if
    both have one."""
    rng, columns = random.Random(seed), []
    for _ in range(40):
        kind = rng.choice([LOCAL, REMOTE])
        for _ in range(rng.randrange(1, 7)):
            pair = rng.choice([[kind, QUIET], [QUIET, kind], [kind, kind]])
            columns += pair + [rng.choice([QUIET, QUIET, OTHER])] * (2 * rng.choice([0, 1, 3, 20, 40]))
        columns += [QUIET] * (2 * rng.choice([0, 0, 10, 60, 70]))
    return columns


def test_four_of_a_kind_make_a_fault_and_three_do_not():
    assert run([LOCAL, QUIET] * 3 + [QUIET] * 4) == [0] * 5
    assert run([LOCAL, QUIET] * 4) == [0, 0, 0, 1]
    assert run([REMOTE] * 4) == [0, 2]
    assert run([LOCAL, QUIET] * 3 + [REMOTE, QUIET] * 4) == [0] * 6 + [2]


def test_a_fault_ends_after_128_columns_without_one():
    found = run([LOCAL] * 4 + [QUIET] * 140)
    assert found == [0] + [1] * 64 + [0] * 7


def test_faults_agree_with_the_figure():
    columns = traffic(1)
    assert run(columns) == model(columns)
    assert set(model(columns)) == {0, 1, 2}


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("SEQUENCES = 4", "SEQUENCES = 3"),
        ("128 // 2", "126 // 2"),
        ("+ 1 + both", "+ 1"),
        ("Mux(is_remote == was_remote, count, 0)", "count"),
    ],
)
def test_mutants_are_noticed(sound, wrong):
    columns = traffic(1)
    assert run(columns, make=mutant(hw.ethernet.fault, sound, wrong).LinkFault) != model(columns)
