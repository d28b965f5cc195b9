"""What cannot be summed is refused at the door, with the expression that can; each of these expressions is tried."""

import re

import numpy as np
import pytest

from iswitch.control.state_transfer import pack_arrays
from iswitch.driver.buffers import INT, buffer_octets, fill_buffer, require_array, wire_type_of
from iswitch.wire import Format

FLOAT = np.dtype("<f4")
OWN = Format.WINDOW64


class Tensor:
    """Behaves like a torch.Tensor on some device."""

    __module__ = "torch"

    def __init__(self, *, device="cpu", requires_grad=False, dtype="torch.float32"):
        self.device, self.requires_grad, self.dtype = device, requires_grad, dtype

    def detach(self):
        raise AssertionError("nothing is copied behind the program's back")

    numpy = detach


def advice(error, **names):
    """The value of the first expression in a message."""
    return eval(re.search("`([^`]*)`", str(error.value)).group(1).removeprefix("array = "), {"numpy": np, **names})


@pytest.mark.parametrize(
    ("tensor", "expression"),
    [
        ({}, "`tensor.numpy()`, which shares"),
        ({"requires_grad": True}, "`tensor.detach().numpy()`, which shares"),
        (
            {"device": "cuda:0"},
            "`array = tensor.cpu().numpy()`, and afterwards copy the result back, "
            "`tensor.copy_(torch.from_numpy(array))`",
        ),
        (
            {"device": "cuda:0", "requires_grad": True},
            "`array = tensor.detach().cpu().numpy()`, and afterwards copy the result back, `tensor.data.copy_(",
        ),
        ({"dtype": "torch.bfloat16"}, "`array = tensor.float().numpy()`"),
        ({"dtype": "torch.float64", "device": "mps"}, "`array = tensor.cpu().float().numpy()`"),
        ({"dtype": "torch.int32"}, "`tensor.numpy()`, which shares"),
    ],
)
def test_the_error_for_a_tensor_says_how_it_becomes_an_array(tensor, expression):
    for take in (
        lambda given: wire_type_of(given, "sum", OWN),
        buffer_octets,
        lambda given: pack_arrays([given]),
        lambda given: require_array("vector", given),
    ):
        with pytest.raises(TypeError, match=r"must be a numpy\.ndarray, not torch\.Tensor: pass ") as error:
            take(Tensor(**tensor))
        assert expression in str(error.value)


def test_the_advice_for_tensors_of_torch_holds():
    torch = pytest.importorskip("torch")
    for tensor in (
        torch.ones(3),
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.int32),
        torch.ones(3, dtype=torch.float64, requires_grad=True),
    ):
        with pytest.raises(TypeError, match=r"must be a numpy\.ndarray") as error:
            wire_type_of(tensor, "sum", OWN)
        array = advice(error, tensor=tensor)
        wire_type_of(array, "sum", OWN)
        array[:] = 7
        if "copy the result back" in str(error.value):
            eval(re.findall("`([^`]*)`", str(error.value))[1], {"tensor": tensor, "torch": torch, "array": array})
        assert tensor.tolist() == [7] * 3


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ([1.0, 2.0], "list"),
        ((1.0, 2.0), "tuple"),
        (3.0, "float"),
        (3, "int"),
        (np.float32(3), "numpy.float32"),
        ("12", "str"),
        (None, "None"),
    ],
)
def test_the_error_for_another_object_says_how_to_make_an_array(value, known):
    with pytest.raises(TypeError, match=rf"array must be a numpy\.ndarray, not {known}: ") as error:
        wire_type_of(value, "sum", OWN)
    if known == "None":  # torch has None for the gradient of a parameter that took no part in the loss
        assert "`parameter.grad = torch.zeros_like(parameter)`" in str(error.value)
    elif known != "str":
        assert wire_type_of(advice(error, values=value, value=value), "sum", OWN) == (OWN, FLOAT)
        with pytest.raises(TypeError, match=r"numpy\.int32"):
            wire_type_of(value, "sum", Format.INT32)


@pytest.mark.parametrize(
    "dtype",
    [
        np.float64,
        np.float16,
        np.longdouble,
        np.int64,
        np.int8,
        np.uint32,
        np.uint64,
        np.bool_,
        np.complex64,
        np.complex128,
        object,
    ],
)
def test_the_error_for_another_dtype_says_what_to_pass(dtype):
    array = np.ones(4, dtype)
    with pytest.raises(TypeError, match=f"array must be float32 or int32, not {array.dtype}: pass ") as error:
        wire_type_of(array, "sum", OWN)
    assert wire_type_of(advice(error, array=array), "sum", OWN)[1] in (FLOAT, INT)


def test_the_error_for_a_read_only_array_says_to_copy_it():
    array = np.broadcast_to(np.float32(1), 4)
    for take in (lambda given: wire_type_of(given, "sum", OWN), buffer_octets):
        with pytest.raises(ValueError, match="must be writeable") as error:
            take(array)
        take(advice(error, array=array, buffer=array))
    with pytest.raises(ValueError, match="must be writeable"):
        pack_arrays([array])


def test_a_masked_array_is_refused_since_its_mask_would_be_ignored():
    array = np.ma.masked_invalid(np.array([1, np.nan], np.float32))
    with pytest.raises(TypeError, match="without a mask") as error:
        wire_type_of(array, "sum", OWN)
    assert wire_type_of(advice(error, array=array), "sum", OWN) == (OWN, FLOAT)


def test_a_matrix_of_float32_is_an_array():
    assert wire_type_of(np.ones((1, 2), np.float32).view(np.matrix), "sum", OWN) == (OWN, FLOAT)
    with pytest.raises(TypeError, match=r"not float64: pass a copy, `array\.astype"):
        wire_type_of(np.ones((1, 2)).view(np.matrix), "sum", OWN)


@pytest.mark.parametrize(
    ("array", "op", "own", "word"),
    [
        (np.ones(2, np.int32), "mean", OWN, "sum, then divide"),
        (np.ones(2, np.float32), "max", OWN, 'op must be "sum" or "mean", not \'max\''),
        (np.ones(2, np.float32), "sum", Format.INT32, 'format="window64"'),
    ],
)
def test_an_operation_that_there_is_not(array, op, own, word):
    with pytest.raises((TypeError, ValueError)) as error:
        wire_type_of(array, op, own)
    assert word in str(error.value)


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        ("text", "text.encode()"),
        (memoryview(b"1"), "a bytearray"),
        (np.array([None]), "pickle.dumps"),
        ([1], "numpy.array(values, numpy.float32)"),
        ([np.zeros(2), np.zeros(3)], "for each array, or pass all of them as one vector"),
    ],
)
def test_the_error_for_a_buffer_that_cannot_be_broadcast_says_what_to_pass(buffer, words):
    with pytest.raises((TypeError, ValueError)) as error:
        buffer_octets(buffer)
    assert words in str(error.value)


def test_a_buffer_is_filled():
    for buffer in (
        b"abcd",
        bytearray(b"abcd"),
        memoryview(bytearray(b"abcd")),
        np.arange(4, dtype=np.uint8),
        np.ones((2, 1), "<i2"),
    ):
        octets = np.frombuffer(b"\1\2\3\4", np.uint8)
        assert bytes(buffer_octets(fill_buffer(buffer, octets))) == b"\1\2\3\4"
