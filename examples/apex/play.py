"""Who plays: an actor's games, and the play by which a network is judged."""

from collections import deque
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from examples.apex.dqn import errors_of_actor, priorities_of
from examples.apex.dueling import DuelingArrays
from examples.apex.nstep import NStep, Transition, columns
from examples.apex.options import Options, Vector

__all__ = ["HELD_OUT", "TRIALS", "Games", "evaluate", "sizes"]

TRIALS, HELD_OUT = 2**30, 2**31
"""First seeds of the episodes by which a learner sees when to stop, and of those that nobody sees before the end.
Actors' are below."""
_RECENT = 20


def sizes(options: Options) -> tuple[int, int]:
    """Numbers in an observation, and actions. ValueError if the game is not played like CartPole."""
    with gymnasium.make(options.environment) as game:
        seen, actions = game.observation_space, game.action_space
    if not (isinstance(seen, spaces.Box) and len(seen.shape) == 1 and isinstance(actions, spaces.Discrete)):
        raise ValueError(
            f"Options environment must show a vector and take one of several actions, as CartPole does; "
            f"{options.environment!r} shows {seen} and takes {actions}"
        )
    return seen.shape[0], int(actions.n)


class Games:
    """An actor's games, in the middle of their episodes, and the network that plays them.

    steps, episodes: so far. returns: of its latest episodes.
    """

    def __init__(self, options: Options, rank: int) -> None:
        self.options = options
        observed, self.actions = sizes(options)
        self.network = DuelingArrays(observed, self.actions, options.hidden)
        self._random = np.random.default_rng([options.seed, rank])
        first = rank * options.games
        self._epsilon = np.array([options.epsilon_of(first + k) for k in range(options.games)])
        self._games = [gymnasium.make(options.environment, disable_env_checker=True) for _ in range(options.games)]
        seed = options.seed * options.actors * options.games + first
        self._observations = np.stack([game.reset(seed=(seed + k) % TRIALS)[0] for k, game in enumerate(self._games)])
        self._builders = [NStep(options.horizon, options.discount) for _ in self._games]
        self._running = [0.0] * options.games
        self._complete: deque[Transition] = deque()
        self.steps = self.episodes = 0
        self.returns: deque[float] = deque(maxlen=_RECENT)

    def play(self, count: int) -> tuple[dict[str, npt.NDArray[Any]], Vector]:
        """So many new transitions, with their priorities by the network as it is now."""
        while len(self._complete) < count:
            self._step()
        batch = columns([self._complete.popleft() for _ in range(count)])
        errors = errors_of_actor(batch, self.network(batch["observation"]), self.network(batch["next_observation"]))
        return batch, priorities_of(errors, self.options.exponent)

    def _step(self) -> None:
        actions = self.network(self._observations).argmax(-1)
        at_random = self._random.random(len(self._games)) < self._epsilon
        actions = np.where(at_random, self._random.integers(self.actions, size=len(self._games)), actions)
        for k, action in enumerate(actions.tolist()):
            before = self._observations[k].copy()
            after, reward, terminated, truncated, _ = self._games[k].step(action)
            self._complete += self._builders[k].step(
                before, action, float(reward), after, terminated=terminated, truncated=truncated
            )
            self._running[k] += float(reward)
            if terminated or truncated:
                self.returns.append(self._running[k])
                self.episodes += 1
                self._running[k] = 0.0
                after, _ = self._games[k].reset()
            self._observations[k] = after
        self.steps += len(self._games)


def evaluate(weights: Vector, options: Options, first_seed: int) -> list[float]:
    """Returns of `evaluation_episodes` episodes, always taking the action of the greatest value."""
    network = DuelingArrays(*sizes(options), options.hidden)
    network.load(weights)
    games = [gymnasium.make(options.environment, disable_env_checker=True) for _ in range(options.evaluation_episodes)]
    observations = np.stack([game.reset(seed=first_seed + k)[0] for k, game in enumerate(games)])
    returns = [0.0] * len(games)
    playing = list(range(len(games)))
    while playing:
        ended = set()
        for k, action in zip(playing, network(observations[playing]).argmax(-1).tolist()):
            observations[k], reward, terminated, truncated, _ = games[k].step(action)
            returns[k] += float(reward)
            if terminated or truncated:
                ended.add(k)
        playing = [k for k in playing if k not in ended]
    return returns
