"""What the explorer of asynchronous jobs varies: sizes, faults, the rules under test, and the events that may
happen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.decide import claims as golden
from iswitch.golden.decide.claims import Claims, Verdict
from iswitch.golden.decide.slot import Ring
from sim.explore.search import Scenario

__all__ = [
    "AdmitJoining",
    "Claim",
    "ClaimsRules",
    "ClaimsScenario",
    "Compute",
    "ForceSlot",
    "Granted",
    "JoinConfirmed",
    "LearnEpoch",
    "Refused",
    "Reset",
    "VectorContribution",
    "reset_claims",
]


def reset_claims(claims: Claims, first_seq: int) -> Claims:
    """Return the claims of a job after a RESET."""
    return golden.new_claims(
        first_seq, segments=claims.segments, staleness=claims.staleness, members=len(claims.claimants)
    )


class ClaimsRules(NamedTuple):
    """The switch's rules, which the tests replace by plausible wrong ones.

    `granted_for_contribution` and `granted_for_receipt` say to which members a segment is granted.
    """

    claim: Callable[..., Verdict] = golden.claim
    leave: Callable[[Claims, int], Claims] = golden.leave
    admit: Callable[[Claims, Ring], Ring] = golden.admit
    granted_for_contribution: Callable[[Claims, int], int | None] = golden.granted_members
    granted_for_receipt: Callable[[Claims, int], int | None] = golden.granted_members
    reset: Callable[[Claims, int], Claims] = reset_claims


CORRECT_RULES = ClaimsRules()


@dataclass(frozen=True)
class ClaimsScenario(Scenario):
    """One asynchronous job on one switch, explored until `updates` are granted.

    Parameters
    ----------
    workers, staleness, threshold, updates, segments, window : int
        N, S, H, the number of updates, M (segments of an update), W.
    pipelined : bool
        Whether a worker computes the next vector while the last one waits, is sent or is summed.
    leaves, joins : int
        How many workers may leave, and how many may join in their places.
    thresholds : tuple of int
        Values that SET_H may set at any time.
    tainted : frozenset of (segment, k)
        Contributions that are quarantined, whichever worker sends them.
    lies : bool
        Whether claims may name any weights, including those of updates that do not exist.
    resets : int
        How often the job may be reset.
    fbcasts : bool
        Whether FBCAST may try to force any slot.
    rules : ClaimsRules
        The rules under test.
    requires_all : bool
        False makes a mutant: a slot may complete without some of its granted members.
    epochs : bool
        False makes a mutant: messages of an earlier epoch count.
    """

    workers: int
    staleness: int
    threshold: int
    updates: int
    segments: int = 1
    window: int = 1
    pipelined: bool = False
    leaves: int = 0
    joins: int = 0
    thresholds: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    lies: bool = False
    resets: int = 0
    fbcasts: bool = False
    rules: ClaimsRules = CORRECT_RULES
    requires_all: bool = True
    epochs: bool = True


# At a worker


class Compute(NamedTuple):
    """A vector, computed with the weights of `version`, is ready and claimed."""

    worker: int
    version: int


class Granted(NamedTuple):
    """A GRANT of an update that names the worker reaches it."""

    worker: int
    update: int


class Refused(NamedTuple):
    """A REFUSE of the worker's k-th claim reaches it."""

    worker: int
    k: int


class LearnEpoch(NamedTuple):
    """A NOTICE or an ACK tells a worker the job's epoch."""

    worker: int


# At the switch


class Claim(NamedTuple):
    """A worker's k-th claim reaches the switch. `version`: how many updates are in the weights that it names."""

    worker: int
    k: int
    version: int


class VectorContribution(NamedTuple):
    """A segment of a worker's k-th vector reaches the switch. Segments count over all updates.

    The worker lacked no result below `low`.
    """

    worker: int
    segment: int
    low: int
    k: int


class JoinConfirmed(NamedTuple):
    """A worker confirms its Join; the switch admits it at the next boundary."""

    worker: int


class AdmitJoining(NamedTuple):
    """The switch admits the joining member at a boundary."""

    worker: int


class Reset(NamedTuple):
    """A worker resets the job. The others learn of it later."""


class ForceSlot(NamedTuple):
    """FBCAST forces a slot."""

    slot: int
