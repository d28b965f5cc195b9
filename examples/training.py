"""The options of a PPO training, synchronous or asynchronous, and the reports of its workers."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from examples.replica import Vector

__all__ = ["Episodes", "Options", "Pace", "Progress", "Trained"]

Pace = Callable[[int], None]
"""A worker calls it before each gradient, with its environment steps since the gradient before. A simulation lets their
time pass there."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The environment and the hyperparameters, named as in CleanRL. The defaults solve CartPole-v1.

    Parameters
    ----------
    environment : str
        Gymnasium's name of the environment.
    seed : int
        Seeds the weights, the environments and the samples of all workers.
    workers : int
        Workers of the job.
    num_envs : int
        Environments of each worker.
    num_steps : int
        Steps of each environment in a rollout.
    total_steps : int
        Environment steps of all workers together, at most. The learning rate falls linearly to 0 over them.
    epochs, num_minibatches : int
        Passes over a rollout, and the parts into which each pass splits it. Each part is a gradient and an allreduce.
    learning_rate : float
        Adam's, at the first update.
    gamma, gae_lambda : float
        Discount, and lambda of generalized advantage estimation.
    reward_scale : float
        Factor of the rewards that are learned from. CartPole's discounted returns of up to 100 become values of up to
        10. The value net learns these sooner, and their gradients leave room for the policy's within `max_grad_norm`.
        Reported returns are not scaled.
    clip_coef : float
        Greatest change of the probability ratio that PPO's objective rewards.
    ent_coef, vf_coef : float
        Weights of entropy and value loss.
    max_grad_norm : float
        Gradients that are longer are cut to this norm.
    hidden : int
        Units of each hidden layer.
    solved_return : float
        Mean return from which the environment counts as solved: the threshold that Gymnasium registers for CartPole-v1.
    solved_episodes : int
        The training stops when the latest `solved_episodes` episodes of all workers returned `solved_return` on
        average.
    evaluation_episodes : int
        Episodes of the evaluation, with seeds that no training uses.
    """

    environment: str = "CartPole-v1"
    seed: int = 1
    workers: int = 4
    num_envs: int = 4
    num_steps: int = 128
    total_steps: int = 200_000
    epochs: int = 4
    num_minibatches: int = 2
    learning_rate: float = 1.5e-3
    gamma: float = 0.99
    gae_lambda: float = 0.98
    reward_scale: float = 0.1
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    hidden: int = 64
    solved_return: float = 475.0
    solved_episodes: int = 100
    evaluation_episodes: int = 20

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "num_envs",
            "num_steps",
            "total_steps",
            "epochs",
            "num_minibatches",
            "hidden",
            "solved_episodes",
            "evaluation_episodes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"Options {name} must be at least 1, not {getattr(self, name)!r}")
        if self.num_minibatches > self.num_envs * self.num_steps:
            raise ValueError(
                f"Options num_minibatches must be at most num_envs * num_steps, "
                f"{self.num_envs * self.num_steps}, not {self.num_minibatches!r}"
            )
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"Options {name} must be 0 to 1, not {getattr(self, name)!r}")
        for name in ("learning_rate", "reward_scale", "clip_coef", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Options {name} must be above 0, not {getattr(self, name)!r}")

    @property
    def updates(self) -> int:
        """Rollouts of each worker, at most."""
        return max(1, self.total_steps // (self.workers * self.num_envs * self.num_steps))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A worker's report after one update. All workers report the same but for `allreduces` and `seconds`.

    missing: ranks without which one of the sums since the last report was formed. allreduces: collectives that this
    worker has called.
    """

    update: int
    steps: int
    mean_return: float
    missing: tuple[int, ...]
    allreduces: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The result of one worker's training."""

    rank: int
    weights: Vector
    curve: list[Progress]
    train_s: float

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights' bytes."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


class Episodes:
    """The returns of the latest `solved_episodes` episodes of all workers, or of somewhat more, as they come in
    groups."""

    def __init__(self, options: Options) -> None:
        self.options, self._latest = options, list[tuple[float, float]]()

    def add(self, returned: float, ended: float) -> None:
        """Add `ended` episodes, whose returns sum up to `returned`."""
        if ended:
            self._latest.append((returned, ended))
        while sum(count for _, count in self._latest[1:]) >= self.options.solved_episodes:
            self._latest.pop(0)

    def clear(self) -> None:
        """Forget all episodes."""
        self._latest.clear()

    @property
    def mean_return(self) -> float:
        """The mean of the returns, 0 if there are no episodes yet."""
        count = sum(count for _, count in self._latest)
        return sum(total for total, _ in self._latest) / count if count else 0.0

    @property
    def solved(self) -> bool:
        """Return True if there are `solved_episodes` episodes and their mean return is at least `solved_return`."""
        return (
            sum(count for _, count in self._latest) >= self.options.solved_episodes
            and self.mean_return >= self.options.solved_return
        )
