"""Ape-X DQN (Horgan et al. 2018) whose prioritized replay, rate limit and parameters are the switch's.

Actors step environments with the newest parameters, and add n-step transitions with priorities of their own to the
replay table in the switch. The learner samples batches, takes steps of double DQN, updates the priorities, and
publishes its parameters through the switch. With `--deterministic` all requests have a fixed order, so the same seed
samples the same transitions and gives the same weights.

    make emulator REPLAY=default                                       # in one terminal
    python -m examples.apex --switch 127.0.0.1:27000-27003 --actors 4    # in another
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from typer import Option

from examples.common.apex_launch import launch
from examples.common.apex_progress import ActorProgress, Learned, LearnerProgress
from examples.common.command import Folder, Switch, application, check_ranges, parse_addresses
from examples.common.dqn import DoubleDQN, actor_deltas, priorities_of
from examples.common.envs import make_envs
from examples.common.networks import DuelingArrays, vector_network
from examples.common.nstep import NStep, Transition, columns, transition_fields
from examples.common.replica import Vector
from examples.common.ticket_order import Schedule, Start
from iswitch.replay import Batch, Field, ReplayClient

__all__ = [
    "EVALUATION_SEED",
    "STOP",
    "Options",
    "Sampler",
    "act",
    "app",
    "evaluate",
    "learn",
    "train",
    "schedule_of",
    "sizes",
]

STOP = b"stop"
"""Begins the last version that the learner publishes: actors then end. As the first weight it would be 7.7e31."""
TRIAL_SEED, EVALUATION_SEED = 2**30, 2**31
"""First seeds of the episodes by which the learner decides when to stop, and of those of the final evaluation. The
seeds of the actors' environments are smaller."""
_PARAMETERS_TIMEOUT_S = 60.0
_REPORT_INTERVAL_S = 0.5
_RECENT_EPISODES = 20
_SLACK = 4
"""How far samples may be ahead of the ratio, and behind it: in batches, or in adds of all actors."""
_CONFIRMATIONS = 3
"""Further evaluations that must confirm a good one, since few episodes may be lucky."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The environment and the hyperparameters. The defaults solve CartPole-v1."""

    environment: Annotated[str, Option(help="Gymnasium's name of the environment.")] = "CartPole-v1"
    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 1
    actors: Annotated[int, Option(min=1, help="Number of actors.")] = 4
    num_envs: Annotated[int, Option(min=1, help="Environments of each actor.")] = 4
    add_size: Annotated[int, Option(min=1, help="Transitions that an actor adds at a time.")] = 32
    n_step: Annotated[int, Option(min=1, help="Steps of a transition.")] = 5
    gamma: Annotated[float, Option(min=0, max=1, help="Discount factor.")] = 0.99
    hidden: Annotated[int, Option(min=1, help="Units of each hidden layer.")] = 64
    batch_size: Annotated[int, Option(min=1, help="Transitions in a batch.")] = 64
    steps: Annotated[int, Option(min=1, help="Steps of the learner, at most. A step is one batch.")] = 12_800
    samples_per_insert: Annotated[float, Option(help="Samples for each transition that is added.")] = 4.0
    learning_starts: Annotated[int, Option(min=1, help="Transitions in the table before the first step.")] = 1024
    learning_rate: Annotated[float, Option(help="Learning rate of Adam.")] = 1e-3
    max_grad_norm: Annotated[float, Option(help="Gradients are clipped to this norm.")] = 10.0
    tau: Annotated[float, Option(help="Rate at which the target network follows the online network.")] = 0.01
    publish_interval: Annotated[int, Option(min=1, help="Steps between two versions of the parameters.")] = 64
    alpha: Annotated[float, Option(help="A priority is the absolute TD error to this power.")] = 0.6
    beta: Annotated[float, Option(help="Exponent of the importance weights.")] = 0.4
    epsilon: Annotated[float, Option(min=0, max=1, help="Exploration rate of the environment that explores most.")] = (
        0.4
    )
    epsilon_alpha: Annotated[
        float, Option(help="Environment i of all N explores at the rate epsilon ** (1 + epsilon_alpha * i / (N - 1)).")
    ] = 7.0
    evaluation_interval: Annotated[int, Option(min=1, help="Steps between two evaluations.")] = 256
    evaluation_episodes: Annotated[int, Option(min=1, help="Episodes of an evaluation.")] = 20
    stop_return: Annotated[float, Option(help="The training stops at this mean return of an evaluation.")] = 485.0
    solved_return: Annotated[float, Option(help="Mean return of the final evaluation that solves it.")] = 450.0
    deterministic: Annotated[bool, Option(help="Execute all requests in a fixed order.")] = False

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.samples_per_insert <= 0:
            raise ValueError(f"Options samples_per_insert must be above 0, not {self.samples_per_insert!r}")
        if self.steps % self.evaluation_interval:
            raise ValueError(
                f"Options steps must be a multiple of evaluation_interval, {self.evaluation_interval}, "
                f"not {self.steps!r}"
            )
        if self.evaluation_interval % self.publish_interval:
            raise ValueError(
                f"Options evaluation_interval must be a multiple of publish_interval, {self.publish_interval}, "
                f"not {self.evaluation_interval!r}"
            )

    def epsilon_of(self, env: int) -> float:
        """Return the exploration rate of one of all actors' environments."""
        others = self.actors * self.num_envs - 1
        return self.epsilon ** (1 + self.epsilon_alpha * env / others) if others else self.epsilon


def schedule_of(options: Options, start: Start, tickets_per_add: int) -> Schedule:
    """Return the deterministic order of a training."""
    return Schedule(
        start=start,
        actors=options.actors,
        add_size=options.add_size,
        batch_size=options.batch_size,
        samples_per_insert=options.samples_per_insert,
        learning_starts=options.learning_starts,
        publish_interval=options.publish_interval,
        tickets_per_add=tickets_per_add,
    )


def sizes(options: Options) -> tuple[int, int]:
    """Return the elements of an observation and the number of actions.

    Raises
    ------
    ValueError
        If the observations are not vectors, or the actions are not discrete.
    """
    with gymnasium.make(options.environment) as env:
        obs, actions = env.observation_space, env.action_space
    if not (isinstance(obs, spaces.Box) and len(obs.shape) == 1 and isinstance(actions, spaces.Discrete)):
        raise ValueError(
            f"Options environment must have a vector as observation and discrete actions, as CartPole has; "
            f"{options.environment!r} has {obs} and {actions}"
        )
    return obs.shape[0], int(actions.n)


def evaluate(weights: Vector, options: Options, first_seed: int) -> list[float]:
    """Return the returns of `evaluation_episodes` episodes with greedy actions."""
    network = DuelingArrays(*sizes(options), options.hidden)
    network.load(weights)
    envs = make_envs(options.environment, options.evaluation_episodes)
    obs, _ = envs.reset(seed=first_seed)
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    actions = np.zeros(envs.num_envs, np.int64)
    while running.any():
        actions[running] = network(obs[running]).argmax(-1)
        obs, reward, terminated, truncated, _ = envs.step(actions)
        returns[running] += reward[running]
        running &= ~(terminated | truncated)
    return returns.tolist()


class Sampler:
    """An actor's environments, and the network that chooses its actions.

    Attributes
    ----------
    network : DuelingArrays
        The network; the actor loads published parameters into it.
    steps, episodes : int
        Environment steps and episodes so far.
    returns : deque[float]
        Returns of the latest episodes.
    """

    def __init__(self, options: Options, rank: int) -> None:
        self.options = options
        size, self.actions = sizes(options)
        self.network = DuelingArrays(size, self.actions, options.hidden)
        self._random = np.random.default_rng([options.seed, rank])
        first = rank * options.num_envs
        self._epsilon = np.array([options.epsilon_of(first + k) for k in range(options.num_envs)])
        self._envs = make_envs(options.environment, options.num_envs)
        seed = options.seed * options.actors * options.num_envs + first
        self._obs, _ = self._envs.reset(seed=[(seed + k) % TRIAL_SEED for k in range(options.num_envs)])
        self._builders = [NStep(options.n_step, options.gamma) for _ in range(options.num_envs)]
        self._completed: deque[Transition] = deque()
        self.steps = self.episodes = 0
        self.returns: deque[float] = deque(maxlen=_RECENT_EPISODES)

    def transitions(self, count: int) -> tuple[dict[str, npt.NDArray[Any]], Vector]:
        """Return new transitions, and their priorities by the present network."""
        while len(self._completed) < count:
            self._step()
        batch = columns([self._completed.popleft() for _ in range(count)])
        deltas = actor_deltas(batch, self.network(batch["obs"]), self.network(batch["next_obs"]))
        return batch, priorities_of(deltas, self.options.alpha)

    def _step(self) -> None:
        """Step every environment with an epsilon-greedy action."""
        num_envs, obs = self._envs.num_envs, self._obs
        actions = self.network(obs).argmax(-1)
        explores = self._random.random(num_envs) < self._epsilon
        actions = np.where(explores, self._random.integers(self.actions, size=num_envs), actions)
        self._obs, reward, terminated, truncated, infos = self._envs.step(actions)
        for k in range(num_envs):
            ended = terminated[k] or truncated[k]
            self._completed += self._builders[k].step(
                obs[k],
                int(actions[k]),
                float(reward[k]),
                infos["final_obs"][k] if ended else self._obs[k],
                terminated=bool(terminated[k]),
                truncated=bool(truncated[k]),
            )
            if ended:
                self.returns.append(float(infos["episode"]["r"][k]))
                self.episodes += 1
        self.steps += num_envs


def act(
    replay: ReplayClient,
    options: Options,
    rank: int,
    start: Start,
    report: Callable[[ActorProgress], Any] = lambda progress: None,
) -> ActorProgress:
    """Add transitions to the table until the learner publishes its end.

    Raises
    ------
    TimeoutError
        If the learner does not publish the parameters that this actor needs.
    """
    sampler = Sampler(options, rank)
    schedule = schedule_of(options, start, replay.tickets(options.add_size)) if options.deterministic else None
    version, rounds, reported = start.version, 0, time.monotonic()

    def progress() -> ActorProgress:
        returns = list(sampler.returns)
        return ActorProgress(
            rank=rank,
            steps=sampler.steps,
            episodes=sampler.episodes,
            mean_return=sum(returns) / len(returns) if returns else 0.0,
            version=version,
            items=rounds * options.add_size,
            bytes_sent=replay.statistics().bytes_sent,
        )

    while True:
        needed = schedule.version(rounds) if schedule else start.version + 1
        waits = version < needed
        published = None
        if waits or not schedule:
            published = replay.get_parameters(newer_than=version, timeout_s=_PARAMETERS_TIMEOUT_S if waits else 0.0)
        if published:
            version, payload = published
            if payload.startswith(STOP):
                replay.flush()
                return progress()
            sampler.network.load(np.frombuffer(payload, np.float32, sampler.network.size))
        elif waits:
            raise TimeoutError(
                f"actor {rank} waited {_PARAMETERS_TIMEOUT_S:g} s for version {needed} of the parameters, and has "
                f"{version}"
            )
        transitions, priorities = sampler.transitions(options.add_size)
        replay.extend(transitions, priorities, ticket=schedule.add(rounds, rank) if schedule else 0)
        rounds += 1
        if time.monotonic() - reported >= _REPORT_INTERVAL_S:
            reported = time.monotonic()
            report(progress())


class _Table:
    """The learner's requests to the table, in the order of a schedule if there is one, and their counts."""

    def __init__(self, replay: ReplayClient, options: Options, start: Start) -> None:
        self.replay, self.options, self.version = replay, options, start.version
        tickets_per_add = replay.tickets(options.add_size)
        self.schedule = schedule_of(options, start, tickets_per_add) if options.deterministic else None
        self.samples_sha256 = hashlib.sha256()
        self.sampled = self.overwritten = self._stale = 0
        self._updates: list[Iterable[int]] = []

    def set_limits(self) -> None:
        """Bind samples to adds. In deterministic order the schedule does so."""
        if not self.schedule:
            options = self.options
            slack = _SLACK * max(
                options.batch_size, round(options.add_size * options.samples_per_insert) * options.actors
            )
            self.replay.set_limits(
                min_size_to_sample=options.learning_starts,
                samples_per_insert=options.samples_per_insert,
                max_insert_lag=slack,
                max_insert_lead=slack,
            )

    def batches(self) -> Iterator[Batch]:
        """Yield sampled batches."""
        options = self.options
        if not self.schedule:
            yield from self.replay.prefetch(options.batch_size, depth=2, beta=options.beta)
        else:
            for step in range(options.steps):
                yield self.replay.sample(
                    options.batch_size,
                    beta=options.beta,
                    seed=options.seed << 32 | step + 1,
                    ticket=self.schedule.sample(step),
                )

    def update(self, step: int, batch: Batch, deltas: Vector) -> None:
        """Update the priorities of a batch by its TD errors, without waiting for the reply."""
        self.sampled += len(batch.items)
        self.samples_sha256.update(batch.items.tobytes())
        self.overwritten += int(batch.overwritten.sum())
        self._updates.append(
            self.replay.update_priority(
                batch.items,
                priorities_of(deltas, self.options.alpha),
                ticket=self.schedule.update(step) if self.schedule else 0,
            )
        )

    def publish(self, parameters: Vector | bytes) -> None:
        """Publish the next version of the parameters."""
        self.version += 1
        self.replay.set_parameters(self.version, parameters)

    def stop(self) -> None:
        """Publish the end of the training."""
        self.publish(STOP)
        if not self.schedule:
            self.replay.set_limits()  # the actors' last adds would wait for samples that do not come

    def stale(self) -> int:
        """Wait for the replies to all updates, and return how many priorities were too late for their items."""
        self._stale += sum(stale for _, stale in self._updates)
        self._updates.clear()
        return self._stale


def _trial(weights: Vector, options: Options, step: int) -> tuple[float, ...]:
    """Return the returns of an evaluation, and of further episodes that confirm a good one."""
    first = TRIAL_SEED + step * options.evaluation_episodes * (1 + _CONFIRMATIONS)
    returns = evaluate(weights, options, first)
    if sum(returns) / len(returns) >= options.stop_return:
        for number in range(1, 1 + _CONFIRMATIONS):
            returns += evaluate(weights, options, first + number * options.evaluation_episodes)
    return tuple(returns)


def learn(
    replay: ReplayClient,
    options: Options,
    start: Start,
    report: Callable[[LearnerProgress], Any] = lambda progress: None,
) -> Learned:
    """Learn until an evaluation reaches `stop_return`, for at most `steps` steps."""
    begin = time.perf_counter()
    size, actions = sizes(options)
    online, target = (vector_network(size, actions, options.hidden, options.seed) for _ in range(2))
    agent = DoubleDQN(
        online, target, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm, tau=options.tau
    )
    table, curve, losses = _Table(replay, options, start), list[LearnerProgress](), list[float]()
    best_return, best_step, best_weights = float("-inf"), 0, agent.replica.weights()
    table.set_limits()
    table.publish(agent.replica.weights())
    for step, batch in zip(range(1, options.steps + 1), table.batches()):
        deltas, loss = agent.step(batch.data, batch.weights)
        table.update(step - 1, batch, deltas)
        losses.append(loss)
        if step % options.publish_interval:
            continue
        weights = agent.replica.weights()
        returns = () if step % options.evaluation_interval else _trial(weights, options, step)
        statistics = replay.statistics()
        now = LearnerProgress(
            step=step,
            version=table.version,
            returns=returns,
            loss=sum(losses) / len(losses),
            adds=statistics.adds,
            samples=statistics.samples,
            size=statistics.size,
            priority_sum=statistics.priority_sum,
            overwritten=table.overwritten,
            stale=table.stale(),
            seconds=time.perf_counter() - begin,
        )
        curve.append(now)
        report(now)
        losses.clear()
        if now.mean_return is not None:
            if now.mean_return > best_return:
                best_return, best_step, best_weights = now.mean_return, step, weights
            if now.mean_return >= options.stop_return:
                break
        if step < options.steps:
            table.publish(weights)
    table.stop()
    return Learned(
        weights=best_weights,
        best_step=best_step,
        curve=curve,
        sampled=table.sampled,
        samples_sha256=table.samples_sha256.hexdigest(),
        seconds=time.perf_counter() - begin,
    )


def train(options: Options, addresses: Sequence[str], out: Path, **settings: Any) -> dict[str, Any]:
    """Train with a process for each actor and one for the learner, and return the summary; see `launch`."""
    return launch(
        options,
        addresses,
        out,
        fields=transition_fields(Field((sizes(options)[0],), np.float32)),
        act=act,
        learn=learn,
        evaluate=lambda weights: evaluate(weights, options, EVALUATION_SEED),
        **settings,
    )


def main(options: Options, switch: Switch = "127.0.0.1:27000-27003", out: Folder = Path("build/demo-apex")) -> bool:
    """Learn with Ape-X DQN, whose prioritized replay is in the switch."""
    return bool(train(options, parse_addresses(switch), out)["solved"])


app = application(main)

if __name__ == "__main__":
    app()
