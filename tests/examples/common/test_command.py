"""Command lines that are made of a dataclass."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from typer import Option
from typer.testing import CliRunner

from examples.common.command import Switch, application, check_ranges, parse_addresses


@dataclass(frozen=True, kw_only=True)
class Options:
    num_steps: Annotated[int, Option(help="Steps of a rollout.")] = 8
    gamma: Annotated[float, Option(help="Discount factor.")] = 0.9
    ordered: Annotated[bool, Option(help="A fixed order.")] = False

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"Options num_steps must be at least 1, not {self.num_steps}")


def call(*arguments, returned=None, presets=None):
    seen = []

    def main(options: Options, switch: Switch = "here:1"):
        """Train a policy."""
        seen.append((options, switch))
        return returned

    run = CliRunner().invoke(application(main, presets), arguments)
    return run.exit_code, " ".join(run.output.split()), seen


def test_each_field_is_an_option():
    assert call()[2] == [(Options(), "here:1")]
    code, _, seen = call("--num-steps", "3", "--gamma", "0.5", "--ordered", "--switch", "there:2")
    assert code == 0 and seen == [(Options(num_steps=3, gamma=0.5, ordered=True), "there:2")]


def test_options_win_over_a_preset_and_a_preset_over_the_defaults():
    presets = {"short": {}, "long": {"num_steps": 100, "gamma": 0.99}}
    assert call(presets=presets)[2] == [(Options(), "here:1")]
    code, _, seen = call("--preset", "long", "--gamma", "0.9", presets=presets)
    assert code == 0 and seen == [(Options(num_steps=100, gamma=0.9), "here:1")]
    code, output, seen = call("--preset", "longer", presets=presets)
    assert code == 2 and "is not one of 'short'" in output and not seen


@pytest.mark.parametrize("returned, code", [(None, 0), (True, 0), (False, 1)])
def test_false_is_a_failure(returned, code):
    assert call(returned=returned)[0] == code


def test_a_value_that_the_dataclass_refuses_is_a_wrong_option():
    code, output, seen = call("--num-steps", "0")
    assert code == 2 and "num_steps must be at least 1, not 0" in output and not seen


def test_the_help_has_the_texts_of_the_fields():
    code, output, _ = call("--help")
    assert code == 0 and all(text in output for text in ("Train a policy.", "Steps of a rollout.", "--gamma"))


def test_addresses_of_ports():
    assert parse_addresses("a:1-3") == ["a:1", "a:2", "a:3"]
    assert parse_addresses("a:1,b:7") == ["a:1", "b:7"]
    assert parse_addresses("10.0.0.9") == ["10.0.0.9"]


@dataclass(frozen=True)
class Ranges:
    steps: Annotated[int, Option(min=1)] = 1
    gamma: Annotated[float, Option(min=0, max=1)] = 0.5
    rate: Annotated[float, Option()] = -5.0


def test_values_in_their_ranges_are_accepted():
    for ranges in (Ranges(), Ranges(gamma=0), Ranges(gamma=1, steps=10**9)):
        check_ranges(ranges)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("steps", 0, "at least 1"),
        ("gamma", -0.1, "0 to 1"),
        ("gamma", 1.5, "0 to 1"),
        ("gamma", float("nan"), "0 to 1"),
    ],
)
def test_ranges_wrong(name, value, rule):
    with pytest.raises(ValueError, match=f"Ranges {name} must be {rule}, not {value}"):
        check_ranges(Ranges(**{name: value}))
