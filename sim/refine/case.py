"""A small job, and everything that may happen to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from iswitch.config import Config
from iswitch.golden.decide.claims import Claims
from iswitch.golden.decide.slot import Ring
from iswitch.golden.interface.serial import SERIAL
from sim.explore.search import Scenario

__all__ = [
    "Content",
    "Contribution",
    "FallsSilent",
    "Forces",
    "Frame",
    "JobState",
    "Joins",
    "Leaves",
    "Receipt",
    "Resets",
    "RingCase",
    "SetsThreshold",
]


class Content(NamedTuple):
    """What a contribution says besides its sender and its seq."""

    format: int = 1
    length: int = 8
    boundary: bool = False
    requires_all: bool = False
    tainted: bool = False
    collective: int = 1
    digest: int = 0


class Contribution(NamedTuple):
    """A member's contribution."""

    member: int
    seq: int
    behind: int
    now_us: int
    content: Content


class Receipt(NamedTuple):
    """A member's receipt."""

    member: int
    seq: int
    behind: int
    now_us: int
    want: bool


class Leaves(NamedTuple):
    """A member leaves."""

    member: int


class Joins(NamedTuple):
    """An absent member's Join is confirmed."""

    member: int


class FallsSilent(NamedTuple):
    """A member has not been heard of for longer than the job allows."""

    member: int


class SetsThreshold(NamedTuple):
    """SET_H."""

    threshold: int


class Forces(NamedTuple):
    """FBCAST forces the slot at a place of the ring."""

    slot: int


class Resets(NamedTuple):
    """RESET: the job begins anew in its next epoch, and so in another incarnation of its ring."""


Frame = Contribution | Receipt


class JobState(NamedTuple):
    """`silent`: the members that have been silent for longer than the job allows. `claims`: None in a synchronous
    job."""

    ring: Ring
    silent: int = 0
    claims: Claims | None = None


@dataclass(frozen=True)
class RingCase(Scenario):
    """A small job.

    Parameters
    ----------
    seqs : tuple of int
        The seqs of frames, relative to the first one of the job.
    members, window : int
        N and W.
    first_seq : int
        A multiple of 2W. By default it is one lap before 2^32.
    behinds, contents, times : tuple
        What frames contain, and when they come.
    thresholds : tuple of int
        H at the beginning, and what SET_H may set.
    quarantine : bool
        Whether the job quarantines tainted contributions.
    deadline_us : int
        Of the job; 0 for none.
    leaves, joins, forces, resets, silences : bool
        What else may happen.
    """

    seqs: tuple[int, ...]
    members: int = 2
    window: int = 1
    first_seq: int = -1
    behinds: tuple[int, ...] = (0, 1, 2, 3)
    contents: tuple[Content, ...] = (Content(),)
    times: tuple[int, ...] = (0,)
    thresholds: tuple[int, ...] = (2,)
    quarantine: bool = True
    deadline_us: int = 0
    leaves: bool = False
    joins: bool = False
    forces: bool = False
    resets: bool = False
    silences: bool = False

    @property
    def slots(self) -> int:
        return 2 * self.window

    @property
    def first(self) -> int:
        """The first seq."""
        return SERIAL - self.slots if self.first_seq < 0 else self.first_seq

    def seq(self, offset: int) -> int:
        return (self.first + offset) % SERIAL

    def config(self) -> Config:
        """Return the switch that decides about this job."""
        return Config(
            ports=2,
            bus_bits=64,
            members=self.members,
            jobs=2,
            window=self.window,
            elements=16,
            queue_bytes=4096,
            staleness=1,
            uplinks=False,
        )

    def frames(self) -> Sequence[Any]:
        """Return every frame of every member, each a `Frame`; other kinds of jobs have more."""
        frames: list[Frame] = []
        for member, offset, behind, now_us in product(range(self.members), self.seqs, self.behinds, self.times):
            about = member, self.seq(offset), behind, now_us
            frames += [Contribution(*about, content) for content in self.contents]
            frames += [Receipt(*about, want) for want in (False, True)]
        return frames
