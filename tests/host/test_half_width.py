"""Jobs of a half-width format: sums over the software switch, beside exact fractions that MPFR rounds."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from iswitch import AsyncWorker, RefusedError, TaintedError, Worker
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
    with UdpModel(Config(ports=2, half_width=False)) as model, pytest.raises(RefusedError, match="format"):
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
