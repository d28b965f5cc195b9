"""Checks of arguments that are settings of a job or of a worker. Each raises TypeError or ValueError, and names the
argument, the rule and the value."""

from collections.abc import Collection

import numpy as np

from iswitch.wire import EVICT_US_MAX, SILENCE_TICK_US
from iswitch.wire.formats import FORMATS, JOB_FORMATS

__all__ = ["require_evict", "require_int", "require_one_of", "require_seconds", "require_settings", "usual_fraction"]


def require_int(name: str, value: object, least: int, most: int) -> None:
    """Check that an argument is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value!r}")


def require_seconds(**seconds: float) -> None:
    """Check that numbers of seconds are above 0."""
    for name, value in seconds.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value!r}")


def require_evict(evict_s: float) -> None:
    """Check that `evict_s` is 0, or that the switch can measure it."""
    if not (evict_s == 0 or SILENCE_TICK_US <= evict_s * 1e6 < EVICT_US_MAX):
        raise ValueError(
            f"evict_s must be 0, or {SILENCE_TICK_US / 1e6:.3f} to {EVICT_US_MAX / 1e6:.1f}, not {evict_s!r}"
        )


def require_one_of(name: str, value: str, known: Collection[str]) -> None:
    """Check that an argument is one of the known names."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def usual_fraction(format: str) -> int:
    """Return the fraction bits of a job whose program names none: 44, or the most that the format can have."""
    known = JOB_FORMATS.get(format)
    return 44 if known is None else min(44, FORMATS[known].fractions.stop - 1)


def require_settings(
    *,
    world: int,
    threshold: int | None,
    job: int,
    rank: int | None,
    key: int,
    format: str,
    fraction: int,
    elements: int | None,
    timeout_s: float,
    switch_timeout_s: float,
    join_timeout_s: float,
    evict_s: float,
    on_taint: str,
) -> None:
    """Check the parameters that workers of both kinds of jobs have, as `Worker` describes them."""
    require_int("world", world, 1, 32)
    require_int("threshold", world if threshold is None else threshold, 1, world)
    require_int("job", job, 0, 255)
    require_int("rank", 0 if rank is None else rank, 0, world - 1)
    require_int("key", key, 0, 2**64 - 1)
    require_one_of("format", format, JOB_FORMATS)
    fractions = FORMATS[JOB_FORMATS[format]].fractions
    require_int("fraction", fraction, fractions.start, fractions.stop - 1)
    require_int("elements", 2 if elements is None else elements, 1, 65535)
    if elements is not None and elements % 2 and FORMATS[JOB_FORMATS[format]].is_half_width:
        raise ValueError(f"elements must be even in a job of format {format!r}, not {elements!r}")
    require_seconds(timeout_s=timeout_s, switch_timeout_s=switch_timeout_s, join_timeout_s=join_timeout_s)
    require_evict(evict_s)
    require_one_of("on_taint", on_taint, ("raise", "warn", "ignore"))
