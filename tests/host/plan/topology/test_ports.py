"""Ports that a topology numbers: how files write them, where they are used, what is refused."""

import json

import pytest

from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.schemes import make_plan
from iswitch.plan.sensitivity import remove
from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.graph_file import from_graphml, from_json, to_graphml, to_json
from iswitch.plan.topology.topology import Topology
from iswitch.plan.topology.yaml_file import parse_yaml

TWO_SPINES = """
racks:
  - {name: leaf, count: 2, hosts: 2, nic_gbps: 10, aggregates: true, capacity_gbps: 40, ports: PORTS,
     uplinks: [{to: "spine*", bw_gbps: 9}]}
switches:
  - {name: spine, count: 2, aggregates: true, capacity_gbps: 40, ports: "leaf1=5"}
"""


def topology(ports: str = '"spine1=0, spine2=3"') -> Topology:
    return parse_yaml(TWO_SPINES.replace("PORTS", ports))


def configuration(fabric: Topology, wired: Topology | None = None):
    return make_configuration(fabric, make_plan(fabric, "levels", adjacent=True), wired=wired)


def test_ports_have_the_numbers_of_the_file_and_the_others_those_that_are_left():
    made = configuration(topology())
    assert made["switches"]["leaf2"]["ports"] == {"0": "spine1", "1": "leaf2-h1", "2": "leaf2-h2", "3": "spine2"}
    assert made["switches"]["spine1"]["ports"] == {"0": "leaf2", "5": "leaf1"}
    assert made["workers"]["leaf1-h2"]["jobs"]["0"]["plugged"] == {"switch": "leaf1", "number": 0, "port": 2}
    numbers = {name: switch["number"] for name, switch in made["switches"].items()}
    for link in made["links"]:
        for (number, port), near in zip(link["places"], reversed(link["ends"])):
            (switch,) = (name for name, each in numbers.items() if each == number)
            assert made["switches"][switch]["ports"][str(port)] == near


def test_a_lost_cable_leaves_the_numbers_of_all_others():
    whole = topology()
    less = remove(whole, "leaf1-spine2")
    assert less.numbered_ports("leaf1") == {"spine1": 0} and less.numbered_ports("leaf2") == {"spine1": 0, "spine2": 3}
    for switch in ("leaf1", "leaf2", "spine1"):
        assert (
            configuration(less, whole)["switches"][switch]["ports"] == configuration(whole)["switches"][switch]["ports"]
        )
    assert remove(whole, "spine1").numbered_ports("leaf1") == {"spine2": 3}
    assert "ports" not in remove(whole, "leaf1-spine1").graph.nodes["spine1"]


def test_all_formats_keep_the_numbers(tmp_path):
    fabric = topology()
    to_graphml(fabric, tmp_path / "fabric.graphml")
    for again in (from_json(to_json(fabric)), from_graphml(tmp_path / "fabric.graphml")):
        assert {switch: again.numbered_ports(switch) for switch in again.switches} == {
            "leaf1": {"spine1": 0, "spine2": 3},
            "leaf2": {"spine1": 0, "spine2": 3},
            "spine1": {"leaf1": 5},
            "spine2": {"leaf1": 5},
        }


def test_an_iswitch_has_sixteen_ports():
    found = configuration(topology('"spine1=16"'))["emulator"]
    assert found["arguments"] is None and found["reasons"] == [
        "a switch has a port 16, but an iswitch at most ports 0 to 15"
    ]
    assert not configuration(topology('"spine1=15"'))["emulator"]["reasons"]


RULE = (
    "ports of rack leaf must be text such as spine1=3, spine2=4, with each neighbour and each port from 0 to 1023 once"
)


@pytest.mark.parametrize(
    "ports",
    [
        '"spine1=1, spine2=1"',
        '"spine1=1, spine1=2"',
        '"spine1=-1"',
        '"spine1=1024"',
        '"=1"',
        "spine1",
        '""',
        "3",
        '"spine1=1,"',
        '"spine1=1=2"',
        '"spine1=1_0"',
        '"spine1=+3"',
        '"spine1=\u0663"',
    ],
)
def test_ports_in_another_form_are_refused_with_their_line(ports):
    with pytest.raises(TopologyError) as error:
        topology(ports)
    assert str(error.value) == f"topology:3: {RULE}, not {ports}".replace('"', "'")


def test_a_port_to_a_node_that_is_no_neighbour_is_refused_with_its_line():
    with pytest.raises(TopologyError, match="topology:3: ports of leaf1 name spine3, to which it has no cable"):
        topology('"spine3=1"')
    with pytest.raises(TopologyError, match="topology:3: ports of rack leaf must be text"):
        topology("{spine1: 3}")


def test_wrong_ports_of_a_graph_are_refused():
    data = json.loads(to_json(topology()))
    next(node for node in data["nodes"] if node["id"] == "leaf1")["ports"] = "spine1=x"
    with pytest.raises(TopologyError, match="ports of leaf1 must be text such as spine1=3"):
        from_json(json.dumps(data))
