"""The configuration of switches and workers, and that the emulated board accepts it."""

import copy
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from iswitch.config import Config
from iswitch.plan.console import print_configuration
from iswitch.plan.output.changes import list_changes, with_next_epoch
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.output.places import format_ranges
from iswitch.plan.schemes import make_plan
from iswitch.plan.sensitivity import remove
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.topology import Topology
from sim.emulator.link import parse_link
from sim.emulator.tree import configure_leaves, parse_leaf


def racks(count=3, hosts=4, spines=1):
    graph = leaf_spine(count, spines, hosts)
    return Topology.of(graph, aggregates={node: 200 for node, kind in graph.nodes(data="kind") if kind == "switch"})


def options(arguments, name):
    return [value for option, value in pairwise(arguments) if option == name]


def board(number):
    """Return a stand-in for a board that records its parents."""
    made = SimpleNamespace(mac=bytes([2, 0, 0, 0, 0, number]), ip=bytes([10, 0, 0, 1 + number]), parents={})
    made.parent = lambda job, **settings: made.parents.update({job: settings})
    return made


@pytest.mark.parametrize(("kind", "spines"), [("tree", 1), ("trees", 2)])
def test_the_emulated_boards_get_the_parents_of_the_plan(kind, spines):
    topology = racks(spines=spines)
    plan = make_plan(topology, kind, adjacent=True)
    made = make_configuration(topology, plan, scale=0.01)
    arguments = made["emulator"]["arguments"]
    links, leaves = (
        [parse_link(given) for given in options(arguments, "--link")],
        [parse_leaf(given) for given in options(arguments, "--leaf")],
    )
    boards = [board(number) for number in range(int(options(arguments, "--switches")[0]))]
    configure_leaves(boards, links, leaves)
    assert {link.rate_bps for link in links} == {40e9 * 0.01}
    built = Config(
        **{name: int(*options(arguments, f"--{name}")) for name in ("ports", "members", "jobs", "window", "elements")}
    )
    assert (
        built.uplink_elements == built.elements == 176
        and built.jobs >= len(plan.trees)
        and built.members >= len(topology.workers)
    )
    for name, switch in made["switches"].items():
        parents = boards[switch["number"]].parents
        for job, role in switch["jobs"].items():
            assert (role["role"] == "leaf") == (int(job) in parents), name
            if role["parent"]:
                parent = role["parent"]
                assert parents[int(job)] == {
                    "port": parent["port"],
                    "mac": bytes.fromhex(parent["mac"].replace(":", "")),
                    "ip": bytes(map(int, parent["ip"].split("."))),
                    "ranks": sum(1 << rank for rank in role["ranks"]),
                }


def test_roles_of_the_seed_example():
    topology = seed_example()
    made = make_configuration(topology, plan_single_tree(topology))
    job = made["switches"]["S2"]["jobs"]["0"]
    assert (job["role"], job["ranks"], job["slots"], job["window"]) == ("leaf", [3, 4, 5], 27, 32)
    assert job["parent"] == {"host": "PS", "port": 3, "path": ["S2", "S3", "PS"]}
    assert job["members"] == [
        {"worker": "W4", "rank": 3, "port": 2},
        {"worker": "W5", "rank": 4, "port": 0},
        {"worker": "W6", "rank": 5, "port": 1},
    ]
    assert made["workers"]["W4"]["jobs"]["0"]["plugged"] == {"switch": "S1", "number": 0, "port": 3}
    assert made["workers"]["W4"]["jobs"]["0"]["sends_to"]["switch"] == "S2"
    assert made["emulator"]["arguments"] is None
    assert made["emulator"]["reasons"][0] == "sums end at the host PS, not at a switch"
    assert made["emulator"]["with_hosts"] == [
        "cables between switches contain a cycle, and flooded frames would go around it"
    ]


@pytest.mark.parametrize("more", [0.0, 1e-12, 1e-3])
def test_the_emulators_window_is_that_of_the_switches(more):
    """This holds even if a rounding error puts the rate above that of whole slots."""
    topology = racks()
    plan = plan_single_tree(topology, adjacent=True)
    rate = topology.job.slots_gbps(8) * (1 + more)
    made = make_configuration(topology, replace(plan, trees=(replace(plan.trees[0], rate_gbps=rate),)))
    windows = {role["window"] for switch in made["switches"].values() for role in switch["jobs"].values()}
    assert windows == {int(*options(made["emulator"]["arguments"], "--window"))} == {16 if more > 1e-6 else 8}


def test_every_rank_is_below_its_switch_once():
    topology = racks(4, 3, 2)
    plan = plan_single_tree(topology, levels=None)
    made = make_configuration(topology, plan)
    root = made["switches"][plan.trees[0].root]["jobs"]["0"]
    assert root["role"] == "root" and root["parent"] is None and root["ranks"] == list(range(12))
    for switch in made["switches"].values():
        for job in switch["jobs"].values():
            below = [rank for member in job["members"] for rank in member.get("ranks", [member.get("rank")])]
            assert sorted(below) == job["ranks"]


def test_shares_of_several_trees_add_up_to_one():
    topology = seed_example(capacity_gbps=6)
    made = make_configuration(topology, make_plan(topology, "levels"))
    for worker in made["workers"].values():
        assert sum(job["share"] for job in worker["jobs"].values()) == pytest.approx(1)


def test_limits_of_an_iswitch_are_reported():
    topology = racks(9, 4)
    reasons = make_configuration(topology, plan_single_tree(topology, levels=None, adjacent=True))["emulator"][
        "reasons"
    ]
    assert reasons == ["there are 36 workers, but a job of iswitches has at most 32"]
    wide = racks(2, 16)
    assert make_configuration(wide, plan_single_tree(wide, levels=None, adjacent=True))["emulator"]["reasons"] == [
        "a switch has 17 cables, but an iswitch at most 16 ports"
    ]


def test_over_a_cycle_of_cables_only_the_fabric_without_ordinary_frames_can_run_the_plan(capsys):
    graph = leaf_spine(2, 2, 2, nic_gbps=10.0, uplink_gbps=9.0)
    topology = Topology.of(graph, aggregates={node: 40 for node, kind in graph.nodes(data="kind") if kind == "switch"})
    made = make_configuration(topology, make_plan(topology, "levels", adjacent=True))
    assert len(made["links"]) == 4 and not made["emulator"]["reasons"]
    assert made["emulator"]["arguments"] is None and len(made["emulator"]["with_hosts"]) == 1
    print_configuration(made, None)
    assert "python -m sim.cluster.plan can run this plan, and python -m sim.emulator cannot" in capsys.readouterr().out


def test_the_emulator_parses_ranges_of_ranks():
    for ranks, text in (([0, 1, 2, 3, 7], "0-3,7"), ([5], "5"), ([2, 0, 4], "0,2,4"), (range(32), "0-31")):
        assert format_ranges(ranks) == text
        assert parse_leaf(f"1-0:{text}").ranks == frozenset(ranks)


def test_the_epoch_increases_only_with_changes():
    topology = seed_example()
    first = make_configuration(topology, plan_single_tree(topology), epoch=7)
    again, lines = with_next_epoch(first, make_configuration(topology, plan_single_tree(topology)))
    assert (again["epoch"], lines) == (7, [])
    less = remove(topology, "L2")
    later, lines = with_next_epoch(first, make_configuration(less, plan_single_tree(less)))
    assert later["epoch"] == 8
    assert "switches.S1.jobs.0.ranks: 0-2 -> 0-3" in lines and "workers.W4.jobs.0.sends_to.switch: S2 -> S1" in lines
    assert any(line.startswith("workers.W4.jobs.0.path: W4-S1-S2 -> W4-S1") for line in lines)


def test_after_a_removal_all_other_ports_numbers_and_addresses_stay():
    topology = racks(spines=2)
    first = make_configuration(topology, plan_single_tree(topology, levels=None, adjacent=True))
    for lost in ("leaf1-spine2", "leaf1-spine1", "spine1"):
        less = remove(topology, lost)
        made = make_configuration(less, plan_single_tree(less, levels=None, adjacent=True), wired=topology)
        for name, switch in made["switches"].items():
            assert {key: value for key, value in switch.items() if key != "jobs"} == {
                key: value for key, value in first["switches"][name].items() if key != "jobs"
            }
            for role in switch["jobs"].values():
                assert all(
                    member["port"] == int(port)
                    for member in role["members"]
                    for port, near in switch["ports"].items()
                    if near == (member.get("worker") or member.get("switch"))
                )
        assert made["emulator"]["arguments"] and not made["switches"].get(lost, {}).get("jobs")


def test_every_change_is_listed():
    topology = racks()
    first = make_configuration(topology, plan_single_tree(topology, levels=None))
    for path, value in (
        (("switches", "leaf1", "jobs", "0", "parent", "port"), 9),
        (("switches", "leaf1", "mac"), "x"),
        (("workers", "leaf1-h1", "rank"), 30),
    ):
        other = copy.deepcopy(first)
        at = other
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        (line,) = list_changes(first, other)
        assert line.startswith(".".join(path)) and line.endswith(str(value))
