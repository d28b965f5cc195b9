"""How long a synchronous member waits: the longest time-outs, and the pauses between receipts when it is idle."""

from iswitch.driver.loss_recovery import SIGNS_OF_LIFE
from iswitch.driver.membership import Membership

__all__ = ["Patience"]

_LONGEST_TIMEOUT_S = 1.0
_PARTIAL_TIMEOUT_S = 0.05
"""Longest time-out where other members go on without this one: a slot can be blocked until this member's receipt."""
_PARTIAL_IDLE_S = 0.02
"""Time to the first receipt between collectives, where other members go on without this one."""


class Patience:
    """Times of one member, in seconds.

    Parameters
    ----------
    membership : Membership
        The granted membership.
    threshold : int
        Workers that complete a sum. Below the world, or with a deadline, other members go on without this one.

    Attributes
    ----------
    partial : bool
        Other members go on without some member.
    sign_of_life_s : float
        The longest silence.
    """

    def __init__(self, membership: Membership, threshold: int):
        self.partial = threshold < membership.world or membership.deadline_us > 0
        self.sign_of_life_s = min(_LONGEST_TIMEOUT_S, membership.evict_us / 1e6 / SIGNS_OF_LIFE or _LONGEST_TIMEOUT_S)
        self._deadline_us = membership.deadline_us

    @property
    def longest_timeout_s(self) -> float:
        """The longest time-out. A retransmission makes the switch look at a deadline, so it must not be later."""
        limits_s = [self.sign_of_life_s]
        if self.partial:
            limits_s.append(_PARTIAL_TIMEOUT_S)
        if self._deadline_us:
            limits_s.append(self._deadline_us / 2e6)
        return min(limits_s)

    @property
    def first_idle_s(self) -> float:
        """The time from the last traffic to the first receipt between collectives."""
        return _PARTIAL_IDLE_S if self.partial else self.sign_of_life_s
