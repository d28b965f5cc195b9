"""What a worker of a synchronous job has called and applied: the number of its collectives, and a checksum of their
results.

Contributions name both, so the switch never adds contributions of workers that are at different steps or hold different
state. Section 3 of `docs/protocol.md`, "The identity of a collective".
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from iswitch.wire import HEADER, POSITION_BITS, Collective, CollectiveKind

__all__ = ["STATELESS", "Progress"]

STATELESS = frozenset({CollectiveKind.ELECTION, CollectiveKind.STATE})
"""Kinds in which workers at different positions take part, and which change no position."""
_RESULT = np.dtype([("members", "<u4"), ("payload_sum", ">u2")])
"""What the checksum covers of one result. The payload is summed here in little-endian words. A sum of big-endian words
has the same two bytes in the other order (RFC 1071)."""
_HEADER_WORDS = np.ones(HEADER.itemsize // 2, np.float32)  # a product with it is the fastest sum of the words
_MODULUS = 0xFFFF
"""Ones' complement sums are sums modulo this number."""


class Progress:
    """Position and checksum of one worker.

    Attributes
    ----------
    position : int
        Collectives that the program has called, modulo 2^24. A call without elements counts, and one that ended with an
        error: a program that goes on to its next step is never taken for one that repeats the step.
    checksum : int
        CRC-32 of the results that the worker has applied, 32 bits. Contributions carry the lower 16 bits as their
        digest.
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

    @contextmanager
    def count_call(self) -> Iterator[None]:
        """Count the collective that is called in this context, also if it ends with an error."""
        try:
            yield
        finally:
            self.position = (self.position + 1) % (1 << POSITION_BITS)

    def extend(self, headers: np.ndarray, tails: np.ndarray) -> None:
        """Record the results of a collective, which have been applied.

        Parameters
        ----------
        headers : numpy.ndarray
            `RESULT_HEADER`, shape (segments,), in order of seq.
        tails : numpy.ndarray
            `TAIL`, shape (segments,).
        """
        # Header, payload and tail sum to zero, so header and tail give the sum of the payload.
        words = headers.view("<u2").reshape(-1, len(_HEADER_WORDS)).astype(np.float32)
        others = (words @ _HEADER_WORDS).astype(np.int64)
        others += tails["identity"]
        others += tails.view("<u2")[1::2]
        results = np.empty(len(headers), _RESULT)
        results["members"], results["payload_sum"] = headers["members"], -others % _MODULUS
        self.checksum = zlib.crc32(results.data, self.checksum)
