"""Where the parts of a plan's drawing stand."""

from collections import defaultdict

import networkx as nx

from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["BOX", "COLOURS", "COLUMN", "EDGE", "HEAD", "LEGEND", "ROW", "WIDTH_MIN", "Canvas"]

COLOURS = ("#1b6ca8", "#c2571a", "#2e7d32", "#7b3fa0", "#a3274b", "#00796b", "#6d4c41", "#546e7a")
"""Colours of nodes that sum."""
COLUMN, BOX, ROW, EDGE = 128, 104, 150, 40
"""Pixels of a column, of a box, from row to row, and of the margins."""
HEAD, LEGEND, WIDTH_MIN = 52, 34, 810
"""Pixels of the title and of the legend; the least width, for both."""


class Canvas:
    """The positions of a plan's drawing, in pixels from the top left.

    A box holds the workers of one switch with one home. Boxes stand below their switch, and switches above those that
    are nearer to workers.

    Parameters
    ----------
    topology : Topology
        The topology.
    plan : Plan
        The plan; the fastest tree is drawn.

    Attributes
    ----------
    at : dict of str to (x, y)
        The middle of each switch and of the ps.
    boxes : list of (switch, home, workers, x)
        The boxes of workers, and the middle of each.
    colour : dict of str to str
        The colour of each node that sums.
    width, height, base : float
        The size of the drawing, and the middle of the row of boxes.
    """

    def __init__(self, topology: Topology, plan: Plan):
        self.topology, self.plan, self.tree = topology, plan, max(plan.trees, key=lambda tree: tree.rate_gbps)
        boxes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for worker, home in self.tree.homes.items():
            path = self.tree.up[worker]
            switch = path[1] if len(path) > 1 else next(iter(topology.graph[worker]))
            boxes[switch][home].append(worker)
        leaves = [switch for switch in topology.switches if switch in boxes]
        between_switches = topology.graph.subgraph(topology.switches)
        distance = {
            switch: min(
                nx.shortest_path_length(between_switches, switch, leaf)
                for leaf in leaves
                if nx.has_path(between_switches, switch, leaf)
            )
            for switch in topology.switches
            if any(nx.has_path(between_switches, switch, leaf) for leaf in leaves)
        }
        levels = max(distance.values(), default=0)
        self.at: dict[str, tuple[float, float]] = {}
        self.boxes: list[tuple[str, str, list[str], float]] = []
        column: float = 0
        # Cables along the lowest row need a gap between switches.
        gap = any(distance.get(a) == distance.get(b) == 0 for a, b in between_switches.edges)
        floor = HEAD + ROW * (levels + bool(topology.ps)) + 40
        for switch in leaves:
            first = column
            for home, workers in sorted(
                boxes[switch].items(), key=lambda item: (item[0] != switch, natural_key(item[0]))
            ):
                self.boxes.append((switch, home, workers, EDGE + COLUMN * (column + 0.5)))
                column += 1
            self.at[switch] = (EDGE + COLUMN * (first + column) / 2, floor)
            column += 0.75 * gap
        self.width = max(2 * EDGE + COLUMN * (column - 0.75 * gap), WIDTH_MIN)
        for level in range(1, levels + 1):
            here = [switch for switch in topology.switches if distance.get(switch) == level]
            for number, switch in enumerate(here):
                self.at[switch] = (self.width * (number + 1) / (len(here) + 1), floor - ROW * level)
        if topology.ps:
            self.at[topology.ps] = (self.at[min(topology.graph[topology.ps], key=natural_key)][0], HEAD + 30)
        self.base = floor + ROW * 0.75
        self.height = self.base + 40 + LEGEND
        places = sorted(self.tree.summing_nodes, key=natural_key)
        self.colour = {place: COLOURS[number % len(COLOURS)] for number, place in enumerate(places)}
