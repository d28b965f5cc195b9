"""How a session is closed, and how it is lost, against the golden switch in virtual time."""

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, ReplayClient, SessionLostError
from iswitch.replay.request import Request
from iswitch.wire import Type, version_type
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.bench.replay_network import Network

SPEC = {"x": Field((3,), np.float32)}
REPLAY = Replay(capacity=64, sessions=2, cached_answers=4, log_bytes=4096)
FAULTS = [{}, {"doubled": 1.0}, {"late": 0.5}, {"loss": 0.3, "doubled": 0.3, "late": 0.3}]


def network(**faults):
    return Network(Config(ports=4, members=4, replay=REPLAY), **faults)


def opened(net, **options):
    return ReplayClient(net.transport(), SPEC, **options)


def extend(client, count=5):
    return client.extend({"x": np.ones((count, 3))}, np.ones(count))


def place(net, index=0):
    return net.switch.service.sessions[index]


class Watch:
    """Record the requests that reach the switch, by kind and number, with their outcomes."""

    def __init__(self, net):
        self.seen = []
        receive = net.switch.service.receive

        def watched(source, payload, now_us):
            before = list(net.switch.service.outcomes)
            sent = receive(source, payload, now_us)
            (outcome,) = (ReplayOutcome(k) for k, count in enumerate(net.switch.service.outcomes) if count != before[k])
            self.seen.append((Kind(payload[1]), int.from_bytes(payload[4:8], "little"), outcome))
            return sent

        net.switch.service.receive = watched

    def of(self, kind):
        return [outcome for seen, _, outcome in self.seen if seen == kind]


# Lost


def taken_and_given_back(net, opening, others=0):
    """Another client opens the session meanwhile and sends some requests. Then an old OPEN gives it back to the former
    one."""
    net.run(net.now + 11)
    with opened(net) as other:
        assert other.session == 0
        for _ in range(others):
            other.update_priority([1], [1.0])
    net.switch.service.challenge = int.from_bytes(opening[12:16], "little")  # right by chance
    net.deliver(0, opening)
    assert place(net).open


def with_its_opening(net):
    """Return a client with session 0 and the OPEN that it sent. The other session is in use."""
    openings = []
    net.lose = lambda payload, there: (
        bool(openings.append(payload))
        if there and payload[:2] == bytes([version_type(Type.REQUEST), Kind.OPEN])
        else False
    )
    client = opened(net)
    net.lose = lambda payload, there: False
    assert (client.session, opened(net).session) == (0, 1)
    return client, openings[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: extend(client).items,
        lambda client: client.sample(4),
        lambda client: client.update_priority([64], [2.0]).updated,
        lambda client: client.set_parameters(1, b"one"),
    ],
)
def test_a_session_that_another_client_had_is_lost_even_if_it_came_back(call):
    net = network()
    client, opening = with_its_opening(net)
    extend(client).items.tolist()
    taken_and_given_back(net, opening)
    watch, adds = Watch(net), net.switch.service.tables[0].adds
    with pytest.raises(SessionLostError, match=r"another client had the session since.*reopen"):
        call(client)
    assert {outcome for kind, _, outcome in watch.seen if kind != Kind.LOOK} == {
        ReplayOutcome.OLD
    } and net.switch.service.tables[0].adds == adds
    with pytest.raises(SessionLostError, match="another client had the session since"):
        client.flush()
    client.reopen()
    assert extend(client).items.tolist() == list(range(69, 74)) and len(client.sample(4)) == 4


def test_nothing_is_executed_after_requests_lost_with_the_session():
    """As many requests as possible were in flight and did not arrive, and the other client sent any number of
    requests."""
    for others in range(9):
        net = network()
        client, opening = with_its_opening(net)
        net.lose = lambda payload, there: True
        added = [extend(client, 19) for _ in range(6)]
        client.poll()
        net.lose = lambda payload, there: False
        taken_and_given_back(net, opening, others)
        with pytest.raises(SessionLostError):
            client.flush()
        client.reopen()
        for each in added:
            with pytest.raises(SessionLostError, match="may or may not have executed"):
                each.items.tolist()
        assert net.switch.service.tables[0].adds == 0


def test_late_copies_of_answered_requests_do_not_end_the_session():
    """Copies of all requests arrive long afterwards."""
    net = network()
    payloads = []
    with opened(net) as client:
        net.lose = lambda payload, there: bool(payloads.append(payload)) if there else False
        for _ in range(8):
            extend(client).items.tolist()
            for payload in payloads[:6]:
                net.deliver(0, payload)
        client.flush()
        assert net.switch.service.outcomes[ReplayOutcome.OLD] > 8 and net.switch.service.tables[0].adds == 40


def test_reopening_discards_earlier_broadcasts():
    """The switch restarted, so the same unit numbers mean other contents."""
    net = network()
    with opened(net) as learner, opened(net) as actor:
        learner.set_parameters(5, bytes(1000))
        actor.poll()
        net.switch.service.__init__(REPLAY)  # all is forgotten
        for client in (learner, actor):
            net.run(net.now + 0.001)
            with pytest.raises(SessionLostError):
                client.sample(1)
            client.reopen()
        learner.set_parameters(6, bytes(range(250)) * 4, broadcast=False)
        assert actor.get_parameters() == (6, bytes(range(250)) * 4)


# Closed


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_close_is_sent_when_everything_else_is_answered(faults):
    for seed in range(5):
        net = network(seed=seed, **faults)
        client = opened(net)
        for _ in range(9):
            extend(client, 19)
        told, said, watch = set(), [], Watch(net)
        net.lose = lambda payload, there: bool(said.append(len(told))) if there and payload[1] == Kind.CLOSE else False
        take = client._session.channel.handle_reply

        def taken(reply, now):
            request = next((each for each in client._session.channel.requests() if each.seq == reply.header.seq), None)
            outcome = take(reply, now)
            if request and request.settled:
                told.add(request.seq)
            return outcome

        client._session.channel.handle_reply = taken
        before = client._session.channel.pending
        assert client._session.close(timeout_s=5.0)
        assert (
            not place(net).open
            and said
            and said[0] == before
            and set(watch.of(Kind.CLOSE)) <= {ReplayOutcome.DONE, ReplayOutcome.SESSION}
        )
        assert net.switch.service.tables[0].adds == 9 * 19


@pytest.mark.parametrize(
    "puts",
    [
        lambda client: client.prefetch(4, depth=2),
        lambda client: [
            client._session.submit(Request(Kind.UPDATE, count=1, body=bytes(8), ticket=99)) for _ in range(2)
        ],
    ],
    ids=["prefetch", "ticket"],
)
@pytest.mark.parametrize("pause_s", [0.0, 0.1])
def test_waiting_requests_are_cancelled_before_close(puts, pause_s):
    net = network()
    watch = Watch(net)
    with opened(net) as client:
        kept = puts(client)
        for _ in range(10):
            net.run(net.now + pause_s / 10)
            client.poll()
        begun = net.now
        assert client._session.close() and net.now - begun < 0.05 and not place(net).open
    assert watch.of(Kind.SKIP) == [ReplayOutcome.DONE] * 2 and watch.seen[-1][0] == Kind.CLOSE and kept


def test_a_failed_client_closes_its_session_at_once():
    net = network()
    with pytest.raises(KeyError), opened(net) as client:
        client._session.submit(Request(Kind.UPDATE, count=1, body=bytes(8), ticket=99))
        begun = net.now
        raise KeyError
    assert net.now - begun < 0.05 and not place(net).open and net.switch.service.tables[0].ticket == 1


def test_close_is_not_sent_before_other_answers_and_gives_up_in_time():
    net = network()
    client = opened(net)
    extend(client).items.tolist()
    watch = Watch(net)
    net.lose = lambda payload, there: not there
    extend(client)
    begun = net.now
    assert not client._session.close(timeout_s=0.7) and 0.69 < net.now - begun < 0.71
    assert (
        set(watch.of(Kind.ADD)) == {ReplayOutcome.DONE, ReplayOutcome.REPEATED}
        and not watch.of(Kind.CLOSE)
        and place(net).open
    )


def test_a_close_whose_answer_was_lost_is_confirmed_by_reason_session():
    net = network()
    client = opened(net)
    watch, lost = Watch(net), []
    net.lose = lambda payload, there: not there and payload[1] == Kind.CLOSE and not lost and not lost.append(1)
    assert client._session.close()
    assert watch.of(Kind.CLOSE) == [ReplayOutcome.DONE, ReplayOutcome.SESSION] and not place(net).open
