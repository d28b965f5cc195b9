"""Questions to the integer program of one tree, and the tree of a solution.

Is there a tree of a given rate? One with fewer upgrades? One with less traffic?
"""

from collections.abc import Iterator

import numpy as np

from iswitch.plan.solver.arcs import take_path
from iswitch.plan.solver.linear_program import INFINITY, Solution
from iswitch.plan.solver.tree import Tree
from iswitch.plan.solver.tree_program import TreeProgram
from iswitch.plan.topology.topology import Group, natural_key

__all__ = ["EQUAL", "SingleTreeModel"]

EQUAL = 1e-9
"""Relative difference below which two values of t count as equal."""
TIDY_S = 2.0
"""Time limit for the plan of the same rate with the least traffic. The rate is proved before."""


class SingleTreeModel(TreeProgram):
    """The program of one tree, with the questions of `single_tree`; t is 1 / rate. Parameters: see `TreeProgram`."""

    def candidates(self, low: float, high: float) -> list[float]:
        """Return `low`, and all t above it and below `high` at which some resource can be exactly full, sorted."""
        found = {low}
        for gbps in {gbps for _, gbps, _ in self.limits}:
            sums = self.stream_sums[(self.stream_sums >= low * gbps) & (self.stream_sums < high * gbps * (1 - EQUAL))]
            found.update(float(t) for t in sums / gbps)
        distinct: list[float] = []
        for t in sorted(found):
            if not distinct or t > distinct[-1] * (1 + EQUAL):
                distinct.append(t)
        return distinct

    @property
    def t_max(self) -> float:
        """A t that is large enough for every tree."""
        return (
            float(self.stream_sums[-1])
            / min((gbps for _, gbps, _ in self.limits if gbps), default=1.0)
            * (1 + 2 * EQUAL)
            + self.t_min
        )

    def lower_bound(self, time_s: float) -> float:
        """Return a t below which no tree exists, by the linear relaxation; infinite if no tree exists at all."""
        t = self.program.add_variable(self.t_min, cost=1.0)
        rows = len(self.program.rows)
        for terms, gbps, _ in self.limits:
            self.program.add_row(terms | {t: -gbps}, -INFINITY, 0)
        found = self.program.solve(relaxed=True, time_s=time_s)
        del self.program.rows[rows:]
        for each in (self.program.cost, self.program.low, self.program.high, self.program.integer):
            del each[t]
        if found.status == "infeasible":
            return INFINITY
        return max(self.t_min, found.objective * (1 - EQUAL)) if found.status == "optimal" else self.t_min

    def solve_within(self, t: float, time_s: float, start: list[float] | None = None) -> Solution:
        """Look for a tree of at most this t.

        Parameters
        ----------
        t : float
            1 / rate, in s/Gb.
        time_s : float
            Time limit in seconds.
        start : list of float, optional
            A solution to start from.
        """
        program, rows = self.program, len(self.program.rows)
        for terms, low, high in self.rows_within(t):
            program.add_row(terms, low, high)
        found = program.solve(time_s=time_s, start=start)
        del program.rows[rows:]
        return found

    def rows_within(self, t: float) -> Iterator[tuple[dict[int, float], float, float]]:
        """Yield the rows that a tree of at most this t keeps: terms, and the least and the most of their sum."""
        for terms, gbps, used in self.limits:
            most = float(self.stream_sums[np.searchsorted(self.stream_sums, gbps * t * (1 + EQUAL), side="right") - 1])
            if used is None:
                yield terms, 0, most
            else:
                yield terms | {used: -most}, -INFINITY, 0
                for variable, size in terms.items():
                    yield {variable: 1.0, used: -min(self.program.high[variable], most // size)}, -INFINITY, 0

    def with_fewest_upgrades(self, t: float, values: list[float], time_s: float) -> list[float]:
        """Return a tree of this t with the fewest upgrades. Trees sought later have no more of them."""
        program, upgrades = self.program, {self.used[a]: 1.0 for a, site in enumerate(self.sites) if site.upgraded}
        while count := len(self.upgraded(values)):
            program.add_row(upgrades, 0, count - 1)
            found = self.solve_within(t, max(time_s, TIDY_S))
            program.rows.pop()
            if not found.values:
                break
            values = found.values
        if upgrades:
            program.add_row(upgrades, 0, count)
        return values

    def with_least_traffic(self, t: float, values: list[float], time_s: float) -> list[float]:
        """Return a tree of this t with the least traffic on links, or `values` if none was found in time."""
        program, job = self.program, self.topology.job
        cost, program.cost = program.cost, [0.0] * len(program.cost)
        for flow, size in ((self.gradient_flow, job.gradient_size), (self.partial_flow, job.partial_size)):
            for variable in flow.values():
                program.cost[variable] = size
        for variable in self.result_flow.values():
            program.cost[variable] = job.result_size
        for site, variable in zip(self.sites, self.used):
            program.cost[variable] = 2e-3 if site.upgraded else 1e-3
        found = self.solve_within(t, min(time_s, TIDY_S), values or None)
        program.cost = cost
        return found.values or values

    def upgraded(self, values: list[float]) -> dict[str, float]:
        """Return the switches that a solution upgrades, with their capacities in Gb/s."""
        return {
            site.at: site.capacity_gbps
            for site, variable in zip(self.sites, self.used)
            if site.upgraded and round(values[variable])
        }

    def tree(self, values: list[float]) -> Tree:
        """Return the tree of a solution, at rate 0."""
        whole = lambda variable: round(values[variable])
        root = self.topology.ps or next(site.at for site, variable in zip(self.sites, self.roots) if whole(variable))
        homes, up = {}, {}
        streams = {
            place: {arc: whole(variable) for (to, arc), variable in self.gradient_flow.items() if to == place}
            for place in {end.at for end in self.ends}
        }
        sums = {
            place: {arc: whole(variable) for (to, arc), variable in self.partial_flow.items() if to == place}
            for place in streams
        }
        for g, group in enumerate(self.groups):
            for worker, place in self._homes_of(group, {a: whole(self.homes[g, a]) for a in range(len(self.ends))}):
                homes[worker] = place
                path = take_path(streams[place], group.at, place)
                up[worker] = path if group.at == worker else (worker, *path)
        above = {self.sites[a].at: self.ends[b].at for (a, b), variable in self.parents.items() if whole(variable)}
        summing = _summing_switches(homes, above, root)
        parents = {switch: parent for switch, parent in above.items() if switch in summing}
        for switch, parent in above.items():
            path = take_path(sums[parent], switch, parent)
            if switch in summing:
                up[switch] = path
        down = {}
        if self.topology.job.unicast:
            back = {arc: whole(variable) for arc, variable in self.result_flow.items()}
            for group in self.groups:
                for worker in group.workers:
                    path = take_path(back, root, group.at)
                    down[worker] = path if group.at == worker else (*path, worker)
        order = sorted(homes, key=natural_key)
        return Tree(
            rate_gbps=0.0,
            root=root,
            homes={worker: homes[worker] for worker in order},
            parents={switch: parents[switch] for switch in sorted(parents, key=natural_key)},
            up={child: up[child] for child in (*order, *sorted(parents, key=natural_key))},
            down={worker: down[worker] for worker in order if down},
        )

    def _homes_of(self, group: Group, counts: dict[int, int]) -> list[tuple[str, str]]:
        """Return the home of each worker of a group, of which so many have each end. Homes of a running tree stay."""
        waiting, found = list(group.workers), list[tuple[str, str]]()
        order = sorted(enumerate(self.ends), key=lambda item: (item[1].at != group.at, natural_key(item[1].at)))
        if self.keep:
            before = self.keep.tree.homes
            for a, end in order:
                stay = [worker for worker in waiting if before.get(worker) == end.at][: counts[a]]
                found += [(worker, end.at) for worker in stay]
                waiting = [worker for worker in waiting if worker not in stay]
                counts[a] -= len(stay)
        for a, end in order:
            found += [(worker, end.at) for worker in waiting[: counts[a]]]
            waiting = waiting[counts[a] :]
        return found


def _summing_switches(homes: dict[str, str], parents: dict[str, str], root: str) -> set[str]:
    """Return the switches that sum anything. A solution may have others, which sum nothing."""
    found: set[str] = set()
    for switch in homes.values():
        while switch != root and switch not in found:
            found.add(switch)
            switch = parents[switch]
    return found
