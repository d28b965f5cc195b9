"""The replay buffer of TorchRL over the golden switch, beside TorchRL's own buffer and numpy.

TorchRL is imported by the tests, not at collection, since that takes seconds. Without it, the tests fail and say what
to install.
"""

import os
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.errors import ClosedError
from iswitch.replay import NotServedError, ReplayClient
from sim.bench.pinned import needed
from sim.bench.replay_network import Network
from sim.bench.statistics import chi_square, quantile
from sim.bench.udp_model import UdpModel
from sim.bench.until import until

CAPACITY = 64
REPLAY = Replay(capacity=CAPACITY, priority_bits=27, sessions=4, samples_per_request=512, log_bytes=1 << 17)
ALPHA, BETA, EPS = 0.7, 0.5, 0.01
NORMAL = 3.0902
"""Standard deviations of the 0.1 % and 99.9 % quantiles."""


def config(**changes):
    return Config(ports=4, members=4, replay=Replay(**{**vars(REPLAY), **changes}))


@pytest.fixture(scope="module", autouse=True)
def _torchrl():
    needed("torchrl")


@pytest.fixture
def network():
    return Network(config())


@pytest.fixture
def make(network):
    """Make buffers over the network, and close them."""
    made = []

    def make(example, **options):
        from iswitch.replay.torchrl import SwitchReplayBuffer

        made.append(SwitchReplayBuffer(network.transport(), example, keepalive=False, **options))
        return made[-1]

    yield make
    for buffer in made:
        buffer.close()


def numbered(count, **more):
    """Transitions that carry their number as `turn`, and whose names would clash with arguments of `ReplayClient`."""
    import torch
    from tensordict import TensorDict

    leaves = {"turn": torch.arange(count), "priority": torch.rand(count, 3), ("next", "ticket"): torch.rand(count, 4)}
    return TensorDict(leaves | more, batch_size=[count])


def any_dtypes(count):
    import torch
    from tensordict import TensorDict

    kinds = ["bool", "uint8", "int16", "int64", "uint32", "float16", "bfloat16", "float32", "float64", "complex64"]
    generator = torch.Generator().manual_seed(1)
    leaves = {
        ("deep", kind): torch.randint(0, 2, (count, 2), generator=generator).to(getattr(torch, kind)) for kind in kinds
    }
    leaves |= {"log.session": torch.arange(count), ("log", "blob"): torch.rand(count, 1), "a/b": torch.rand(count)}
    leaves |= {("a", "b"): torch.rand(count), "a~1b": torch.rand(count)}
    return TensorDict(leaves, batch_size=[count])


def leaves_of(data):
    return {key: data.get(key) for key in data.keys(include_nested=True, leaves_only=True)}


# As TorchRL's own buffer


def test_a_sampled_batch_has_the_transitions_that_were_added(make):
    data = any_dtypes(50)
    buffer = make(data, batch_size=200)
    index = buffer.extend(data.clone())
    batch = buffer.sample()
    assert batch.batch_size == (200,) and len(buffer) == 50
    for key, value in leaves_of(data).items():
        expected, got = value[batch["index"] - index[0]], batch.get(key)
        assert got.dtype == expected.dtype and got.tolist() == expected.tolist(), key


def test_shapes_dtypes_and_keys_are_those_of_torchrls_own_buffer(make):
    from torchrl.data import LazyTensorStorage, ReplayBuffer, TensorDictReplayBuffer

    data = numbered(20)
    ours = make(data[0], batch_size=8)
    theirs = TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=8)
    assert isinstance(ours, ReplayBuffer)
    results = []
    for buffer in (ours, theirs):
        index, single = buffer.extend(data.clone()), buffer.add(data[0].clone())
        with pytest.warns(UserWarning, match="conflicting batch_sizes"):
            small = buffer.sample(3)
        batches = [buffer.sample(), next(iter(buffer)), small]
        assert buffer.batch_size == 8 and buffer.write_count == 21 and buffer.stats()["capacity"] == CAPACITY
        results.append(
            (
                len(buffer),
                index.shape,
                index.dtype,
                int(single) - int(index[0]),
                [
                    {key: (leaf.shape, leaf.dtype) for key, leaf in leaves_of(batch.exclude("index")).items()}
                    for batch in batches
                ],
            )
        )
    for batch in results[0][-1]:
        assert (batch.pop("priority_weight")[0], batch.pop("overwritten")[0]) == (batch["turn"][0],) * 2
    assert results[0] == results[1]


def test_without_a_batch_size_sample_needs_one(make):
    buffer = make(numbered(4))
    buffer.extend(numbered(4))
    with pytest.raises(RuntimeError, match="batch_size"):
        buffer.sample()
    assert len(buffer.sample(5)) == 5


def test_extend_sets_the_index_of_the_added_transitions(make):
    data = numbered(4)
    buffer = make(data)
    assert buffer.extend(data).tolist() == data["index"].tolist() == list(range(CAPACITY, CAPACITY + 4))
    assert tuple(buffer.update_priority(data["index"], 2.0)) == (4, 0)


def test_transitions_of_several_steps_keep_their_batch_dimensions(make):
    import torch
    from tensordict import TensorDict

    data = TensorDict({"reward": torch.rand(6, 5, 1), "td_error": torch.rand(6, 5, 1)}, batch_size=[6, 5])
    buffer = make(data.exclude("td_error"), batch_size=3)
    buffer.extend(data.clone())
    batch = buffer.sample()
    assert batch.batch_size == (3, 5) and batch["index"].shape == (3, 5)
    assert batch["reward"].tolist() == data["reward"][batch["index"][:, 0] - CAPACITY].tolist()
    batch["td_error"] = torch.rand(3, 5, 1)
    assert sum(buffer.update_tensordict_priority(batch)) == 3


def test_transforms_act_when_items_are_added_and_when_they_are_sampled(make):
    from torchrl.envs.transforms import Transform

    class Shift(Transform):
        def _inv_call(self, data):
            return data.set("turn", data["turn"] + 100)

        def forward(self, data):
            return data.set("turn", -data["turn"])

    data = numbered(4)
    buffer = make(data, batch_size=16, transform=Shift())
    buffer.extend(data.clone())
    stored = buffer.client.sample(16).data["turn"]
    assert set(stored) <= {100, 101, 102, 103}
    assert set(buffer.sample()["turn"].tolist()) <= {-100, -101, -102, -103}


def test_a_composite_declares_the_transition(make):
    import torch
    from torchrl.data import Bounded, Composite, Unbounded

    spec = Composite(
        observation=Unbounded((3,)), next=Composite(reward=Unbounded((1,)), done=Bounded(0, 1, (1,), dtype=torch.bool))
    )
    buffer = make(spec)
    assert {name: (field.shape, str(field.dtype)) for name, field in buffer.fields.spec.items()} == {
        "observation": ((3,), "float32"),
        "next/reward": ((1,), "float32"),
        "next/done": ((1,), "bool"),
    }


def test_the_sampler_by_itself_returns_handles_and_weights(make):
    buffer = make(numbered(4))
    added = buffer.extend(numbered(4))
    index, info = buffer.sampler.sample(buffer.storage, 8)
    assert set(index.tolist()) <= set(added.tolist()) and set(info) == {"priority_weight", "overwritten"}


# Overwritten items


def test_new_items_overwrite_the_oldest(make):
    data = numbered(150)
    buffer = make(data[:1], batch_size=512)
    for at in range(0, 150, 25):
        buffer.extend(data[at : at + 25].clone())
    batch = buffer.sample()
    assert len(buffer) == CAPACITY and set(batch["turn"].tolist()) == set(range(150 - CAPACITY, 150))
    assert batch["priority"].tolist() == data["priority"][batch["turn"]].tolist()


def test_an_update_of_an_overwritten_item_changes_nothing_and_is_reported(make, network):
    buffer = make(numbered(1), alpha=1.0, eps=0.0, batch_size=256)
    old = buffer.extend(numbered(CAPACITY))
    new = buffer.extend(numbered(10))
    before = buffer.client.statistics().priority_sum
    updated, stale = buffer.update_priority(old[:10], 200.0)
    assert (updated, stale) == (0, 10) and buffer.client.statistics().priority_sum == before
    assert tuple(buffer.update_priority(new, 200.0)) == (10, 0)
    assert buffer.client.statistics().priority_sum == before + 10 * 199


def test_items_overwritten_before_they_are_read_are_marked(make, network):
    data = numbered(CAPACITY)
    buffer, other = make(data, batch_size=16, prefetch=1), make(data)
    other.extend(data.clone())
    buffer.sample()
    until_sampled = buffer._batches._operations[0].request
    network.run(network.now + 1, lambda: until_sampled.settled)
    assert not until_sampled.settled  # the client reads the answer with the next sample
    other.extend(data.clone())
    batch = buffer.sample()
    assert batch["overwritten"].all() and not batch["priority_weight"].any() and not batch["turn"].any()
    assert not buffer.sample()["overwritten"].any()


# Priorities


@pytest.mark.parametrize("alpha", [ALPHA, 0.0])
def test_items_are_sampled_as_often_as_numpy_says(make, alpha):
    priorities = np.random.default_rng(3).exponential(size=CAPACITY)
    buffer = make(numbered(1), alpha=alpha, eps=EPS, batch_size=512, stratified=False)
    data = numbered(CAPACITY)
    import torch

    data["td_error"] = torch.from_numpy(priorities)[:, None]
    buffer.extend(data)
    counts = sum(np.bincount(buffer.sample()["turn"].numpy(), minlength=CAPACITY) for _ in range(20))
    shares = (priorities + EPS) ** alpha
    statistic, freedom = chi_square(counts, counts.sum() * shares / shares.sum())
    assert quantile(freedom, -NORMAL) < statistic < quantile(freedom, NORMAL)
    other = np.roll(shares, 1) if alpha else priorities
    assert chi_square(counts, counts.sum() * other / other.sum())[0] > 10 * quantile(freedom, NORMAL)


def test_weights_are_torchrls_up_to_an_eighth_of_the_lowest_priority(make):
    """(p / smallest p) ** -beta, where the smallest is that of the table; or exactly that of the batch."""
    import torch

    priorities = torch.rand(40, generator=torch.Generator().manual_seed(2)) + 0.1
    priorities[7] = 0.0
    stored = ((priorities.double() + EPS) ** ALPHA).numpy()
    data = numbered(40, td_error=priorities)
    options = {"alpha": ALPHA, "beta": BETA, "eps": EPS, "batch_size": 32}
    buffer, other = make(data.exclude("td_error"), **options), make(data.exclude("td_error"), **options)
    other.sampler.normalize = "batch"
    buffer.extend(data)
    batch = buffer.sample()
    assert 7 not in batch["turn"]  # the lowest of the table counts, not that of the batch
    expected = (stored[batch["turn"]] / stored.min()) ** -BETA
    weights = batch["priority_weight"].numpy()
    assert weights.dtype == np.float32
    assert (weights <= expected * 1.0001).all() and (weights * (9 / 8) ** BETA >= expected * 0.9999).all()
    batch = other.sample()
    mine = stored[batch["turn"]]
    assert np.allclose(batch["priority_weight"], (mine / mine.min()) ** -BETA, rtol=1e-4)
    other.sampler.beta = 0.0
    assert (other.sample()["priority_weight"] == 1).all()


@pytest.mark.parametrize("reduction", ["max", "min", "mean", "sum"])
def test_priorities_of_a_batch_are_reduced_as_torchrl_reduces_them(make, reduction):
    import torch

    buffer = make(numbered(1), alpha=1.0, eps=0.0, reduction=reduction, batch_size=256)
    data = numbered(8)
    buffer.extend(data)
    deltas = torch.tensor([[1.0, 3.0], [4.0, 2.0]])
    chosen = data[:2].set("td_error", deltas)
    assert tuple(buffer.update_tensordict_priority(chosen)) == (2, 0)
    assert tuple(buffer.update_priority(data["index"][2:], 0.0)) == (6, 0)
    expected = dict(enumerate(getattr(np, reduction)(deltas.numpy(), axis=1).tolist()))
    got = buffer.client.sample(256)
    assert dict(zip(got.data["turn"].tolist(), got.priorities.tolist())) == expected


def test_a_priority_is_taken_from_its_key_or_is_the_largest_so_far(make):
    buffer = make(numbered(1), alpha=1.0, eps=0.0, priority_key=("loss", "delta"))
    data = numbered(3)
    sums = []
    for added in (data[0], data[1].clone().set(("loss", "delta"), 5.0 * data["priority"][0, :1].ceil()), data[2]):
        buffer.add(added)
        sums.append(buffer.client.statistics().priority_sum)
    assert sums == [1, 6, 11]
    buffer.extend(numbered(2).set(("loss", "delta"), data["priority"][:2, :1].ceil()), update_priority=False)
    assert buffer.client.statistics().priority_sum == 21
    buffer.add(data[0].exclude("index").set(("loss", "delta"), data["priority"][0, :1].ceil()))
    buffer.add(data[0].exclude("index"))
    assert buffer.client.statistics().priority_sum == 21 + 1 + 5  # the largest, not the latest
    assert buffer.sample(4).get("loss", None) is None


def test_an_item_sampled_often_enough_is_not_sampled_again(make):
    buffer = make(numbered(1), wait_s=1.0)
    buffer.extend(numbered(16))
    buffer.set_limits(max_times_sampled=1)
    seen = [turn for _ in range(16) for turn in buffer.sample(1)["turn"].tolist()]
    assert sorted(seen) == list(range(16))
    with pytest.raises(NotServedError):
        buffer.sample(1)


# The order of adding


def test_in_the_order_of_adding_each_item_comes_once_and_what_was_overwritten_is_counted(make):
    data = numbered(150)
    buffer, other = make(data, sampler="fifo", batch_size=16), make(data)
    other.extend(data[:40].clone())
    turns = [*buffer.sample()["turn"].tolist(), *buffer.sample()["turn"].tolist()]
    other.extend(data[40:].clone())
    with pytest.warns(UserWarning, match="conflicting"):
        batch = buffer.sample(10)
    assert turns == list(range(32)) and batch["turn"].tolist() == list(range(86, 96))
    assert batch["priority"].tolist() == data["priority"][batch["turn"]].tolist()
    assert batch["index"].tolist() == (batch["turn"] + CAPACITY).tolist()
    assert buffer.sampler.fifo.overwritten == 86 - 32
    assert (batch["priority_weight"] == 1).all() and not batch["overwritten"].any()
    assert tuple(buffer.update_priority(batch["index"], 2.0)) == (10, 0)


def test_a_batch_in_the_order_of_adding_is_in_the_memory_of_the_received_arrays(make, monkeypatch):
    from iswitch.replay.fifo import Fifo

    data, received = any_dtypes(8), []
    buffer = make(data, sampler="fifo", batch_size=4)
    buffer.extend(data.clone())
    read = Fifo.read
    monkeypatch.setattr(Fifo, "read", lambda self, count: received.append(read(self, count)) or received[-1])
    batch = buffer.sample()
    from iswitch.replay.torchrl.fields import field_name

    for key, leaf in leaves_of(batch.exclude("index", "priority_weight", "overwritten")).items():
        assert leaf.data_ptr() == received[0].data[field_name(key)].ctypes.data


def test_uniform_sampling_ignores_the_priorities(make):
    data = numbered(CAPACITY).set("td_error", 10 * numbered(CAPACITY)["priority"][:, :1])
    buffer = make(numbered(1), sampler="uniform", batch_size=512)
    buffer.extend(data)
    batch = buffer.sample()
    buffer.update_priority(batch["index"], 7.0)
    assert (batch["priority_weight"] == 1).all()
    assert set(buffer.client.sample(512).priorities.tolist()) == {1.0}


def test_mark_update_gives_items_the_largest_priority(make):
    buffer = make(numbered(1), alpha=1.0, eps=0.0)
    index = buffer.extend(numbered(4))
    buffer.update_priority(index[:1], 5.0)
    buffer.mark_update(index[2:])
    assert buffer.client.statistics().priority_sum == 5 + 1 + 5 + 5


# Memory, threads, processes


def test_a_batch_is_in_the_memory_of_the_received_arrays(make, monkeypatch):
    data = any_dtypes(8)
    buffer, received = make(data, batch_size=4), []
    buffer.extend(data.clone())
    sample = buffer.client.sample
    monkeypatch.setattr(ReplayClient, "sample", lambda _, *a, **k: received.append(sample(*a, **k)) or received[-1])
    batch = buffer.sample()
    for key, leaf in leaves_of(batch.exclude("index", "priority_weight", "overwritten")).items():
        from iswitch.replay.torchrl.fields import field_name

        assert leaf.data_ptr() == received[0].data[field_name(key)].ctypes.data


def test_stacks_send_each_frame_once(make):
    import torch
    from tensordict import TensorDict

    frames = torch.randint(0, 255, (23, 9, 9), dtype=torch.uint8)
    stacks = frames.unfold(0, 4, 1).permute(0, 3, 1, 2)
    data = TensorDict({"pixels": stacks, "turn": torch.arange(20)}, batch_size=[20])
    buffer = make(data, stacked=["pixels"], batch_size=64)
    buffer.extend(data.clone())
    batch = buffer.sample()
    assert torch.equal(batch["pixels"], stacks[batch["turn"]])
    assert buffer.client.statistics().frames_written == 23


@pytest.mark.parametrize("prefetch", [1, 3])
def test_prefetched_batches_are_as_others(make, prefetch):
    data = numbered(30)
    buffer = make(data, batch_size=16, prefetch=prefetch)
    buffer.extend(data.clone())
    for _, batch in zip(range(6), buffer):
        assert batch["priority"].tolist() == data["priority"][batch["turn"]].tolist()
        assert sum(buffer.update_priority(batch["index"], 1.5)) == 16
    with pytest.warns(UserWarning, match="conflicting"):
        assert len(buffer.sample(5)) == 5


def test_without_return_index_nothing_waits_and_flush_does(make, network):
    buffer = make(numbered(1), return_index=False)
    assert buffer.extend(numbered(30)) is None and buffer.add(numbered(1)[0]) is None
    buffer.flush()
    assert len(buffer) == 31


@pytest.mark.parametrize("keepalive", [False, True])
def test_a_forked_child_cannot_use_the_buffer_and_leaves_it_open(keepalive):
    from iswitch.replay.torchrl import SwitchReplayBuffer

    with UdpModel(config()) as model, SwitchReplayBuffer(model.address(0), numbered(1), keepalive=keepalive) as buffer:
        if not (child := os.fork()):
            try:
                with buffer:
                    buffer.extend(numbered(5))
            except ClosedError:
                os._exit(3)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert buffer.extend(numbered(5)).tolist() == list(range(CAPACITY, CAPACITY + 5))
        assert len(buffer) == 5


def test_the_thread_sends_what_waits_while_the_program_computes():
    from iswitch.replay.torchrl import SwitchReplayBuffer

    with UdpModel(config()) as model, SwitchReplayBuffer(model.address(0), numbered(1), return_index=False) as buffer:
        for transition in numbered(20):
            buffer.add(transition)
        until(lambda: model.switch.service.tables[0].adds == 20, 60)


def test_an_update_waits_for_its_answer_within_the_lock(make, monkeypatch):
    buffer, entered = make(numbered(1)), []
    index = buffer.extend(numbered(4))

    class Lock:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *_):
            entered.append(False)

    buffer.service.lock = Lock()
    pending = buffer.update_priority(index, 1.0)
    wait = buffer.client._session.wait_served
    monkeypatch.setattr(
        buffer.client._session, "wait_served", lambda requests: entered.append("waits") or wait(requests)
    )
    assert pending.updated == 4 and entered == [True, False, True, "waits", False]


def test_a_checkpoint_is_read_into_an_empty_table(make, tmp_path):
    from iswitch.replay.torchrl import SwitchReplayBuffer

    data = numbered(30)
    make(data).extend(data.clone())
    make(data).dumps(tmp_path / "table")
    with SwitchReplayBuffer(Network(config()).transport(), data, keepalive=False, batch_size=64) as other:
        other.loads(tmp_path / "table")
        batch = other.sample()
        assert len(other) == 30 and batch["priority"].tolist() == data["priority"][batch["turn"]].tolist()


@pytest.mark.parametrize("submitted", [0.25, 100.0])
def test_items_added_after_a_checkpoint_get_the_largest_priority_before_it(make, tmp_path, submitted):
    """As in TorchRL: (largest + eps) ** alpha, where the items themselves came with priority 1."""
    from iswitch.replay.torchrl import SwitchReplayBuffer

    data, settings = numbered(8), {"alpha": ALPHA, "beta": BETA, "eps": EPS}
    buffer = make(data, **settings)
    buffer.update_priority(buffer.extend(data.clone()), submitted)
    buffer.dumps(tmp_path)
    with SwitchReplayBuffer(Network(config()).transport(), data, keepalive=False, **settings) as resumed:
        resumed.loads(tmp_path)
        new = int(resumed.extend(data[:1].clone())[0])
        batch = resumed.client.sample(512)
        expected = (max(1.0, submitted) + EPS) ** ALPHA
        assert batch.priorities[batch.items == new][0] == pytest.approx(expected, rel=1e-4)


def test_a_checkpoint_without_the_samplers_file_is_read(make, tmp_path):
    make(numbered(3)).dumps(tmp_path)
    (tmp_path / "sampler.json").unlink()
    other = make(numbered(3))
    other.loads(tmp_path)
    assert other._sampler.max_priority is None


def test_the_page_does_what_it_says(capsys):
    page = (Path(__file__).parents[3] / "docs" / "replay_client.md").read_text(encoding="utf-8")
    [snippet] = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "SwitchReplayBuffer" in block]
    with UdpModel(config(capacity=1 << 11)) as model:
        assert snippet.count("127.0.0.1:27000") == 1
        exec(snippet.replace("127.0.0.1:27000", model.address(0)), {})
        assert capsys.readouterr().out.split() == ["1000", "64", "0"]
        until(lambda: not any(place.open for place in model.switch.service.sessions), 60)


def test_the_plain_package_imports_no_torch():
    code = "import sys, iswitch, iswitch.replay; sys.exit('torch' in sys.modules or 'tensordict' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code]).returncode


# What is not possible says so


def test_what_the_service_cannot_do_says_so(make):
    buffer = make(numbered(1))
    buffer.extend(numbered(4))
    refused = {
        buffer.empty: "cannot remove items",
        partial(buffer.__getitem__, 0): "read by sampling",
        partial(buffer.storage.set, 0, None): "never changes",
        buffer.state_dict: "dumps",
    }
    for call, message in refused.items():
        with pytest.raises(NotImplementedError, match=message):
            call()
    with pytest.raises(TypeError, match="each process"):
        pickle.dumps(buffer)


def test_examples_wrong(make):
    import torch
    from tensordict import TensorDict

    one = lambda **leaves: TensorDict(leaves)
    for example, options, error, message in [
        (3, {}, TypeError, "must be a tensordict"),
        (one(), {}, ValueError, "at least one key"),
        (one(index=torch.zeros(())), {}, ValueError, "must not have a key 'index'"),
        (one(name="text"), {}, TypeError, "must be a tensor"),
        (one(a=torch.zeros(2, 3)), {"stacked": ["b"]}, ValueError, "stacked must name"),
        (one(a=torch.zeros(2)), {"prefetch": 2}, ValueError, "prefetch needs a batch_size"),
        (one(a=torch.zeros(2)), {"prefetch": 2, "batch_size": 4, "sampler": "fifo"}, ValueError, "not read ahead"),
        (
            one(a=torch.zeros(2)),
            {"sampler": "slice"},
            ValueError,
            "sampler must be one of 'prioritized', 'uniform', 'fifo'",
        ),
        (one(a=torch.zeros(2)), {"alpha": -1.0}, ValueError, "alpha must be at least 0"),
        (one(a=torch.zeros(2)), {"beta": float("nan")}, ValueError, "beta must be at least 0"),
    ]:
        with pytest.raises(error, match=message):
            make(example, **options)


def test_transitions_wrong(make, network):
    import torch

    buffer = make(numbered(1))
    for data, error, message in [
        (numbered(2).exclude("turn"), ValueError, "turn is missing"),
        (numbered(2, extra=torch.zeros(2)), ValueError, "extra is unknown"),
        ([numbered(1)], ValueError, "holds tensordicts"),
        (numbered(2, turn=torch.rand(2)), TypeError, "turn must be int64"),
        (numbered(2, turn=torch.rand(2, dtype=torch.bfloat16)), TypeError, "turn"),
        (numbered(2, td_error=torch.tensor([1.0, -1.0])), ValueError, "at least 0"),
    ]:
        with pytest.raises(error, match=message):
            buffer.extend(data)
    with pytest.raises(ValueError, match="3 priorities and 2 indices"):
        buffer.update_priority(torch.tensor([64, 65]), torch.ones(3))
    assert len(buffer) == 0
