"""`python -m sim.cluster.scale`: a sum of up to 1,024 workers in trees of switches, beside other systems.

All of this is the model of `iswitch.estimate`, whose switch takes the cycles that were measured at the compiled one. A
job of today's switch has 32 workers at most; the rows beyond that have frames with longer masks (`mask_bytes`).
"""

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from iswitch.config import MEMBERS_MAX
from iswitch.estimate.collectives import ring, tree
from iswitch.estimate.costs import TCP, Costs
from iswitch.estimate.setting import Setting
from iswitch.estimate.switch import switch_sum
from sim.cluster.crossover import format_size

__all__ = ["SIZES", "TREES", "Row", "measure"]

TREES: list[tuple[int, ...]] = [(4,), (8,), (8, 4), (8, 8), (16, 8), (8, 8, 4), (8, 8, 8), (16, 8, 8)]
"""Members of a switch on each level, from the workers' to the root."""
SIZES = [1_400, 40_020, 157_520, 6_410_000]
"""Bytes of a vector; three of them are the paper's."""
RATE_GBPS = 10
MOST_RING_WORKERS = 64
"""A larger ring is not simulated, because that takes minutes: its rounds are those of a ring of this size."""


class Row(NamedTuple):
    """Seconds of one sum: in switches, in a tree of workers (halving and doubling), in a ring.

    `least_s` is what any AllReduce among the workers takes at least: the time of its bytes on the busiest cable.
    """

    switches_s: float
    tree_s: float
    ring_s: float
    least_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast as the faster of tree and ring the switches are."""
        return min(self.tree_s, self.ring_s) / self.switches_s


def ring_s(setting: Setting) -> float:
    """Return the seconds of a sum in a ring. Each of 2 (N - 1) rounds moves an N-th of the vector."""
    simulated = min(setting.workers, MOST_RING_WORKERS)
    part = max(1, round(setting.size_bytes / setting.workers / 4)) * 4
    size_bytes = setting.size_bytes if simulated == setting.workers else simulated * part
    found = ring(replace(setting, workers=simulated, size_bytes=size_bytes))
    return found.communication_s * (setting.workers - 1) / (simulated - 1)


def least_s(setting: Setting) -> float:
    """Return the seconds of the bytes that the worker that sends the most sends in any AllReduce among the workers.

    They are at least 2 (N - 1) / N of a vector (Patarasuk and Yuan, 2009), here over TCP in frames of 1,500 bytes.
    """
    assert setting.rate_bps is not None, "processes of one machine have no cable"
    share = 2 * (setting.workers - 1) / setting.workers
    return share * 8 * TCP.wire_bytes(setting.size_bytes) / setting.rate_bps


def measure(size_bytes: int, fan_ins: tuple[int, ...], rate_gbps: float = RATE_GBPS) -> Row:
    """Return the times of one sum.

    Parameters
    ----------
    size_bytes : int
        Size of the vector.
    fan_ins : tuple of int
        As of `iswitch.estimate.switch.switch_sum`. Workers without switches that sum are in racks of the first of them.
    rate_gbps : float
        Rate of every cable.
    """
    workers, rate_bps = prod(fan_ins), rate_gbps * 1e9
    rack = fan_ins[0] if len(fan_ins) > 1 else None
    setting = Setting(size_bytes=size_bytes, workers=workers, rack=rack, rate_bps=rate_bps)
    return Row(
        switch_sum(size_bytes, fan_ins, Costs(), rate_bps=rate_bps).last_s,
        tree(setting).communication_s,
        ring_s(setting),
        least_s(setting),
    )


def draw(found: dict[int, dict[tuple[int, ...], Row]], path: Path) -> None:
    """Draw milliseconds over the number of workers, a panel for each size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(13, 3.6), squeeze=False)
    for panel, (size, rows) in zip(panels[0], found.items(), strict=True):
        for number, label in enumerate(("iswitch", "tree of workers", "ring")):
            points = [(prod(fan_ins), 1e3 * row[number]) for fan_ins, row in rows.items()]
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
        panel.axvline(MEMBERS_MAX, color="black", linewidth=0.8, linestyle="--")
        panel.set(title=format_size(size), xscale="log", yscale="log", xlabel="workers")
        panel.set_xticks([4, 32, 256, 1024], ["4", "32", "256", "1024"])
        panel.minorticks_off()
    panels[0][0].set_ylabel("ms of a sum (modelled;\nno switch is right of the line)")
    panels[0][0].legend(fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(
    out: Annotated[Path | None, typer.Option(help="A picture to write.")] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="Rate of every cable, in Gb/s.")] = RATE_GBPS,
) -> None:
    """Print the milliseconds of a sum, and how many times as fast as the best other system the switches are."""
    console = Console(width=120, highlight=False)
    jobs = [(size, fan_ins) for size in SIZES for fan_ins in TREES]
    found: dict[int, dict[tuple[int, ...], Row]] = {size: {} for size in SIZES}
    for size, fan_ins in track(jobs, "summing", console=Console(stderr=True), transient=True):
        found[size][fan_ins] = measure(-(-size // 4) * 4, fan_ins, rate)
    table = Table("workers", "switches' members", *(f"{format_size(size)}: ms, x" for size in SIZES), show_edge=False)
    table.add_column(f"{format_size(SIZES[-1])}: least")
    for fan_ins in TREES:
        rows = [found[size][fan_ins] for size in SIZES]
        cells = (f"{1e3 * row.switches_s:.3f}, {row.ratio:.2f}" for row in rows)
        members = " x ".join(map(str, fan_ins))
        table.add_row(f"{prod(fan_ins):,}", members, *cells, f"{1e3 * rows[-1].least_s:.3f}")
    console.print(table)
    console.print(
        "x: times as fast as the faster of a tree of workers and a ring. Least: ms that any AllReduce of the workers "
        f"takes at least over TCP. A job has {MEMBERS_MAX} workers at most: rows beyond are of switches that do not "
        "exist."
    )
    if out:
        draw(found, out)
        console.print(f"picture: {out}")


if __name__ == "__main__":
    typer.run(main)
