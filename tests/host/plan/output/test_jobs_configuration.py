"""The configuration of several jobs: each worker reaches the root of its job, by the addresses of the switches."""

from pathlib import Path

import pytest

from iswitch.plan.output import jobs_configuration
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.output.jobs_configuration import make_jobs_configuration
from iswitch.plan.sensitivity import remove
from iswitch.plan.several_jobs import plan_jobs
from iswitch.plan.topology.files import read_fabric
from iswitch.plan.topology.shared_fabric import SharedFabric
from sim.bench.mutant import mutant

EXAMPLE = read_fabric(Path(__file__).parents[4] / "docs" / "plan_jobs.yaml")


@pytest.fixture(scope="module")
def planned():
    return plan_jobs(EXAMPLE, "tree")


def configured(planned, make=make_jobs_configuration):
    return make([each.job for each in planned.jobs], [each.plan for each in planned.jobs])


def sums_end_at_roots(made, planned):
    """Follow each worker of each job by addresses only, from switch to switch, and assert that the root sums it."""
    by_address = {(entry["mac"], entry["ip"]): name for name, entry in made["switches"].items()}
    assert len(made["jobs"]) == len(planned.jobs)
    for number, each in enumerate(planned.jobs):
        job, settings = str(number), made["jobs"][str(number)]
        workers = {name: entry for name, entry in made["workers"].items() if job in entry["jobs"]}
        assert settings["name"] == each.job.name and settings["world"] == len(workers)
        assert settings["rate_gbps"] == pytest.approx(each.tree.rate_gbps)
        assert sorted(workers) == sorted(each.job.topology.workers)
        assert sorted(entry["rank"] for entry in workers.values()) == list(range(len(workers)))
        roots = [name for name, entry in made["switches"].items() if entry["jobs"].get(job, {}).get("role") == "root"]
        assert len(roots) == 1
        for entry in workers.values():
            to, child = entry["jobs"][job]["sends_to"], entry["rank"]
            while to:
                at = by_address[to["mac"], to["ip"]]
                role = made["switches"][at]["jobs"][job]
                assert child in role["ranks"]
                to = role["parent"]
            assert at == roots[0]


def test_each_worker_reaches_the_root_of_its_job(planned):
    sums_end_at_roots(configured(planned), planned)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("original", "wrong"),
    [
        ('["jobs"] |= {str(number): role', '["jobs"] = {str(number): role'),
        ('made["jobs"][str(number)] = {', 'made["jobs"]["0"] = {'),
        ('entry | {"jobs": {str(number): role for', 'entry | {"jobs": {"0": role for'),
    ],
    ids=["the last job only", "one job", "workers of one job"],
)
def test_a_mutant_is_noticed(planned, original, wrong):
    with pytest.raises((AssertionError, KeyError)):
        sums_end_at_roots(
            configured(planned, mutant(jobs_configuration, original, wrong).make_jobs_configuration), planned
        )


def test_one_job_has_the_switches_workers_and_cables_of_a_file_without_jobs(planned):
    each = planned.jobs[0]
    made, alone = make_jobs_configuration([each.job], [each.plan]), make_configuration(each.job.topology, each.plan)
    assert all(made[part] == alone[part] for part in ("epoch", "scheme", "switches", "workers", "links"))


def test_cables_of_several_jobs_are_listed_once(planned):
    names = [link["name"] for link in configured(planned)["links"]]
    assert len(names) == len(set(names))


def test_what_is_left_after_a_loss_keeps_its_ports():
    given = SharedFabric(EXAMPLE.jobs[2:])  # its two workers are at leaf4
    left = given.change(lambda topology: remove(topology, "leaf2"))
    plan = plan_jobs(left, "tree")
    made = make_jobs_configuration(left.jobs, [each.plan for each in plan.jobs], wired=given)
    before = make_jobs_configuration(given.jobs, [each.plan for each in plan_jobs(given, "tree").jobs])
    assert made["switches"]["spine"]["ports"] == before["switches"]["spine"]["ports"]
    assert made["switches"]["leaf4"]["number"] == before["switches"]["leaf4"]["number"]
