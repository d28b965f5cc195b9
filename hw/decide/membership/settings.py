"""What must hold of a Join's settings, and of what a job already has."""

from amaranth.hdl import Mux, Value

from hw.decide.membership.context import Context
from hw.numeric.formats import can_be_job_format
from iswitch.wire import (
    DEADLINE_US_MAX,
    EVICT_US_MAX,
    SEGMENTS_MAX,
    SILENCE_TICK_US,
    STALENESS_MAX,
    JobState,
    Mode,
    Reason,
)
from iswitch.wire.formats import FRACTION_MAX, FRACTION_MIN

__all__ = ["agreement", "limits", "limits_in_tree"]


def limits_in_tree(context: Context) -> list[tuple[Value, Reason]]:
    """All contribute in a tree, none is asynchronous, and an uplink must fit into a frame."""
    c, frame, asked = context, context.frame, context.asked
    tall = c.leaf | (frame.members & (frame.members - 1)).any()
    return [
        ((asked.segments == 0) | (~c.leaf & (frame.members == 0)), Reason.SEGMENTS),
        (~tall | (asked.threshold == asked.world), Reason.THRESHOLD),
        (~tall | (asked.elements <= c.config.uplink_elements), Reason.ELEMENTS),
    ]


def limits(context: Context) -> list[tuple[Value, Reason]]:
    """What holds of every job here: conditions, each with the reason for a refusal, in the order of docs/protocol.md
    section 4."""
    config, frame, asked = context.config, context.frame, context.asked
    return [
        (frame.job < config.jobs, Reason.JOB),
        ((asked.world != 0) & (asked.world <= config.members), Reason.WORLD),
        ((asked.threshold != 0) & (asked.threshold <= asked.world), Reason.THRESHOLD),
        (can_be_job_format(asked["format"]), Reason.FORMAT),
        ((asked.fraction >= FRACTION_MIN) & (asked.fraction <= FRACTION_MAX), Reason.FRACTION),
        ((asked.elements != 0) & (asked.elements <= config.elements), Reason.ELEMENTS),
        (asked.mode <= max(Mode), Reason.MODE),
        (asked.deadline_us < DEADLINE_US_MAX, Reason.DEADLINE),
        ((asked.evict_us == 0) | ((asked.evict_us >= SILENCE_TICK_US) & (asked.evict_us < EVICT_US_MAX)), Reason.EVICT),
        (asked.staleness <= Mux(asked.segments != 0, config.staleness or STALENESS_MAX, 0), Reason.STALENESS),
        (asked.segments < (SEGMENTS_MAX if config.staleness else 1), Reason.SEGMENTS),
    ]


def agreement(context: Context) -> list[tuple[Value, Reason]]:
    """Who joins a job asks for what its founder did."""
    asked, job = context.asked, context.job
    alike = [
        (asked.key == job.key, Reason.KEY),
        (asked.world == job.world, Reason.WORLD),
        ((asked.threshold == job.threshold) | (job.state != JobState.FORMING), Reason.THRESHOLD),
        (asked["format"] == job.numeric, Reason.FORMAT),
        (asked.fraction == job.fraction, Reason.FRACTION),
        (asked.elements == job.elements, Reason.ELEMENTS),
        (asked.mode == job.mode, Reason.MODE),
        (asked.deadline_us == job.deadline_us, Reason.DEADLINE),
        (asked.evict_us == job.evict_us, Reason.EVICT),
        (asked.staleness == job.staleness, Reason.STALENESS),
        (asked.segments == job.segments, Reason.SEGMENTS),
    ]
    return [(~context.exists | agrees, why) for agrees, why in alike]
