"""Digests of the updates that a worker has taken, to find workers that have received different updates."""

import hashlib

import numpy as np

__all__ = ["DigestChain"]

_NO_UPDATES = bytes(32)


class DigestChain:
    """The SHA-256 digest after each of the latest updates.

    A digest covers the digest before it, the update's number, its members and its bytes. So equal digests mean equal
    updates from the first one on.

    Parameters
    ----------
    staleness : int
        Updates for which a digest is kept, because a vector can still refer to it.
    """

    def __init__(self, staleness: int) -> None:
        self._staleness = staleness
        self._digests = {0: _NO_UPDATES}  # by number of updates

    def restart(self, updates: int, digest: bytes) -> None:
        """Begin with another worker's digest of the first `updates` updates, 32 bytes."""
        self._digests = {updates: digest}

    @property
    def latest(self) -> bytes:
        """The digest of all updates."""
        return self._digests[max(self._digests)]

    def after(self, updates: int) -> bytes:
        """Return the digest after a number of updates, or zeros if it is not kept."""
        return self._digests.get(updates, _NO_UPDATES)

    def extend(self, number: int, member_masks: np.ndarray, total: np.ndarray) -> None:
        """Add the next update. If it was added before, nothing changes.

        Parameters
        ----------
        number : int
            Number of the update.
        member_masks : numpy.ndarray
            uint32, shape (segments,): the ranks in each segment.
        total : numpy.ndarray
            The sum.
        """
        if number + 1 in self._digests:
            return
        digest = hashlib.sha256(self._digests[number] + number.to_bytes(8, "little") + member_masks.tobytes())
        digest.update(total.data)
        self._digests.pop(number - self._staleness - 1, None)
        self._digests[number + 1] = digest.digest()

    def matches(self, updates: int, start_of_digest: bytes) -> bool | None:
        """Compare with another worker's digest.

        Parameters
        ----------
        updates : int
            The number of updates in the other worker's digest.
        start_of_digest : bytes
            The first bytes of that digest.

        Returns
        -------
        bool or None
            Whether the digests are equal. None if this worker did not have the weights then.
        """
        own = self._digests.get(updates)
        if own is None:
            return None if updates < min(self._digests) else False
        return own[: len(start_of_digest)] == start_of_digest
