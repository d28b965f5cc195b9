"""Parts of the switch whose clocks stop while they are idle: no frame leaves in another cycle."""

import hashlib
from unittest.mock import patch

import pytest

from hw.switch import gated_parts
from hw.synthesis.emit import rtlil
from iswitch.config import Config
from sim.bench.attacker import Place
from sim.bench.soak_rounds import Soak
from sim.emulator import compile as compiling
from sim.emulator.compile import GATE, library
from sim.emulator.engine import Board


def soaked(place, frames, **options):
    """A digest of all frames that leave the switch and of all decisions, with their cycles, beside an attacker.

    Ports stall, and time passes in jumps, so parts are idle at different times.
    """
    seen = hashlib.sha256()

    class Recorded(Board):
        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings, **options)

        def receive(self, port):
            received = super().receive(port)
            seen.update(repr((port, received)).encode())
            return received

        def trace(self):
            decisions = super().trace()
            seen.update(repr(decisions).encode())
            return decisions

    with patch("sim.bench.soak_rounds.Board", Recorded):
        soak = Soak(place, seed=frames)
    for port in range(soak.config.ports):
        soak.board.stall(port, "rx", 0.05, length=2, seed=port + 1)
        soak.board.stall(port, "tx", 0.01, length=60, seed=port + 9)
    soak.run(frames, frames // 5)
    report = soak.finish(quiet_rounds=20)
    return seen.hexdigest(), report.cycles


@pytest.mark.parametrize("frames", [2000, 20_000])
def test_stopped_clocks_change_no_frame_no_decision_and_no_cycle(frames):
    for place in Place if frames > 2000 else [Place.ANOTHER_PORT]:
        assert soaked(place, frames) == soaked(place, frames, all_clocks=True)


def test_the_compiler_finds_all_gated_parts():
    small = Config(ports=2, bus_bits=64, members=2, jobs=2, window=2, elements=16)
    assert GATE.findall(rtlil(small, gated=True)) == gated_parts(small)


@pytest.mark.slow
@pytest.mark.mutant
def test_a_clock_that_stops_before_the_part_is_at_rest_is_noticed(tmp_path, monkeypatch):
    board = compiling.BOARD.read_text()
    hasty = board.replace("SETTLING_CYCLES = 4;", "SETTLING_CYCLES = 0;")
    assert hasty != board
    monkeypatch.setattr(compiling, "BOARD", tmp_path / "board.cpp")
    compiling.BOARD.write_text(hasty)
    path = library(Config())
    assert soaked(Place.ANOTHER_PORT, 200, path=path) != soaked(Place.ANOTHER_PORT, 200, path=path, all_clocks=True)
