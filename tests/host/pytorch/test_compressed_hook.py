"""DistributedDataParallel with gradients of two bytes: the same weights at every rank, in every run, under loss."""

from types import SimpleNamespace

import pytest
import torch

from iswitch.config import Config
from iswitch.torch import compressed_hook
from sim.bench.udp_model import Faults, UdpModel
from tests.host.pytorch.test_page import run

SCRIPT = """
import hashlib, os, torch, iswitch, iswitch.torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(9, 31), torch.nn.Tanh(), torch.nn.Linear(31, 1)))
with iswitch.init() as worker:
    given, allreduce = [], worker.allreduce

    def recording(host, *arguments, **named):
        if not named.get("async_op"):  # the queue's thread makes the call
            return allreduce(host, *arguments, **named)
        before, done = host.clone(), allreduce(host, *arguments, **named)
        done.add_done_callback(lambda _: given.append((before, host.clone())))
        return done

    worker.allreduce = recording
    model.register_comm_hook(worker, iswitch.torch.compressed_hook("bf16"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + worker.rank)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(32, 9)).square().mean().backward()
        optimizer.step()
    assert len(given) == 8
    for before, mean in given:
        all_ranks = [torch.empty_like(before) for _ in range(worker.world)]
        dist.all_gather(all_ranks, before)
        total = sum(one.bfloat16().double() for one in all_ranks)  # exact: few bits apart
        assert torch.equal(mean, total.bfloat16().float() / worker.world)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    print(worker.rank, hashlib.sha256(weights.tobytes()).hexdigest())
dist.destroy_process_group()
"""


def test_all_ranks_have_the_same_weights_in_every_run_and_under_loss(tmp_path):
    weights = set()
    for name, faults in (("sound", Faults()), ("bad", Faults(loss=0.05, duplication=0.05, reordering=0.05))):
        (tmp_path / name).mkdir()
        with UdpModel(Config(half_width=True), faults=faults) as model:
            ranks = run(SCRIPT, tmp_path / name, model, ISWITCH_FORMAT="bf16", ISWITCH_KEY="7")
        assert sorted(ranks) == ["0", "1"]
        weights.update(ranks.values())
    assert len(weights) == 1


def test_compress_wrong():
    worker = SimpleNamespace(format="window64", allreduce=lambda *_, **__: pytest.fail("something was sent"))
    bucket = SimpleNamespace(buffer=lambda: torch.ones(3))
    with pytest.raises(ValueError, match=r"make it with `iswitch.init\(format='bf16'\)`"):
        compressed_hook("bf16")(worker, bucket)
