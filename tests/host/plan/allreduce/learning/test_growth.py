"""Growing flow trees: both ways to place workloads agree, episodes end in schedules that sum, features are as named."""

import numpy as np
import pytest

from iswitch.plan.allreduce.learning.greedy import RarestFirst, best_of_episodes, greedy_schedule, run_episodes
from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, TREE_FEATURES, TreeGrowth
from iswitch.plan.allreduce.learning.learned import packaged_policy
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import DYNAMIC_COUNT, Policy
from iswitch.plan.allreduce.learning.rollout import dynamic_features, rollout
from iswitch.plan.allreduce.model.network import PATHS_MAX, Network
from iswitch.plan.allreduce.model.topologies import build_topology
from iswitch.plan.allreduce.model.verify import verify

SMALL = ("BCube(2,1)", "BCube(3,1)", "DCell(3,1)", "Jellyfish(8,3)", "Jellyfish(4,2,1,2)")


def arrays(name):
    return NetworkArrays(Network(build_topology(name)))


def feature(growth, name):
    return growth.flow_features()[..., FLOW_FEATURES.index(name)]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("copies", [1, 5])
def test_random_episodes_sum_in_every_environment(name, copies):
    growth = TreeGrowth(arrays(name), copies)
    rounds = rollout(Policy.blank(), growth, np.random.default_rng(1))
    assert growth.done.all() and (rounds == growth.rounds).all()
    for copy in range(copies):
        schedule = growth.schedule(copy, "random")
        assert schedule.length == 2 * rounds[copy]
        verify(growth.network.graph, schedule)


@pytest.mark.parametrize("name", SMALL)
def test_rounds_end_only_when_no_workload_is_left(name):
    """Workloads are placed one by one. `verify` accepts every candidate, and no usable link stays free."""
    growth, rng = TreeGrowth(arrays(name), 2), np.random.default_rng(2)
    while not growth.done.all():
        while (open_ := growth.candidates).any():
            which = np.flatnonzero(open_.any((1, 2)))
            chosen = np.array([rng.choice(np.flatnonzero(open_[copy])) for copy in which])
            growth.place(which, chosen // growth.size, chosen % growth.size)
        busy = np.zeros((2, len(growth.network.hops)), bool)
        for copy in range(2):
            for hop, _ in growth.log[copy][-1] if growth.log[copy] else []:
                busy[copy] |= growth.arrays.conflicts[hop]
        could = growth.present_at_start[:, growth.network.source] & ~growth.present[:, growth.network.target]
        assert not (could & ~busy[:, :, None]).any()
        growth.end_round()
    for copy in range(2):
        verify(growth.network.graph, growth.schedule(copy, "stepwise"))


def test_idle_fractions_add_up_to_the_rounds_above_the_port_bound():
    growth, rng, total = TreeGrowth(arrays("DCell(2,1)"), 1), np.random.default_rng(3), 0.0
    while not growth.done.all():
        while (open_ := growth.candidates).any():
            pick = np.array([rng.choice(np.flatnonzero(open_[0]))])
            growth.place(np.array([0]), pick // growth.size, pick % growth.size)
        total += float(growth.end_round()[0])
    assert total == pytest.approx(growth.rounds[0] - 6 * 5 / 12)


def test_selected_trees_come_first_and_the_others_fill_the_round():
    growth = TreeGrowth(arrays("BCube(2,1)"), 1)
    pool = np.zeros((1, 4), bool)
    pool[0, 2] = True
    growth.select(pool)
    assert set(np.nonzero(growth.candidates[0])[1]) == {2}
    while growth.selected[0] @ growth.ready[0].any(0):
        pick = np.flatnonzero(growth.candidates[0])[:1]
        growth.place(np.array([0]), pick // 4, pick % 4)
    assert growth.candidates[0].any() and 2 not in np.nonzero(growth.candidates[0])[1]


def test_restart_leaves_other_environments_unchanged():
    growth = TreeGrowth(arrays("BCube(2,1)"), 2)
    rollout(RarestFirst(), growth, np.random.default_rng(0))
    before = growth.present[1].copy(), growth.rounds[1], growth.hops_left[1].copy()
    growth.restart(np.array([True, False]))
    assert (growth.present[0] == np.eye(4, dtype=bool)).all() and growth.rounds[0] == 0 and not growth.done[0]
    assert (
        (growth.present[1] == before[0]).all()
        and growth.rounds[1] == before[1]
        and (growth.hops_left[1] == before[2]).all()
        and growth.done[1]
    )


@pytest.mark.parametrize("name", SMALL)
def test_features_are_fractions(name):
    growth, rng = TreeGrowth(arrays(name), 3), np.random.default_rng(4)
    least, most = [], []
    while not growth.done.all():
        flows, trees = growth.flow_features(), growth.tree_features()
        assert flows.shape[-1] == len(FLOW_FEATURES) and trees.shape == (3, growth.size, len(TREE_FEATURES))
        assert flows.dtype == trees.dtype == np.float32 and np.isfinite(flows).all() and np.isfinite(trees).all()
        least.append(flows.min((0, 1, 2)))
        most.append(flows.max((0, 1, 2)))
        while (open_ := growth.candidates).any():
            which = np.flatnonzero(open_.any((1, 2)))
            chosen = np.array([rng.choice(np.flatnonzero(open_[copy])) for copy in which])
            growth.place(which, chosen // growth.size, chosen % growth.size)
        growth.end_round()
    by_paths = [
        FLOW_FEATURES.index(name)
        for name in ("workloads that want the link into the target", "targets of the chunk at the source")
    ]
    assert np.min(least) >= -1 and np.delete(np.max(most, 0), by_paths).max() <= 1 + 1e-6
    assert np.max(most, 0)[by_paths[0]] <= PATHS_MAX * growth.size and np.max(most, 0)[by_paths[1]] <= PATHS_MAX


def test_features_by_hand():
    """BCube(2,1) at the beginning: servers 0 1 / 2 3 form a square, and each has its own chunk."""
    growth = TreeGrowth(arrays("BCube(2,1)"), 1)
    hop = growth.network.hop_index["h0", "s0.0", "h1"]
    assert feature(growth, "copies of the chunk")[0, hop].tolist() == [0.25] * 4
    assert feature(growth, "chunks that the target lacks")[0, hop, 0] == 0.75
    assert feature(growth, "neighbours of the target that lack the chunk")[0, hop].tolist() == [0.5, 1.0, 1.0, 0.5]
    assert (
        feature(growth, "neighbours that lack it and have no source yet")[0, hop, 0] == 0.5
    )  # h3, which h2 has not reached
    assert feature(growth, "servers to which the chunk comes nearer")[0, hop, 0] == 0.5  # h1 and h3
    assert feature(growth, "remaining distance of the chunk")[0, hop, 0] == 1
    assert feature(growth, "sources of the chunk on the target's other links")[0, hop].tolist() == [0, 0, 0, 0.5]  # h3


def test_features_of_some_environments_are_those_of_all():
    growth = TreeGrowth(arrays("DCell(2,1)"), 4)
    which = np.array([True, False, True, False])
    assert (growth.flow_features(which) == growth.flow_features()[which]).all()


def test_dynamic_features_count_candidates():
    growth = TreeGrowth(arrays("BCube(3,1)"), 1)
    row = np.flatnonzero(growth.ready[0])
    hop, chunk = np.divmod(row, 9)
    columns = dynamic_features(growth, np.zeros(len(row), np.int64), hop, chunk, growth.present.sum(1))
    assert columns.shape == (len(row), DYNAMIC_COUNT)
    assert columns[:, 0] == pytest.approx(np.log(3) / np.log(10))  # two neighbours on a switch, one chunk each
    assert columns[:, 2] == pytest.approx(1 / 9)


def test_episodes_depend_on_their_seed_only():
    found = [run_episodes(RarestFirst(), arrays("DCell(3,1)"), k=4, seed=seed).log for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("name", SMALL)
def test_the_most_preferred_tree_that_can_be_continued_comes_first(name):
    """Every environment has an order of its own, in which the trees are taken, workload by workload."""
    growth, rng, trajectory = TreeGrowth(arrays(name), 3), np.random.default_rng(6), []
    order = np.array([rng.permutation(growth.size) for _ in range(3)])
    rollout(RarestFirst(), growth, rng, tree_bias=(10_000 * order).astype(np.float32), trajectory=trajectory)
    for placements in (each for record in trajectory for each in record.placements):
        preference = order[placements.envs[placements.segment], placements.row % growth.size]
        for position, choice in enumerate(placements.choice):
            assert preference[choice] == preference[placements.segment == position].max()


def test_the_best_schedule_is_the_shortest_episode():
    network = arrays("BCube(3,1)")
    assert (
        best_of_episodes(RarestFirst(), network, k=8, seed=0, name="best").length
        == 2 * run_episodes(RarestFirst(), network, k=8, seed=0).rounds.min()
    )
    assert (
        best_of_episodes(RarestFirst(), network, k=8, seed=0, name="best").length <= greedy_schedule(network).length + 2
    )


def test_episodes_and_schedules_wrong():
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        run_episodes(RarestFirst(), arrays("BCube(2,1)"), k=0, seed=0)
    with pytest.raises(ValueError, match="the broadcast of environment 0 is not complete"):
        TreeGrowth(arrays("BCube(2,1)"), 1).schedule(0, "x")


def test_a_reproducible_policy_scores_equal_rows_equally():
    """Matrix products may round a row differently by its place in the matrix. That must not decide ties."""
    policy, row = packaged_policy(), np.random.default_rng(0).random((1, len(FLOW_FEATURES))).astype(np.float32)
    assert policy.reproducible
    for count in (2, 3, 7, 64, 1001):
        scores = policy.evaluate("lower", np.repeat(row, count, 0))
        assert scores.dtype == np.float32 and (scores == scores[0]).all()
    plain = Policy(policy.weights)
    assert np.allclose(plain.evaluate("lower", row), policy.evaluate("lower", row), atol=1e-4)


def test_a_saved_policy_is_loaded(tmp_path):
    policy = Policy.blank(seed=3)
    policy.save(tmp_path / "weights.json")
    again = Policy.load(tmp_path / "weights.json")
    assert policy.weights.keys() == again.weights.keys()
    assert {value.dtype for value in again.weights.values()} == {np.dtype(np.float32)}
    assert all(np.allclose(value, again.weights[name], atol=1e-6) for name, value in policy.weights.items())


def test_replayed_rounds_lead_to_the_same_state():
    network = arrays("DCell(3,1)")
    first = TreeGrowth(network, 3)
    rollout(Policy.blank(), first, np.random.default_rng(5))
    kept = [rounds[:number] for number, rounds in enumerate(first.log, 1)]
    again = TreeGrowth(network, 3)
    again.replay(kept)
    assert again.rounds.tolist() == [1, 2, 3]
    for env, rounds in enumerate(kept):
        present = np.eye(network.network.size, dtype=bool)
        for hop, chunk in (placed for each in rounds for placed in each):
            present[network.network.target[hop], chunk] = True
        assert (again.present[env] == present).all() and again.log[env] == [*rounds, []]
    rollout(Policy.blank(), again, np.random.default_rng(6))
    for env in range(3):
        verify(network.network.graph, again.schedule(env, "again"))


def test_a_whole_episode_can_be_replayed():
    network = arrays("BCube(2,1)")
    first, again = TreeGrowth(network, 1), TreeGrowth(network, 1)
    rollout(Policy.blank(), first, np.random.default_rng(0))
    again.replay(first.log)
    assert again.done.all() and again.schedule(0, "x").rounds == first.schedule(0, "x").rounds


def test_each_environment_has_its_own_temperature():
    """The one without noise takes the same workloads whatever the others do."""
    network, policy = arrays("BCube(3,1)"), packaged_policy()
    alone, among = TreeGrowth(network, 1), TreeGrowth(network, 3)
    rollout(policy, alone, np.random.default_rng(1), temperature=0.0)
    rollout(policy, among, np.random.default_rng(2), temperature=np.array([1.0, 0.0, 2.0], np.float32))
    assert among.log[1] == alone.log[0]
    assert among.log[0] != alone.log[0] != among.log[2]
