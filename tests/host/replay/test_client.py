"""The client against the golden switch, in virtual time, over a network that loses, duplicates and reorders."""

from dataclasses import asdict

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.errors import SwitchUnreachableError
from iswitch.golden.replay import fractions
from iswitch.replay import (
    Field,
    NoFreeSessionError,
    NoReplayServiceError,
    NotServedError,
    ReplayClient,
    SessionLostError,
)
from iswitch.replay.seeds import hash_seed
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.bench.replay_network import Network
from sim.bench.statistics import chi_square, quantile
from sim.bench.udp_model import UdpModel

REPLAY = Replay(
    tables=2,
    capacity=64,
    priority_bits=27,
    sessions=4,
    cached_answers=4,
    samples_per_request=512,
    record_bytes=64,
    log_bytes=1 << 16,
)
PLAIN = {
    "observation": Field((4,), np.float32),
    "action": Field((), np.int64),
    "reward": Field((), np.float32),
    "next_observation": Field((4,), np.float32),
    "discount": Field((), np.float32),
}
STACKED = {
    "observation": Field((4, 9, 9), np.uint8, stacked=4),
    "action": Field((), np.int32),
    "next": Field((4, 9, 9), np.uint8, stacked=4),
}
DEEP = {
    "a": Field((12, 70), np.uint8, stacked=12),
    "b": Field((12, 70), np.uint8, stacked=12),
    "c": Field((3,), np.float64),
    "d": Field((), "u1"),
}
LARGE = {"observation": Field((40,), np.float32), "mask": Field((40,), bool), "action": Field((2,), np.int16)}
SPECS = {"plain": PLAIN, "stacked": STACKED, "deep": DEEP, "large": LARGE}
FAULTS = [{}, {"doubled": 1.0}, {"late": 0.5}, {"loss": 0.05, "late": 0.2}, {"loss": 0.3, "doubled": 0.3, "late": 0.3}]


def config(**changes) -> Config:
    return Config(ports=4, members=4, replay=Replay(**asdict(REPLAY) | changes))


def transitions(spec, count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 2 if field.wire_dtype.kind == "b" else 250, (count, *field.axes)).astype(field.wire_dtype)
        for name, field in spec.items()
    }


def rows(data, which):
    return {name: column[which] for name, column in data.items()}


def assert_same(got, expected):
    assert set(got) == set(expected)
    for name in got:
        assert got[name].dtype == expected[name].dtype and got[name].tobytes() == expected[name].tobytes(), name


@pytest.fixture
def network():
    return Network(config())


@pytest.fixture
def client(network):
    with ReplayClient(network.transport(), PLAIN) as made:
        yield made


def served(network):
    return network.switch.service


# What is in it comes out


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_sampled_transitions_are_those_that_were_added(spec, faults):
    network = Network(config(log_bytes=1 << 18), **faults)
    with ReplayClient(network.transport(), SPECS[spec]) as client:
        data = transitions(SPECS[spec], 50)
        added = client.extend(data, np.arange(1, 51) / 10)
        assert np.array_equal(added.items, np.arange(64, 114)) and added.items.dtype == np.uint32
        for count in (1, 2, 160, 161, 512):
            batch = client.sample(count)
            assert not batch.overwritten.any() and batch.table_size == 50 and len(batch) == count
            assert_same(batch.data, rows(data, batch.items - 64))
            assert np.allclose(batch.priorities, (batch.items - 63) / 10, atol=1e-6)
        assert tuple(client.update_priority(batch.items, np.ones(512))) == (512, 0)
        assert tuple(client.update_priority([1, 64], [1, 2])) == (1, 1)
    table = served(network).tables[0]
    assert (
        table.samples == 1 + 2 + 160 + 161 + 512
        and table.adds == 50
        and not any(place.open for place in served(network).sessions)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"cached_answers": 1},
        {"cached_answers": 16},
        {"samples_per_request": 16, "capacity": 16},
        {"samples_per_request": 2048, "capacity": 1024},
        {"record_bytes": 1024},
        {"record_bytes": 256},
        {"log_bytes": 4096, "capacity": 16},
        {"priority_bits": 4},
        {"priority_bits": 32},
        {"sessions": 2, "tables": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("spec", ["plain", "large"])
def test_switches_with_unusual_sizes(spec, changes):
    network = Network(config(**changes), loss=0.1, doubled=0.1, late=0.1)
    with ReplayClient(network.transport(), SPECS[spec]) as client:
        data = transitions(SPECS[spec], 100)
        for at in range(0, 100, 5):
            client.extend(rows(data, slice(at, at + 5)), np.full(5, 2.0))
        batch = client.sample(client.config.samples_per_request)
        first = client.config.capacity
        assert_same(batch.data, rows(data, batch.items - first))
        assert (
            not batch.overwritten.any()
            and (batch.priorities == (2.0 if client.config.priority_bits > 4 else 16.0)).all()
        )
        assert tuple(client.update_priority(batch.items, np.ones(len(batch)))) == (len(batch), 0)


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_adding_one_by_one_equals_adding_many(faults):
    network = Network(config(), **faults)
    with ReplayClient(network.transport(), PLAIN) as client:
        data = transitions(PLAIN, 60)
        numbers = [client.add(priority=1.0, **{name: column[k] for name, column in data.items()}) for k in range(60)]
        assert [int(number.items[0]) for number in numbers] == list(range(64, 124))
        batch = client.sample(512)
        assert_same(batch.data, rows(data, batch.items - 64))


def test_fields_may_have_the_names_of_parameters(network):
    spec = {name: Field((), np.int64) for name in ("turn", "priority", "ticket", "self", "transition", "seed")}
    row = {name: k for k, name in enumerate(spec)}
    apart = {name: row[name] for name in ("self", "transition", "turn", "seed")}
    with ReplayClient(network.transport(), spec) as client:
        client.add(row, priority=0.5)
        client.add({"priority": 1, "ticket": 2}, priority=0.5, **apart)
        client.extend({name: [k] for name, k in row.items()}, [0.5])
        batch = client.sample(50)
    assert all((batch.data[name] == k).all() for name, k in row.items()) and set(batch.items.tolist()) == {64, 65, 66}
    assert (batch.priorities == 0.5).all()


def test_without_priorities_sampling_is_uniform(network, client):
    data = transitions(PLAIN, 40)
    client.extend(data)
    client.add(rows(data, 0))
    counts = sum(
        np.bincount(client.sample(512, stratified=False, seed=seed).items - 64, minlength=41) for seed in range(20)
    )
    statistic, freedom = chi_square(counts, np.full(41, 20 * 512 / 41))
    assert quantile(freedom, -3.09) < statistic < quantile(freedom, 3.09)
    assert (client.sample(512).priorities == 1).all()


def test_adds_are_collected_while_a_request_is_in_flight(network, client):
    for k in range(40):
        client.add(priority=1.0, **{name: column[0] for name, column in transitions(PLAIN, 1, k).items()})
    client.flush()
    assert served(network).tables[0].adds == 40 and served(network).outcomes[ReplayOutcome.DONE] < 10


def test_nothing_is_retransmitted_on_a_good_network(network):
    with ReplayClient(network.transport(), STACKED) as client:
        for k in range(4):
            client.extend(transitions(STACKED, 10, k), np.ones(10))
            batch = client.sample(300)
            client.update_priority(batch.items, np.ones(300))
        client.flush()
        assert (
            client.statistics().retransmissions == 0
            and served(network).outcomes[ReplayOutcome.REPEATED] == served(network).outcomes[ReplayOutcome.AHEAD] == 0
        )


def test_the_oldest_items_are_overwritten_first(network, client):
    data = transitions(PLAIN, 200)
    client.extend(data, np.ones(200))
    batch = client.sample(512)
    assert set(batch.items.tolist()) == set(range(200, 264)) and batch.table_size == 64
    assert_same(batch.data, rows(data, batch.items - 64))
    assert tuple(client.update_priority(np.arange(190, 210), np.ones(20))) == (10, 10)


@pytest.mark.parametrize("spec", ["plain", "stacked"])
def test_handles_wrap(spec):
    """The table is as after 2^32 - 128 adds, of items of priority 0."""
    network = Network(config(log_bytes=1 << 18))
    table = served(network).tables[0]
    table.adds, table.slots.filled, table.slots.generations = 2**32 - 128, 64, [2**26 - 2] * 64
    with ReplayClient(network.transport(), SPECS[spec]) as client:
        data = transitions(SPECS[spec], 200)
        for at in range(0, 200, 20):
            items = client.extend(rows(data, slice(at, at + 20)), np.ones(20)).items
            assert items.tolist() == [(2**32 - 64 + at + k) % 2**32 for k in range(20)]
            batch = client.sample(200)
            assert not batch.overwritten.any()
            assert_same(batch.data, rows(data, (batch.items - np.uint32(2**32 - 64)).astype(np.int64)))
            assert tuple(client.update_priority(batch.items, np.ones(200))) == (200, 0)
        assert tuple(client.update_priority(items - np.uint32(64), np.ones(20))) == (0, 20)


# Draws


@pytest.mark.parametrize(
    "count, stratified", [(1, True), (2, True), (160, True), (161, False), (512, True), (511, False)]
)
def test_a_seed_determines_the_sample(network, client, count, stratified):
    priorities = np.arange(64) % 7 / 4
    client.extend(transitions(PLAIN, 64), priorities)
    fixed = (priorities * client.scale).astype(np.int64)
    ends = np.cumsum(fixed)
    for seed in (0, 1, 2**128 - 1, 12345 << 64):
        stride = fractions.stride(count) if stratified and count > 1 else 0
        positions = [fraction * int(ends[-1]) >> 64 for fraction in fractions.fractions(hash_seed(seed), count, stride)]
        batch = client.sample(count, stratified=stratified, seed=seed, beta=0.7)
        assert (
            batch.items.tolist() == (64 + np.searchsorted(ends, positions, side="right")).tolist()
            and batch.seed == seed
        )
        chances = 64 * batch.priorities / priorities.sum()
        assert np.allclose(batch.weights, chances**-0.7 / (chances**-0.7).max(), rtol=1e-6)
        assert batch.table_priority == priorities.sum() and batch.weights.dtype == np.float32


def test_weights_normalized_by_the_table(network, client):
    client.extend(transitions(PLAIN, 64), np.where(np.arange(64) == 7, 0.25, 4.0))
    batch = client.sample(32, beta=1.0, seed=4, normalize="table")
    assert 7 + 64 not in batch.items and np.allclose(batch.weights, 1 / 16)


def test_samples_without_a_seed_differ(network, client):
    client.extend(transitions(PLAIN, 64), np.ones(64))
    assert client.sample(64, stratified=False).items.tolist() != client.sample(64, stratified=False).items.tolist()


def replace_all(network, after, *, kind=Kind.FETCH):
    """Overwrite the table after so many requests of a kind."""
    left, receive = [after], served(network).receive

    def watched(source, payload, now_us):
        if payload[1] == kind:
            left[0] -= 1
            if left[0] == 0:
                served(network).tables[0].add([1] * 64)
        return receive(source, payload, now_us)

    served(network).receive = watched


def test_items_overwritten_before_delivery_have_weight_0(network, client):
    data = transitions(PLAIN, 64)
    client.extend(data, np.ones(64)).items.tolist()
    replace_all(network, 2)
    batch = client.sample(512)
    assert (
        0 < batch.overwritten.sum() < 512
        and not batch.weights[batch.overwritten].any()
        and (batch.weights[~batch.overwritten] == 1).all()
    )
    assert_same(rows(batch.data, ~batch.overwritten), rows(data, batch.items[~batch.overwritten] - 64))
    assert not any(column[batch.overwritten].any() for column in batch.data.values())
    assert tuple(client.update_priority(batch.items, np.ones(512)))[1] == 512


# Priorities


def test_the_last_of_two_priorities_for_an_item_counts(network, client):
    client.extend(transitions(PLAIN, 64), np.ones(64))
    assert tuple(client.update_priority(np.repeat(np.arange(64, 128), 8), np.tile(np.arange(8) + 1.0, 64))) == (512, 0)
    assert client.statistics().priority_sum == 64 * 8


def test_a_priority_that_is_too_large_is_counted(network, client):
    client.extend(transitions(PLAIN, 2), [1e9, 3.0])
    client.flush()
    stats = client.statistics()
    assert stats.saturated == 1 and stats.size == 2
    assert (
        stats.priority_sum == (2**27 - 1) / 2**19 + 3
        and stats.min_priority == 3
        and 0.875 * 256 <= stats.max_priority <= 256
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_bad_priorities_are_refused_before_anything_is_sent(network, client, value):
    before = network.carried["to"]
    with pytest.raises(ValueError, match="priorities must be finite"):
        client.extend(transitions(PLAIN, 3), [1.0, value, 1.0])
    with pytest.raises(ValueError, match="priorities must be finite"):
        client.update_priority([64], [value])
    assert network.carried["to"] == before


# Deterministic order


def test_small_consecutive_seeds_follow_the_priorities(network, client):
    """One draw for each of 3,000 seeds in a row; as they are, the generator would begin with numbers that are hardly
    different."""
    client.extend(transitions(PLAIN, 64), np.ones(64))
    counts = np.bincount([int(client.sample(1, seed=seed).items[0]) - 64 for seed in range(3000)], minlength=64)
    statistic, freedom = chi_square(counts, np.full(64, 3000 / 64))
    assert quantile(freedom, -3.0902) < statistic < quantile(freedom, 3.0902)
    raw = np.bincount([fractions.fractions(seed, 1)[0] * 64 >> 64 for seed in range(3000)], minlength=64)
    assert chi_square(raw, np.full(64, 3000 / 64))[0] > 10 * quantile(freedom, 3.0902)


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_tickets_make_all_operations_reproducible(faults):
    def story(**faults):
        network = Network(config(), **faults)
        with ReplayClient(network.transport(), PLAIN) as actor, ReplayClient(network.transport(), PLAIN) as learner:
            for client in (actor, learner):
                network.every(0.0003, lambda client=client: client.closed or client.poll())
            told, ticket = [], 1
            for k in range(4):
                added = actor.extend(transitions(PLAIN, 40, k), np.arange(1, 41), ticket=ticket)
                assert added.ticket == ticket + actor.tickets(40)
                batch = learner.sample(200, seed=k, ticket=added.ticket, min_adds=40 * (k + 1))
                assert batch.ticket == added.ticket + 1
                updated = learner.update_priority(batch.items, np.arange(200.0) + 1, ticket=batch.ticket)
                assert updated.ticket == batch.ticket + 2
                told.append((batch.items.tolist(), batch.priorities.tolist(), batch.weights.tolist()))
                ticket = learner.set_limits(min_size_to_sample=3, ticket=updated.ticket)
            return told

    assert story(**faults) == story()


def test_tickets_wrap(network, client):
    served(network).tables[0].ticket = 2**32 - 1
    added = client.extend(transitions(PLAIN, 40), np.ones(40), ticket=2**32 - 1)
    assert added.ticket == client.tickets(40) and len(added.items) == 40 == served(network).tables[0].adds


# Waits


@pytest.mark.parametrize(
    "call, outcome, message",
    [
        (
            lambda client: client.sample(8),
            ReplayOutcome.EMPTY,
            "SAMPLE to table 0 .* because all priorities are 0, for 2 s.*add items",
        ),
        (
            lambda client: client.sample(8, min_adds=9),
            ReplayOutcome.ITEMS,
            "the table has 0, and 0 were ever added, for 2 s",
        ),
        (
            lambda client: client.update_priority([3], [1.0], ticket=7).updated,
            ReplayOutcome.TICKET,
            "the table is at ticket 1, and the request has ticket 7, for 2 s",
        ),
        (
            lambda client: client.extend(transitions(PLAIN, 3), np.ones(3), ticket=9).items,
            ReplayOutcome.TICKET,
            "ADD to table 0 .* execute the requests with the tickets before",
        ),
    ],
)
def test_a_request_that_waits_too_long_is_cancelled_with_the_reason(call, outcome, message):
    network = Network(config(), loss=0.1)
    with ReplayClient(network.transport(), PLAIN, wait_s=2) as client:
        with pytest.raises(NotServedError, match=message) as raised:
            call(client)
        assert raised.value.outcome == outcome
        assert served(network).tables[0].ticket == 1
        client.extend(transitions(PLAIN, 3), np.ones(3))
        assert len(client.sample(8)) == 8  # and the client goes on


def test_a_passed_ticket_is_an_error_at_once(network, client):
    client.extend(transitions(PLAIN, 1), [1.0], ticket=1).items.tolist()
    before = network.now
    with pytest.raises(NotServedError, match="and that ticket has passed"):
        client.sample(4, ticket=1)
    assert network.now - before < 0.01


def test_flush_reports_cancelled_adds():
    network = Network(config())
    with ReplayClient(network.transport(), PLAIN, wait_s=1) as client:
        client.set_limits(samples_per_insert=1.0, min_size_to_sample=10, max_insert_lag=0, max_insert_lead=20)
        client.extend(transitions(PLAIN, 19), np.ones(19))
        client.flush()
        client.extend(transitions(PLAIN, 19), np.ones(19))
        client.extend(transitions(PLAIN, 19), np.ones(19))
        with pytest.raises(NotServedError, match="samples per insert"):
            client.flush()
        client.flush()
        assert client.statistics().own_adds == 38 == served(network).tables[0].adds


def test_samples_per_insert_makes_samples_wait_for_adds():
    network = Network(config())
    with ReplayClient(network.transport(), PLAIN) as learner, ReplayClient(network.transport(), PLAIN) as actor:
        learner.set_limits(min_size_to_sample=10, samples_per_insert=8.0, max_insert_lag=64, max_insert_lead=200)
        actor.extend(transitions(PLAIN, 10), np.ones(10)).items.tolist()
        assert len(learner.sample(64)) == 64
        begun = network.now
        network.at(begun + 0.5, lambda: actor.extend(transitions(PLAIN, 8), np.ones(8)))
        assert len(learner.sample(64)) == 64 and 0.5 <= network.now - begun < 0.6


def test_an_item_is_sampled_at_most_max_times_sampled_times(network, client):
    client.set_limits(max_times_sampled=2)
    client.extend(transitions(PLAIN, 8), np.ones(8))
    assert set(client.sample(8, stratified=True).items.tolist()) == set(range(64, 72))
    client.sample(8)
    assert client.statistics().priority_sum == 0


@pytest.mark.parametrize(
    "limits, message",
    [
        ({"samples_per_insert": -1}, "samples_per_insert must be 0 to 65536"),
        ({"samples_per_insert": 1e-9}, "at least 1/65536"),
        ({"min_size_to_sample": 65}, "at most the table's capacity, 64"),
        (
            {"samples_per_insert": 4.0, "max_insert_lag": 10, "max_insert_lead": 10},
            "lag . max_insert_lead must be at least 77",
        ),
        ({"max_times_sampled": 256}, "max_times_sampled must be 0 to 255"),
        ({"max_insert_lag": -1}, "max_insert_lag must be 0 to"),
    ],
)
def test_limit_wrong(client, limits, message):
    with pytest.raises(ValueError, match=message):
        client.set_limits(**limits)


# Arguments


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda client: client.sample(0), ValueError, "1 to 512 items"),
        (lambda client: client.sample(513), ValueError, "1 to 512 items"),
        (lambda client: client.sample(8, beta=-1), ValueError, "beta must be at least 0"),
        (lambda client: client.sample(8, seed=2**128), ValueError, "seed must"),
        (lambda client: client.sample(8, ticket=-1), ValueError, "ticket must"),
        (lambda client: client.sample(8, normalize="max"), ValueError, "normalize must be"),
        (lambda client: client.sample(8, min_adds=-1), ValueError, "min_adds must be"),
        (lambda client: client.update_priority([1.5], [1.0]), TypeError, "items must be integers"),
        (lambda client: client.update_priority([1, 2], [1.0]), ValueError, "of the same length"),
        (lambda client: client.extend(transitions(PLAIN, 3), [1.0]), ValueError, "one for each transition"),
        (lambda client: client.set_parameters(0, b""), ValueError, "version must be 1 to"),
        (lambda client: client.prefetch(8, depth=0), ValueError, "depth must be"),
        (lambda client: client.restore("x", share=(2, 2)), ValueError, "share must"),
    ],
)
def test_argument_wrong(client, call, error, message):
    with pytest.raises(error, match=message):
        call(client)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"table": 2}, "table must be 0 to 1"),
        ({"table": -1}, "table must be 0 to 1"),
        ({"scale": 3}, "power of two"),
        ({"timeout_s": 0}, "timeout_s must be above 0"),
        ({"wait_s": -1}, "wait_s must be above 0"),
    ],
)
def test_option_wrong(network, options, message):
    with pytest.raises(ValueError, match=message):
        ReplayClient(network.transport(), PLAIN, **options)


# Places


def test_tables_are_independent(network, client):
    with ReplayClient(network.transport(), PLAIN, table=1) as other:
        other.extend(transitions(PLAIN, 5), np.ones(5))
        client.extend(transitions(PLAIN, 7), np.ones(7))
        client.flush()
        assert (other.statistics().size, client.statistics().size) == (5, 7)


def test_no_free_session_is_an_error(network):
    clients = [ReplayClient(network.transport(), PLAIN) for _ in range(4)]
    with pytest.raises(NoFreeSessionError, match="all 4 sessions"):
        ReplayClient(network.transport(), PLAIN, timeout_s=1)
    clients[2].close()
    assert ReplayClient(network.transport(), PLAIN, timeout_s=1).session == 2


def test_a_silent_client_that_lost_its_session_can_reopen(network):
    first = ReplayClient(network.transport(), PLAIN)
    first.extend(transitions(PLAIN, 5), np.ones(5)).items.tolist()
    network.run(network.now + 11)
    others = [ReplayClient(network.transport(), PLAIN) for _ in range(4)]
    with pytest.raises(SessionLostError, match="reopen"):
        first.sample(4)
    with pytest.raises(SessionLostError, match="reopen"):
        first.poll()
    others[1].close()
    first.reopen()
    assert first.session == others[1].session == 2 and len(first.sample(4)) == 4


def test_a_polling_client_keeps_its_session(network):
    with ReplayClient(network.transport(), PLAIN) as first:
        for _ in range(20):
            network.run(network.now + 1)
            first.poll()
        others = [ReplayClient(network.transport(), PLAIN) for _ in range(3)]
        with pytest.raises(NoFreeSessionError):
            ReplayClient(network.transport(), PLAIN, timeout_s=1)
        assert len(others) == 3 and first.statistics().size == 0


def test_a_switch_without_the_service_is_an_error():
    with pytest.raises(NoReplayServiceError, match="has no replay service"):
        ReplayClient(Network(Config(ports=4, members=4)).transport(), PLAIN)


def test_a_switch_that_stops_answering_is_an_error(network, client):
    client.extend(transitions(PLAIN, 5), np.ones(5)).items.tolist()
    network.loss = 1.0
    begun = network.now
    with pytest.raises(SwitchUnreachableError, match="has not answered for 10 s"):
        client.sample(4)
    assert 9.9 < network.now - begun < 10.5
    network.loss = 0.0
    assert len(client.sample(4)) == 4


def test_no_switch_at_the_address_is_an_error():
    network = Network(config(), loss=1.0)
    with pytest.raises(SwitchUnreachableError, match="has not answered"):
        ReplayClient(network.transport(), PLAIN, timeout_s=1)


def test_a_session_continues_the_numbers_of_its_former_client(network):
    """Numbers are never used twice: a late frame of the former client does nothing."""
    frames = []
    network.lose = lambda payload, there: bool(frames.append(payload)) if there and payload[1] == Kind.ADD else False
    with ReplayClient(network.transport(), PLAIN) as former:
        former.extend(transitions(PLAIN, 5), np.ones(5)).items.tolist()
    with ReplayClient(network.transport(), PLAIN) as client:
        assert client.session == 0 and served(network).sessions[0].next == 2 + REPLAY.cached_answers
        for payload in list(frames):
            network.deliver(0, payload)
        client.extend(transitions(PLAIN, 5), np.ones(5)).items.tolist()
        assert served(network).tables[0].adds == 10


def test_statistics_equal_the_state_of_the_switch(network, client):
    client.extend(transitions(PLAIN, 20), np.arange(1.0, 21))
    client.sample(30)
    client.flush()
    stats = client.statistics()
    assert (stats.size, stats.adds, stats.samples, stats.priority_sum, stats.ticket, stats.version) == (
        20,
        20,
        30,
        210.0,
        4,
        0,
    )
    assert stats.outcomes == dict(zip(ReplayOutcome.__members__, served(network).outcomes)) and stats.own_adds == 20
    assert (
        stats.bytes_sent == 20 * 72
        and stats.log_bytes_used == 0
        and 0.00005 < stats.delay_s < 0.001
        and stats.window >= 8
    )


# Over sockets


@pytest.mark.parametrize("spec", ["plain", "stacked"])
def test_over_real_sockets(spec):
    with UdpModel(config()) as model, ReplayClient(model.address(1), SPECS[spec]) as client:
        data = transitions(SPECS[spec], 60)
        client.extend(data, np.ones(60))
        batch = client.sample(512)
        assert_same(batch.data, rows(data, batch.items - 64))
        assert tuple(client.update_priority(batch.items, np.ones(512))) == (512, 0)
