"""The learner's step: the mean of all workers' GRADIENTS moves the weights, and all workers know all returns."""

import numpy as np
import pytest
import torch

from examples.torchrun.learner import Learner
from examples.torchrun.options import RunOptions

FEW = RunOptions(environment="CartPole-v1", total_steps=120, learning_rate=0.5, report_interval=1)
RNG = np.random.default_rng(1)
GRADIENTS = RNG.normal(size=(4, 2, 12)).astype(np.float32)  # by update and rank


def move(options, start):
    """Train one linear layer by GRADIENTS that are given. Each worker takes 10 + rank steps."""
    agent = torch.nn.Linear(3, 3)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.zero_()
    learner = start(agent, torch.optim.SGD(agent.parameters(), lr=options.learning_rate))
    rank = learner.worker.rank
    for update in range(4):
        agent.weight.grad, agent.bias.grad = (
            torch.from_numpy(part.copy())
            for part in (GRADIENTS[update, rank, :9].reshape(3, 3), GRADIENTS[update, rank, 9:])
        )
        learner.observe(10, [])
        learner.observe(rank, [100.0 * update + rank] * rank)
        learner.step()
    return agent


def weights(learner):
    return torch.nn.utils.parameters_to_vector(learner.agent.parameters()).detach().numpy()


@pytest.mark.parametrize("anneal", [False, True])
@pytest.mark.parametrize("norm", [float("inf"), 0.5])
def test_the_mean_gradient_of_all_workers_moves_the_weights(train_together, anneal, norm):
    options = RunOptions(
        environment="none", total_steps=120, learning_rate=0.5, anneal=anneal, max_grad_norm=norm, report_interval=99
    )
    expected, steps = np.zeros(12), 0
    for mean in GRADIENTS.astype(float).mean(1):
        mean *= min(1.0, norm / np.linalg.norm(mean))
        expected -= 0.5 * (1 - steps / 120 if anneal else 1) * mean
        steps += 10 + 11
    learners = train_together(move, options)
    for learner in learners:
        np.testing.assert_allclose(weights(learner), expected, rtol=1e-5, atol=1e-6)
    assert weights(learners[0]).tobytes() == weights(learners[1]).tobytes()


def test_all_workers_know_the_steps_and_returns_of_all(train_together):
    for learner in train_together(move, FEW):
        assert (learner.updates, learner.steps) == (4, 4 * 21)
        assert learner.episodes.groups == [(1.0, 1), (101.0, 1), (201.0, 1), (301.0, 1)]  # those of rank 1


def test_a_training_ends_by_steps_or_when_it_is_solved(train_together):
    learner, _ = train_together(move, FEW)
    assert not learner.finished()
    learner.steps = 120
    assert learner.finished()
    learner.steps, learner.episodes.solved_episodes, learner.episodes.solved_return = 0, 4, 151.0
    assert learner.finished()
    learner.episodes.solved_return = 151.1
    assert not learner.finished()


def test_phases_begin_at_the_start_and_after_each_interval(train_together, tmp_path):
    options = RunOptions(environment="none", total_steps=10**6, learning_rate=0.5, checkpoint_interval=3)
    begins, seeds = [], []

    def train(options, start):
        agent = torch.nn.Linear(1, 1)
        learner = start(agent, torch.optim.SGD(agent.parameters(), lr=0.1))
        for update in range(8):
            begun = learner.begins_phase()
            if learner.worker.rank == 0 and begun:
                begins.append((update, (tmp_path / "c.pt").exists()))
                seeds.append(learner.generator().initial_seed())
            agent(torch.ones(1, 1)).sum().backward()
            learner.step()
        return agent

    train_together(train, options, checkpoint=tmp_path / "c.pt")
    assert begins == [(0, False), (3, True), (6, True)]
    assert len(set(seeds)) == 3
    assert torch.load(tmp_path / "c.pt", weights_only=True)["updates"] == 6


def test_an_interrupted_checkpoint_leaves_the_earlier_file(train_together, tmp_path, monkeypatch):
    learner, _ = train_together(move, FEW)
    learner.save(tmp_path / "c.pt")
    before = (tmp_path / "c.pt").read_bytes()

    def broken(state, path):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="no space"):
        learner.save(tmp_path / "c.pt")
    assert (tmp_path / "c.pt").read_bytes() == before


def test_resume_wrong(train_together, tmp_path):
    learner, _ = train_together(move, FEW)
    (tmp_path / "text.pt").write_text("no checkpoint")
    other = torch.nn.Linear(2, 2)
    learner.save(tmp_path / "c.pt")
    wrong = Learner(learner.worker, other, torch.optim.SGD(other.parameters(), lr=0.1), FEW)
    for name in ("text.pt", "nowhere.pt", "c.pt"):
        with pytest.raises(ValueError, match=rf"--resume: .*{name} is not a checkpoint of this training"):
            wrong.load(tmp_path / name)
