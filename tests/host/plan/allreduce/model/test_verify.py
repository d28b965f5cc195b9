"""The checker accepts schedules that sum, refuses others, and kills every mutant of a valid schedule."""

from dataclasses import replace

import numpy as np
import pytest

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule, list_schedule, mirror
from iswitch.plan.allreduce.model.topologies import build_topology
from iswitch.plan.allreduce.model.verify import ScheduleError, verify
from iswitch.plan.allreduce.schedulers.in_network import in_network, in_network_rounds
from iswitch.plan.allreduce.schedulers.parameter_server import (
    fixed_trees,
    merging_parameter_server,
    plain_parameter_server,
    plain_sharded_servers,
)
from iswitch.plan.allreduce.schedulers.ring import find_ring_order, ring

SMALL = ("BCube(2,1)", "BCube(3,1)", "BCube(2,2)", "DCell(2,1)", "DCell(3,1)", "Jellyfish(8,3)", "Jellyfish(4,2,1,2)")
MAKERS = {
    "plain": plain_parameter_server,
    "merging": merging_parameter_server,
    "sharded plain": plain_sharded_servers,
    "fixed trees": fixed_trees,
    "ring": ring,
    "good ring": lambda network: ring(network, find_ring_order(network)),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", SMALL)
def test_every_baseline_sums_every_chunk_once_everywhere(name, maker):
    network = Network(build_topology(name))
    counts = verify(network.graph, MAKERS[maker](network))
    assert counts.shape == (network.size,) * 3 and (counts == 1).all()


@pytest.mark.parametrize("name", SMALL)
def test_switches_that_sum_need_their_closed_form(name):
    network = Network(build_topology(name))
    schedule, switches = in_network(network)
    verify(network.graph, schedule, aggregating=switches)
    assert schedule.length == in_network_rounds(network)
    with pytest.raises(ScheduleError, match="merging node"):
        verify(network.graph, schedule)


def test_the_sums_are_those_of_real_numbers():
    """The checker counts contributions. Integers that the same flows add have the right sums."""
    network = Network(build_topology("BCube(3,1)"))
    schedule = fixed_trees(network)
    values = np.random.default_rng(1).integers(-(2**40), 2**40, (network.size, network.size))
    have = {
        (server, chunk): int(values[index, chunk])
        for index, server in enumerate(network.servers)
        for chunk in range(network.size)
    }
    for flows in schedule.rounds:
        arriving = [(flow, have[flow.path[0], flow.chunk]) for flow in flows]
        for flow, value in arriving:
            place = flow.path[-1], flow.chunk
            have[place] = have[place] + value if flow.op is Op.MERGE else value
    assert all(
        have[server, chunk] == values[:, chunk].sum() for server in network.servers for chunk in range(network.size)
    )


def changed(schedule, at, index, flow):
    rounds = [list(flows) for flows in schedule.rounds]
    if flow is None:
        del rounds[at][index]
    else:
        rounds[at][index] = flow
    return replace(schedule, rounds=rounds)


def mutants(schedule):
    """Yield (name, mutant) for every flow: left out, sent twice, of another chunk, or with the other operation."""
    for at, flows in enumerate(schedule.rounds):
        for index, flow in enumerate(flows):
            yield "left out", changed(schedule, at, index, None)
            yield "other chunk", changed(schedule, at, index, replace(flow, chunk=(flow.chunk + 1) % schedule.chunks))
            yield (
                "other operation",
                changed(schedule, at, index, replace(flow, op=Op.COPY if flow.op is Op.MERGE else Op.MERGE)),
            )
            if flow.op is Op.MERGE:
                yield "twice", replace(schedule, rounds=[*schedule.rounds[:at], [flow], *schedule.rounds[at:]])


@pytest.mark.mutant
@pytest.mark.parametrize("name", ["BCube(2,1)", "DCell(2,1)"])
@pytest.mark.parametrize("maker", ["fixed trees", "good ring"])
def test_mutants_are_killed(name, maker):
    network = Network(build_topology(name))
    schedule = MAKERS[maker](network)
    alive = []
    for what, mutant in mutants(schedule):
        try:
            verify(network.graph, mutant)
        except ScheduleError:
            continue
        alive.append(what)
    assert alive == []


def small_schedule():
    network = Network(build_topology("BCube(2,1)"))
    return network.graph, fixed_trees(network)


def broken(flow, *, at=0):
    graph, schedule = small_schedule()
    rounds = [list(flows) for flows in schedule.rounds]
    rounds[at].append(flow)
    return graph, replace(schedule, rounds=rounds)


@pytest.mark.parametrize(
    "flow, rule",
    [
        (Flow(9, ("h0", "s0.0", "h1"), Op.MERGE, "h0"), "no such chunk"),
        (Flow(0, ("h0",), Op.MERGE, "h0"), "one merging node to another"),
        (Flow(0, ("h0", "s0.0"), Op.MERGE, "h0"), "one merging node to another"),
        (Flow(0, ("h0", "s0.0", "h1", "s1.1", "h3"), Op.MERGE, "h0"), "do not forward"),
        (Flow(0, ("h0", "s0.1", "h2"), Op.MERGE, "h0"), "no link"),
    ],
)
def test_flow_wrong(flow, rule):
    with pytest.raises(ScheduleError, match=rule):
        verify(*broken(flow))


def test_a_link_used_twice_is_refused():
    graph, schedule = small_schedule()
    with pytest.raises(ScheduleError, match="carries two units"):
        verify(*broken(replace(schedule.rounds[0][0], chunk=3)))


def test_a_value_that_the_sender_does_not_hold_is_refused():
    with pytest.raises(ScheduleError, match="holds nothing of h3"):
        verify(build_topology("BCube(2,1)"), Schedule("x", 4, [[Flow(0, ("h0", "s0.0", "h1"), Op.MERGE, "h3")]]))


def test_copy_beside_another_value_is_refused_in_either_order():
    merge, copy = Flow(0, ("h1", "s0.0", "h0"), Op.MERGE, "h1"), Flow(0, ("h2", "s1.0", "h0"), Op.COPY, "h2")
    for flows in ([merge, copy], [copy, merge], [copy, replace(copy, path=merge.path, origin="h1")]):
        with pytest.raises(ScheduleError, match="a copy and another value"):
            verify(build_topology("BCube(2,1)"), Schedule("x", 4, [flows]))


def test_operation_and_chunks_wrong():
    graph, schedule = small_schedule()
    with pytest.raises(ScheduleError, match="unknown operation"):
        verify(graph, changed(schedule, 0, 0, replace(schedule.rounds[0][0], op="swap")))
    with pytest.raises(ScheduleError, match="3 chunks for 4 hosts"):
        verify(graph, replace(schedule, chunks=3))


def test_values_are_those_at_the_beginning_of_the_round():
    """What h1 sends does not include what it receives in the same round."""
    flows = [Flow(0, ("h3", "s1.1", "h1"), Op.MERGE, "h3"), Flow(0, ("h1", "s0.0", "h0"), Op.MERGE, "h1")]
    with pytest.raises(ScheduleError, match="chunk 0 at h0 has 0 times the contribution of h2, and"):
        verify(build_topology("BCube(2,1)"), Schedule("x", 4, [flows]))


def test_only_copies_have_a_mirror():
    with pytest.raises(ValueError, match="only a broadcast of copies"):
        mirror([[Flow(0, ("h0", "h1"), Op.MERGE, "h0")]])


def test_jobs_in_a_cycle_are_refused():
    with pytest.raises(ValueError, match="in a cycle"):
        list_schedule([(("a", "b"), [1]), (("b", "a"), [0])], priority=[0, 1])


def test_list_scheduling_follows_priorities_and_fills_the_round():
    jobs = [(("a", "b"), []), (("a", "b"), []), (("b", "c"), []), (("b", "c"), [1])]
    assert list_schedule(jobs, priority=[2, 1, 0, 3]) == [[2, 1], [0, 3]]
