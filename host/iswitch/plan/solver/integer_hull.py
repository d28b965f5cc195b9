"""What whole numbers of two kinds of streams fit a capacity: the facets of their convex hull."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Facet", "facets"]

ROUNDING = 1e-7
"""By which part a capacity may be exceeded, because arithmetic is not exact."""


class Facet(NamedTuple):
    """`gradients` x number of gradients + `sums` x number of partial sums <= `most`."""

    gradients: int
    sums: int
    most: int


def facets(capacity: float, gradient_size: float, sum_size: float, *, sums_max: int) -> Sequence[Facet]:
    """Return inequalities that hold for all whole numbers of gradients and partial sums within a capacity.

    Each goes through two corners of the convex hull of these numbers, so no linear inequality is stronger.

    Parameters
    ----------
    capacity : float
        The capacity, in the unit of the sizes.
    gradient_size, sum_size : float
        The size of one stream of each kind.
    sums_max : int
        If more partial sums than these fit, whole numbers hardly differ from others, and no facet is returned.
    """
    most = int(capacity * (1 + ROUNDING) / sum_size)
    if most > sums_max:
        return []
    corners: list[tuple[int, int]] = []
    for sums in range(most, -1, -1):
        point = (int((capacity * (1 + ROUNDING) - sums * sum_size) / gradient_size), sums)
        while len(corners) > 1 and _turns_inward(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    found = [Facet(0, 1, most)]
    for (few, high), (many, low) in pairwise(corners):
        found.append(Facet(high - low, many - few, (high - low) * many + (many - few) * low))
    return found


def _turns_inward(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Return True if the middle point is inside, or on the line from the first to the last."""
    (gradients, sums), (a, b), (x, y) = first, middle, last
    return (a - gradients) * (y - sums) - (b - sums) * (x - gradients) >= 0
