"""Pushes whose usual case is in C are those of Python: the same frames at the same times, and the same errors."""

import shutil

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.errors import IswitchError
from iswitch.native.loader import SOURCES, best_level, build, load
from iswitch.replay import Field, ReplayClient, channel, query_group, request_ring
from iswitch.replay.channel import Channel
from iswitch.replay.messages import Status, encode
from iswitch.replay.request import Request
from iswitch.replay.request_ring import RequestRing
from iswitch.wire import Type, version_type
from iswitch.wire.replay import PAYLOAD_BYTES, UNIT_BYTES, WRITE, Kind, ReplayOutcome
from sim.bench.replay_network import Network

FAULTS = [{}, {"doubled": 1.0}, {"late": 0.4}, {"loss": 0.2}, {"loss": 0.1, "doubled": 0.3, "late": 0.3}]
UNITS = PAYLOAD_BYTES // UNIT_BYTES
HEADER_BYTES, END_BYTES = 22, 8
TOKEN = 0xABCD


def use(monkeypatch, library):
    """Use a library, or None."""
    for module in (query_group, channel, request_ring):
        monkeypatch.setattr(module, "compiled_library", lambda: library)


def pushes(size, counts, *, seed=1, cached_answers=4, restart_at=None, table=0, log_bytes=1 << 21, **faults):
    """Push items of so many bytes; return every payload with its time, what the switch stores, and the error if one
    ended it."""
    replay = Replay(tables=2, capacity=128, sessions=2, cached_answers=cached_answers, log_bytes=log_bytes)
    net = Network(Config(ports=4, members=4, replay=replay), seed=seed, **faults)
    carried, items, error = [], [], ""
    net.lose = lambda payload, there: bool(carried.append((net.now, there, payload)))
    if restart_at:
        net.at(net.now + restart_at, lambda: net.switch.service.__init__(replay))
    rng = np.random.default_rng(seed)
    client = ReplayClient(net.transport(), {"data": Field((size,), np.uint8)}, table=table)
    try:
        for count in counts:
            data = rng.integers(0, 256, (count, size), np.uint8)
            added = client.extend({"data": data}, 1 + rng.random(count))
            client.add(data=data[0], priority=0.5)
            if count % 2:
                client.update_priority([1], [2.0])  # which a ring does not take
            client.extend({"data": data}, np.ones(count), ticket=0)
            items.append(added.items.tolist())
            client.flush()
            items.append(client.sample(4, seed=count).data["data"].tolist())
    except IswitchError as raised:
        error = f"{type(raised).__name__}: {raised}"
    return carried, items, error, client._session.adds


def same(monkeypatch, library, *arguments, **options):
    used = []
    put = Channel.put_writes
    monkeypatch.setattr(Channel, "put_writes", lambda self, *a, **o: used.append(put(self, *a, **o)) or used[-1])
    use(monkeypatch, library)
    compiled = pushes(*arguments, **options)
    was_used = any(used)
    use(monkeypatch, None)
    assert compiled == pushes(*arguments, **options)
    return was_used, compiled


SIZES = [*(units * UNIT_BYTES + rest for units in (1, UNITS, 2 * UNITS) for rest in (-1, 0, 1)), 7056]


@pytest.mark.parametrize("size", SIZES)
def test_frames_times_and_items_are_those_of_python_for_sizes_beside_each_boundary(size, monkeypatch):
    used, (_, _, error, _) = same(monkeypatch, channel.compiled_library(), size, [1, 2, 18, 19, 20, 21])
    assert used == (size > 64) and not error


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("cached_answers", [1, 16])
def test_frames_times_and_items_are_those_of_python_over_a_bad_network(cached_answers, faults, monkeypatch):
    library = channel.compiled_library()
    used, (_, _, error, _) = same(monkeypatch, library, 3000, [30, 3], cached_answers=cached_answers, **faults)
    assert used and not error


def test_a_push_longer_than_the_queue_is_that_of_python(monkeypatch):
    used, (_, _, error, _) = same(monkeypatch, channel.compiled_library(), 100_000, [1, 3], log_bytes=1 << 21, table=1)
    assert used and not error


@pytest.mark.parametrize("restart_at", [0.001, 0.002, 0.0031])
def test_a_switch_that_restarts_ends_a_push_as_in_python(restart_at, monkeypatch):
    _, (_, _, error, _) = same(monkeypatch, channel.compiled_library(), 7056, [60, 60], restart_at=restart_at)
    assert error.startswith("SessionLostError")


def test_a_full_log_ends_a_push_as_in_python(monkeypatch):
    _, (_, _, error, _) = same(monkeypatch, channel.compiled_library(), 7056, [60, 20], log_bytes=1 << 18)
    assert error.startswith("MemoryExhaustedError")


def ring_of(sent=2, queued=1):
    """A ring with WRITEs that were sent, and others."""
    ring = RequestRing(session=1, token=TOKEN, slots=8)
    ring.begin(first_seq=2**32 - 1, orders=5, table=0)
    ring.put_writes(np.zeros((sent + queued, WRITE.itemsize + UNIT_BYTES), np.uint8), 1, 9.0)
    ring.build(sent, 1.0, 3.0)
    return ring


def answer(number, *, kind=Kind.WRITE, token=TOKEN, outcome=ReplayOutcome.DONE, rows=b"", first=2**32 - 1):
    head = bytearray(encode(kind, session=1, token=token, seq=(first + number) % 2**32))
    head[0] = version_type(Type.ANSWER)
    return bytes(head) + bytes([outcome]) + bytes(63) + rows + bytes(END_BYTES)


WRONG = [
    answer(1),  # that of request 0 has not come
    answer(-1),
    answer(0, kind=Kind.ADD),
    answer(0, kind=Kind.SKIP),
    answer(0, token=TOKEN + 1),
    *(answer(0, outcome=outcome) for outcome in ReplayOutcome if outcome != ReplayOutcome.DONE),
    answer(0, rows=bytes(8)),
    answer(0)[:-1],
    answer(0)[:1],
    bytes([version_type(Type.DATA)]) + answer(0)[1:],
]


@pytest.mark.parametrize("wrong", WRONG)
def test_every_other_datagram_is_left_to_python_and_changes_nothing(wrong):
    ring = ring_of()
    assert ring.take(memoryview(bytearray(wrong)), len(wrong), len(wrong), 0, 2.0) == 0
    assert (ring.state.low, ring.state.next, ring.state.end, ring.state.delay_count) == (0, 2, 3, 0)


def test_an_answer_to_a_request_that_was_not_sent_is_left_to_python():
    ring, burst = ring_of(), answer(0) + answer(1) + answer(2)
    assert ring.take(memoryview(bytearray(burst)), len(burst), len(burst) // 3, 0, 1.5) == 2 * len(burst) // 3
    assert (ring.flying, ring.queued, ring.delays) == (0, 1, [0.5, 0.5])
    assert isinstance(ring.status(1), Status)


def test_requests_that_are_taken_back_are_as_they_were_put():
    ring, request = ring_of(), Request(Kind.ADD, count=3, body=bytes(range(64)), ticket=7, deadline=4.0)
    assert ring.accepts(request) and not ring.accepts(Request(Kind.UPDATE))
    ring.put(request)
    flying, queued = ring.take_back()
    assert [each.kind for each in flying + queued] == [Kind.WRITE] * 3 + [Kind.ADD] and queued[1] is request
    assert [(each.seq, each.transmissions, each.first_order, each.due_at) for each in flying] == [
        (2**32 - 1, 1, 6, 3.0),
        (0, 1, 7, 3.0),
    ]
    assert (queued[0].transmissions, queued[0].deadline, ring.pending) == (0, 9.0, 0)


def test_the_ticket_of_a_request_is_sent():
    ring = ring_of(queued=0)
    ring.put(Request(Kind.ADD, count=1, body=bytes(8), ticket=7))
    assert ring.build(1, 1.0, 2.0)[0][12:16] == bytes([7, 0, 0, 0]) and ring.earliest_due_at == 2.0


@pytest.mark.mutant
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("put_u32(out + REPLAY_SEQ_AT, r->first_seq + number);", "put_u32(out + REPLAY_SEQ_AT, r->first_seq);"),
        ("put_u32(out + REPLAY_TICKET_AT, ((const uint32_t *)r->tickets)[slot]);", ""),
        ("out[REPLAY_KIND_AT] = ((const uint8_t *)r->kinds)[slot];", ""),
        ("((double *)r->due_at)[slot] = due_at;", "((double *)r->due_at)[slot] = due_at + 0.001;"),
        ("now - ((const double *)r->sent_at)[slot]", "0.001"),
        ("datagram[REPLAY_HEADER_BYTES + REPLAY_OUTCOME_AT] != REPLAY_DONE", "0"),
        ("u32_at(datagram + REPLAY_SEQ_AT) != r->first_seq + r->low", "0"),
    ],
)
def test_a_mutant_of_the_pushes_is_noticed(right, wrong, tmp_path, monkeypatch):
    sources = tmp_path / "sources"
    shutil.copytree(SOURCES, sources)
    text = (sources / "replay.c").read_text()
    assert text.count(right) == 1
    (sources / "replay.c").write_text(text.replace(right, wrong))
    made = load(build(tmp_path, ["cc"], best_level(), sources=sources))
    with pytest.raises((AssertionError, IswitchError, IndexError)):
        same(monkeypatch, made, 3000, [20])
        use(monkeypatch, made)
        test_an_answer_to_a_request_that_was_not_sent_is_left_to_python()
        test_requests_that_are_taken_back_are_as_they_were_put()
        test_the_ticket_of_a_request_is_sent()
        for datagram in WRONG:
            test_every_other_datagram_is_left_to_python_and_changes_nothing(datagram)
