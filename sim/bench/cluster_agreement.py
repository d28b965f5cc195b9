"""`python -m sim.bench.cluster_agreement`: models of server, ring and iswitch beside the real ones, over loopback.

The model has all processes on the cores of one machine, without cables. For server and ring it is the model of the
clusters with other numbers. For iswitch it is that of `sim/cluster/software_switch.py`, because a software switch is
a process, too. The real systems are those of `sim/bench/compare_systems.py` between processes, with checked sums.
Costs and real systems take turns, and both run at real-time priority, so other programs disturb them less. Costs are
those of messages as long as those that the system sends, with what the system's own Python takes around a message. No
cost is fitted to a measured sum. The ratio is modelled by measured time.

`--out docs/loopback_agreement.json` keeps costs and times of all turns, and `--show` prints the table of such a file.
`docs/cluster_agreement.json` is a run of server and ring alone, with the costs of one buffer and without the systems'
own Python.
"""

import json
import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch.estimate.collectives import ring
from iswitch.estimate.costs import Costs
from iswitch.estimate.server import parameter_server
from iswitch.estimate.setting import Phases, Setting
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_port
from sim.bench.compare import measure as measure_system
from sim.bench.compare_systems import HOST, InstantSocket, ring_reduce, server_reduce
from sim.cluster.driver_costs import measure_driver
from sim.cluster.host_costs import measure_copy_s, measure_sums, measure_tcp
from sim.cluster.measured_record import rounded
from sim.cluster.processor_time import median_cpu_s
from sim.cluster.realtime import before_others
from sim.cluster.software_switch import ServedSwitch, software_switch

__all__ = ["ISWITCH", "MODELS", "RECORD", "SIZES", "TCP_RECORD", "SYSTEMS", "Turn", "medians", "read", "spread"]

DOCS = Path(__file__).parents[2] / "docs"
RECORD, TCP_RECORD = DOCS / "loopback_agreement.json", DOCS / "cluster_agreement.json"
SIZES = {"PPO": 40_020, "DDPG": 157_520, "A2C": 3_310_000, "DQN": 6_410_000}
WORLDS = (2, 4)
CODE_REPETITIONS = 99
MODELS: dict[str, Callable[[Setting], Phases]] = {
    "tcp_server": lambda setting: parameter_server(setting, eager=False, update=False),
    "tcp_ring": lambda setting: ring(setting, piece_bytes=None, update=False),
}
"""The models of systems over TCP that `sim/bench/compare_systems.py` runs, by their names there."""
ISWITCH = "iswitch"
SYSTEMS = (*MODELS, ISWITCH)


class Turn(NamedTuple):
    """One measurement of a sum, with the costs that were measured just before it.

    Parameters
    ----------
    system, workers, size_bytes
        What was measured.
    copy_s : float
        Processor time in which a worker prepares its vector, a copy.
    measured_s : float
        Median of the calls.
    costs : dict
        Costs by name.
    cores : int
        Cores of the machine.
    load : float, optional
        Processes that ran or waited for a core in the minute before, on average.
    code_s : float
        Processor time of a worker's own Python in a sum over TCP, without sockets and additions.
    served : dict, optional
        The software switch, by the names of `ServedSwitch`.
    """

    system: str
    workers: int
    size_bytes: int
    copy_s: float
    measured_s: float
    costs: dict[str, float]
    cores: int
    load: float | None = None
    code_s: float = 0.0
    served: dict[str, Any] | None = None

    @property
    def modelled_s(self) -> float:
        """Seconds of a sum by the model. A worker's own preparation does not count, but that of others delays it."""
        costs = Costs.from_dict(self.costs)
        code_us = 1e6 * self.code_s / calls(self.system, self.workers)
        setting = Setting(
            size_bytes=self.size_bytes,
            workers=self.workers,
            compute_s=self.copy_s,
            rate_bps=None,
            cores=self.cores,
            costs=replace(costs, tcp_call_us=costs.tcp_call_us + code_us),
        )
        if self.served is not None:
            return software_switch(setting, ServedSwitch(**self.served)).communication_s
        return MODELS[self.system](setting).communication_s

    @property
    def python_us(self) -> float:
        """Microseconds of the system's own Python at a worker, in a sum."""
        return self.costs.get("udp_call_us", 1e6 * self.code_s)

    @property
    def ratio(self) -> float:
        """Modelled by measured time."""
        return self.modelled_s / self.measured_s


def message_bytes(system: str, workers: int, size_bytes: int) -> int:
    """Return the bytes of what a worker sends at once."""
    return size_bytes // workers if system == "tcp_ring" else size_bytes


def calls(system: str, workers: int) -> int:
    """Return how often a worker calls a socket in a sum."""
    return 4 * (workers - 1) if system == "tcp_ring" else 2


def measure_code_s(system: str, workers: int, *, realtime: bool) -> float:
    """Return the processor time of a worker's own Python in a sum, by sockets that take and have all bytes at once.

    The vector has an element for each worker, so that its additions take no time.
    """
    instant = InstantSocket()
    reduce = server_reduce(instant) if system == "tcp_server" else ring_reduce(instant, instant, 0, workers)
    vector = np.zeros(workers, np.float32)
    with before_others(realtime):
        return median_cpu_s(lambda: reduce(vector), CODE_REPETITIONS)


def measure_costs(
    system: str, workers: int, size_bytes: int, *, realtime: bool
) -> tuple[dict[str, float], dict[str, Any] | None]:
    """Return the costs of a system, and its switch if it has one."""
    if system != ISWITCH:
        costs = measure_tcp(message_bytes(system, workers, size_bytes), buffers=workers, realtime=realtime)
        return costs | measure_sums(size_bytes, realtime=realtime), None
    with open_port(HOST, 0) as port:
        config = config_for([port])
    found = measure_driver(size_bytes, elements=config.elements, workers=workers, realtime=realtime)
    served = ServedSwitch(found.switch_burst_us, found.switch_datagram_us, config.elements, config.window)
    return found.driver, served._asdict()


def measure_turn(system: str, workers: int, size_bytes: int, *, realtime: bool) -> Turn:
    """Measure the costs, and the real system after them."""
    load = os.getloadavg()[0]
    costs, served = measure_costs(system, workers, size_bytes, realtime=realtime)
    copy_s = measure_copy_s(size_bytes, realtime=realtime)
    code_s = 0.0 if served else measure_code_s(system, workers, realtime=realtime)
    repetitions = max(16, min(200, 100_000_000 // size_bytes))
    timing = measure_system(system, size_bytes, workers, repetitions=repetitions, realtime=realtime)
    return Turn(system, workers, size_bytes, copy_s, timing.ms / 1e3, costs, os.cpu_count() or 1, load, code_s, served)


def read(path: Path = RECORD) -> list[Turn]:
    """Return the turns of a file."""
    return [Turn(**row) for row in json.loads(path.read_text())]


def cells(turns: Iterable[Turn]) -> dict[tuple[str, int, int], list[Turn]]:
    """Return the turns of each system, number of workers, and size."""
    found: dict[tuple[str, int, int], list[Turn]] = {}
    for turn in turns:
        found.setdefault(turn[:3], []).append(turn)
    return found


def medians(turns: Iterable[Turn]) -> dict[tuple[str, int, int], float]:
    """Return the median ratio of each system, number of workers, and size."""
    return {key: statistics.median(turn.ratio for turn in cell) for key, cell in cells(turns).items()}


def spread(ratios: Iterable[float]) -> tuple[float, float, float]:
    """Return the least, the median and the largest ratio."""
    found = sorted(ratios)
    return found[0], statistics.median(found), found[-1]


def show(console: Console, turns: list[Turn]) -> None:
    """Print the medians."""
    table = Table("system", "workers", "size", "modelled ms", "measured ms", "ratio", "of turns", "Python us")
    names = {size: name for name, size in SIZES.items()}
    by_cell, ratios = cells(turns), medians(turns)
    for key, cell in by_cell.items():
        modelled, measured = (1e3 * statistics.median(getattr(turn, name) for turn in cell) for name in TIMES)
        least, _, most = spread(turn.ratio for turn in cell)
        shown = (f"{modelled:.3g}", f"{measured:.3g}", f"{ratios[key]:.2f}", f"{least:.2f} to {most:.2f}")
        python_us = statistics.median(turn.python_us for turn in cell)
        table.add_row(key[0], str(key[1]), names[key[2]], *shown, f"{python_us:.0f}")
    console.print(table)
    measured_s = [[turn.measured_s for turn in cell] for cell in by_cell.values()]
    differ = [max(found) / min(found) for found in measured_s]
    console.print(
        f"measured times differ between turns by up to {max(differ):.1f}, median {statistics.median(differ):.1f}"
    )
    if loads := [turn.load for turn in turns if turn.load is not None]:
        console.print(f"load {min(loads):.1f} to {max(loads):.1f}")
    for system in dict.fromkeys(turn.system for turn in turns):
        least, middle, most = spread(ratio for key, ratio in ratios.items() if key[0] == system)
        console.print(f"{system}: modelled by measured {least:.2f} to {most:.2f}, median {middle:.2f}", highlight=False)


TIMES = ("modelled_s", "measured_s")


def main(
    turns: Annotated[int, typer.Option(min=1, help="Measurements of each sum; the median counts.")] = 5,
    realtime: Annotated[bool, typer.Option(help="Run before all other programs. Only root may.")] = True,
    out: Annotated[Path | None, typer.Option(help="A file to write costs and times into.")] = None,
    shown: Annotated[
        Path | None,
        typer.Option("--show", exists=True, dir_okay=False, help="Print the table of a file, and measure nothing."),
    ] = None,
) -> None:
    """Compare the models with real processes on this machine."""
    console, found = Console(width=100), []
    if shown:
        show(console, read(shown))
        return
    for turn in range(turns):
        for size_bytes in SIZES.values():
            for system in SYSTEMS:
                for workers in WORLDS:
                    one = measure_turn(system, workers, size_bytes, realtime=realtime)
                    found.append(one)
                    console.print(f"[dim]{turn} {system} {workers} {size_bytes}: {one.ratio:.2f}", highlight=False)
                    if out:
                        out.write_text(json.dumps([rounded(row._asdict()) for row in found], indent=1) + "\n")
    show(console, found)


if __name__ == "__main__":
    typer.run(main)
