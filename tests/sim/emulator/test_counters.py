"""Counters read by READ messages, from the golden model in a board's place."""

import pytest

from iswitch.config import Config
from iswitch.golden.switch import Switch
from iswitch.wire import VERSION, Register
from sim.emulator.counters import counters, read
from sim.emulator.engine import BoardError, Frame
from sim.frames.client import SWITCH_IP, SWITCH_MAC, ordinary


class Modelled:
    """As much of a board as `read` uses, with the golden model inside. It is no `Board`, which would need a compiled
    switch: hence the type checker is silenced where it stands for one, and where a test breaks it on purpose."""

    def __init__(self) -> None:
        self.config, self.mac, self.ip = Config(), SWITCH_MAC, SWITCH_IP
        self.model = Switch(self.config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        self.answers: list[tuple[int, bytes]] = []

    def send(self, port: int, frame: bytes) -> bool:
        self.answers += self.model.receive(port, frame, 0)
        return True

    def run(self, max_cycles: int, now_us: int) -> None:
        del max_cycles, now_us

    def receive(self, port: int) -> list[Frame]:
        found = [Frame(frame, 0, 0) for at, frame in self.answers if at == port]
        self.answers = []
        return found


def test_registers_are_the_switchs() -> None:
    found = read(Modelled(), Register.MAGIC)  # type: ignore[arg-type]
    assert found == [0x54575349, VERSION, 4, 256, 8, 8, 64, 352]


def test_only_what_is_not_zero_is_named() -> None:
    board = Modelled()
    for number in range(3):
        board.send(2, ordinary(bytes(6), bytes([2, 0, 0, 0, 0, number])))
    found = counters(board)  # type: ignore[arg-type]
    assert found["ORDINARY"] == found["port 2 RX_FRAMES"] == found["port 1 TX_FRAMES"] == 3
    assert found["port 0 RX_FRAMES"] > 3 and 0 not in found.values() and "ADDED" not in found


def test_silence_is_an_error() -> None:
    board = Modelled()
    board.model.receive = lambda *_: []  # type: ignore[method-assign]
    with pytest.raises(BoardError, match="did not answer READ 8 at port 1"):
        read(board, 8, port=1)  # type: ignore[arg-type]
    board.send = lambda *_: False  # type: ignore[method-assign]
    with pytest.raises(BoardError, match="the queue of port 1 is full"):
        read(board, 8, port=1)  # type: ignore[arg-type]
