"""Both levels as Gymnasium environments: Gymnasium's checker, one and many episodes, masked actions, and rewards."""

import warnings

import gymnasium
import networkx as nx
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import iswitch.plan.allreduce.learning.environments as environments
from iswitch.plan.allreduce.model.topologies import build_topology

IDS = ("iswitch/FlowTreeSelection-v0", "iswitch/WorkloadScheduling-v0")


def allowed(mask, rng):
    return (rng.random(mask.shape) * mask).argmax(-1)


@pytest.mark.parametrize("topology", ["BCube(2,1)", "Jellyfish(4,2,1)"])
@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_checker_passes(name, topology):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name, topology=topology).unwrapped)


@pytest.mark.parametrize("topology", ["BCube(3,1)", "DCell(2,1)"])
def test_rewards_of_both_levels_sum_to_port_bound_minus_rounds(topology):
    rng = np.random.default_rng(0)
    for name in IDS:
        environment = gymnasium.make(name, topology=topology)
        seen, facts = environment.reset(seed=1)
        total, over = 0.0, False
        while not over:
            action = allowed(facts["action_mask"], rng) if "action_mask" in facts else environment.action_space.sample()
            seen, reward, over, cut, facts = environment.step(action)
            assert environment.observation_space.contains(seen) and not cut
            total += reward
        growth = environment.unwrapped.episodes.growth
        assert total == pytest.approx(
            growth.size * (growth.size - 1) / growth.network.ports.sum() - facts["rounds"], abs=1e-4
        )


def test_a_masked_workload_has_a_negative_reward_and_no_effect():
    environment = gymnasium.make(IDS[1], topology="BCube(2,1)")
    seen, _ = environment.reset(seed=0)
    after, reward, over, _, _ = environment.step(int(np.flatnonzero(seen["mask"] == 0)[0]))
    assert reward == pytest.approx(environments.REFUSED) and not over
    assert all((seen[key] == after[key]).all() for key in seen)


def test_observations_do_not_depend_on_the_topology():
    spaces = [
        [
            gymnasium.make(name, topology=topology).observation_space
            for topology in ("BCube(2,1)", "DCell(2,1)", "Jellyfish(4,2,1)")
        ]
        for name in IDS
    ]
    assert len({space.shape[1] for space in spaces[0]}) == len({space["flows"].shape[1] for space in spaces[1]}) == 1


@pytest.mark.parametrize("name", IDS)
def test_parallel_episodes(name):
    """Observations are in their space. Each episode ends, restarts without reward, and ends again."""
    many = gymnasium.make_vec(name, num_envs=5, vectorization_mode="vector_entry_point", topology="DCell(2,1)")
    seen, facts = many.reset(seed=3)
    rng, ended, before = np.random.default_rng(3), np.zeros(5, int), np.zeros(5, bool)
    while ended.min() < 2:
        actions = allowed(facts["action_mask"], rng) if "action_mask" in facts else many.action_space.sample()
        seen, reward, over, cut, facts = many.step(actions)
        assert many.observation_space.contains(seen) and not cut.any()
        assert (reward[before] == 0).all() and not (over & before).any() and (facts["rounds"][before] == 0).all()
        ended, before = ended + over, over


def test_one_episode_equals_a_vector_of_one():
    one = gymnasium.make(IDS[1], topology="DCell(2,1)")
    many = gymnasium.make_vec(IDS[1], num_envs=1, vectorization_mode="vector_entry_point", topology="DCell(2,1)")
    single, _ = one.reset(seed=0)
    batch, _ = many.reset(seed=0)
    rng, over = np.random.default_rng(0), False
    while not over:
        action = allowed(single["mask"], rng)
        single, reward, over, _, _ = one.step(action)
        batch, rewards, overs, _, _ = many.step(np.array([action]))
        assert reward == rewards[0] and over == overs[0] and all((single[key] == batch[key][0]).all() for key in single)


def test_the_same_seed_gives_the_same_episode():
    def play(seed):
        environment = gymnasium.make(IDS[0], topology="BCube(3,1)")
        environment.reset(seed=seed)
        return [environment.step(np.ones(9, np.int8))[0].tobytes() for _ in range(3)]

    assert play(5) == play(5) != play(6)


def test_a_graph_is_accepted_and_no_environments_are_refused():
    graph = build_topology("BCube(2,1)")
    assert isinstance(graph, nx.Graph)
    assert environments.FlowTreeSelection(graph).action_space.n == 4
    with pytest.raises(ValueError, match="num_envs must be at least 1, not 0"):
        environments.WorkloadSchedulingVector(0, graph)
