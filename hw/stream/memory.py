"""Attributes of memories for `hw.synthesis.emit`."""

__all__ = ["NEVER_READ_BEFORE_WRITTEN", "NEVER_READ_WHILE_WRITTEN"]

NEVER_READ_BEFORE_WRITTEN = {"never_read_before_written": 1}
"""For a memory of which no word is read before it is written: emission leaves out its initial zeros."""


NEVER_READ_WHILE_WRITTEN = {"never_read_while_written": 1}
"""For a memory of which no word is read in the cycle in which it is written: emission for synthesis declares that such
a collision does not matter."""
