"""The collectives of the backend against gloo's, over the golden switch. Ranks are threads."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from iswitch import IswitchError
from iswitch.config import Config
from iswitch.torch import IswitchProcessGroup, Options, UnsupportedError, fallback, process_group
from sim.bench.udp_model import Faults, UdpModel
from tests.host.pytorch.ranks import TIMEOUT, run_ranks

SMALL = Config(ports=4, window=4, elements=16, members=8, jobs=4)
SIZE = 3
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
REFUSED = [torch.float64, torch.bool, torch.complex64]
SHAPES = [(), (0,), (1,), (16,), (17, 3)]


@pytest.fixture(params=[Faults(), Faults(loss=0.05, duplication=0.05, reordering=0.05)], ids=["sound", "bad network"])
def model(request):
    with UdpModel(SMALL, faults=request.param) as made:
        yield made


def groups(model, body, **options):
    """`body(rank, group, gloo)` at each rank, in a thread; the values by rank."""

    def run(rank, store):
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("oracle", store), rank, SIZE, TIMEOUT)
        chosen = Options(address=model.address(rank), **options)
        group = IswitchProcessGroup(dist.PrefixStore("group", store), rank, SIZE, TIMEOUT, chosen, default_group=True)
        try:
            return body(rank, group, gloo)
        finally:
            group.shutdown()

    return run_ranks(SIZE, run)


def given(rank, shape, dtype):
    """A tensor whose elements have sums that no rounding touches, so that gloo's order of additions does not matter."""
    random = np.random.default_rng([rank, len(shape)])
    low = 0 if dtype in (torch.uint8, torch.bool) else -40
    return torch.from_numpy(random.integers(low, 40, shape)).to(dtype)


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def waiting(cls, op=None, *, root=None, asynchronous=False):
    """Options of a collective, as torch.distributed makes them."""
    options = cls()
    options.asyncOp = asynchronous
    if op is not None:
        options.reduceOp = dist.ReduceOp(op)
    if root is not None:
        options.rootRank = root
    return options


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("op", ["SUM", "AVG", "MIN", "MAX"])
def test_all_reduce_gives_the_numbers_of_gloo(model, op, asynchronous):
    cases = [
        (dtype, shape)
        for dtype, shape in itertools.product(FLOATS + INTEGERS + REFUSED, SHAPES)
        if not (op == "AVG" and dtype not in FLOATS)
        and not (op == "SUM" and dtype in REFUSED)
        and dtype not in (torch.int16, torch.complex64)  # gloo has no int16, and complex numbers no order
    ]

    def body(rank, group, gloo):
        mine = [given(rank, shape, dtype) for dtype, shape in cases]
        theirs = [tensor.clone() for tensor in mine]
        reduce_op = getattr(dist.ReduceOp, op)
        works = [
            group.allreduce([tensor], waiting(dist.AllreduceOptions, reduce_op, asynchronous=asynchronous))
            for tensor in mine
        ]
        for work in works:
            work.wait()
            assert work.is_success()
        for (dtype, shape), tensor, oracle in zip(cases, mine, theirs, strict=True):
            if oracle.numel():
                gloo.allreduce([oracle], reduce_op if op != "AVG" else dist.ReduceOp.SUM).wait()
            if op == "AVG":  # gloo has no mean of float16
                oracle = (oracle.float() / SIZE).to(dtype)
            assert same(tensor, oracle), (dtype, shape, tensor, oracle)
        return True

    assert all(groups(model, body))


def test_a_sum_beyond_the_range_of_the_switch_has_the_numbers_of_ieee(model):
    rows = torch.tensor(
        [
            [1e6, np.inf, np.nan, np.inf, 3e38, 1.0, 2.0**-60],
            [2e6, 1.0, 1.0, -np.inf, 3e38, 1.0, 2.0**-60],
            [4e6, 1.0, 1.0, 1.0, -3e38, 1.0, 2.0**-60],
        ]
    )

    def body(rank, group, gloo):
        tensor, transposed = rows[rank].clone(), rows[rank].reshape(7, 1).repeat(1, 2).T
        half = torch.full((3,), 60000.0 if rank == 0 else 1.0, dtype=torch.float16)
        group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
        group.allreduce([transposed], waiting(dist.AllreduceOptions)).wait()
        group.allreduce([half], waiting(dist.AllreduceOptions)).wait()
        return tensor, transposed, half

    for tensor, transposed, half in groups(model, body):
        wanted = rows.double().sum(dim=0).float()
        np.testing.assert_array_equal(tensor, wanted)
        np.testing.assert_array_equal(transposed, np.stack([wanted] * 2))
        assert half.tolist() == [60000.0] * 3  # 60002 rounds to 60000 in float16


def test_a_large_sum_beyond_the_range_is_computed_in_parts(monkeypatch):
    monkeypatch.setattr(process_group, "_GATHER_BYTES_MAX", 4 * SIZE * 7)  # 7 elements of each rank

    def body(rank, group, gloo):
        tensor = torch.arange(50.0) + rank
        tensor[[3, 20, 49]] = torch.tensor([1e6, float("inf"), 2e6])
        group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
        return tensor

    wanted = 3 * torch.arange(50.0) + 3
    wanted[[3, 20, 49]] = torch.tensor([3e6, float("inf"), 6e6])
    with UdpModel(SMALL) as model:
        for tensor in groups(model, body):
            np.testing.assert_array_equal(tensor, wanted)


def test_one_element_may_have_any_stride_and_a_tensor_the_negative_bit():
    def body(rank, group, gloo):
        maximum, copied = (torch.full((100,), float(rank))[::100] for _ in range(2))
        group.allreduce([maximum], waiting(dist.AllreduceOptions, dist.ReduceOp.MAX)).wait()
        group.broadcast([copied], waiting(dist.BroadcastOptions, root=1)).wait()
        negative = torch.full((4,), 1 + 2j).conj().imag
        assert negative.is_neg()
        group.allreduce([negative], waiting(dist.AllreduceOptions)).wait()
        return maximum.tolist(), copied.tolist(), negative.tolist()

    with UdpModel(SMALL) as model:
        assert groups(model, body) == [([SIZE - 1], [1], [-2.0 * SIZE] * 4)] * SIZE


def test_torch_may_leave_out_options():
    """`DistributedDataParallel.join` with unused parameters calls `allreduce(tensor)`; torch.distributed.rpc calls
    `barrier()`."""

    def body(rank, group, gloo):
        one, several, largest = (torch.full((2,), rank + 1.0) for _ in range(3))
        for work in (group.allreduce(one), group.allreduce([several]), group.allreduce(largest, dist.ReduceOp.MAX)):
            work.wait()
        group.barrier().wait()
        return one.tolist(), several.tolist(), largest.tolist()

    with UdpModel(SMALL) as model:
        assert groups(model, body) == [([6.0] * 2, [6.0] * 2, [3.0] * 2)] * SIZE


def test_functional_collectives_find_the_group_by_its_name():
    """DTensor and fully_shard are made of them."""
    functional = torch.ops._c10d_functional

    def body(rank, group, gloo):
        name = f"functional {rank}"  # the ranks are threads here, and names are those of the process
        group._set_group_name(name)
        c10d._register_process_group(name, group)
        try:
            works = [
                functional.all_reduce(torch.full((2,), rank + 1.0), "sum", name),
                functional.all_gather_into_tensor(torch.full((2,), float(rank)), SIZE, name),
                functional.reduce_scatter_tensor(torch.arange(2.0 * SIZE), "sum", SIZE, name),
                *functional.all_gather_into_tensor_coalesced([torch.ones(1), torch.ones(2) * rank], SIZE, name),
                *functional.reduce_scatter_tensor_coalesced([torch.ones(SIZE), torch.ones(SIZE)], "sum", SIZE, name),
            ]
            return [functional.wait_tensor(work).tolist() for work in works]
        finally:
            c10d._unregister_process_group(name)

    with UdpModel(SMALL) as model:
        results = groups(model, body)
    for rank, values in enumerate(results):
        parts = [6.0 * rank, 6.0 * rank + 3]
        assert values == [[6, 6], [0, 0, 1, 1, 2, 2], parts, [1, 1, 1], [0, 0, 1, 1, 2, 2], [3], [3]]


def test_collectives_that_copy_give_the_bits_of_gloo(model):
    dtypes = [torch.float64, torch.int16, torch.bool, torch.bfloat16]

    def body(rank, group, gloo):
        for dtype, shape in itertools.product(dtypes, SHAPES):
            tensor = given(rank, shape, dtype)
            everyone = [given(other, shape, dtype) for other in range(SIZE)]
            parts = [torch.empty(shape, dtype=dtype) for _ in range(SIZE)]
            group.allgather([parts], [tensor], waiting(c10d.AllgatherOptions)).wait()
            assert all(map(same, parts, everyone))
            whole = torch.empty((SIZE, *shape), dtype=dtype)
            group.all_gather_single(whole, tensor, waiting(c10d.AllgatherOptions)).wait()
            assert same(whole, torch.stack(everyone))
            lists = [[torch.empty(shape, dtype=dtype), torch.empty(2)] for _ in range(SIZE)]
            options = waiting(c10d.AllgatherOptions)
            group.allgather_coalesced(lists, [tensor, torch.full((2,), float(rank))], options).wait()
            assert all(same(entry, other) for (entry, _), other in zip(lists, everyone, strict=True))
            assert [second.tolist() for _, second in lists] == [[float(other)] * 2 for other in range(SIZE)]
            for root in (0, SIZE - 1):
                copied = tensor.clone()
                options = waiting(dist.BroadcastOptions, root=root)
                group.broadcast([copied], options).wait()
                assert same(copied, everyone[root])
                options = waiting(dist.GatherOptions, root=root)
                parts = [torch.empty(shape, dtype=dtype) for _ in range(SIZE)]
                group.gather([parts] if rank == root else [], [tensor], options).wait()
                assert rank != root or all(map(same, parts, everyone))
                options = waiting(dist.ScatterOptions, root=root)
                mine = torch.empty(shape, dtype=dtype)
                group.scatter([mine], [everyone] if rank == root else [], options).wait()
                assert same(mine, tensor)
        group.barrier(waiting(dist.BarrierOptions)).wait()
        return True

    assert all(groups(model, body))


def test_reduce_and_reduce_scatter_give_each_rank_its_part(model):
    def body(rank, group, gloo):
        for dtype in (torch.float32, torch.int64):
            lists = [[given(10 * other + part, (4, 3), dtype) for part in range(SIZE)] for other in range(SIZE)]
            sums = [sum(lists[other][part] for other in range(SIZE)) for part in range(SIZE)]
            options = waiting(dist.ReduceScatterOptions, dist.ReduceOp.SUM)
            output = torch.empty(4, 3, dtype=dtype)
            group.reduce_scatter([output], [lists[rank]], options).wait()
            assert same(output, sums[rank])
            output = torch.empty(4, 3, dtype=dtype)
            group.reduce_scatter_single(output, torch.stack(lists[rank]), options).wait()
            assert same(output, sums[rank])
            tensor = lists[rank][0].clone()
            options = waiting(dist.ReduceOptions, dist.ReduceOp.SUM, root=1)
            group.reduce([tensor], options).wait()
            assert same(tensor, sums[0] if rank == 1 else lists[rank][0])
        return True

    assert all(groups(model, body))


def test_what_the_switch_cannot_do_is_refused_by_name_and_nothing_is_sent():
    def body(rank, group, gloo):
        plain = waiting(dist.AllreduceOptions)
        for dtype in REFUSED:
            with pytest.raises(UnsupportedError, match=r"not .*ISWITCH_FALLBACK=gloo"):
                group.allreduce([torch.zeros(3, dtype=dtype)], plain).wait()
        with pytest.raises(UnsupportedError, match=r"not sparse ones: pass `tensor.to_dense\(\)`"):
            group.allreduce([torch.eye(3).to_sparse()], plain).wait()
        for op in ("PRODUCT", "BAND"):
            options = waiting(dist.AllreduceOptions, getattr(dist.ReduceOp, op))
            with pytest.raises(UnsupportedError, match=f"cannot reduce by {op}"):
                group.allreduce([torch.zeros(3, dtype=torch.int32)], options).wait()
        with pytest.raises(UnsupportedError, match="cannot do send"):
            group.send([torch.zeros(3)], 0, 0)
        with pytest.raises(UnsupportedError, match="cannot do recv from any rank"):
            group.recv_anysource([torch.zeros(3)], 0)
        with pytest.raises(UnsupportedError, match="cannot do monitored_barrier"):
            group.monitored_barrier()
        with pytest.raises(UnsupportedError, match="cannot do all_to_all"):
            group.alltoall([torch.zeros(1)] * SIZE, [torch.zeros(1)] * SIZE, waiting(c10d.AllToAllOptions)).wait()
        ones = torch.ones(3)
        group.allreduce([ones], waiting(dist.AllreduceOptions)).wait()
        return ones.tolist()

    with UdpModel(SMALL) as model:
        assert groups(model, body) == [[3.0] * 3] * 3


def test_gloo_does_what_the_switch_cannot_if_asked_and_says_so_once():
    def body(rank, group, gloo):
        for _ in range(2):
            tensor = torch.full((3,), 0.1, dtype=torch.float64)
            group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
        other = torch.tensor([rank + 1])
        options = waiting(dist.AllreduceOptions, dist.ReduceOp.PRODUCT)
        group.allreduce([other], options).wait()
        return tensor.tolist(), other.tolist()

    with UdpModel(SMALL) as model:
        with pytest.warns(UserWarning, match="gloo does all_reduce") as warned:
            results = groups(model, body, fallback="gloo")
        for tensor, other in results:
            np.testing.assert_allclose(tensor, 0.3, rtol=1e-15)
            assert other == [6]
    texts = [str(warning.message) for warning in warned if "gloo does" in str(warning.message)]
    assert len(texts) <= 2 * SIZE


def test_messages_between_ranks_are_those_of_gloo_if_asked():
    def body(rank, group, gloo):
        if rank == 0:
            first, second = torch.zeros(2), torch.zeros(2)
            group.recv([first], 1, 5).wait()
            group.recv_anysource([second], 6).wait()
            received = [first.tolist(), second.tolist()]
        else:
            group.send([torch.full((2,), float(rank))], 0, 4 + rank).wait()
            received = []
        group.monitored_barrier()
        return received

    with UdpModel(SMALL) as model:
        assert groups(model, body, fallback="gloo") == [[[1.0] * 2, [2.0] * 2], [], []]


@pytest.fixture
def alone():
    """The options of a default group of this process alone."""
    with UdpModel(SMALL) as model:
        options = Options(address=model.address(0), switch_timeout_s=7)
        dist.init_process_group("cpu:iswitch", store=dist.HashStore(), rank=0, world_size=1, pg_options=options)
        yield options
        dist.destroy_process_group()


def test_a_new_group_has_the_options_of_the_default_group_unless_it_is_given_others(alone):
    others = Options(address=alone.address, switch_timeout_s=8)
    made = [dist.group.WORLD, dist.new_group(), dist.new_group(pg_options=others)]
    tensors = [torch.tensor([2.5, 1e9]) for _ in made]
    for group, tensor in zip(made, tensors, strict=True):
        dist.all_reduce(tensor, group=group)
    assert [group._options for group in made] == [alone, alone, others]
    assert [tensor.tolist() for tensor in tensors] == [[2.5, 1e9]] * 3


def test_a_collective_is_an_event_of_a_profiler_from_its_call_to_its_end(alone):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(2), async_op=True).wait()
        dist.broadcast(torch.ones(2), 0)
    found = {event.name: event.is_async for event in profile.events() if event.name.startswith("iswitch:")}
    assert found == {"iswitch:all_reduce": True, "iswitch:broadcast": False}


def test_a_compiled_model_trains_as_one_that_is_not(alone):
    """The compiler sees collectives in Python, and would trace them."""

    def trained(compiled):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
        called = torch.compile(model, backend="aot_eager") if compiled else model
        for _ in range(2):
            called(torch.randn(3, 4)).square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    @torch.compile(backend="aot_eager", fullgraph=True)
    def doubled_sum(tensor):
        tensor = tensor * 2
        dist.all_reduce(tensor)
        return tensor + 1

    assert all(map(torch.equal, trained(True), trained(False)))
    assert doubled_sum(torch.ones(2)).tolist() == [3.0, 3.0]


def test_other_groups_take_free_jobs():
    def body(rank, store):
        made = []
        for name in ("first", "second"):
            group = IswitchProcessGroup(
                dist.PrefixStore(name, store),
                rank,
                2,
                TIMEOUT,
                Options(address=model.address(rank)),
                default_group=False,
            )
            made.append(group)
        tensors = [torch.full((20,), float(index)) for index in range(2)]
        for tensor, group in zip(tensors, made, strict=True):
            group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
        jobs = [group._job.number for group in made]
        for group in made:
            group.shutdown()
        return jobs, [tensor[0].item() for tensor in tensors]

    with UdpModel(SMALL) as model:
        [(jobs, sums), others] = run_ranks(2, body)
    assert (jobs, sums) == others and len(set(jobs)) == 2 and sums == [0, 2]


def test_several_groups_are_used_from_several_threads_at_once():
    def use(group, name, rank):
        sums = []
        for step in range(12):
            tensor = torch.full((1 + 40 * (step % 3),), float(rank + 10 * name + step))
            group.allreduce([tensor], waiting(dist.AllreduceOptions, asynchronous=step % 2 == 0)).wait()
            copied = torch.tensor([rank])
            group.broadcast([copied], waiting(dist.BroadcastOptions, root=step % 2)).wait()
            sums.append((tensor.unique().tolist(), copied.item()))
        return sums

    def body(rank, store):
        options = Options(address=model.address(rank))
        made = [
            IswitchProcessGroup(dist.PrefixStore(f"{name}", store), rank, 2, TIMEOUT, options, default_group=False)
            for name in range(3)
        ]
        with ThreadPoolExecutor(3) as threads:
            results = list(threads.map(lambda name: use(made[name], name, rank), range(3)))
        for group in made:
            group.shutdown()
        return results

    with UdpModel(SMALL) as model:
        for results in run_ranks(2, body):
            for name, sums in enumerate(results):
                assert sums == [([1.0 + 20 * name + 2 * step], step % 2) for step in range(12)]


@pytest.mark.filterwarnings("ignore::iswitch.torch.fallback.FallbackWarning")
def test_a_switch_that_stands_still_beyond_its_limit_and_goes_on_changes_no_sum(monkeypatch):
    """It does with old frames what it would have done before, as a process after SIGSTOP and SIGCONT."""
    monkeypatch.setattr(fallback, "_CHECK_S", 0.05)

    def stand_still(group, stands):
        with model.lock:
            stands.set()
            while group._reducer.uses_switch:
                time.sleep(0.01)

    def body(rank, group, gloo):
        left = False
        for step in range(10_000):
            if rank == step == 2:
                stands = threading.Event()
                threading.Thread(target=stand_still, args=(group, stands)).start()
                assert stands.wait(20)
            tensor = torch.full((50,), float(rank + step))
            group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
            assert (tensor == 3 + 3 * step).all()
            left |= not group._reducer.uses_switch
            if left and group._reducer.uses_switch:
                return step
        raise AssertionError("the ranks do not return to the switch")

    with UdpModel(SMALL) as model:
        first, *others = groups(model, body, fallback="gloo", switch_timeout_s=0.3)
    assert others == [first] * 2


def test_all_ranks_of_a_group_learn_that_the_switch_has_no_free_job():
    def body(rank, store):
        first = Options(address=model.address(rank), job=0)
        group = IswitchProcessGroup(dist.PrefixStore("only", store), rank, 2, TIMEOUT, first, default_group=True)
        second = IswitchProcessGroup(dist.PrefixStore("second", store), rank, 2, TIMEOUT, first, default_group=False)
        with pytest.raises(IswitchError, match=r"all 2 jobs of the switch .* are in use: destroy groups"):
            IswitchProcessGroup(dist.PrefixStore("more", store), rank, 2, TIMEOUT, first, default_group=False)
        second.shutdown()
        group.shutdown()
        return True

    with UdpModel(Config(ports=4, window=4, elements=16, members=8, jobs=2)) as model:
        assert run_ranks(2, body) == [True, True]


@pytest.mark.parametrize("fallback", [None, "gloo"])
@pytest.mark.parametrize("first", [0, 1])
def test_groups_follow_each_other_in_one_store(fallback, first):
    """As with torchrun, whose store outlives a group. Either rank comes first."""

    def body(rank, store):
        sums = []
        for made in range(3):
            if made and rank != first:
                assert entered[made].wait(20)
                time.sleep(0.2)  # the other rank has time to read what an earlier group left; the law holds without
            options = Options(address=model.address(rank), fallback=fallback, join_timeout_s=10.0)
            entered[made].set()
            group = IswitchProcessGroup(store, rank, 2, TIMEOUT, options, default_group=True)
            tensor = torch.full((20,), made + rank)
            group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
            sums.append(tensor[0].item())
            store.set("fallback/left/0", "as after a switch that failed")
            group.shutdown()
        return sums

    entered = [threading.Event() for _ in range(3)]
    with UdpModel(SMALL) as model:
        assert run_ranks(2, body) == [[1, 3, 5]] * 2


@pytest.mark.parametrize("fallback", [None, "gloo"])
def test_abort_waits_for_no_other_rank(fallback):
    aborted = threading.Event()

    def body(rank, group, gloo):
        tensor = torch.ones(20)
        group.allreduce([tensor], waiting(dist.AllreduceOptions)).wait()
        if rank == 0:
            group.abort()
            aborted.set()
        else:
            assert aborted.wait(20)
            group.abort()
        return tensor[0].item()

    with UdpModel(SMALL) as model:
        assert groups(model, body, fallback=fallback) == [SIZE] * SIZE


def test_after_ranks_have_called_different_collectives_the_group_says_so():
    def body(rank, group, gloo):
        errors = []
        for size in (4 + rank, 3):
            with pytest.raises(IswitchError) as found:
                group.allreduce([torch.ones(size)], waiting(dist.AllreduceOptions)).wait()
            errors.append(str(found.value))
        return errors

    with UdpModel(SMALL) as model:
        results = groups(model, body)
    assert any("do not call the same collective" in first for first, _ in results)
    for first, second in results:
        assert second == first or "cannot call a collective, because an earlier one failed. Make a new group" in second
        assert "`rejoin`" not in first + second


def test_all_ranks_learn_that_the_switch_cannot_say_how_many_jobs_are_free(monkeypatch):
    def refuse(control):
        raise IswitchError("another version")

    def body(rank, store):
        with pytest.raises(IswitchError, match="another version"):
            IswitchProcessGroup(store, rank, 2, TIMEOUT, Options(address="127.0.0.1:9"), default_group=False)

    monkeypatch.setattr("iswitch.torch.group_job.Control.switch_info", refuse)
    run_ranks(2, body)
