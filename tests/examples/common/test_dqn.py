"""Double DQN against sums written out in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from examples.common.dqn import PRIORITY_EPSILON, DoubleDQN, actor_deltas, priorities_of, td_targets
from examples.common.networks import DuelingArrays, vector_network

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = dict(learning_rate=1e-2, max_grad_norm=10.0, tau=0.25)


def batch(rows=32, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(rows, 4)).astype(np.float32),
        "action": rng.integers(2, size=rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "next_obs": rng.normal(size=(rows, 4)).astype(np.float32),
        "discount": rng.choice(np.array([0, 0.9, 0.99], np.float32), rows),
    }


def q_values_of(net, obs):
    with torch.no_grad():
        return net(torch.from_numpy(obs)).numpy()


def by_hand(online, target, rows):
    """Return the TD errors, row by row."""
    now, after = q_values_of(online, rows["obs"]), q_values_of(online, rows["next_obs"])
    later = q_values_of(target, rows["next_obs"])
    deltas = []
    for k, action in enumerate(rows["action"]):
        best = max(range(2), key=lambda a: after[k][a])
        deltas.append(rows["reward"][k] + rows["discount"][k] * later[k][best] - now[k][action])
    return np.array(deltas)


def make_agent(target_seed=1):
    agent = DoubleDQN(vector_network(4, 2, 8, 1), vector_network(4, 2, 8, 1), **SETTINGS)
    with torch.no_grad():
        other = nn.utils.parameters_to_vector(vector_network(4, 2, 8, target_seed).parameters())
        for parameter, part in zip(
            agent.target.parameters(), other.split([p.numel() for p in agent.target.parameters()])
        ):
            parameter.copy_(part.view_as(parameter))
    return agent


def test_the_online_network_chooses_the_action_and_the_target_network_values_it():
    online_next, target_next = torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([[10.0, 99.0], [7.0, 8.0]])
    targets = td_targets(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), online_next, target_next)
    assert targets.tolist() == [6.0, 2.0]


@pytest.mark.parametrize("target_seed", [1, 2])
def test_td_errors_are_those_before_the_step(target_seed):
    agent, rows = make_agent(target_seed), batch()
    expected = by_hand(agent.online, agent.target, rows)
    deltas, loss = agent.step(rows, np.ones(32, np.float32))
    assert np.allclose(deltas, expected, atol=1e-5)
    assert loss == pytest.approx(np.where(abs(expected) < 1, expected**2 / 2, abs(expected) - 0.5).mean(), rel=1e-4)


def test_rows_of_weight_zero_change_nothing():
    rows, weights = batch(), np.ones(32, np.float32)
    weights[::2] = 0
    other = {name: column.copy() for name, column in rows.items()}
    other["reward"][::2] += 100
    first, second = make_agent(), make_agent()
    first.step(rows, weights)
    second.step(other, weights)
    assert (first.replica.weights() == second.replica.weights()).all()


def test_the_target_follows_the_online_network():
    agent = make_agent(target_seed=2)
    before = nn.utils.parameters_to_vector(agent.target.parameters()).detach().clone()
    agent.step(batch(), np.ones(32, np.float32))
    online = torch.from_numpy(agent.replica.weights())
    assert torch.allclose(
        nn.utils.parameters_to_vector(agent.target.parameters()), before + 0.25 * (online - before), atol=1e-6
    )


def test_the_loss_falls():
    agent, rows = make_agent(), batch(rows=8)
    losses = [agent.step(rows, np.ones(8, np.float32))[1] for _ in range(200)]
    assert losses[-1] < 0.1 * losses[0]


def test_an_actor_gives_the_priorities_of_a_learner_with_equal_weights():
    agent, rows, arrays = make_agent(), batch(), DuelingArrays(4, 2, 8)
    arrays.load(agent.replica.weights())
    actors = priorities_of(actor_deltas(rows, arrays(rows["obs"]), arrays(rows["next_obs"])), 0.6)
    deltas, _ = agent.step(rows, np.ones(32, np.float32))
    assert np.allclose(actors, priorities_of(deltas, 0.6), rtol=1e-4)


def test_priorities_do_not_depend_on_the_sign_and_are_never_zero():
    deltas = np.array([0.0, -2.0, 2.0, 1e-9], np.float32)
    found = priorities_of(deltas, 0.5)
    assert (
        found.dtype == np.float32
        and found[1] == found[2] == pytest.approx((2 + PRIORITY_EPSILON) ** 0.5)
        and (found > 0).all()
    )


def test_a_loss_that_is_not_finite_ends_the_training():
    rows = batch()
    rows["reward"][3] = np.nan
    with pytest.raises(FloatingPointError, match="loss of step 0 is nan"):
        make_agent().step(rows, np.ones(32, np.float32))
