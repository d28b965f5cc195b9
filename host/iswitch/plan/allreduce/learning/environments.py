"""Gymnasium environments for both policies, one episode or many in parallel. Importing this module registers them.

    gymnasium.make("iswitch/FlowTreeSelection-v0", topology="BCube(3,1)")
    gymnasium.make_vec("iswitch/WorkloadScheduling-v0", num_envs=16, vectorization_mode="vector_entry_point",
    topology="DCell(4,1)")

FlowTreeSelection (upper policy): a step is a round. The observation is [tree, feature], the action one bit for each
tree. The lower policy then fills the round.

WorkloadScheduling (lower policy): a step is one workload, whose number is hop * chunks + chunk. The observation has
"flows", [workload, feature], and "mask", the workloads that may be placed. A masked workload is refused with a negative
reward. If no workload is left, the round ends, and the upper policy selects trees for the next one.

Both observe features of trees and workloads, never the whole state, and no feature depends on the size of the topology.
The reward of a round, given at its end, is minus the fraction of server ports that it leaves idle. Over an episode that
is the port bound minus the rounds of a phase.
"""

from typing import Any

import gymnasium
import networkx as nx
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.greedy import RarestFirst
from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, TREE_FEATURES, TreeGrowth
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import DYNAMIC_COUNT, Scorer
from iswitch.plan.allreduce.learning.rollout import dynamic_features, fill_round
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import build_topology

__all__ = ["FlowTreeSelection", "FlowTreeSelectionVector", "WorkloadScheduling", "WorkloadSchedulingVector"]

REFUSED = -0.1
"""Reward of a masked workload."""

Floats = NDArray[np.float32]


class _Episodes:
    """Parallel episodes, with the other policy as a partner: the common part of all environments."""

    def __init__(self, topology: str | nx.Graph, num_envs: int, partner: Scorer | None) -> None:
        graph = build_topology(topology) if isinstance(topology, str) else topology
        self.growth = TreeGrowth(NetworkArrays(Network(graph)), num_envs)
        self.partner: Scorer = partner or RarestFirst()
        size = self.growth.size
        network = self.growth.network
        # All features are fractions but two: workloads of a link, and elapsed rounds.
        most = float(max(len(network.hops), network.ports.sum()))
        self.trees = gymnasium.spaces.Box(-1, most, (size, len(TREE_FEATURES)), np.float32)
        self.workloads = len(network.hops) * size
        flow_shape = (self.workloads, len(FLOW_FEATURES) + DYNAMIC_COUNT)
        self.flows = gymnasium.spaces.Dict(
            {
                "flows": gymnasium.spaces.Box(-1, most, flow_shape, np.float32),
                "mask": gymnasium.spaces.MultiBinary(self.workloads),
            }
        )
        self.features = np.zeros((num_envs, self.workloads, len(FLOW_FEATURES)), np.float32)

    def run_round(self, selected: NDArray[Any], envs: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """Let the partner, as lower policy, fill a round where `envs` is True, and return the idle fractions."""
        growth = self.growth
        growth.select(np.where(envs[:, None], selected, growth.selected))
        before = growth.ready.copy()
        growth.ready[~envs] = False
        features = growth.flow_features().reshape(-1, len(FLOW_FEATURES))
        fill_round(growth, self.partner.evaluate("lower", features), rng, np.ones(growth.num_envs, np.float32), None)
        growth.ready[~envs] = before[~envs]
        return growth.end_round(envs)

    def begin_round(self, envs: NDArray[np.bool_]) -> None:
        """Let the partner, as upper policy, select trees, and keep the features of the round."""
        growth = self.growth
        selected = self.partner.evaluate("upper", growth.tree_features())[..., 0] > 0
        growth.select(np.where(envs[:, None], selected, growth.selected))
        self.features[envs] = growth.flow_features(envs).reshape(int(envs.sum()), self.workloads, -1)

    def mask(self) -> NDArray[np.int8]:
        """Return the workloads that may be placed; [env, workload]."""
        return self.growth.candidates.reshape(self.growth.num_envs, -1).astype(np.int8)

    def observe(self) -> dict[str, NDArray[Any]]:
        """Return the observation of the lower policy."""
        growth, mask = self.growth, self.mask()
        env, row = np.nonzero(mask)
        hop, chunk = np.divmod(row, growth.size)
        flows = np.zeros((*mask.shape, len(FLOW_FEATURES) + DYNAMIC_COUNT), np.float32)
        flows[env, row, : len(FLOW_FEATURES)] = self.features[env, row]
        flows[env, row, len(FLOW_FEATURES) :] = dynamic_features(growth, env, hop, chunk, growth.present.sum(1))
        return {"flows": flows, "mask": mask}

    def place(self, workload: NDArray[np.int64], envs: NDArray[np.bool_]) -> Floats:
        """Place one workload in each environment of the mask `envs`, end rounds that are over, and return rewards."""
        growth = self.growth
        allowed = self.mask()[np.arange(growth.num_envs), workload].astype(bool) & envs
        reward = np.where(envs & ~allowed, np.float32(REFUSED), np.float32(0))
        numbers = np.flatnonzero(allowed)
        if len(numbers):
            growth.place(numbers, workload[numbers] // growth.size, workload[numbers] % growth.size)
        over = envs & ~growth.candidates.any((1, 2))
        if over.any():
            reward = reward - growth.end_round(over)
            self.begin_round(over)
        return reward.astype(np.float32)


class FlowTreeSelection(gymnasium.Env[Floats, NDArray[np.int8]]):
    """The environment of the upper policy, partially observed.

    Parameters
    ----------
    topology : str or networkx.Graph
        A name that `build_topology` knows, or a graph.
    lower : Scorer, optional
        The lower policy; by default `RarestFirst`.
    render_mode : None
        There is no rendering.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self, topology: str | nx.Graph = "BCube(3,1)", lower: Scorer | None = None, render_mode: None = None
    ) -> None:
        self.episodes = _Episodes(topology, 1, lower)
        self.render_mode = render_mode
        self.observation_space = self.episodes.trees
        self.action_space = gymnasium.spaces.MultiBinary(self.episodes.growth.size)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes.growth.reset()
        return self.episodes.growth.tree_features()[0], {"rounds": 0}

    def step(self, action: NDArray[np.int8]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        growth = self.episodes.growth
        idle = self.episodes.run_round(np.asarray(action, bool)[None], np.ones(1, bool), self.np_random)
        obs = growth.tree_features()[0]
        return obs, -float(idle[0]), bool(growth.done[0]), False, {"rounds": int(growth.rounds[0])}


class WorkloadScheduling(gymnasium.Env[dict[str, NDArray[Any]], np.int64]):
    """The environment of the lower policy, partially observed.

    Parameters
    ----------
    topology : str or networkx.Graph
        A name that `build_topology` knows, or a graph.
    upper : Scorer, optional
        The upper policy; by default all flow trees are selected.
    render_mode : None
        There is no rendering.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self, topology: str | nx.Graph = "BCube(3,1)", upper: Scorer | None = None, render_mode: None = None
    ) -> None:
        self.episodes = _Episodes(topology, 1, upper)
        self.render_mode = render_mode
        self.observation_space = self.episodes.flows
        self.action_space = gymnasium.spaces.Discrete(self.episodes.workloads)

    def _observe(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        obs = {name: value[0] for name, value in self.episodes.observe().items()}
        return obs, {"rounds": int(self.episodes.growth.rounds[0]), "action_mask": obs["mask"]}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes.growth.reset()
        self.episodes.begin_round(np.ones(1, bool))
        return self._observe()

    def step(self, action: np.int64) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        reward = self.episodes.place(np.array([int(action)]), np.ones(1, bool))
        obs, info = self._observe()
        return obs, float(reward[0]), bool(self.episodes.growth.done[0]), False, info


class _Vector(VectorEnv[Any, Any, Any]):
    """Parallel episodes. One that has ended restarts at the next step, whatever the action, without reward."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, topology: str | nx.Graph, partner: Scorer | None) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, not {num_envs!r}")
        self.num_envs = num_envs
        self.episodes = _Episodes(topology, num_envs, partner)
        self.terminated = np.zeros(num_envs, bool)

    def _set_spaces(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, self.num_envs)
        self.action_space = batch_space(action, self.num_envs)

    def _restart(self, envs: NDArray[np.bool_]) -> None:
        self.episodes.growth.restart(envs)

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        return self.episodes.growth.tree_features(), {"rounds": self.episodes.growth.rounds.copy()}

    def _act(self, actions: Any, envs: NDArray[np.bool_]) -> Floats:
        return -self.episodes.run_round(np.asarray(actions, bool), envs, self.np_random)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed[0] if isinstance(seed, list) else seed, options=options)
        self.terminated[:] = False
        self._restart(np.ones(self.num_envs, bool))
        return self._observe()

    def step(self, actions: Any) -> tuple[Any, Floats, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        restarting = self.terminated.copy()
        reward = self._act(actions, ~restarting)
        if restarting.any():
            self._restart(restarting)
        self.terminated = self.episodes.growth.done & ~restarting
        obs, info = self._observe()
        reward = np.where(restarting, np.float32(0), reward)
        return obs, reward, self.terminated.copy(), np.zeros(self.num_envs, bool), info


class FlowTreeSelectionVector(_Vector):
    """`num_envs` parallel environments of `FlowTreeSelection`."""

    def __init__(self, num_envs: int = 1, topology: str | nx.Graph = "BCube(3,1)", lower: Scorer | None = None) -> None:
        super().__init__(num_envs, topology, lower)
        self._set_spaces(self.episodes.trees, gymnasium.spaces.MultiBinary(self.episodes.growth.size))


class WorkloadSchedulingVector(_Vector):
    """`num_envs` parallel environments of `WorkloadScheduling`."""

    def __init__(self, num_envs: int = 1, topology: str | nx.Graph = "BCube(3,1)", upper: Scorer | None = None) -> None:
        super().__init__(num_envs, topology, upper)
        self._set_spaces(self.episodes.flows, gymnasium.spaces.Discrete(self.episodes.workloads))

    def _restart(self, envs: NDArray[np.bool_]) -> None:
        super()._restart(envs)
        self.episodes.begin_round(envs)

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        obs = self.episodes.observe()
        return obs, {"rounds": self.episodes.growth.rounds.copy(), "action_mask": obs["mask"]}

    def _act(self, actions: Any, envs: NDArray[np.bool_]) -> Floats:
        return self.episodes.place(np.asarray(actions, np.int64), envs)


for _name in ("FlowTreeSelection", "WorkloadScheduling"):
    gymnasium.register(
        id=f"iswitch/{_name}-v0", entry_point=f"{__name__}:{_name}", vector_entry_point=f"{__name__}:{_name}Vector"
    )
