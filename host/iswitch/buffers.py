"""What programs hand to collectives, as numbers that the switch sums: which arrays and buffers can be, and how results go back into them."""

from typing import Any, TypeVar

import numpy as np

from iswitch.wire import Format

__all__ = ["INT", "Bytes", "filled", "octets_of", "summed_as"]

INT = np.dtype("<i4")
_FLOAT = np.dtype("<f4")

Bytes = TypeVar("Bytes", bytes, bytearray, memoryview, np.ndarray)


def summed_as(array: np.ndarray, op: str, own: Format) -> tuple[Format, np.dtype[Any]]:
    """In which format, and as which type, an array's numbers are summed in a job of format `own`. TypeError, ValueError if they cannot be."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"array must be a numpy.ndarray, not {type(array).__name__}")
    if op not in ("sum", "mean"):
        raise ValueError(f'op must be "sum" or "mean", not {op!r}')
    if not array.flags.writeable:
        raise ValueError("array must be writeable: the result replaces its numbers")
    if array.dtype == _FLOAT and own != Format.INT32:
        return own, _FLOAT
    plain = array.dtype.newbyteorder("=")
    if plain == np.int32:
        if op == "mean":
            raise ValueError('op must be "sum" for int32: a mean of integers is none')
        return Format.INT32, INT
    if plain != np.float32:
        raise TypeError(f"array must be float32 or int32, not {array.dtype}: use array.astype(numpy.float32)")
    if own == Format.INT32:
        raise TypeError('array must be int32 in a job of format "int32"')
    return own, _FLOAT


def octets_of(buffer: bytes | bytearray | memoryview | np.ndarray) -> np.ndarray:
    """The bytes of a broadcast's buffer, u1. TypeError, ValueError if it is none, or cannot be filled."""
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.writeable:
            raise ValueError("buffer must be writeable: the root's bytes replace its own")
        if buffer.dtype.hasobject:
            raise TypeError("buffer must hold plain numbers, not Python objects")
        return np.ascontiguousarray(buffer).reshape(-1).view(np.uint8)
    if isinstance(buffer, (bytes, bytearray, memoryview)):
        if isinstance(buffer, memoryview) and buffer.readonly:
            raise ValueError("buffer must be writeable: the root's bytes replace its own")
        return np.frombuffer(buffer, np.uint8)
    raise TypeError(f"buffer must be bytes, bytearray, memoryview or numpy.ndarray, not {type(buffer).__name__}")


def filled(buffer: Bytes, octets: np.ndarray) -> Bytes:
    """The buffer, with these bytes in place of its own; in place of `bytes` new ones."""
    if isinstance(buffer, bytes):
        return octets.tobytes()
    if isinstance(buffer, np.ndarray):
        buffer[...] = octets.view(buffer.dtype).reshape(buffer.shape)
    else:
        octets_of(buffer)[:] = octets
    return buffer
