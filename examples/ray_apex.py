"""Ape-X DQN on Ray: several learners, whose gradients the switch averages and whose prioritized replay it keeps.

Ray starts the processes and places them on its machines; neither gradients nor transitions nor parameters go through
Ray. Actors are replay clients: they step environments with the newest parameters and add transitions, as in `apex.py`.
A learner is a replay client and a worker of a job: it samples batches of its own, the switch averages the gradients of
all learners, and all take the same step. So all learners end with equal weights.

    iswitch switch --replay default                                          # in one terminal
    python -m examples.ray_apex --switch 127.0.0.1:27000-27003 --learners 2    # in another
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import torch
from rich.console import Console
from typer import Option

from examples import apex
from examples.apex import EVALUATION_SEED, STOP, act, evaluate, sizes
from examples.common.apex_progress import ActorProgress
from examples.common.command import Switch, application, parse_addresses
from examples.common.dqn import DoubleDQN, priorities_of
from examples.common.networks import vector_network
from examples.common.nstep import transition_fields
from examples.common.processes import LaunchError
from examples.common.replica import Vector
from examples.common.ticket_order import Start
from iswitch import Worker
from iswitch.replay import Field, ReplayClient

__all__ = ["Actor", "Learned", "Learner", "Options", "app", "train"]

_TIMEOUT_S = 60.0
"""Seconds until a silent switch is an error. Long, because the processes share the processors."""
_SLACK = 4
"""How far samples may be ahead of the ratio, and behind it: in batches of all learners, or in adds of all actors."""


@dataclass(frozen=True, kw_only=True)
class Options(apex.Options):
    """The options of `apex.py`, and the number of learners. `batch_size` is that of one learner."""

    actors: Annotated[int, Option(min=1, help="Number of actors.")] = 2
    learners: Annotated[int, Option(min=1, help="Number of learners.")] = 2
    steps: Annotated[int, Option(min=1, help="Steps of the learners. A step is one batch of each.")] = 6_400

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deterministic:
            raise ValueError("Options deterministic must be False: learners sample as they come. Take examples.apex")


@dataclass(frozen=True)
class Learned:
    """The result of one learner.

    Attributes
    ----------
    weights : Vector
        Its network's parameters after the last step.
    steps : int
        Steps that it took.
    contributions : int
        The workers in all sums, added up: `steps` times the number of learners if none was ever missing.
    sampled, overwritten : int
        Transitions that it sampled, and those that were overwritten before it read them.
    """

    weights: Vector
    steps: int
    contributions: int
    sampled: int
    overwritten: int


class Actor:
    """An actor's process: a replay client."""

    def run(self, options: Options, rank: int, address: str) -> ActorProgress:
        """Add transitions until the learners end."""
        with _client(options, address) as replay:
            return act(replay, options, rank, Start(ticket=0, version=0))


class Learner:
    """A learner's process: a replay client and a worker."""

    def run(self, options: Options, rank: int, address: str, key: int) -> Learned:
        """Learn. The learner of rank 0 also sets the limits of the table, and publishes the parameters."""
        torch.set_num_threads(1)
        size, actions = sizes(options)
        online, target = (vector_network(size, actions, options.hidden, options.seed) for _ in range(2))
        agent = DoubleDQN(
            online, target, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm, tau=options.tau
        )
        contributions = sampled = overwritten = 0

        def average(worker: Worker, gradient: Vector) -> None:
            nonlocal contributions
            missing = worker.allreduce(gradient, op="mean").missing
            contributions += options.learners - len(missing)

        with (
            Worker(address, world=options.learners, rank=rank, key=key, timeout_s=_TIMEOUT_S) as worker,
            _client(options, address) as replay,
        ):
            if rank == 0:
                _set_limits(replay, options)
                replay.set_parameters(1, agent.replica.weights())
            version, batches = 1, replay.prefetch(options.batch_size, depth=2, beta=options.beta)
            for step, batch in zip(range(1, options.steps + 1), batches):
                deltas, _ = agent.step(batch.data, batch.weights, lambda gradient: average(worker, gradient))
                replay.update_priority(batch.items, priorities_of(deltas, options.alpha))
                sampled, overwritten = sampled + len(batch), overwritten + int(batch.overwritten.sum())
                if rank == 0 and step % options.publish_interval == 0 and step < options.steps:
                    version += 1
                    replay.set_parameters(version, agent.replica.weights())
            if rank == 0:
                replay.set_parameters(version + 1, STOP)
                replay.set_limits()  # none: the actors' last adds would wait for samples that do not come
        return Learned(agent.replica.weights(), agent.replica.steps, contributions, sampled, overwritten)


def _client(options: Options, address: str) -> ReplayClient:
    fields = transition_fields(Field((sizes(options)[0],), np.float32))
    return ReplayClient(address, fields, timeout_s=_TIMEOUT_S)


def _set_limits(replay: ReplayClient, options: Options) -> None:
    """Bind the samples of all learners to the adds of all actors, from now on."""
    slack = _SLACK * max(
        options.batch_size * options.learners, round(options.add_size * options.samples_per_insert) * options.actors
    )
    replay.set_limits(
        min_size_to_sample=options.learning_starts,
        samples_per_insert=options.samples_per_insert,
        max_insert_lag=slack,
        max_insert_lead=slack,
    )


def train(options: Options, addresses: Sequence[str], console: Console | None = None) -> dict[str, Any]:
    """Train on Ray, and return the summary.

    Parameters
    ----------
    options : Options
        Environment and hyperparameters.
    addresses : Sequence[str]
        Ports of the switch, as the machines of Ray reach them. The processes use them in turn.
    console : Console, optional
        Shows the results.

    Returns
    -------
    dict
        The summary. "solved" is True if the evaluation's mean return is at least `options.solved_return`.

    Raises
    ------
    LaunchError
        If Ray is not installed, the table was not empty, or the learners' weights differ.
    """
    try:
        import ray
    except ImportError as error:
        raise LaunchError(f"this example needs Ray: `make ray`, or `pip install ray==2.60.0` ({error})") from None
    console, begin, key = console or Console(), time.perf_counter(), secrets.randbits(64)
    with _client(options, addresses[0]) as replay:
        if size := replay.count_items():
            raise LaunchError(f"{size:,} items are in the table already: restart the switch")
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False)
    try:
        # A share of a processor each: several processes may share one, as they do on a small machine.
        remote = ray.remote(num_cpus=0.1)
        learners = [remote(Learner).remote() for _ in range(options.learners)]
        actors = [remote(Actor).remote() for _ in range(options.actors)]
        ports = [addresses[k % len(addresses)] for k in range(len(learners) + len(actors))]
        learning = [
            learner.run.remote(options, rank, port, key) for rank, (learner, port) in enumerate(zip(learners, ports))
        ]
        acting = [
            actor.run.remote(options, rank, port)
            for rank, (actor, port) in enumerate(zip(actors, ports[len(learners) :]))
        ]
        done: list[Any] = []
        waiting = [*learning, *acting]
        while waiting:  # the first error ends the training
            ready, waiting = ray.wait(waiting)
            done += ray.get(ready)
        learned, acted = ray.get(learning), ray.get(acting)
    finally:
        if started:
            ray.shutdown()
    weights = learned[0].weights
    if any(not np.array_equal(weights, other.weights) for other in learned):
        raise LaunchError("the learners' weights differ: all must start with the same seed, and sum at the same switch")
    with _client(options, addresses[0]) as replay:
        adds = replay.statistics().adds
    returns = evaluate(weights, options, EVALUATION_SEED)
    mean_return = sum(returns) / len(returns)
    summary = {
        "mean_reward_eval": mean_return,
        "solved": mean_return >= options.solved_return,
        "learners": options.learners,
        "learner_steps": learned[0].steps,
        "contributions": [each.contributions for each in learned],
        "items_sampled": sum(each.sampled for each in learned),
        "rows_overwritten": sum(each.overwritten for each in learned),
        "adds": adds,
        "items_added": sum(each.items for each in acted),
        "environment_steps": sum(each.steps for each in acted),
        "wall_s": round(time.perf_counter() - begin, 2),
        "options": asdict(options),
    }
    console.print(
        f"{options.learners} learners took {summary['learner_steps']:,} steps, and their weights are equal. "
        f"{summary['items_added']:,} transitions of {options.actors} actors were added, {summary['items_sampled']:,} "
        f"sampled. Mean return of {len(returns)} episodes: {mean_return:.1f}"
    )
    return summary


def main(options: Options, switch: Switch = "127.0.0.1:27000-27003") -> bool:
    """Learn with Ape-X DQN on Ray, whose gradients and prioritized replay go through the switch."""
    return bool(train(options, parse_addresses(switch))["solved"])


app = application(main)

if __name__ == "__main__":
    app()
