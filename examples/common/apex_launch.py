"""Runs the actors and the learner of a training on this machine, and checks afterwards what the switch did."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rich.console import Console

from examples.common.apex_display import Display, draw_curves, print_results
from examples.common.apex_progress import ActorProgress, Learned, LearnerProgress
from examples.common.processes import Done, LaunchError, ProcessGroup
from examples.common.replica import Vector
from examples.common.ticket_order import Start
from iswitch.replay import Field, ReplayClient, Statistics

__all__ = ["Act", "Learn", "Options", "launch"]

_TIMEOUT_S = 60.0
"""Seconds until a silent switch is an error. Long, because the processes share the processors."""
_LEARNER = -1
"""The learner's rank."""


class Options(Protocol):
    """Options of a training that can be launched: a dataclass with at least these fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int: ...
    @property
    def actors(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def solved_return(self) -> float: ...
    @property
    def evaluation_episodes(self) -> int: ...


Act = Callable[[ReplayClient, Any, int, Start, Callable[[ActorProgress], Any]], ActorProgress]
"""Runs one actor: `act(replay, options, rank, start, report)`, picklable."""
Learn = Callable[[ReplayClient, Any, Start, Callable[[LearnerProgress], Any]], Learned]
"""Runs the learner: `learn(replay, options, start, report)`, picklable."""
Fields = Mapping[str, Field]


def launch(
    options: Options,
    addresses: Sequence[str],
    out: Path,
    *,
    fields: Fields,
    act: Act,
    learn: Learn,
    evaluate: Callable[[Vector], list[float]],
    check: Callable[[], None] = lambda: None,
    console: Console | None = None,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train with a process for each actor and one for the learner; write `summary.json` and `learning_curve.png`.

    Parameters
    ----------
    options : Options
        Environment and hyperparameters.
    addresses : Sequence[str]
        Ports of the switch. The learner uses the first, and actor r addresses[(r + 1) % len(addresses)].
    out : Path
        Folder of the files.
    fields : Mapping[str, Field]
        Fields of a transition in the table.
    act, learn : Act, Learn
        Run one actor, and the learner.
    evaluate : Callable
        Returns the returns of episodes with these weights.
    check : Callable[[], None]
        Is called several times a second. If it raises an exception, the training ends.
    console : Console, optional
        Shows progress and results.
    notes : dict, optional
        Further items of the summary.

    Returns
    -------
    dict
        The summary. "solved" is True if the evaluation's mean return is at least `options.solved_return`.

    Raises
    ------
    LaunchError
        If the training could not be finished, the table was not empty, or the switch did not add each item once.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    before = _statistics(addresses[0], fields)
    if before.size:
        raise LaunchError(f"{before.size:,} items are in the table already: restart the switch")
    actors_curve: list[ActorProgress] = []
    start = Start(before.ticket, before.version)

    with ProcessGroup(learn.__module__) as group:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads, as torch's in these processes
        for rank in range(_LEARNER, options.actors):
            address = addresses[(rank + 1) % len(addresses)]
            if rank == _LEARNER:
                group.start(rank, "learner", _learner_process, learn, address, fields, options, start)
            else:
                group.start(rank, f"actor {rank}", _actor_process, act, rank, address, fields, options, start)
        with Display(console, options.steps) as display:

            def show(rank: int, progress: ActorProgress | LearnerProgress) -> None:
                if isinstance(progress, ActorProgress):
                    actors_curve.append(progress)
                    display.show_actor(progress)
                else:
                    display.show_learner(progress)

            learned, *actors = group.run(check, show)

    after = _statistics(addresses[0], fields)
    added, sent = (after.adds - before.adds) % 2**32, sum(actor.items for actor in actors)
    console.print(f"evaluating the network on {options.evaluation_episodes} unseen episodes ...")
    rewards = evaluate(learned.weights)
    mean_return = sum(rewards) / len(rewards)
    last = learned.curve[-1]
    summary = {
        "mean_reward_eval": mean_return,
        "rewards_eval": rewards,
        "solved": mean_return >= options.solved_return,
        "learner_steps": last.step,
        "best_step": learned.best_step,
        "environment_steps": sum(actor.steps for actor in actors),
        "episodes": sum(actor.episodes for actor in actors),
        "items_added": added,
        "items_sent": sent,
        "adds_before": before.adds,
        "items_sampled": learned.sampled,
        "rows_overwritten": last.overwritten,
        "updates_stale": last.stale,
        "bytes_sent": sum(actor.bytes_sent for actor in actors),
        "wall_s": round(time.perf_counter() - begin, 2),
        "learn_s": round(learned.seconds, 2),
        "weights_sha256": learned.weights_sha256,
        "samples_sha256": learned.samples_sha256,
        "parameters": learned.weights.size,
        "versions": after.version - before.version,
        "outcomes": {
            name: count
            for name, earlier in before.outcomes.items()
            if (count := (after.outcomes[name] - earlier) % 2**32)
        },
        "actors": options.actors,
        "seed": options.seed,
        "switch": list(addresses),
        "options": asdict(options),
        **(notes or {}),
        "curve": [asdict(point) for point in learned.curve],
        "actors_curve": [asdict(point) for point in actors_curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw_curves(summary, out / "learning_curve.png")
    if added != sent:
        raise LaunchError(
            f"the switch reports that {added:,} items were added, but {options.actors} actors sent {sent:,}. Does it "
            "serve others meanwhile?"
        )
    print_results(summary, out, console)
    return summary


def _client(address: str, fields: Fields) -> ReplayClient:
    return ReplayClient(address, fields, timeout_s=_TIMEOUT_S)


def _statistics(address: str, fields: Fields) -> Statistics:
    with _client(address, fields) as client:
        return client.statistics()


def _learner_process(
    learn: Learn, address: str, fields: Fields, options: Options, start: Start, send: Callable[[object], None]
) -> None:
    with _client(address, fields) as client:
        send(Done(learn(client, options, start, send)))


def _actor_process(
    act: Act, rank: int, address: str, fields: Fields, options: Options, start: Start, send: Callable[[object], None]
) -> None:
    with _client(address, fields) as client:
        last = act(client, options, rank, start, send)
        send(last)
        send(Done(last))
