"""A learning bridge against plain dictionaries of where and when each station was last seen."""

import random

import pytest

from iswitch.wire import Outcome
from sim.bench.hosts import crowd
from sim.model.bridge.forwarder import MacTable, destinations

OWN = bytes.fromhex("025749000001")
A, B, C = (bytes([2, 0, 0, 0, 0, k]) for k in (10, 11, 12))
TICK_US = 1 << 24
SECOND = 1_000_000


def test_unknown_group_and_broadcast_go_everywhere_but_back():
    table = MacTable(64)
    for to in (A, b"\xff" * 6, bytes.fromhex("01005e000001")):
        table.learn(to, 2, OWN)  # nobody can be a group
        if to[0] & 1:
            assert destinations(table, to, 1, range(4)) == (Outcome.ORDINARY, [0, 2, 3])
    assert destinations(table, B, 3, range(4)) == (Outcome.ORDINARY, [0, 1, 2])


def test_known_station_gets_it_alone_and_what_is_there_already_is_filtered():
    table = MacTable(64)
    table.learn(A, 2, OWN)
    assert destinations(table, A, 1, range(4)) == (Outcome.ORDINARY, [2])
    assert destinations(table, A, 2, range(4)) == (Outcome.FILTERED, [])
    table.learn(A, 3, OWN)
    assert destinations(table, A, 2, range(4)) == (Outcome.ORDINARY, [3])


@pytest.mark.parametrize("mac", [OWN, bytes(6), b"\xff" * 6, bytes.fromhex("01005e000001")])
def test_addresses_of_no_station_are_not_learnt(mac):
    table = MacTable(64)
    table.learn(mac, 2, OWN)
    assert table.port(mac) is None


def test_fifteen_addresses_are_not_forwarded_and_bpdus_and_their_neighbours_are():
    table = MacTable(64)
    fates = [destinations(table, bytes.fromhex("0180c20000") + bytes([k]), 0, range(2))[0] for k in range(256)]
    assert fates == [Outcome.ORDINARY] + [Outcome.RESERVED] * 15 + [Outcome.ORDINARY] * 240
    assert destinations(table, bytes.fromhex("0180c2000100"), 0, range(2)) == (Outcome.ORDINARY, [1])


@pytest.mark.parametrize("begun", [0, TICK_US - 1, 2**32 - 1, 2**32 - 100 * SECOND])
def test_a_station_ages_out_after_about_300_seconds(begun):
    ages = []
    for age in range(280 * SECOND, 310 * SECOND, SECOND // 2):
        table = MacTable(64)
        table.advance(begun)
        table.learn(A, 1, OWN)
        table.advance((begun + age) % 2**32)
        ages += [age] if table.port(A) is None else []
    assert 285 * SECOND <= min(ages) <= 302 * SECOND
    assert ages == list(range(min(ages), 310 * SECOND, SECOND // 2))


def test_a_station_that_aged_out_stays_unknown_when_the_clock_wraps():
    table = MacTable(64)
    table.learn(A, 1, OWN)
    for now_us in range(0, 2**32, TICK_US):
        table.advance(now_us)
    table.advance(0)
    assert table.port(A) is None


def test_a_full_set_replaces_the_oldest_entry():
    """Of 7 stations in a set of 4, each seen in a tick of its own, the table knows the last 4."""
    rng, table, heard = random.Random(1), MacTable(64), {}
    stations = crowd(64, 7)
    for tick in range(200):
        table.advance(tick * TICK_US // 16)
        if tick % 16 == 0:
            mac, port = rng.choice(stations), rng.randrange(8)
            table.learn(mac, port, OWN)
            heard.pop(mac, None)
            heard[mac] = port
        last = dict(list(heard.items())[-4:])
        assert [table.port(mac) for mac in stations] == [last.get(mac) for mac in stations]


def test_addresses_in_a_row_share_no_set():
    table = MacTable(4096)
    for k in range(1024):
        table.learn(bytes([2, 0, 0, 0, k >> 8, k & 255]), 1, OWN)
    assert all(sum(entry is not None for entry in ways) == 1 for ways in table.sets)


def test_a_port_without_a_link_gets_nothing_and_its_stations_are_removed():
    table = MacTable(64)
    table.learn(A, 1, OWN)
    table.learn(B, 2, OWN)
    table.flush(1)
    assert destinations(table, A, 0, (0, 2, 3)) == (Outcome.ORDINARY, [2, 3])
    assert destinations(table, B, 0, (0, 2, 3)) == (Outcome.ORDINARY, [2])
