"""Gymnasium environments of both levels, one game or many in step; importing this registers them.

    gymnasium.make("iswitch/FlowTreeSelection-v0", topology="BCube(3,1)")
    gymnasium.make_vec("iswitch/WorkloadScheduling-v0", num_envs=16, vectorization_mode="vector_entry_point",
    topology="DCell(4,1)")

FlowTreeSelection (upper): a step is a round. Observation [tree, feature], action one bit a tree; the lower level then
fills the round. WorkloadScheduling (lower): a step is one workload, number hop * chunks + chunk. Observation "flows"
[workload, feature], and "mask", which workloads may be taken; one that may not is refused, at a price. When none is
left the round ends, and the upper level selects for the next.

Both see features of trees and flows, never the whole state, and none that depends on the size of the topology; so one
model plays all. Reward: minus the share of server ports that a round leaves idle, at its end. Over a game that is the
port bound minus the rounds of a phase.
"""

from typing import Any

import gymnasium
import networkx as nx
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.greedy import Scarcest
from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, TREE_FEATURES, Growth, Wiring
from iswitch.plan.allreduce.learning.policy import DYNAMIC, Scorer, changing, fill
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import build

__all__ = ["FlowTreeSelection", "FlowTreeSelectionVector", "WorkloadScheduling", "WorkloadSchedulingVector"]

REFUSED = -0.1
"""Reward of a workload that may not be taken."""

Floats = NDArray[np.float32]


class _Game:
    """What both kinds share: the games, and the other level's policy."""

    def __init__(self, topology: str | nx.Graph, copies: int, partner: Scorer | None) -> None:
        self.growth = Growth(Wiring(Network(build(topology) if isinstance(topology, str) else topology)), copies)
        self.partner: Scorer = partner or Scarcest()
        size = self.growth.size
        network = self.growth.network
        most = float(
            max(len(network.hops), network.ports.sum())
        )  # all features are shares but two: workloads of a link, rounds over
        self.trees = gymnasium.spaces.Box(-1, most, (size, len(TREE_FEATURES)), np.float32)
        self.workloads = len(network.hops) * size
        self.flows = gymnasium.spaces.Dict(
            {
                "flows": gymnasium.spaces.Box(-1, most, (self.workloads, len(FLOW_FEATURES) + DYNAMIC), np.float32),
                "mask": gymnasium.spaces.MultiBinary(self.workloads),
            }
        )
        self.features = np.zeros((copies, self.workloads, len(FLOW_FEATURES)), np.float32)

    def fill(self, pool: NDArray[Any], which: NDArray[np.bool_], draw: np.random.Generator) -> Floats:
        """A whole round of the copies `which`."""
        growth = self.growth
        growth.select(np.where(which[:, None], pool, growth.pool))
        closed = growth.open.copy()
        growth.open[~which] = False
        features = growth.flow_features().reshape(-1, len(FLOW_FEATURES))
        fill(growth, self.partner.net("lower", features), draw, 1.0, None)
        growth.open[~which] = closed[~which]
        return growth.end_round(which)

    def begin(self, which: NDArray[np.bool_]) -> None:
        """The upper level selects, and the features of the round are taken, where a round begins."""
        growth = self.growth
        pool = self.partner.net("upper", growth.tree_features())[..., 0] > 0
        growth.select(np.where(which[:, None], pool, growth.pool))
        self.features[which] = growth.flow_features(which).reshape(int(which.sum()), self.workloads, -1)

    def mask(self) -> NDArray[np.int8]:
        return self.growth.candidates.reshape(self.growth.copies, -1).astype(np.int8)

    def observed(self) -> dict[str, NDArray[Any]]:
        growth, mask = self.growth, self.mask()
        copy, row = np.nonzero(mask)
        hop, chunk = np.divmod(row, growth.size)
        flows = np.zeros((*mask.shape, len(FLOW_FEATURES) + DYNAMIC), np.float32)
        flows[copy, row, : len(FLOW_FEATURES)] = self.features[copy, row]
        flows[copy, row, len(FLOW_FEATURES) :] = changing(growth, copy, hop, chunk, growth.have.sum(1))
        return {"flows": flows, "mask": mask}

    def take(self, workload: NDArray[np.int64], which: NDArray[np.bool_]) -> Floats:
        """One workload in each copy of `which`; rewards."""
        growth = self.growth
        allowed = self.mask()[np.arange(growth.copies), workload].astype(bool) & which
        reward = np.where(which & ~allowed, np.float32(REFUSED), np.float32(0))
        at = np.flatnonzero(allowed)
        if len(at):
            growth.take(at, workload[at] // growth.size, workload[at] % growth.size)
        over = which & ~growth.candidates.any((1, 2))
        if over.any():
            reward = reward - growth.end_round(over)
            self.begin(over)
        return reward.astype(np.float32)


class FlowTreeSelection(gymnasium.Env[Floats, NDArray[np.int8]]):
    """The upper POMDP. `lower` scores workloads (`Scarcest` unless given); `topology` is a name that `build` knows, or
    a graph."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self, topology: str | nx.Graph = "BCube(3,1)", lower: Scorer | None = None, render_mode: None = None
    ) -> None:
        self.game = _Game(topology, 1, lower)
        self.render_mode = render_mode
        self.observation_space = self.game.trees
        self.action_space = gymnasium.spaces.MultiBinary(self.game.growth.size)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        super().reset(seed=seed)
        self.game.growth.reset()
        return self.game.growth.tree_features()[0], {"rounds": 0}

    def step(self, action: NDArray[np.int8]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        growth = self.game.growth
        idle = self.game.fill(np.asarray(action, bool)[None], np.ones(1, bool), self.np_random)
        return (
            growth.tree_features()[0],
            -float(idle[0]),
            bool(growth.done[0]),
            False,
            {"rounds": int(growth.rounds[0])},
        )


class WorkloadScheduling(gymnasium.Env[dict[str, NDArray[Any]], np.int64]):
    """The lower POMDP. `upper` selects flow trees (all of them unless given)."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self, topology: str | nx.Graph = "BCube(3,1)", upper: Scorer | None = None, render_mode: None = None
    ) -> None:
        self.game = _Game(topology, 1, upper)
        self.render_mode = render_mode
        self.observation_space = self.game.flows
        self.action_space = gymnasium.spaces.Discrete(self.game.workloads)

    def _look(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        seen = {name: value[0] for name, value in self.game.observed().items()}
        return seen, {"rounds": int(self.game.growth.rounds[0]), "action_mask": seen["mask"]}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        super().reset(seed=seed)
        self.game.growth.reset()
        self.game.begin(np.ones(1, bool))
        return self._look()

    def step(self, action: np.int64) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        reward = self.game.take(np.array([int(action)]), np.ones(1, bool))
        seen, facts = self._look()
        return seen, float(reward[0]), bool(self.game.growth.done[0]), False, facts


class _Vector(VectorEnv[Any, Any, Any]):
    """Many games in step; one that is over starts anew at the next step, whatever the action, without reward."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, topology: str | nx.Graph, partner: Scorer | None) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, not {num_envs!r}")
        self.num_envs = num_envs
        self.game = _Game(topology, num_envs, partner)
        self.over = np.zeros(num_envs, bool)

    def _spaces(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space, self.action_space = (
            batch_space(observation, self.num_envs),
            batch_space(action, self.num_envs),
        )

    def _restart(self, which: NDArray[np.bool_]) -> None:
        self.game.growth.restart(which)

    def _look(self) -> tuple[Any, dict[str, Any]]:
        return self.game.growth.tree_features(), {"rounds": self.game.growth.rounds.copy()}

    def _play(self, actions: Any, which: NDArray[np.bool_]) -> Floats:
        return -self.game.fill(np.asarray(actions, bool), which, self.np_random)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed[0] if isinstance(seed, list) else seed, options=options)
        self.over[:] = False
        self._restart(np.ones(self.num_envs, bool))
        return self._look()

    def step(self, actions: Any) -> tuple[Any, Floats, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        before = self.over.copy()
        reward = self._play(actions, ~before)
        if before.any():
            self._restart(before)
        self.over = self.game.growth.done & ~before
        seen, facts = self._look()
        return seen, np.where(before, np.float32(0), reward), self.over.copy(), np.zeros(self.num_envs, bool), facts


class FlowTreeSelectionVector(_Vector):
    """`num_envs` of `FlowTreeSelection`."""

    def __init__(self, num_envs: int = 1, topology: str | nx.Graph = "BCube(3,1)", lower: Scorer | None = None) -> None:
        super().__init__(num_envs, topology, lower)
        self._spaces(self.game.trees, gymnasium.spaces.MultiBinary(self.game.growth.size))


class WorkloadSchedulingVector(_Vector):
    """`num_envs` of `WorkloadScheduling`."""

    def __init__(self, num_envs: int = 1, topology: str | nx.Graph = "BCube(3,1)", upper: Scorer | None = None) -> None:
        super().__init__(num_envs, topology, upper)
        self._spaces(self.game.flows, gymnasium.spaces.Discrete(self.game.workloads))

    def _restart(self, which: NDArray[np.bool_]) -> None:
        super()._restart(which)
        self.game.begin(which)

    def _look(self) -> tuple[Any, dict[str, Any]]:
        seen = self.game.observed()
        return seen, {"rounds": self.game.growth.rounds.copy(), "action_mask": seen["mask"]}

    def _play(self, actions: Any, which: NDArray[np.bool_]) -> Floats:
        return self.game.take(np.asarray(actions, np.int64), which)


for _name in ("FlowTreeSelection", "WorkloadScheduling"):
    gymnasium.register(
        id=f"iswitch/{_name}-v0", entry_point=f"{__name__}:{_name}", vector_entry_point=f"{__name__}:{_name}Vector"
    )
