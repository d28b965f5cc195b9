"""Collectives on tensors whose elements lie apart, or share their memory. Ranks are threads over the golden switch."""

import itertools

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import distributed_c10d as c10d

from iswitch.torch.layout import require_own_memory
from sim.bench.udp_model import UdpModel
from tests.host.pytorch.test_process_group import SIZE, SMALL, groups, waiting


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=3))
def test_a_tensor_is_refused_exactly_if_two_elements_have_one_place(axes):
    shape, strides = [size for size, _ in axes], [stride for _, stride in axes]
    tensor = torch.zeros(100).as_strided(shape, strides)
    places = [
        sum(index * stride for index, stride in zip(indices, strides, strict=True))
        for indices in itertools.product(*map(range, shape))
    ]
    if len(set(places)) < len(places):
        with pytest.raises(ValueError, match=r"share their memory .* pass `tensor.contiguous\(\)`"):
            require_own_memory([[tensor]])
    else:
        require_own_memory([[tensor]])


def expanded(value):
    return torch.tensor([value]).expand(4)


def test_what_cannot_hold_a_result_is_refused_before_anything_is_sent():
    """Otherwise torch refuses it after the sum, when the other ranks have theirs."""

    def body(rank, group, gloo):
        reducer_sum = group._reducer.sum
        group._reducer.sum = lambda values: pytest.fail("something was sent")
        bad, good = expanded(1.0), [torch.zeros(4) for _ in range(SIZE)]
        other = (rank + 1) % SIZE
        for call in (
            lambda: group.allreduce([bad], waiting(dist.AllreduceOptions)),
            lambda: group.allreduce([bad], waiting(dist.AllreduceOptions, dist.ReduceOp.MAX, asynchronous=True)),
            lambda: group.reduce([bad], waiting(dist.ReduceOptions, dist.ReduceOp.SUM, root=rank)),
            lambda: group.broadcast([bad], waiting(dist.BroadcastOptions, root=other)),
            lambda: group.allgather([[*good[1:], bad]], [good[0]], waiting(c10d.AllgatherOptions)),
            lambda: group.gather([[*good[1:], bad]], [good[0]], waiting(dist.GatherOptions, root=rank)),
            lambda: group.scatter([bad], [], waiting(dist.ScatterOptions, root=other)),
            lambda: group.reduce_scatter([bad], [good], waiting(dist.ReduceScatterOptions, dist.ReduceOp.SUM)),
        ):
            with pytest.raises(ValueError, match=r"of shape \(4,\) share their memory"):
                call().wait()
        group._reducer.sum = reducer_sum
        group.allreduce(good, waiting(dist.AllreduceOptions)).wait()
        return True

    with UdpModel(SMALL) as model:
        assert all(groups(model, body))


def test_what_is_only_read_may_share_its_memory():
    def body(rank, group, gloo):
        mine, everyone = expanded(float(rank)), [[float(other)] * 4 for other in range(SIZE)]
        copied = mine if rank == 1 else torch.zeros(4)
        group.broadcast([copied], waiting(dist.BroadcastOptions, root=1)).wait()
        assert copied.tolist() == everyone[1]
        total = mine.clone() if rank == 1 else mine
        group.reduce([total], waiting(dist.ReduceOptions, dist.ReduceOp.SUM, root=1)).wait()
        assert total.tolist() == ([3.0] * 4 if rank == 1 else everyone[rank])
        parts = [torch.zeros(4) for _ in range(SIZE)]
        group.allgather([parts], [mine], waiting(c10d.AllgatherOptions)).wait()
        assert [part.tolist() for part in parts] == everyone
        part = torch.zeros(4)
        group.scatter([part], [[mine] * SIZE] if rank == 2 else [], waiting(dist.ScatterOptions, root=2)).wait()
        assert part.tolist() == everyone[2]
        options = waiting(dist.ReduceScatterOptions, dist.ReduceOp.SUM)
        group.reduce_scatter([part], [[mine] * SIZE], options).wait()
        assert part.tolist() == [3.0] * 4
        return True

    with UdpModel(SMALL) as model:
        assert all(groups(model, body))


VIEWS = {
    "every other column": lambda whole: whole[:, ::2],
    "transposed": lambda whole: whole.T,
    "channels last": lambda whole: whole.reshape(1, 2, 2, 3).contiguous(memory_format=torch.channels_last),
    "one element": lambda whole: whole[1, 1],
    "no element": lambda whole: whole[:, :0].T,
}


@pytest.mark.filterwarnings("ignore:gloo does")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["switch", "gloo for the switch"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_receives_the_sum_and_nothing_else_changes(view, dtype):
    """gloo by itself sums the first elements in memory, whatever the strides are."""

    def body(rank, group, gloo):
        whole = torch.arange(12, dtype=dtype).reshape(3, 4) * (rank + 1)
        tensor = VIEWS[view](whole)
        wanted, inside = (tensor.clone() * (6 / (rank + 1))).tolist(), VIEWS[view](torch.arange(12).reshape(3, 4))
        outside = sorted(set(range(12)) - set(inside.flatten().tolist()))
        before = whole.flatten()[outside].tolist()
        group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
        assert tensor.tolist() == wanted
        assert whole.flatten()[outside].tolist() == before
        return True

    with UdpModel(SMALL) as model:
        assert all(groups(model, body, fallback="gloo"))


@pytest.mark.filterwarnings("ignore:gloo does")
def test_a_sparse_tensor_receives_the_sum_of_gloo():
    def body(rank, group, gloo):
        summed, reduced, oracle = (torch.diag((torch.arange(SIZE) <= rank).float()).to_sparse() for _ in range(3))
        group.allreduce([summed], waiting(dist.AllreduceOptions)).wait()
        group.reduce([reduced], waiting(dist.ReduceOptions, dist.ReduceOp.SUM, root=1)).wait()
        gloo.allreduce([oracle]).wait()
        assert torch.equal(summed.to_dense(), oracle.to_dense())
        assert torch.equal(reduced.to_dense(), oracle.to_dense()) == (rank == 1)
        return summed.to_dense().diag().tolist()

    with UdpModel(SMALL) as model:
        assert groups(model, body, fallback="gloo") == [[3.0, 2.0, 1.0]] * SIZE
