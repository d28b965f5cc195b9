"""Items in the order in which they were added, over a network that loses, duplicates and reorders.

The oracle is the list of what was added: the number of a transition is in its content, and rises by one with each.
"""

import random
from itertools import pairwise

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.errors import IswitchError
from iswitch.replay import Field, NotServedError, ReplayClient, SessionLostError
from iswitch.replay import fifo as sound
from sim.bench.mutant import mutant
from sim.bench.replay_network import Network

CAPACITY = 64
REPLAY = Replay(capacity=CAPACITY, sessions=4, cached_answers=4, samples_per_request=64, log_bytes=1 << 17)
PLAIN = {"number": Field((), np.int64), "values": Field((4,), np.float32)}
IN_THE_LOG = {"number": Field((), np.int64), "long": Field((30,), np.float32), "s": Field((3, 70), "u1", stacked=3)}
SPECS = {"plain": PLAIN, "in the log": IN_THE_LOG}
FAULTS = [{}, {"doubled": 1.0}, {"late": 0.5}, {"loss": 0.3, "doubled": 0.3, "late": 0.3}]


def network(**faults):
    return Network(Config(ports=4, members=4, replay=REPLAY), **faults)


def transitions(spec, numbers):
    """The content of each transition follows from its number. Neighbours share frames."""
    numbers = np.asarray(numbers)
    columns = {}
    for name, field in spec.items():
        shape = (-1, *(1,) * len(field.axes))
        content = numbers.reshape(shape) + (np.arange(field.stacked)[:, None] if field.stacked else 0)
        columns[name] = np.broadcast_to(
            content % 251 if field.wire_dtype == "u1" else content, (len(numbers), *field.axes)
        )
        columns[name] = columns[name].astype(field.wire_dtype)
    return columns


def add(client, numbers):
    client.extend(transitions(client.spec, numbers), np.ones(len(numbers)))


def assert_sound(client, batch):
    """The batch has the transitions that its handles name."""
    expected = transitions(client.spec, batch.items.astype(np.int64) - CAPACITY)
    assert set(batch.data) == set(expected)
    for name, column in batch.data.items():
        assert column.dtype == expected[name].dtype and column.tobytes() == expected[name].tobytes(), name


# In order, each once


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_items_come_in_the_order_of_adding_each_once(spec, faults):
    net = network(**faults)
    with ReplayClient(net.transport(), SPECS[spec]) as actor, ReplayClient(net.transport(), SPECS[spec]) as learner:
        reader, items = learner.fifo(7), []
        for first in range(0, 210, 30):
            add(actor, range(first, first + 30))
            actor.flush()
            while len(items) + 7 <= first + 30:
                batch = next(reader)
                assert len(batch) == 7 and batch.overwritten == 0
                assert_sound(learner, batch)
                items += batch.items.tolist()
        assert items == list(range(CAPACITY, CAPACITY + 210)) and reader.overwritten == 0
        assert reader.position == CAPACITY + 210


def race(module, seed, monkeypatch, spec=PLAIN):
    """An actor adds at random moments, also while items are read, often faster than the learner reads. Return how many
    items were overwritten."""
    monkeypatch.setattr("iswitch.replay.client.Fifo", module.Fifo)
    chance, net = random.Random(seed), network(seed=seed, loss=0.1 * (seed % 3), doubled=0.2, late=0.2)
    with ReplayClient(net.transport(), spec) as actor, ReplayClient(net.transport(), spec, wait_s=5.0) as learner:
        added = 0

        def act():
            nonlocal added
            if actor.closed:
                return
            if actor._session.channel.queued:
                actor.poll()  # an actor that waits would stop the time of the learner, which waits for its own
            else:
                count = chance.choice([0, 0, 1, 40])
                add(actor, range(added, added + count))
                added += count

        net.every(0.0005, act)
        reader, last = learner.fifo(8), CAPACITY - 1
        for _ in range(20):
            batch = next(reader)
            assert_sound(learner, batch)
            items = [last, *batch.items.tolist()]
            assert all(one < other for one, other in pairwise(items))
            assert batch.overwritten == items[-1] - last - 8, "each gap is counted with the batch behind it"
            last = items[-1]
        assert 20 * 8 + reader.overwritten == last + 1 - CAPACITY == reader.position - CAPACITY
    return reader.overwritten


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", SPECS)
def test_what_a_faster_actor_overwrites_is_counted(spec, seed, monkeypatch):
    assert race(sound, seed, monkeypatch, SPECS[spec]) > 0


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("present = ~read.overwritten", "present = np.ones(count, np.bool_)"),
        (
            "self._ahead = (self._ahead + lead) % _HANDLES",
            "self._ahead = self.position = (self._ahead + lead) % _HANDLES",
        ),
        ("(self._ahead + count) % _HANDLES", "(self._ahead + count + 1) % _HANDLES"),
        ("self._read(min(missing, unread))", "self._read(missing)"),
        ("(int(items[-1]) + 1) % _HANDLES", "(int(items[0]) + count) % _HANDLES"),
        ("self.overwritten + overwritten", "overwritten"),
    ],
)
def test_the_check_notices_a_mutant(right, wrong, monkeypatch):
    noticed = []
    for seed in range(3):
        try:
            race(mutant(sound, right, wrong), seed, monkeypatch)
        except (AssertionError, ValueError, IswitchError) as error:
            noticed.append(error)
    assert noticed


def test_handles_wrap():
    """The table is as after 2^32 - 128 adds, of items of priority 0."""
    net = network()
    table = net.switch.service.tables[0]
    table.adds, table.slots.filled, table.slots.generations = 2**32 - 128, 64, [2**26 - 2] * 64
    with ReplayClient(net.transport(), PLAIN) as client:
        reader = client.fifo(30, start="next")
        numbers, items = [], []
        for first in range(0, 240, 30):
            add(client, range(first, first + 30))
            batch = next(reader)
            numbers += batch.data["number"].tolist()
            items += batch.items.tolist()
        assert numbers == list(range(240)) and items == [(k + 2**32 - 64) % 2**32 for k in range(240)]
        assert reader.overwritten == 0


# Where reading begins, and how it goes on


def test_reading_begins_with_the_oldest_item_the_next_one_or_a_handle():
    net = network()
    with ReplayClient(net.transport(), PLAIN) as client:
        add(client, range(100))
        client.flush()
        oldest, following, handle, overwritten = (client.fifo(4, start=start) for start in ("oldest", "next", 120, 70))
        add(client, range(100, 104))
        assert next(following).items.tolist() == [164, 165, 166, 167]
        assert next(handle).items.tolist() == [120, 121, 122, 123]
        batch = next(overwritten)
        assert batch.items.tolist() == [104, 105, 106, 107] and batch.overwritten == overwritten.overwritten == 34
        batch = next(oldest)  # four of them were overwritten since
        assert batch.items.tolist() == [104, 105, 106, 107] and batch.overwritten == 4


def test_every_reader_gets_every_item_and_the_table_stays_as_it_is():
    net = network(loss=0.1)
    with ReplayClient(net.transport(), PLAIN) as client, ReplayClient(net.transport(), PLAIN) as other:
        add(client, range(40))
        client.flush()
        before = client.statistics()
        readers = [client.fifo(20), client.fifo(10), other.fifo(40)]
        assert [next(reader).items[0] for reader in readers] == [64, 64, 64]
        assert next(readers[0]).items.tolist() == list(range(84, 104))
        after = client.statistics()
        for name in ("size", "adds", "samples", "priority_sum", "ticket"):
            assert getattr(before, name) == getattr(after, name)


def test_items_that_wait_in_the_client_itself_are_sent():
    net = network()
    with ReplayClient(net.transport(), PLAIN, wait_s=1.0) as client:
        reader = client.fifo(5)
        for number in range(5):
            client.add(priority=1.0, **{name: column[0] for name, column in transitions(PLAIN, [number]).items()})
        assert next(reader).data["number"].tolist() == [0, 1, 2, 3, 4]


def test_items_that_came_before_the_time_was_over_are_in_the_next_batch():
    net = network()
    with ReplayClient(net.transport(), PLAIN, wait_s=2.0) as client:
        reader = client.fifo(5)
        assert reader.available() == 0
        add(client, range(3))
        before = net.now
        with pytest.raises(NotServedError, match=r"only 3 of 5 items .* within 2 s"):
            next(reader)
        assert 1.9 < net.now - before < 2.5
        assert reader.available() == 3
        add(client, range(3, 6))
        assert next(reader).items.tolist() == [64, 65, 66, 67, 68] and reader.available() == 1


def test_a_reader_goes_on_in_a_new_session():
    net = network()
    client = ReplayClient(net.transport(), PLAIN)
    add(client, range(30))
    client.flush()
    reader = client.fifo(10)
    next(reader)
    net.switch.service.sessions[:] = [net.switch.service.sessions[0]._replace(open=False)] * 4
    with pytest.raises(SessionLostError):
        client.sample(1)
    client.reopen()
    assert next(reader).items.tolist() == list(range(74, 84))
    client.close()
    with ReplayClient(net.transport(), PLAIN) as other:
        assert next(other.fifo(10, start=reader.position)).items.tolist() == list(range(84, 94))


@pytest.mark.parametrize("spec", SPECS)
def test_reads_may_have_different_lengths(spec):
    chance, net = random.Random(1), network(loss=0.1)
    with ReplayClient(net.transport(), SPECS[spec], wait_s=0.05) as client:
        reader, items, added = client.fifo(64), [], 0
        for _ in range(60):
            count = chance.randint(1, 20)
            if added - len(items) < 30:
                add(client, range(added, added + 9))
                client.flush()
                added += 9
            try:
                batch = reader.read(count)
            except NotServedError:
                assert added - len(items) < count
                continue
            assert len(batch) == count and batch.overwritten == 0
            assert_sound(client, batch)
            items += batch.items.tolist()
            assert reader.position == items[-1] + 1
        assert len(items) > 200 and items == list(range(CAPACITY, CAPACITY + len(items)))


def test_one_part_is_returned_without_a_copy(monkeypatch):
    received = []

    class Read(sound.TransitionRead):
        def advance(self):
            done = super().advance()
            if done:
                received.append(self.columns)
            return done

    monkeypatch.setattr(sound, "TransitionRead", Read)
    with ReplayClient(network().transport(), PLAIN) as client:
        add(client, range(8))
        client.flush()
        batch = next(client.fifo(8))
        assert all(batch.data[name] is received[-1][name] for name in PLAIN)


# Errors


def test_a_table_with_fewer_items_than_were_read_is_an_error():
    net = network()
    with ReplayClient(net.transport(), PLAIN) as client:
        add(client, range(5))
        client.flush()
        with pytest.raises(IswitchError, match=r"item 100 .* cannot be next, because only 5 items were ever added"):
            client.fifo(1, start=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "1 to 64 items"),
        ({"count": 65}, "1 to 64 items"),
        ({"count": True}, "1 to 64 items"),
        ({"count": 1, "start": "newest"}, 'start must be "oldest", "next" or a handle'),
        ({"count": 1, "start": -1}, 'start must be "oldest", "next" or a handle'),
        ({"count": 1, "start": 63}, "the first item has the handle 64, not 63"),
    ],
)
def test_arguments_wrong(arguments, message):
    with ReplayClient(network().transport(), PLAIN) as client, pytest.raises(ValueError, match=message):
        client.fifo(**arguments)
