"""Ordered requests against a small server over a network that loses, duplicates and reorders."""

import heapq
import itertools
import random
import struct

import pytest

from iswitch.replay import channel as sound
from iswitch.replay.channel import Channel
from iswitch.replay.messages import Header, Reply, Status, parse
from iswitch.replay.request import Request
from iswitch.wire.replay import SAMPLES_PER_FRAGMENT, WAITS, Kind, ReplayOutcome
from sim.bench.mutant import mutant

RTT_S = 0.0001
HEADER_BYTES = 22


class Server:
    """Section 3 of docs/replay.md for one session: order, kept answers, waits. `waits`: by request number, how often
    the request has to wait before it is executed, and the reason."""

    def __init__(self, *, first=0, cached_answers=4, waits=None):
        self.next, self.cached, self.waits = first, cached_answers, dict(waits or {})
        self.answers, self.done = {}, []
        self.outstanding = 0

    def receive(self, payload):
        header = Header._make(struct.unpack_from("<BBBBIHHIIH", payload))
        seq = header.seq
        ahead = (seq - self.next) % 2**32
        if ahead >= 2**31:
            return self.told(
                header,
                self.answers[seq] if 2**32 - ahead <= self.cached else (header.kind, ReplayOutcome.OLD, self.next, b""),
            )
        if ahead:
            self.outstanding = max(self.outstanding, ahead + 1)
            return self.told(header, (header.kind, ReplayOutcome.AHEAD, self.next, b""))
        if header.kind != Kind.SKIP and self.waits.get(seq, (0, None))[0]:
            left, why = self.waits[seq]
            self.waits[seq] = left - 1, why
            return self.told(header, (header.kind, why, self.next, b""))
        self.next = (self.next + 1) % 2**32
        self.done.append((seq, Kind(header.kind), payload[HEADER_BYTES:]))
        self.answers[seq] = Kind(header.kind), ReplayOutcome.DONE, self.next, header.count
        return self.told(header, self.answers[seq])

    def told(self, header, answer):
        kind, outcome, number, count = answer
        fragments = (
            range(-(-count // SAMPLES_PER_FRAGMENT)) if kind == Kind.SAMPLE and outcome == ReplayOutcome.DONE else [0]
        )
        status = Status(outcome, *[0] * 17)._replace(next=number, ticket=5)
        return [
            Reply(header._replace(kind=kind, fragments=k), status, bytes([k]))
            for k in fragments
            if outcome != ReplayOutcome.DONE or kind != Kind.SAMPLE or header.fragments >> k & 1
        ]


class Line:
    """A channel, a server, and a network with a clock between them."""

    def __init__(self, server, made, *, loss=0.0, doubled=0.0, late=0.0, seed=1):
        self.server, self.channel = server, made
        self.loss, self.doubled, self.late, self.chance = loss, doubled, late, random.Random(seed)
        self.now, self.events, self.order, self.sent = 0.0, [], 0, []

    def carry(self, what, argument):
        if self.chance.random() < self.loss:
            return
        for _ in range(1 + (self.chance.random() < self.doubled)):
            self.order += 1
            delay = (
                RTT_S
                / 2
                * (1 + self.chance.random() / 10 + 10 * self.chance.random() * (self.chance.random() < self.late))
            )
            heapq.heappush(self.events, (self.now + delay, self.order, what, argument))

    def arrive(self, payload):
        for reply in self.server.receive(payload):
            self.carry(self.take, reply)

    def take(self, reply):
        assert (
            self.channel.handle_reply(reply, self.now) != ReplayOutcome.OLD
        )  # which is said only of what was answered

    def run(self, requests, *, most=100_000):
        for request in requests:
            self.channel.put(request)
        for _ in range(most):
            for payload in self.channel.due(self.now):
                self.sent.append((self.now, payload))
                self.carry(self.arrive, payload)
            if not self.channel.pending:
                return self
            wake = self.channel.wake_at()
            if self.events and self.events[0][0] <= wake:
                self.now, _, what, argument = heapq.heappop(self.events)
                what(argument)
            else:
                assert self.now <= wake < float("inf")
                self.now = wake
        raise AssertionError("no end")


def bodies(count):
    return [k.to_bytes(8, "little") for k in range(count)]


def check(module, *, first=0, cached_answers=4, count=60, **faults):
    server = Server(first=first, cached_answers=cached_answers)
    requests = [Request(Kind.UPDATE, count=1, body=body) for body in bodies(count)]
    Line(server, module.Channel(session=1, token=2, first=first, window=cached_answers), **faults).run(requests)
    assert [body for _, _, body in server.done] == bodies(count)
    assert all(request.outcome == ReplayOutcome.DONE for request in requests)
    assert server.outstanding <= cached_answers


FAULTS = [{}, {"doubled": 1.0}, {"late": 0.5}, {"loss": 0.3}, {"loss": 0.3, "doubled": 0.5, "late": 0.5}]


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("first, cached_answers", [(0, 4), (2**32 - 30, 4), (7, 1), (2**32 - 1, 16)])
def test_each_request_is_executed_once_and_in_order(first, cached_answers, faults):
    for seed in range(5):
        check(sound, first=first, cached_answers=cached_answers, seed=seed, **faults)


@pytest.mark.mutant
@pytest.mark.parametrize(
    "right, wrong",
    [
        (
            "len(self._in_flight) < self.window:\n            request =",
            "len(self._in_flight) < self.window + 1:\n            request =",
        ),
        ("(self.oldest + len(self._in_flight)) % 2**32", "(self.oldest + len(self._in_flight) + 1) % 2**32"),
    ],
)
def test_the_check_sees_a_mutant(right, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check(mutant(sound, right, wrong), loss=0.3)


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_every_fragment_of_an_answer_comes(faults):
    for seed in range(5):
        server = Server()
        samples = [Request(Kind.SAMPLE, count=count, body=bytes(32)) for count in (1, 160, 161, 512, 320, 512)]
        Line(server, Channel(session=0, token=0, first=0, window=4), seed=seed, **faults).run(samples)
        assert [request.rows for request in samples] == [bytes(range(-(-request.count // 160))) for request in samples]
        assert len(server.done) == len(samples)


def test_a_lost_request_is_retransmitted_after_a_later_one_overtook_it():
    server, channel = Server(), Channel(session=0, token=0, first=0, window=4)
    line = Line(server, channel)
    line.run([Request(Kind.UPDATE, body=bytes(8))])  # a round trip is known from now on
    drops, carry = [True], line.carry
    line.carry = lambda what, argument: None if what == line.arrive and drops and drops.pop() else carry(what, argument)
    begun = line.now
    line.run([Request(Kind.UPDATE, body=body) for body in bodies(4)])
    assert line.now - begun < channel.timer.floor_s and [body for _, _, body in server.done[1:]] == bodies(4)


def test_a_lost_answer_is_requested_as_soon_as_a_later_answer_comes():
    server, channel = Server(), Channel(session=0, token=0, first=0, window=4)
    line = Line(server, channel)
    line.run([Request(Kind.UPDATE, body=bytes(8))])
    drops, carry = [True], line.carry
    line.carry = lambda what, argument: (
        None
        if what == line.take and argument.status.outcome == ReplayOutcome.DONE and drops and drops.pop()
        else carry(what, argument)
    )
    begun = line.now
    line.run([Request(Kind.UPDATE, body=body) for body in bodies(4)])
    assert line.now - begun < channel.timer.floor_s and len(server.done) == 5


@pytest.mark.parametrize("why", sorted(WAITS))
def test_a_waiting_request_is_sent_with_growing_pauses_and_blocks_later_requests(why):
    server = Server(waits={1: (6, why)})
    requests = [Request(Kind.UPDATE, body=body) for body in bodies(4)]
    line = Line(server, Channel(session=0, token=0, first=0, window=4)).run(requests)
    assert [body for _, _, body in server.done] == bodies(4)
    asked = [when for when, payload in line.sent if payload[4:8] == (1).to_bytes(4, "little")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert len(asked) == 7 and gaps == sorted(gaps)
    assert sum(payload[4:8] == (3).to_bytes(4, "little") for _, payload in line.sent) <= 3


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_a_waiting_request_is_cancelled_at_its_deadline(faults):
    for seed in range(5):
        server = Server(waits={1: (10**9, ReplayOutcome.RATE)})
        requests = [
            Request(Kind.UPDATE, body=body, deadline=0.5 if k == 1 else float("inf"))
            for k, body in enumerate(bodies(4))
        ]
        Line(server, Channel(session=0, token=0, first=0, window=4), seed=seed, **faults).run(requests)
        assert [request.outcome for request in requests] == [
            ReplayOutcome.DONE,
            ReplayOutcome.RATE,
            ReplayOutcome.DONE,
            ReplayOutcome.DONE,
        ]
        assert [kind for _, kind, _ in server.done] == [Kind.UPDATE, Kind.SKIP, Kind.UPDATE, Kind.UPDATE]


def test_a_late_skip_returns_the_answer_of_the_executed_request():
    """A late copy of the request arrives between the last wait and the SKIP."""
    server, channel = Server(waits={0: (1, ReplayOutcome.EMPTY)}), Channel(session=0, token=0, first=0, window=4)
    request = Request(Kind.SAMPLE, count=300, body=bytes(32), deadline=0.0)
    channel.put(request)
    (payload,) = channel.due(0.0)
    (wait,) = server.receive(payload)
    channel.handle_reply(wait, 0.1)
    (skip,) = channel.due(0.1)
    assert parse(memoryview(skip)) is None and skip[1] == Kind.SKIP
    assert len(server.receive(payload)) == 2
    for reply in server.receive(skip):
        channel.handle_reply(reply, 0.2)
    assert request.outcome == ReplayOutcome.DONE and request.rows == bytes([0, 1]) and not channel.pending


def test_a_skip_requests_all_fragments():
    """Even if some fragments of the answer came before."""
    channel = Channel(session=0, token=0, first=0, window=4)
    channel.put(request := Request(Kind.SAMPLE, count=300, body=bytes(32), deadline=0.0))
    channel.due(0.0)
    header = Header(0, Kind.SAMPLE, 0, 0, 0, 160, 0, 0, 0, 0)
    channel.handle_reply(Reply(header, Status(ReplayOutcome.DONE, *[0] * 17), bytes([0])), 0.1)
    channel.handle_reply(Reply(header, Status(ReplayOutcome.EMPTY, *[0] * 17), b""), 0.1)  # from before
    (skip,) = channel.due(0.1)
    assert skip[1] == Kind.SKIP and skip[10:12] == bytes([255, 255]) and not request.settled


def test_a_request_with_a_passed_ticket_is_cancelled_at_once():
    server = Server(waits={0: (10**9, ReplayOutcome.TICKET)})  # it says that the ticket is 5
    request = Request(Kind.UPDATE, body=bytes(8), ticket=4)
    line = Line(server, Channel(session=0, token=0, first=0, window=4)).run([request])
    assert request.outcome == ReplayOutcome.TICKET and len(line.sent) == 2
    server = Server(waits={0: (3, ReplayOutcome.TICKET)})
    Line(server, Channel(session=0, token=0, first=0, window=4)).run(
        [request := Request(Kind.UPDATE, body=bytes(8), ticket=6)]
    )
    assert request.outcome == ReplayOutcome.DONE


def test_a_yielding_request_is_executed_after_the_others():
    server = Server(waits={0: (10**9, ReplayOutcome.EMPTY)})
    requests = [
        Request(Kind.SAMPLE, count=1, body=bytes(32), can_yield=True),
        Request(Kind.UPDATE, body=bytes(8)),
        Request(Kind.ADD, body=bytes(72)),
    ]
    Line(server, Channel(session=0, token=0, first=0, window=4)).run(requests)
    assert [kind for _, kind, _ in server.done] == [Kind.SKIP, Kind.UPDATE, Kind.ADD, Kind.SAMPLE]
    assert all(request.outcome == ReplayOutcome.DONE for request in requests)


def test_nothing_is_sent_before_the_wake_up_time():
    channel = Channel(session=0, token=0, first=0, window=4)
    channel.put(Request(Kind.UPDATE, body=bytes(8)))
    assert channel.wake_at() <= 0 and len(channel.due(0.0)) == 1
    wake = channel.wake_at()
    assert channel.due(wake - 1e-6) == [] and len(channel.due(wake)) == 1 and channel.wake_at() > 2 * wake
