"""`python -m sim.bench.loss_curve`: the time of a sum over the loss rate of all links, by the driver and two other
clients.

Four workers at a compiled switch, in virtual time, so the figures are the same on every machine. Every sum of float32
numbers is compared bit by bit with numpy's exact sum, rounded once.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sim.bench.retransmission import CLIENTS, RATE_BPS, REPETITIONS, SIZES, in_virtual_time
from sim.emulator.defaults import EMULATED

__all__ = ["app", "mean_times_s"]

LOSSES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
LABELS = {"driver": "the driver", "outside": "RFC 6298, 20 ms to 1 s", "fixed": "20 ms, no back-off"}
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def mean_times_s(name: str, losses: Iterable[float], *, repetitions: int) -> dict[str, list[float]]:
    """Return the mean seconds of a sum by client, for each chance that a frame is lost on a link.

    Raises
    ------
    RuntimeError
        If a bit of a sum is wrong.
    """
    return {
        client: [
            in_virtual_time(
                client, size=SIZES[name], repetitions=repetitions, loss=loss, rate_bps=RATE_BPS, config=EMULATED
            )[0].mean_s
            for loss in losses
        ]
        for client in CLIENTS
    }


def draw(times_s: dict[str, dict[str, list[float]]], losses: Sequence[float], out: Path) -> None:
    """Draw a chart for each size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(times_s), 3.6), layout="constrained")
    for axes, (name, by_client) in zip(
        figure.subplots(1, len(times_s), squeeze=False)[0], times_s.items(), strict=True
    ):
        for client, means_s in by_client.items():
            axes.plot([100 * loss for loss in losses], [1e3 * mean for mean in means_s], "o-", label=LABELS[client])
        axes.set(title=f"a sum of {name}", xlabel="% of frames lost on each link, each way", ylabel="ms", yscale="log")
        axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=100)


@app.command()
def main(out: Annotated[Path, typer.Option(help="File for the picture.")] = Path("build/loss_curve.png")) -> None:
    """Print and draw the time of a sum over the loss rate."""
    console = Console()
    times_s = {
        name: mean_times_s(name, LOSSES, repetitions=REPETITIONS[name])
        for name in track(SIZES, description="sums", console=console)
    }
    table = Table("size", "client", *(f"{loss:.1%}" for loss in LOSSES), title="Mean milliseconds of a sum")
    console.width = max(console.width, 110)
    for name, by_client in times_s.items():
        for client, means_s in by_client.items():
            table.add_row(name, LABELS[client], *(f"{1e3 * mean:.2f}" for mean in means_s))
    console.print(table)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(times_s, LOSSES, out)
    console.print(f"{out}: every sum was exact to the bit", highlight=False)


if __name__ == "__main__":
    app()
