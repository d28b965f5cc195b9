"""The parts of PPO on small cases computed by hand, log probabilities of rollouts, and the same seed gives the same
weights."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")

import torch

from iswitch.plan.allreduce.learning.batch import collect_rollouts, compute_gae
from iswitch.plan.allreduce.learning.growth import TreeGrowth
from iswitch.plan.allreduce.learning.learned import packaged_policy
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.learning.rollout import rollout
from iswitch.plan.allreduce.learning.settings import Settings
from iswitch.plan.allreduce.learning.train import Nets, clipped_loss, train
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import SERVER_CENTRIC, TRAINED_ON, build_topology

TINY = Settings(topologies=("BCube(2,1)", "DCell(2,1)"), iterations=2, num_envs=4, hidden=8)


def test_advantages_by_hand():
    """Two environments, of which the second ends after one round."""
    trace = [
        SimpleNamespace(active=np.array([True, True]), idle=np.array([0.5, 0.25])),
        SimpleNamespace(active=np.array([True, False]), idle=np.array([1.0, 0.0])),
    ]
    advantages, returns = compute_gae(trace, [np.array([-1.0, -0.5]), np.array([-0.75, 9.0])], 0.5)
    later = -1.0 + 0.75
    assert advantages.tolist() == [[-0.5 - 0.75 + 1.0 + 0.5 * later, -0.25 + 0.5], [later, 0.0]]
    assert (returns[:, 0] == advantages[:, 0] + [-1.0, -0.75]).all()


def test_advantages_without_a_critic_are_the_remaining_rewards():
    rng = np.random.default_rng(0)
    trace = [SimpleNamespace(active=np.ones(3, bool), idle=rng.random(3)) for _ in range(4)]
    advantages, _ = compute_gae(trace, [np.zeros(3)] * 4, 1.0)
    idle = np.array([step.idle for step in trace])
    assert np.allclose(advantages, -idle[::-1].cumsum(0)[::-1])


def test_clipping_by_hand():
    """Ratios 1.5 and 0.5: a gain beyond the clipping range is cut, a loss is not."""
    now = torch.log(torch.tensor([1.5, 0.5, 1.5, 0.5]))
    loss = clipped_loss(now, torch.zeros(4), torch.tensor([1.0, 1.0, -1.0, -1.0]), 0.2)
    assert float(loss) == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4)


def test_log_probs_are_those_of_the_softmax_over_candidates():
    policy, arrays = Policy.blank(hidden=8, seed=1), NetworkArrays(Network(build_topology("DCell(2,1)")))
    policy = Policy({name: value + np.float32(0.1) for name, value in policy.weights.items()})
    batch, _ = collect_rollouts(
        policy, arrays, Settings(num_envs=3, hidden=8, placements_per_round=100), np.random.default_rng(0)
    )
    picks, bits, entropy, value = Nets(policy).log_probs(batch)
    score = policy.evaluate("lower", batch.flows.numpy())[batch.row.numpy()]
    total = score[:, 0] + (score[:, 1:] * batch.dynamic.numpy()).sum(1)
    for pick in range(len(batch.choice)):
        inside = np.flatnonzero(batch.segment.numpy() == pick)
        chance = np.exp(total[inside]) / np.exp(total[inside]).sum()
        at = int(np.flatnonzero(inside == int(batch.choice[pick]))[0])
        assert float(picks[pick].detach()) == pytest.approx(np.log(chance[at]), abs=1e-4)
    selected = 1 / (1 + np.exp(-policy.evaluate("upper", batch.trees.numpy())[..., 0]))
    expected = np.log(np.where(batch.selected.numpy() > 0, selected, 1 - selected))
    assert (
        np.allclose(bits.detach().numpy(), expected, atol=1e-4)
        and float(entropy.detach()) > 0
        and value.shape == batch.returns.shape
    )


def test_a_trajectory_has_every_placement():
    arrays, trajectory = NetworkArrays(Network(build_topology("DCell(2,1)"))), []
    growth = TreeGrowth(arrays, 4)
    rollout(Policy.blank(), growth, np.random.default_rng(0), trajectory=trajectory)
    assert sum(len(pick.envs) for step in trajectory for pick in step.placements) == 4 * 6 * 5
    assert any(
        not step.selected.all() for step in trajectory
    )  # the record has the selection of the round, not the one after it


def test_nets_and_policy_compute_the_same_function():
    policy = Policy.blank(seed=2)
    features = np.random.default_rng(0).normal(size=(5, 14)).astype(np.float32)
    assert np.allclose(
        Nets(policy).evaluate("lower", torch.tensor(features)).detach().numpy(),
        policy.evaluate("lower", features),
        atol=1e-6,
    )
    assert all((Nets(policy).policy().weights[name] == value).all() for name, value in policy.weights.items())


def test_same_seed_same_weights_bit_for_bit():
    first, second, other = (train(settings) for settings in (TINY, TINY, Settings(**{**vars(TINY), "seed": 2})))
    assert all((first.weights[name] == second.weights[name]).all() for name in first.weights)
    assert any((first.weights[name] != other.weights[name]).any() for name in first.weights)


def test_workers_that_average_gradients_end_with_the_same_weights():
    meeting, vectors, policies = threading.Barrier(2), {}, {}

    def work(rank):
        def share(vector):
            vectors[rank] = vector.copy()
            meeting.wait(60)
            vector[:] = (vectors[0] + vectors[1]) / 2
            meeting.wait(60)

        policies[rank] = train(TINY, average=share, rank=rank)

    workers = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert all((policies[0].weights[name] == policies[1].weights[name]).all() for name in policies[0].weights)
    assert (vectors[0] != vectors[1]).any()  # each ran other episodes
    alone = train(TINY)
    assert any((policies[0].weights[name] != alone.weights[name]).any() for name in alone.weights)


def test_averaging_over_one_worker_changes_nothing():
    alone, shared = train(TINY), train(TINY, average=lambda vector: None)
    assert all((alone.weights[name] == shared.weights[name]).all() for name in alone.weights)


def test_rank_wrong():
    with pytest.raises(ValueError, match="rank must be at least 0, not -1"):
        train(TINY, rank=-1)


def test_training_reports_the_rounds_of_every_topology():
    heard = []
    train(TINY, on_iteration=lambda iteration, lengths: heard.append((iteration, set(lengths))))
    assert heard == [(0, set(TINY.topologies)), (1, set(TINY.topologies))]


def test_weights_in_the_package_have_been_trained():
    blank = Policy.blank(seed=1)
    assert {name: value.shape for name, value in packaged_policy().weights.items()} == {
        name: value.shape for name, value in blank.weights.items()
    }
    assert all(
        np.abs(packaged_policy().weights[name] - blank.weights[name]).max() > 0.1 for name in ("lower.0", "lower.1")
    )


def test_at_least_half_of_the_table_is_held_out():
    assert len(set(SERVER_CENTRIC) - set(TRAINED_ON)) >= len(SERVER_CENTRIC) // 2


@pytest.mark.slow
def test_training_shortens_schedules():
    """After a few minutes on one topology, the mean rounds are fewer there and on a larger topology."""
    lengths = []
    policy = train(
        Settings(topologies=("BCube(3,1)",), iterations=60),
        on_iteration=lambda _, means: lengths.append(means["BCube(3,1)"]),
    )
    assert np.mean(lengths[-5:]) < np.mean(lengths[:5]) - 0.5
    arrays = NetworkArrays(Network(build_topology("BCube(4,1)")))
    means = [
        rollout(scorer, TreeGrowth(arrays, 16), np.random.default_rng(0)).mean()
        for scorer in (policy, Policy.blank(seed=1))
    ]
    assert means[0] < means[1]


@pytest.mark.parametrize("name", ["iterations", "num_envs", "hidden", "update_epochs", "placements_per_round"])
def test_settings_wrong(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        Settings(**{name: 0})


def test_settings_without_topologies_wrong():
    with pytest.raises(ValueError, match="topologies must name at least one"):
        Settings(topologies=())
