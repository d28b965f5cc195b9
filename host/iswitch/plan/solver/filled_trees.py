"""Trees that are made for a given rate by filling capacities, as starts of a search in large fabrics.

Sums of several levels: each switch first takes its own workers, as many as fit. Then switches join the tree, those with
the most capacity left first. Each sends its sum to the first switch in the tree that has room for one more. So the
capacity that is left in the tree is always the most that is possible.

Sums of one level: switches are opened one after another, those of the highest capacity first. Each takes its own
workers and then those of the switches that would be opened last, until it is full.

Workers that are left go wherever there is room. If there is none, there is no tree of this rate.
"""

from collections import defaultdict

import numpy as np

from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.streams import Stream, Streams
from iswitch.plan.solver.tree import Resource, Tree

__all__ = ["fastest_filled_tree", "fill"]

FULL = 1e-9
"""Relative overload that does not count."""
CLOSE = 0.001
"""Relative difference of t below which no further t is tried."""
LEAST = 1e-3
"""The least t that is tried, as a part of the known one; for fabrics without a bound."""


def fastest_filled_tree(streams: Streams, low: float, high: float, clock: Clock) -> Tree | None:
    """Return the fastest tree of several t between `low` and `high`, by bisection; None if no t gives a tree.

    Parameters
    ----------
    streams : Streams
        The streams of trees with one root.
    low, high : float
        No tree has a smaller t than `low`; trees of `high` are known.
    clock : Clock
        The time limit.
    """
    best: Tree | None = None
    low = max(low, high * LEAST)
    t = low * (1 + FULL)
    while clock.left and high > low * (1 + CLOSE):
        if (found := fill(streams, t)) and found.rate_gbps * t > 1 - 1e-6:
            best, high = found, min(t, 1 / found.rate_gbps)
        else:
            low = max(low, t)
        t = (low * high) ** 0.5
    return best


def fill(streams: Streams, t: float) -> Tree | None:
    """Return a tree of at most this t, or None if filling finds none."""
    return _Filling(streams, t).tree()


class _Filling:
    """The loads while a tree of a given t is made."""

    def __init__(self, streams: Streams, t: float):
        network = streams.network
        self.streams, self.root = streams, streams.root
        self.left = np.maximum(network.gbps * np.where(network.rated, t, 1.0), FULL) * (1 + FULL)
        self.counts: dict[Stream, dict[int, int]] = defaultdict(dict)
        self.waiting = {owner: len(group.workers) for owner, group in streams.groups.items()}
        self.gradients = {owner: Stream("gradient", group.at, owner) for owner, group in streams.groups.items()}
        self.at: dict[str, list[str]] = defaultdict(list)
        for owner, group in streams.groups.items():
            self.at[group.at].append(owner)
        slots = Resource("slots", self.root)
        if slots in network.numbers:
            self.left[network.numbers[slots]] -= 1

    def tree(self) -> Tree | None:
        """Return the tree, or None if something does not fit."""
        if (self.left < 0).any() or not self._send_results():
            return None
        self._take_own(self.root)
        if self.streams.levels == 1:
            ends = self._open_sites()
        else:
            ends = self._join_sites()
        for owner, count in self.waiting.items():
            for end in ends if count else ():
                self.waiting[owner] -= self._take(self.gradients[owner], end, self.waiting[owner])
        if any(self.waiting.values()):
            return None
        self._drop_idle()
        return self.streams.tree(self.counts)

    def _room(self, stream: Stream, end: str) -> tuple[int, int]:
        """Return how many streams fit the best route to an end, and this route."""
        routes = self.streams.routes(stream)
        if not (rows := routes.of_end.get(end)):
            return 0, -1
        sizes = routes.sizes[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(sizes > 0, self.left[routes.places[rows]] / sizes, np.inf).min(axis=1, initial=np.inf)
        best = int(np.argmax(room))
        return int(min(room[best], 1e9)), rows[best]

    def _take(self, stream: Stream, end: str, most: int) -> int:
        """Send as many of `most` streams to an end as fit, over one route after another, and return their number."""
        taken = 0
        while taken < most:
            room, route = self._room(stream, end)
            if (count := min(room, most - taken)) <= 0:
                break
            self._add(stream, route, count)
            taken += count
        return taken

    def _add(self, stream: Stream, route: int, count: int) -> None:
        routes, now = self.streams.routes(stream), self.counts[stream]
        np.add.at(self.left, routes.places[route], -count * routes.sizes[route])
        now[route] = now.get(route, 0) + count

    def _send_results(self) -> bool:
        """Send each worker its results, if it gets a copy of its own; return False if they do not fit."""
        if not self.streams.topology.job.unicast:
            return True
        return all(
            self._take(Stream("result", group.at, owner), self.root, len(group.workers)) == len(group.workers)
            for owner, group in self.streams.groups.items()
        )

    def _take_own(self, site: str) -> None:
        for owner in self.at.get(site, ()):
            self.waiting[owner] -= self._take(self.gradients[owner], site, self.waiting[owner])

    def _capacity(self, site: str) -> float:
        number = self.streams.network.numbers.get(Resource("capacity", site))
        return float("inf") if number is None else float(self.left[number])

    def _open_sites(self) -> list[str]:
        """Open switches whose sums go to the root until no worker is left, and return all ends of gradients."""
        ends = [self.root]
        sites = sorted(self.streams.sites, key=lambda site: -self._capacity(site))
        last_first = [owner for site in reversed(sites) for owner in self.at.get(site, ())]
        last_first = [*(owner for owner in self.waiting if owner not in set(last_first)), *last_first]
        for site in sites:
            if not any(self.waiting.values()):
                break
            own = Stream("sum", site, site)
            room, route = self._room(own, self.root)
            if room < 1:
                continue
            self._add(own, route, 1)
            before = sum(self.waiting.values())
            self._take_own(site)
            for owner in last_first:
                if self._capacity(site) < self.streams.topology.job.gradient_size:
                    break
                self.waiting[owner] -= self._take(self.gradients[owner], site, self.waiting[owner])
            if sum(self.waiting.values()) == before:
                self._add(own, route, -1)
                del self.counts[own]
            else:
                ends.append(site)
        return ends

    def _join_sites(self) -> list[str]:
        """Let switches join the tree, and return all ends of gradients."""
        partial = self.streams.topology.job.partial_size
        for site in self.streams.sites:
            self._take_own(site)
        homes = {
            site for site in self.streams.sites if any(self.counts[self.gradients[each]] for each in self.at[site])
        }
        joined, with_room = [self.root], [self.root]
        for site in sorted(self.streams.sites, key=lambda site: -self._capacity(site)):
            if site not in homes and self._capacity(site) < 2 * partial:
                continue
            own = Stream("sum", site, site)
            with_room = [parent for parent in with_room if self._capacity(parent) >= partial]
            for parent in with_room:
                room, route = self._room(own, parent)
                if room >= 1:
                    self._add(own, route, 1)
                    joined.append(site)
                    with_room.append(site)
                    break
            else:
                self._release(site)
        return joined

    def _release(self, site: str) -> None:
        """Take back the workers of a switch that cannot join the tree."""
        for owner in self.at.get(site, ()):
            stream = self.gradients[owner]
            for route in [route for route in self.counts[stream] if self.streams.routes(stream).ends[route] == site]:
                count = self.counts[stream][route]
                self._add(stream, route, -count)
                del self.counts[stream][route]
                self.waiting[owner] += count

    def _drop_idle(self) -> None:
        """Let switches that sum nothing leave the tree."""
        while True:
            ends = {
                self.streams.routes(stream).ends[route]
                for stream, taken in self.counts.items()
                if stream.kind != "result"
                for route, count in taken.items()
                if count
            }
            idle = [stream for stream in self.counts if stream.kind == "sum" and stream.start not in ends]
            if not idle:
                return
            for stream in idle:
                del self.counts[stream]
