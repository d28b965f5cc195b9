"""Numbers as people read them, and round steps for the axis of a chart."""

import math

__all__ = ["nice_ticks", "short_number"]


def short_number(number: float) -> str:
    """Return a number with three digits and a unit: 0, 1.5, 23, -12.3k, 4.56M."""
    for unit in ("", "k", "M"):
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"


def nice_ticks(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Return round numbers, at equal distances, from one at or below `low` to one at or above `high`.

    Parameters
    ----------
    low, high : float
        The range that the numbers span. If both are equal, the range becomes one above `low`.
    most : int
        About the most numbers.
    whole : bool
        Only whole numbers, for counts.

    Returns
    -------
    list of float
        Multiples of 1, 2 or 5 times a power of ten, in ascending order; at least two.
    """
    high = high if high > low else low + 1
    raw = max((high - low) / max(1, most - 1), 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
