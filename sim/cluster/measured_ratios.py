"""The headline's ratios with costs of all systems that were measured in one run, beside those with the default costs.

Compute times are those of the headline, so only costs differ. Each system has the costs of messages as long as those
that it sends.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from iswitch.estimate.costs import Costs
from iswitch.estimate.server import asynchronous_server
from iswitch.estimate.setting import Setting
from iswitch.estimate.switch import asynchronous_switch
from iswitch.estimate.systems import ISWITCH, SYSTEMS
from sim.cluster.system_costs import ASYNCHRONOUS_SERVER, Measured, costs_of

__all__ = ["RATIOS", "Ratio", "ratio", "ratios", "show_measured"]

RATIOS = {
    "sync_over_ps": "parameter server",
    "sync_over_stream": "streaming server",
    "sync_over_ring": "ring",
    "sync_over_tree": "tree of workers",
    "sync_over_shards": "sharded server",
    "async_over_ps": ASYNCHRONOUS_SERVER,
}
"""The system over which each ratio is."""


class Ratio(NamedTuple):
    """How many times as fast as another system the switch is.

    Parameters
    ----------
    default, measured : float
        With the default costs, and with the medians of the measured ones.
    least, most : float
        With the costs of single turns.
    free_call : float
        With the measured costs, if a call of the driver costs nothing beside its datagrams.
    """

    default: float
    measured: float
    least: float
    most: float
    free_call: float


def ratio(name: str, setting: Setting, costs: Callable[[str], Costs] | None = None) -> float:
    """Return how many times as fast as another system the switch is; asynchronous ones, for as many gradients.

    Parameters
    ----------
    name : str
        One of `RATIOS`.
    setting : Setting
        The workers.
    costs : callable, optional
        Returns the costs of a system. Default: those of the setting.
    """
    other, ours = (
        setting if costs is None else replace(setting, costs=costs(system)) for system in (RATIOS[name], ISWITCH)
    )
    if RATIOS[name] == ASYNCHRONOUS_SERVER:
        return asynchronous_server(other) / asynchronous_switch(ours)
    return SYSTEMS[RATIOS[name]](other).total_s / SYSTEMS[ISWITCH](ours).total_s


def ratios(setting: Setting, rows: list[Measured]) -> dict[str, Ratio]:
    """Return all ratios of a setting that has the default costs."""
    cell = [row for row in rows if row.size_bytes == setting.size_bytes]

    def measured(turns: list[Measured]) -> Callable[[str], Costs]:
        return lambda system: costs_of(turns, setting.size_bytes, system)

    found = {}
    for name in RATIOS:
        single = [ratio(name, setting, measured([row])) for row in cell]
        found[name] = Ratio(
            ratio(name, setting),
            ratio(name, setting, measured(cell)),
            min(single),
            max(single),
            ratio(name, setting, lambda system: replace(measured(cell)(system), udp_call_us=0.0)),
        )
    return found


def show_measured(console: Console, settings: dict[str, Setting], rows: list[Measured]) -> None:
    """Print the ratios of some settings."""
    table = Table("ratio", "default costs", "measured costs", "with those of single turns", "measured, calls free")
    for algorithm, setting in settings.items():
        for name, each in ratios(setting, rows).items():
            turns = f"{each.least:.2f} to {each.most:.2f}"
            cells = (f"{each.default:.2f}", f"{each.measured:.2f}", turns, f"{each.free_call:.2f}")
            table.add_row(f"cluster.{algorithm}.{name}", *cells)
    console.print(table)
