"""A learning bridge against plain dictionaries of where and when each station was last seen."""

import random

import pytest

from iswitch.golden.bridge.forwarder import MacTable, destinations
from iswitch.wire import Outcome
from sim.bench.hosts import crowd

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


def test_stations_of_one_port_replace_each_other_in_turn():
    table = MacTable(64)
    for mac in crowd(64, 8):
        table.learn(mac, 1, OWN)
    assert [table.port(mac) for mac in crowd(64, 8)] == [None] * 4 + [1] * 4


def test_made_up_addresses_push_no_station_of_another_port_out_of_its_share():
    for ports in (2, 3, 4):
        table, macs = MacTable(64), iter(crowd(64, 16))
        share = 4 // ports
        stations = [(next(macs), port) for port in range(1, ports) for _ in range(share)]
        for mac, port in stations:
            table.learn(mac, port, OWN)
        for mac in macs:
            table.learn(mac, 0, OWN)
        assert [table.port(mac) for mac, _ in stations] == [port for _, port in stations]


def test_a_port_whose_addresses_fill_a_set_gives_the_others_their_share():
    for ports in (2, 3, 4):
        table, macs = MacTable(64), crowd(64, 16)
        stations = [(macs.pop(), port) for port in range(1, ports) for _ in range(4 // ports)]
        for mac in macs:
            table.learn(mac, 0, OWN)
        for mac, port in stations:
            table.learn(mac, port, OWN)
        assert [table.port(mac) for mac, _ in stations] == [port for _, port in stations]


def test_a_port_loses_an_entry_only_to_one_with_at_least_two_entries_fewer_in_the_set():
    """And a new station is learnt unless four other ports have an entry each."""
    rng = random.Random(1)
    for _ in range(300):
        table, stations, ports = MacTable(64), crowd(64, 12), rng.randrange(2, 7)
        for _ in range(60):
            mac, port = rng.choice(stations), rng.randrange(ports)
            before = {mac: at for mac in stations if (at := table.port(mac)) is not None}
            table.learn(mac, port, OWN)
            held, own = list(before.values()), list(before.values()).count(port)
            for lost in [at for other, at in before.items() if table.port(other) is None]:
                assert mac not in before and len(held) == 4
                assert lost == port or held.count(lost) >= own + 2
            others = len(set(held)) == 4 and port not in held
            assert table.port(mac) == (port if mac in before or not others else None)


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
