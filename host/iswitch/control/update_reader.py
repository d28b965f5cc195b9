"""Updates of an asynchronous job, as a program receives them: what the trailer of an update says about its workers.

Each worker in an update fills in its entry of the trailer (`iswitch.driver.update_layout`): the weights of its vector,
the digest of the updates in these weights, and a joining worker's request for weights.
"""

import logging

import numpy as np

from iswitch.driver.digest_chain import DigestChain
from iswitch.driver.membership import Membership
from iswitch.driver.received_update import ReceivedUpdate
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import DivergedError
from iswitch.results import Reduction, Update

__all__ = ["UpdateReader"]

logger = logging.getLogger("iswitch")


class UpdateReader:
    """Reads the updates of a job in their order.

    Parameters
    ----------
    layout : UpdateLayout
        How an update is cut into segments.
    membership : Membership
        The granted membership.

    Attributes
    ----------
    digests : DigestChain
        Digests of the updates that were read.
    confirmed : dict of int to int
        By rank: the updates that its worker has received as this one has.
    transfer_jobs : dict of int to (int, int)
        By the rank of a joining worker that has requested weights: the rank that sends them, and the job for it.
    """

    def __init__(self, layout: UpdateLayout, membership: Membership):
        self._layout, self._rank = layout, membership.member
        self.digests = DigestChain(membership.staleness)
        self.confirmed: dict[int, int] = {}
        self.transfer_jobs: dict[int, tuple[int, int]] = {}
        self._ranks_with_weights: list[int] = []  # in the latest update that has some

    def read(self, number: int, received: ReceivedUpdate) -> Update:
        """Return an update for the program.

        Parameters
        ----------
        number : int
            Number of the update. Updates are read in order. If an exception of a signal handler has stopped the
            reading of an update, that update is read again.
        received : ReceivedUpdate
            Its results.

        Raises
        ------
        DivergedError
            If the digest of another worker differs from that of this worker.
        """
        layout, vector_segments = self._layout, self._layout.vector_segments
        members = np.bitwise_and.reduce(received.headers["members"][vector_segments:])
        entries = {rank: received.trailer[rank] for rank in range(layout.world) if members >> np.uint32(rank) & 1}
        requests = {rank: int(entry["transfer_job"]) - 1 for rank, entry in entries.items() if entry["transfer_job"]}
        entries = {rank: entry for rank, entry in entries.items() if rank not in requests}
        for rank, entry in entries.items():
            self._compare_digest(number, rank, int(entry["version"]), entry["digest"].tobytes())
        if entries:
            self._ranks_with_weights = sorted(entries)
        if self._ranks_with_weights:
            self.transfer_jobs |= {rank: (self._ranks_with_weights[0], job) for rank, job in requests.items()}
        headers = received.headers[:vector_segments]
        self.digests.extend(number, headers["members"], received.sum)
        self._drop_segments_without_entry(number, received, int(members))
        for rank in requests:  # their zeros do not belong to the mean
            headers["members"] &= np.uint32(~(1 << rank) & 0xFFFFFFFF)
        return Update(
            number,
            received.sum,
            {rank: int(entry["version"]) for rank, entry in entries.items()},
            Reduction(layout.world, layout.elements, 0, headers),
        )

    def _drop_segments_without_entry(self, number: int, received: ReceivedUpdate, with_entry: int) -> None:
        """Set the segments to zeros that contain a rank without an entry.

        That worker has left in the middle. Nobody knows whether its numbers were a vector, or the zeros of a joining
        worker, which a mean must not count.

        Parameters
        ----------
        number : int
            Number of the update, for the log.
        received : ReceivedUpdate
            Changed in place. All workers have received the same results, so all drop the same segments.
        with_entry : int
            The ranks that have an entry, as bits.
        """
        layout = self._layout
        members = received.headers["members"][: layout.vector_segments]
        dropped = np.flatnonzero(members & np.uint32(~with_entry & 0xFFFFFFFF))
        for segment in dropped:
            received.sum[segment * layout.elements : (segment + 1) * layout.elements] = 0
        members[dropped] = 0
        if dropped.size:
            logger.warning(
                "update %d: a worker left before its vector was complete, so %d of %d segments are zeros",
                number,
                dropped.size,
                layout.vector_segments,
            )

    def _compare_digest(self, number: int, rank: int, version: int, start_of_digest: bytes) -> None:
        """Compare the digest in a rank's entry of update `number`. Raises DivergedError."""
        same = self.digests.matches(version, start_of_digest)
        if same is None:  # from before this worker joined
            return
        if not same:
            raise DivergedError(
                f"rank {rank} and rank {self._rank} received different updates among the first {version}, as the "
                f"digest in update {number} shows, so their weights differ. Begin again from saved weights, and look "
                "for a switch or a link that damages packets"
            )
        self.confirmed[rank] = version
