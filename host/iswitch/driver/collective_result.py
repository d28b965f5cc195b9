"""What comes of a collective: its result, or that there is no progress."""

from typing import NamedTuple

import numpy as np

__all__ = ["CollectiveResult", "NoProgressError"]


class NoProgressError(Exception):
    """A collective received no result for its time limit.

    The driver raises this error within the package only: a worker turns it into CollectiveTimeoutError.
    """

    def __init__(self, held: int, segments: int):
        super().__init__(f"{held} of {segments} results have come")


class CollectiveResult(NamedTuple):
    """Result of one collective; the sum itself is in the caller's array.

    Parameters
    ----------
    headers : numpy.ndarray
        `RESULT_HEADER`, shape (segments,): the headers of the results.
    retransmissions : int
        Retransmitted contributions.
    flagged : bool
        True if a result is partial or tainted.
    admitted : bool
        True if joining members take part from the next collective on.
    """

    headers: np.ndarray
    retransmissions: int
    flagged: bool
    admitted: bool
