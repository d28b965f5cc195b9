"""What a demo says when it fails, is stopped or is asked for nonsense; the switch is left out."""

import argparse
import sys

import numpy as np
import pytest

import sim.demo
from examples.crew import LaunchError
from examples.policy import Policy
from iswitch import IswitchError
from sim.demo import made, run


class Addresses:
    """In place of the emulator."""

    def __init__(self, *_, **__):
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True

    def watch(self):
        pass

    def leaves(self, addresses):
        return []

    def addresses(self):
        return ["here:1", "here:2", "here:1"]


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.setattr(sim.demo, "Emulator", Addresses)
    return lambda demo, faults=None, **more: run(tmp_path / "out", 1, faults or {}, demo, workers=3, **more)


@pytest.mark.parametrize("well", [True, False])
def test_the_demo_says_whether_it_went_as_it_should(call, well):
    seen = []
    assert call(lambda addresses, emulator, console: seen.append((addresses, emulator.ended)) or well) == (
        0 if well else 1
    )
    assert seen == [(["here:1", "here:2", "here:1"], False)]


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (LaunchError("a worker died"), 1, "the demo failed: a worker died"),
        (IswitchError("no [answer]"), 1, "the demo failed: no [answer]"),
        (ValueError("not so"), 1, "the demo failed: not so"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_what_goes_wrong_is_a_sentence(call, capsys, error, code, told):
    emulators = []

    def demo(addresses, emulator, console):
        emulators.append(emulator)
        raise error

    assert call(demo) == code
    assert told in capsys.readouterr().out and emulators[0].ended


def test_a_slip_in_the_demo_is_no_sentence(call):
    with pytest.raises(KeyError):
        call(lambda addresses, emulator, console: {}["slip"])


@pytest.mark.parametrize(
    ("faults", "leaves", "told"),
    [
        ({}, 0, "the emulated switch listens at here:1, here:2; no faults"),
        ({"loss": 0.01, "reorder": 0.0}, 2, "2 emulated leaves below a root listen at here:1, here:2; loss 0.01"),
    ],
)
def test_where_it_listens_and_what_is_bad_is_told(call, capsys, faults, leaves, told):
    call(lambda *_: True, faults, leaves=leaves)
    assert capsys.readouterr().out == told + "\n"


def test_options_that_cannot_be_are_the_parsers_error(capsys):
    def make():
        raise ValueError("workers must be at least 1, not 0")

    assert made(argparse.ArgumentParser(), lambda: 3) == 3
    with pytest.raises(SystemExit):
        made(argparse.ArgumentParser(prog="demo"), make)
    assert "demo: error: workers must be at least 1, not 0" in capsys.readouterr().err


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Calls the command with its output folder and further arguments; returns exit code and output."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["demo", "--out", str(tmp_path / "out"), *arguments])
        return sim.demo.main(), " ".join(capsys.readouterr().out.split())

    monkeypatch.setattr(sim.demo, "Emulator", Addresses)
    return call


@pytest.mark.parametrize("further", [(), ("--kill", "1"), ("--loss", "0.05"), ("--leaves", "2")])
@pytest.mark.parametrize("solved", [True, False])
def test_the_exit_status_says_whether_the_environment_is_solved(command, monkeypatch, solved, further):
    seen = []

    def launch(options, addresses, out, **more):
        seen.append((options.seed, options.total_steps))
        return {"solved": solved}

    monkeypatch.setattr(sim.demo, "launch", launch)
    code, said = command("--seed", "7", "--total-steps", "1000", *further)
    assert code == (0 if solved else 1) and seen == [(7, 1000)]
    assert ("--watch --out" in said) is solved and (
        "`make demo SEED=8`, or `make demo STEPS=2000`" in said
    ) is not solved


def test_watch_without_weights_says_what_makes_them(command, tmp_path):
    code, told = command("--watch")
    assert code == 1 and "policy.npz does not exist: no training has kept its weights there yet" in told
    assert "`make demo` trains one first." in told and not (tmp_path / "out").exists()


def test_watch_plays_the_kept_weights(command, tmp_path):
    (tmp_path / "out").mkdir()
    net = (4 + 1) * 2 + (2 + 1) * 2
    weights = np.zeros(net + (2 + 1) * 2 + net + (2 + 1), np.float32)
    policy = Policy(weights=weights, environment="CartPole-v1", hidden=2, seed=5, mean_return=9.0)
    policy.save(tmp_path / "out" / "policy.npz")
    code, told = command("--watch")
    assert code == 0 and f"seed 5, mean return 9.0 in the evaluation, sha256 {policy.weights_sha256[:16]}" in told
    assert "policy.gif: one unseen episode, return" in told
    assert (tmp_path / "out" / "policy.gif").read_bytes().startswith(b"GIF8")


SOUND = dict(weights=np.zeros(9155, np.float32), environment="CartPole-v1", hidden=64, seed=1, mean_return=1.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"environment": "CartPole-v99"}, "Gymnasium does not make the policy's environment 'CartPole-v99'"),
        ({"hidden": -1}, "`hidden` must be"),
        ({"weights": np.full(9155, np.nan, np.float32)}, "finite numbers"),
        ({"weights": np.zeros((9155, 1), np.float32)}, "one vector"),
        ({"weights": np.zeros(7, np.float32)}, "the policy has 7 weights"),
    ],
)
def test_watch_says_what_is_wrong_with_the_kept_weights(command, tmp_path, change, told):
    (tmp_path / "out").mkdir()
    np.savez(tmp_path / "out" / "policy.npz", **(SOUND | change))
    code, said = command("--watch")
    assert code == 1 and "no policy can be played: " in said and told in said


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda out: (out.mkdir(), (out / "policy.npz").mkdir()), "policy.npz cannot be read: Is a directory"),
        (lambda out: out.write_text("x"), "policy.npz cannot be read: Not a directory"),
        (
            lambda out: (out.mkdir(), (out / "policy.npz").write_bytes(b"PK\x03\x04")),
            "is not a policy that a training has kept",
        ),
        (
            lambda out: (out.mkdir(), np.savez(out / "policy.npz", **SOUND), (out / "policy.gif").mkdir()),
            "policy.gif cannot be written: Is a directory",
        ),
    ],
)
def test_watch_says_which_file_cannot_be_used(command, tmp_path, damage, told):
    damage(tmp_path / "out")
    code, said = command("--watch")
    assert code == 1 and told in said


def test_a_folder_that_cannot_be_made_is_a_sentence(call, capsys, tmp_path):
    (tmp_path / "out").write_text("x")
    assert call(lambda *_: True) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "the demo failed: " in said and "out cannot be written: File exists. Choose another folder with --out" in said
    )
