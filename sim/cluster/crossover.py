"""`python -m sim.cluster.crossover`: from which size, number of workers and rate the switch is ahead, and where not.

Each point is one sum, without any time of computing: the switch and the best of the other systems, on the same hosts
and cables. All of them are the models of `iswitch.estimate`. Nothing is measured. The picture also has the switch as it
would be if a call of the driver took no time.
"""

import json
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from iswitch.estimate.setting import Setting
from iswitch.estimate.systems import ISWITCH, SYSTEMS

__all__ = ["CLUSTERS", "RATES_GBPS", "SIZES", "Cluster", "Point", "format_size", "measure", "sizes_ahead"]

OUT = Path(__file__).parents[2] / "build" / "crossover.json"
SIZES = [1_000, 4_000, 16_000, 40_020, 157_520, 500_000, 1_600_000, 6_410_000, 25_000_000]
"""Bytes of a vector; three of them are the paper's."""
RATES_GBPS = [1, 10, 25, 100]
SHORT_NAMES = {
    "parameter server": "server",
    "streaming server": "stream",
    "sharded server": "shards",
    "ring": "ring",
    "tree of workers": "tree",
}


class Cluster(NamedTuple):
    """A number of workers, and how many of them are below one switch; None: all."""

    workers: int
    rack: int | None = None

    def __str__(self) -> str:
        return f"{self.workers} workers" + (f", racks of {self.rack}" if self.rack else ", one switch")


CLUSTERS = [Cluster(4), Cluster(8), Cluster(32, 8)]


class Point(NamedTuple):
    """One sum.

    Parameters
    ----------
    best : str
        The fastest of the other systems.
    best_s, ours_s : float
        Its seconds, and those of the switch.
    free_call_s : float
        Those of the switch if a call of the driver took no time.
    """

    best: str
    best_s: float
    ours_s: float
    free_call_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast as the best other system the switch is."""
        return self.best_s / self.ours_s


def measure(size_bytes: int, cluster: Cluster, rate_gbps: float) -> Point:
    """Return the point of a size, a cluster and a rate."""
    setting = Setting(
        size_bytes=-(-size_bytes // 4) * 4, workers=cluster.workers, rack=cluster.rack, rate_bps=rate_gbps * 1e9
    )
    total_s = {name: run(setting).total_s for name, run in SYSTEMS.items()}
    ours_s = total_s.pop(ISWITCH)
    best = min(total_s, key=lambda name: total_s[name])
    return Point(best, total_s[best], ours_s, SYSTEMS[ISWITCH](setting.free_call).total_s)


def sizes_ahead(points: dict[int, Point]) -> list[tuple[int, int]]:
    """Return the ranges of neighbouring sizes at which the switch is not slower: the first and last size of each."""
    groups = groupby(sorted(points), lambda size: points[size].ratio >= 1)
    ranges = [list(sizes) for is_ahead, sizes in groups if is_ahead]
    return [(sizes[0], sizes[-1]) for sizes in ranges]


def format_size(size: int) -> str:
    """Return a size as people write it."""
    return f"{size / 1e6:.4g} MB" if size >= 1_000_000 else f"{size / 1e3:g} KB"


def draw(found: dict[Cluster, dict[int, dict[int, Point]]], path: Path) -> None:
    """Draw the ratio over the size, a panel for each cluster and a line for each rate."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(13, 4), sharey=True)
    for panel, (cluster, rates) in zip(panels, found.items(), strict=True):
        for rate, points in rates.items():
            ratios = [point.ratio for point in points.values()]
            [line] = panel.plot(list(points), ratios, marker="o", markersize=3, label=f"{rate} Gb/s")
            free = [point.best_s / point.free_call_s for point in points.values()]
            panel.plot(list(points), free, linestyle=":", linewidth=1, color=line.get_color())
        panel.axhline(1, color="black", linewidth=0.8, linestyle="--")
        panel.set(title=str(cluster), xscale="log", yscale="log", xlabel="bytes of the vector")
        panel.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
        panel.minorticks_off()
    panels[0].set_ylabel("speed of the switch / the best other\n(modelled; above 1 the switch is ahead)")
    panels[-1].plot([], [], linestyle=":", linewidth=1, color="black", label="if a call of the\ndriver took no time")
    panels[-1].legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(out: Annotated[Path | None, typer.Option(help="A picture of the ratios to write.")] = None) -> None:
    """Print the ratios, and write them to build/crossover.json."""
    console = Console(width=130, highlight=False)
    jobs = [(cluster, rate, size) for cluster in CLUSTERS for rate in RATES_GBPS for size in SIZES]
    found: dict[Cluster, dict[int, dict[int, Point]]] = {}
    for cluster, rate, size in track(jobs, "sums", console=console, transient=True):
        found.setdefault(cluster, {}).setdefault(rate, {})[size] = measure(size, cluster, rate)
    for cluster, rates in found.items():
        title = f"{cluster}: speed of the switch / the best other system"
        table = Table("Gb/s", *map(format_size, SIZES), "ahead at", title=title)
        for rate, points in rates.items():
            ranges = sizes_ahead(points)
            ahead = "\n".join(f"{format_size(first)} to {format_size(last)}" for first, last in ranges) or "no size"
            cells = (f"{point.ratio:.2f}\n{SHORT_NAMES[point.best]}" for point in points.values())
            table.add_row(str(rate), *cells, ahead)
        console.print(table)
    if out:
        draw(found, out)
    rows = [
        {"workers": cluster.workers, "rack": cluster.rack, "gbps": rate, "size_bytes": size} | point._asdict()
        for cluster, rates in found.items()
        for rate, points in rates.items()
        for size, point in points.items()
    ]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
