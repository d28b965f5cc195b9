"""The rules for a Join's settings: what the switch can do, and what the job already has."""

from amaranth.hdl import Const, Value

from hw.decide.membership.procedure import job_exists
from hw.numeric.formats import can_be_job_format, fraction_is_good
from hw.stream.reduction import reaches, reduce_tree
from iswitch.config import Config
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

__all__ = ["agreement", "limits", "limits_in_tree", "ranks_of_world"]


def ranks_of_world(world: Value) -> Value:
    """Return the set of the ranks of a job for so many workers, which are at most 32."""
    return ~(Const(-1, 32) << world[:6])[:32]


def has_several(bits: Value) -> Value:
    """Return whether at least two bits are 1."""

    def join(one, other):
        return one[0] | other[0], one[1] | other[1] | one[0] & other[0]

    return reduce_tree(join, [(bit, Const(0)) for bit in bits])[1]


def limits_in_tree(config: Config, request) -> list[tuple[Value, Reason]]:
    """Return the rules for a tree: a switch proves that it is one of the tree, every member contributes, no job is
    asynchronous, and an uplink fits into a frame."""
    members, settings = request.headers.frame.members, request.headers.body
    in_tree = request.is_leaf | has_several(members)
    return [
        ((members == 0) | request.operator_key_same, Reason.OPERATOR_KEY),
        ((settings.segments == 0) | (~request.is_leaf & (members == 0)), Reason.SEGMENTS),
        (~in_tree | (settings.threshold == settings.world), Reason.THRESHOLD),
        (~in_tree | (settings.elements <= config.uplink_elements), Reason.ELEMENTS),
    ]


def limits(config: Config, request) -> list[tuple[Value, Reason]]:
    """Return the rules for every job: conditions with the reason of a refusal, in the order of docs/protocol.md
    section 4."""
    settings, evict_us = request.headers.body, request.headers.body.evict_us
    fraction_good = (settings.fraction >= FRACTION_MIN) & (settings.fraction <= FRACTION_MAX)
    if config.half_width:
        fraction_good &= fraction_is_good(settings["format"], settings.fraction)
    return [
        (request.job_in_range, Reason.JOB),
        ((settings.world != 0) & ~reaches(settings.world, config.members + 1), Reason.WORLD),
        ((settings.threshold != 0) & (settings.threshold <= settings.world), Reason.THRESHOLD),
        (can_be_job_format(settings["format"], half_width=config.half_width), Reason.FORMAT),
        (fraction_good, Reason.FRACTION),
        ((settings.elements != 0) & ~reaches(settings.elements, config.elements + 1), Reason.ELEMENTS),
        (~reaches(settings.mode, max(Mode) + 1), Reason.MODE),
        (~reaches(settings.deadline_us, DEADLINE_US_MAX), Reason.DEADLINE),
        ((evict_us == 0) | (reaches(evict_us, SILENCE_TICK_US) & ~reaches(evict_us, EVICT_US_MAX)), Reason.EVICT),
        (
            (settings.staleness == 0)
            | settings.segments.any() & ~reaches(settings.staleness, (config.staleness or STALENESS_MAX) + 1),
            Reason.STALENESS,
        ),
        (~reaches(settings.segments, SEGMENTS_MAX if config.staleness else 1), Reason.SEGMENTS),
    ]


def agreement(request, job) -> list[tuple[Value, Reason]]:
    """Return the rules for a job that exists: a joining member must request the creator's settings."""
    settings = request.headers.body
    rules = [
        (settings.key == job.key, Reason.KEY),
        (settings.world == job.world, Reason.WORLD),
        ((settings.threshold == job.threshold) | (job.state != JobState.FORMING), Reason.THRESHOLD),
        (settings["format"] == job.numeric, Reason.FORMAT),
        (settings.fraction == job.fraction, Reason.FRACTION),
        (settings.elements == job.elements, Reason.ELEMENTS),
        (settings.mode == job.mode, Reason.MODE),
        (settings.deadline_us == job.deadline_us, Reason.DEADLINE),
        (settings.evict_us == job.evict_us, Reason.EVICT),
        (settings.staleness == job.staleness, Reason.STALENESS),
        (settings.segments == job.segments, Reason.SEGMENTS),
    ]
    return [(~job_exists(request, job) | agrees, reason) for agrees, reason in rules]
