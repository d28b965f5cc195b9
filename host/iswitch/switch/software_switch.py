"""The software switch: the golden switch, with its data path in C.

There is one truth about the protocol: the golden switch decides about every message. The data path handles only
contributions, receipts and claims to which the golden switch would do the usual thing, with the same state and to the
same bits. All others, which are rare, go to the golden switch.
"""

import struct
from ctypes import byref

import numpy as np

from iswitch.config import Config
from iswitch.golden.aggregate.sums import StoredSums
from iswitch.golden.counters import Counters
from iswitch.golden.decide.job import Job, Jobs
from iswitch.golden.ingress.parse import parse_payload
from iswitch.golden.interface.message import Datagram, Message, Source
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.native.loader import Output, State, library
from iswitch.native.records import RESULTS_MAX, SENT, SOURCE
from iswitch.switch.shared_counters import SharedCounters
from iswitch.switch.shared_state import SharedJobs, SharedNotices, SharedSums
from iswitch.wire import HEADER, TAIL_BYTES, Outcome

__all__ = ["SOURCE_PACKER", "SoftwareSwitch"]

SOURCE_PACKER = struct.Struct("<IHB6s3x")

if SOURCE_PACKER.size != SOURCE.itemsize:
    raise ImportError(f"SOURCE is {SOURCE.itemsize} bytes, but its packer writes {SOURCE_PACKER.size}")


class SoftwareSwitch(TreeSwitch):
    """A golden switch with the data path in C. Parameters as of `TreeSwitch`.

    Attributes
    ----------
    by_data_path : int
        Messages that the data path has handled.
    shared_jobs : SharedJobs
        The jobs, with the arrays in which the data path has them.
    data_path : callable
        `handle_payload` of native/datapath.h; a check may put another build of it here.

    Raises
    ------
    ValueError
        If the operator key has more than 64 bits.
    DataPathError
        If the data path is not compiled for this machine.
    """

    def __init__(
        self,
        config: Config,
        *,
        mac: bytes,
        ip: bytes,
        seed: int,
        parents: dict[int, Parent] | None = None,
        operator_key: int = 0,
    ) -> None:
        if not 0 <= operator_key < 1 << 64:
            raise ValueError(f"SoftwareSwitch operator_key must be 0 to 2^64 - 1, not {operator_key!r}")
        super().__init__(config, mac=mac, ip=ip, seed=seed, parents=parents, operator_key=operator_key)
        for number, parent in self.parents.items():
            self.set_parent(number, parent)
        self.noticed_us = notices = SharedNotices(config.ports)
        self._payloads = np.zeros(RESULTS_MAX * (HEADER.itemsize + 4 * config.elements + TAIL_BYTES), np.uint8)
        self._sent = np.zeros(RESULTS_MAX, SENT)
        self.native_state = State(
            jobs=config.jobs,
            slots=config.slots,
            elements=config.elements,
            types=sum(1 << kind for kind in self.accepted_types()),
            job=self.shared_jobs.rows.ctypes.data,
            slot=self.shared_jobs.slots.ctypes.data,
            sums=self._shared_sums.sums.ctypes.data,
            poison=self._shared_sums.poison.ctypes.data,
            kept=self._shared_sums.kept.ctypes.data,
            stored=self._shared_sums.stored.ctypes.data,
            ages=np.asarray(self.ages).ctypes.data,
            stats=np.asarray(self.stats).ctypes.data,
            noticed_us=notices.times.ctypes.data,
            noticed=notices.present.ctypes.data,
            output=Output(payloads=self._payloads.ctypes.data, sent=self._sent.ctypes.data),
        )
        self.by_data_path = 0
        self.data_path = library().handle_payload

    def new_jobs(self, empty: Job) -> Jobs:
        self.shared_jobs = SharedJobs(self.config, empty)
        return self.shared_jobs

    def new_sums(self) -> StoredSums:
        self._shared_sums = SharedSums(self.config, self.shared_jobs.slots)
        return self._shared_sums

    def new_counters(self) -> Counters:
        return SharedCounters(self.config)

    def set_parent(self, number: int, parent: Parent) -> None:
        """Make the switch a leaf in a job of a tree. Call it before any member joins.

        Raises
        ------
        ValueError
            If the switch has no such job.
        """
        if not 0 <= number < self.config.jobs:
            raise ValueError(f"set_parent number must be 0 to {self.config.jobs - 1}, not {number!r}")
        self.parents[number] = parent
        self.shared_jobs.set_leaf(number)

    def handle(self, message: Message, payload: bytes, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Return the outcome of a message, and what it sends: by the data path if the message is a usual one."""
        return self.handle_usual(message.source, payload, now_us) or super().handle(message, payload, now_us)

    def handle_usual(self, source: Source, payload: bytes, now_us: int) -> tuple[Outcome, list[Datagram]] | None:
        """Return the outcome of a UDP payload that the data path handles, and what it sends; None if the data path
        leaves the payload to the golden switch."""
        packed = SOURCE_PACKER.pack(source.ip, source.udp_port, source.port, source.mac)
        outcome = self.data_path(byref(self.native_state), packed, payload, len(payload), now_us % 2**32)
        if outcome < 0:
            return None
        self.by_data_path += 1
        return Outcome(outcome), self._collect(source)

    def receive_payload(self, source: Source, payload: bytes, now_us: int) -> list[Datagram]:
        """Handle a UDP payload that the data path has left to the golden switch, and return what is sent."""
        message = parse_payload(source, payload, self.accepted_types())
        outcome, sent = (message, []) if isinstance(message, Outcome) else super().handle(message, payload, now_us)
        self.outcomes[outcome] += 1
        return sent

    def _collect(self, sender: Source) -> list[Datagram]:
        """Return what the data path sends because of a message."""
        output = self.native_state.output
        if not output.count:
            return []
        output.count = output.bytes = 0
        offset, length, receivers, job, _ = self._sent[0].item()
        payload = self._payloads[offset : offset + length].tobytes()
        if not receivers:
            return [Datagram(sender, payload)]
        return self.send_to_members(self.shared_jobs.peek(job), receivers, payload)
