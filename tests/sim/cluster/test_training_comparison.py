"""A comparison of two small trainings, beside the same trainings alone."""

import dataclasses
import json
from functools import partial

import pytest

from iswitch.estimate.costs import Costs as HostCosts
from sim.cluster.rtl_sum import machine_of
from sim.cluster.trainers import make_asynchronous, make_synchronous
from sim.cluster.training_comparison import Task, compare
from sim.cluster.training_costs import Costs
from sim.cluster.training_time import measure
from tests.sim.cluster.test_training_time import FEW

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_comparison_prints_and_writes_each_training_under_its_name(processes, tmp_path, capsys):
    """The times are those that `measure` gives alone, however many processes there are."""
    task = Task(options=dataclasses.replace(FEW, workers=1, solved_return=1, solved_episodes=1), results=tmp_path / "a")
    make_trainers = {"one": make_synchronous, "other": partial(make_asynchronous, threshold=1)}
    found = compare(task, make_trainers, Costs(), seeds=2, workers=2, notes={"remark": 7}, processes=processes)
    options = [dataclasses.replace(task.options, workers=2, seed=seed) for seed in (1, 2)]
    machine = machine_of(HostCosts(), rate_bps=10e9)
    assert found == {
        name: [measure(make(each), each, Costs(), machine) for each in options] for name, make in make_trainers.items()
    }
    written = json.loads(task.results.read_text())
    assert written["remark"] == 7 and written["options"]["workers"] == 2
    printed = " ".join(capsys.readouterr().out.split())  # a title is as narrow as its table
    table = printed.partition("virtual seconds to a mean return of 1, 2 workers, one 5 times as slow")[2]
    for name, rows in found.items():
        assert [each["weights_sha256"] for each in written["trainers"][name]["trainings"]] == [
            row.weights_sha256 for row in rows
        ]
        for row in rows:
            assert f"{row.seconds:.3f}" in table
    assert "seed" in table and "median of updates" in table
