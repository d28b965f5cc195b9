"""`iswitch plan` prints what the docs show. Errors are a sentence and exit code 1."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iswitch.plan.check import check_plan
from iswitch.plan.output.words import format_gbps
from iswitch.plan.schemes import make_plan
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.graph_file import node_link
from iswitch.tools.cli import app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SHOWN = re.findall(
    r"^```\n\$ iswitch plan (.*)\n([^`]*)```$", (DOCS / "plan.md").read_text(encoding="utf-8"), re.MULTILINE
)

pytestmark = pytest.mark.usefixtures("wide_terminal")

FABRIC = """\
racks: [{name: rack, count: 2, hosts: 2, nic_gbps: 10,
         aggregates: true, capacity_gbps: 40, uplinks: [{to: core, bw_gbps: 40}]}]
switches: [{name: core, aggregates: true, capacity_gbps: 100}]
"""


def call(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture
def fabric(tmp_path):
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    return tmp_path / "fabric.yaml"


def test_the_docs_show_four_commands():
    assert len(SHOWN) == 4 and all(arguments.startswith("docs/") for arguments, _ in SHOWN)


@pytest.mark.parametrize(("arguments", "shown"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_the_docs_show_what_is_printed(arguments, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = call(*arguments.split())
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.stdout.splitlines()] == shown.splitlines()


def test_the_files_in_the_docs_are_the_files():
    text = (DOCS / "plan.md").read_text(encoding="utf-8")
    seed, jobs = re.findall(r"^```yaml\n([^`]*)```$", text, re.MULTILINE)
    assert (DOCS / "plan_seed.yaml").read_text(encoding="utf-8").endswith(seed)
    assert (DOCS / "plan_jobs.yaml").read_text(encoding="utf-8").endswith(jobs)


def test_the_drawing_in_the_docs_is_current(tmp_path):
    assert call(DOCS / "plan_seed.yaml", "--kind", "level", "--only", "--svg", tmp_path / "seed.svg").exit_code == 0
    assert (tmp_path / "seed.svg").read_text(encoding="utf-8") == (DOCS / "plan_seed.svg").read_text(encoding="utf-8")


def test_twelve_racks_are_planned_as_the_docs_say():
    topology = read_topology(DOCS / "plan_12racks.yaml")
    assert (len(topology.workers), len(topology.aggregators)) == (48, 14)
    text = (DOCS / "plan.md").read_text(encoding="utf-8")
    for kind, scheme in (("level", "one tree, one level"), ("tree", "one tree, several levels")):
        plan = make_plan(topology, kind)
        assert plan.gap < 1e-6 and f"| {scheme} | {plan.rate_gbps:.4f}, proved |" in text
        assert check_plan(node_link(topology), plan.to_dict(), levels=1 if kind == "level" else None)[1] == []


def test_json_has_everything(fabric):
    found = json.loads(call(fabric, "--adjacent", "--json").stdout)
    assert found["rate_gbps"] == pytest.approx(10 / 1.125) and found["gap"] == 0
    assert found["loads_gbps"]["rack1>core"] == pytest.approx(10 / 1.125 * 2.125)
    assert found["configuration"]["emulator"]["arguments"][:2] == ["--switches", "3"]


def test_json_has_the_rows_of_the_table(monkeypatch):
    """The rates, bounds, numbers of trees and bottlenecks are those that the docs show."""
    monkeypatch.chdir(ROOT)
    arguments, shown = SHOWN[0]
    found = json.loads(call(*arguments.split(), "--json").stdout)
    printed = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line[:1] == "│"]
    rows = {row["scheme"]: row for row in found["schemes"]}
    assert [cells[0] for cells in printed[:8]] == list(rows)
    assert [row["kind"] for row in rows.values()] == [None] * 4 + ["level", "tree", "levels", "trees"]
    for scheme, rate, bound, trees, bottlenecks in printed[:8]:
        row = rows[scheme]
        assert (format_gbps(row["rate_gbps"]), str(row["trees"])) == (rate, trees)
        assert row["gap"] == (pytest.approx(0, abs=1e-6) if bound == "proved" else None)
        assert (row["bound_gbps"] is None) == (bound == "")
        names = {name for each in row["bottlenecks"] for name in each["resource"].split(", ")}
        assert {bottlenecks.split(", ")[0]} <= names
    assert "its program, without links, promises 3" in rows["GRID, repaired"]["note"]
    assert found["rate_gbps"] == rows["one tree, one level"]["rate_gbps"]


def test_json_has_the_reason_of_a_scheme_without_a_plan(fabric):
    fabric.write_text(FABRIC.replace("capacity_gbps: 40", "capacity_gbps: 40, members: 1"))
    rows = {row["scheme"]: row for row in json.loads(call(fabric, "--json").stdout)["schemes"]}
    assert rows["ATP-like"]["rate_gbps"] is None and "(members)" in rows["ATP-like"]["reason"]
    assert json.loads(call(fabric, "--only", "--json").stdout)["schemes"] == []


def test_a_running_plan_is_kept_and_the_price_is_printed(tmp_path, monkeypatch):
    """Without L2 the best tree changes two switches at least; the running one is slower without it."""
    monkeypatch.chdir(ROOT)
    arguments = ("docs/plan_seed.yaml", "--kind", "level", "--only")
    (tmp_path / "plan.json").write_text(call(*arguments, "--json").stdout)
    keep = (*arguments, "--keep", tmp_path / "plan.json")
    assert "changes no switch, at 3 Gb/s: as fast as the best plan, which changes no switch" in call(*keep).output
    best = call(*keep, "--lose", "L2").output
    assert "changes 2 switches (S1, S2), at 2.25 Gb/s" in best and "1.5 Gb/s would change no switch" in best
    kept = call(*keep, "--lose", "L2", "--keep-within", 40).output
    assert "changes no switch, at 1.5 Gb/s: 33.3% less than the best plan, which changes 2 switches (S1, S2)" in kept
    assert "2.25 Gb/s would change 2 switches (S1, S2)" in kept and "one level: 1.5 Gb/s from each worker" in kept
    found = json.loads(call(*keep, "--lose", "L2", "--keep-within", 40, "--json").stdout)
    assert found["rate_gbps"] == found["keep"]["rate_gbps"] == pytest.approx(1.5)
    assert found["keep"]["changed"] == [] and found["keep"]["best"]["changed"] == ["S1", "S2"]
    assert found["keep"]["price"] == pytest.approx(1 / 3)


def test_limits_are_those_of_the_file_unless_options_say_otherwise(fabric):
    fabric.write_text(
        FABRIC.replace("switches: [", "switches: [{name: spare, aggregates: true, capacity_gbps: 100}, ")
        .replace("bw_gbps: 40}", "bw_gbps: 10}, {to: spare, bw_gbps: 10}")
        .replace("nic_gbps: 10", "nic_gbps: 30")
        .replace("racks:", "job: {max_trees: 1}\nracks:")
    )
    found, alone = {}, ("--only", "--adjacent", "--kind", "trees")
    for options in ((), ("--max-trees", 2), ("--max-trees", 2, "--max-slots", 60)):
        plan = found[options] = json.loads(call(fabric, *alone, "--json", *options).stdout)
        roles = [switch["jobs"].values() for switch in plan["configuration"]["switches"].values()]
        reserved = max(sum(role["slots"] for role in each) for each in roles)
        assert len(plan["trees"]) <= max(options[1:2], default=1) and reserved <= max(options[3:], default=reserved)
    rates = [each["rate_gbps"] for each in found.values()]
    assert rates == pytest.approx([10 / 2.125, 2 * 10 / 2.125, 60 * 704 * 8e-3 / 50])
    assert "at most 2 trees; trees reserve at most 60 slots at a switch" in call(fabric, *alone, *options).output


def test_files_are_written_and_compared(fabric, tmp_path):
    first, expanded, second = tmp_path / "first.json", tmp_path / "fabric.json", tmp_path / "second.json"
    assert call(fabric, "--only", "--config", first, "--topology", expanded).exit_code == 0
    again = call(expanded, "--only", "--previous", first, "--config", second)
    assert "epoch 1: no changes" in again.output and json.loads(second.read_text()) == json.loads(first.read_text())
    fabric.write_text(FABRIC.replace("hosts: 2", "hosts: 3"))
    more = call(fabric, "--only", "--previous", first, "--config", second)
    assert "switches.rack1.jobs.0.ranks: 0-1 -> 0-2" in more.output and json.loads(second.read_text())["epoch"] == 2


def test_a_removed_cable_changes_no_other_port(fabric, tmp_path):
    fabric.write_text(
        FABRIC.replace("switches: [", "switches: [{name: spare, aggregates: true, capacity_gbps: 100}, ").replace(
            "bw_gbps: 40}", "bw_gbps: 40}, {to: spare, bw_gbps: 40}"
        )
    )
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert call(fabric, "--only", "--adjacent", "--config", first).exit_code == 0
    changed = call(fabric, "--only", "--adjacent", "--lose", "rack1-core", "--previous", first, "--config", second)
    assert changed.exit_code == 0 and ".ports." not in changed.output
    assert json.loads(second.read_text())["switches"]["rack1"]["ports"] == {
        "0": "rack1-h1",
        "1": "rack1-h2",
        "2": "core",
        "3": "spare",
    }


@pytest.mark.parametrize("text", ["[]", "{}", "racks: []", '{"epoch": 1}'])
def test_a_file_that_is_not_a_configuration_is_refused(fabric, tmp_path, text):
    (tmp_path / "old.json").write_text(text)
    result = call(fabric, "--only", "--previous", tmp_path / "old.json")
    assert result.exit_code == 1 and "old.json is not a file that --config has written" in result.stderr


def test_the_emulators_arguments_are_printed(fabric):
    assert "python -m sim.emulator --switches 3 --ports 3" in call(fabric, "--only", "--adjacent").output


def test_upgrades_and_reservations_are_printed(fabric):
    fabric.write_text(FABRIC.replace("aggregates: true, capacity_gbps: 40, ", ""))
    reserved = ("--reserve", "rack1-core=30", "--reserve", "rack2-core=30")
    text = " ".join(call(fabric, "--only", "--upgrade", 2, "--upgrade-gbps", 40, *reserved).output.split())
    assert re.search(
        r"with rack1-core less 30 Gb/s; with rack2-core less 30 Gb/s; with rack[12] and rack[12] aggregating 40 Gb/s: "
        r"8.8889 -> 4.7059 Gb/s",
        text,
    )
    text = call(fabric, "--only", "--upgrade", 2, "--upgrade-gbps", 40).output
    assert "with no switch upgraded, since none would help: 8.8889 -> 8.8889 Gb/s" in text


def test_names_are_printed_as_they_are(fabric):
    """Neither [a] nor [/a] is markup."""
    fabric.write_text(FABRIC.replace("name: rack,", "name: 'rack[/a]',").replace("core", "'core[a]'"))
    result = call(fabric, "--lose", "core[a]-rack[/a]2", "--upgrade", 1)
    assert result.exit_code == 1 and "rack[/a]" in result.stderr
    result = call(fabric, "--reserve", "rack[/a]1-core[a]=1", "--adjacent")
    assert result.exit_code == 0, result.exception
    assert "with rack[/a]1-core[a] less 1 Gb/s" in result.output and re.search(
        r"│ core\[a\] +│ sum of rack", result.output
    )


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        (("count: 2", "count: two"), (), "fabric.yaml:1: count of rack rack must be a whole number, not two"),
        (("uplinks: [{to: core, bw_gbps: 40}]", "slots: 4"), (), "fabric.yaml:1: rack2-h1 has no path to rack1-h1"),
        (("", ""), ("--lose", "rack1-core"), "rack2-h1 has no path to rack1-h1|rack1-h1 has no path to"),
        (("", ""), ("--lose", "L9"), "there is no cable 'L9'"),
        (("", ""), ("--reserve", "L9"), "must be LINK=GBPS"),
        (("", ""), ("--upgrade-gbps", "9"), "--upgrade-gbps is the capacity of the switches of --upgrade K"),
        (("", ""), ("--kind", "forest"), "--kind must be one of level, tree, levels, trees, not 'forest'"),
        (("racks:", "job: {max_trees: 0}\nracks:"), (), "fabric.yaml:1: max_trees of the job must be above 0, not 0"),
        (
            ("racks:", "job:\n  max_slots: 2.5\nracks:"),
            (),
            "fabric.yaml:2: max_slots of the job must be a whole number",
        ),
        (
            ("racks:", "job: {trees: 2}\nracks:"),
            (),
            "fabric.yaml:1: the job has no setting 'trees'; is 'max_trees' meant?",
        ),
        (("", ""), ("--keep", "nowhere.json"), "nowhere.json: No such file or directory"),
        (("", ""), ("--keep", __file__), "test_command.py is not a plan: make one with `iswitch plan FILE --json"),
        (
            ("", ""),
            ("--keep", "x.json", "--upgrade", "1"),
            "--keep changes as few switches as possible: leave --upgrade out",
        ),
        (("", ""), ("--return-path", "up"), "return_path of the job must be multicast, unicast or none, not 'up'"),
        (("capacity_gbps: 100", "capacity_gbps: 100, members: 1"), ("--kind", "level"), "no tree reaches all workers"),
        (
            ("core, aggregates: true, capacity_gbps: 100", "core"),
            ("--adjacent",),
            "with --adjacent sums go to neighbours only",
        ),
    ],
)
def test_an_error_is_a_sentence_and_exit_code_1(fabric, change, options, why):
    text = FABRIC.replace(*change) if change[0] else FABRIC
    if "members" in change[1]:
        text = text.replace("capacity_gbps: 40", "capacity_gbps: 40, members: 1")
    fabric.write_text(text)
    result = call(fabric, *options)
    assert result.exit_code == 1
    assert any(each in result.stderr for each in why.split("|")), result.stderr


def test_a_missing_file_is_reported():
    result = call("nowhere.yaml")
    assert (result.exit_code, result.stderr) == (1, "nowhere.yaml: No such file or directory\n")


WITHOUT = """\
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
"""
"""The head of a program that runs as if some packages were not installed."""


def without(packages, code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, packages, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("module", ["iswitch", "iswitch.tools.cli"])
def test_driver_and_command_line_work_without_the_extra_plan(module):
    """They run as if the extra `plan` were not installed."""
    done = without("highspy,networkx,yaml", f"import {module}\nassert 'iswitch.plan' not in sys.modules\n")
    assert done.returncode == 0, done.stderr


def test_the_planner_works_without_the_extra_schedule():
    arguments = ("plan", str(DOCS / "plan_seed.yaml"), "--only")
    done = without("gymnasium,matplotlib", "from iswitch.tools.cli import main\nmain()\n", *arguments)
    assert done.returncode == 0 and "one tree, several levels: 3 Gb/s" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [[], ["docs/plan_seed.yaml"], ["docs/plan_seed.yaml", "--kind", "level", "--lose", "L1"], ["--unknown"]],
)
def test_without_its_extra_the_planner_names_the_extra(arguments):
    done = without("networkx", "import iswitch.tools.cli\niswitch.tools.cli.main()\n", "plan", *arguments)
    assert (done.returncode, done.stderr) == (
        1,
        "iswitch plan needs networkx, which is not installed: pip install 'iswitch-rl[cli,plan]', or in a checkout "
        "of the project pip install "
        "'.[cli,plan]'\n",
    )


def test_without_its_extra_the_help_of_the_planner_names_the_extra():
    done = without("networkx", "import iswitch.tools.cli\niswitch.tools.cli.main()\n", "plan", "--help")
    assert "pip install 'iswitch-rl[cli,plan]'" in done.stdout


def test_without_its_extra_the_command_line_names_the_extra():
    done = without("rich,typer", "import iswitch.tools.cli\n")
    assert done.returncode == 1 and done.stderr.startswith(
        "the command line of iswitch needs rich and typer, which are not installed: pip install"
    )
