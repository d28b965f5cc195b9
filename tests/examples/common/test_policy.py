"""Policies that a training has saved."""

import hashlib

import numpy as np
import pytest

from examples.common.policy import Policy


@pytest.fixture
def policy():
    weights = np.random.default_rng(3).normal(size=251).astype(np.float32)
    return Policy(weights=weights, environment="CartPole-v1", hidden=8, seed=3, mean_return=9.5)


def test_a_saved_policy_is_read_as_it_was_written(policy, tmp_path):
    path = tmp_path / "policy.npz"
    policy.save(path)
    again = Policy.load(path)
    assert np.array_equal(again.weights, policy.weights) and again.weights_sha256 == policy.weights_sha256
    assert (again.environment, again.hidden, again.seed, again.mean_return) == ("CartPole-v1", 8, 3, 9.5)
    assert [each.name for each in tmp_path.iterdir()] == ["policy.npz"]


def test_numpy_alone_reads_the_weights_and_their_sha256(policy, tmp_path):
    policy.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as saved:
        assert hashlib.sha256(saved["weights"].tobytes()).hexdigest() == policy.weights_sha256


def test_missing_file_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.npz does not exist: no training has saved a policy there yet"):
        Policy.load(tmp_path / "policy.npz")


@pytest.mark.parametrize("content", [b"", b"PK\3\4 broken", b"not a file of numpy"])
def test_file_wrong(content, tmp_path):
    (tmp_path / "policy.npz").write_bytes(content)
    with pytest.raises(ValueError, match="is not a saved policy"):
        Policy.load(tmp_path / "policy.npz")


def test_file_without_the_names_wrong(tmp_path):
    np.savez(tmp_path / "policy.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"is not a saved policy.*weights"):
        Policy.load(tmp_path / "policy.npz")
