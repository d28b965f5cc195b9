"""The build of TorchRL's compiled part: a build that cannot succeed is refused, with the reason."""

import importlib.machinery
import sys
from types import ModuleType

import pytest

from sim.bench import torchrl_compiled
from sim.bench.torchrl_compiled import load_compiled_torchrl
from sim.emulator.toolchain import CompileError


@pytest.fixture(autouse=True)
def no_torchrl(monkeypatch):
    for name in ("torchrl", "torchrl._torchrl"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_torchrl_that_was_imported_without_its_compiled_part_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrl", ModuleType("torchrl"))
    with pytest.raises(ImportError, match="imported without its compiled part"):
        load_compiled_torchrl()


def test_a_loaded_part_is_kept(monkeypatch):
    part = ModuleType("torchrl._torchrl")
    monkeypatch.setitem(sys.modules, "torchrl._torchrl", part)
    load_compiled_torchrl()
    assert sys.modules["torchrl._torchrl"] is part


def test_a_machine_without_torchrl_is_named(monkeypatch):
    monkeypatch.setattr(torchrl_compiled.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install torchrl"):
        load_compiled_torchrl()


def test_the_compilers_words_are_kept(monkeypatch, tmp_path):
    found = importlib.machinery.ModuleSpec("torchrl", None, origin=str(tmp_path / "__init__.py"))
    find_spec = torchrl_compiled.importlib.util.find_spec
    monkeypatch.setattr(
        torchrl_compiled.importlib.util,
        "find_spec",
        lambda name, *rest: found if name == "torchrl" else find_spec(name, *rest),
    )
    monkeypatch.setattr(torchrl_compiled.importlib.metadata, "version", lambda name: "0")

    def refuse(*_):
        raise CompileError("no g++")

    monkeypatch.setattr(torchrl_compiled, "made_once", refuse)
    with pytest.raises(ImportError, match=r"TorchRL's compiled part: no g\+\+"):
        load_compiled_torchrl()
    assert "torchrl._torchrl" not in sys.modules
