"""The checker of several jobs accepts valid plans and reports each of these invalid ones."""

import copy

import pytest

from iswitch.plan.check_jobs import check_jobs
from iswitch.plan.jobs_output import jobs_plan_to_dict
from iswitch.plan.several_jobs import plan_jobs
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.yaml_file import parse_fabric

FABRIC = """\
job: {overhead_bytes: 0, uplink_bytes_per_element: 4, payload_bytes: 1000, round_trip_us: 8}
racks:
  - {name: leaf, count: 2, hosts: 3, nic_gbps: 8, aggregates: true, capacity_gbps: 30, slots: 12,
     uplinks: [{to: spine, bw_gbps: 10}]}
switches: [{name: spine, aggregates: true, capacity_gbps: 100, slots: 14}]
jobs:
  - {name: a, workers: [leaf*-h1], weight: 2}
  - {name: b, workers: [leaf*-h2]}
  - {name: c, workers: [leaf1-h3]}
"""
"""Job a gets 20/3 Gb/s and job b 10/3, since they share the cables of the racks. The cable of its worker limits job c
to 8 Gb/s, alone at its switch or at another."""


@pytest.fixture(scope="module")
def planned():
    fabric = parse_fabric(FABRIC)
    return {job.name: node_link(job.topology) for job in fabric.jobs}, jobs_plan_to_dict(plan_jobs(fabric, "tree"))


def at_rates(**rates):
    """Return a change of the rates of jobs."""

    def changed(networks, plan):
        for entry in plan["jobs"]:
            if (rate := rates.get(entry["name"])) is not None:
                entry["rate_gbps"] = entry["trees"][0]["rate_gbps"] = rate

    return changed


def with_node(job, node, **attributes):
    """Return a change of a node in the fabric of one job, or of all (None)."""

    def changed(networks, plan):
        for name in networks if job is None else [job]:
            next(each for each in networks[name]["nodes"] if each["id"] == node).update(attributes)

    return changed


def twice(networks, plan):
    tree = plan["jobs"][0]["trees"][0]
    tree["rate_gbps"] /= 2
    plan["jobs"][0]["trees"].append(copy.deepcopy(tree))


INVALID = {
    "two jobs above a cable that they share": (at_rates(a=7.0), "together the jobs take 10.3333 of 10 Gb/s"),
    "a job above its own cable": (at_rates(c=8.1), "job c: leaf1-h3>leaf1 carries 8.1 of 8 Gb/s"),
    "equal rates for unlike weights": (at_rates(a=5.0, b=5.0), "the rates are not fair: job a could have more"),
    "rates against the weights": (at_rates(a=10 / 3, b=20 / 3), "the rates are not fair: job a could have more"),
    "a job that could have more": (at_rates(c=7.9), "the rates are not fair: job c could have more than 7.9 x"),
    "another weight": (lambda _, plan: plan["jobs"][0].update(weight=1), "job b could have more"),
    "no weight": (lambda _, plan: plan["jobs"][2].update(weight=-1), "weight of job c must be above 0, not -1"),
    "a job left out": (lambda _, plan: plan["jobs"].pop(), "jobs of the plan must be a, b, c, not a, b"),
    "two trees": (twice, "job a must have one tree, not 2"),
    "a worker left out": (lambda _, plan: plan["jobs"][1]["trees"][0]["homes"].popitem(), "job b: workers of the tree"),
    "a worker of two jobs": (with_node("b", "leaf1-h1", role="worker"), "leaf1-h1 is a worker of job a and of job b"),
    "a bound below the rates": (lambda _, plan: plan.update(bound=3.0), "above the bound 3"),
    "less capacity for all": (with_node(None, "leaf1", capacity_gbps=12.0), "of 12 Gb/s: sum leaf1"),
    "fewer slots for all": (with_node(None, "leaf1", slots=9), "of 9 slots: slots leaf1"),
    "another fabric": (with_node("b", "leaf1", capacity_gbps=31.0), "the jobs have different fabrics"),
}


def test_a_valid_plan_passes_and_its_loads_are_those_of_all_jobs(planned):
    loads, violations = check_jobs(*planned)
    assert violations == []
    assert loads["leaf1>spine"] == pytest.approx(10) and loads["leaf1-h3>leaf1"] == pytest.approx(8)
    assert [entry["rate_gbps"] for entry in planned[1]["jobs"]] == pytest.approx([20 / 3, 10 / 3, 8])


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_plan_is_reported(planned, name):
    networks, plan = copy.deepcopy(planned)
    change, violation = INVALID[name]
    change(networks, plan)
    assert violation in "\n".join(check_jobs(networks, plan)[1])


def test_slots_count_in_segments_of_each_job(planned):
    """Job c has segments of half the size, so its rate takes twice the slots."""
    fabric = parse_fabric(FABRIC.replace("workers: [leaf1-h3]", "workers: [leaf1-h3], payload_bytes: 500"))
    networks = {job.name: node_link(job.topology) for job in fabric.jobs}
    plan = jobs_plan_to_dict(plan_jobs(fabric, "tree"))
    loads, violations = check_jobs(networks, plan)
    assert violations == []
    at = next(entry["trees"][0]["root"] for entry in plan["jobs"] if entry["name"] == "c")
    others = sum(
        entry["rate_gbps"]
        for entry in plan["jobs"][:2]
        for tree in entry["trees"]
        if at in {tree["root"], *tree["parents"]}
    )
    assert loads[f"slots {at}"] == pytest.approx(others + 2 * plan["jobs"][2]["rate_gbps"])
