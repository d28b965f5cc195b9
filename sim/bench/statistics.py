"""Tests of counts against a distribution."""

from math import sqrt

import numpy as np

__all__ = ["chi_square", "quantile"]


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Return the statistic and its degrees of freedom; the rarest leaves are counted together, until 20 are expected of
    them."""
    order = np.argsort(expected)
    groups = np.searchsorted(np.cumsum(expected[order]), 20) if expected[order[0]] < 20 else 0
    gather = lambda values: np.concatenate([[values[order[: groups + 1]].sum()], values[order[groups + 1 :]]])
    counts, expected = gather(counts), gather(expected)
    return float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1


def quantile(freedom: int, deviations: float) -> float:
    """Return the quantile of the chi-square distribution by Wilson and Hilferty (1931); `deviations` are of the normal
    distribution."""
    return freedom * (1 - 2 / (9 * freedom) + deviations * sqrt(2 / (9 * freedom))) ** 3
