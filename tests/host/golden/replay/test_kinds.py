"""What each kind of request does, at its borders: order of checks, waiting, limits, parameters, sessions."""

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.wire import NOTICE_INTERVAL_US, Type
from iswitch.wire.replay import SESSION_SILENT_US, UNIT_BYTES, Kind, ReplayOutcome
from sim.bench.replay_bench import ReplayBench, fields
from sim.bench.replay_client import ReplayClient, parse_frame

REPLAY = Replay(
    tables=2,
    capacity=16,
    priority_bits=20,
    sample_count_bits=2,
    sessions=3,
    cached_answers=2,
    samples_per_request=512,
    record_bytes=64,
    log_bytes=4096,
)
CONFIG = Config(ports=4, members=4, jobs=2, window=2, elements=704, replay=REPLAY)
"""Ports let frames pass that the service finds too long."""
RECORD = bytes(range(64))


@pytest.fixture
def bench() -> ReplayBench:
    return ReplayBench(CONFIG)


def ones(count: int) -> list[tuple[int, bytes]]:
    return [(1, RECORD)] * count


# Form

LENGTHS = {
    Kind.OPEN: [(0, 8)],
    Kind.CLOSE: [(0, 0)],
    Kind.WRITE: [(1, 72), (22, 1416)],
    Kind.ADD: [(1, 72), (19, 1368)],
    Kind.SAMPLE: [(1, 32), (512, 32)],
    Kind.UPDATE: [(1, 8), (177, 1416)],
    Kind.PUBLISH: [(0, 16)],
    Kind.LIMIT: [(0, 24)],
    Kind.SKIP: [(0, 0)],
    Kind.FETCH: [(1, 8), (22, 176)],
    Kind.LOAD: [(1, 8), (22, 8)],
    Kind.LOOK: [(0, 0)],
    Kind.LIST: [(1, 8), (160, 8)],
    Kind.SHOUT: [(1, 8), (22, 8)],
    Kind.REBUILD: [(1, 8), (1024, 8)],
}
"""Counts, the least and the most, and the bytes of a body with so many."""


@pytest.mark.parametrize("kind", Kind)
def test_a_body_is_as_long_as_kind_and_count_say(bench, kind):
    client = bench.client()

    def length_fault(count: int, size: int) -> bool:
        before = bench.switch.service.outcomes[ReplayOutcome.LENGTH]
        bench.send(client, client.request(kind, bytes(size), count=count, seq=5))
        return bench.switch.service.outcomes[ReplayOutcome.LENGTH] > before

    for count, size in LENGTHS[kind]:
        assert not length_fault(count, size)
        assert all(length_fault(count, wrong) for wrong in (size + 8, size + 1, size - 1, size - 8) if wrong >= 0)
    (least, size), (most, largest) = LENGTHS[kind][0], LENGTHS[kind][-1]
    each = (largest - size) // (most - least) if most > least else 0
    assert length_fault(most + 1, largest + each) and length_fault(65535, largest)
    assert least == 0 or length_fault(0, size - each)


@pytest.mark.parametrize(
    "record_bytes, items, records", [(64, 19, 22), (128, 10, 11), (256, 5, 5), (512, 2, 2), (1024, 1, 1)]
)
def test_as_many_items_as_fit(record_bytes, items, records):
    bench = ReplayBench(
        Config(elements=704, replay=Replay(capacity=32, sessions=2, record_bytes=record_bytes, log_bytes=4096))
    )
    client = bench.client()
    made = [(k + 1, bytes([k]) * record_bytes) for k in range(items + 1)]
    assert bench.one(client, client.add(0, made)).outcome == ReplayOutcome.LENGTH
    assert fields(bench.one(client, client.add(0, made[:items])), "done", "adds") == (items, items)
    data = bench.one(client, client.fetch([32 + k % items for k in range(records)]))
    assert data.payload == b"".join(made[k % items][1] for k in range(records)) and not int(data.header["ticket"])
    bench.now_us += 100
    assert bench.one(client, client.fetch([32] * (records + 1))).outcome == ReplayOutcome.LENGTH


def test_the_first_check_that_fails_says_what_becomes_of_it(bench):
    client = bench.client()
    cases = [
        ({"kind": 200, "table": 9, "count": 9, "token": 0}, ReplayOutcome.KIND),
        ({"table": 2, "count": 9, "token": 0}, ReplayOutcome.TABLE),
        ({"count": 9, "token": 0}, ReplayOutcome.LENGTH),
        ({"token": 0}, ReplayOutcome.SESSION),
        ({"session": 1}, ReplayOutcome.SESSION),
        ({"session": 255}, ReplayOutcome.SESSION),
    ]
    for wrong, outcome in cases:
        bench.now_us += 100
        answer = bench.one(client, client.request(**({"kind": Kind.SKIP} | wrong)))
        assert answer.outcome == outcome
        assert [int(answer.header[name]) for name in wrong if name != "count"] == [
            value for name, value in wrong.items() if name != "count"
        ]


# Order


def test_numbers_are_serial(bench):
    bench.switch.service.sessions = [session._replace(next=2**32 - 4) for session in bench.switch.service.sessions]
    client = bench.client()
    for seq in (2**32 - 2, 2**32 - 1, 0, 1):
        assert bench.one(client, client.add((seq - 3) % 2**32, ones(1))).outcome == ReplayOutcome.OLD
        assert bench.one(client, client.add((seq + 1) % 2**32, ones(1))).outcome == ReplayOutcome.AHEAD
        assert fields(bench.one(client, client.add(seq, ones(1))), "outcome", "next") == (
            ReplayOutcome.DONE,
            (seq + 1) % 2**32,
        )
    half = 2 + 2**31
    assert bench.one(client, client.add(half, ones(1))).outcome == ReplayOutcome.OLD
    assert bench.one(client, client.add(half - 1, ones(1))).outcome == ReplayOutcome.AHEAD
    assert bench.outcomes() == {"DONE": 5, "OLD": 5, "AHEAD": 5}


def test_a_skip_is_answered_with_what_was_executed(bench):
    client = bench.client()
    bench.one(client, client.add(0, ones(3)))
    first = bench.one(client, client.sample(1, 4, 9, table=0))
    again = bench.one(client, client.skip(1, table=1))
    assert again.rows == first.rows and again.header["kind"] == Kind.SAMPLE and again.header["table"] == 0
    assert bench.one(client, client.sample(2, 4, 9, items=4)).outcome == ReplayOutcome.ITEMS
    skipped = bench.one(client, client.skip(2))
    assert skipped.header["kind"] == Kind.SKIP and fields(skipped, "outcome", "next", "sampled", "ticket") == (
        ReplayOutcome.DONE,
        3,
        4,
        3,
    )
    late = bench.one(client, client.sample(2, 4, 9))
    assert late.header["kind"] == Kind.SKIP and late.rows == []
    assert bench.outcomes() == {"DONE": 4, "ITEMS": 1, "REPEATED": 2}


def test_close_frees_the_session_and_its_numbers_continue(bench):
    client = bench.client()
    bench.one(client, client.write(0, 0, RECORD))
    answer = bench.one(client, client.close(1))
    assert fields(answer, "outcome", "next", "nonce", "written") == (ReplayOutcome.DONE, 2, client.nonce, 1)
    assert bench.one(client, client.close(1)).outcome == ReplayOutcome.SESSION
    other = ReplayClient(1)
    for _ in range(2):
        other.opened(answer := bench.one(other, bench.open(other)))
        assert fields(answer, "next", "written", "oldest", "nonce") == (2 + REPLAY.cached_answers, 1, 0, other.nonce)
    for seq in range(2 + REPLAY.cached_answers):
        assert fields(bench.one(other, other.skip(seq)), "outcome", "next") == (
            ReplayOutcome.OLD,
            2 + REPLAY.cached_answers,
        )
    assert bench.one(other, other.skip(2 + REPLAY.cached_answers)).outcome == ReplayOutcome.DONE


def test_a_client_that_gets_its_session_back_is_told_what_is_old(bench):
    """Its second request is not executed without the first, however many the other client sent."""
    client, *rest = [bench.client(k) for k in range(3)]
    bench.now_us = SESSION_SILENT_US
    for each in rest:
        bench.one(each, each.look())
    other = bench.client(3)
    assert other.session == client.session
    bench.one(other, other.close(2))
    assert fields(bench.one(client, bench.open(client)), "next") == (5,)
    for seq in (0, 1):
        assert bench.one(client, client.add(seq, ones(1))).outcome == ReplayOutcome.OLD
    assert bench.outcomes()["OLD"] == 2 and not bench.switch.service.tables[0].adds


def test_a_late_open_gives_no_session_to_a_client_that_has_closed_its_own(bench):
    client = bench.client()
    late = client.open()
    bench.one(client, client.close(0))
    challenge = bench.switch.service.challenge
    answer = bench.one(client, late)
    assert answer.outcome == ReplayOutcome.CHALLENGE and answer.header["ticket"] == challenge
    assert not any(session.open for session in bench.switch.service.sessions)
    bench.now_us += NOTICE_INTERVAL_US
    assert bench.one(client, client.open(challenge=challenge)).outcome == ReplayOutcome.DONE


def test_an_open_is_repeated_as_often_as_a_client_likes(bench):
    client = bench.client()
    challenge = bench.switch.service.challenge
    for _ in range(3):
        assert bench.one(client, client.open()).outcome == ReplayOutcome.DONE
    assert bench.switch.service.challenge == challenge


def test_an_open_needs_a_nonce_whose_lower_half_is_not_0(bench):
    for nonce in (0, 7 << 32):
        bench.now_us += NOTICE_INTERVAL_US
        nameless = ReplayClient(0, nonce=nonce)
        assert bench.one(nameless, bench.open(nameless)).outcome == ReplayOutcome.RANGE


def test_broadcasts_follow_a_client_that_opens_its_session_from_a_new_address(bench):
    client, sender = bench.client(0), bench.client(1)
    bench.one(sender, sender.write(0, 0, bytes(UNIT_BYTES)))
    late = client.open()
    client.port, client.udp_port = 2, 5
    stale = bench.one(client, client.open())
    assert stale.outcome == ReplayOutcome.CHALLENGE
    shouts = lambda: [port for port, _ in bench.send(sender, sender.shout(0, 1))]
    assert shouts() == [0, 1]
    assert bench.one(client, client.open(challenge=int(stale.header["ticket"]))).outcome == ReplayOutcome.DONE
    assert shouts() == [2, 1]
    client.port, client.udp_port = 0, 41000  # a late copy from the old address moves nothing
    assert bench.one(client, late).outcome == ReplayOutcome.CHALLENGE and shouts() == [2, 1]


def test_a_new_client_gets_the_lowest_free_session_then_the_lowest_silent_one(bench):
    clients = [bench.client(k) for k in range(3)]
    newcomer = ReplayClient(3)
    bench.now_us = SESSION_SILENT_US - 1
    assert bench.one(newcomer, bench.open(newcomer)).outcome == ReplayOutcome.FULL
    bench.one(clients[0], clients[0].look())
    bench.now_us += 1
    newcomer.opened(bench.one(newcomer, bench.open(newcomer)))
    assert newcomer.session == 1
    bench.now_us += 100
    assert bench.one(clients[1], clients[1].look()).outcome == ReplayOutcome.SESSION
    bench.one(clients[0], clients[0].close(0))
    clients[1].opened(bench.one(clients[1], bench.open(clients[1])))
    assert clients[1].session == 0
    bench.one(clients[2], bench.open(clients[2]))
    bench.now_us += 100
    assert bench.one(clients[0], bench.open(clients[0])).outcome == ReplayOutcome.FULL
    assert bench.outcomes() == {"DONE": 8, "FULL": 2, "SESSION": 1}


# Waiting


def test_requests_wait_for_their_ticket(bench):
    client, other = bench.client(0), bench.client(1)
    assert bench.one(client, client.update(0, [(16, 3)], ticket=3)).outcome == ReplayOutcome.TICKET
    assert fields(bench.one(other, other.add(0, ones(2), ticket=2)), "outcome", "next", "ticket", "done") == (
        ReplayOutcome.TICKET,
        0,
        1,
        0,
    )
    assert bench.one(other, other.add(0, ones(2), ticket=1)).outcome == ReplayOutcome.DONE
    assert bench.one(other, other.sample(1, 3, 1, ticket=2)).outcome == ReplayOutcome.DONE
    assert fields(bench.one(client, client.update(0, [(16, 3)], ticket=3)), "outcome", "ticket") == (
        ReplayOutcome.DONE,
        4,
    )
    assert fields(bench.one(client, client.limit(1, header={"ticket": 4})), "outcome", "ticket") == (
        ReplayOutcome.DONE,
        5,
    )
    assert fields(bench.one(client, client.limit(2, header={"ticket": 4})), "outcome") == (ReplayOutcome.TICKET,)
    assert fields(bench.one(client, client.limit(2, times=4)), "outcome", "ticket", "next") == (
        ReplayOutcome.RANGE,
        5,
        3,
    )
    assert fields(bench.one(client, client.write(3, 0, RECORD, ticket=77)), "outcome", "ticket") == (
        ReplayOutcome.DONE,
        5,
    )
    assert fields(bench.one(client, client.look(table=1)), "ticket") == (1,)


def test_tickets_wrap_without_zero(bench):
    client = bench.client()
    bench.switch.service.tables[0].ticket = 2**32 - 1
    assert fields(bench.one(client, client.add(0, ones(1), ticket=2**32 - 1)), "ticket") == (1,)


def test_a_sample_waits_for_items_that_were_ever_added_and_for_those_that_are_there(bench):
    client = bench.client()
    assert bench.one(client, client.sample(0, 1, 0)).outcome == ReplayOutcome.EMPTY
    assert bench.one(client, client.sample(0, 1, 0, items=1)).outcome == ReplayOutcome.ITEMS
    bench.one(client, client.limit(0, size=16))
    for seq, there in enumerate((10, 15), 1):
        bench.one(client, client.add(seq, [(0, RECORD)] * (10 if seq == 1 else 5)))
        assert fields(bench.one(client, client.sample(seq + 1, 1, 0)), "outcome", "filled") == (
            ReplayOutcome.ITEMS,
            there,
        )
    bench.one(client, client.add(3, [(0, RECORD)] * 5))
    assert bench.one(client, client.sample(4, 1, 0, items=21)).outcome == ReplayOutcome.ITEMS
    assert bench.one(client, client.sample(4, 1, 0, items=20)).outcome == ReplayOutcome.EMPTY
    bench.one(client, client.update(4, [(31, 7)]))
    assert bench.one(client, client.sample(5, 2, 0, items=20)).rows == [(31, 7)] * 2


def test_a_sample_that_asks_for_no_items_never_waits_for_them(bench):
    client = bench.client()
    bench.one(client, client.add(0, ones(3)))
    for seq, adds in enumerate((2**31 - 1, 2**31, 2**32 - 1, 2**32), 1):
        bench.switch.service.tables[0].adds = adds
        assert bench.one(client, client.sample(seq, 1, 0)).outcome == ReplayOutcome.DONE


@pytest.mark.parametrize("adds", [9_999, 10_000, 2**31 + 9_999, 2**31 + 10_000, 2**32 + 5_000, 2**32 + 10_000])
def test_a_sample_waits_for_items_until_so_many_were_ever_added_and_never_again(bench, adds):
    client = bench.client()
    bench.one(client, client.add(0, ones(3)))
    bench.switch.service.tables[0].adds = adds
    expected = ReplayOutcome.ITEMS if adds < 10_000 else ReplayOutcome.DONE
    assert bench.one(client, client.sample(1, 1, 0, items=10_000)).outcome == expected


def test_after_2_to_the_32_adds_any_number_was_ever_added(bench):
    client = bench.client()
    bench.one(client, client.add(0, ones(3)))
    bench.switch.service.tables[0].adds += 2**32
    assert fields(bench.one(client, client.sample(1, 1, 0, items=2**32 - 1)), "outcome", "adds") == (
        ReplayOutcome.DONE,
        3,
    )


def test_credit_keeps_samples_and_items_in_their_ratio(bench):
    """2.5 samples an item, at most 3 behind or 12 ahead, from 4 items on."""
    client = bench.client()
    bench.one(client, client.limit(0, size=4, ratio=5 << 15, behind=3, ahead=12))
    seq = 1
    for frame, outcome, credit in [
        ("add", 3, 0),
        ("sample", 1, None),
        ("add", 2, 0),
        ("sample", 4, None),
        ("sample", 3, -3),
        ("sample", 1, None),
        ("add", 7, None),
        ("add", 6, 12),
        ("add", 1, None),
        ("sample", 16, None),
        ("sample", 15, -3),
    ]:
        count, done = outcome, credit is not None
        answer = bench.one(client, client.add(seq, ones(count)) if frame == "add" else client.sample(seq, count, 1))
        assert answer.outcome == (
            ReplayOutcome.DONE
            if done
            else ReplayOutcome.ITEMS
            if seq == 2 and frame == "sample"
            else ReplayOutcome.RATE
        )
        assert credit is None or bench.switch.service.tables[0].credit == credit << 16
        seq += done
    assert bench.one(client, client.limit(seq, size=4, ratio=5 << 15, behind=3, ahead=12)).outcome == ReplayOutcome.DONE
    assert bench.switch.service.tables[0].credit == 0


def test_an_item_sampled_often_enough_is_sampled_no_more(bench):
    client = bench.client()
    bench.one(client, client.add(0, [(5, RECORD), (10_000, RECORD)]))
    bench.one(client, client.limit(1, times=3))
    answer = bench.one(client, client.sample(2, 9, 1))
    assert {item for item, _ in answer.rows} <= {16, 17} and [item for item, _ in answer.rows].count(17) >= 3
    assert fields(answer, "total", "lowest", "highest") == (10_005, 5, 89)
    assert fields(bench.one(client, client.look()), "total", "lowest", "highest") == (5, 5, 5)
    assert bench.one(client, client.list(0, 2)).rows == [(16, 5), (17, 0)]
    assert fields(bench.one(client, client.update(3, [(17, 1), (16, 0)])), "done", "stale", "total") == (
        2,
        0,
        0,
    )  # an update does not wake it
    assert bench.one(client, client.sample(4, 1, 1)).outcome == ReplayOutcome.EMPTY
    assert fields(bench.one(client, client.add(4, ones(16))), "total") == (16,)
    assert bench.switch.service.tables[0].times == [0] * 16


@pytest.mark.parametrize("later", [0, 1, 3])
def test_an_item_that_was_sampled_as_often_as_allowed_is_never_sampled_again_whatever_limit_follows(bench, later):
    client = bench.client()
    bench.one(client, client.limit(0, times=2))
    bench.one(client, client.add(1, ones(1)))
    bench.one(client, client.sample(2, 2, 0))
    bench.one(client, client.limit(3, times=later))
    bench.one(client, client.update(4, [(16, 9)]))
    assert bench.one(client, client.sample(5, 1, 0)).outcome == ReplayOutcome.EMPTY


def test_an_item_that_reached_a_lowered_limit_is_sampled_at_most_once_more(bench):
    client = bench.client()
    bench.one(client, client.limit(0, times=3))
    bench.one(client, client.add(1, ones(1)))
    bench.one(client, client.sample(2, 2, 0))
    bench.one(client, client.limit(3, times=1))
    assert bench.one(client, client.sample(4, 1, 0)).outcome == ReplayOutcome.DONE
    assert bench.one(client, client.sample(5, 1, 0)).outcome == ReplayOutcome.EMPTY


def test_without_limits_of_times_nothing_is_counted(bench):
    client = bench.client()
    bench.one(client, client.add(0, ones(1)))
    bench.one(client, client.sample(1, 512, 1, fragments=1))
    assert bench.switch.service.tables[0].times == [0] * 16


# Parameters


def test_parameters_are_found_where_they_were_published(bench):
    learner, actor = bench.client(0), bench.client(1)
    truth = np.random.default_rng(5).bytes(10 * UNIT_BYTES)
    bench.one(learner, learner.write(0, 0, truth))
    assert fields(bench.one(actor, actor.look()), "version") == (0,)
    for seq, (start, units, version, outcome) in enumerate(
        [(0, 11, 1, ReplayOutcome.RANGE), (3, 7, 2, ReplayOutcome.DONE), (11, 0, 3, ReplayOutcome.RANGE)], 1
    ):
        assert bench.one(learner, learner.publish(seq, start, units, version)).outcome == outcome
    look = bench.one(actor, actor.look())
    assert fields(look, "publisher", "version", "start", "units") == (0, 2, 3, 7)
    assert bench.one(actor, actor.load(3, 7, log=0)).payload == truth[3 * UNIT_BYTES :]
    assert fields(bench.one(actor, actor.look(table=1)), "version") == (0,)
    bench.one(learner, learner.write(4, 10, RECORD, oldest=4))
    gone = bench.one(actor, actor.load(3, 7, log=0))
    assert gone.type == Type.DATA and (int(gone.header["count"]), int(gone.header["ticket"])) == (0, 1)


def test_a_shout_goes_to_all_other_clients_where_they_opened(bench):
    learner, *actors = [bench.client(k) for k in range(3)]
    truth = bytes(range(256))
    bench.one(learner, learner.write(0, 0, truth))
    sent = bench.send(learner, learner.shout(1, 3, seq=9, table=1))
    assert [port for port, _ in sent] == [1, 2, 0]
    for actor, (_, frame) in zip(actors, sent):
        heard = parse_frame(frame)
        assert (
            frame[:6] == actor.mac
            and frame[36:38] == actor.udp_port.to_bytes(2, "big")
            and heard.payload == truth[UNIT_BYTES:]
        )
        assert [int(heard.header[name]) for name in ("kind", "session", "table", "seq", "token", "ticket")] == [
            Kind.SHOUT,
            actor.session,
            1,
            1,
            actor.token,
            0,
        ]
    answer = parse_frame(sent[2][1])
    assert answer.outcome == ReplayOutcome.DONE and [
        int(answer.header[name]) for name in ("seq", "token", "count")
    ] == [9, learner.token, 0]
    bench.one(actors[0], actors[0].close(0))
    assert [port for port, _ in bench.send(learner, learner.shout(0, 1))] == [2, 0]
    for frame in (learner.shout(3, 2), learner.load(0, 1, log=1, kind=Kind.SHOUT)):
        gone = bench.one(learner, frame)
        assert (gone.type, int(gone.header["count"]), int(gone.header["ticket"])) == (Type.DATA, 0, 1)
    assert bench.outcomes()["OVERWRITTEN"] == 2


def test_a_list_wraps_and_shows_slots_that_were_never_filled(bench):
    client = bench.client()
    bench.one(client, client.add(0, [(k, RECORD) for k in range(3)]))
    answer = bench.one(client, client.list(14, 20))
    assert answer.rows == [(0, 0), (0, 0), (16, 0), (17, 1), (18, 2), *[(0, 0)] * 13, (16, 0), (17, 1)]
    assert fields(answer, "done", "adds", "filled") == (20, 3, 3)
    assert bench.one(client, client.list(2**32 - 14, 1)).rows == [(18, 2)]


@pytest.mark.parametrize("priority", [1, 7, 8, 15, 16, 17, 18, 31, 32, 33, 1000, 2**20 - 1])
def test_buckets_begin_where_the_page_says(bench, priority):
    """Bucket 8 e + m, with m from 8 to 15, begins at m 2^e; below 16 each priority has its own."""
    begins = {8 * e + m: m << e for e in range(29) for m in range(8, 16)} | {p: p for p in range(16)}
    client = bench.client()
    bench.one(client, client.add(0, [(priority, RECORD), (0, RECORD)]))
    lowest, highest = fields(bench.one(client, client.look()), "lowest", "highest")
    assert lowest == highest and begins[lowest] <= priority < begins[lowest + 1]


def test_item_numbers_outlive_2_to_the_32_adds(bench):
    client = bench.client()
    bench.one(client, client.add(0, ones(16)))
    table = bench.switch.service.tables[0]
    table.slots.generations, table.adds = [2**28 - 1] * 16, 2**32 - 16
    answer = bench.one(client, client.add(1, ones(2)))
    assert fields(answer, "adds", "filled") == (2**32 - 14, 16)
    assert bench.one(client, client.list(0, 3)).rows == [(0, 1), (1, 1), (2**32 - 14, 1)]
    assert int(bench.one(client, client.fetch([0, 1, 2, 2**32 - 16, 2**32 - 14])).header["ticket"]) == 0b01100
