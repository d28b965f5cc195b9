"""What happens in the trees of `join_tree.py`: a scenario, its events, and its state."""

from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.decide.job import Job
from iswitch.golden.tree_switch import ParentMembership, TreeSwitch
from iswitch.wire import FRAME_BYTES, NO_MEMBER, Type
from sim.explore.search import Scenario

__all__ = [
    "SWITCH_MAC",
    "WORKER_MAC",
    "Attacks",
    "Evicts",
    "FrameArrives",
    "Knowledge",
    "Resets",
    "Restarts",
    "SendsJoin",
    "SendsNotice",
    "SwitchMemory",
    "TreeJoinScenario",
    "TreeJoinState",
]

SWITCH_MAC, WORKER_MAC = 2, 4
"""First byte of the MAC addresses of switches and of workers; the second is the number, plus 1."""


@dataclass(frozen=True)
class TreeJoinScenario(Scenario):
    """One job that forms in a tree.

    Parameters
    ----------
    parents : tuple of int
        The switch above each switch. Switch 0 is the root, with -1.
    homes : tuple of int
        The switch of each worker.
    resets : bool
        Whether worker 0 may reset the job once, at its switch.
    evicts, restarts : bool
        Whether the root may evict switch 1 once, and whether that may lose its memory once.
    starts_running : bool
        Whether the job runs at the start, and nothing is in flight.
    epochs : int
        States in which the job has begun anew more often are not covered.
    attacks : bool
        Whether a worker attacks. Then the switches have an operator key, and it starts with `starts_running`.
    states_ranks : bool
        Whether workers state their ranks in `members`; otherwise they request them as indices, as if there was no tree.
    switch : type
        The golden switch; a subclass makes a mutant.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    resets: bool = False
    evicts: bool = False
    restarts: bool = False
    starts_running: bool = False
    epochs: int = 2
    attacks: bool = False
    states_ranks: bool = True
    switch: type[TreeSwitch] = TreeSwitch


class SwitchMemory(NamedTuple):
    """What a switch remembers."""

    job: Job
    above: ParentMembership | None
    random: int


class Knowledge(NamedTuple):
    """What a worker has recorded. `running`: (epoch, first seq), once received. `incarnation` counts its new nonces."""

    member: int = NO_MEMBER
    challenge: int = 0
    running: tuple[int, int] | None = None
    incarnation: int = 0


class SendsJoin(NamedTuple):
    """A worker sends a Join with what it knows."""

    rank: int


class SendsNotice(NamedTuple):
    """A parent answers an uplink with a NOTICE that it does not know the epoch, or the leaf."""

    switch: int


class Resets(NamedTuple):
    """Worker 0 resets the job."""


class Evicts(NamedTuple):
    """The root evicts switch 1."""


class Restarts(NamedTuple):
    """Switch 1 loses its memory, and its workers join anew."""


class Attacks(NamedTuple):
    """The attacker sends the root a Join with the token of switch 1 there.

    It names the ranks of switch 1 or none, has its nonce or another one, and requests its index or any.
    """

    names_ranks: bool
    has_nonce: bool
    requests_index: bool


class FrameArrives(NamedTuple):
    """A frame reaches the station that it is addressed to."""

    frame: bytes

    def __repr__(self) -> str:
        to = "switch" if self.is_to_switch else "worker"
        header = self.frame[FRAME_BYTES - 22 :]
        kind = Type(header[0] & 0xF).name
        return f"{kind} to {to} {self.number}, epoch {int.from_bytes(header[2:4], 'little')}: {self.frame[42:].hex()}"

    @property
    def is_to_switch(self) -> bool:
        return self.frame[0] == SWITCH_MAC

    @property
    def number(self) -> int:
        """The receiver's number among switches, or workers."""
        return self.frame[1] - 1


class TreeJoinState(NamedTuple):
    """What the switches remember, what the workers know, and every frame ever sent.

    `adopted`: the epoch in which each switch ran last, or None. `first_epoch`: of the root's job. `done`: the faults
    that have happened.
    """

    switches: tuple[SwitchMemory, ...]
    workers: tuple[Knowledge, ...]
    sent: frozenset[bytes]
    adopted: tuple[int | None, ...]
    first_epoch: int | None = None
    done: frozenset[type] = frozenset()
