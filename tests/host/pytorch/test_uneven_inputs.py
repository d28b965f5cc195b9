"""`DistributedDataParallel.join` over the backend, against gloo in the same processes."""

from sim.bench.udp_model import UdpModel
from tests.host.pytorch.test_page import run

SCRIPT = """
import faulthandler

import iswitch.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

faulthandler.dump_traceback_later(100, exit=True)  # so that no rank stays if they wait for ever
dist.init_process_group("cpu:iswitch")
oracle = dist.new_group(backend="gloo")
rank = dist.get_rank()


def weights(group, by_all):
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(5, 5, bias=False), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with model.join(divide_by_initial_world_size=by_all):
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            model(torch.full((1, 5), 1.0 + rank + step)).sum().backward()
            optimizer.step()
    return model.module.weight.detach().clone()


left, right = (weights(dist.group.WORLD, by_all) for by_all in (False, True))
same = torch.equal(left, weights(oracle, False)) and torch.equal(right, weights(oracle, True))
print(rank, f"same:{same},ways-differ:{not torch.equal(left, right)}")
dist.destroy_process_group()
"""


def test_uneven_inputs_end_with_the_weights_of_gloo_by_either_way_of_dividing(tmp_path):
    with UdpModel() as model:
        ranks = run(SCRIPT, tmp_path, model)
    assert ranks == dict.fromkeys(("0", "1"), "same:True,ways-differ:True")
