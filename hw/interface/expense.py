"""What a port's frames cost of the shared pipeline's time."""

from amaranth.lib import data

from hw.stream.packet import LENGTH_BITS
from iswitch.config import Config

__all__ = ["CYCLES_SAVED", "DECISION_CYCLES", "PROCEDURE_COST", "RESEND_COST", "Expense", "expense_max"]

DECISION_CYCLES = 4
"""Cycles that the core decides on a frame of ours, besides those in which it takes the frame. A power of two: frames of
fewer words pay for them."""
CYCLES_SAVED = 3
"""Cycles of these that a frame does not cost if it enters while the core decides about the frame before."""
PROCEDURE_COST = 2
"""Cost of each cycle of a control message or an eviction: sums go first."""
RESEND_COST = 2
"""Cost of each word of a stored sum that the aggregator sends again."""


SLOT_CYCLES = 8
"""Cycles of a departure for a slot that it completes, besides the words of the sum (rounded up)."""


class Expense(data.Struct):
    """A frame of `port` costs so many `cycles` of the shared pipeline's time, or none in this cycle if it is 0."""

    port: 4
    cycles: LENGTH_BITS


def expense_max(config: Config) -> int:
    """Return the most that one frame can cost: the longest frame, the longest stored sum, or a departure that completes
    all slots of a job, whose sums leave meanwhile."""
    departure = PROCEDURE_COST * config.slots * (config.segment_words + SLOT_CYCLES)
    return max(config.frame_bytes_max // config.bus_bytes + 1, RESEND_COST * config.segment_words, departure)
