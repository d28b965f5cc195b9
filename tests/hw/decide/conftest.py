"""A core with one slip in it."""

import pytest

import hw.decide.core
import hw.decide.membership.membership
from hw.decide.core import Core
from sim.bench.mutant import mutant


@pytest.fixture
def slipped(monkeypatch):
    """`slipped(module, sound, wrong)`: a Core in which `sound`, somewhere in that module, reads `wrong`."""

    def make(module, sound, wrong):
        made, users = mutant(module, sound, wrong), 0
        for user in (hw.decide.core, hw.decide.membership.membership):
            for name in module.__all__:
                if user is not module and getattr(user, name, None) is getattr(module, name):
                    monkeypatch.setattr(user, name, getattr(made, name))
                    users += 1
        assert users or module is hw.decide.core
        return made.Core if module is hw.decide.core else Core

    return make
