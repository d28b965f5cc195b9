"""Hubs in place of the switch, compiled once in a session."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from iswitch.config import Config
from sim.emulator.compile import ENGINES, library
from sim.emulator.hub import SMALL, hub


@pytest.fixture(scope="session")
def hubs() -> Callable[[Config, str], Path]:
    """Compiled hubs by configuration and engine."""
    return cache(partial(library, design=hub))


@pytest.fixture(params=ENGINES)
def small(request: pytest.FixtureRequest, hubs: Callable[[Config, str], Path]) -> Path:
    """A hub of two ports and a 64-bit bus, of each engine in turn."""
    return hubs(SMALL, request.param)


@pytest.fixture(scope="session")
def relay() -> Path:
    """A hub of two ports that passes frames on and never back: any row of them is free of loops."""
    return library(SMALL, design=partial(hub, split=True))
