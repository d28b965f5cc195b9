"""The extras that a sentence names are those of pyproject.toml."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from iswitch.distribution import EXTRAS, describe_missing, extra_of, missing_from, version

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_the_project_says(extra):
    assert list(EXTRAS[extra]) == [
        re.match(r"[\w-]+", wanted).group() for wanted in PROJECT["optional-dependencies"][extra]
    ]


def test_the_extra_of_a_module():
    assert [extra_of(name) for name in ("yaml", "gymnasium.vector", "torch", "numpy", None)] == [
        "plan",
        "schedule",
        "torch",
        None,
        None,
    ]


def test_what_is_lacking(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    assert "pyyaml" in missing_from("plan")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "needs a, which is not"),
        (["a", "b"], "needs a and b, which are not"),
        (["a", "b", "c"], "needs a, b and c, which are not"),
    ],
)
def test_a_sentence(names, words):
    text = describe_missing("this", names, "cli", "plan")
    assert (
        text.startswith(f"this {words} installed")
        and "pip install 'iswitch-rl[cli,plan]'" in text
        and "pip install '.[cli,plan]'" in text
    )


def test_the_version_is_that_of_the_installed_distribution_or_of_the_checkout(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"iswitch-rl": "7.8.9"}[name])
    assert version().startswith("iswitch-rl 7.8.9, protocol version ")

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    assert version().startswith(
        f"iswitch-rl {PROJECT['version']} (not installed, runs from a checkout), protocol version "
    )


def test_the_package_imports_nothing_that_few_programs_need():
    """`import iswitch` takes less time than numpy, which it imports. What an extra installs takes longer."""
    script = "import sys, numpy; before = set(sys.modules); import iswitch; print(*(sys.modules.keys() - before))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    rarely = {"importlib.metadata", "subprocess", "tempfile", "shutil", "email", "asyncio", "http", "unittest"}
    extras = {module for modules in EXTRAS.values() for module in modules.values()}
    assert (rarely | extras).isdisjoint(done.stdout.split())
