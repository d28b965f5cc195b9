"""Schedules as files: JSON keeps the schedule, XML gives the same sums in any order of thread blocks, and broken files
are refused."""

import json
import re
from xml.etree import ElementTree

import networkx as nx
import pytest

from iswitch.plan.allreduce.files.json_file import from_json, to_json
from iswitch.plan.allreduce.files.msccl import AlgorithmError, parse, run
from iswitch.plan.allreduce.files.xml_file import to_xml
from iswitch.plan.allreduce.learning.greedy import greedy_schedule
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule
from iswitch.plan.allreduce.model.topologies import build_topology
from iswitch.plan.allreduce.model.verify import verify
from iswitch.plan.allreduce.schedulers.in_network import in_network
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases
from iswitch.plan.allreduce.schedulers.parameter_server import (
    fixed_trees,
    merging_parameter_server,
    plain_parameter_server,
    plain_sharded_servers,
)
from iswitch.plan.allreduce.schedulers.ring import find_ring_order, ring

SMALL = ("BCube(2,1)", "BCube(3,1)", "DCell(2,1)", "Jellyfish(8,3)")
MAKERS = {
    "plain": plain_parameter_server,
    "sharded plain": plain_sharded_servers,
    "merging": merging_parameter_server,
    "ring": ring,
    "good ring": lambda network: ring(network, find_ring_order(network)),
    "fixed trees": lambda network: overlap_phases(fixed_trees(network)),
    "greedy": lambda network: greedy_schedule(NetworkArrays(network)),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", SMALL)
def test_json_and_xml_express_the_same_schedule(name, maker):
    network = Network(build_topology(name))
    schedule = MAKERS[maker](network)
    again, hosts, aggregating = from_json(to_json(network.graph, schedule))
    assert again == schedule and again.rounds == schedule.rounds and hosts == network.servers and aggregating == []
    verify(network.graph, again)
    program = parse(to_xml(network.graph, schedule))
    for seed in range(3):
        assert (run(program, seed=seed) == 1).all()
    assert (
        sum(step.kind == "s" for blocks in program.gpus for block in blocks for step in block.steps) == schedule.flows
    )


def test_only_json_expresses_switches_that_sum():
    network = Network(build_topology("Jellyfish(8,3)"))
    schedule, switches = in_network(network)
    again, _, aggregating = from_json(to_json(network.graph, schedule, aggregating=switches))
    verify(network.graph, again, aggregating=aggregating)
    with pytest.raises(ValueError, match="is not a host"):
        to_xml(network.graph, schedule)


def test_xml_has_the_attributes_that_runtimes_read():
    """Runtimes of MSCCL refuse a file without the limits of size, and without `outofplace`."""
    algo = ElementTree.fromstring(to_xml(*small_schedule()))
    assert {name: algo.get(name) for name in ("inplace", "outofplace", "minBytes", "maxBytes")} == {
        "inplace": "1",
        "outofplace": "0",
        "minBytes": "0",
        "maxBytes": "9223372036854775807",
    }


def small_schedule():
    network = Network(build_topology("BCube(2,1)"))
    return network.graph, fixed_trees(network)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda data: data.update(version=2), "version 1"),
        (lambda data: data.update(extra=1), "must have the fields"),
        (lambda data: data.pop("aggregating"), "must have the fields"),
        (lambda data: data.update(hosts=[1]), "list of names"),
        (lambda data: data.update(rounds={}), "list of lists"),
        (lambda data: data["rounds"][0].append(3), "must be an object"),
        (lambda data: data["rounds"][0][0].update(op="add"), "wrong kind"),
        (lambda data: data["rounds"][0][0].update(chunk="0"), "wrong kind"),
        (lambda data: data["rounds"][0][0].pop("path"), "must have the fields"),
        (lambda data: data["rounds"][0][0].update(path="h0"), "list of names"),
    ],
)
def test_json_wrong(change, message):
    data = json.loads(to_json(*small_schedule()))
    change(data)
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(data))


def test_nodes_to_export_wrong():
    graph = nx.Graph([(0, 1)])
    nx.set_node_attributes(graph, "host", "kind")
    with pytest.raises(ValueError, match="must be strings"):
        to_json(graph, Schedule("x", 2, []))


def edited(change):
    algo = ElementTree.fromstring(to_xml(*small_schedule()))
    change(algo)
    return ElementTree.tostring(algo, encoding="unicode")


def first(algo, **want):
    return next(step for step in algo.iter("step") if all(step.get(key) == value for key, value in want.items()))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda algo: algo.set("coll", "allgather"), "only allreduce"),
        (lambda algo: algo.set("outofplace", "1"), "only allreduce, in place"),
        (lambda algo: algo.set("ngpus", "5"), "ngpus is 5, but there are 4"),
        (lambda algo: algo.set("extra", "1"), "where there must be a <algo>"),
        (lambda algo: algo[0].set("id", "7"), "numbered in order"),
        (lambda algo: algo[0].set("i_chunks", "3"), "i_chunks must be 4"),
        (lambda algo: algo[0][0].set("send", "-1"), "must send or receive"),
        (lambda algo: algo[0][0].set("chan", "1"), "channel 0"),
        (lambda algo: algo[0][0][0].set("type", "x"), "is not one for"),
        (
            lambda algo: algo[0][0][0].set("dstoff", "3" if algo[0][0][0].get("srcoff") != "3" else "2"),
            "must be the same place",
        ),
        (lambda algo: [first(algo, type="s").set(key, "4") for key in ("srcoff", "dstoff")], "no such place"),
        (lambda algo: first(algo, type="s").set("cnt", "2"), "not the count 1"),
        (lambda algo: first(algo, depid="-1").set("deps", "0"), "go together"),
        (lambda algo: first(algo, hasdep="1").set("hasdep", "0"), "exactly where another step depends"),
        (lambda algo: first(algo, hasdep="1").set("hasdep", "yes"), "0 or 1"),
        (lambda algo: algo[0][0][0].set("s", "x"), "whole number"),
        (lambda algo: algo[0][0][0].set("s", "--1"), "whole number from 0, not '--1'"),
        (lambda algo: algo.set("ngpus", "²"), "whole number from 1, not '²'"),
        (
            lambda algo: next(step for step in algo.iter("step") if step.get("depid") != "-1").set("deps", "99"),
            "has no step 99",
        ),
        (lambda algo: first(algo, type="nop").set("cnt", "1"), "no place and no count"),
        (
            lambda algo: [block.set("send", algo[0][0].get("send")) for block in algo[0] if block.get("send") != "-1"],
            "with one peer",
        ),
    ],
)
def test_xml_wrong(change, message):
    with pytest.raises(AlgorithmError, match=message):
        parse(edited(change))


def test_text_that_is_not_xml_is_refused():
    with pytest.raises(AlgorithmError, match="not XML"):
        parse("<algo>")


def swapped(algo):
    step = first(algo, type="rrc")
    step.set("type", "r")


def deaf(algo):
    """Remove a last receive, on which no step depends."""
    block = next(block for block in algo.iter("tb") if block.get("recv") != "-1" and block[-1].get("hasdep") == "0")
    if block[-1].get("depid") != "-1":
        awaited = next(gpu for gpu in algo if block in list(gpu))[int(block[-1].get("depid"))][
            int(block[-1].get("deps"))
        ]
        awaited.set("hasdep", "0")
    block.remove(block[-1])


def mute(algo):
    block = next(block for block in algo[0] if block.get("send") != "-1")
    block.remove(block[-1])


@pytest.mark.parametrize(
    "change, message", [(swapped, "do not hold"), (deaf, "never received"), (mute, "wait forever")]
)
def test_a_program_that_does_not_sum_is_refused(change, message):
    with pytest.raises(AlgorithmError, match=message):
        run(parse(edited(change)))


def test_dependencies_are_needed():
    """Without dependencies some order of the thread blocks sums wrongly, so the random order of `run` is a test."""
    text = re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', to_xml(*small_schedule())).replace(
        'hasdep="1"', 'hasdep="0"'
    )
    program, failed = parse(text), 0
    for seed in range(10):
        try:
            run(program, seed=seed)
        except AlgorithmError:
            failed += 1
    assert failed


def test_sending_an_empty_place_is_refused():
    graph = build_topology("BCube(2,1)")
    held = Schedule(
        "x", 4, [[Flow(0, ("h0", "s0.0", "h1"), Op.HOLD, "h0")], [Flow(0, ("h1", "s1.1", "h3"), Op.COPY, "h0")]]
    )
    algo = ElementTree.fromstring(to_xml(graph, held))
    for step in algo.iter("step"):
        step.set("depid", "-1"), step.set("deps", "-1"), step.set("hasdep", "0")
    program, messages = parse(ElementTree.tostring(algo, encoding="unicode")), set()
    for seed in range(10):
        with pytest.raises(AlgorithmError) as raised:
            run(program, seed=seed)
        messages.add(re.sub(r"\d+", "#", str(raised.value)))
    assert any("which is empty" in text for text in messages)


def test_adding_to_an_empty_place_is_refused():
    graph = build_topology("BCube(2,1)")
    algo = ElementTree.fromstring(to_xml(graph, Schedule("x", 4, [[Flow(0, ("h0", "s0.0", "h1"), Op.HOLD, "h0")]])))
    first(algo, type="r").set("type", "rrc")
    with pytest.raises(AlgorithmError, match=r"gpu 1 adds to \('s', 0\), which is empty"):
        run(parse(ElementTree.tostring(algo, encoding="unicode")))
