"""A switch of one port, with all stations behind an ordinary switch there: the compiled RTL against the golden
model."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.wire import Format, Mode, Outcome
from sim.bench.cosimulation import Pair
from sim.bench.traffic import Traffic
from sim.frames.client import SWITCH_MAC, Client, ordinary

ONE = Config(
    ports=1,
    bus_bits=64,
    members=4,
    jobs=2,
    window=4,
    elements=64,
    queue_bytes=4096,
    mac_entries=64,
    staleness=0,
    uplinks=False,
)
pytestmark = (
    pytest.mark.slow
)  # compiles a switch that no other test needs; the golden model has the same laws in tests/host/golden
BROADCAST = b"\xff" * 6


@pytest.fixture(params=[0.0, 0.3], ids=["flowing", "stalled"])
def pair(request):
    made = Pair(ONE, seed=5)
    made.board.stall(0, "rx", request.param, seed=1)
    made.board.stall(0, "tx", request.param, seed=100)
    yield made
    made.close()


def test_random_traffic_gives_the_same_frames_and_counters(pair):
    traffic = Traffic(ONE, seed=1, workers=3, jobs=2, exchange=pair.exchange)
    traffic.form(0)
    traffic.form(1, mode=Mode.PROPAGATE, format=Format.FP32)
    for us in (0, 40_000_000, 310_000_000):
        pair.wait(us)
        traffic.steps(300)
    kinds = (Outcome.ADDED, Outcome.CONTROL, Outcome.FILTERED, Outcome.ANSWERED, Outcome.UNANSWERED)
    assert [kind for kind in kinds if not pair.model.outcomes[kind]] == []
    pair.counters_agree()


def test_what_is_not_for_the_switch_never_goes_back_to_the_only_port(pair):
    """To a station that nobody knows, to one that is known, to all, and to itself."""
    rng = np.random.default_rng(2)
    a, b = Client.numbered(1).mac, Client.numbered(2).mac
    for destination, source in (
        (b, a),
        (a, b),
        (b, a),
        (BROADCAST, a),
        (a, a),
        (b"\x01\x80\xc2\0\0\0", a),
        (b"\x33\x33\0\0\0\1", b),
    ):
        for length in (60, 61, 1514):
            assert pair.exchange(0, ordinary(destination, source, length)) == []
    sent = [(0, ordinary(bytes(rng.choice([BROADCAST, a, b])), a, int(rng.choice([60, 400])))) for _ in range(40)]
    assert pair.burst(sent) == []
    assert pair.exchange(0, ordinary(SWITCH_MAC, a)) == []
    pair.counters_agree()


def test_all_members_behind_the_only_port_get_each_result(pair):
    workers = [Client.numbered(k, port=0) for k in range(4)]
    for turn in range(2):
        for worker in workers:
            for answer in pair.exchange(
                0, worker.join(**({} if turn else {"world": 4, "elements": ONE.elements, "format": Format.WINDOW64}))
            ):
                worker.take(answer)
    for seq in range(3 * ONE.window):
        out = []
        for worker in workers:
            numbers = np.full(ONE.elements, worker.member + seq, np.float32)
            out += pair.exchange(0, worker.contribution(worker.first_seq + seq, numbers, behind=min(seq, 1)))
        assert sorted(frame[:6] for frame in out) == sorted(worker.mac for worker in workers)
    pair.counters_agree()
