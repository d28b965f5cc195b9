"""The software switch: the golden switch, with its data path in C.

There is one truth about the protocol: the golden switch decides about every message. The data path handles only
contributions, receipts and claims to which the golden switch would do the usual thing, with the same state and to the
same bits. All others, which are rare, go to the golden switch.
"""

import struct
from ctypes import byref

import numpy as np

from iswitch.config import Config
from iswitch.golden.ingress.parse import parse_payload
from iswitch.golden.interface.message import Datagram, Message, Source
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.switch.library import Output, State, library
from iswitch.switch.records import SENT, SOURCE
from iswitch.switch.shared_counters import SharedCounters
from iswitch.switch.shared_state import SharedJobs, SharedSums
from iswitch.wire import HEADER, TAIL_BYTES, Outcome, Type, longest_frame_bytes

__all__ = ["SOURCE_PACKER", "SoftwareSwitch", "config_of"]

SOURCE_PACKER = struct.Struct("<IHB6s3x")
RESULTS_MAX = 1024
"""Results that the data path can make before they are sent."""
DATA_PATH_TYPES = (Type.CONTRIBUTION, Type.RECEIPT, Type.CLAIM)

if SOURCE_PACKER.size != SOURCE.itemsize:
    raise ImportError(f"SOURCE is {SOURCE.itemsize} bytes, but its packer writes {SOURCE_PACKER.size}")


def config_of(*, ports: int, members: int, jobs: int, window: int, elements: int) -> Config:
    """Return the `Config` of a software switch, whose queues are the kernel's: `queue_bytes` fits the elements.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """
    queue_bytes = max(Config().queue_bytes, 1 << (2 * longest_frame_bytes(elements)).bit_length())
    return Config(ports=ports, members=members, jobs=jobs, window=window, elements=elements, queue_bytes=queue_bytes)


class SoftwareSwitch(TreeSwitch):
    """A golden switch with the data path in C. Parameters as of `TreeSwitch`.

    Attributes
    ----------
    by_data_path : int
        Messages that the data path has handled.

    Raises
    ------
    LibraryError
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
        super().__init__(config, mac=mac, ip=ip, seed=seed, parents=parents, operator_key=operator_key)
        self._shared = SharedJobs(config, self.jobs[0])
        self.jobs = self._shared  # type: ignore[assignment]
        self.sums = sums = SharedSums(config, self._shared.slots)
        for number, parent in self.parents.items():
            self.set_parent(number, parent)
        # The data path counts in the same arrays.
        self.counts = self.shared_counts = counts = SharedCounters(config)
        self.outcomes, self.stats = counts.outcomes, counts.stats  # type: ignore[assignment]
        self.port_counters, self.ages = counts.ports, counts.ages  # type: ignore[assignment]
        self._payloads = np.zeros(RESULTS_MAX * (HEADER.itemsize + 4 * config.elements + TAIL_BYTES), np.uint8)
        self._sent = np.zeros(RESULTS_MAX, SENT)
        self.native_state = State(
            jobs=config.jobs,
            slots=config.slots,
            elements=config.elements,
            types=sum(1 << kind for kind in self.accepted_types()),
            job=self._shared.rows.ctypes.data,
            slot=self._shared.slots.ctypes.data,
            sums=sums.sums.ctypes.data,
            poison=sums.poison.ctypes.data,
            ages=counts.ages.ctypes.data,
            stats=counts.stats.ctypes.data,
            output=Output(payloads=self._payloads.ctypes.data, sent=self._sent.ctypes.data),
        )
        self.by_data_path = 0
        self._handle_payload = library().handle_payload

    def set_parent(self, number: int, parent: Parent) -> None:
        """Make the switch a leaf in a job of a tree. Call it before any member joins."""
        self.parents[number] = parent
        self._shared.set_leaf(number)

    def handle(self, message: Message, payload: bytes, now_us: int) -> tuple[Outcome, list[Datagram]]:
        """Return the outcome of a message, and what it sends: by the data path if the message is a usual one."""
        if message.type in DATA_PATH_TYPES:
            to = message.source
            source = SOURCE_PACKER.pack(to.ip, to.udp_port, to.port, to.mac)
            outcome = self._handle_payload(byref(self.native_state), source, payload, len(payload), now_us % 2**32)
            if outcome >= 0:
                self.by_data_path += 1
                return Outcome(outcome), self._collect()
        return super().handle(message, payload, now_us)

    def receive_payload(self, source: Source, payload: bytes, now_us: int) -> list[Datagram]:
        """Handle a UDP payload that the data path has left to the golden switch, and return what is sent."""
        message = parse_payload(source, payload, self.accepted_types())
        outcome, sent = (message, []) if isinstance(message, Outcome) else super().handle(message, payload, now_us)
        self.outcomes[outcome] += 1
        return sent

    def _collect(self) -> list[Datagram]:
        """Return what the data path sends."""
        output = self.native_state.output
        if not output.count:
            return []
        output.count = output.bytes = 0
        offset, length, receivers, job = self._sent[0].item()
        payload = self._payloads[offset : offset + length].tobytes()
        return self.send_to_members(self._shared.peek(job), receivers, payload)
