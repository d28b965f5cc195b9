"""Packages that tests need: the dependency group `test` of pyproject.toml says on which platforms they are installed.

There, a test whose package is missing fails. A skip would leave the law unchecked, and nobody would notice.
"""

import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["is_pinned_here", "needed"]

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def is_pinned_here(package: str, project: Path = PROJECT) -> bool:
    """Return True if the group `test` installs a package on this platform and Python.

    Raises
    ------
    KeyError
        If the group does not name the package.
    """
    group = tomllib.loads(project.read_text(encoding="utf-8"))["dependency-groups"]["test"]
    pins = {canonicalize_name(pin.name): pin for pin in (Requirement(row) for row in group if isinstance(row, str))}
    marker = pins[canonicalize_name(package)].marker
    return marker is None or marker.evaluate()


def needed(module: str, package: str | None = None) -> ModuleType:
    """Return a module that a test needs. Without it the test fails where the package is pinned, and is skipped
    elsewhere with the reason.

    Parameters
    ----------
    module : str
        Name by which the module is imported.
    package : str, optional
        Name of the package in pyproject.toml; default: that of the module.
    """
    package = package or module
    try:
        return import_module(module)
    except ImportError as error:
        if is_pinned_here(package):
            pytest.fail(f"{package} is pinned in pyproject.toml for this platform, but missing: `make setup` ({error})")
        pytest.skip(f"{package} has no pin for this platform and Python, and is not installed")
