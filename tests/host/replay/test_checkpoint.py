"""Save a table to a file and restore it, while other clients add and sample."""

from dataclasses import asdict

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, MemoryExhaustedError, ReplayClient
from sim.bench.replay_network import Network

REPLAY = Replay(
    tables=1,
    capacity=256,
    priority_bits=27,
    sessions=4,
    cached_answers=4,
    samples_per_request=512,
    record_bytes=64,
    log_bytes=1 << 17,
)
PLAIN = {"observation": Field((4,), np.float32), "action": Field((), np.int64)}
STACKED = {"observation": Field((4, 9, 9), np.uint8, stacked=4), "number": Field((), np.int32)}
DEEP = {"a": Field((12, 70), np.uint8, stacked=12), "number": Field((), np.int32), "c": Field((4, 3), "f8", stacked=4)}
LARGE = {"observation": Field((40,), np.float32), "number": Field((), np.int32)}
SPECS = {"plain": PLAIN, "stacked": STACKED, "deep": DEEP, "large": LARGE}


def network(loss=0.0, **changes):
    return Network(Config(ports=4, members=4, replay=Replay(**asdict(REPLAY) | changes)), loss=loss)


def transitions(spec, count, first=0):
    """Stacks overlap as in one long episode."""
    made = {}
    for name, field in spec.items():
        if field.stacked:
            frames = np.stack(
                [
                    np.random.default_rng(k).integers(0, 250, field.axes[1:])
                    for k in range(first, first + count + field.stacked)
                ]
            )
            made[name] = np.stack([frames[k : k + field.stacked] for k in range(count)]).astype(field.wire_dtype)
        else:
            made[name] = np.broadcast_to(
                np.arange(first, first + count).reshape(-1, *[1] * len(field.axes)), (count, *field.axes)
            ).astype(field.wire_dtype)
    return made


def everything(client):
    """All items that can be sampled, with their priorities."""
    found = {}
    for seed in range(8):
        batch = client.sample(512, seed=seed)
        assert not batch.overwritten.any()
        for k, item in enumerate(batch.items.tolist()):
            found[item] = float(batch.priorities[k]), {name: column[k].tobytes() for name, column in batch.data.items()}
    return found


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("count, loss", [(1, 0.0), (100, 0.1), (300, 0.0)])
def test_a_restored_table_has_the_saved_items_in_order(spec, loss, count, tmp_path):
    before, after = network(loss, log_bytes=1 << 19), network(loss, log_bytes=1 << 19)
    with ReplayClient(before.transport(), SPECS[spec]) as client:
        data = transitions(SPECS[spec], count)
        client.extend(data, 1 + np.arange(count) % 5)
        assert client.save(tmp_path / "table.npz") == min(count, 256)
        old = everything(client)
        written = client.statistics().frames_written
    with ReplayClient(after.transport(), SPECS[spec]) as client:
        assert client.restore(tmp_path / "table.npz") == min(count, 256)
        new = everything(client)
        assert client.statistics().frames_written <= written
    shift = max(0, count - 256)
    assert {item - shift: found for item, found in old.items()} == new and len(new) >= min(count, 240)
    assert before.switch.service.tables[0].total == after.switch.service.tables[0].total


def test_an_empty_table_can_be_saved_and_restored(tmp_path):
    with ReplayClient(network().transport(), STACKED) as client:
        assert client.save(tmp_path / "table.npz") == 0
        assert client.restore(tmp_path / "table.npz") == 0


@pytest.mark.parametrize("spec", ["plain", "stacked", "large"])
def test_a_table_is_saved_and_restored_while_others_add_and_sample(spec, tmp_path):
    net, name = network(0.02), "number" if spec != "plain" else "action"
    with ReplayClient(net.transport(), SPECS[spec]) as keeper, ReplayClient(net.transport(), SPECS[spec]) as actor:
        actor.extend(transitions(SPECS[spec], 256), np.ones(256)).items.tolist()
        told = [256]

        def act():
            actor.extend(transitions(SPECS[spec], 3, told[0]), np.ones(3))
            told[0] += 3

        net.every(0.0002, act)
        count = keeper.save(tmp_path / "table.npz")
        assert told[0] > 256 and 150 < count <= 256
    after = network(0.02)
    with ReplayClient(after.transport(), SPECS[spec]) as keeper, ReplayClient(after.transport(), SPECS[spec]) as other:
        told = [10_000]

        def act_again():
            other.extend(transitions(SPECS[spec], 1, told[0]), np.ones(1))
            told[0] += 1

        after.every(0.00005, act_again)
        assert keeper.restore(tmp_path / "table.npz", append=True) == count
        assert told[0] > 10_001
        batch = keeper.sample(512)
        numbers = batch.data[name][~batch.overwritten]
        assert (numbers < 10_000).any() and (numbers >= 10_000).any()
        for k in np.flatnonzero(~batch.overwritten):
            number = int(batch.data[name][k])
            expected = transitions(SPECS[spec], 1, number)
            assert all(batch.data[field][k].tobytes() == expected[field][0].tobytes() for field in SPECS[spec])


def test_several_clients_restore_a_file_that_one_log_cannot_hold(tmp_path):
    before, after = network(log_bytes=1 << 15), network(log_bytes=1 << 15)
    clients = [ReplayClient(before.transport(), LARGE) for _ in range(2)]
    for k, client in enumerate(clients):
        client.extend(transitions(LARGE, 100, 100 * k), np.ones(100))
        client.flush()
    assert clients[0].save(tmp_path / "table.npz") == 200
    with ReplayClient(after.transport(), LARGE) as one, ReplayClient(after.transport(), LARGE) as two:
        assert (
            one.restore(tmp_path / "table.npz", share=(0, 2))
            == two.restore(tmp_path / "table.npz", share=(1, 2), append=True)
            == 100
        )
        numbers = {int(number) for seed in range(5) for number in one.sample(512, seed=seed).data["number"]}
        assert len(numbers) > 190
    with (
        ReplayClient(network(log_bytes=1 << 14).transport(), LARGE) as small,
        pytest.raises(MemoryExhaustedError, match="more clients"),
    ):
        small.restore(tmp_path / "table.npz")


def test_a_switch_with_other_sizes_restores_the_same_file(tmp_path):
    before, after = network(), network(record_bytes=256, capacity=64, priority_bits=20)
    with ReplayClient(before.transport(), LARGE) as client:
        client.extend(transitions(LARGE, 100), 1 + np.arange(100) % 4)
        client.save(tmp_path / "table.npz")
    with ReplayClient(after.transport(), LARGE) as client:
        assert client.restore(tmp_path / "table.npz") == 64
        found = everything(client)
        assert {np.frombuffer(data["number"], "i4")[0]: priority for priority, data in found.values()} == {
            k: 1 + k % 4 for k in range(36, 100)
        }


def test_a_file_is_restored_into_an_empty_table_unless_append(tmp_path):
    with ReplayClient(network().transport(), PLAIN) as client:
        client.extend(transitions(PLAIN, 10), np.ones(10))
        client.save(tmp_path / "table.npz")
        with pytest.raises(ValueError, match="10 items were added to table 0 before"):
            client.restore(tmp_path / "table.npz")
        assert client.restore(tmp_path / "table.npz", append=True) == 10 and client.statistics().size == 20


def test_file_wrong(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with ReplayClient(network().transport(), PLAIN) as client:
        client.save(tmp_path / "table.npz")
        with pytest.raises(ValueError, match="a checkpoint must be a file that `save`"):
            client.restore(tmp_path / "other.npz")
    with (
        ReplayClient(network().transport(), LARGE) as client,
        pytest.raises(ValueError, match="must have the fields of this client's spec"),
    ):
        client.restore(tmp_path / "table.npz")
