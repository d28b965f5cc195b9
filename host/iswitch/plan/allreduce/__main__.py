"""`python -m iswitch.plan.allreduce`: table, train, schedule."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from iswitch.distribution import describe_missing, extra_of, missing_from
from iswitch.plan.topology.errors import error_text

_PROGRAM = "python -m iswitch.plan.allreduce"

try:
    from iswitch.plan.allreduce.model.topologies import CASES, build, demand_few
except ModuleNotFoundError as error:
    if extra_of(error.name) is None:
        raise
    raise SystemExit(describe_missing(_PROGRAM, missing_from("plan"), "plan")) from error

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description=(
            "Schedule AllReduce in rounds on a network whose switches only forward, and compare with a lower bound."
        ),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    table = commands.add_parser(
        "table",
        help="print the rounds that each scheduler needs, on all topologies of docs/allreduce.md or on the named ones",
    )
    table.add_argument("topology", nargs="*", help=f"a topology such as {CASES[0]} (default: all {len(CASES)})")
    _add_episodes(table)
    table.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")
    table.add_argument("--plot", type=Path, metavar="PNG", help="draw the rounds relative to the bound")
    table.set_defaults(run=_table)

    train = commands.add_parser(
        "train", help="train the policies of the learned scheduler with PPO, on one core (needs torch)"
    )
    train.add_argument(
        "--out",
        type=Path,
        default=Path("weights.json"),
        metavar="FILE",
        help="where to write the weights (default: %(default)s)",
    )
    train.add_argument(
        "--iterations", type=int, metavar="N", help="number of PPO updates (default: that of the packaged policies)"
    )
    train.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of all random numbers (default: %(default)s)"
    )
    train.add_argument("--history", type=Path, metavar="FILE", help="write the mean rounds of every iteration as JSON")
    train.add_argument("--plot", type=Path, metavar="PNG", help="draw the mean rounds over the iterations")
    train.set_defaults(run=_train)

    schedule = commands.add_parser("schedule", help="find the shortest schedule for one topology, and its lower bound")
    schedule.add_argument(
        "topology", help="a name such as DCell(4,1), or a .json file with a graph in the node-link format of networkx"
    )
    _add_episodes(schedule)
    schedule.add_argument("--json", type=Path, metavar="FILE", help="write the schedule as JSON")
    schedule.add_argument("--xml", type=Path, metavar="FILE", help="write the schedule as XML, in the format of MSCCL")
    schedule.add_argument("--plot", type=Path, metavar="PNG", help="draw how many links are in use in each round")
    schedule.set_defaults(run=_schedule)

    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except ModuleNotFoundError as error:
        if (extra := extra_of(error.name)) is None:
            raise
        print(describe_missing(_PROGRAM, missing_from(extra), *dict.fromkeys(("plan", extra))), file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(error_text(error), file=sys.stderr)
        return 1
    return 0


def _add_episodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k",
        type=int,
        default=16,
        metavar="N",
        help="episodes of the greedy and of the learned scheduler, of which the shortest counts (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="weights of the learned scheduler (default: the packaged ones)"
    )


def _table(options: argparse.Namespace) -> None:
    from iswitch.plan.allreduce.plots import plot_rounds
    from iswitch.plan.allreduce.table import HEADER, row

    names = options.topology or list(CASES)
    rows = []
    print(HEADER)
    for name in names:
        rows.append(row(name, k=options.k, seed=options.seed, weights=options.weights))
        print(rows[-1].text, flush=True)
    if options.json:
        options.json.write_text(json.dumps([entry.numbers for entry in rows], indent=1) + "\n", encoding="utf-8")
    if options.plot:
        shown = ("ring", "fixed trees", "greedy", f"best of {options.k}", "learned")
        counts = {key: [int(entry.numbers[key]) for entry in rows] for key in shown}
        plot_rounds(names, [int(entry.numbers["bound"]) for entry in rows], counts, options.plot)


def _train(options: argparse.Namespace) -> None:
    from iswitch.plan.allreduce.learning.train import Settings, train
    from iswitch.plan.allreduce.model.bounds import bounds
    from iswitch.plan.allreduce.model.network import Network
    from iswitch.plan.allreduce.plots import plot_learning

    settings = (
        Settings(seed=options.seed)
        if options.iterations is None
        else Settings(seed=options.seed, iterations=options.iterations)
    )
    history: list[dict[str, float]] = []
    begin = time.monotonic()

    def tell(iteration: int, lengths: dict[str, float]) -> None:
        history.append(lengths)
        means = "  ".join(f"{name} {mean:.2f}" for name, mean in lengths.items())
        print(f"{iteration + 1:4}/{settings.iterations} {time.monotonic() - begin:6.0f} s  {means}", flush=True)

    policy = train(settings, tell=tell)
    policy.save(options.out)
    if options.history:
        options.history.write_text(json.dumps(history) + "\n", encoding="utf-8")
    if options.plot:
        plot_learning(history, {name: bounds(Network(build(name))).best for name in settings.topologies}, options.plot)


def _schedule(options: argparse.Namespace) -> None:
    from iswitch.plan.allreduce.files.export import to_json, to_xml
    from iswitch.plan.allreduce.learning.learned import compare
    from iswitch.plan.allreduce.learning.policy import Policy
    from iswitch.plan.allreduce.model.network import Network
    from iswitch.plan.allreduce.plots import plot_links
    from iswitch.plan.topology.graph_file import parse_graph

    if options.topology.endswith(".json"):
        graph = parse_graph(Path(options.topology).read_text(encoding="utf-8"), options.topology)
        demand_few(options.topology, sum(kind == "host" for _, kind in graph.nodes(data="kind")))
    else:
        graph = build(options.topology)
    found = compare(
        graph,
        policy=Policy.load(options.weights) if options.weights else None,
        k=options.k,
        seed=options.seed,
        tell=lambda name, schedule: print(f"{name:25} {schedule.length:5} rounds {schedule.flows:6} flows", flush=True),
    )
    limits = found.bounds
    print(
        f"best: {found.best.name}, {found.best.length} rounds; no schedule has fewer than {limits.best} (gap {100 * found.gap:.1f} %), "
        f"none with reductions before broadcasts fewer than {limits.two_phases}"
    )
    if options.json:
        options.json.write_text(to_json(graph, found.best), encoding="utf-8")
    if options.xml:
        options.xml.write_text(to_xml(graph, found.best), encoding="utf-8")
    if options.plot:
        plot_links(
            Network(graph),
            [found.schedules[name] for name in ("ring", "fixed trees", "greedy", "learned")],
            options.plot,
        )


if __name__ == "__main__":
    raise SystemExit(main())
