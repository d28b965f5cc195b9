"""The messages and exit codes of a demo that fails or is stopped; the emulator is left out."""

import pytest
import typer

import sim.demo_switch
from examples.common.processes import LaunchError
from iswitch import IswitchError
from sim.demo_switch import option_errors, run


class Addresses:
    """Stands in for the emulator."""

    def __init__(self, *_, **__):
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True

    def addresses(self):
        return ["here:1", "here:2", "here:1"]


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.setattr(sim.demo_switch, "Emulator", Addresses)
    return lambda demo, faults=None, **more: run(tmp_path / "out", 1, faults or {}, demo, workers=3, **more)


@pytest.mark.parametrize("succeeds", [True, False])
def test_the_exit_code_is_that_of_the_demo(call, succeeds):
    seen = []
    code = call(lambda addresses, emulator, console: seen.append((addresses, emulator.ended)) or succeeds)
    assert code == (0 if succeeds else 1)
    assert seen == [(["here:1", "here:2", "here:1"], False)]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LaunchError("a worker died"), 1, "the demo failed: a worker died"),
        (IswitchError("no [answer]"), 1, "the demo failed: no [answer]"),
        (ValueError("not so"), 1, "the demo failed: not so"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_a_failure_is_one_sentence(call, capsys, error, code, message):
    emulators = []

    def demo(addresses, emulator, console):
        emulators.append(emulator)
        raise error

    assert call(demo) == code
    assert message in capsys.readouterr().out and emulators[0].ended


def test_a_bug_in_the_demo_is_raised(call):
    with pytest.raises(KeyError):
        call(lambda addresses, emulator, console: {}["bug"])


@pytest.mark.parametrize(
    ("faults", "leaves", "message"),
    [
        ({}, 0, "the emulated switch listens at here:1, here:2; no faults"),
        ({"loss": 0.01, "reorder": 0.0}, 2, "2 emulated leaves below a root listen at here:1, here:2; loss 0.01"),
    ],
)
def test_addresses_and_faults_are_printed(call, capsys, faults, leaves, message):
    call(lambda *_: True, faults, leaves=leaves)
    assert capsys.readouterr().out == message + "\n"


def test_option_errors_are_reported_as_wrong_options():
    with pytest.raises(typer.BadParameter, match="workers must be at least 1, not 0"), option_errors():
        raise ValueError("workers must be at least 1, not 0")


def test_a_folder_that_cannot_be_made_is_one_sentence(call, capsys, tmp_path):
    (tmp_path / "out").write_text("x")
    assert call(lambda *_: True) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "the demo failed: " in output
    assert "out cannot be written: File exists. Choose another folder with --out" in output
