"""The identity of a collective: what a contribution says about the call that it belongs to.

The switch adds contributions only if their collectives and their digests are equal. So it never adds one step of a
worker to another step of a second worker, or an AllReduce to a broadcast.
"""

from enum import IntEnum
from typing import Any, NamedTuple, Self

__all__ = ["COLLECTIVE_SEGMENTS_BITS", "Collective", "CollectiveKind", "POSITION_BITS", "result_identity"]

POSITION_BITS = 24
"""Bits of a collective's position, which is counted modulo 2^24."""
COLLECTIVE_KIND_BITS = 4
COLLECTIVE_SEGMENTS_BITS = 4
"""Bits of the number of segments, which is counted modulo 16."""


class CollectiveKind(IntEnum):
    """What a collective does. The switch compares kinds, and gives none of them a meaning.

    ELECTION and STATE are the two parts of `Worker.sync_state`. UPDATE is an update of an asynchronous job.
    """

    ALLREDUCE = 1
    BROADCAST = 2
    BARRIER = 3
    ELECTION = 4
    STATE = 5
    UPDATE = 6


class Collective(NamedTuple):
    """A collective, as 32 bits of a contribution name it.

    Parameters
    ----------
    position : int
        Collectives that the worker's state includes, modulo 2^24. 0 for ELECTION and STATE, which bring workers at
        different positions together; for UPDATE the base of the update, modulo 2^24.
    kind : int
        A `CollectiveKind`.
    segments : int
        Segments of the collective, modulo 16.
    """

    position: int
    kind: int
    segments: int

    @property
    def word(self) -> int:
        """The 32 bits: position lowest, then kind, then segments."""
        return (
            self.position % (1 << POSITION_BITS)
            | self.kind << POSITION_BITS
            | self.segments % (1 << COLLECTIVE_SEGMENTS_BITS) << POSITION_BITS + COLLECTIVE_KIND_BITS
        )

    @classmethod
    def from_word(cls, word: int) -> Self:
        """Return the collective that 32 bits name."""
        above = word >> POSITION_BITS
        return cls(
            word % (1 << POSITION_BITS), above % (1 << COLLECTIVE_KIND_BITS), above >> COLLECTIVE_KIND_BITS & 0xF
        )


def result_identity(collective: Any, digest: Any) -> Any:
    """Return the 16 bits by which a result names its collective and its contributors' digest.

    Parameters
    ----------
    collective : int or amaranth.hdl.Value
        The 32 bits of the contributions.
    digest : int or amaranth.hdl.Value
        Their digest, 16 bits.

    Returns
    -------
    int or amaranth.hdl.Value
        The exclusive or of the digest and of both halves of the collective.
    """
    return (collective & 0xFFFF) ^ (collective >> 16) ^ digest
