"""YAML topologies: what they mean, and the line of every mistake."""

import re
from pathlib import Path

import pytest

from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.graph_file import to_json
from iswitch.plan.topology.topology import Topology, TopologyError
from iswitch.plan.topology.yaml_file import parse_yaml

DOCS = Path(__file__).parents[4] / "docs"

GOOD = """\
job: {return_path: unicast, round_trip_us: 20, gradient_bytes: 6400000}
racks:
  - name: rack
    count: 2
    hosts: 2
    nic_gbps: 10
    aggregates: true
    capacity_gbps: 40
    slots: 64
    uplinks:
      - {to: core, bw_gbps: 25}
switches:
  - name: core
hosts:
  - {name: server, role: ps, at: core, bw_gbps: 100, ingress_gbps: 50}
  - {name: actor, role: other}
links:
  - {name: A, between: [actor, rack1], bw_gbps: 1, reserved_gbps: 0.5}
"""


def test_racks_switches_hosts_and_links():
    topology = parse_yaml(GOOD)
    assert topology.workers == ["rack1-h1", "rack1-h2", "rack2-h1", "rack2-h2"] and topology.ps == "server"
    assert topology.switches == ["core", "rack1", "rack2"] and topology.aggregators == ["rack1", "rack2"]
    assert topology.graph.nodes["rack2"] == {"kind": "switch", "aggregates": True, "capacity_gbps": 40.0, "slots": 64}
    assert topology.graph.edges["core", "rack2"] == {"bw_gbps": 25.0}
    assert topology.graph.edges["actor", "rack1"] == {"name": "A", "bw_gbps": 1.0, "reserved_gbps": 0.5}
    assert (topology.job.return_path, topology.job.round_trip_us, topology.job.gradient_bytes) == (
        "unicast",
        20,
        6_400_000,
    )


@pytest.mark.parametrize("shown", ["1e8", "1.0e8", "100e+6", "1.e8", "100000000", "1.0e+8"])
def test_a_number_may_have_an_exponent(shown):
    topology = parse_yaml(
        GOOD.replace("gradient_bytes: 6400000", f"gradient_bytes: {shown}").replace("nic_gbps: 10", "nic_gbps: 1e1")
    )
    assert topology.job.gradient_bytes == 10**8 and isinstance(topology.job.gradient_bytes, int)
    assert topology.graph.edges["rack1-h1", "rack1"]["bw_gbps"] == 10.0


def test_the_files_in_the_docs_are_what_generators_make():
    assert to_json(read_topology(DOCS / "plan_seed.yaml")) == to_json(seed_example())
    graph = leaf_spine(12, 2, 4, nic_gbps=10, uplink_gbps=40)
    graph.add_node("ps", kind="host")
    graph.add_edge("ps", "spine1", bw_gbps=100.0)
    made = Topology.of(
        graph, ps="ps", aggregates={f"leaf{leaf}": 40 for leaf in range(1, 13)} | {"spine1": 160, "spine2": 160}
    )
    assert to_json(read_topology(DOCS / "plan_12racks.yaml")) == to_json(made)


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("nic_gbps: 10", "nic: 10", 6, "no setting 'nic'; is 'nic_gbps' meant?"),
        ("nic_gbps: 10", "nic_mbps: 10", 6, "no setting 'nic_mbps'; is 'nic_gbps' meant?"),
        ("nic_gbps: 10", "nic_gbps: 10G", 6, "nic_gbps of rack rack must be a number in Gb/s, not 10G"),
        ("nic_gbps: 10", "nic_gbps: '10'", 6, "nic_gbps of rack rack must be a number in Gb/s, not '10'"),
        ("nic_gbps: 10", "nic_gbps: 0", 6, "nic_gbps of rack rack must be at least 0.001, not 0"),
        ("nic_gbps: 10", "nic_gbps: -2.5", 6, "nic_gbps of rack rack must be at least 0.001, not -2.5"),
        ("nic_gbps: 10", "nic_gbps: .nan", 6, "nic_gbps of rack rack must be a finite number, not .nan"),
        ("nic_gbps: 10", "nic_gbps: '1e1'", 6, "nic_gbps of rack rack must be a number in Gb/s, not '1e1'"),
        ("    nic_gbps: 10\n", "", 3, "rack rack must have 'nic_gbps'"),
        ("capacity_gbps: 40", "capacity: 40", 8, "is 'capacity_gbps' meant?"),
        ("    capacity_gbps: 40\n", "", 3, "rack rack: a switch that aggregates needs capacity_gbps"),
        ("slots: 64", "slots: 6.5", 9, "slots of rack rack must be a whole number, not 6.5"),
        ("slots: 64", "slots: 1e-1", 9, "slots of rack rack must be a whole number, not 1e-1"),
        ("slots: 64", "slots: .inf", 9, "slots of rack rack must be a whole number, not .inf"),
        ("slots: 64", "slots: .nan", 9, "slots of rack rack must be a whole number, not .nan"),
        ("aggregates: true", "aggregates: 1", 7, "aggregates of rack rack must be true or false, not 1"),
        ("count: 2", "count: 2\n    count: 3", 5, "'count' is repeated"),
        ("count: 2", "count: 0", 4, "count of rack rack must be above 0, not 0"),
        ("hosts: 2", "hosts: [a, b]", 3, "rack rack: with a count, hosts must be a number, such as hosts: 4"),
        ("{to: core, bw_gbps: 25}", "{to: cor, bw_gbps: 25}", 11, "there is no cor; is core meant?"),
        ("{to: core, bw_gbps: 25}", "{to: spine*, bw_gbps: 25}", 11, "there is no switch spine*"),
        ("{to: core, bw_gbps: 25}", "{to: core, bw: 25}", 11, "is 'bw_gbps' meant?"),
        ("  - name: core", "  - name: rack1", 3, "rack1 exists already, since line 13"),
        ("role: ps", "role: server", 15, "role of host server must be worker, ps or other, not server"),
        ("role: other", "role: ps", 15, "a job has one ps"),
        ("role: ps, at: core", "role: ps", 15, "needs both 'at' and 'bw_gbps'"),
        ("[actor, rack1]", "[rack1-h1, rack1]", 18, "have a cable already, since line 6"),
        ("[actor, rack1]", "[core, core]", 18, "between of link A must be a list of two different nodes"),
        ("reserved_gbps: 0.5", "reserved_gbps: 2", 18, "reserved_gbps of link A must be 0 to its bw_gbps, not 2"),
        ("role: other}", "role: worker}\n  - {name: lost, role: worker}", 17, "lost has no cable"),
        ("    uplinks:\n      - {to: core, bw_gbps: 25}\n", "", 5, "rack1-h1 has no path to server"),
        (
            "return_path: unicast",
            "return_path: broadcast",
            1,
            "return_path of the job must be multicast, unicast or none, not broadcast",
        ),
        ("round_trip_us: 20", "round_trip: 20", 1, "is 'round_trip_us' meant?"),
        ("racks:", "rack:", 2, "no setting 'rack'"),
        ("racks:", "racks: 3\nswitch:", 2, "racks of the file must be a list, not 3"),
        ("  - name: core", "  - core", 13, "a switch must be settings"),
        (
            "hosts: 2",
            "hosts: {a: 1}",
            5,
            "hosts of rack rack must be a whole number from 0, or a list of names, not settings",
        ),
        ("hosts: 2", "hosts: a", 5, "hosts of rack rack must be a whole number from 0, or a list of names, not a"),
        ("switches:\n  - name: core\nhosts:", "hosts: a\nswitches:", 12, "hosts of the file must be a list, not a"),
        ("slots: 64", "slots:", 9, "slots of rack rack has no value"),
        ("slots: 64", "kind: switch", 9, "rack rack has no setting 'kind'; known are "),
        ("- {to: core, bw_gbps: 25}", "- core", 11, "an uplink must be settings (key: value), not core"),
        ("hosts: 2", "hosts: -1", 5, "hosts of rack rack must be a whole number from 0, or a list of names, not -1"),
        ("  - name: core", "  - [core]", 13, "a switch must be settings (key: value), not a list"),
        ("slots: 64", "[slots]: 64", 9, "a key must be text"),
        ("racks:", "racks: &all\n  - *all\nswitch:", 2, "more than 16 levels"),
        ("[actor, rack1]", "[actor, [rack1]]", 18, "between of link A must be text, not a list"),
        ("name: server", "name: 2020-13-45", 15, "'2020-13-45' is not a value of YAML: write it in quotes"),
        ("name: server", "name: !!python/name:os.system x", 15, "'x' is not a value of YAML: write it in quotes"),
        ("job: {", "job: {{", 2, "not YAML"),
    ],
)
def test_a_mistake_is_reported_with_its_line(old, new, line, why):
    assert old in GOOD
    with pytest.raises(TopologyError) as caught:
        parse_yaml(GOOD.replace(old, new, 1), "fabric.yaml")
    file, at, rest = str(caught.value).split(":", 2)
    assert (file, int(at)) == ("fabric.yaml", line), caught.value
    assert why in rest, caught.value


def test_an_empty_file_is_refused():
    with pytest.raises(TopologyError, match="fabric:1: the file is empty"):
        parse_yaml("# nothing\n", "fabric")


@pytest.mark.parametrize(("text", "shown"), [("- racks", "a list"), ("racks", "racks"), ("'3'", "'3'")])
def test_a_file_without_settings_is_refused(text, shown):
    with pytest.raises(TopologyError, match=f"fabric:1: the file must be settings \\(key: value\\), not {shown}"):
        parse_yaml(text, "fabric")


def test_every_mistake_is_reported_in_the_order_of_lines():
    """A key that is meant is not reported as missing, too."""
    text = (
        GOOD.replace("nic_gbps: 10", "nic: 10")
        .replace("slots: 64", "slots: many")
        .replace("bw_gbps: 1,", "bw_gbps: 0,")
    )
    with pytest.raises(TopologyError) as caught:
        parse_yaml(text, "fabric.yaml")
    assert str(caught.value).splitlines() == [
        "fabric.yaml:6: rack rack has no setting 'nic'; is 'nic_gbps' meant?",
        "fabric.yaml:9: slots of rack rack must be a whole number, not many",
        "fabric.yaml:18: bw_gbps of link A must be at least 0.001, not 0",
    ]


def test_the_mistakes_in_the_docs_are_what_is_printed():
    text = (
        GOOD.replace("name: rack", "name: leaf").replace("nic_gbps: 10", "nic: 10").replace("slots: 64", "slots: many")
    )
    with pytest.raises(TopologyError) as caught:
        parse_yaml(text, "fabric.yaml")
    assert f"```\n{caught.value}\n```" in (DOCS / "plan.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("written", "name"), [("10", "10"), ("010", "010"), ("1e3", "1e3"), ("on", "on"), ("'x y'", "x y")]
)
def test_a_name_is_text_as_it_is_written(written, name):
    assert name in parse_yaml(GOOD.replace("name: actor", f"name: {written}").replace("[actor,", f"[{written},")).graph


@pytest.mark.parametrize("setting", ["count: 10000000", "hosts: 10000000"])
def test_numbers_that_stand_for_too_many_nodes_are_refused_with_their_line(setting):
    key = setting.partition(":")[0]
    text = re.sub(rf"{key}: \d+", setting, (Path(__file__).parents[4] / "docs/plan_12racks.yaml").read_text(), count=1)
    with pytest.raises(TopologyError, match=r"^fabric:3: the file has [0-9,]+ nodes up to here; at most 100,000"):
        parse_yaml(text, "fabric")


def test_yaml_brackets_without_end_are_refused():
    with pytest.raises(TopologyError, match=r"^fabric: more than 16 levels"):
        parse_yaml("[" * 100_000, "fabric")
