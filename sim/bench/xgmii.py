"""XGMII character by character, written from IEEE 802.3 clause 46: frames and idle on a line."""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = [
    "IDLE",
    "PREAMBLE",
    "START",
    "TERMINATE",
    "Character",
    "Sent",
    "characters",
    "control",
    "frame_of",
    "frames_in",
    "ordered_set",
    "whole",
    "words",
]

Character = tuple[int, bool]
"""A byte, and whether it is a control character."""

PREAMBLE = bytes([0x55] * 6 + [0xD5])
"""The bytes after the start."""


def control(value: int) -> Character:
    return value, True


IDLE, START, TERMINATE = control(0x07), control(0xFB), control(0xFD)


def frame_of(content: bytes, *, preamble: bytes = PREAMBLE) -> list[Character]:
    """Return a frame from the start to the terminate; `content` has its FCS, if it is to have one."""
    return [START, *((byte, False) for byte in preamble + content), TERMINATE]


def whole(frame: bytes) -> bytes:
    """Return the frame with padding and FCS."""
    padded = frame.ljust(60, b"\0")
    return padded + zlib.crc32(padded).to_bytes(4, "little")


def ordered_set(value: int, *, kind: int = 0x9C) -> list[Character]:
    """Return a column: 1 is a local fault, 2 a remote one."""
    return [control(kind), *((byte, False) for byte in value.to_bytes(3, "big"))]


def words(line: Iterable[Character]) -> Iterator[tuple[int, int]]:
    """Return data and control bits, eight characters at a time, idle at the end."""
    line = list(line)
    line += [IDLE] * (-len(line) % 8)
    for at in range(0, len(line), 8):
        eight = line[at : at + 8]
        yield (
            sum(byte << 8 * k for k, (byte, _) in enumerate(eight)),
            sum(is_control << k for k, (_, is_control) in enumerate(eight)),
        )


def characters(seen: Iterable[tuple[int, int]]) -> list[Character]:
    return [(data >> 8 * k & 0xFF, bool(bits >> k & 1)) for data, bits in seen for k in range(8)]


class Sent(NamedTuple):
    """A frame on a line: the bytes between start and terminate, and the places of these."""

    content: list[Character]
    start: int
    end: int


def frames_in(line: list[Character]) -> list[Sent]:
    """Return the frames on a line. Raises AssertionError for anything but idle between them, or a last frame without an
    end."""
    found, at = [], 0
    while at < len(line):
        if line[at] == START:
            end = line.index(TERMINATE, at)
            found.append(Sent(line[at + 1 : end], at, end))
            at = end
        elif line[at] != IDLE:
            raise AssertionError(f"frames_in character {at} must be idle, not {line[at]}")
        at += 1
    return found
