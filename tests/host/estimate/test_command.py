import json

import pytest
from typer.testing import CliRunner

from iswitch.estimate.command import costs_of, parse_size
from iswitch.estimate.costs import Costs
from iswitch.estimate.setting import Setting
from iswitch.estimate.systems import ISWITCH, SYSTEMS, estimate, verdict
from iswitch.tools.cli import app


def call(*arguments):
    return CliRunner().invoke(app, ["estimate", *arguments])


def test_the_command_prints_what_the_models_give():
    done = call("--size", "40.02KB", "--compute-ms", "0.25", "--rate", "25", "--workers", "3", "--json")
    rows = json.loads(done.output)["systems"]
    setting = Setting(size_bytes=40_020, workers=3, compute_s=0.25e-3, rate_bps=25e9)
    assert {name: row["total_s"] for name, row in rows.items()} == pytest.approx(
        {name: run(setting).total_s for name, run in SYSTEMS.items()}
    )


def test_costs_of_the_command_line_go_before_those_of_a_file(tmp_path):
    file = tmp_path / "costs.json"
    file.write_text('{"card_us": 7, "cable_us": 8}')
    found = costs_of(["card_us=9"], file, Costs())
    assert (found.card_us, found.cable_us, found.wake_us) == (9, 8, Costs().wake_us)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[7]", "must hold an object of costs by name"), ('{"card_us": "fast"}', "costs must be numbers")],
)
def test_a_file_that_holds_no_costs_is_refused(tmp_path, text, words):
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        costs_of([], file, Costs())


def test_the_verdict_names_the_best_system_even_if_it_is_not_the_switch():
    found = estimate(Setting(size_bytes=6_410_000))
    assert verdict(found).startswith("The switch is ")
    slow = estimate(Setting(size_bytes=40_020, costs=Costs(clock_hz=1e6)))
    assert " times as fast as the switch" in verdict(slow) and slow.ratio("ring") < 1
    assert slow.ratio(ISWITCH) == 1


@pytest.mark.parametrize(
    "text, size", [("6.41MB", 6_410_000), ("40.02 KB", 40_020), ("1MiB", 1 << 20), ("5", 8), ("1e", None), ("0", None)]
)
def test_sizes_have_units(text, size):
    if size is None:
        with pytest.raises(ValueError, match="--size must be"):
            parse_size(text)
    else:
        assert parse_size(text) == size


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--size", "big"), "--size must be a number"),
        (("--size", "6.41", "--workers", "4"), "--size must be at least 4 bytes for each of the 4 workers, not '6.41'"),
        (("--size", "12B", "--workers", "4"), "is a unit missing, as in 6.41MB?"),
        (("--size", "1MB", "--workers", "1"), "workers must be at least 2"),
        (("--size", "1MB", "--rate", "0"), "rate_bps must be at least 1"),
        (("--size", "1MB", "--compute-ms", "-1"), "compute_s must be at least 0"),
        (("--size", "1MB", "--compute-ms", "inf"), "compute_s must be at most 1e+06, not inf"),
        (("--size", "1MB", "--compute-ms", "1e308"), "compute_s must be at most 1e+06, not 1e+305"),
        (("--size", "1B"), "4 bytes for each of the 4 workers, not '1B'"),
        (("--size", "1MB", "--cost", "card_us"), "--cost must be NAME=NUMBER"),
        (("--size", "1MB", "--cost", "speed=1"), "no costs are called speed"),
        (("--size", "1MB", "--costs", "/nonexistent"), "cannot be read as JSON"),
        (("--size", "3GB"), "bytes together at most"),
    ],
)
def test_wrong_options_are_one_sentence(arguments, words):
    done = call(*arguments)
    assert done.exit_code == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_a_cost_that_the_user_gives_has_no_other_source():
    shown = call("--size", "16B", "--cost", "clock_hz=100e6", "--show-costs").output
    assert "clock_hz 1e+08: given\n" in shown and "cycles 29: counted in the compiled RTL\n" in shown


def test_the_command_says_when_no_switch_has_so_many_workers():
    options = ["--size", "4KB", "--rack", "8", "--workers"]
    assert "a job has 32 workers at most" in " ".join(call(*options, "33").output.split())
    assert "No switch does this" not in call(*options, "32").output
    assert "a job has 32 workers at most" in json.loads(call(*options, "33", "--json").output)["reservation"]


@pytest.mark.parametrize("options, is_said", [((), False), (("--cost", "udp_call_us=0"), True)])
def test_the_command_says_if_the_time_of_a_call_is_not_counted(options, is_said):
    printed = call("--size", "40KB", *options).output
    assert ("The time of a call of the iswitch driver is not counted" in printed) == is_said
