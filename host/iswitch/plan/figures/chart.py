"""A figure as numbers, as a table of the terminal and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from iswitch.plan.figures.published import ATP, GERYON, GRID, SWITCHML

__all__ = ["Figure", "Panel", "draw", "print_figure"]

COLOURS = {GRID: "#d1495b", ATP: "#8d96a3", SWITCHML: "#edae49", GERYON: "#66a5ad"}
OWN_COLOURS = ("#00798c", "#003d5b")
TABLE_ONLY = "alone"
"""A scheme with this word in its name is printed only."""


class Panel(NamedTuple):
    """Bars over a quantity: for each scheme one value for each place; `published` has those of the paper."""

    title: str
    axis: str
    places: Sequence[object]
    values: Mapping[str, Sequence[float]]
    published: Mapping[str, Sequence[float]]


class Figure(NamedTuple):
    """A figure: its number in the paper, what its bars show, its panels, and sentences below its table."""

    number: int
    title: str
    unit: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()


def print_figure(figure: Figure, console: Console) -> None:
    """Print a table for each panel. Values of the paper are in brackets."""
    for panel in figure.panels:
        title = f"figure {figure.number}: {figure.title}, {figure.unit}, {panel.title}"
        table = Table(panel.axis, *map(str, panel.places), title=title)
        for scheme, values in panel.values.items():
            row = [f"{value:.4g}" for value in values]
            for at, value in enumerate(panel.published.get(scheme, ())):
                row[at] += f" ({value:.4g})"
            table.add_row(scheme, *row)
        console.print(table)
    for note in figure.notes:
        console.print(note, soft_wrap=True)


def draw(figure: Figure, path: Path) -> None:
    """Draw a figure as PNG or SVG, by the ending of the file's name. A short line shows the bar of the paper."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(5.5 * len(figure.panels) + 2, 3.8), layout="constrained")
    for number, panel in enumerate(figure.panels, 1):
        axes = picture.add_subplot(1, len(figure.panels), number)
        schemes = [scheme for scheme in panel.values if TABLE_ONLY not in scheme]
        own, width = iter(OWN_COLOURS), 0.85 / len(schemes)
        for at, scheme in enumerate(schemes):
            places = [place + (at - (len(schemes) - 1) / 2) * width for place in range(len(panel.places))]
            axes.bar(places, panel.values[scheme], width, label=scheme, color=COLOURS.get(scheme) or next(own))
            if scheme in panel.published:
                half, label = width / 2, "in the paper" if scheme == GRID else "_"
                left, right = [place - half for place in places], [place + half for place in places]
                axes.hlines(panel.published[scheme], left, right, color="black", linewidth=1.5, label=label)
        axes.set_xticks(range(len(panel.places)), [str(place) for place in panel.places])
        axes.set(title=panel.title, xlabel=panel.axis, ylabel=f"{figure.title}, {figure.unit}")
    picture.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
