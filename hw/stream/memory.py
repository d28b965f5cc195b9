"""Attributes of memories, which synthesis makes use of."""

__all__ = ["NEVER_READ_BEFORE_WRITTEN", "NEVER_READ_WHILE_WRITTEN"]

NEVER_READ_BEFORE_WRITTEN = {"never_read_before_written": 1}
"""Attribute of memories that hold payload, or are wiped before they are used: `hw.synthesis.emit` leaves out their initial
zeros."""


NEVER_READ_WHILE_WRITTEN = {"never_read_while_written": 1}
"""Attribute of memories whose read port never looks at the word that is written in the same cycle:
`hw.synthesis.emit.for_synthesis` says so."""
