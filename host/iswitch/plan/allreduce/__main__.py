"""`python -m iswitch.plan.allreduce`: print the table of schedulers, train the learned one, schedule one network."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from iswitch.distribution import describe_missing, extra_of, missing_from

PROGRAM = "python -m iswitch.plan.allreduce"
EXTRAS = ("cli", "plan", "schedule")

try:
    import typer

    from iswitch.plan.allreduce.model.topologies import TOPOLOGIES, build_topology
    from iswitch.plan.topology.errors import error_text
except ModuleNotFoundError as error:
    if extra_of(error.name) is None:
        raise
    missing = [name for extra in EXTRAS for name in missing_from(extra)]
    raise SystemExit(describe_missing(PROGRAM, missing, *EXTRAS)) from error

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Schedule AllReduce in rounds on a network whose switches only forward, and compare with a lower bound.",
)

Episodes = Annotated[
    int,
    typer.Option(
        "-k",
        "--episodes",
        metavar="N",
        help="Episodes of the greedy and of the learned scheduler, of which the shortest counts.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")]
Weights = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Weights of the learned scheduler (default: those of the package).")
]


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Print an error of the user as a sentence, and exit with code 1."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (extra := extra_of(error.name)) is None:
            raise
        print(describe_missing(PROGRAM, missing_from(extra), *dict.fromkeys((*EXTRAS, extra))), file=sys.stderr)
        raise typer.Exit(1) from error
    except (OSError, ValueError) as error:
        print(error_text(error), file=sys.stderr)
        raise typer.Exit(1) from error


@app.command()
def table(
    topologies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPOLOGY", help=f"Topologies such as {TOPOLOGIES[0]} (default: all {len(TOPOLOGIES)})."
        ),
    ] = None,
    episodes: Episodes = 16,
    seed: Seed = 0,
    weights: Weights = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the table as JSON.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the rounds relative to the bound.")] = None,
) -> None:
    """Print the rounds that each scheduler needs, on the topologies of docs/allreduce.md or on the named ones."""
    with _errors_as_sentences():
        from iswitch.plan.allreduce.plots import plot_rounds
        from iswitch.plan.allreduce.table import HEADER, make_row

        names = topologies or list(TOPOLOGIES)
        rows = []
        print(HEADER)
        for name in names:
            rows.append(make_row(name, k=episodes, seed=seed, weights=weights))
            print(rows[-1].text, flush=True)
        if as_json:
            as_json.write_text(json.dumps([entry.numbers for entry in rows], indent=1) + "\n", encoding="utf-8")
        if plot:
            shown = ("ring", "fixed trees", "greedy", f"best of {episodes}", "learned")
            counts = {key: [int(entry.numbers[key]) for entry in rows] for key in shown}
            plot_rounds(names, [int(entry.numbers["bound"]) for entry in rows], counts, plot)


@app.command()
def train(
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the weights.")] = Path("weights.json"),
    iterations: Annotated[
        int | None, typer.Option(metavar="N", help="PPO updates (default: those of the packaged policies).")
    ] = None,
    seed: Seed = 1,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the mean rounds of every iteration as JSON.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the mean rounds over the iterations.")] = None,
) -> None:
    """Train the policies of the learned scheduler with PPO, on one core (needs torch)."""
    with _errors_as_sentences():
        from iswitch.plan.allreduce.learning.settings import Settings
        from iswitch.plan.allreduce.learning.train import train
        from iswitch.plan.allreduce.model.bounds import find_bounds
        from iswitch.plan.allreduce.model.network import Network
        from iswitch.plan.allreduce.plots import plot_learning

        settings = Settings(seed=seed) if iterations is None else Settings(seed=seed, iterations=iterations)
        past: list[dict[str, float]] = []
        begin = time.monotonic()

        def show(iteration: int, lengths: dict[str, float]) -> None:
            past.append(lengths)
            means = "  ".join(f"{name} {mean:.2f}" for name, mean in lengths.items())
            print(f"{iteration + 1:4}/{settings.iterations} {time.monotonic() - begin:6.0f} s  {means}", flush=True)

        policy = train(settings, on_iteration=show)
        policy.save(out)
        if history:
            history.write_text(json.dumps(past) + "\n", encoding="utf-8")
        if plot:
            plot_learning(
                past, {name: find_bounds(Network(build_topology(name))).best for name in settings.topologies}, plot
            )


@app.command()
def unseen(
    networks: Annotated[int, typer.Option(metavar="N", min=1, help="Networks of each family.")] = 12,
    first: Annotated[int, typer.Option(metavar="SEED", help="Seed of the first network of each family.")] = 1,
    episodes: Episodes = 16,
    seed: Seed = 0,
) -> None:
    """Count on random networks of eight families how the learned scheduler compares with the others."""
    with _errors_as_sentences():
        from iswitch.plan.allreduce.model.random_networks import RANDOM_FAMILIES
        from iswitch.plan.allreduce.unseen import UNSEEN_HEADER, count_family

        print(UNSEEN_HEADER)
        total = None
        for family in RANDOM_FAMILIES:
            row = count_family(family, networks, k=episodes, seed=seed, first=first)
            print(row.text, flush=True)
            total = row._replace(family="all") if total is None else total + row
        if total:
            print(total.text)


@app.command()
def schedule(
    topology: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY",
            help="A name such as DCell(4,1), or a .json file with a graph in the node-link format of networkx.",
        ),
    ],
    episodes: Episodes = 16,
    seed: Seed = 0,
    weights: Weights = None,
    as_json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the schedule as JSON.")] = None,
    xml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the schedule as XML, in the format of MSCCL.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw how many links are in use in each round.")
    ] = None,
) -> None:
    """Find the shortest schedule for one topology, and its lower bound."""
    with _errors_as_sentences():
        from iswitch.plan.allreduce.compare import compare_schedulers
        from iswitch.plan.allreduce.files.json_file import to_json
        from iswitch.plan.allreduce.files.network_file import read_network
        from iswitch.plan.allreduce.files.xml_file import to_xml
        from iswitch.plan.allreduce.learning.policy import Policy
        from iswitch.plan.allreduce.model.network import Network
        from iswitch.plan.allreduce.plots import plot_links

        graph = read_network(Path(topology)) if topology.endswith(".json") else build_topology(topology)
        found = compare_schedulers(
            graph,
            policy=Policy.load(weights) if weights else None,
            k=episodes,
            seed=seed,
            on_schedule=lambda name, made: print(f"{name:25} {made.length:5} rounds {made.flows:6} flows", flush=True),
        )
        limits = found.bounds
        print(
            f"best: {found.best.name}, {found.best.length} rounds; no schedule has fewer than {limits.best} "
            f"(gap {100 * found.gap:.1f} %), none with reductions before broadcasts fewer than {limits.two_phases}"
        )
        if as_json:
            as_json.write_text(to_json(graph, found.best), encoding="utf-8")
        if xml:
            xml.write_text(to_xml(graph, found.best), encoding="utf-8")
        if plot:
            shown = [found.schedules[name] for name in ("ring", "fixed trees", "greedy", "learned")]
            plot_links(Network(graph), shown, plot)


if __name__ == "__main__":
    app(prog_name=PROGRAM)
