"""The jobs of a YAML file: their workers, and the line of every mistake."""

import pytest

from iswitch.plan.topology.files import read_fabric, read_topology
from iswitch.plan.topology.graph_file import from_json
from iswitch.plan.topology.shared_fabric import FabricJob, SharedFabric
from iswitch.plan.topology.topology import Topology, TopologyError
from iswitch.plan.topology.yaml_file import parse_fabric, parse_yaml

GOOD = """\
job: {round_trip_us: 20, payload_bytes: 400}
racks:
  - {name: leaf, hosts: 2, count: 3, nic_gbps: 5, aggregates: true, capacity_gbps: 9, uplinks: [{to: core, bw_gbps: 9}]}
  - {name: edge, hosts: [e1, e2], nic_gbps: 10, uplinks: [{to: core, bw_gbps: 25}]}
switches:
  - {name: core}
hosts:
  - {name: server, role: ps, at: core, bw_gbps: 100}
  - {name: actor, role: other, at: core, bw_gbps: 1}
  - {name: spare, at: core, bw_gbps: 1}
jobs:
  - name: one
    workers: [leaf1, leaf2-h1]
    weight: 2
    round_trip_us: 10
  - name: two
    workers: ["leaf3*", e1]
    ps: server
"""


def workers_of(given):
    (job, *_) = parse_fabric(GOOD.replace("leaf1, leaf2-h1", given)).jobs
    return job.topology.workers


def test_each_job_has_its_workers_its_ps_its_weight_and_its_settings():
    one, two = parse_fabric(GOOD).jobs
    assert (one.name, one.weight, two.name, two.weight) == ("one", 2.0, "two", 1.0)
    assert one.topology.workers == ["leaf1-h1", "leaf1-h2", "leaf2-h1"] and one.topology.ps is None
    assert two.topology.workers == ["e1", "leaf3-h1", "leaf3-h2"] and two.topology.ps == "server"
    assert (one.topology.job.round_trip_us, one.topology.job.payload_bytes) == (10, 400)
    assert (two.topology.job.round_trip_us, two.topology.job.payload_bytes) == (20, 400)
    assert dict(one.topology.graph.nodes["leaf2-h2"]) == {"kind": "host", "role": "other"}


def test_only_a_star_stands_for_other_characters():
    text = (
        "racks: [{name: leaf, hosts: ['h[1]a', 'h?b', h1a, h2b], nic_gbps: 10, aggregates: true, capacity_gbps: 9}]\n"
    )
    fabric = parse_fabric(text + "jobs: [{name: a, workers: ['h[1]*', 'h?*']}]")
    assert fabric.jobs[0].topology.workers == ["h?b", "h[1]a"]


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ("leaf1-h2", ["leaf1-h2"]),
        ("leaf2", ["leaf2-h1", "leaf2-h2"]),
        ("leaf2, leaf2-h1", ["leaf2-h1", "leaf2-h2"]),
        ("leaf1*, leaf2*", ["leaf1-h1", "leaf1-h2", "leaf2-h1", "leaf2-h2"]),
        ("'leaf[12]-h1', e2", None),
        ("edge", None),
        ("core", ["spare"]),
        ("e2", ["e2"]),
        ("lea*1-h*", ["leaf1-h1", "leaf1-h2"]),
    ],
)
def test_workers_are_hosts_racks_and_patterns(given, workers):
    if workers is None:
        with pytest.raises(TopologyError):
            workers_of(given)
    else:
        assert workers_of(given) == workers


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("leaf2-h1]", "leaf2-h9]", 13, "there is no host or rack leaf2-h9; is leaf2-h2 meant?"),
        ("leaf2-h1]", "*-h1]", 13, "found undefined alias '-h1'; a name that begins with '*' must be in quotes"),
        ("leaf2-h1]", "'rack*']", 13, "no host or rack is called rack*"),
        ("leaf2-h1]", "server]", 13, "server is no worker, since its role is ps: leave it out"),
        ("leaf2-h1]", "actor]", 13, "actor is no worker, since its role is other: leave it out"),
        ("leaf2-h1]", "e1]", 17, "e1 is a worker of job one already, since line 13: a host works for one job"),
        ("leaf1, leaf2-h1", "", 13, "workers of job one must be a list of at least one host or rack, not a list"),
        ("[leaf1, leaf2-h1]", "leaf1", 13, "workers of job one must be a list, not leaf1"),
        ("[leaf1, leaf2-h1]", "[[leaf1]]", 13, "workers of job one must be text, not a list"),
        ("    workers: [leaf1, leaf2-h1]\n", "", 12, "job one must have 'workers'"),
        ("name: two", "name: one", 16, "there is a job one already, since line 12: rename one"),
        ("name: two", "name: ''", 16, "name of job '' must be text that is not empty, not ''"),
        ("weight: 2", "weight: 0", 14, "weight of job one must be at least 0.001, not 0"),
        ("weight: 2", "weight: -1", 14, "weight of job one must be at least 0.001, not -1"),
        ("weight: 2", "weight: 1e4", 14, "weight of job one must be at most 1000, not 1e4"),
        ("weight: 2", "weight: high", 14, "weight of job one must be a number, not high"),
        ("weight: 2", "weight: .inf", 14, "weight of job one must be a finite number, not .inf"),
        ("weight: 2", "weigth: 2", 14, "job one has no setting 'weigth'; is 'weight' meant?"),
        ("weight: 2", "weight:", 14, "weight of job one has no value"),
        ("round_trip_us: 10", "round_trip: 10", 15, "is 'round_trip_us' meant?"),
        ("ps: server", "ps: servers", 18, "there is no host servers; is server meant?"),
        (
            "ps: server",
            "ps: core",
            18,
            "ps of job two must be a host, not the switch core; without 'ps', sums end at a",
        ),
        ("ps: server", "ps: actor", 18, "actor has the role other: remove its role, or name another ps"),
        ("    ps: server\n", "", 8, "server has the role ps, but is the ps of no job: write 'ps: server' in a job"),
        ("at: core, bw_gbps: 1}\n  - {name: spare", "at: leaf1, bw_gbps: 1}\n  - {name: spare", None, ""),
        ("bw_gbps: 9}]}\n  - {name: edge", "bw_gbps: 9, reserved_gbps: 26}]}\n  - {name: edge", 3, "0 to its bw_gbps"),
        (
            "nic_gbps: 10, uplinks: [{to: core, bw_gbps: 25}]}\nswitches",
            "nic_gbps: 10}\nswitches",
            4,
            "job two: e1 has no path",
        ),
    ],
)
def test_a_mistake_has_its_line(old, new, line, why):
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    if line is None:
        parse_fabric(text)
        return
    with pytest.raises(TopologyError) as raised:
        parse_fabric(text, "fabric.yaml")
    assert str(raised.value).startswith(f"fabric.yaml:{line}: ") and why in str(raised.value)


@pytest.mark.parametrize("given", ["[]", "3", "{name: one}"])
def test_jobs_must_be_a_list(given):
    with pytest.raises(TopologyError, match=r"fabric.yaml:\d+: jobs of the file must be a list"):
        parse_fabric(GOOD[: GOOD.index("jobs:")] + f"jobs: {given}\n", "fabric.yaml")


def test_a_file_without_jobs_is_a_topology():
    text = GOOD[: GOOD.index("jobs:")]
    assert isinstance(parse_fabric(text), Topology)


def test_programs_for_one_job_refuse_a_file_with_jobs(tmp_path):
    with pytest.raises(
        TopologyError, match=r"fabric.yaml:11: only `iswitch plan` plans several jobs: write one job as"
    ):
        parse_yaml(GOOD, "fabric.yaml")
    (tmp_path / "fabric.yaml").write_text(GOOD)
    with pytest.raises(TopologyError, match="only `iswitch plan` plans several jobs"):
        read_topology(tmp_path / "fabric.yaml")
    assert [job.name for job in read_fabric(tmp_path / "fabric.yaml").jobs] == ["one", "two"]


def test_json_has_one_job():
    text = '{"graph": {"jobs": []}, "nodes": [{"id": "s", "kind": "switch"}], "edges": []}'
    with pytest.raises(TopologyError, match=r"fabric\.json: only YAML can have several jobs"):
        from_json(text, "fabric.json")


def test_jobs_may_share_a_ps():
    jobs = parse_fabric(GOOD.replace("    weight: 2\n", "    ps: server\n")).jobs
    assert [job.topology.ps for job in jobs] == ["server", "server"]


def test_shared_fabric_wrong():
    one, two = parse_fabric(GOOD).jobs
    with pytest.raises(TopologyError, match="must have at least one job"):
        SharedFabric([])
    with pytest.raises(TopologyError, match="two are called one"):
        SharedFabric([one, two._replace(name="one")])
    with pytest.raises(TopologyError, match="leaf1-h1 is a worker of job one and of job three"):
        SharedFabric([one, two, FabricJob("three", 1.0, one.topology)])
    for weight in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="weight of job one must be above 0, not"):
            SharedFabric([one._replace(weight=weight), two])
