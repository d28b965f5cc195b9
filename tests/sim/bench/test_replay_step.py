"""A learner's steps on a board of the golden model, and on boards that do not do what they should."""

import pytest

from iswitch.config import Config, Replay
from iswitch.golden.switch import Switch
from iswitch.wire import Type, ones_complement_sum
from sim.bench.replay_client import parse_frame
from sim.bench.replay_step import learner_steps
from sim.emulator.engine import Frame, Stamp
from sim.frames.client import SWITCH_IP, SWITCH_MAC

REPLAY = Replay(capacity=256, priority_bits=20, sessions=2, log_bytes=4096)
CONFIG = Config(ports=2, members=2, jobs=2, window=2, elements=16, replay=REPLAY)
CYCLES = 10
"""Cycles of a request, whatever it is."""
BATCH = 100


class GoldenBoard:
    """Executes a request each `CYCLES` cycles, in order."""

    def __init__(self):
        self.config, self.switch = CONFIG, Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        self.cycle, self.waiting, self.out = 0, [], []

    def send(self, port, frame):
        self.waiting.append((port, frame))
        return True

    def run(self, max_cycles):
        before = self.cycle
        while self.waiting and self.cycle - before < max_cycles:
            self.cycle += CYCLES
            for _, answer in self.switch.receive(*self.waiting.pop(0), 0):
                self.out.append(Frame(self.changed(answer), self.cycle, self.cycle))
        return self.cycle - before

    def changed(self, frame):
        return frame

    def receive(self, port):
        got, self.out = self.out, []
        return got

    def stamp(self, port):
        return Stamp(0, 0) if self.out else None


def test_a_step_is_its_requests_and_a_learner_that_waits_for_nothing_else_adds_no_cycles():
    """5 FETCHes of 22 records at most, a SAMPLE and an UPDATE."""
    step = learner_steps(GoldenBoard(), BATCH, steps=6)
    assert step == (BATCH, 7 * CYCLES, 7 * CYCLES)


class WrongRecord(GoldenBoard):
    """Answers every FETCH with the record of another item."""

    def changed(self, frame):
        if parse_frame(frame).type != Type.DATA:
            return frame
        body = bytearray(frame)
        body[64] ^= 1
        return compensated(body)


def compensated(frame):
    """Return the frame with the complement that its body asks for."""
    payload = bytes(frame[42:-2])
    return bytes(frame[:42]) + payload + (0xFFFF ^ ones_complement_sum(payload)).to_bytes(2, "big")


class Careless(GoldenBoard):
    """Forgets an update."""

    def run(self, max_cycles):
        ran = super().run(max_cycles)
        table = self.switch.service.tables[0]
        if table.samples >= 3 * BATCH:
            table.slots.tree.update(7, 1 << 19)
        return ran


class Silent(GoldenBoard):
    """Loses all data."""

    def run(self, max_cycles):
        ran = super().run(max_cycles)
        self.out = [frame for frame in self.out if parse_frame(frame.data).type != Type.DATA]
        return ran


@pytest.mark.parametrize(
    ("board", "complaint"),
    [(WrongRecord, "a record is not what was added"), (Careless, "not what numpy draws"), (Silent, "not answered")],
)
def test_a_service_that_fails_is_reported(board, complaint):
    with pytest.raises(RuntimeError, match=complaint):
        learner_steps(board(), BATCH, steps=6)
