"""Every public name of TorchRL's replay buffer: what works does what TorchRL's own buffer does, run side by side, and
what does not says so. The table in docs/replay_client.md names each of them."""

import re
import warnings
from functools import partial
from pathlib import Path

import pytest

from iswitch.config import Config, Replay
from sim.bench.pinned import needed
from sim.bench.replay_network import Network

CAPACITY = 64
PAGE = Path(__file__).parents[3] / "docs" / "replay_client.md"


@pytest.fixture(scope="module", autouse=True)
def _torchrl():
    needed("torchrl")


def rows(count=20):
    import torch
    from tensordict import TensorDict

    return TensorDict({"turn": torch.arange(count), ("next", "obs"): torch.rand(count, 3)}, batch_size=[count])


def ours(**options):
    from iswitch.replay.torchrl import SwitchReplayBuffer

    config = Config(ports=2, members=2, replay=Replay(capacity=CAPACITY, sessions=2, log_bytes=4096))
    return SwitchReplayBuffer(Network(config).transport(), rows(1), keepalive=False, batch_size=8, **options)


def theirs(**options):
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    options.pop("sampler", None)
    return TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=8, **options)


def filled(make, **options):
    buffer = make(**options)
    buffer.extend(rows())
    return buffer


def about(batch):
    """Shapes and types of a batch of TorchRL's keys, and whether its items are those that were added."""
    turns = set(batch["turn"].flatten().tolist())
    leaves = batch.select("turn", ("next", "obs"), "index")
    kinds = {str(k): (tuple(v.shape), str(v.dtype)) for k, v in leaves.items(True, True)}
    return kinds, turns <= set(range(20))


# What works: each function returns something that is equal for both buffers


def add(make):
    buffer = filled(make)
    first = int(buffer.add(rows()[0]))
    return int(buffer.add(rows()[0])) - first, len(buffer)


def extend(make):
    buffer = make()
    index = buffer.extend(rows())
    return tuple(index.shape), str(index.dtype), (index - index[0]).tolist(), len(buffer)


def length(make):
    buffer = make()
    empty = len(buffer)
    for _ in range(5):
        buffer.extend(rows())
    return empty, len(buffer)


def sample(make):
    buffer = filled(make)
    batch, info = buffer.sample(8, return_info=True)
    return about(buffer.sample()), about(batch), "index" in info


def iterate(make):
    """In the order of adding, items are read once: 20 of them are two batches of 8."""
    return [about(batch) for _, batch in zip(range(2), filled(make))]


def following(make):
    buffer = filled(make)
    return about(buffer.next()), about(buffer.next())


def can_sample(make):
    empty, full = make(), filled(make)
    return empty.can_sample(), full.can_sample(), full.can_sample(15)


def transforms(make):
    from torchrl.envs.transforms import UnaryTransform

    buffer = filled(make)
    buffer.append_transform(UnaryTransform(["first"], ["second"], fn=lambda first: 2 * first))
    buffer.insert_transform(0, UnaryTransform(["turn"], ["first"], fn=lambda turn: turn + 1))
    batch = buffer.sample()
    return (batch["second"] == 2 * (batch["turn"] + 1)).all().item(), len(buffer.transform)


def checkpoint(make, folder, write, read):
    before, after = filled(make), make()
    getattr(before, write)(folder)
    getattr(after, read)(folder)
    return len(after), about(after.sample())


def set_rng(make):
    import torch

    buffer, turns = filled(make), []
    for _ in range(2):
        buffer.set_rng(torch.Generator().manual_seed(3))
        turns.append([buffer.sample()["turn"].tolist() for _ in range(3)])
    return turns[0] == turns[1], turns[0][0] != turns[0][1]


def stats(make):
    buffer = filled(make)
    return buffer.stats(), buffer.write_count, buffer.is_alive, buffer.initialized, buffer.service_backend


def settings(make):
    buffer = make()
    return buffer.batch_size, buffer.dim_extend, buffer.start() is buffer, buffer.share(False) is buffer


def parts(make):
    from torchrl.data.replay_buffers import Sampler, Storage, Writer

    buffer = make()
    kinds = (buffer.storage, Storage), (buffer.sampler, Sampler), (buffer.writer, Writer)
    return [isinstance(part, kind) for part, kind in kinds], buffer.storage.max_size


def priorities(make):
    """TorchRL's buffer without a prioritized sampler ignores them; what ours does is tested in test_torchrl.py."""
    buffer = filled(make)
    batch = buffer.sample()
    batch["td_error"] = batch["next", "obs"][:, 0]
    buffer.update_tensordict_priority(batch)
    buffer.update_priority(batch["index"], 1.0)
    buffer.mark_update(batch["index"])
    return about(buffer.sample())


def end(make):
    buffer = filled(make)
    buffer.synchronize()
    buffer.shutdown()


WORKS = {
    "add": add,
    "extend": extend,
    "__len__": length,
    "sample": sample,
    "__iter__": iterate,
    "next": following,
    "can_sample": can_sample,
    "append_transform, insert_transform, transform": transforms,
    "set_rng": set_rng,
    "stats, write_count, is_alive, initialized, service_backend": stats,
    "batch_size, dim_extend, start": settings,
    "storage, sampler, writer": parts,
    "update_priority, update_tensordict_priority, mark_update": priorities,
    "synchronize, shutdown": end,
}
FILES = {"dumps, loads": ("dumps", "loads"), "dump, load": ("dump", "load"), "save": ("save", "load")}
OURS = {"client": "is the `ReplayClient`"}
REFUSED = {
    "__getitem__": lambda buffer: buffer[0],
    "__setitem__": lambda buffer: buffer.__setitem__(0, rows()[0]),
    "__getstate__": lambda buffer: buffer.__getstate__(),
    "as_remote": lambda buffer: type(buffer).as_remote(),
    "empty": lambda buffer: buffer.empty(),
    "load_state_dict": lambda buffer: buffer.load_state_dict({}),
    "query": lambda buffer: buffer.query(),
    "read_all_in_order": lambda buffer: buffer.read_all_in_order(),
    "register_load_hook": lambda buffer: buffer.register_load_hook(print),
    "register_save_hook": lambda buffer: buffer.register_save_hook(print),
    "set_": lambda buffer: buffer.set_("turn", rows()["turn"]),
    "set_at_": lambda buffer: buffer.set_at_("turn", 1, 0),
    "set_sampler": lambda buffer: buffer.set_sampler(buffer.sampler),
    "set_storage": lambda buffer: buffer.set_storage(buffer.storage),
    "set_writer": lambda buffer: buffer.set_writer(buffer.writer),
    "share": lambda buffer: buffer.share(),
    "state_dict": lambda buffer: buffer.state_dict(),
    "submit_update_if_present": lambda buffer: buffer.submit_update_if_present(index=None, generation=None, patch={}),
    "update_": lambda buffer: buffer.update_({"turn": rows()["turn"]}),
    "update_if_present": lambda buffer: buffer.update_if_present(index=None, generation=None, patch={}),
    "write_all": lambda buffer: buffer.write_all(rows()),
}


def checked():
    return {name for names in [*WORKS, *FILES, *OURS, *REFUSED] for name in names.split(", ")}


@pytest.mark.parametrize(
    "sampler, names",
    [("uniform", names) for names in WORKS] + [("fifo", names) for names in WORKS if names != "set_rng"],
)
def test_what_works_does_what_torchrls_own_buffer_does(sampler, names):
    """Nothing is random in the order of adding, so `set_rng` has no case there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchRL warns of batch sizes that differ
        assert WORKS[names](partial(_more, sampler)) == WORKS[names](theirs)


def _more(sampler, **options):
    return ours(sampler=sampler, **options)


@pytest.mark.parametrize("names", FILES)
def test_a_checkpoint_is_written_and_read_as_by_torchrls_own_buffer(names, tmp_path):
    got, expected = (checkpoint(make, tmp_path / make.__name__, *FILES[names]) for make in (ours, theirs))
    assert got == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_work_says_so(name):
    with pytest.raises((NotImplementedError, TypeError), match=r"[sS]witch"):
        REFUSED[name](filled(ours))


def test_every_public_name_is_checked_and_named_on_the_page():
    """If TorchRL gets another name, this fails."""
    from torchrl.data import TensorDictReplayBuffer

    special = {name for name in ("__len__", "__iter__", "__getitem__", "__setitem__", "__getstate__")}
    public = {name for name in dir(TensorDictReplayBuffer) if not name.startswith("_")} | special
    assert public == checked()
    [section] = re.findall(r"## As a replay buffer of TorchRL\n(.*?)\n## ", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    named = set(re.findall(r"`(\w+)`", section))
    assert public - named == set()
