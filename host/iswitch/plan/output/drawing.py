"""A plan as an SVG drawing: switches, cables with their loads, and which node sums which workers."""

from collections import defaultdict
from html import escape
from itertools import pairwise

from iswitch.plan.output.cable_loads import CableLoads, Direction, format_loads
from iswitch.plan.output.canvas import BOX, COLOURS, EDGE, Canvas
from iswitch.plan.output.words import format_gbps, join_names, short
from iswitch.plan.solver.tree import Plan, Resource, capacities, total_loads
from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["draw_svg"]

FULL, BUSY, FREE, INK, PAPER = "#c62828", "#e09f1f", "#9aa5ae", "#1c2328", "#ffffff"
"""Colours of full, busy and other cables, of text, and of the background."""


def draw_svg(topology: Topology, plan: Plan) -> str:
    """Return the drawing as SVG text.

    Loads are of all trees; arrows and homes are of the fastest one. Solid arrows are sums, dashed ones gradients, in
    the colour of the node that sums them.
    """
    canvas = Canvas(topology, plan)
    more = f", the fastest of {len(plan.trees)} trees" if len(plan.trees) > 1 else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {canvas.width:g} {canvas.height:g}" '
        f'width="{canvas.width:g}" '
        f'height="{canvas.height:g}" font-family="DejaVu Sans, Helvetica, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        "<defs>"
        + "".join(
            f'<marker id="to{number}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
            for number, colour in enumerate(COLOURS)
        )
        + "</defs>",
        f'<text x="{EDGE}" y="28" font-size="16" '
        f'font-weight="bold">{escape(plan.scheme)}{more}: {format_gbps(plan.rate_gbps)} Gb/s from each of '
        f"{len(canvas.tree.homes)} workers</text>",
    ]
    parts += _cables(canvas) + _workers(canvas) + _nodes(canvas) + _legend(canvas)
    return "\n".join(parts) + "\n</svg>\n"


def _shade(*directions: Direction) -> str:
    """Return the colour of a cable: that of its fullest direction."""
    if any(each.is_full for each in directions):
        return FULL
    return BUSY if max(each.share for each in directions) >= 0.8 else FREE


def _text(x: float, y: float, text: str, colour: str = INK, more: str = "") -> str:
    """Return text that is centred at x, with a margin in the colour of the paper."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{colour}" stroke="{PAPER}" stroke-width="4" '
        'paint-order="stroke" '
        f'stroke-linejoin="round"{more}>{escape(text)}</text>'
    )


def _cables(canvas: Canvas) -> list[str]:
    """Draw the cables between switches and to the ps: a line, the streams above it, the loads of both directions."""
    topology, cables = canvas.topology, CableLoads(canvas.topology, canvas.plan)
    streams: dict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
    for child, path in canvas.tree.up.items():
        for hop in pairwise(path):
            kind = (path[-1], child in canvas.tree.parents)
            if kind not in streams[hop]:
                streams[hop].append(kind)
    parts, labels = [], []
    for a, b in sorted(
        (tuple(sorted(edge, key=natural_key)) for edge in topology.graph.edges),
        key=lambda edge: [natural_key(end) for end in edge],
    ):
        if a not in canvas.at or b not in canvas.at:
            continue
        (ax, ay), (bx, by) = canvas.at[a], canvas.at[b]
        # A cable along a row bends around nodes between its ends.
        between = [other for other, (x, y) in canvas.at.items() if y == ay == by and min(ax, bx) < x < max(ax, bx)]
        bend = 150 if between else 0
        there, back = cables.both(a, b)
        colour = _shade(there, back)
        parts.append(
            f'<path d="M{ax:.1f} {ay:.1f}Q{(ax + bx) / 2:.1f} {(ay + by) / 2 - bend:.1f} {bx:.1f} {by:.1f}" '
            f'fill="none" stroke="{colour}" '
            'stroke-opacity="0.35" stroke-width="14"/>'
        )
        lanes = [(hop, kind) for hop in ((a, b), (b, a)) for kind in streams[hop]]
        for lane, ((at, _), (home, summed)) in enumerate(lanes):
            shift = (lane - (len(lanes) - 1) / 2) * 5
            number = COLOURS.index(canvas.colour[home])
            parts.append(
                f'<path d="{_visible_part(canvas, a, b, bend, shift, back=at == b)}" fill="none" '
                f'stroke="{canvas.colour[home]}" stroke-width="2.5"'
                f'{"" if summed else " stroke-dasharray=" + chr(34) + "5 4" + chr(34)} marker-end="url(#to{number})"/>'
            )
        if not (name := topology.graph.edges[a, b].get("name")) and not there.load and not back.load:
            continue
        # The label is nearer to the end with fewer cables, so that labels do not meet. Arrows show the directions.
        low = 0.5 if ay == by or topology.ps in (a, b) else 0.22 if ay > by else 0.78
        mx, my = ax + (bx - ax) * low, ay + (by - ay) * low - bend / 2
        first = (ay > by) if ay != by else ax < bx
        signs = "↑↓" if ay != by else "→←"
        one, other = (there, back) if first else (back, there)
        labels.append(_text(mx, my - 3, name, more=' font-weight="bold"') if name else "")
        labels.append(
            _text(
                mx,
                my + (12 if name else 4),
                format_loads(signs, one, other),
                FULL if colour == FULL else INK,
                ' font-size="11"',
            )
        )
    return parts + [label for label in labels if label]


def _visible_part(canvas: Canvas, a: str, b: str, bend: float, shift: float, *, back: bool) -> str:
    """Return the path of the part of a cable's curve that no node covers, from a to b, or `back`."""
    (ax, ay), (bx, by) = canvas.at[a], canvas.at[b]
    cx, cy = (ax + bx) / 2, (ay + by) / 2 - bend
    point = lambda t: (
        (1 - t) ** 2 * ax + 2 * t * (1 - t) * cx + t * t * bx,
        (1 - t) ** 2 * ay + 2 * t * (1 - t) * cy + t * t * by,
    )
    outside = lambda t, x, y: abs(point(t)[0] - x) > BOX / 2 + 4 or abs(point(t)[1] - y) > 30
    steps = [number / 100 for number in range(101)]
    first = next((t for t in steps if outside(t, ax, ay)), 0.3)
    last = next((t for t in reversed(steps) if outside(t, bx, by)), 0.7)
    along = [point(first + (last - first) * number / 12) for number in (range(12, -1, -1) if back else range(13))]
    length = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5 or 1.0
    dx, dy = -(by - ay) / length * shift, (bx - ax) / length * shift
    return "M" + "L".join(f"{x + dx:.1f} {y + dy:.1f}" for x, y in along)


def _workers(canvas: Canvas) -> list[str]:
    """Draw the boxes of workers and their cables: of each box, the fullest one."""
    cables = CableLoads(canvas.topology, canvas.plan)
    parts = []
    for switch, home, workers, x in canvas.boxes:
        sx, sy = canvas.at[switch]
        each_cable = [cables.both(worker, switch) for worker in workers]
        up, down = max(each_cable, key=lambda cable: max(each.share for each in cable))
        shade = _shade(up, down)
        colour, number = canvas.colour[home], COLOURS.index(canvas.colour[home])
        parts.append(
            f'<path d="M{x:.1f} {canvas.base - 18:.1f}L{sx:.1f} {sy + 26:.1f}" fill="none" '
            f'stroke="{shade}" stroke-opacity="0.35" stroke-width="8"/>'
        )
        parts.append(
            f'<path d="M{x:.1f} {canvas.base - 18:.1f}L{(x + 3 * sx) / 4:.1f} '
            f'{(canvas.base - 18 + 3 * (sy + 26)) / 4:.1f}" fill="none" '
            f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="5 4" marker-end="url(#to{number})"/>'
        )
        parts.append(
            f'<rect x="{x - BOX / 2:.1f}" y="{canvas.base - 18:.1f}" width="{BOX}" height="36" rx="6" '
            f'fill="{PAPER}" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        name = join_names(workers)
        shown = name if len(name) < 17 else f"{len(workers)} workers"
        title = f"<title>{escape(name)}</title>"
        parts.append(f'<text x="{x:.1f}" y="{canvas.base - 2:.1f}" text-anchor="middle">{title}{escape(shown)}</text>')
        parts.append(
            f'<text x="{x:.1f}" y="{canvas.base + 12:.1f}" text-anchor="middle" font-size="11" '
            f'fill="{colour}">to {escape(home)}</text>'
        )
        parts.append(
            _text(
                (x + sx) / 2,
                (canvas.base - 18 + sy + 26) / 2 + 8,
                f"{short(up.load)}/{short(up.capacity)}"
                if up.capacity == down.capacity
                else format_loads("↑↓", up, down),
                FULL if shade == FULL else INK,
                ' font-size="11"',
            )
        )
    return parts


def _nodes(canvas: Canvas) -> list[str]:
    """Draw the switches and the ps."""
    topology, load, available = (
        canvas.topology,
        total_loads(canvas.topology, canvas.plan.trees),
        capacities(canvas.topology),
    )
    parts = []
    for node, (x, y) in canvas.at.items():
        colour = canvas.colour.get(node, FREE)
        shape = 'rx="26"' if node == topology.ps else 'rx="4"'
        parts.append(
            f'<rect x="{x - BOX / 2:.1f}" y="{y - 26:.1f}" width="{BOX}" height="52" {shape} fill="{PAPER}" '
            f'stroke="{colour}" '
            f'stroke-width="{3 if node in canvas.colour else 1.5}"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{y - 5:.1f}" text-anchor="middle" font-weight="bold">{escape(node)}</text>')
        resource = Resource("ingress" if node == topology.ps else "capacity", node)
        taken = load.get(resource, 0.0)
        text = (
            "forwards"
            if not taken
            else f"sums {short(taken)}/{short(available[resource])}"
            if resource in available
            else f"takes {short(taken)}"
        )
        full = resource in available and taken >= available[resource] * (1 - 1e-6)
        parts.append(
            f'<text x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle" font-size="11" '
            f'fill="{FULL if full else INK}">{text}</text>'
        )
    return parts


def _legend(canvas: Canvas) -> list[str]:
    y = canvas.height - 14
    note = (
        "Load / capacity in Gb/s, per direction; red means full. Solid arrows are partial sums, dashed arrows are "
        "gradients, in the colour of the node that sums them."
    )
    return [f'<text x="{EDGE}" y="{y:.1f}" font-size="11" fill="#546e7a">{note}</text>']
