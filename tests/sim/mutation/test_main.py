"""A run tries the sample, keeps what it found after each mutant, and tries nothing again without need."""

import sys
from contextlib import nullcontext

import pytest

import sim.mutation.__main__
from sim.mutation.copied import ROOT, Verdict
from sim.mutation.operators import mutants, sample
from sim.mutation.results import read, write

COMPONENT = "hw/decide/lowest_missing.py"
SOURCE = (ROOT / COMPONENT).read_text()
SAMPLE = sample(mutants(SOURCE), 4, 1)
OUTCOMES = dict(zip([mutant.source for mutant in SAMPLE], ["failed", "passed", "refused", "raised"]))


class Copy:
    """Stands for tests with known verdicts, and keeps the sources that it was asked about."""

    tests = 8

    def __init__(self):
        self.asked = []

    def judge(self, source):
        self.asked.append(source)
        return Verdict(OUTCOMES.get(source, "passed"), "", "", 1.0)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs the command, and returns its status, the sources after the sound one, and what it has kept."""

    def run(*options, copy=None):
        copy = copy or Copy()
        monkeypatch.setattr(sim.mutation.__main__, "copied", lambda *_, **__: nullcontext(copy))
        command = ["mutation", COMPONENT, "--count", "4", "--out", str(tmp_path / "kept.json"), *options]
        monkeypatch.setattr(sys, "argv", command)
        status = sim.mutation.__main__.main()
        return status, copy.asked[1:], read(tmp_path / "kept.json").get(COMPONENT)

    return run


def test_each_mutant_of_the_sample_is_tried_and_what_survives_fails_the_run(run):
    status, tried, kept = run()
    assert status == 1 and tried == [mutant.source for mutant in SAMPLE]
    assert list(kept.outcomes.values()) == ["failed", "passed", "refused", "raised"]
    assert list(kept.survivors) == [SAMPLE[1].name]
    assert (kept.built, kept.noticed, kept.equivalent) == (3, 2, 0)


def test_what_is_known_is_not_tried_again_unless_told_so(run):
    assert len(run()[1]) == 4
    assert run()[1] == []
    assert run("--survivors")[1] == [SAMPLE[1].source]
    assert run("--again")[1] == [mutant.source for mutant in SAMPLE]
    assert len(run("--count", "6")[1]) == 2


def test_a_reason_is_kept_and_a_survivor_with_a_reason_does_not_fail_the_run(run, tmp_path):
    kept = run()[2]
    kept.survivors[SAMPLE[1].name].reason = "because"
    write({COMPONENT: kept}, tmp_path / "kept.json")
    status, _, kept = run("--again")
    assert status == 0
    assert kept.survivors[SAMPLE[1].name].reason == "because"


def test_a_run_that_is_ended_keeps_the_mutants_before(run, tmp_path):
    class Ended(Copy):
        def judge(self, source):
            if len(self.asked) == 3:
                raise KeyboardInterrupt
            return super().judge(source)

    with pytest.raises(KeyboardInterrupt):
        run(copy=Ended())
    assert list(read(tmp_path / "kept.json")[COMPONENT].outcomes.values()) == ["failed", "passed"]
    assert [mutant.source for mutant in SAMPLE[2:]] == run()[1]


def test_tests_that_fail_without_a_mutant_are_said(run, monkeypatch, capsys):
    monkeypatch.setitem(OUTCOMES, SOURCE, "failed")
    assert run()[0] == 2
    assert "the tests fail without a mutant" in capsys.readouterr().out


def test_one_mutant_alone_is_not_kept(run):
    status, tried, kept = run("--only", SAMPLE[2].name)
    assert (status, tried, kept) == (0, [SAMPLE[2].source], None)


def test_a_list_is_the_sample(run, capsys):
    assert run("--list")[1:] == ([], None)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [mutant.name for mutant in SAMPLE]


def test_a_file_without_tests_of_its_own_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mutation", "hw/switch.py"])
    with pytest.raises(SystemExit):
        sim.mutation.__main__.main()
    assert "invalid choice: 'hw/switch.py'" in capsys.readouterr().err
