"""Which units of a log are kept, and how frames are shared, against stacks that were assembled naively."""

from collections import deque
from dataclasses import asdict

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, MemoryExhaustedError, ReplayClient, SessionLostError
from iswitch.replay import frame_cache as sound
from sim.bench.mutant import mutant
from sim.bench.replay_network import Network

REPLAY = Replay(
    tables=1,
    capacity=128,
    priority_bits=27,
    sessions=3,
    cached_answers=4,
    samples_per_request=512,
    record_bytes=64,
    log_bytes=1 << 18,
)
FRAME = (9, 10)
SPEC = {
    "observation": Field((4, *FRAME), np.uint8, stacked=4),
    "next_observation": Field((4, *FRAME), np.uint8, stacked=4),
    "action": Field((), np.int32),
    "discount": Field((), np.float32),
}
BLOBS = {"observation": Field((300,), np.float32), "action": Field((), np.int32)}


def network(**changes):
    return Network(Config(ports=4, members=4, replay=Replay(**asdict(REPLAY) | changes)))


class Game:
    """Frames at random, episodes of random lengths, which begin with the first frame repeated or with blank ones."""

    def __init__(self, seed, *, blank=False, steps=3):
        self.rng, self.blank, self.steps = np.random.default_rng(seed), blank, steps
        self.shown = set()
        self.begin()

    def frame(self):
        shown = self.rng.integers(1, 255, FRAME, np.uint8)
        self.shown.add(shown.tobytes())
        return shown

    def begin(self):
        first = self.frame()
        padding = np.zeros(FRAME, np.uint8) if self.blank else first
        self.stack = deque([padding] * 3 + [first], maxlen=4)
        self.history, self.left = deque([np.array(self.stack)]), int(self.rng.integers(1, 12))

    def play(self):
        """Transitions of `steps` steps that end with the next one; several at an episode's end, some of them
        shorter."""
        self.stack.append(self.frame())
        self.history.append(np.array(self.stack))
        self.left -= 1
        transitions = []
        while len(self.history) > self.steps or not self.left and len(self.history) > 1:
            transitions.append(
                {
                    "observation": self.history.popleft(),
                    "next_observation": self.history[min(self.steps, len(self.history)) - 1],
                    "action": len(transitions),
                    "discount": 0.99 if self.left else 0.0,
                }
            )
            for image in (*transitions[-1]["observation"], *transitions[-1]["next_observation"]):
                self.shown.add(image.tobytes())
        if not self.left:
            self.begin()
        return transitions


def played(count, *, games=1, **options):
    """Return `count` transitions of several games that are played alternately, and the games."""
    crowd = [Game(seed, **options) for seed in range(games)]
    transitions = []
    while len(transitions) < count:
        for game in crowd:
            transitions += game.play()
    return transitions[:count], crowd


def together(transitions):
    return {
        name: np.stack([np.asarray(transition[name], SPEC[name].wire_dtype) for transition in transitions])
        for name in SPEC
    }


def check(client, transitions, first=128):
    """Check that a sample equals stacks that were assembled naively."""
    batch = client.sample(512)
    expected = together([transitions[item] for item in (batch.items - first).tolist()])
    for name in SPEC:
        assert np.array_equal(batch.data[name][~batch.overwritten], expected[name][~batch.overwritten]), name
    return batch


# Frames


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("games", [1, 3])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_each_frame_is_written_once_and_stacks_are_complete(blank, steps, games, one_by_one):
    transitions, crowd = played(120, games=games, blank=blank, steps=steps)
    with ReplayClient(network().transport(), SPEC) as client:
        if one_by_one:
            for transition in transitions:
                client.add(priority=1.0, **transition)
        else:
            client.extend(together(transitions), np.ones(120))
        assert not check(client, transitions).overwritten.any()
        stats = client.statistics()
        needed = {
            image.tobytes()
            for transition in transitions
            for name in ("observation", "next_observation")
            for image in transition[name]
        }
        assert stats.frames_written == len(needed) and stats.frames_written + stats.frames_shared == 8 * 120
        assert stats.bytes_sent < 120 * 72 + (len(needed) + 22) * 128  # a frame takes two units


def test_shared_frames_are_loaded_once():
    net = network()
    with ReplayClient(net.transport(), SPEC) as client:
        transitions, _ = played(100)
        client.extend(together(transitions), np.ones(100))
        client.flush()
        before = net.carried["to"]
        check(client, transitions)
        distinct = client.statistics().frames_written
        assert net.carried["to"] - before < 1 + 5 + 2 * distinct / 22 + 20


def overwritten():
    """Frames that were written, then are not needed by any item, and then come again."""
    net = network(log_bytes=1 << 15, capacity=16)
    with ReplayClient(net.transport(), SPEC) as client:
        transitions, _ = played(30)
        client.extend(together(transitions[:3]), np.ones(3)).items.tolist()
        net.switch.service.tables[0].add([0] * 16)
        for part in (transitions[20:24], transitions[26:30], transitions[:3]):
            client.extend(together(part), np.ones(len(part))).items.tolist()
        batch = client.sample(100)
        assert not batch.overwritten.any()
        expected = together(transitions[20:24] + transitions[26:30] + transitions[:3])
        assert all(np.array_equal(batch.data[name], expected[name][batch.items - 35]) for name in SPEC)


def shared():
    with ReplayClient(network().transport(), SPEC) as client:
        transitions, _ = played(100, blank=True)
        client.extend(together(transitions), np.ones(100))
        check(client, transitions)


def test_an_overwritten_frame_is_written_again():
    overwritten()


@pytest.mark.mutant
@pytest.mark.parametrize(
    "scenario, right, wrong",
    [
        (shared, "self._frames.get(frame)", "next((v for k, v in self._frames.items() if k[:1] == frame[:1]), None)"),
        (overwritten, "place[0] < oldest", "False"),
    ],
)
def test_the_check_sees_a_mutant(scenario, right, wrong, monkeypatch):
    monkeypatch.setattr("iswitch.replay.writer.FrameCache", mutant(sound, right, wrong).FrameCache)
    with pytest.raises(AssertionError):
        scenario()


def test_a_recurring_blank_frame_does_not_fill_the_log():
    with ReplayClient(network(log_bytes=1 << 15, capacity=16).transport(), SPEC) as client:
        transitions, _ = played(600, blank=True, games=2)
        for at in range(0, 600, 6):
            client.extend(together(transitions[at : at + 6]), np.ones(6))
        assert not check(client, transitions, 16).overwritten.any()
        assert client.statistics().log_bytes_used < 1 << 15


# The log


@pytest.mark.parametrize("spec", [SPEC, BLOBS], ids=["stacked", "blobs"])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_the_log_wraps_many_times(spec, loss):
    net = network(log_bytes=1 << 15, capacity=16)
    net.loss, net.doubled, net.late = loss, loss, loss
    with ReplayClient(net.transport(), spec) as client:
        rng = np.random.default_rng(5)
        every = {
            name: rng.integers(0, 250, (300, *field.axes)).astype(field.wire_dtype) for name, field in spec.items()
        }
        for at in range(0, 300, 5):
            client.extend({name: column[at : at + 5] for name, column in every.items()}, np.ones(5))
            batch = client.sample(64)
            assert not batch.overwritten.any()
            for name in spec:
                assert np.array_equal(batch.data[name], every[name][batch.items - 16])
        assert client.statistics().bytes_sent > 2 * (1 << 15)
        place = net.switch.service.sessions[0]
        assert (place.written - place.oldest) % 2**32 <= (1 << 15) // 64


def test_unit_numbers_wrap():
    net = network(log_bytes=1 << 15, capacity=16)
    net.switch.service.sessions[0] = net.switch.service.sessions[0]._replace(
        written=2**32 - 100, oldest=2**32 - 100, next=2**32 - 3
    )
    with ReplayClient(net.transport(), SPEC) as client:
        transitions, _ = played(100)
        for at in range(0, 100, 4):
            client.extend(together(transitions[at : at + 4]), np.ones(4))
            assert not check(client, transitions, 16).overwritten.any()
        assert net.switch.service.sessions[0].written < 2**20


def test_a_log_full_of_needed_data_is_an_error_with_a_remedy():
    with ReplayClient(network(log_bytes=1 << 15).transport(), BLOBS) as client:
        data = {"observation": np.arange(60 * 300).reshape(60, 300).astype(np.float32), "action": np.arange(60)}
        with pytest.raises(MemoryExhaustedError) as raised:
            client.extend(data, np.ones(60))
        for part in (
            "31616 of its 32768 bytes",
            "1216 more do not fit",
            "26 items with 1216 bytes each",
            "holds about 26 of them",
            "26 of these 60 transitions",
            "128 items of all clients",
            "larger `log_bytes`",
        ):
            assert part in str(raised.value)
        batch = client.sample(100)
        assert set(batch.items.tolist()) == set(range(128, 154)) and np.array_equal(
            batch.data["action"], batch.items - 128
        )
        assert np.array_equal(batch.data["observation"], data["observation"][batch.items - 128])


def test_a_log_is_free_after_other_clients_overwrote_its_items():
    net = network(log_bytes=1 << 15)
    with ReplayClient(net.transport(), BLOBS) as client, ReplayClient(net.transport(), BLOBS) as other:
        data = {"observation": np.ones((19, 300), np.float32), "action": np.arange(19)}
        client.extend(data, np.ones(19))
        for _ in range(7):
            with pytest.raises(MemoryExhaustedError):
                client.extend(data, np.ones(19))
            net.switch.service.tables[0].add([1] * 16)
        other.flush()
        net.switch.service.tables[0].add([1] * 16)
        assert len(client.extend(data, np.ones(19)).items) == 19


def test_a_former_clients_data_is_kept_while_there_is_room():
    net = network(log_bytes=1 << 15, capacity=256)
    transitions = played(60)[0] + played(30, games=2)[0] + played(130, blank=True)[0]
    with ReplayClient(net.transport(), SPEC) as former:
        former.extend(together(transitions[:60]), np.ones(60))
    with ReplayClient(net.transport(), SPEC) as client:
        assert client.session == 0 and not check(client, transitions, 256).overwritten.any()
        client.extend(together(transitions[60:90]), np.ones(30))
        assert not check(client, transitions, 256).overwritten.any()
        client.extend(together(transitions[90:]), np.ones(130))
        batch = check(client, transitions, 256)
        assert (
            0 < batch.overwritten.sum() < 512
            and batch.items[batch.overwritten].max() < 256 + 60
            and not batch.weights[batch.overwritten].any()
        )


def test_a_log_changed_by_another_client_ends_the_session():
    net = network()
    with (
        pytest.raises(SessionLostError, match=r"refused a WRITE \(RANGE\)"),
        ReplayClient(net.transport(), BLOBS) as client,
    ):
        net.switch.service.sessions[0] = net.switch.service.sessions[0]._replace(written=5)
        client.extend({"observation": np.ones((1, 300)), "action": [1]}, [1.0]).items.tolist()
