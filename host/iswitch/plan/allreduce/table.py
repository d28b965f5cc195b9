"""The table of docs/allreduce.md: the rounds of every scheduler on a topology, and the lower bounds."""

from dataclasses import dataclass
from pathlib import Path

from iswitch.plan.allreduce.compare import compare_schedulers
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import TRAINED_ON, build_topology
from iswitch.plan.allreduce.model.verify import verify
from iswitch.plan.allreduce.schedulers.in_network import in_network
from iswitch.plan.allreduce.schedulers.parameter_server import plain_parameter_server, plain_sharded_servers
from iswitch.plan.allreduce.schedulers.ring import ring

__all__ = ["HEADER", "Row", "make_row"]

COLUMNS = (
    ("topology", 19),
    ("N", 3),
    ("PS", 5),
    ("merging", 7),
    ("sharded", 7),
    ("ring 0,1,..", 11),
    ("ring", 5),
    ("fixed trees", 11),
    ("greedy", 6),
    ("best of k", 9),
    ("learned", 7),
    ("bound", 5),
    ("2 phases", 8),
    ("gap", 6),
    ("in network", 10),
)
HEADER = "  ".join(f"{name:{'<' if name == 'topology' else '>'}{width}}" for name, width in COLUMNS)


@dataclass(frozen=True)
class Row:
    """A row as text, and its numbers by name."""

    text: str
    numbers: dict[str, int | float | str | bool]


def make_row(name: str, *, k: int = 16, seed: int = 0, weights: Path | None = None) -> Row:
    """Return the rounds of every scheduler on a topology. All schedules are verified.

    Parameters
    ----------
    name : str
        The topology. An asterisk marks those on which the packaged policies were trained.
    k : int
        Episodes of the greedy and of the learned scheduler.
    seed : int
        Seed of all random numbers.
    weights : Path, optional
        Weights of the learned scheduler; by default the packaged ones.
    """
    graph = build_topology(name)
    network = Network(graph)
    plain = {
        "PS": plain_parameter_server(network),
        "sharded": plain_sharded_servers(network),
        "ring 0,1,..": ring(network),
    }
    for schedule in plain.values():
        verify(graph, schedule)
    found = compare_schedulers(graph, policy=Policy.load(weights) if weights else None, k=k, seed=seed)
    tree, switches = in_network(network)
    verify(graph, tree, aggregating=switches)
    rounds = {key: schedule.length for key, schedule in found.schedules.items()}
    best = f"best of {k}"
    limits = found.bounds
    numbers: dict[str, int | float | str | bool] = {
        "topology": name,
        "trained on": name in TRAINED_ON,
        "N": network.size,
        "PS": plain["PS"].length,
        "merging": rounds["parameter server, merging"],
        "sharded": plain["sharded"].length,
        "ring 0,1,..": plain["ring 0,1,.."].length,
        "ring": rounds["ring"],
        "fixed trees": rounds["fixed trees"],
        "greedy": rounds["greedy"],
        best: rounds[f"greedy, {best}"],
        "learned": rounds["learned"],
        "bound": limits.best,
        "2 phases": limits.two_phases,
        "emitted": found.best.name,
        "gap": round(found.gap, 4),
        "in network": tree.length,
    }
    cells = []
    for column, width in COLUMNS:
        value = numbers[best if column == "best of k" else column]
        if column == "topology":
            cells.append(f"{value}{'*' if numbers['trained on'] else ''}".ljust(width))
        else:
            cells.append((f"{100 * found.gap:.1f} %" if column == "gap" else str(value)).rjust(width))
    return Row("  ".join(cells), numbers)
