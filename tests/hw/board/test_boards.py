# amaranth: UnusedElaboratable=no
"""Each board is what it says: its core is fast enough for line rate, its gateware elaborates, its maker is there."""

import importlib.util
from dataclasses import replace
from fractions import Fraction

import pytest

from hw.board.boards import BOARDS, DEFAULT, OVERHEAD_BYTES, line_rate_mhz
from hw.switch import Switch
from iswitch.config import Config

BOARD = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


@BOARD
def test_the_core_takes_what_all_ports_bring(board):
    """By fractions: bits of a frame on the cable, and cycles of the shared pipeline."""
    config = board.config
    for length in (60, 61, 64, 65, 68, 128, 129, 511, 512, 1514, config.frame_bytes_max):
        seconds = Fraction(8 * (length + OVERHEAD_BYTES)) / Fraction(board.gbps * 10**9)
        cycles = max(-(-length // config.bus_bytes), 2) * config.ports
        assert cycles / Fraction(board.core_mhz * 10**6) <= seconds


@pytest.mark.parametrize(
    ("config", "gbps", "mhz"),
    [
        # 1,512 bytes are 189 words of 64 bits and 12.288 us with their overhead; 65 bytes on 512 bits are 2 words in
        # 71.2 ns.
        (Config(ports=2, bus_bits=64), 1, 2 * 189 / 12.288),
        (Config(ports=4, bus_bits=512), 10, 4 * 2 / (84 * 0.8e-3)),
    ],
)
def test_line_rate_by_hand(config, gbps, mhz):
    assert line_rate_mhz(config, gbps) >= mhz
    assert line_rate_mhz(config, gbps) == pytest.approx(mhz, rel=0.01)


@BOARD
def test_a_board_too_slow_for_its_ports_is_refused(board):
    need = line_rate_mhz(board.config, board.gbps)
    with pytest.raises(ValueError, match=rf"Board {board.name} core_mhz must be at least .* not {need * 0.99}"):
        replace(board, core_mhz=need * 0.99)


@BOARD
def test_names_parts_and_makers_are_there(board):
    assert BOARDS[board.name] is board and board.part and board.title and DEFAULT in BOARDS
    assert all(count > 0 for count in board.available.values())
    Switch(board.config)


def test_makers_of_ecp5_boards_can_be_called():
    for board in BOARDS.values():
        if board.family == "ecp5":
            module, _, function = board.maker.partition(":")
            assert importlib.util.find_spec(module) and callable(getattr(importlib.import_module(module), function))
