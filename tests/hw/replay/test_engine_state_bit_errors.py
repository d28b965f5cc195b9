# amaranth: UnusedElaboratable=no
"""Bit errors in what the engine knows of its clients: each client is answered as the model answers, which is told where
the error is."""

import numpy as np
import pytest
from amaranth.hdl import Value

import hw.replay.engine
import hw.replay.execute.data
import hw.replay.execute.execution
import hw.replay.execute.sample_limit
import hw.replay.execute.send
import hw.replay.reply.cache
import hw.replay.request.sessions
import hw.stream.cut_through_queue
from hw.replay.engine import Engine
from hw.replay.execute.data import LIST_LENGTH
from iswitch.wire import ADDRESSES, ones_complement_sum
from iswitch.wire.replay import REPLAY_FRAME, ReplayOutcome
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.engine import Scenario
from sim.bench.engine_bench import EngineBench
from sim.bench.mutant import mutant
from sim.bench.replay_client import ReplayClient
from sim.bench.replay_traffic import NARROW


class Clients:
    """Three clients of an engine and of the golden service."""

    def __init__(self, engine=Engine):
        self.bench, self.scenario, self.corrupted = EngineBench(NARROW, engine=engine), Scenario(NARROW), 0
        self.service = self.scenario.service
        self.all = [ReplayClient(k, port=k % 2, nonce=1 << 32 | 1 + k) for k in range(3)]
        self.bench.bench.process(self.count)

    async def count(self, ctx):
        async for _, _, corrupted in ctx.tick().sample(self.bench.dut.corrupted_state):
            self.corrupted += corrupted

    async def answered(self, ctx, *requests):
        """Send requests, each a client and a frame. The answers are the model's."""
        self.scenario.now_us += 1000
        burst = self.scenario.burst((client.port, frame) for client, frame in requests)
        assert await self.bench.exchange(ctx, burst.now_us, burst.requests) == burst.answers

    async def open(self, ctx, *clients):
        for client in clients:
            await self.answered(ctx, (client, client.open(challenge=self.service.challenge or 1)))
            client.session = next(
                k for k, s in enumerate(self.service.sessions) if s.is_held and s.nonce == client.nonce
            )
            client.token = client.nonce % 2**32

    def next(self, client):
        return self.service.sessions[client.session].next


def check_session(monkeypatch, *, field="next", bit=0, module=hw.replay.request.sessions, engine=Engine):
    """Flip a bit of a client's row. The client's session is lost, and its log, until a client gets the session anew."""
    memories = keep_memories(monkeypatch, module)
    monkeypatch.setattr(hw.replay.engine, "Sessions", module.Sessions)
    test = Clients(engine)
    ann, bob, eve = test.all
    units = bytes(range(64)) * 3

    async def run(ctx):
        await test.bench.quiet(ctx)
        await test.open(ctx, ann, bob, eve)
        for client in (ann, bob, eve):
            await test.answered(ctx, (client, client.write(test.next(client), 0, units)))
        await test.answered(ctx, (bob, bob.load(1, 2, log=ann.session)))
        assert not test.corrupted

        row = memories[0].data[ann.session]
        place = Value.cast(row.parity if field == "parity" else row.row[field])
        ctx.set(place, ctx.get(place) ^ 1 << bit)
        known = {name: ctx.get(Value.cast(row.row[name])) for name in ("open", "next", "written", "oldest")}
        test.service.sessions[ann.session] = test.service.sessions[ann.session]._replace(corrupt=True, **known)

        for frame in (ann.look(), ann.write(test.next(bob), 3, units)):
            counted = test.corrupted
            await test.answered(ctx, (ann, frame))
            assert test.corrupted == counted + 1
        for frame in (bob.load(1, 2, log=ann.session), bob.shout(0, 1)):
            counted = test.corrupted
            await test.answered(ctx, (bob, frame))
            assert test.corrupted == counted + 1
        counted = test.corrupted
        await test.answered(ctx, (eve, eve.load(0, 1, log=bob.session)), (bob, bob.look()))
        assert test.corrupted == counted

        ann.nonce = 7 << 32 | 7
        await test.open(ctx, ann)
        assert ann.session == 0 and test.corrupted == counted + 1
        counted, log = test.corrupted, test.service.sessions[ann.session]
        assert log.written == log.oldest != 3
        await test.answered(ctx, (ann, ann.write(test.next(ann), log.written, units, oldest=log.oldest)))
        await test.answered(ctx, (bob, bob.load(log.oldest, 3, log=ann.session)), (bob, bob.shout(0, 1)))
        await test.answered(ctx, (bob, bob.load(1, 2, log=ann.session)), (ann, ann.look()))
        assert test.corrupted == counted

    test.bench.bench.drive(run)
    assert test.bench.outcomes == test.scenario.outcomes
    assert test.service.outcomes[ReplayOutcome.SESSION] == 2


@pytest.mark.parametrize(
    ("field", "bit"),
    [("open", 0), ("nonce", 5), ("next", 0), ("next", 31), ("written", 1), ("heard", 3), ("parity", 0)],
)
def test_a_session_whose_row_has_a_bit_error_is_lost_and_its_log_until_it_is_given_anew(field, bit, monkeypatch):
    check_session(monkeypatch, field=field, bit=bit)


def check_counts(monkeypatch, *, executor=hw.replay.execute.execution, module=hw.replay.execute.sample_limit):
    """Flip bits of counts of samples. The next UPDATE of the item, or the next SAMPLE that selects it, retires it."""
    memories = keep_memories(monkeypatch, module)
    monkeypatch.setattr(executor, "SampleCounts", module.SampleCounts)
    monkeypatch.setattr(hw.replay.engine, "Execution", executor.Execution)
    test = Clients()
    (client, *_), table = test.all, test.service.tables[1]
    client.table = 1
    capacity = table.capacity

    async def run(ctx):
        async def answered(*frames):
            counted = test.corrupted
            for frame in frames:
                await test.answered(ctx, (client, frame))
            return test.corrupted - counted

        def break_count(slot, bit):
            flip(ctx, memories[0], capacity + slot, bit)
            table.damaged_counts.add(slot)

        def update(slot):
            return client.update(test.next(client), [(capacity + slot, 9)])

        await test.bench.quiet(ctx)
        await test.open(ctx, client)
        for k in range(2):
            await answered(client.add(test.next(client), [(5 + k, bytes(64))] * 16))
        break_count(3, 0)
        # No LIMIT has set `times` yet. A slot that was never filled has no count.
        assert await answered(update(3), update(33)) == 0
        await answered(client.limit(test.next(client), times=3))
        assert await answered(update(33), update(4)) == 0
        break_count(7, 3)  # the parity
        assert await answered(update(7), client.list(0, 32)) == 1
        assert table.slots.tree.priorities[7] == 0
        found = 0
        for seed in range(4):
            found += await answered(client.sample(test.next(client), 40, seed), client.list(0, 32))
        assert found == 1 and table.damaged_counts == {7} and table.slots.tree.priorities[3] == 0
        assert await answered(update(3), client.list(0, 32)) == 0
        await answered(client.add(test.next(client), [(9, bytes(64))] * 16))
        await answered(client.add(test.next(client), [(9, bytes(64))] * 16))
        await answered(client.add(test.next(client), [(9, bytes(64))] * 8))  # slot 7 has a new item
        assert await answered(client.update(test.next(client), [(2 * capacity + 7, 4)]), client.list(0, 64)) == 0

    test.bench.bench.drive(run)


def test_an_item_whose_count_of_samples_has_a_bit_error_is_sampled_no_more_often_than_without(monkeypatch):
    check_counts(monkeypatch)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("counts.filled.eq(self.filled)", "counts.filled.eq(0)"),
        ("self.retire.count | updated & self.table.limited", "self.retire.count"),
        ("self.retire.count | updated & self.table.limited", "self.retire.count | updated"),
        ("self.retire.count | updated & self.table.limited", "updated & self.table.limited"),
        ("errors.append(self._count_samples(m))", "self._count_samples(m)"),
    ],
)
def test_a_mutant_of_the_counts_parity_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.replay.execute.execution, sound, wrong)
    with pytest.raises(AssertionError):
        check_counts(monkeypatch, executor=broken)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.admission.session_corrupt.eq(sessions.corrupt)", "self.admission.session_corrupt.eq(0)"),
        ("self.admission.other_corrupt.eq(sessions.corrupt)", "self.admission.other_corrupt.eq(0)"),
        ("execution.session_corrupt.eq(sessions.corrupt)", "execution.session_corrupt.eq(0)"),
        ("session_corrupted.eq(self.sessions.corrupt)", "session_corrupted.eq(0)"),
        ("session_corrupted.eq(self.sessions.corrupt & admission.reads_log)", "session_corrupted.eq(0)"),
        (
            "session_corrupted.eq(self.sessions.corrupt & admission.reads_log)",
            "session_corrupted.eq(self.sessions.corrupt)",
        ),
        ("| self.sessions.searched_corrupt", ""),
        ("| execution.found_corrupt", ""),
    ],
)
def test_a_mutant_of_the_sessions_parity_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.replay.engine, sound, wrong)
    monkeypatch.setattr(broken, "Sessions", hw.replay.request.sessions.Sessions)
    with pytest.raises(AssertionError):
        check_session(monkeypatch, engine=broken.Engine)


class Requests:
    """What one client does after an answer, or its list, has a bit error. The model is told where the error is."""

    def __init__(self, monkeypatch, *, module=hw.replay.reply.cache, engine=Engine):
        self.memories = keep_memories(monkeypatch, module)
        monkeypatch.setattr(hw.replay.engine, "ReplyCache", module.ReplyCache)
        self.test = Clients(engine)
        self.client = self.test.all[0]

    def lose(self, back):
        """Tell the model that the answer before the last `back` - 1 is lost."""
        session = self.test.service.sessions[0]
        cached = list(session.cached)
        cached[-back] = cached[-back]._replace(corrupt=True)
        self.test.service.sessions[0] = session._replace(cached=tuple(cached))

    async def answered(self, ctx, *frames):
        """Return how many bit errors were found while each frame was answered as the model answers it."""
        counted = self.test.corrupted
        for frame in frames:
            await self.test.answered(ctx, (self.client, frame))
        return self.test.corrupted - counted

    async def spoiled(self, ctx, frame):
        """Send a frame. Return for each answer whether the checksum is right, and how many bit errors were found."""
        counted = self.test.corrupted
        sent = await self.test.bench.exchange(ctx, self.test.scenario.now_us, [(self.client.port, frame)])
        sums = [ones_complement_sum(answer.frame[ADDRESSES.itemsize :]) for answer in sent]
        return [total == 0xFFFF for total in sums], self.test.corrupted - counted


def check_answers(monkeypatch, **options):
    """Flip bits of cached answers. A repeat is answered OLD, and is not executed again."""
    requests = Requests(monkeypatch, **options)
    test, client, cached = requests.test, requests.client, NARROW.replay.cached_answers

    async def run(ctx):
        await test.bench.quiet(ctx)
        await test.open(ctx, client)
        for k, bit in enumerate((0, 300, 543, 544)):
            frames = []
            for _ in range(cached):
                frames.append(client.add(test.next(client), [(5, bytes(64))]))
                assert await requests.answered(ctx, frames[-1]) == 0
            at = (test.next(client) - 1 - k % cached) % cached
            flip(ctx, requests.memories[0], at, bit)
            requests.lose(1 + k % cached)
            lost = frames[-1 - k % cached]
            assert await requests.answered(ctx, lost, lost) == 2
            assert await requests.answered(ctx, *(frame for frame in frames if frame != lost), client.look()) == 0
            other = test.all[1]  # whose request of the same number needs no answer of this client's
            await test.answered(ctx, (other, other.add(test.next(client), [(5, bytes(64))])))
        assert test.corrupted == 8

    test.bench.bench.drive(run)
    assert test.bench.outcomes == test.scenario.outcomes and test.service.outcomes[ReplayOutcome.OLD] == 8
    assert test.service.tables[0].adds == 4 * cached


def check_lists(monkeypatch, **options):
    """Flip bits of lists. The frame with the error has a wrong checksum, the next repeat is answered OLD."""
    requests = Requests(monkeypatch, **options)
    test, client, samples = requests.test, requests.client, NARROW.replay.samples_per_request

    async def run(ctx):
        await test.bench.quiet(ctx)
        await test.open(ctx, client)
        assert await requests.answered(ctx, client.add(test.next(client), [(5 + k, bytes(64)) for k in range(16)])) == 0
        frames = [client.sample(test.next(client) + k, 200, k) for k in range(2)]
        assert await requests.answered(ctx, *frames, *frames) == 0
        first = (test.next(client) - 2) % 2 * samples
        assert first != 0
        flip(ctx, requests.memories[1], first + 170, 40)
        assert await requests.answered(ctx, client.sample(test.next(client) - 2, 200, 0, fragments=1)) == 0
        assert await requests.spoiled(ctx, frames[0]) == ([True, False], 1)
        requests.lose(2)
        assert await requests.answered(ctx, frames[0], frames[1], frames[0]) == 2
        # A list that is not cached is read anew.
        flip(ctx, requests.memories[1], 2 * NARROW.replay.sessions * samples + 3, 64)
        assert await requests.answered(ctx, client.list(0, 8), client.look()) == 0
        assert await requests.answered(ctx, client.sample(test.next(client), 9, 3), client.list(0, 16)) == 0

    test.bench.bench.drive(run)
    assert test.service.outcomes[ReplayOutcome.OLD] == 2


@pytest.mark.parametrize("check", [check_answers, check_lists])
def test_a_cached_answer_with_a_bit_error_is_not_sent_and_its_request_is_not_executed_again(check, monkeypatch):
    check(monkeypatch)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "sound", "wrong"),
    [
        (
            check_answers,
            "self.admission.answer_corrupt.eq(cache.answer_corrupt)",
            "self.admission.answer_corrupt.eq(0)",
        ),
        (check_answers, "answer_lost.eq(admission.answer_lost)", "answer_lost.eq(0)"),
        (
            check_answers,
            "self.cache.write.eq(acknowledgement.write_answer)",
            "self.cache.write.eq(acknowledgement.record)",
        ),
        (check_lists, "sender.corrupt.eq(cache.word_corrupt)", "sender.corrupt.eq(0)"),
        (check_lists, "cache.lost.eq(sender.spoil)", "cache.lost.eq(0)"),
        (check_lists, "cache.lost_list.eq(sender.list)", "cache.lost_list.eq(0)"),
        (check_lists, "| self.answer_sender.spoil", ""),
    ],
)
def test_a_mutant_of_the_answers_parity_is_noticed(check, sound, wrong, monkeypatch):
    broken = mutant(hw.replay.engine, sound, wrong)
    monkeypatch.setattr(broken, "ReplyCache", hw.replay.reply.cache.ReplyCache)
    with pytest.raises(AssertionError):
        check(monkeypatch, engine=broken.Engine)


def check_requests(monkeypatch, *, engine=Engine):
    """Flip a bit of a request that waits in the queue. It is not executed and not answered, and may come again."""
    memories = keep_memories(monkeypatch, hw.stream.cut_through_queue)
    test = Clients(engine)
    bench, client, quiet = test.bench, test.all[0], test.bench.quiet
    words_of = lambda frame: -(-len(frame) // (NARROW.bus_bits // 8))

    async def run(ctx):
        words = 0  # that have entered the queue

        async def answered(*frames):
            nonlocal words
            words += sum(map(words_of, frames))
            await test.answered(ctx, *((client, frame) for frame in frames))

        await quiet(ctx)
        first = client.open(challenge=1)
        await answered(first)
        client.session, client.token = 0, client.nonce % 2**32
        await answered(client.add(test.next(client), [(7, bytes(64))] * 16))
        at = test.next(client)
        sample = client.sample(at, 200, 1)  # the others wait for it
        add = client.add(at + 1, [(9, bytes(range(64)))])
        update = client.update(at + 2, [(64 + k, 5) for k in range(16)])

        async def flip_and_quiet(ctx):
            flip(ctx, memories[0], words + words_of(sample) + words_of(add) + words_of(update) - 3, 17)
            await quiet(ctx)

        monkeypatch.setattr(bench, "quiet", flip_and_quiet)
        test.scenario.now_us += 1000
        burst = test.scenario.burst((client.port, frame) for frame in (sample, add, client.look()))
        sent = [(client.port, frame) for frame in (sample, add, update, client.look())]
        assert await bench.exchange(ctx, burst.now_us, sent) == burst.answers
        monkeypatch.setattr(bench, "quiet", quiet)
        assert test.corrupted == 1
        await answered(update, client.list(0, 20))
        assert test.corrupted == 1

    bench.bench.drive(run)
    assert bench.outcomes == test.scenario.outcomes


def test_a_request_with_a_bit_error_is_not_executed_and_not_answered_and_may_come_again(monkeypatch):
    check_requests(monkeypatch)


@pytest.mark.mutant
def test_a_mutant_that_does_not_count_lost_requests_is_noticed(monkeypatch):
    broken = mutant(hw.replay.engine, "| self.receiver.stat_corrupt", "")
    with pytest.raises(AssertionError):
        check_requests(monkeypatch, engine=broken.Engine)


def check_memory_errors(*, engine=Engine):
    """Memory answers reads with errors. No frame with such data has a right checksum, and the requester is told that
    what it has requested was overwritten."""
    test = Clients(engine)
    ann, bob, _ = test.all

    async def run(ctx):
        async def sent(client, frame):
            """Return of each answer whether its checksum is right, and its header and payload."""
            counted = test.corrupted
            found = await test.bench.exchange(ctx, test.scenario.now_us, [(client.port, frame)])
            right = [ones_complement_sum(one.frame[ADDRESSES.itemsize :]) == 0xFFFF for one in found]
            last = np.frombuffer(found[-1].frame, REPLAY_FRAME, 1)[0]
            return right, int(last["count"]), int(last["ticket"]), test.corrupted > counted

        await test.bench.quiet(ctx)
        await test.open(ctx, ann, bob)
        await test.answered(ctx, (ann, ann.add(test.next(ann), [(7, bytes([k]) * 64) for k in range(16)])))
        await test.answered(ctx, (ann, ann.write(test.next(ann), 0, bytes(range(64)) * 3)))
        fetch, load = ann.fetch([64 + 3, 64 + 4]), ann.load(0, 2, log=ann.session)
        await test.answered(ctx, (ann, fetch), (ann, load), (bob, bob.look()))
        del test.bench.contents[5 * 64 :]
        await test.answered(ctx, (ann, fetch))
        outcomes = test.bench.outcomes[ReplayOutcome.OVERWRITTEN]
        assert await sent(ann, ann.fetch([64 + 3, 64 + 5, 64 + 2])) == ([False, True], 3, 7, True)
        assert await sent(ann, load) == ([False, True], 0, 1, True)
        assert test.bench.outcomes[ReplayOutcome.OVERWRITTEN] == outcomes + 2
        assert await sent(ann, ann.shout(0, 2)) == ([False, True], 0, 0, True)  # DATA to bob, ANSWER to ann
        await test.answered(ctx, (ann, fetch), (bob, bob.look()))

    test.bench.bench.drive(run)


def check_slots(monkeypatch, *, executor=hw.replay.execute.execution):
    """Flip a bit of a slot that a FETCH names, while the records before it are read."""
    memories = keep_memories(monkeypatch, hw.replay.execute.send)
    monkeypatch.setattr(hw.replay.engine, "Execution", executor.Execution)
    test = Clients()
    client, quiet = test.all[0], test.bench.quiet

    async def run(ctx):
        async def flip_and_quiet(ctx):
            last = Value.cast(memories[0].data[LIST_LENGTH + 15])  # of the first list
            while ctx.get(last) == 0:  # until the request's last row was taken: its first records are read
                await test.bench.tick(ctx)
            flip(ctx, memories[0], LIST_LENGTH + 15, 0)
            await quiet(ctx)

        await quiet(ctx)
        await test.open(ctx, client)
        await test.answered(ctx, (client, client.add(test.next(client), [(7, bytes([k]) * 64) for k in range(16)])))
        monkeypatch.setattr(test.bench, "quiet", flip_and_quiet)
        frame = client.fetch([64 + k for k in range(16)])
        found = await test.bench.exchange(ctx, test.scenario.now_us, [(client.port, frame)])
        sums = [ones_complement_sum(one.frame[ADDRESSES.itemsize :]) == 0xFFFF for one in found]
        assert sums == [False, True] and test.corrupted == 1
        assert np.frombuffer(found[1].frame, REPLAY_FRAME, 1)[0]["ticket"] == (1 << 16) - 1
        monkeypatch.setattr(test.bench, "quiet", quiet)
        await test.answered(ctx, (client, frame))

    test.bench.bench.drive(run)


def test_no_record_of_another_item_is_sent_after_a_bit_error_in_the_list_of_a_fetch(monkeypatch):
    check_slots(monkeypatch)


@pytest.mark.mutant
def test_a_mutant_of_the_lists_parity_is_noticed(monkeypatch):
    broken = mutant(
        hw.replay.execute.execution, "self.slot_corrupt.eq(fetch_list.slot_corrupt)", "self.slot_corrupt.eq(0)"
    )
    with pytest.raises(AssertionError):
        check_slots(monkeypatch, executor=broken)


def test_data_that_memory_reports_as_wrong_leaves_under_no_right_checksum_and_counts_as_overwritten():
    check_memory_errors()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("module", "sound", "wrong"),
    [
        (hw.replay.engine, "| self.data_sender.found_corrupt", ""),
        (
            hw.replay.execute.data,
            "self.found_corrupt.eq(reads.found_corrupt | sends.spoil)",
            "self.found_corrupt.eq(0)",
        ),
        (hw.replay.execute.data, "~lost & (is_wrong | self.damaged)", "0"),
    ],
)
def test_a_mutant_of_the_spoiled_data_is_noticed(module, sound, wrong, monkeypatch):
    broken, engine = mutant(module, sound, wrong), Engine
    if module is hw.replay.engine:
        engine = broken.Engine
    else:
        monkeypatch.setattr(hw.replay.engine, "DataSender", broken.DataSender)
    with pytest.raises(AssertionError):
        check_memory_errors(engine=engine)
