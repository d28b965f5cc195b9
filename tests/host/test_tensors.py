"""Collectives of a worker on tensors and lists, with numpy as the oracle."""

import numpy as np
import pytest
import torch

from iswitch import TaintedError, Worker
from iswitch.config import Config
from sim.bench.udp_model import Faults, UdpModel
from tests.host.test_async_op import together

SMALL = Config(ports=4, window=4, elements=16, members=8)
SHAPES = [(3,), (), (0,), (4, 4), (16,), (17, 5), (1,)]


@pytest.fixture(params=[Faults(), Faults(loss=0.05, duplication=0.05, reordering=0.05)], ids=["sound", "bad network"])
def model(request):
    with UdpModel(SMALL, faults=request.param) as made:
        yield made


def values(rank, index, shape):
    return np.random.default_rng([rank, index]).integers(-99, 99, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["tensor", "parameter", "transposed", "mixed"])
@pytest.mark.parametrize("async_op", [False, True])
def test_a_list_gives_the_sums_of_its_arrays_one_by_one(model, kind, async_op):
    def make(rank, index, shape):
        array = values(rank, index, shape)
        if kind == "mixed" and index % 2:
            return array
        if kind == "transposed" and array.ndim == 2:
            return torch.from_numpy(np.ascontiguousarray(array.T)).T
        return torch.nn.Parameter(torch.from_numpy(array)) if kind == "parameter" else torch.from_numpy(array)

    def body(worker):
        arrays = [make(worker.rank, index, shape) for index, shape in enumerate(SHAPES)]
        for op in ("sum", "mean"):
            done = worker.allreduce(arrays, op, async_op=async_op)
            assert (done.result(timeout=30) if async_op else done).complete
        assert worker.allreduce([]).complete
        return [array.detach().numpy() if isinstance(array, torch.Tensor) else array for array in arrays]

    for arrays in together(model, 3, body):
        for index, (shape, array) in enumerate(zip(SHAPES, arrays, strict=True)):
            # the mean of three equal sums is that sum
            np.testing.assert_array_equal(array, sum(values(rank, index, shape) for rank in range(3)))


def test_a_tensor_is_summed_broadcast_and_synchronized_in_place(model):
    def body(worker):
        tensor = torch.full((5, 7), float(worker.rank + 1), requires_grad=True)
        worker.allreduce(tensor)
        assert tensor.tolist() == [[3.0] * 7] * 5
        numbers = torch.arange(9) * (worker.rank + 1)  # int64: a broadcast copies bytes
        assert worker.broadcast(numbers, root=1) is numbers
        assert numbers.tolist() == [2 * n for n in range(9)]
        state = [torch.full((3,), worker.rank, dtype=torch.float64), np.full(2, worker.rank)]
        assert worker.sync_state(state, 4 + worker.rank) == 5
        assert state[0].tolist() == [1] * 3 and state[1].tolist() == [1] * 2

    together(model, 2, body)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.bool, torch.complex64])
@pytest.mark.parametrize("kind", ["tensor", "transposed", "scalar", "empty"])
def test_a_tensor_of_any_dtype_receives_the_bits_of_another_worker(dtype, kind):
    shape = {"tensor": (5, 7), "transposed": (7, 5), "scalar": (), "empty": (0, 3)}[kind]

    def make(seed):
        element = torch.empty(0, dtype=dtype).element_size()
        size = int(np.prod(shape)) * element
        octets = torch.from_numpy(np.random.default_rng([seed, size]).integers(0, 2, size, np.uint8))
        tensor = (octets.view(dtype) if size else torch.empty(0, dtype=dtype)).reshape(shape)
        return tensor.T if kind == "transposed" else tensor

    def bits(tensor):
        return tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()

    def body(worker):
        first, second, third = make(worker.rank), make(10 + worker.rank), make(20 + worker.rank)
        if dtype.is_floating_point:
            first = torch.nn.Parameter(first)
        assert worker.broadcast(first, root=1) is first
        assert worker.sync_state([second, np.zeros(2)], 4 + worker.rank) == 5
        assert worker.sync_state(third, 5 - worker.rank) == 5
        return bits(first), bits(second), bits(third)

    with UdpModel(SMALL) as model:
        assert together(model, 2, body) == [(bits(make(1)), bits(make(11)), bits(make(20)))] * 2


@pytest.mark.parametrize("tensor", [torch.ones(2, device="meta"), torch.ones(2, dtype=torch.bfloat16).to_sparse()])
def test_a_tensor_whose_memory_is_not_here_is_not_broadcast(tensor):
    with UdpModel(SMALL) as model, Worker(model.address(), world=1) as worker:
        for call in (lambda: worker.broadcast(tensor), lambda: worker.sync_state([tensor], 0)):
            with pytest.raises(TypeError, match=r"must be a numpy\.ndarray"):
                call()


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ([torch.ones(2), torch.ones(2, dtype=torch.int32)], TypeError, "one dtype"),
        (
            [torch.ones(2), torch.ones(2, dtype=torch.bfloat16)],
            TypeError,
            r"array\[1\] must be a numpy.ndarray, not torch",
        ),
        ([np.ones(2)], TypeError, "must be float32 or int32, not float64"),
        ([np.broadcast_to(np.float32(1), 4)], ValueError, r"array\[0\] must be writeable"),
        ([1.0, 2.0], TypeError, r"array must be a numpy.ndarray, not list: pass `numpy.array\(values"),
        (torch.ones(2, device="meta"), TypeError, "pass a copy"),
        (torch.ones(3).to_sparse(), TypeError, "must be a numpy.ndarray"),
    ],
)
def test_a_value_that_the_switch_cannot_sum_is_refused_and_nothing_is_sent(arrays, error, message):
    def body(worker):
        with pytest.raises(error, match=message):
            worker.allreduce(arrays)
        ones = torch.ones(3)
        worker.allreduce(ones)  # all workers have counted the refused call
        assert ones.tolist() == [2] * 3

    with UdpModel(SMALL) as model:
        together(model, 2, body)


def test_a_tainted_list_has_its_result_in_place():
    def body(worker):
        arrays = [torch.full((16,), float("nan") if worker.rank else 1.0), torch.ones(16)]
        with pytest.raises(TaintedError):
            worker.allreduce(arrays)
        assert arrays[0].tolist() == [1] * 16 and arrays[1].tolist() == [2] * 16

    with UdpModel(SMALL) as model:
        together(model, 2, body)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 63, 64, 65, 1000])
def test_sync_bytes_gives_all_workers_the_bytes_of_the_most_advanced_whatever_their_lengths(model, size):
    def body(worker):
        own = bytes([worker.rank]) * (size if worker.rank == 2 else 7 * worker.rank)
        data, step = worker.sync_bytes(own, 10 + worker.rank % 3)
        again = worker.sync_bytes(data, step)  # equal steps: the lowest rank gives
        ones = np.ones(3, np.float32)
        worker.allreduce(ones)
        assert again == (data, step) and ones.tolist() == [4] * 3
        return data, step

    assert together(model, 4, body) == [(bytes([2]) * size, 12)] * 4
