"""A compiled switch is kept until something changes that its RTL is generated from."""

import ast
import shutil

import pytest

from sim.emulator import compile as compiling
from sim.emulator.toolchain import ROOT


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the gateware and of the package, of which the cache key is computed."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hw", tmp_path / "hw", ignore=ignored)
    shutil.copytree(ROOT / "host" / "iswitch", tmp_path / "host" / "iswitch", ignore=ignored)
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "file, matters",
    [
        ("hw/switch.py", True),
        ("host/iswitch/wire/__init__.py", True),
        ("host/iswitch/config.py", True),
        ("host/iswitch/worker.py", False),
        ("host/iswitch/tools/cli.py", False),
    ],
)
def test_only_what_the_gateware_imports_is_in_the_key(checkout, file, matters):
    before = list(compiling._sources())
    with (checkout / file).open("a") as changed:
        changed.write("# changed\n")
    assert (list(compiling._sources()) != before) == matters


def modules(node):
    """Modules of `iswitch` that an import statement names, in any form."""
    if isinstance(node, ast.ImportFrom):
        named = [node.module or ""]
    elif isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    else:
        named = []
    return {name for name in named if name.partition(".")[0] == "iswitch"}


def test_every_import_of_the_package_is_one_that_the_key_follows():
    """The key finds `from iswitch.x import y` only."""
    *sources, _ = compiling._sources()
    for text in sources:
        tree = ast.parse(text.partition("\n")[2])
        assert set().union(*map(modules, ast.walk(tree))) <= set(compiling.IMPORTED.findall(text))
