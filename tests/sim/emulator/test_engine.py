"""Boards of a hub that compiles in seconds: what goes in comes out, whatever stalls, on both engines."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from iswitch.config import Config
from sim.emulator import compile as compiling
from sim.emulator.compile import CompileError, library
from sim.emulator.engine import Board, BoardError
from sim.emulator.hub import SMALL, hub

SIZES = [1, 7, 8, 9, 59, 60, 61, 63, 64, 65, 127, 128, 1514, 1518, 4000]


def some_frames(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice(SIZES)) for _ in range(count)]


def everything(board: Board, port: int) -> list[bytes]:
    return [frame.data for frame in board.receive(port)]


@pytest.mark.parametrize("stall", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("length", [1, 9])
def test_frames_come_out_bit_for_bit(small: Path, stall: float, length: int) -> None:
    with Board(path=small, watch=True) as board:
        for port in range(2):
            board.stall(port, "rx", stall, length=length, seed=port)
            board.stall(port, "tx", stall, length=length, seed=7 + port)
        frames = some_frames(1, 100)
        assert all(board.send(0, frame) for frame in frames)
        assert board.run() == board.cycles
        assert everything(board, 0) == everything(board, 1) == frames
        assert board.waiting(0) == 0 and board.receive(0) == [] and board.violations() == {}


def test_frames_of_two_ports_keep_their_order(small: Path) -> None:
    with Board(path=small, watch=True) as board:
        board.stall(1, "tx", 0.5)
        sent = [[bytes([port]) + frame for frame in some_frames(port, 60)] for port in range(2)]
        assert [board.send_many(port, sent[port]) for port in range(2)] == [60, 60]
        board.run()
        out = everything(board, 1)
        assert [[frame for frame in out if frame[0] == port] for port in range(2)] == sent


def test_stalls_cost_cycles_and_repeat_with_their_seed(small: Path) -> None:
    def cycles(chance: float, seed: int) -> int:
        with Board(path=small) as board:
            board.stall(0, "rx", chance, seed=seed)
            board.send_many(0, some_frames(2, 50))
            return board.run()

    assert cycles(0.5, 1) == cycles(0.5, 1) > 1.5 * cycles(0, 1)
    assert cycles(0.5, 1) != cycles(0.5, 2)


def test_a_run_ends_when_nothing_is_left(small: Path) -> None:
    with Board(path=small) as board:
        assert 0 < board.run(1000) < 20
        assert board.run(3) == 3
        board.send(0, bytes(1500))
        assert board.run(100) == 100 and board.receive(0) == []
        assert 0 < board.run(10_000) < 200 and len(board.receive(0)) == 1


def test_a_full_queue_refuses(small: Path) -> None:
    with Board(path=small) as board:
        board.limit(3)
        assert [board.send(0, bytes(64)) for _ in range(4)] == [True, True, True, False]
        assert board.room(0) == 0 and board.room(1) == 3
        assert board.send_many(1, [bytes(64)] * 5) == 3
        board.run()
        assert len(board.receive(0)) == 6 and board.room(0) == 3


def test_boards_of_one_library_are_independent(small: Path) -> None:
    with Board(path=small, seed=0x11, trace=True) as one, Board(path=small, seed=0x22, trace=True) as other:
        one.send(0, b"x" * 60)
        one.run()
        assert other.cycles == 0 and other.receive(0) == []
        other.send(1, b"y" * 60)
        other.run()
        assert everything(one, 0) == [b"x" * 60] and everything(other, 0) == [b"y" * 60]
        decisions = [(entry.port, entry.job, entry.seq) for entry in one.trace() + other.trace()]
        assert decisions == [(0, 0x11, 0), (1, 0x22, 0)]


def test_trace_and_error_mark(small: Path) -> None:
    with Board(path=small, trace=True, mac=bytes([9, 8, 7, 6, 5, 4])) as board:
        for error in (False, True, False):
            board.send(1, bytes(100), error)
        board.run()
        entries = board.trace()
        assert [(int(entry.outcome), entry.port, entry.member, entry.seq) for entry in entries] == [
            (0, 1, 9, 0),
            (20, 1, 9, 1),
            (0, 1, 9, 2),
        ]
        assert [entry.cycle for entry in entries] == sorted(entry.cycle for entry in entries) and board.trace() == []


def test_stamps_tell_when_words_pass(small: Path) -> None:
    with Board(path=small, stamps=True) as board:
        board.send_many(0, [bytes(64), bytes(65)])
        board.run()
        first, second = board.stamp(0), board.stamp(0)
        assert first and second and board.stamp(0) is None
        assert first.last - first.first == 7 and second.last - second.first == 8 and first.last < second.first
        out = board.receive(1)
        assert first.first < out[0].first and [frame.last - frame.first for frame in out] == [7, 8]


@pytest.mark.parametrize("engine", ["cxxrtl"])
def test_the_watcher_sees_broken_promises(engine: str) -> None:
    with Board(path=library(SMALL, engine, design=partial(hub, broken=True)), watch=True) as board:
        board.stall(1, "tx", 0.5)
        board.send_many(0, some_frames(1, 20))
        board.run()
        assert set(board.violations()) == {
            "port 1: word changed while waiting",
            "port 0: wrong byte count",
            "port 1: wrong byte count",
        }


@pytest.mark.slow
def test_waveforms(tmp_path: Path, hubs: Callable[[Config, str], Path]) -> None:
    with Board(SMALL, design=hub, waves=True) as board:
        board.wave(tmp_path / "board.vcd")
        board.send(0, bytes(64))
        cycles = board.run()
    assert f"#{2 * cycles - 1}" in (tmp_path / "board.vcd").read_text()
    with Board(path=hubs(SMALL, "verilator")) as board, pytest.raises(BoardError, match="made with waves=True"):
        board.wave(tmp_path / "other.vcd")


def test_library_describes_itself(small: Path) -> None:
    with Board(path=small) as board:
        assert board.config == SMALL and board.engine in compiling.ENGINES
    with pytest.raises(BoardError, match="not of Config"):
        Board(replace(SMALL, ports=3), path=small)


def test_a_foreign_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "foreign.so").write_bytes(b"no library")
    with pytest.raises(BoardError, match="not the library of an emulated board"):
        Board(path=tmp_path / "foreign.so")


def test_arguments_wrong(small: Path) -> None:
    with Board(path=small) as board:
        for call, message in (
            (lambda: board.send(2, bytes(64)), "port must be 0 to 1, not 2"),
            (lambda: board.send(0, b""), "1 to 65536 bytes, not 0"),
            (lambda: board.send_many(0, [b""]), "1 to 65536 bytes"),
            (lambda: board.stall(0, "up", 0.5), "direction must be rx or tx, not 'up'"),
            (lambda: board.stall(0, "rx", 2), "chance must be 0 to 1, not 2"),
            (lambda: board.stall(0, "rx", 0.5, length=0), "length must be at least 1 cycle, not 0"),
            (lambda: Board(path=small, mac=b"1"), "mac must be 6 bytes"),
            (lambda: Board(path=small, ip=b"1"), "ip must be 4 bytes"),
            (lambda: Board(path=small, seed=-1), "seed must be"),
            (lambda: library(SMALL, "abacus"), "engine must be one of verilator, cxxrtl, not 'abacus'"),
            (lambda: library(SMALL, "cxxrtl", True), "waveforms need the verilator engine"),
        ):
            with pytest.raises(ValueError, match=message):
                call()
    with pytest.raises(BoardError, match="the board is closed"):
        board.run()


def test_compiled_once(hubs: Callable[[Config, str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made = hubs(SMALL, "cxxrtl")
    monkeypatch.setattr(compiling, "_compile", None)
    assert library(SMALL, "cxxrtl", design=hub) == made


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling, "BUILD", tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler"):
        library(SMALL, "cxxrtl", design=hub)
    assert shutil.which("no-such-compiler") is None and not list(tmp_path.glob("*.so"))
