"""A fast single tree by local search, for fabrics that are too large for the integer program.

The search looks for a tree of a given t = 1 / rate. It repairs one overloaded resource after another: a stream on it
gets another home, parent or path, or a switch stops to sum. The best move is made even if it overloads more; the
stream may then not return for some moves (tabu search), and resources that stay overloaded weigh more and more.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY
from iswitch.plan.solver.streams import Stream, Streams
from iswitch.plan.solver.tree import Resource, Tree, scheme_name

__all__ = ["LocalSearch"]

FULL = 1e-9
"""Relative overload that does not count."""
TENURE = 12
"""Moves for which a stream may not return."""
STREAMS_MAX = 16
"""Most streams on a resource that are tried for a move."""
OPENED_MAX = 12
"""Most unused switches that are tried as a home."""
MOVES_MAX = 200
MOVES_PER_SITE = 6
"""Moves after which an attempt is given up: so many, and so many more for each switch."""
HUBS_MAX = 6
"""Most unused switches that are tried as the sum of several others."""
CLOSE = 0.002
"""Relative difference of t below which no further target is set."""


class _Move(NamedTuple):
    """A change of `number` streams from one route to another; None: the stream ends."""

    stream: Stream
    before: int
    after: int
    number: int


class LocalSearch:
    """Improves single trees with one root.

    Parameters
    ----------
    streams : Streams
        The streams, and their routes.
    seed : int
        Seed of all choices.
    """

    def __init__(self, streams: Streams, *, seed: int = 1):
        self.streams, self.network, self.topology = streams, streams.network, streams.topology
        self.levels, self.root, self.sites, self.groups = streams.levels, streams.root, streams.sites, streams.groups
        self.rng = random.Random(seed)

    def improve(self, starts: Sequence[Tree], low: float, clock: Clock) -> Tree:
        """Return the fastest tree found from some trees.

        Parameters
        ----------
        starts : sequence of Tree
            Trees at their full rate, whose root is `root`.
        low : float
            No tree has a smaller t.
        clock : Clock
            The time limit.
        """
        best, floor = max(starts, key=lambda tree: tree.rate_gbps), low
        while clock.left and best.rate_gbps and (1 / best.rate_gbps) > floor * (1 + CLOSE):
            target = (floor / best.rate_gbps) ** 0.5
            if floor == low:
                # Far from the bound, a step of a fifth is more often successful than half of the distance.
                target = max(target, 1 / best.rate_gbps / 1.2)
            for start in (best, *self.rng.sample(starts, len(starts))):
                if (found := self.find(start, target, clock)) and found.rate_gbps > best.rate_gbps * (1 + FULL):
                    best = found
                    clock.report(scheme_name(self.levels), best.rate_gbps, 1 / low if low else INFINITY)
                    break
            else:
                floor = target
        return best

    def find(self, tree: Tree, t: float, clock: Clock) -> Tree | None:
        """Return a tree of at most this t, or None if none was found in time."""
        if not self._start(tree, t, clock):
            return None
        tabu: dict[tuple[Stream, int], int] = {}
        for move in range(MOVES_MAX + MOVES_PER_SITE * len(self.sites)):
            over = np.flatnonzero(self.load > self.limit * (1 + FULL))
            if not len(over):
                return self.streams.tree(self.count)
            if not clock.left:
                break
            excess = self.weight[over] * (self.load[over] / self.limit[over] - 1)
            place = int(over[int(np.argmax(excess))]) if self.rng.random() < 0.7 else int(self.rng.choice(list(over)))
            chosen, change = self._best_moves(place, tabu, move)
            if change > -FULL:
                self.weight[over] += 1
            for each in chosen:
                self._make(each)
                tabu[each.stream, each.before] = move + TENURE + self.rng.randrange(TENURE)
        return None

    def _start(self, tree: Tree, t: float, clock: Clock) -> bool:
        """Take over a tree; return False if there is no time to do so."""
        self.limit: npt.NDArray[np.float64] = np.maximum(self.network.gbps * np.where(self.network.rated, t, 1.0), FULL)
        self.weight = np.ones(len(self.limit))
        self.load = np.zeros(len(self.limit))
        self.count: dict[Stream, dict[int, int]] = defaultdict(dict)
        self.users: dict[int, set[tuple[Stream, int]]] = defaultdict(set)
        self.members: dict[str, int] = defaultdict(int)
        slots = Resource("slots", self.root)
        if slots in self.network.numbers:
            self.load[self.network.numbers[slots]] += 1
        for owner, group in self.groups.items():
            if not clock.left:
                return False
            for worker in group.workers:
                cut = 0 if group.at == worker else 1
                self._add_path(Stream("gradient", group.at, owner), tree.up[worker][cut:])
                if self.topology.job.unicast:
                    path = tree.down[worker][::-1]
                    self._add_path(Stream("result", group.at, owner), path[cut:])
        for site in tree.parents:
            self._add_path(Stream("sum", site, site), tree.up[site])
        return True

    def _add_path(self, stream: Stream, path: tuple[str, ...]) -> None:
        self._add(stream, self.streams.routes(stream).number(tuple(path)), 1)

    def _add(self, stream: Stream, route: int, count: int) -> None:
        """Add streams to a route; a negative count removes them."""
        routes, now = self.streams.routes(stream), self.count[stream]
        row = routes.places[route]
        np.add.at(self.load, row, count * routes.sizes[route])
        now[route] = now.get(route, 0) + count
        if stream.kind != "result":
            self.members[routes.ends[route]] += count
        if now[route]:
            for place in row:
                self.users[int(place)].add((stream, route))
        else:
            del now[route]
            for place in row:
                self.users[int(place)].discard((stream, route))

    def _is_used(self, node: str) -> bool:
        return node == self.root or bool(self.count.get(Stream("sum", node, node)))

    def _penalty(self, places: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return how much the penalty grows if routes get these loads, for each row."""
        before, limit = self.load[places], self.limit[places]
        grown = np.maximum(before + sizes - limit, 0.0) - np.maximum(before - limit, 0.0)
        found: npt.NDArray[np.float64] = (self.weight[places] * grown / limit).sum(axis=-1)
        # Of equals, the one with less traffic.
        return found + 1e-7 * (sizes / limit).sum(axis=-1)

    def _best_moves(self, place: int, tabu: dict[tuple[Stream, int], int], now: int) -> tuple[list[_Move], float]:
        """Return the best change that relieves a resource, and the change of the penalty."""
        streams = sorted(self.users[place])
        if len(streams) > STREAMS_MAX:
            streams = self.rng.sample(streams, STREAMS_MAX)
        unused = [site for site in self.sites if not self._is_used(site)]
        opened = self._opening_costs(unused)
        best: list[_Move] = []
        least = INFINITY
        for stream, route in streams:
            number = self.count[stream][route]
            for count in {1, number}:
                moves, change = self._best_route(stream, route, count, opened, tabu, now)
                if change < least:
                    best, least = moves, change
        closing = [stream for stream, _ in streams if stream.kind == "sum"]
        if self.levels != 1 and len(closing) > 2:
            closing = self.rng.sample(closing, 2)
        for stream in closing:
            moves, change = self._closing(stream)
            if change < least:
                best, least = moves, change
        if self.levels != 1:
            moves, change = self._hub(place, unused)
            if change < least:
                best, least = moves, change
        return best, least

    def _hub(self, place: int, unused: list[str]) -> tuple[list[_Move], float]:
        """Return the moves that open a switch to sum other sums on a resource, and the change of the penalty."""
        sums = sorted((stream, route) for stream, route in self.users[place] if stream.kind == "sum")
        best: list[_Move] = []
        least, saved, before = INFINITY, self.load.copy(), self._total()
        if len(sums) < 3:
            return best, least
        for site in self.rng.sample(unused, min(len(unused), HUBS_MAX)):
            own = Stream("sum", site, site)
            routes = self.streams.routes(own)
            rows = routes.of_end[self.root]
            if not rows:
                continue
            route = rows[int(np.argmin(self._penalty(routes.places[rows], routes.sizes[rows])))]
            moves = [_Move(own, -1, route, 1)]
            self._shift(own, route, 1)
            for stream, old in self.rng.sample(sums, len(sums)):
                known = self.streams.routes(stream)
                if not (rows := known.of_end.get(site, [])):
                    continue
                self._shift(stream, old, -1)
                gain = float(self._penalty(known.places[old], known.sizes[old]))
                costs = self._penalty(known.places[rows], known.sizes[rows])
                at = int(np.argmin(costs))
                if costs[at] < gain - FULL:
                    self._shift(stream, rows[at], 1)
                    moves.append(_Move(stream, old, rows[at], 1))
                    if (change := self._total() - before) < least:
                        best, least = list(moves), change
                else:
                    self._shift(stream, old, 1)
            self.load = saved.copy()
        return best, least

    def _opening_costs(self, unused: list[str]) -> dict[str, tuple[float, int]]:
        """Return for some unused switches the penalty of their sum's best route, and that route."""
        found = {}
        if len(unused) > OPENED_MAX:
            unused = self.rng.sample(unused, OPENED_MAX)
        for site in unused:
            routes = self.streams.routes(Stream("sum", site, site))
            rows = [row for row, end in enumerate(routes.ends) if self._is_used(end)]
            if rows:
                costs = self._penalty(routes.places[rows], routes.sizes[rows])
                at = int(np.argmin(costs))
                found[site] = (float(costs[at]), rows[at])
        return found

    def _below(self, site: str) -> set[str]:
        """Return the switches whose sums are part of a switch's sum, and the switch itself."""
        children = defaultdict(list)
        for each in self.sites:
            for route in self.count.get(Stream("sum", each, each), ()):
                children[self.streams.routes(Stream("sum", each, each)).ends[route]].append(each)
        found, waiting = {site}, [site]
        while waiting:
            for child in children[waiting.pop()]:
                found.add(child)
                waiting.append(child)
        return found

    def _best_route(
        self,
        stream: Stream,
        before: int,
        count: int,
        opened: dict[str, tuple[float, int]],
        tabu: dict[tuple[Stream, int], int],
        now: int,
    ) -> tuple[list[_Move], float]:
        routes = self.streams.routes(stream)
        self._shift(stream, before, -count)
        old_end = routes.ends[before]
        gain = -float(self._penalty(routes.places[before], count * routes.sizes[before]))
        costs = self._penalty(routes.places, count * routes.sizes)
        last = stream.kind != "result" and old_end != self.root and self.members[old_end] == count
        if last:
            ((own, own_count),) = self.count[Stream("sum", old_end, old_end)].items()
            own_routes = self.streams.routes(Stream("sum", old_end, old_end))
            gain += float(self._penalty(own_routes.places[own], -own_count * own_routes.sizes[own]))
        forbidden = self._below(stream.start) if stream.kind == "sum" else set()
        for end, rows in routes.of_end.items():
            if end in forbidden:
                costs[rows] = INFINITY
            elif stream.kind != "result" and not self._is_used(end):
                if end not in opened or self._parent_by(end, opened[end][1]) in forbidden:
                    costs[rows] = INFINITY
                else:
                    costs[rows] += opened[end][0]
        for row in range(len(costs)):
            if row == before or tabu.get((stream, row), -1) > now:
                costs[row] = INFINITY
        self._shift(stream, before, count)
        after = int(np.argmin(costs))
        if costs[after] == INFINITY:
            return [], INFINITY
        moves = [_Move(stream, before, after, count)]
        end = routes.ends[after]
        if stream.kind != "result" and not self._is_used(end):
            moves.insert(0, _Move(Stream("sum", end, end), -1, opened[end][1], 1))
        return moves, gain + float(costs[after]) + self.rng.random() * 1e-9

    def _parent_by(self, site: str, route: int) -> str:
        return self.streams.routes(Stream("sum", site, site)).ends[route]

    def _shift(self, stream: Stream, route: int, count: int) -> None:
        """Add streams to the loads alone."""
        routes = self.streams.routes(stream)
        np.add.at(self.load, routes.places[route], count * routes.sizes[route])

    def _closing(self, stream: Stream) -> tuple[list[_Move], float]:
        """Return the moves after which a switch sums nothing, and the change of the penalty."""
        site, saved = stream.start, self.load.copy()
        before = self._total()
        moves: list[_Move] = []
        below = self._below(site)
        for member in [each for each in self.count if each.kind != "result"]:
            routes = self.streams.routes(member)
            for route in [each for each in self.count[member] if routes.ends[each] == site]:
                count = self.count[member][route]
                allowed = [
                    row
                    for row, end in enumerate(routes.ends)
                    if end != site and self._is_used(end) and (member.kind == "gradient" or end not in below)
                ]
                if not allowed:
                    self.load = saved
                    return [], INFINITY
                for _ in range(count):
                    self._shift(member, route, -1)
                    costs = self._penalty(routes.places[allowed], routes.sizes[allowed])
                    after = allowed[int(np.argmin(costs))]
                    self._shift(member, after, 1)
                    moves.append(_Move(member, route, after, 1))
        for route, count in self.count[stream].items():
            self._shift(stream, route, -count)
        change = self._total() - before
        self.load = saved
        return moves, change

    def _total(self) -> float:
        limit = self.limit[:-1]
        return float((self.weight[:-1] * np.maximum(self.load[:-1] - limit, 0.0) / limit).sum())

    def _make(self, move: _Move) -> None:
        """Make a move; a switch that sums nothing any more stops to send its sum."""
        if move.before >= 0:
            self._add(move.stream, move.before, -move.number)
        self._add(move.stream, move.after, move.number)
        if move.before < 0 or move.stream.kind == "result":
            return
        node = self.streams.routes(move.stream).ends[move.before]
        while node != self.root and not self.members[node]:
            own = Stream("sum", node, node)
            if not self.count[own]:
                break
            ((route, count),) = list(self.count[own].items())
            self._add(own, route, -count)
            node = self.streams.routes(own).ends[route]
