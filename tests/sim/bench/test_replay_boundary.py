"""The service's cycles at the boundary, measured on a board of the golden model, which keeps a time that one can reckon
by hand."""

import pytest

from iswitch.config import Config, Replay
from iswitch.golden.switch import Switch
from sim.bench.replay_boundary import Boundary, boundary
from sim.emulator.engine import Frame, Stamp
from sim.frames.client import SWITCH_IP, SWITCH_MAC

REPLAY = Replay(capacity=256, priority_bits=20, sessions=2, log_bytes=4096)
CONFIG = Config(ports=2, members=2, jobs=2, window=2, elements=16, replay=REPLAY)
THINKS = 100
"""Cycles between a request's last word and its first answer's first."""


class GoldenBoard:
    """A word a cycle goes in, THINKS cycles later a word a cycle comes out, and only then the next frame goes in."""

    def __init__(self, config=CONFIG):
        self.config, self.switch = config, Switch(config, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        self.cycle, self.waiting, self.out, self.stamps = 0, [], [], []

    def send(self, port, frame):
        self.waiting.append((port, frame))
        return True

    def words(self, frame):
        return -(-len(frame) // self.config.bus_bytes)

    def passed(self, words):
        first, self.cycle = self.cycle, self.cycle + words
        return first, self.cycle - 1

    def run(self, max_cycles):
        for port, frame in self.waiting:
            self.stamps.append(Stamp(*self.passed(self.words(frame))))
            self.cycle += THINKS
            self.out += [
                Frame(answer, *self.passed(self.words(answer)))
                for _, answer in self.changed(self.switch.receive(port, frame, 0))
            ]
        self.waiting.clear()
        return self.cycle

    def changed(self, sent):
        return sent

    def receive(self, port):
        got, self.out = self.out, []
        return got

    def stamp(self, port):
        return self.stamps.pop(0) if self.stamps else None


def words(payload):
    """Of a frame with so many bytes behind its first 64, on a bus of 32 bytes."""
    return -(-(64 + payload) // 32)


def answers(*rows):
    return sum(words(64 + 8 * count + 8) for count in rows)


def row(batch, sample, fetch, update):
    """The board executes one request after another, however many are in flight."""
    return Boundary(batch, sample, fetch, update, fetch)


def test_cycles_are_those_from_the_first_word_in_to_the_last_word_out():
    fetched = lambda items: words(8 * items) + THINKS + words(64 * items + 8)
    updated = lambda rows: words(8 * rows) + THINKS + answers(0)
    assert boundary(GoldenBoard()) == [
        row(32, words(32) + THINKS + answers(32), fetched(22) + fetched(10), updated(32)),
        row(256, words(32) + THINKS + answers(160, 96), 11 * fetched(22) + fetched(14), updated(177) + updated(79)),
        row(
            512,
            words(32) + THINKS + answers(160, 160, 160, 32),
            23 * fetched(22) + fetched(6),
            2 * updated(177) + updated(158),
        ),
    ]


def test_a_table_that_goes_round_is_measured_alike():
    """More items than slots: their numbers and their slots are not the same any more."""
    small = Config(
        ports=2, members=2, jobs=2, window=2, elements=16, replay=Replay(capacity=16, sessions=2, log_bytes=4096)
    )
    assert boundary(GoldenBoard(small), (1, 16)) == [
        row(1, words(32) + THINKS + answers(1), words(8) + THINKS + words(72), words(8) + THINKS + answers(0)),
        row(16, words(32) + THINKS + answers(16), words(128) + THINKS + words(1032), words(128) + THINKS + answers(0)),
    ]


class Forgetful(GoldenBoard):
    """Loses the second answer to a request."""

    def changed(self, sent):
        return sent[:1]


class Careless(GoldenBoard):
    """Draws from priorities that are not those of the client: one was never updated."""

    def run(self, max_cycles):
        ran = super().run(max_cycles)
        table = self.switch.service.tables[0]
        if table.samples == 32:
            table.slots.tree.update(7, 1 << 19)
        return ran


class Timeless(GoldenBoard):
    def stamp(self, port):
        return None


@pytest.mark.parametrize(
    ("board", "complaint"),
    [(Forgetful, "1 answers, not 2"), (Careless, "not what numpy draws"), (Timeless, "no stamps")],
)
def test_a_service_that_fails_is_reported(board, complaint):
    with pytest.raises(RuntimeError, match=complaint):
        boundary(board())


def test_a_refusal_is_reported():
    with pytest.raises(RuntimeError, match="says LENGTH, not DONE"):
        boundary(GoldenBoard(), (32, 1024))


def test_a_batch_of_more_updates_than_may_be_on_their_way_wrong():
    kept = Config(
        ports=2,
        members=2,
        jobs=2,
        window=2,
        elements=16,
        replay=Replay(capacity=256, cached_answers=1, sessions=2, log_bytes=4096),
    )
    with pytest.raises(ValueError, match="at most 1 requests may be on their way, not 2"):
        boundary(GoldenBoard(kept), (256,))


def test_a_board_without_the_service_wrong():
    with pytest.raises(ValueError, match="must have a replay service"):
        boundary(GoldenBoard(Config()))
