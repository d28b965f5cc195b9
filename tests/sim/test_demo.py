"""The command `python -m sim.demo`; training and emulator are left out."""

import pytest
from typer.testing import CliRunner

import sim.demo
import sim.demo_switch


class Addresses:
    """Stands in for the emulator."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def addresses(self):
        return ["here:1", "here:2"]

    def leaves(self, addresses):
        return []

    def check(self):
        pass


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run the command with its output folder and further arguments, and return the exit code and the output."""
    monkeypatch.setattr(sim.demo_switch, "Emulator", Addresses)

    def call(*arguments):
        run = CliRunner().invoke(sim.demo.app, ["--out", str(tmp_path / "out"), *arguments])
        return run.exit_code, " ".join(run.output.split())

    return call


@pytest.mark.parametrize("further", [(), ("--kill", "1"), ("--loss", "0.05"), ("--leaves", "2")])
@pytest.mark.parametrize("solved", [True, False])
def test_the_exit_code_tells_if_the_environment_is_solved(command, monkeypatch, solved, further):
    seen = []

    def launch(options, addresses, out, **settings):
        seen.append((options.seed, options.total_steps))
        return {"solved": solved}

    monkeypatch.setattr(sim.demo, "launch", launch)
    code, output = command("--seed", "7", "--total-steps", "1000", *further)
    assert code == (0 if solved else 1) and seen == [(7, 1000)]
    assert ("-m examples.watch" in output) is solved
    assert ("`make demo SEED=8`, or `make demo STEPS=2000`" in output) is not solved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "33"), "should be less than or equal to"),
        (("--workers", "0"), "should be greater than or equal to 1"),
        (("--workers", "2", "--leaves", "3"), "--leaves must be at most the number of workers, 2, not 3"),
        (("--total-steps", "0"), "total_steps must be at least 1, not 0"),
        (("--loss", "1.5"), "should be less than or equal to 1"),
    ],
)
def test_options_wrong(command, arguments, message):
    code, output = command(*arguments)
    assert code == 2 and message in output.replace("│ ", "").replace(" │", "")
