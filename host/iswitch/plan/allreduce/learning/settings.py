"""Settings of the training."""

from dataclasses import dataclass

from iswitch.plan.allreduce.model.topologies import TRAINED_ON

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """Settings of the training.

    Parameters
    ----------
    topologies : tuple of str
        Topologies to train on.
    iterations : int
        Number of updates. Each uses episodes on all topologies.
    num_envs : int
        Parallel environments, and so episodes, of each topology and iteration.
    hidden : int
        Units in the hidden layer of each network.
    seed : int
        Seed of all random numbers.
    update_epochs : int
        Passes over the batches of an iteration.
    clip_coef : float
        Clipping coefficient of PPO.
    learning_rate : float
        Learning rate of Adam; it falls linearly to a tenth.
    gae_lambda : float
        Lambda of the generalised advantage estimation. Rewards are not discounted.
    ent_coef : float
        Coefficient of the entropy of the lower policy.
    placements_per_round : int
        Placements of each round, chosen at random, that the lower policy learns from.
    """

    topologies: tuple[str, ...] = TRAINED_ON
    iterations: int = 200
    num_envs: int = 16
    hidden: int = 32
    seed: int = 1
    update_epochs: int = 3
    clip_coef: float = 0.2
    learning_rate: float = 3e-3
    gae_lambda: float = 0.95
    ent_coef: float = 0.002
    placements_per_round: int = 12

    def __post_init__(self) -> None:
        for name in ("iterations", "num_envs", "hidden", "update_epochs", "placements_per_round"):
            if getattr(self, name) < 1:
                raise ValueError(f"Settings {name} must be at least 1, not {getattr(self, name)!r}")
        if not self.topologies:
            raise ValueError("Settings topologies must name at least one, not ()")
