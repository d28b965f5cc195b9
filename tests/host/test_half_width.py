"""Jobs of a half-width format: sums over the software switch, beside exact fractions that MPFR rounds."""

import threading
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from iswitch import AsyncWorker, IswitchError, MissingWarning, RefusedError, TaintedError, Worker
from iswitch.config import Config
from iswitch.driver import half_width
from iswitch.wire import Format
from sim.bench.oracle import nearest_half
from sim.bench.udp_model import Faults, UdpModel
from tests.host.test_async_op import together

HALF = Config(ports=4, window=4, elements=16, members=8, half_width=True)
FORMATS = {"bf16": Format.BF16, "fp16": Format.FP16}
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = [1, 2, 15, 16, 17, 333]
BAD = Faults(loss=0.05, duplication=0.05, reordering=0.05)


@pytest.fixture(params=[Faults(), BAD], ids=["sound", "bad network"])
def model(request):
    with UdpModel(HALF, faults=request.param) as made:
        yield made


def values(rank, size):
    rng = np.random.default_rng([rank, size])
    return (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 3, size)).astype(np.float32)


def rounded(values, name):
    """Return torch's rounding to the format, as float32."""
    return torch.from_numpy(values).to(TORCH[name]).float().numpy()


def exact_sum(vectors, name, fraction):
    """Return the sums, float32, of vectors that the format holds: to multiples of 2^-F, added, and rounded once."""
    scale = Fraction(2) ** fraction
    sums = [sum(round(Fraction(float(x)) * scale) for x in column) / scale for column in zip(*vectors, strict=True)]
    bits = np.array([nearest_half(total, FORMATS[name]) for total in sums], np.uint16)
    return torch.from_numpy(bits.view(np.int16)).view(TORCH[name]).float().numpy()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", SIZES)
def test_a_float32_array_is_rounded_summed_exactly_and_rounded_once(model, name, size):
    def body(worker):
        array = values(worker.rank, size)
        assert worker.allreduce(array).complete
        mean = torch.from_numpy(values(worker.rank, size))
        worker.allreduce(mean, "mean", async_op=True).result(timeout=30)
        return array, mean.numpy()

    wanted = exact_sum([rounded(values(rank, size), name) for rank in range(3)], name, 44 if name == "bf16" else 42)
    for total, mean in together(model, 3, body, format=name):
        np.testing.assert_array_equal(total, wanted)
        np.testing.assert_array_equal(mean, wanted / np.float32(3))


@pytest.mark.parametrize("name", FORMATS)
def test_tensors_and_arrays_of_the_format_are_summed_as_they_are(model, name):
    def body(worker):
        tensor = torch.from_numpy(values(worker.rank, 35)).to(TORCH[name]).reshape(5, 7)
        mean = tensor.clone()
        array = values(worker.rank, 35).astype(np.float16)
        worker.allreduce(tensor)
        worker.allreduce(mean, "mean")
        if name == "fp16":
            worker.allreduce(array)
            assert array.tolist() == tensor.reshape(-1).tolist()
        assert tensor.dtype == TORCH[name]
        return tensor.float().numpy().reshape(-1), mean.float().numpy().reshape(-1)

    wanted = exact_sum([rounded(values(rank, 35), name) for rank in range(3)], name, 44 if name == "bf16" else 42)
    for total, mean in together(model, 3, body, format=name):
        np.testing.assert_array_equal(total, wanted)
        np.testing.assert_array_equal(mean, rounded(wanted / np.float32(3), name))


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_a_list_of_tensors_of_the_format_is_one_collective_as_it_is(model, name, async_op):
    shapes = [(3,), (), (0,), (4, 4), (17, 5)]

    def made(rank):
        whole, parts = values(rank, 105), []
        for shape in shapes:
            part, whole = np.split(whole, [int(np.prod(shape))])
            parts.append(torch.from_numpy(part).to(TORCH[name]).reshape(shape))
        parts[3] = parts[3].T  # is not contiguous
        if name == "fp16":
            parts[0] = parts[0].numpy()
        return parts

    def body(worker):
        found = []
        for op in ("sum", "mean"):
            arrays = made(worker.rank)
            done = worker.allreduce(arrays, op, async_op=async_op)
            done = done.result(timeout=30) if async_op else done
            assert done.complete and len(done.headers) == -(-105 // 16)
            found.append([np.asarray(array if name == "fp16" else array.float()) for array in arrays])
        return found

    ranks = [[torch.as_tensor(part).float().numpy().reshape(-1) for part in made(rank)] for rank in range(3)]
    wanted = exact_sum([np.concatenate(parts) for parts in ranks], name, 44 if name == "bf16" else 42)
    for total, mean in together(model, 3, body, format=name):
        assert [array.shape for array in total] == shapes
        np.testing.assert_array_equal(np.concatenate([array.reshape(-1) for array in total]), wanted)
        flat = np.concatenate([array.reshape(-1) for array in mean])
        np.testing.assert_array_equal(flat, rounded(wanted / np.float32(3), name))


def test_a_tainted_list_of_the_format_has_its_result_in_place():
    def body(worker):
        arrays = [torch.full((16,), float("nan") if worker.rank else 1.0), torch.ones(16)]
        arrays = [array.to(torch.bfloat16) for array in arrays]
        with pytest.raises(TaintedError):
            worker.allreduce(arrays)
        assert arrays[0].tolist() == [1] * 16 and arrays[1].tolist() == [2] * 16

    with UdpModel(HALF) as model:
        together(model, 2, body, format="bf16")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([torch.ones(2, dtype=torch.float16), torch.ones(2)], r"array\[0\] has float16, array\[1\] has torch.float32"),
        ([np.ones(2, np.float32), np.ones(2, np.float16)], r"array\[1\] has float16, array\[0\] has float32"),
        ([np.ones(2, np.float16), [1.0]], r"array\[0\] has float16, array\[1\] has list"),
        ([np.ones(2, np.uint16)], "array must be float32 or int32, not uint16"),
        ([torch.ones(2, dtype=torch.bfloat16)], r"array\[0\] must be a numpy.ndarray, not torch.Tensor"),
    ],
)
def test_a_list_of_several_dtypes_is_refused_and_nothing_is_sent(arrays, message):
    def body(worker):
        with pytest.raises(TypeError, match=message):
            worker.allreduce(arrays)
        ones = np.ones(3, np.float16)
        worker.allreduce(ones)  # all workers have counted the refused call
        assert ones.tolist() == [2] * 3

    with UdpModel(HALF) as model:
        together(model, 2, body, format="fp16")


@pytest.mark.parametrize("name", FORMATS)
def test_a_worker_that_comes_back_receives_the_state_and_its_elements_are_in_the_sums(model, name):
    left = threading.Event()

    def gradient(rank, step):
        return values(100 * rank + step, 35)

    def train(worker, weights, step):
        total = gradient(worker.rank, step)
        worker.allreduce(total)
        weights += total

    def body(worker):
        weights = np.zeros(35, np.float32)
        worker.sync_state([weights], 0)
        for step in range(3):
            train(worker, weights, step)
        if worker.rank == 2:
            worker.close()
            left.set()
            with Worker(model.address(2), world=3, format=name, elastic=True, timeout_s=30) as again:
                weights = np.zeros(35, np.float32)
                return again.rank, *go_on(again, weights, again.sync_state([weights], 0))
        assert left.wait(30)
        step = 3
        while not worker.needs_sync:
            train(worker, weights, step)
            step += 1
        return worker.rank, *go_on(worker, weights, worker.sync_state([weights], step))

    def go_on(worker, weights, step):
        before = weights.copy()
        for more in range(2):
            train(worker, weights, step + more)
        return step, before, weights

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingWarning)  # while one is away
        found = together(model, 3, body, format=name, elastic=True, timeout_s=30)
    assert {rank for rank, *_ in found} == {0, 1, 2}
    _, step, before, _ = found[0]
    wanted = before.copy()
    for more in range(2):
        vectors = [rounded(gradient(rank, step + more), name) for rank in range(3)]
        wanted += exact_sum(vectors, name, 44 if name == "bf16" else 42)
    for _, its_step, its_before, weights in found:
        assert its_step == step
        np.testing.assert_array_equal(its_before, before)
        np.testing.assert_array_equal(weights, wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_lists_integers_broadcasts_and_states_are_as_in_other_jobs(model, name):
    def body(worker):
        arrays = [np.full(shape, worker.rank + 1.0, np.float32) for shape in ((3, 3), (5,), (1,))]
        worker.allreduce(arrays)
        assert all((array == 3).all() for array in arrays)
        integers = np.full(21, 70_001, np.int32)
        worker.allreduce(integers)
        assert integers.tolist() == [140_002] * 21
        assert worker.broadcast(b"%d" % worker.rank, root=1) == b"1"
        worker.barrier()
        state = np.full(19, worker.rank, np.float64)
        assert worker.sync_state(state, worker.rank) == 1
        assert state.tolist() == [1] * 19

    together(model, 2, body, format=name)


@pytest.mark.parametrize(("name", "size"), [("window64", 4), ("bf16", 2), ("fp16", 2)])
def test_a_segment_has_so_many_bytes_an_element(model, name, size):
    def body(worker):
        worker.allreduce(np.ones(16 * 8, np.float32))
        with model.lock:
            return {slot.length for slot in model.switch.jobs[0].ring.slots}

    assert together(model, 2, body, format=name) == [{size * 16}] * 2


def test_an_infinity_of_fp16_taints_and_a_large_number_of_float32_becomes_one(model):
    def body(worker):
        array = np.array([1.0, 70_000.0 if worker.rank else 1.0], np.float32)
        with pytest.raises(TaintedError, match="NaN"):
            worker.allreduce(array)
        return array

    for array in together(model, 2, body, format="fp16"):
        assert array.tolist() == [1, 1]


def test_a_switch_without_these_formats_refuses_the_job():
    message = r"`format` is not the job's, or unknown to the switch.*`Config\(half_width=True\)`, as `iswitch switch`"
    with UdpModel(Config(ports=2, half_width=False)) as model, pytest.raises(RefusedError, match=message):
        Worker(model.address(), world=1, format="bf16", join_timeout_s=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "fp16", "fraction": 43}, "fraction must be 24 to 42, not 43"),
        ({"format": "bf16", "elements": 7}, "elements must be even"),
    ],
)
def test_settings_wrong(settings, message):
    with pytest.raises(ValueError, match=message):
        Worker("127.0.0.1:9", world=1, **settings)


def test_asynchronous_format_wrong():
    with pytest.raises(ValueError, match="format of an AsyncWorker must be"):
        AsyncWorker("127.0.0.1:9", world=1, size=3, format="bf16")


@pytest.mark.parametrize("compiled", [True, False], ids=["C", "Python"])
@pytest.mark.parametrize("name", FORMATS)
def test_conversions_are_those_of_torch(monkeypatch, name, compiled):
    if not compiled:
        monkeypatch.setattr(half_width, "_native", lambda: None)
    bits = np.random.default_rng(5).integers(0, 1 << 32, 200_001, dtype=np.uint32)
    ties = np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000
    floats = np.concatenate([bits, ties, ties - 1, ties + 1]).view(np.float32)
    narrowed = np.zeros(floats.size, np.uint16)
    half_width.narrow(floats, FORMATS[name], narrowed)
    wanted = torch.from_numpy(floats).to(TORCH[name])
    is_nan = np.isnan(floats)
    assert (narrowed[~is_nan] == wanted.view(torch.int16).numpy().view(np.uint16)[~is_nan]).all()
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = np.zeros(every.size, np.float32)
    half_width.widen(every, FORMATS[name], wide)
    np.testing.assert_array_equal(wide, torch.from_numpy(every.view(np.int16)).view(TORCH[name]).float().numpy())
    half_width.widen(narrowed, FORMATS[name], floats)
    assert np.isnan(floats[is_nan]).all()


LARGE = 16 * 4 * 4  # elements: twice as many segments as may be in flight


@pytest.mark.parametrize("name", ["window64", "bf16"])
@pytest.mark.parametrize("kind", ["array", "list", "tensor of the format"])
@pytest.mark.parametrize("async_op", [False, True])
def test_a_collective_that_is_refused_to_another_thread_changes_no_sum_in_flight(name, kind, async_op):
    """The sum in flight has segments that are not yet sent when the other thread calls."""

    def make(value):
        if kind == "tensor of the format":
            return torch.full((LARGE,), value, dtype=torch.bfloat16 if name == "bf16" else torch.float32)
        array = np.full(LARGE, value, np.float32)
        return [array[:7], array[7:]] if kind == "list" else array

    def body(worker):
        if worker.rank:
            assert refused.wait(30)
        else:

            def other():
                model.until(lambda switch: switch.counters()["outcome.ADDED"] >= 1)
                with pytest.raises(IswitchError, match="another thread is using this worker"):
                    done = worker.allreduce(make(1000.0), async_op=async_op)
                    done.result(timeout=30)
                refused.set()

            threading.Thread(target=other).start()
        own = make(1.0)
        worker.allreduce(own)
        return np.concatenate([np.asarray(part) for part in own]) if kind == "list" else own.tolist()

    refused = threading.Event()
    with UdpModel(HALF) as model:
        for sums in together(model, 2, body, format=name):
            assert list(sums) == [2.0] * LARGE


@pytest.mark.parametrize(("name", "mean"), [("fp16", float("inf")), ("bf16", 39936.0)])
def test_a_mean_whose_sum_the_format_cannot_hold_is_infinite_and_no_worker_is_tainted(name, mean):
    """docs/training.md says so, and what helps."""

    def body(worker):
        array, divided = np.full(3, 40000, np.float32), np.full(3, 40000 / worker.world, np.float32)
        assert worker.allreduce(array, "mean").tainted == ()
        worker.allreduce(divided)
        return array.tolist(), divided.tolist()

    single = float(rounded(np.float32([20000]), name)[0])
    with UdpModel(HALF) as model:
        assert together(model, 2, body, format=name, fraction=40) == [([mean] * 3, [2 * single] * 3)] * 2
