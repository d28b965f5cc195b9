"""`python -m iswitch.plan.replan`: a row for each cable that can be lost, and the time to plan anew."""

import re
import subprocess
import sys
from pathlib import Path

from iswitch.plan.replan import LOSSES_HEADER, measure_losses, summary
from iswitch.plan.schemes import make_plan
from iswitch.plan.sensitivity import remove
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.topology import Topology

ROOT = Path(__file__).parents[3]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "iswitch.plan.replan", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_row_shows_the_rates_and_changes_of_each_lost_cable():
    done = run(ROOT / "docs/plan_seed.yaml", "--kind", "level", "--keep-within", 40)
    assert done.returncode == 0, done.stderr
    first, header, *rows, last = done.stdout.splitlines()
    assert first == "one tree, one level: 3.0000 Gb/s, 1 tree(s)" and header == LOSSES_HEADER
    shown = {row.split()[0]: row.split()[1:6] for row in rows}
    assert shown["L2"] == ["1.5000", "0", "1.5000", "2", "2.2500"] and all(len(row) == len(header) for row in rows)
    assert re.fullmatch(
        r"3 cables: a plan takes [\d.]+ s \(median\), [\d.]+ s at most; the running trees have new paths after "
        r"[\d.]+ ms at most; 3 best plans are proved",
        last,
    )


def test_the_best_plan_is_that_without_the_cable():
    topology = seed_example(capacity_gbps=6)
    running = make_plan(topology, "trees")
    for loss in measure_losses(topology, "trees", running, within=0.1, time_s=20.0):
        best = make_plan(remove(topology, loss.cable), "trees")
        assert abs(loss.best_gbps / best.rate_gbps - 1) < 1e-6 and loss.proved
        assert loss.kept_gbps >= best.rate_gbps * 0.9 * (1 - 1e-6)


def test_a_cable_that_is_the_only_path_has_no_row():
    topology = Topology.of(leaf_spine(2, 1, 2), aggregates={"leaf1": 100, "leaf2": 100, "spine1": 100})
    losses = list(measure_losses(topology, "tree", make_plan(topology, "tree"), within=0.1, time_s=5.0))
    assert losses == [] and summary(losses).startswith("no cable between switches can be lost")


def test_wrong_kind_and_file():
    seed = ROOT / "docs/plan_seed.yaml"
    assert "--kind must be one of level, tree, levels, trees, not 'forest'" in run(seed, "--kind", "forest").stderr
    assert "nowhere.yaml" in run("nowhere.yaml").stderr
