"""Double DQN against sums written out in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from examples.apex.dqn import LEAST, Improver, errors_of_actor, priorities_of, targets
from examples.apex.dueling import DuelingArrays, for_vectors
from examples.apex.options import Options

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = Options(hidden=8, learning_rate=1e-2, target_rate=0.25)


def batch(rows=32, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "observation": rng.normal(size=(rows, 4)).astype(np.float32),
        "action": rng.integers(2, size=rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "next_observation": rng.normal(size=(rows, 4)).astype(np.float32),
        "discount": rng.choice(np.array([0, 0.9, 0.99], np.float32), rows),
    }


def values_of(net, seen):
    with torch.no_grad():
        return net(torch.from_numpy(seen)).numpy()


def by_hand(online, target, rows):
    """TD errors, row by row."""
    now, after = values_of(online, rows["observation"]), values_of(online, rows["next_observation"])
    later = values_of(target, rows["next_observation"])
    found = []
    for k, action in enumerate(rows["action"]):
        best = max(range(2), key=lambda a: after[k][a])
        found.append(rows["reward"][k] + rows["discount"][k] * later[k][best] - now[k][action])
    return np.array(found)


def improver(target_seed=1):
    made = Improver(for_vectors(4, 2, 8, 1), for_vectors(4, 2, 8, 1), OPTIONS)
    with torch.no_grad():
        other = nn.utils.parameters_to_vector(for_vectors(4, 2, 8, target_seed).parameters())
        for parameter, part in zip(
            made.target.parameters(), other.split([p.numel() for p in made.target.parameters()])
        ):
            parameter.copy_(part.view_as(parameter))
    return made


def test_the_online_network_chooses_and_the_target_network_says_what_it_is_worth():
    online_next, target_next = torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([[10.0, 99.0], [7.0, 8.0]])
    wanted = targets(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), online_next, target_next)
    assert wanted.tolist() == [6.0, 2.0]


@pytest.mark.parametrize("target_seed", [1, 2])
def test_errors_are_those_by_hand_before_the_step(target_seed):
    made, rows = improver(target_seed), batch()
    expected = by_hand(made.online, made.target, rows)
    errors, loss = made.improve(rows, np.ones(32, np.float32))
    assert np.allclose(errors, expected, atol=1e-5)
    assert loss == pytest.approx(np.where(abs(expected) < 1, expected**2 / 2, abs(expected) - 0.5).mean(), rel=1e-4)


def test_rows_of_weight_zero_change_nothing():
    rows, weights = batch(), np.ones(32, np.float32)
    weights[::2] = 0
    other = {name: column.copy() for name, column in rows.items()}
    other["reward"][::2] += 100
    first, second = improver(), improver()
    first.improve(rows, weights)
    second.improve(other, weights)
    assert (first.replica.weights() == second.replica.weights()).all()


def test_the_target_follows_the_online_network():
    made = improver(target_seed=2)
    before = nn.utils.parameters_to_vector(made.target.parameters()).detach().clone()
    made.improve(batch(), np.ones(32, np.float32))
    online = torch.from_numpy(made.replica.weights())
    assert torch.allclose(
        nn.utils.parameters_to_vector(made.target.parameters()), before + 0.25 * (online - before), atol=1e-6
    )


def test_the_loss_falls():
    made, rows = improver(), batch(rows=8)
    losses = [made.improve(rows, np.ones(8, np.float32))[1] for _ in range(200)]
    assert losses[-1] < 0.1 * losses[0]


def test_an_actor_gives_the_priorities_of_a_learner_with_equal_weights():
    made, rows, arrays = improver(), batch(), DuelingArrays(4, 2, 8)
    arrays.load(made.replica.weights())
    actors = priorities_of(errors_of_actor(rows, arrays(rows["observation"]), arrays(rows["next_observation"])), 0.6)
    errors, _ = made.improve(rows, np.ones(32, np.float32))
    assert np.allclose(actors, priorities_of(errors, 0.6), rtol=1e-4)


def test_priorities_do_not_depend_on_the_sign_and_are_never_zero():
    errors = np.array([0.0, -2.0, 2.0, 1e-9], np.float32)
    found = priorities_of(errors, 0.5)
    assert found.dtype == np.float32 and found[1] == found[2] == pytest.approx((2 + LEAST) ** 0.5) and (found > 0).all()


def test_a_loss_that_is_no_number_ends_the_training():
    rows = batch()
    rows["reward"][3] = np.nan
    with pytest.raises(FloatingPointError, match="loss of step 0 is nan"):
        improver().improve(rows, np.ones(32, np.float32))
