"""The window of requests that change nothing."""

import heapq
import random

import pytest

from iswitch.replay import queries as sound
from iswitch.replay.messages import Header, Reply
from iswitch.wire import Type, version_type
from iswitch.wire.replay import Kind
from sim.bench.mutant import mutant

DELAY_S = 0.0001
DATA = version_type(Type.DATA)


def reply_to(payload):
    seq, count = int.from_bytes(payload[4:8], "little"), int.from_bytes(payload[8:10], "little")
    return Reply(Header(DATA, payload[1], 0, 0, seq, count, 0, 0, 0, 0), None, payload[22:])


def run(module, count=400, *, loss=0.0, doubled=0.0, late=0.0, holds=10**9, seed=1):
    """Send `count` queries over a network that holds `holds` datagrams at a time, and check that each receives its own
    reply. Return the machine, the most datagrams in flight, the number sent, and the time in seconds."""
    chance, machine = random.Random(seed), module.Queries(session=0, token=0)
    asked = [module.Query(Kind.LOAD, count=1, body=k.to_bytes(8, "little")) for k in range(count)]
    for query in asked:
        machine.put(query)
    now, events, order, most, sent = 0.0, [], 0, 0, 0
    while machine.pending:
        for payload in machine.due(now):
            sent += 1
            if chance.random() < loss or len(events) >= holds:
                continue
            for _ in range(1 + (chance.random() < doubled)):
                order += 1
                heapq.heappush(
                    events,
                    (
                        now + DELAY_S * (1 + chance.random() / 10 + 10 * chance.random() * (chance.random() < late)),
                        order,
                        payload,
                    ),
                )
        most = max(most, len(events))
        wake = machine.wake_at()
        if events and events[0][0] <= wake:
            now, _, payload = heapq.heappop(events)
            machine.handle_reply(reply_to(payload), now)
        else:
            assert now <= wake < float("inf")
            now = wake
    assert [query.reply.rows for query in asked] == [k.to_bytes(8, "little") for k in range(count)]
    return machine, most, sent, now


FAULTS = [{}, {"doubled": 1.0}, {"late": 0.3}, {"loss": 0.3}, {"loss": 0.2, "doubled": 0.5, "late": 0.3}]


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_each_query_receives_its_own_reply(faults):
    for seed in range(5):
        run(sound, seed=seed, **faults)


@pytest.mark.mutant
def test_the_check_sees_a_mutant():
    with pytest.raises((AssertionError, AttributeError)):
        run(mutant(sound, "self._tag = (self._tag + 1) % 2**32", "self._tag = (self._tag + 1) % 2"))


def test_the_window_grows_by_one_in_a_round_trip():
    machine, most, sent, seconds = run(sound)
    trips = seconds / DELAY_S
    assert sent == 400 and 8 < most <= int(machine.window) <= 8 + trips + 1


@pytest.mark.parametrize("holds", [1, 4, 30])
def test_the_window_adapts_to_the_capacity_of_the_network(holds):
    """Datagrams that the network cannot hold are lost. Most queries are still sent only once."""
    machine, most, sent, _ = run(sound, 3000, holds=holds)
    assert most <= holds and machine.window <= 2 * holds + 4
    assert sent < 3000 * (2.5 if holds == 1 else 1.25)


def test_simultaneous_losses_halve_the_window_once():
    machine = sound.Queries(session=0, token=0)
    asked = [sound.Query(Kind.LOAD, count=1, body=k.to_bytes(8, "little")) for k in range(8)]
    for query in asked:
        machine.put(query)
    payloads = machine.due(0.0)
    assert len(payloads) == 8
    for payload in payloads[4:]:
        machine.handle_reply(reply_to(payload), DELAY_S)
    before = machine.window
    assert machine.due(DELAY_S) == []
    assert len(machine.due(machine.wake_at())) == 4 == machine.retransmissions and machine.window == before / 2


def test_a_cancelled_query_is_not_sent_again():
    machine = sound.Queries(session=0, token=0)
    asked = [sound.Query(Kind.LOAD, count=1, body=bytes(8)) for _ in range(20)]
    for query in asked:
        machine.put(query)
    payloads = machine.due(0.0)
    machine.cancel(asked)
    assert (
        machine.handle_reply(reply_to(payloads[0]), DELAY_S) is None
        and not machine.pending
        and machine.wake_at() == float("inf")
    )
