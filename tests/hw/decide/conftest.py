"""A core with a mutant in it."""

import sys

import pytest

import hw.decide.core
from hw.decide.core import Core
from sim.bench.mutant import mutant


@pytest.fixture
def mutated_core(monkeypatch):
    """`mutated_core(module, sound, wrong)` is a Core in which `sound`, somewhere in that module, reads `wrong`."""

    def make(module, sound, wrong):
        made, uses = mutant(module, sound, wrong), 0
        for name, user in list(sys.modules.items()):
            if not name.startswith("hw.decide.") or user is module:
                continue
            for public in module.__all__:
                if getattr(user, public, None) is getattr(module, public):
                    monkeypatch.setattr(user, public, getattr(made, public))
                    uses += 1
        assert uses or module is hw.decide.core
        return made.Core if module is hw.decide.core else Core

    return make
