"""The 10 Gigabit media independent interface, two columns of four bytes a cycle."""

from amaranth.lib import data

__all__ = [
    "ALL_ERRORS",
    "ALL_IDLE",
    "ERROR",
    "IDLE",
    "LOCAL_FAULT",
    "PREAMBLE",
    "REMOTE_FAULT",
    "SEQUENCE",
    "SIGNAL",
    "START",
    "TERMINATE",
    "Xgmii",
    "holds",
    "twice",
]

# IEEE 802.3 table 46-3: control characters.
IDLE, SIGNAL, SEQUENCE, START, TERMINATE, ERROR = 0x07, 0x5C, 0x9C, 0xFB, 0xFD, 0xFE


class Xgmii(data.Struct):
    """The byte of lane 0, the first, is in the lowest bits; a byte with its bit in `control` is a control character."""

    data: 64
    control: 8


def twice(column: dict[str, int]) -> dict[str, int]:
    """Return a word of one column, repeated."""
    return {"data": column["data"] << 32 | column["data"], "control": column["control"] << 4 | column["control"]}


# Table 46-5: ordered sets of one column.
LOCAL_FAULT = {"data": 0x01000000 | SEQUENCE, "control": 1}
REMOTE_FAULT = {"data": 0x02000000 | SEQUENCE, "control": 1}
PREAMBLE = {"data": 0xD555555555555500 | START, "control": 1}
"""Clauses 46.2.2 and 3.2.1: the start stands where the preamble's first byte would; the last byte is the SFD."""
ALL_IDLE = twice({"data": 0x01010101 * IDLE, "control": 15})
ALL_ERRORS = twice({"data": 0x01010101 * ERROR, "control": 15})


def holds(word, lane: int, character: int):
    """Return 1 if that control character stands in that lane of an `Xgmii`."""
    return word.control[lane] & (word.data[8 * lane : 8 * lane + 8] == character)
