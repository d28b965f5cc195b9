"""Arrays and buffers of collectives: checks, with advice on what to pass instead, and filling them with results."""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from iswitch.wire import Format
from iswitch.wire.formats import FORMATS, Arithmetic

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FLOAT",
    "INT",
    "Bytes",
    "require_array",
    "require_reducible",
    "fill_buffer",
    "buffer_octets",
    "wire_type_of",
]

INT = np.dtype("<i4")
FLOAT = np.dtype("<f4")

Bytes = TypeVar("Bytes", bytes, bytearray, memoryview, np.ndarray, "Tensor")


def wire_type_of(array: np.ndarray, op: str, own: Format) -> tuple[Format, np.dtype[Any]]:
    """Return the format in which the switch sums an array.

    Parameters
    ----------
    array : numpy.ndarray
        The array of the program.
    op : {"sum", "mean"}
        The collective's operation.
    own : Format
        Number format of the job.

    Returns
    -------
    format : Format
        Number format on the wire.
    dtype : numpy.dtype
        Type of the elements on the wire.

    Raises
    ------
    TypeError, ValueError
        If the switch cannot sum this array; the message says what to pass instead.
    """
    require_array("array", array, FLOAT if FORMATS[own].is_half_width else FORMATS[own].element)
    require_reducible(array, op)
    integer = FORMATS[own].arithmetic is Arithmetic.INTEGER
    if array.dtype == FLOAT and not integer:
        return own, FLOAT
    plain = array.dtype.newbyteorder("=")
    if plain == np.int32:
        if op == "mean":
            raise ValueError(
                'op must be "sum" for int32, because a mean of integers is not an integer: sum, then divide, or pass '
                "float32"
            )
        return Format.INT32, INT
    if plain != np.float32:
        raise TypeError(f"array must be float32 or int32, not {array.dtype}: {_instead(array.dtype)}")
    if integer:
        raise TypeError('array must be int32 in a job of format "int32", not float32: join with format="window64"')
    return own, FLOAT


def require_reducible(array: np.ndarray, op: str) -> None:
    """Check that an array can receive a sum, and the operation. Raises ValueError."""
    if op not in ("sum", "mean"):
        raise ValueError(f'op must be "sum" or "mean", not {op!r}')
    if not array.flags.writeable:
        raise ValueError(
            "array must be writeable, because the result replaces its elements: pass a copy, `array.copy()`"
        )


def require_array(name: str, value: object, dtype: np.dtype[Any] = FLOAT) -> None:
    """Check that a value is a numpy array without a mask.

    Parameters
    ----------
    name : str
        Name of the parameter, for the message.
    value : object
        The value that the program has passed.
    dtype : numpy.dtype
        Type that the array should have, for the advice; default float32.

    Raises
    ------
    TypeError
        If the value is something else. The message gives the expression that makes an array of it. No other package is
        imported for that.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be an array without a mask: pass a copy, `{name}.filled(0)`")
    if isinstance(value, np.ndarray):
        return
    if value is None:
        raise TypeError(
            f"{name} must be a numpy.ndarray, not None: if it is the gradient of a parameter that took no part in the "
            "loss, set `parameter.grad = torch.zeros_like(parameter)` before the sum on every worker without it, so "
            "that all workers sum the same parameters"
        )
    kind = type(value)
    known = f"{kind.__module__.partition('.')[0]}.{kind.__name__}" if kind.__module__ != "builtins" else kind.__name__
    raise TypeError(
        f"{name} must be a numpy.ndarray, not {known}: {_array_of(value, np.dtype(dtype).newbyteorder('='))}"
    )


def _array_of(value: Any, dtype: np.dtype[Any]) -> str:
    """Return advice: how to make an array of a value of another type."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a torch.Tensor, or one that behaves like it
        expression = "tensor.detach()" if getattr(value, "requires_grad", False) else "tensor"
        here = str(getattr(value, "device", "cpu")).partition(":")[0] == "cpu"
        known = str(getattr(value, "dtype", dtype)).rpartition(".")[2] in ("float32", "int32")
        if here and known:
            return (
                f"pass `{expression}.numpy()`, which shares the memory of the tensor, so that the result is in the "
                "tensor"
            )
        expression += ("" if here else ".cpu()") + ("" if known else ".float()")
        return (
            f"pass a copy, `array = {expression}.numpy()`, and afterwards copy the result back, `{_copied_back(value)}`"
        )
    if isinstance(value, (list, tuple)):
        if any(hasattr(entry, "shape") for entry in value):
            return (
                "call the collective for each array, or pass all of them as one vector "
                "(torch.nn.utils.parameters_to_vector, numpy.concatenate)"
            )
        return f"pass `numpy.array(values, numpy.{dtype})`, and read the result from that array"
    if isinstance(value, str):
        return "for a broadcast pass `text.encode()`, of equal length on all workers"
    if isinstance(value, (bool, int, float, np.generic)):
        return f"pass `numpy.array([value], numpy.{dtype})`, and read the result from that array"
    return f"pass a copy, `numpy.array(value, numpy.{dtype})`, and read the result from that array"


def _copied_back(tensor: Any) -> str:
    back = "copy_(torch.from_numpy(array))"
    return f"tensor.data.{back}" if getattr(tensor, "requires_grad", False) else f"tensor.{back}"


def _instead(dtype: np.dtype[Any]) -> str:
    """Return advice: what to pass in place of an array of another dtype."""
    if dtype.kind == "c":
        return (
            f"pass `array{'' if dtype == np.complex64 else '.astype(numpy.complex64)'}.view(numpy.float32)`, its "
            "real and imaginary parts"
        )
    if dtype == np.uint32:
        return "pass `array.view(numpy.int32)`, since sums are modulo 2^32"
    if dtype.kind in "iub":
        return (
            "pass a copy, `array.astype(numpy.int32)`, for a sum modulo 2^32, or `array.astype(numpy.float32)`; the "
            "result is in the copy"
        )
    return "pass a copy, `array.astype(numpy.float32)`; the result is in the copy"


def buffer_octets(buffer: bytes | bytearray | memoryview | np.ndarray) -> np.ndarray:
    """Return the bytes of a broadcast's buffer.

    Parameters
    ----------
    buffer : bytes, bytearray, memoryview or numpy.ndarray
        The buffer.

    Returns
    -------
    numpy.ndarray
        uint8, 1-D: a view where that is possible.

    Raises
    ------
    TypeError, ValueError
        If the value is not a buffer, or cannot be filled; the message says what to pass instead.
    """
    if isinstance(buffer, (bytes, bytearray, memoryview)):
        if isinstance(buffer, memoryview) and buffer.readonly:
            raise ValueError(
                "buffer must be writeable, because the bytes of the root replace its own: pass bytes, or a bytearray"
            )
        return np.frombuffer(buffer, np.uint8)
    require_array("buffer", buffer)
    if not buffer.flags.writeable:
        raise ValueError(
            "buffer must be writeable, because the bytes of the root replace its own: pass a copy, `buffer.copy()`"
        )
    if buffer.dtype.hasobject:
        raise TypeError(
            "buffer must have a numeric dtype, not object: pass `pickle.dumps(objects)`, padded to one length on all "
            "workers"
        )
    return np.ascontiguousarray(buffer).reshape(-1).view(np.uint8)


def fill_buffer(buffer: Bytes, octets: np.ndarray) -> Bytes:
    """Fill a buffer with bytes, uint8, and return it; for `bytes`, return new ones."""
    if isinstance(buffer, bytes):
        return octets.tobytes()
    if isinstance(buffer, np.ndarray):
        buffer[...] = octets.view(buffer.dtype).reshape(buffer.shape)
    else:
        buffer_octets(buffer)[:] = octets
    return buffer
