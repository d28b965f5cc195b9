"""Amaranth layouts derived from the numpy records of `iswitch.wire`."""

import numpy as np
from amaranth.hdl import Cat, signed, unsigned
from amaranth.lib import data

__all__ = ["from_big_endian", "layout"]


def layout(record: np.dtype) -> data.FlexibleLayout:
    """Return a record's layout as bits, byte 0 lowest, so that a view of it indexes a bus word without swaps.

    Little-endian integers become numbers. Big-endian ones and byte arrays become arrays of bytes in wire order, so that
    reading one as a number is an explicit act (`from_big_endian`).
    """
    fields = {}
    for name, (kind, offset, *_) in record.fields.items():
        if kind.subdtype is not None or kind.str[0] == ">":
            shape = data.ArrayLayout(unsigned(8), kind.itemsize)
        elif kind.kind == "i":
            shape = signed(8 * kind.itemsize)
        else:
            shape = unsigned(8 * kind.itemsize)
        fields[name] = data.Field(shape, 8 * offset)
    return data.FlexibleLayout(8 * record.itemsize, fields)


def from_big_endian(octets):
    """Return a big-endian field of a view as a number."""
    return Cat(*(octets[k] for k in reversed(range(octets.shape().length))))
