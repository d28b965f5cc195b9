"""A network's parameters from a learner's log to the actors."""

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, MemoryExhaustedError, ReplayClient
from iswitch.replay.request import Request
from iswitch.wire import Type, version_type
from iswitch.wire.replay import LOAD, PUBLISH, WRITE, Kind
from sim.bench.replay_network import Network

SPEC = {"x": Field((3,), np.float32)}
LOGGED = {"x": Field((200,), np.float32)}
REPLAY = Replay(tables=2, capacity=64, sessions=4, log_bytes=1 << 15)
FAULTS = [{}, {"doubled": 1.0}, {"loss": 0.2, "late": 0.3}]
SIZES = [0, 1, 63, 64, 65, 1343, 1344, 1345, 10_000]


def network(**faults):
    return Network(Config(ports=4, members=4, replay=REPLAY), **faults)


def parameters(size, seed=0):
    return np.random.default_rng(seed).bytes(size)


def requests(net):
    """Record the kinds of the requests that come from now on."""
    seen = []
    net.lose = lambda payload, there: (
        bool(seen.append(Kind(payload[1]))) if there and payload[0] == version_type(Type.REQUEST) else False
    )
    return seen


@pytest.mark.parametrize("faults", FAULTS, ids=str)
@pytest.mark.parametrize("shout", [False, True])
def test_parameters_are_received_as_they_were_set(shout, faults):
    net = network(**faults)
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        assert actor.get_parameters() is None
        for version, size in enumerate(SIZES, 1):
            learner.set_parameters(version, parameters(size, version), broadcast=shout)
            assert actor.get_parameters(version - 1) == (version, parameters(size, version))
            assert actor.get_parameters(version) is None


def test_broadcast_parameters_need_no_load():
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        learner.set_parameters(5, parameters(9000))
        seen = requests(net)
        assert actor.get_parameters() == (5, parameters(9000)) and seen == []


def test_only_lost_parts_of_a_broadcast_are_loaded():
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        shouts = []
        net.lose = lambda payload, there: (
            not there and payload[0] == version_type(Type.DATA) and (shouts.append(1) or len(shouts) == 3)
        )
        learner.set_parameters(5, parameters(9000))
        seen = requests(net)
        assert actor.get_parameters() == (5, parameters(9000)) and seen == [Kind.LOOK, Kind.LOAD]


def test_an_array_is_sent_as_its_bytes():
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        weights = np.arange(12, dtype=np.float32).reshape(3, 4)
        learner.set_parameters(1, weights.T)
        assert np.array_equal(np.frombuffer(actor.get_parameters()[1], np.float32).reshape(4, 3), weights.T)


def test_a_waiting_actor_receives_the_next_version():
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        learner.set_parameters(1, b"one")
        net.at(net.now + 0.4, lambda: learner.set_parameters(2, b"two", broadcast=False))
        begun = net.now
        assert actor.get_parameters(1, timeout_s=1.0) == (2, b"two") and 0.4 < net.now - begun < 0.5
        assert actor.get_parameters(2, timeout_s=1.0) is None and net.now - begun > 1.4


def test_tables_have_parameters_of_their_own():
    net = network()
    with ReplayClient(net.transport(), SPEC) as one, ReplayClient(net.transport(), SPEC, table=1) as other:
        one.set_parameters(3, parameters(3000, 1))
        assert other.get_parameters() is None
        other.set_parameters(4, parameters(3000, 2))
        assert one.get_parameters(2) == (3, parameters(3000, 1))
        with ReplayClient(net.transport(), SPEC) as late:
            assert late.get_parameters() == (3, parameters(3000, 1))


def test_broadcasts_of_two_learners_are_not_mixed():
    """Their units have the same numbers."""
    net = network()
    with (
        ReplayClient(net.transport(), SPEC) as one,
        ReplayClient(net.transport(), SPEC) as two,
        ReplayClient(net.transport(), SPEC) as actor,
    ):
        one.set_parameters(1, parameters(5000, 1))
        two.set_parameters(2, parameters(5000, 2))
        assert actor.get_parameters() == (2, parameters(5000, 2))
        one.set_parameters(3, parameters(5000, 3))
        assert actor.get_parameters(2) == (3, parameters(5000, 3))


def test_a_broadcast_is_complete_despite_another_with_the_same_unit_numbers():
    net = network()
    with (
        ReplayClient(net.transport(), SPEC) as one,
        ReplayClient(net.transport(), SPEC) as two,
        ReplayClient(net.transport(), SPEC) as actor,
    ):
        one.set_parameters(7, parameters(5000, 1))
        two.set_parameters(6, parameters(5000, 2))
        seen = requests(net)
        assert actor.get_parameters() == (7, parameters(5000, 1)) and seen == []


def test_parameters_without_a_digest_use_no_other_learners_broadcast():
    """Without a digest, the mixture would not be noticed."""
    net = network()
    with (
        ReplayClient(net.transport(), SPEC) as one,
        ReplayClient(net.transport(), SPEC) as two,
        ReplayClient(net.transport(), SPEC) as actor,
    ):
        one.set_parameters(1, parameters(5000))
        raw = parameters(22 * 64, 2)
        for kind, count, body in [
            (Kind.WRITE, 22, np.array((0, 0), WRITE).tobytes() + raw),
            (Kind.PUBLISH, 0, np.array((0, 22, 9, 0), PUBLISH).tobytes()),
        ]:
            two._session.wait_served([two._session.submit(Request(kind, count=count, body=body))])
        assert actor.get_parameters(1) == (9, raw)
        query = two._session.query(
            Kind.SHOUT, count=11, body=np.array((0, two.session, np.zeros(3, "u1")), LOAD).tobytes()
        )
        two._session.wait_until(lambda: query.reply is not None)
        assert actor.get_parameters(1) == (9, raw)


def test_many_versions_wrap_around_the_log_beside_items():
    net = network()
    with ReplayClient(net.transport(), LOGGED) as learner, ReplayClient(net.transport(), LOGGED) as actor:
        for version in range(1, 30):
            learner.set_parameters(version, parameters(3000, version), broadcast=version % 2 == 0)
            assert actor.get_parameters(version - 1) == (version, parameters(3000, version))
            actor.extend({"x": np.full((1, 200), version)}, np.ones(1))
        learner.extend({"x": np.full((5, 200), 1.0)}, np.ones(5))
        batch = actor.sample(100)
        assert not batch.overwritten.any() and (batch.data["x"] == batch.data["x"][:, :1]).all()


def test_three_versions_are_kept_for_slow_readers():
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner:
        for version in (1, 2, 3, 4):
            learner.set_parameters(version, parameters(9000, version), broadcast=False)
        place = net.switch.service.sessions[0]
        assert place.written - place.oldest == 3 * (1 + 141)


def test_the_next_version_is_found_while_one_is_overwritten():
    """The actor learns that there is version 1. Before it has loaded it, version 4 replaces it."""
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner, ReplayClient(net.transport(), SPEC) as actor:
        learner.set_parameters(1, parameters(15000, 1), broadcast=False)
        receive, overtake = net.switch.service.receive, [2, 3, 4]

        def watched(source, payload, now_us):
            if payload[1] == Kind.LOAD and overtake:
                versions, overtake[:] = overtake[:], []
                net.at(
                    net.now,
                    lambda: [
                        learner.set_parameters(version, parameters(15000, version), broadcast=False)
                        for version in versions
                    ],
                )
            return receive(source, payload, now_us)

        net.switch.service.receive = watched
        found = actor.get_parameters(timeout_s=1.0)
        assert found in [(version, parameters(15000, version)) for version in (1, 2, 3, 4)]
        assert actor.get_parameters(3, timeout_s=1.0) == (4, parameters(15000, 4))


def test_parameters_larger_than_the_log_are_an_error_with_a_remedy():
    net = network()
    with ReplayClient(net.transport(), SPEC) as learner:
        with pytest.raises(MemoryExhaustedError, match="Parameters of 40000 bytes take 40064 of a log of 32768 bytes"):
            learner.set_parameters(1, parameters(40_000))
        learner.set_parameters(1, parameters(30_000))
        learner.set_parameters(2, parameters(30_000, 2))
        with ReplayClient(net.transport(), SPEC) as actor:
            assert actor.get_parameters() == (2, parameters(30_000, 2))
