"""The compiled switch with a replay service against the golden one: frame by frame, in bursts, beside sums of
gradients."""

from dataclasses import replace

import pytest

from iswitch.golden.replay import table as table_of
from iswitch.golden.replay.session import RULES
from iswitch.golden.replay.table import Table
from iswitch.wire import Outcome
from iswitch.wire.replay import ReplayOutcome
from sim.bench.cosimulation import DivergenceError, Pair
from sim.bench.replay_traffic import NARROW, SMALL, ReplayTraffic
from sim.bench.traffic import Traffic

ONE = replace(
    SMALL,
    tables=1,
    capacity=16,
    sessions=2,
    cached_answers=1,
    samples_per_request=16,
    sample_count_bits=0,
    record_bytes=256,
    priority_bits=32,
    single_copy=True,
)
WIDE = replace(NARROW, bus_bits=256, replay=replace(SMALL, priority_bits=18, record_bytes=256))
DESIGNS = [
    pytest.param(NARROW, "verilator", id="64-bit"),
    pytest.param(WIDE, "verilator", id="256-bit", marks=pytest.mark.slow),
    pytest.param(replace(NARROW, bus_bits=512, ports=3, replay=ONE), "verilator", id="512-bit", marks=pytest.mark.slow),
    pytest.param(NARROW, "cxxrtl", id="64-bit-cxxrtl", marks=pytest.mark.slow),
]


def stalled(pair: Pair, chance: float) -> Pair:
    for port in range(pair.config.ports):
        pair.board.stall(port, "rx", chance, seed=port + 1)
        pair.board.stall(port, "tx", chance, seed=port + 100)
    return pair


def traffic_of(pair: Pair, seed: int) -> ReplayTraffic:
    assert pair.model.service
    return ReplayTraffic(pair.config, pair.model.service, seed)


@pytest.mark.parametrize(("config", "engine"), DESIGNS)
@pytest.mark.parametrize("chance", [0.0, 0.3], ids=["flowing", "stalled"])
def test_random_requests_have_the_same_answers_and_counters(config, engine, chance):
    pair = stalled(Pair(config, engine=engine, seed=5), chance)
    requests = traffic_of(pair, seed=int(10 * chance) + 1)
    for _ in range(3):
        for _, (port, frame) in zip(range(1500), requests):
            pair.exchange(port, frame)
        pair.wait(20_000_000)  # all sessions have been silent: newcomers take their places
        requests.clients = [requests.client(k) for k in range(len(requests.clients))]
    assert {outcome for outcome in ReplayOutcome if not pair.model.service.outcomes[outcome]} <= {
        ReplayOutcome.MEMORY,
        ReplayOutcome.EMPTY,
    }
    assert pair.model.service.saturated or config.replay.priority_bits == 32
    pair.counters_agree()
    pair.close()


@pytest.mark.parametrize(
    "config", [pytest.param(NARROW, id="64-bit"), pytest.param(WIDE, id="256-bit", marks=pytest.mark.slow)]
)
def test_requests_that_race_are_carried_out_in_the_order_of_the_trace(config):
    pair = Pair(config, seed=6)
    requests = traffic_of(pair, seed=3)
    for _, (port, frame) in zip(range(300), requests):
        pair.exchange(port, frame)
    for _ in range(300):
        pair.burst([frame for _, frame in zip(range(3), requests)])
    pair.counters_agree()
    pair.close()


def test_requests_beside_sums_of_gradients():
    config = replace(NARROW, members=4, elements=64)
    pair = Pair(config, seed=7)
    sums = Traffic(config, seed=1, workers=3, jobs=1, exchange=pair.exchange)
    sums.form(0)
    requests = traffic_of(pair, seed=4)
    for _ in range(60):
        sums.steps(5)
        for _, (port, frame) in zip(range(5), requests):
            pair.exchange(port, frame)
    assert pair.model.outcomes[Outcome.ADDED] and pair.model.outcomes[Outcome.REPLAY]
    pair.counters_agree()
    pair.close()


def test_after_a_reset_nobody_has_a_session_and_tables_are_empty():
    pair = Pair(NARROW, seed=8)
    for seed in range(3):
        requests = traffic_of(pair, seed)
        for _, (port, frame) in zip(range(500), requests):
            pair.exchange(port, frame)
        pair.reset()
        pair.model.service.memory.bytes[:] = b"\0" * len(pair.model.service.memory.bytes)
        for port, frame in requests.said[-12:]:
            pair.exchange(port, frame)
        pair.counters_agree()
    pair.close()


MUTANTS = {
    "repeats are carried out": (
        "rules",
        {
            "check_order": lambda place, seq: (
                None if RULES.check_order(place, seq) == ReplayOutcome.REPEATED else RULES.check_order(place, seq)
            )
        },
    ),
    "numbers begin anew": ("rules", {"open_session": lambda *about: RULES.open_session(*about)._replace(next=0)}),
    "numbers go on where they were": (
        "rules",
        {"open_session": lambda place, *about: RULES.open_session(place, *about)._replace(next=place.next)},
    ),
    "a former client's answers are kept": (
        "rules",
        {"open_session": lambda place, *about: RULES.open_session(place, *about)._replace(cached=place.cached)},
    ),
    "tokens are not looked at": (
        "rules",
        {
            "find_session": lambda places, session, token: next(
                (p for p in places[session : session + 1] if p.open), None
            )
        },
    ),
    "one answer more is kept": (
        "rules",
        {"keep_answer": lambda place, answer, most: RULES.keep_answer(place, answer, most + 1)},
    ),
    "nothing counts as drawn too often": ("table", {"count_samples": lambda self, rows: None}),
    "adds are not held back": ("table", {"add_wait_reason": lambda self, count: None}),
    "tickets do not pass": ("table", {"advance_ticket": lambda self: None}),
    "the bucket above": ("table", {"extreme_buckets": lambda self: tuple(k + bool(k) for k in EXTREMES(self))}),
}
EXTREMES = Table.extreme_buckets


@pytest.mark.parametrize(("where", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_a_model_with_one_rule_changed_is_noticed(where, wrong, monkeypatch):
    pair = Pair(NARROW, seed=5)
    if where == "rules":
        pair.model.service.rules = RULES._replace(**wrong)
    for name, method in wrong.items() if where == "table" else ():
        monkeypatch.setattr(table_of.Table, name, method)
    requests = traffic_of(pair, seed=1)

    def run():
        for _ in range(12):
            for _, (port, frame) in zip(range(1500), requests):
                pair.exchange(port, frame)
            pair.wait(20_000_000)
            requests.clients = [requests.client(k) for k in range(len(requests.clients))]

    with pytest.raises(DivergenceError):
        run()
    pair.close()
