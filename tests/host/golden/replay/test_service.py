"""The golden replay service through the golden switch: frames in, frames out, every counter of every scenario."""

import numpy as np

from iswitch.config import Config, Replay
from iswitch.golden.replay import fractions
from iswitch.wire import NOTICE_INTERVAL_US, Action, Outcome, Register, Stat, Type
from iswitch.wire.replay import Kind, ReplayOutcome, ReplayRegister
from sim.bench.replay_bench import ReplayBench, fields
from sim.bench.replay_client import ReplayClient
from sim.frames.client import Client, parse

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
CONFIG = Config(ports=4, members=4, jobs=2, window=2, elements=16, replay=REPLAY)
RNG = np.random.default_rng(8)


class Bench(ReplayBench):
    def __init__(self, config: Config = CONFIG) -> None:
        super().__init__(config)


def units(count: int) -> bytes:
    return RNG.bytes(64 * count)


def items(priorities) -> list[tuple[int, bytes]]:
    return [(priority, units(1)) for priority in priorities]


def test_open_gives_the_lowest_free_session():
    bench = Bench()
    first, second = bench.client(0), bench.client(1)
    assert (first.session, second.session) == (0, 1)
    again = bench.one(first, bench.open(first, seq=77, session=9, token=5))
    assert again.outcome == ReplayOutcome.DONE and fields(again, "nonce", "next") == (first.nonce, 0)
    assert [int(again.header[name]) for name in ("kind", "session", "seq", "token", "count")] == [
        Kind.OPEN,
        0,
        77,
        5,
        0,
    ]
    assert bench.outcomes() == {"DONE": 3}
    assert bench.switch.outcomes[Outcome.REPLAY] == 3


def test_items_are_numbered_from_the_capacity_and_keep_their_records():
    bench = Bench()
    client = bench.client()
    first, second = items([5, 6, 7]), items(range(14))
    answer = bench.one(client, client.add(0, first))
    assert fields(answer, "adds", "done", "filled", "total", "ticket", "next", "lowest", "highest") == (
        3,
        3,
        3,
        18,
        2,
        1,
        5,
        7,
    )
    answer = bench.one(client, client.add(1, second))
    assert fields(answer, "adds", "done", "filled", "total", "ticket", "next") == (
        17,
        14,
        16,
        6 + 7 + sum(range(14)),
        3,
        2,
    )
    data = bench.one(client, client.fetch([16, 17, 32, 33, 15, 0]))
    assert data.type == Type.DATA and int(data.header["ticket"]) == 0b111001 and int(data.header["count"]) == 6
    assert data.payload == bytes(64) + first[1][1] + second[13][1] + bytes(192)
    assert bench.outcomes() == {"DONE": 3, "OVERWRITTEN": 1}


def test_samples_are_those_of_a_search_in_cumulative_sums():
    bench = Bench()
    client = bench.client()
    priorities = [3, 0, 9, 1 << 19, 0, 12, 77]
    bench.one(client, client.add(0, items(priorities)))
    ends = np.cumsum(priorities)
    for seq, (count, stride) in enumerate(
        [(1, 0), (160, fractions.stride(160)), (161, 0), (512, fractions.stride(512))], 1
    ):
        seed = int(RNG.integers(2**63)) << 64 | seq
        answers = bench.ask(client, client.sample(seq, count, seed, stride=stride))
        assert [int(answer.header["fragments"]) for answer in answers] == list(range(-(-count // 160)))
        positions = [fraction * int(ends[-1]) >> 64 for fraction in fractions.fractions(seed, count, stride)]
        leaves = np.searchsorted(ends, positions, side="right")
        assert [row for answer in answers for row in answer.rows] == [
            (16 + leaf, priorities[leaf]) for leaf in leaves.tolist()
        ]
        for answer in answers:
            assert fields(answer, "outcome", "done", "total", "ticket") == (
                ReplayOutcome.DONE,
                count,
                ends[-1],
                seq + 2,
            )
    assert fields(answers[0], "sampled") == (1 + 160 + 161 + 512,)


def test_updates_of_overwritten_items_change_nothing():
    bench = Bench()
    client = bench.client()
    bench.one(client, client.add(0, items([1] * 10)))
    bench.one(client, client.add(1, items([1] * 8)))
    answer = bench.one(client, client.update(2, [(16, 5), (18, 6), (33, 7), (34, 8), (18, 9)]))
    assert fields(answer, "done", "stale", "total", "highest") == (3, 2, 14 + 9 + 7, 9)
    assert bench.one(client, client.list(14, 5)).rows == [(30, 1), (31, 1), (32, 1), (33, 7), (18, 9)]


def test_too_large_a_priority_is_the_largest_and_counted():
    bench = Bench()
    client = bench.client()
    answer = bench.one(client, client.add(0, items([2**20 - 1, 2**20, 2**32 - 1])))
    assert fields(answer, "total") == (3 * (2**20 - 1),)
    bench.one(client, client.update(1, [(16, 2**20), (99, 2**20), (17, 3)]))
    assert bench.switch.stats[Stat.SATURATED] == 4


def test_a_log_reads_as_it_was_written():
    bench = Bench()
    client, other = bench.client(0), bench.client(1)
    truth = units(80)
    for seq, (start, count, oldest) in enumerate([(0, 22, 0), (22, 22, 0), (44, 20, 0), (64, 16, 16)]):
        answer = bench.one(client, client.write(seq, start, truth[64 * start : 64 * (start + count)], oldest))
        assert fields(answer, "outcome", "written", "oldest", "next") == (
            ReplayOutcome.DONE,
            start + count,
            oldest,
            seq + 1,
        )
    for start, count in [(16, 1), (60, 20), (58, 22), (79, 1)]:
        data = bench.one(other, other.load(start, count, log=0, seq=5))
        assert data.type == Type.DATA and data.payload == truth[64 * start : 64 * (start + count)]
    for start, count, log in [(15, 1, 0), (80, 1, 0), (79, 2, 0), (0, 1, 1), (0, 1, 3), (16, 1, 255)]:
        data = bench.one(other, other.load(start, count, log=log))
        assert (data.type, data.payload, int(data.header["ticket"])) == (Type.DATA, b"", 1)


def test_a_write_that_is_wrong_takes_its_number_and_changes_nothing():
    bench = Bench()
    client = bench.client()
    cases = [
        (0, 10, 0, ReplayOutcome.DONE),
        (9, 1, 0, ReplayOutcome.RANGE),
        (11, 1, 0, ReplayOutcome.RANGE),
        (10, 22, 11, ReplayOutcome.RANGE),
        (10, 22, 4, ReplayOutcome.DONE),
        (32, 1, 3, ReplayOutcome.RANGE),
        (32, 22, 4, ReplayOutcome.DONE),
        (54, 15, 4, ReplayOutcome.MEMORY),
        (54, 14, 4, ReplayOutcome.DONE),
        (68, 22, 68, ReplayOutcome.DONE),
    ]
    for seq, (start, count, oldest, outcome) in enumerate(cases):
        before = bytes(bench.switch.service.memory.bytes)
        answer = bench.one(client, client.write(seq, start, units(count), oldest))
        assert fields(answer, "outcome", "next") == (outcome, seq + 1)
        assert outcome == ReplayOutcome.DONE or bytes(bench.switch.service.memory.bytes) == before
    assert bench.outcomes() == {"DONE": 6, "RANGE": 4, "MEMORY": 1}


def test_a_retransmission_gets_the_cached_answer():
    bench = Bench()
    client = bench.client()
    bench.one(client, client.add(0, items([1, 2, 3])))
    frames = [client.add(1, items([4])), client.sample(2, 200, 1)]
    answers = [bench.ask(client, frame) for frame in frames]
    assert [bench.ask(client, frame) for frame in frames] == answers
    assert bench.ask(client, client.sample(2, 200, 1, fragments=0b10)) == answers[1][1:]
    assert bench.ask(client, client.sample(2, 200, 1, fragments=0b100)) == []
    old = bench.one(client, client.add(0, items([1, 2, 3])))
    assert old.header["kind"] == Kind.ADD and fields(old, "outcome", "next", "adds", "done") == (
        ReplayOutcome.OLD,
        3,
        4,
        0,
    )
    ahead = bench.one(client, client.add(4, items([1])))
    assert ahead.outcome == ReplayOutcome.AHEAD and fields(ahead, "next", "adds", "done") == (3, 4, 0)
    assert bench.outcomes() == {"DONE": 4, "REPEATED": 4, "OLD": 1, "AHEAD": 1}


def test_a_flood_of_faults_at_one_port_takes_no_answer_from_a_client_at_another():
    bench = ReplayBench(CONFIG)
    unknown, client = ReplayClient(0), ReplayClient(1)
    answered = [len(bench.send(unknown, unknown.look())) for _ in range(5)]
    assert answered == [1, 0, 0, 0, 0]
    assert bench.one(client, client.look()).outcome == ReplayOutcome.SESSION


def test_faults_are_answered_once_in_an_interval_and_say_nothing_else():
    bench = Bench()
    client = bench.client()
    faults = [
        (client.request(15), ReplayOutcome.KIND),
        (client.look(table=2), ReplayOutcome.TABLE),
        (client.look(count=1), ReplayOutcome.LENGTH),
        (client.look(token=1), ReplayOutcome.SESSION),
    ]
    for frame, outcome in faults:
        bench.now_us += NOTICE_INTERVAL_US
        answer = bench.one(client, frame)
        assert answer.outcome == outcome and not any(answer.status.tobytes()[1:])
        assert bench.ask(client, frame) == []
        bench.now_us += NOTICE_INTERVAL_US - 1
        assert bench.ask(client, frame) == []
    assert bench.outcomes() == {"DONE": 1} | {outcome.name: 3 for _, outcome in faults}


def test_without_a_service_a_request_is_of_no_type():
    bench = Bench(Config(ports=4, members=4, jobs=2, window=2, elements=16))
    client = ReplayClient(0)
    assert bench.send(client, client.open()) == []
    assert bench.switch.outcomes[Outcome.TYPE] == 1
    assert not any(name.startswith("replay.") for name in bench.switch.counters())


def registers(bench: Bench, address: int) -> list[int]:
    client = Client.numbered(3)
    ((_, frame),) = bench.switch.receive(3, client.control(Action.READ, {"address": address}), bench.now_us)
    return parse(frame).ack["registers"].tolist()


def test_registers_say_what_the_service_is_and_what_became_of_requests():
    bench = Bench()
    client = bench.client()
    bench.ask(client, client.close(3))
    assert registers(bench, Register.REPLAY) == [2, 16, 20, 3, 2, 512, 64, 4096]
    assert (
        registers(bench, Register.REPLAY + ReplayRegister.SAMPLE_COUNT_BITS)[0]
        == bench.switch.service.config.sample_count_bits
    )
    assert registers(bench, Register.REPLAY_OUTCOMES) == [1, 0, 1, 0, 0, 0, 0, 0]


def test_a_corrupt_request_is_not_executed():
    bench = Bench()
    client = ReplayClient(0)
    frame = client.open()
    assert bench.send(client, frame[:70] + bytes([frame[70] ^ 1]) + frame[71:]) == []
    assert bench.send(client, frame[:-1]) == []
    assert (
        bench.switch.outcomes[Outcome.UDP_CHECKSUM],
        bench.switch.outcomes[Outcome.LENGTH],
        sum(bench.outcomes().values()),
    ) == (1, 1, 0)
    assert bench.one(client, client.open(checksum=False)).outcome == ReplayOutcome.DONE
