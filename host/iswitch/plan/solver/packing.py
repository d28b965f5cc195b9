"""Known trees packed into the capacities of a fabric: a linear program with one variable for each tree.

Resources whose loads are in the same proportion to their capacities in every tree are one row. In a large fabric these
are nearly all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.tree import Resource

__all__ = ["Packed", "Packing"]

DIGITS = 12
"""Decimal places to which loads count as equal, as a part of the capacity."""


class Packed(NamedTuple):
    """Total rate, the rate of each tree, and the price of each resource that has one.

    If resources are one row, each has an equal part of its price.
    """

    total: float
    rates: list[float]
    duals: dict[Resource, float]


class Packing:
    """Packs trees.

    Parameters
    ----------
    available : mapping of Resource to float
        Gb/s of each resource; others limit nothing.
    loads : sequence of mapping of Resource to float
        For each tree the Gb/s on each resource for 1 Gb/s of rate.
    """

    def __init__(self, available: Mapping[Resource, float], loads: Sequence[Mapping[Resource, float]]):
        self.available, self.count = available, len(loads)
        self._resources = sorted({resource for load in loads for resource in load if resource in available})
        number = {resource: row for row, resource in enumerate(self._resources)}
        self._loads: npt.NDArray[np.float64] = np.zeros((len(number), len(loads)))
        for column, load in enumerate(loads):
            known = [resource for resource in load if resource in number]
            self._loads[[number[resource] for resource in known], column] = [load[resource] for resource in known]
        gbps = np.array([available[resource] for resource in self._resources])
        parts = (self._loads / np.where(gbps > 0, gbps, 1.0)[:, None]).round(DIGITS)
        keyed = np.column_stack((parts, gbps > 0))
        rows, self._row_of = np.unique(keyed, axis=0, return_inverse=True)
        self._row_of = self._row_of.reshape(-1)
        self._rows, self._limits = rows[:, :-1], rows[:, -1]
        self._size = np.bincount(self._row_of, minlength=len(rows))

    def solve(self) -> Packed:
        """Return the fastest packing."""
        found = self._program().solve()
        duals = {
            resource: max(-found.duals[row], 0.0) / self._size[row] / (self.available[resource] or 1.0)
            for resource, row in zip(self._resources, self._row_of)
        }
        return Packed(-found.objective, found.values, duals)

    def is_alone(self, resource: Resource) -> bool:
        """Return True if no other resource limits the trees in the same way."""
        return bool(self._size[self._row_of[self._resources.index(resource)]] == 1)

    def gains(self, resources: Iterable[Resource], part: float) -> list[float]:
        """Return for each resource the Gb/s of rate that its growth by this part alone would gain."""
        rows = [int(self._row_of[self._resources.index(resource)]) for resource in resources]
        if not rows:
            return []
        before, *after = self._program().objectives((row, float(self._limits[row]) * (1 + part)) for row in rows)
        return [before - each for each in after]

    def _program(self) -> LinearProgram:
        program = LinearProgram()
        for _ in range(self.count):
            program.add_variable(cost=-1.0)
        for row, limit in zip(self._rows, self._limits):
            used = np.flatnonzero(row)
            program.add_row(dict(zip(used.tolist(), row[used].tolist())), -INFINITY, float(limit))
        return program
