"""Sums over gloo have the bits of the switch's sums."""

import threading
import weakref

import numpy as np
import pytest
import torch.distributed as dist

from iswitch import MissingWarning, SwitchUnreachableError, Worker
from iswitch.config import Config
from iswitch.torch.reducer import GlooReducer, SwitchReducer, WorkersMissingError
from sim.bench.udp_model import UdpModel
from tests.host.pytorch.ranks import TIMEOUT, run_ranks

SMALL = Config(ports=4, window=4, elements=16, members=8)


def vectors(size, kind):
    """A vector for each of three ranks."""
    random = np.random.default_rng([size, len(kind)])
    if kind == "int32":
        return random.integers(-(2**31), 2**31, (3, size)).astype(np.int32)
    floats = (random.standard_normal((3, size)) * 2.0 ** random.integers(-60, 13, (3, size))).astype(np.float32)
    if kind == "ties":  # sums half way between two float32 numbers
        floats = np.repeat([[1.0], [2.0**-24], [0]], size, axis=1).astype(np.float32)
    if kind in ("NaN", "infinity", "large") and size:
        floats[1, -1] = {"NaN": np.nan, "infinity": -np.inf, "large": 16384}[kind]
    if kind == "all" and size:
        floats[:, 0] = np.nan
    return floats


@pytest.mark.parametrize("kind", ["float32", "int32", "ties", "NaN", "infinity", "large", "all"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 200])
def test_gloo_and_the_switch_give_the_same_bits_and_leave_a_vector_beyond_the_range_as_it_was(kind, size):
    given = vectors(size, kind)

    def body(rank, store):
        gloo = GlooReducer.open(dist.PrefixStore("gloo", store), rank, 3, TIMEOUT, 44)
        results = []
        with Worker(model.address(rank), rank=rank, world=3, on_taint="ignore") as worker:
            for reducer in (SwitchReducer(worker), gloo):
                values = given[rank].copy()
                results.append((reducer.sum(values), values.tobytes()))
        return results

    with UdpModel(SMALL) as model:
        outcomes = run_ranks(3, body)
    tainted = kind not in ("float32", "int32", "ties")
    for rank, (switch, gloo) in enumerate(outcomes):
        assert switch == gloo
        assert switch == ((True, given[rank].tobytes()) if tainted else (False, outcomes[0][0][1]))
    if kind == "int32":
        assert outcomes[0][0][1] == given.astype(np.int64).sum(axis=0).astype(np.int32).tobytes()


def test_a_sum_that_lacks_a_rank_is_one_error_and_leaves_the_vector_as_it_was(recwarn):
    def body(rank, store):
        with Worker(model.address(rank), rank=rank, world=2, on_taint="ignore", evict_s=0.2) as worker:
            worker.barrier()
            if rank == 1:
                return
            reducer, values = SwitchReducer(worker), np.ones(40, np.float32)
            with pytest.raises(WorkersMissingError, match="lacks rank 1: the process has died"):
                reducer.sum(values)
            assert (values == 1).all()

    with UdpModel(SMALL) as model:
        run_ranks(2, body)
    assert not [warning for warning in recwarn if issubclass(warning.category, MissingWarning)]


@pytest.mark.parametrize("remedy", ["", "Start the script again"])
def test_an_error_that_advises_to_rejoin_says_what_a_process_group_does_instead(remedy):
    with UdpModel(SMALL) as model:
        worker = Worker(model.address(0), rank=0, world=1, key=1, on_taint="ignore", switch_timeout_s=0.5)
    reducer, values = SwitchReducer(worker, remedy), np.ones(40, np.float32)  # the switch has gone
    with pytest.raises(SwitchUnreachableError, match="`rejoin") as error:
        reducer.sum(values)
    assert str(error.value).endswith(f". {remedy}" if remedy else "then call `sync_state`")
    assert (values == 1).all()
    worker.close()


def test_no_thread_of_gloo_frees_a_tensor_of_python():
    """While the interpreter ends, such a thread would abort the process. Without care it frees one tensor in seven."""
    freed_by, ours = [], [threading.get_ident()]

    class Watched:
        def __init__(self, gloo):
            self.gloo = gloo

        def allreduce(self, tensors, operation):
            weakref.finalize(tensors[0], lambda: freed_by.append(threading.get_ident()))
            return self.gloo.allreduce(tensors, operation)

    def body(rank, store):
        ours.append(threading.get_ident())
        gloo = GlooReducer.open(dist.PrefixStore("gloo", store), rank, 2, TIMEOUT, 44)
        gloo._gloo = Watched(gloo._gloo)
        for number in range(300):
            gloo.sum(np.ones(4 + number % 3, np.float32))

    run_ranks(2, body)
    assert freed_by and set(freed_by) <= set(ours)
