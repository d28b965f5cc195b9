"""What a worker of a synchronous job has called and applied: the number of its collectives, and a checksum of their
results.

Contributions name both, so the switch never adds contributions of workers that are at different steps or hold different
state. Section 3 of `docs/protocol.md`, "The identity of a collective".
"""

import zlib

import numpy as np

from iswitch.wire import HEADER, POSITION_BITS, TAIL_BYTES, Collective, CollectiveKind

__all__ = ["STATELESS", "Progress", "result_checks"]

STATELESS = frozenset({CollectiveKind.ELECTION, CollectiveKind.STATE})
"""Kinds in which workers at different positions take part, and which change no position."""
_HEADER_WORDS, _TAIL_WORDS = HEADER.itemsize // 2, TAIL_BYTES // 2
_FLAGS_WORD = 4
"""The 16-bit word of a result's header with `member` and `format_flags`: copies of a result may differ in a flag."""
_JOB_WORDS = [0, 1, 9, 10]
"""The words with version, type, job, epoch and token, which say nothing about the sum."""


class Progress:
    """Position and checksum of one worker.

    Attributes
    ----------
    position : int
        Collectives that the program has called, modulo 2^24. A call without elements counts, and one that ended with an
        error: a program that goes on to its next step is never taken for one that repeats the step.
    checksum : int
        CRC-32 of the checks of the results that the worker has applied, 32 bits. Contributions carry the lower 16 bits
        as their digest.
    """

    def __init__(self) -> None:
        self.position = self.checksum = 0

    def adopt(self, position: int, checksum: int) -> None:
        """Take over the progress of the worker whose state this worker has taken over."""
        self.position, self.checksum = position, checksum

    def collective(self, kind: CollectiveKind, segments: int) -> Collective:
        """Return the identity of the next collective."""
        return Collective(0 if kind in STATELESS else self.position, kind, segments % 16)

    def digest(self, kind: CollectiveKind, argument: int = 0) -> int:
        """Return the digest for the contributions to the next collective, 16 bits.

        Parameters
        ----------
        kind : CollectiveKind
            Kind of the collective.
        argument : int
            A number on which all workers must agree, such as the root of a broadcast. It is added.
        """
        return 0 if kind in STATELESS else (self.checksum + argument) & 0xFFFF

    def count_call(self) -> None:
        """Count a collective that has ended, also with an error."""
        self.position = (self.position + 1) % (1 << POSITION_BITS)

    def extend(self, checks: np.ndarray) -> None:
        """Record the results of a collective, which have been applied: their `result_checks`, in order of seq."""
        self.checksum = zlib.crc32(checks.data, self.checksum)


def result_checks(headers: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Return the check of each result: the ones' complement of the sum over seq, tainted, members and payload.

    `native/exchange.c` computes the same.

    Parameters
    ----------
    headers : numpy.ndarray
        `RESULT_HEADER`, shape (results,); all of one job, epoch and token.
    tails : numpy.ndarray
        `TAIL`, shape (results,); all of one identity.

    Returns
    -------
    numpy.ndarray
        uint16, shape (results,). No check is zero.
    """
    # All words of a result sum to zero, so the checksum over some of them is the sum of the others. The words are
    # little-endian here: a sum of big-endian words has the same two bytes in the other order (RFC 1071).
    header, tail = headers.view("<u2"), tails.view("<u2")
    same_in_all = int(tail[0]) + sum(int(header[word]) for word in _JOB_WORDS)
    checks = _add(tail[1::_TAIL_WORDS], header[_FLAGS_WORD::_HEADER_WORDS])
    return _add(checks, np.uint16(same_in_all % 0xFFFF or 0xFFFF))


def _add(words: np.ndarray, others: np.ndarray | np.uint16) -> np.ndarray:
    """Return the ones' complement sums of 16-bit words, of which `others` are not zero. So no sum is zero."""
    sums = words + others
    sums += sums < others  # the end-around carry
    return sums
