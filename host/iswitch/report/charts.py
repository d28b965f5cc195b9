"""Charts as inline SVG: lines over time or steps, and bars of parts. The page's style (`markup`) gives the colours."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from iswitch.report.numbers import nice_ticks, short_number

__all__ = ["COLOURS", "Series", "line_chart", "share_bar"]

COLOURS = 8
"""Colours of the page's style. Further series take the same colours again, with dashes."""
_WIDTH, _HEIGHT = 640, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 28, 40
_SLICES = 240
"""The most tooltips of a chart. If there are more points, each tooltip shows the point next to its place."""
_BAR_HEIGHT = 34


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes
    ----------
    name : str
        What the legend and the tooltips call the line.
    points : sequence of tuple of (float, float or None)
        Places and values, in ascending order of the places. The line has a gap where a value is None.
    dashed : bool
        Draw the line with dashes.
    colour : int or None
        Number of the colour. None: the number of the series in its chart.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    colour: int | None = None

    def style(self, number: int) -> str:
        """Return the classes of the line, given its number in the chart."""
        colour = number if self.colour is None else self.colour
        return f"c{colour % COLOURS}" + (" dashed" if self.dashed or colour >= COLOURS else "")


@dataclass(frozen=True)
class _Frame:
    """The ranges of both axes, as ticks."""

    x_ticks: list[float]
    y_ticks: list[float]
    x_end: float

    def x(self, value: float) -> float:
        first = self.x_ticks[0]
        return round(_LEFT + (value - first) / (self.x_end - first) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return round(_HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM), 1)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    whole: bool = False,
    note: str = "",
    empty: str = "no values",
) -> str:
    """Return a figure of HTML: a title, an SVG with axes and lines, and a legend.

    Parameters
    ----------
    title : str
        Title of the figure.
    series : sequence of Series
        The lines.
    x_label, y_label : str
        What the axes show, with the unit.
    whole : bool
        The values are whole numbers, so that only such are at the vertical axis.
    note : str
        A sentence below the title; may be empty.
    empty : str
        What the figure says in place of the chart if no line has a value.
    """
    head = f"<figcaption>{escape(title)}</figcaption>" + (f'<p class="note">{escape(note)}</p>' if note else "")
    places = [x for line in series for x, value in line.points]
    values = [value for line in series for _, value in line.points if value is not None]
    if not values:
        return f'<figure class="chart">{head}<p class="empty">{escape(empty)}</p></figure>'
    x_ticks = nice_ticks(min(0.0, *places), max(places), 8)
    end = max(places) if max(places) > x_ticks[0] else x_ticks[-1]
    frame = _Frame([x for x in x_ticks if x <= end], nice_ticks(min(0.0, *values), max(values), whole=whole), end)
    parts = [*_axes(frame, x_label, y_label)]
    for number, line in enumerate(series):
        parts += _line(frame, line, line.style(number))
    parts += _slices(frame, series, x_label)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
    return f'<figure class="chart">{head}{svg}{_legend(series)}</figure>'


def _axes(frame: _Frame, x_label: str, y_label: str) -> list[str]:
    """Return grid lines, numbers and labels."""
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in frame.y_ticks:
        y = frame.y(tick)
        parts.append(f'<line class="{"axis" if tick == 0 else "grid"}" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 7}" y="{y + 4:.1f}">{short_number(tick)}</text>')
    for tick in frame.x_ticks:
        x = frame.x(tick)
        parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text class="tick middle" x="{x}" y="{bottom + 17}">{short_number(tick)}</text>')
    parts.append(f'<text class="label" x="4" y="11">{escape(y_label)}</text>')
    parts.append(f'<text class="label end" x="{right}" y="{_HEIGHT - 6}">{escape(x_label)}</text>')
    return parts


def _line(frame: _Frame, line: Series, style: str) -> list[str]:
    """Return a line in pieces between its gaps. A point between two gaps is a dot."""
    parts = []
    for drawn, group in itertools.groupby(line.points, key=lambda point: point[1] is not None):
        piece = [(frame.x(x), frame.y(value)) for x, value in group if value is not None]
        if not drawn:
            continue
        if len(piece) == 1:
            parts.append(f'<circle class="dot {style}" cx="{piece[0][0]}" cy="{piece[0][1]}" r="3"/>')
        else:
            path = " ".join(f"{x},{y}" for x, y in piece)
            parts.append(f'<polyline class="line {style}" points="{path}"/>')
    return parts


def _slices(frame: _Frame, series: Sequence[Series], x_label: str) -> list[str]:
    """Return a column for each place, whose tooltip lists all lines there."""
    rows: dict[float, list[str]] = {}
    for line in series:
        for x, value in line.points:
            rows.setdefault(x, []).append(f"{line.name}: {'no value' if value is None else short_number(value)}")
    places = sorted(rows)
    places = places[:: -(-len(places) // _SLICES)]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(places)]
    parts = []
    for x, left, right in zip(places, [frame.x_ticks[0], *middles], [*middles, frame.x_end]):
        text = "\n".join([f"{x_label}: {x:,.6g}", *rows[x]])
        a, b = frame.x(left), frame.x(right)
        parts.append(
            f'<g class="slice"><title>{escape(text)}</title>'
            f'<rect x="{a}" y="{_TOP}" width="{max(0.5, round(b - a, 1))}" height="{_HEIGHT - _TOP - _BOTTOM}"/>'
            f'<line x1="{frame.x(x)}" x2="{frame.x(x)}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/></g>'
        )
    return parts


def _legend(series: Sequence[Series]) -> str:
    rows = "".join(
        f'<li><svg xmlns="http://www.w3.org/2000/svg" class="key" viewBox="0 0 22 8" aria-hidden="true">'
        f'<line class="line {line.style(number)}" x1="1" x2="21" y1="4" y2="4"/></svg>{escape(line.name)}</li>'
        for number, line in enumerate(series)
    )
    return f'<ul class="legend">{rows}</ul>'


def share_bar(title: str, parts: dict[str, float], unit: str) -> str:
    """Return a figure of HTML: a bar that shows how parts divide a whole.

    Parameters
    ----------
    title : str
        Title of the figure.
    parts : dict of str to float
        Size of each part, not negative, by name.
    unit : str
        Unit of the sizes.
    """
    total = sum(parts.values())
    if total <= 0:
        return f'<figure class="chart"><figcaption>{escape(title)}</figcaption><p class="empty">no values</p></figure>'
    shapes, rows, at = [], [], 0.0
    for number, (name, size) in enumerate(parts.items()):
        text = f"{name}: {size:,.1f} {unit}, {size / total:.1%}"
        width = size / total * _WIDTH
        shapes.append(
            f'<rect class="part c{number % COLOURS}" x="{at:.1f}" y="0" width="{width:.1f}" height="{_BAR_HEIGHT}">'
            f"<title>{escape(text)}</title></rect>"
        )
        rows.append(
            f'<li><svg xmlns="http://www.w3.org/2000/svg" class="key" viewBox="0 0 22 8" aria-hidden="true">'
            f'<rect class="part c{number % COLOURS}" width="22" height="8"/></svg>{escape(text)}</li>'
        )
        at += width
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_BAR_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(shapes)}</svg><ul class="legend">{"".join(rows)}</ul></figure>'
    )
