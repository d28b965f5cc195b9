"""Tensors of each dtype as vectors of the switch, with exact integers and torch's own casts as oracles."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from iswitch.torch.dtypes import UnsupportedError, from_vector, to_vector

INTEGERS = {torch.int8: 8, torch.uint8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64}


def wrapped(number, dtype):
    """A Python integer as the dtype holds it."""
    modulus = 2 ** INTEGERS[dtype]
    number %= modulus
    return number if dtype == torch.uint8 or number < modulus // 2 else number - modulus


def switch_sum(vectors):
    """What the switch makes of vectors: modulo 2^32 for int32."""
    return np.sum(np.stack(vectors).astype(np.int64), axis=0).astype(np.int32)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_sums_of_integers_are_those_of_python_in_the_dtype(dtype, data):
    ranks = data.draw(st.sampled_from([1, 2, 32]))
    bits = INTEGERS[dtype]
    low, high = (0, 2**bits - 1) if dtype == torch.uint8 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    rows = data.draw(st.lists(st.lists(st.integers(low, high), min_size=3, max_size=3), min_size=ranks, max_size=ranks))
    summed = switch_sum([to_vector(torch.tensor(row, dtype=dtype)).values for row in rows])
    assert from_vector(summed, dtype).tolist() == [wrapped(sum(column), dtype) for column in zip(*rows, strict=True)]


def test_32_of_the_largest_int64_do_not_overflow_a_limb():
    for number in (2**63 - 1, -(2**63), -1, 2**22 - 1, 2**44 - 1):
        summed = switch_sum([to_vector(torch.tensor([number])).values] * 32)
        assert from_vector(summed, torch.int64).tolist() == [wrapped(32 * number, torch.int64)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_short_float_survives(dtype):
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    tensor = patterns.view(dtype)
    back = from_vector(to_vector(tensor).values, dtype)
    assert torch.equal(back.isnan(), tensor.isnan())
    assert torch.equal(back[~back.isnan()].view(torch.int16), tensor[~tensor.isnan()].view(torch.int16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_a_contiguous_tensor_is_not_copied(dtype):
    tensor = torch.zeros(3, 4, dtype=dtype, requires_grad=dtype.is_floating_point)
    vector = to_vector(tensor)
    assert vector.shared
    vector.values[5] = 7
    assert tensor[1, 1] == 7
    assert not to_vector(tensor.T).shared and not to_vector(tensor.to(torch.int16)).shared


@pytest.mark.parametrize("dtype", [torch.float64, torch.bool, torch.complex64], ids=str)
def test_a_dtype_that_would_lose_digits_is_refused_with_advice(dtype):
    with pytest.raises(UnsupportedError, match=rf"not {str(dtype)[6:]}: pass `t.*`"):
        to_vector(torch.zeros(3, dtype=dtype))
