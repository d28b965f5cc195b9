"""`iswitch plan` of a file with several jobs: what it prints, and which options it refuses."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iswitch.plan import run_jobs, several_jobs
from iswitch.plan.check_jobs import check_jobs
from iswitch.plan.topology.files import read_fabric
from iswitch.plan.topology.graph_file import node_link
from iswitch.tools.cli import app

EXAMPLE = Path(__file__).parents[3] / "docs" / "plan_jobs.yaml"


pytestmark = pytest.mark.usefixtures("wide_terminal")


def call(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_json_has_each_job_and_holds():
    result = call(EXAMPLE, "--json")
    assert result.exit_code == 0
    plan = json.loads(result.stdout)
    fabric = read_fabric(EXAMPLE)
    loads, violations = check_jobs({job.name: node_link(job.topology) for job in fabric.jobs}, plan)
    assert violations == [] and loads == plan["loads"]
    assert plan["proved"] and plan["rates_proved"] == 3
    assert [(job["name"], job["weight"], len(job["workers"])) for job in plan["jobs"]] == [
        ("vision", 2.0, 8),
        ("speech", 1.0, 3),
        ("tests", 0.5, 2),
    ]
    vision, speech, tests = plan["jobs"]
    assert vision["rate_gbps"] == pytest.approx(2 * speech["rate_gbps"])
    assert {tuple(limit["shared_with"]) for limit in vision["limits"]} == {("speech",)}
    assert {tuple(limit["shared_with"]) for limit in tests["limits"]} == {()}
    assert tests["alone_gbps"] == pytest.approx(tests["rate_gbps"])


@pytest.fixture
def pair(tmp_path):
    """Two racks with two paths between them, and two jobs that share these."""
    (tmp_path / "pair.yaml").write_text(
        "racks: [{name: leaf, count: 2, hosts: 2, nic_gbps: 10, aggregates: true, capacity_gbps: 40,"
        " uplinks: [{to: spine*, bw_gbps: 8}]}]\n"
        "switches: [{name: spine, count: 2}]\n"
        "jobs: [{name: a, workers: [leaf*-h1], overhead_bytes: 0, uplink_bytes_per_element: 4}, "
        "{name: b, workers: [leaf*-h2], overhead_bytes: 0, uplink_bytes_per_element: 4}]\n"
    )
    return tmp_path / "pair.yaml"


@pytest.mark.parametrize(
    ("options", "words", "after"),
    [
        (["--lose", "spine1"], "without spine1", {"4"}),
        (["--lose", "leaf1-spine2"], "without leaf1-spine2", {"4"}),
        (["--reserve", "leaf1-spine1=6"], "with leaf1-spine1 less 6 Gb/s", {"4"}),
        (["--reserve", "leaf1-spine1=3"], "with leaf1-spine1 less 3 Gb/s", {"5", "8"}),
    ],
)
def test_a_change_is_compared_with_before(pair, options, words, after):
    result = call(pair, *options)
    assert result.exit_code == 0 and words in result.stdout and "proved: no trees give fairer rates" in result.stdout
    rows = [line.strip("│").split("│") for line in result.stdout.splitlines() if line.startswith(("│ a ", "│ b "))]
    assert [row[3].strip() for row in rows] == ["8", "8"] and {row[4].strip() for row in rows} == after


def test_a_job_whose_worker_has_no_path_is_named():
    result = call(EXAMPLE, "--lose", "leaf3-spine")
    assert result.exit_code == 1 and result.stderr.strip() == "job vision: leaf3-h1 has no path to leaf1-h1"


def test_options_of_the_job_hold_for_all_jobs():
    result = call(EXAMPLE, "--json", "--return-path", "none", "--max-slots", "30", "--adjacent", "--kind", "level")
    plan = json.loads(result.stdout)
    for job in plan["jobs"]:
        assert (job["settings"]["return_path"], job["settings"]["max_slots"]) == ("none", 30)
        assert job["rate_gbps"] <= 30 * 704 * 8e-3 / 50 * (1 + 1e-6)
        assert all(len(path) == 2 for path in job["trees"][0]["up"].values())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--kind", "trees"], "--kind trees plans several trees of one job: for several jobs, pass --kind level or"),
        (["--kind", "levels"], "--kind levels plans several trees of one job"),
        (["--upgrade", "1"], "--upgrade can be used for one job only, and plan_jobs.yaml has several: leave it out"),
        (["--svg", "x.svg"], "--svg can be used for one job only"),
        (["--keep", "x.json"], "--keep can be used for one job only"),
        (["--topology", "x.json"], "--topology can be used for one job only"),
        (["--topology", "x.json", "--svg", "x.svg"], "--svg and --topology can be used for one job only"),
        (["--previous", "x.json"], "x.json: No such file or directory"),
        (["--lose", "X9"], "there is no cable 'X9'"),
    ],
)
def test_what_several_jobs_do_not_have_is_refused(options, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(EXAMPLE, *options)
    assert result.exit_code == 1 and why in result.stderr and list(tmp_path.iterdir()) == []


def test_an_earlier_configuration_is_compared(pair):
    config = pair.with_name("config.json")
    assert call(pair, "--config", config).exit_code == 0
    first = json.loads(config.read_text())
    assert {number: job["name"] for number, job in first["jobs"].items()} == {"0": "a", "1": "b"}
    assert "epoch 1: no changes" in call(pair, "--previous", config).stdout
    result = call(pair, "--previous", config, "--lose", "spine1", "--config", config)
    assert re.search(r"epoch 2: \d+ changes", result.stdout) and json.loads(config.read_text())["epoch"] == 2
    pair.write_text(pair.read_text() + "# no job is in this file\n")
    assert "is not a file that --config has written" in call(pair, "--previous", pair).stderr


def test_a_plan_that_does_not_hold_is_not_printed(monkeypatch):
    """The plan of `plan_jobs` is checked before anything is printed."""
    plan_jobs = run_jobs.plan_jobs

    def too_fast(*arguments, **options):
        plan = plan_jobs(*arguments, **options)
        first, *others = plan.jobs
        tree = type(first.tree)(**{**vars(first.tree), "rate_gbps": first.tree.rate_gbps * 1.01})
        return type(plan)(**{**vars(plan), "jobs": (first._replace(tree=tree), *others)})

    monkeypatch.setattr(run_jobs, "plan_jobs", too_fast)
    result = call(EXAMPLE)
    assert isinstance(result.exception, RuntimeError) and "together the jobs take" in str(result.exception)
    assert result.stdout == ""


def test_a_rate_alone_that_is_not_proved_has_its_bound(pair, monkeypatch):
    make_plan = several_jobs.make_plan
    unproved = lambda *arguments, **options: replace(make_plan(*arguments, **options), bound_gbps=9.5)
    monkeypatch.setattr(several_jobs, "make_plan", unproved)
    result = call(pair)
    assert result.stdout.count(" 8 (at most 9.5) ") == 2


def test_the_end_of_the_time_is_said():
    result = call(EXAMPLE, "--seconds", "0.1")
    assert result.exit_code == 0
    assert "proved" in result.stdout or "Gb/s x weight; no trees give every job more than" in result.stdout
