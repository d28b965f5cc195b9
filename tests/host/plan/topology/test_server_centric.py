"""BCube, DCell and Jellyfish: sizes and degrees by the papers' formulas, addresses, seeds."""

import networkx as nx
import pytest

from iswitch.plan.topology.server_centric import bcube, dcell, jellyfish


def kinds(graph, kind):
    return [node for node, of in graph.nodes(data="kind") if of == kind]


@pytest.mark.parametrize("n, k", [(2, 0), (2, 1), (3, 1), (5, 1), (2, 2), (3, 2), (2, 3)])
def test_bcube_has_the_papers_sizes(n, k):
    graph = bcube(n, k)
    assert len(kinds(graph, "host")) == n ** (k + 1) and len(kinds(graph, "switch")) == (k + 1) * n**k
    assert {graph.degree(host) for host in kinds(graph, "host")} == {k + 1}
    assert {graph.degree(switch) for switch in kinds(graph, "switch")} == {n}
    assert nx.diameter(graph) == 2 * (k + 1)


def test_bcube_hosts_on_a_switch_differ_in_one_digit():
    graph = bcube(3, 2)
    for switch in kinds(graph, "switch"):
        digits = [{host // 3**level % 3 for host in (int(name[1:]) for name in graph[switch])} for level in range(3)]
        assert sorted(map(len, digits)) == [1, 1, 3]


@pytest.mark.parametrize("n, k, hosts", [(2, 0, 2), (2, 1, 6), (3, 1, 12), (4, 1, 20), (5, 1, 30), (2, 2, 42)])
def test_dcell_has_the_papers_sizes(n, k, hosts):
    graph = dcell(n, k)
    assert len(kinds(graph, "host")) == hosts and len(kinds(graph, "switch")) == hosts // n
    assert {graph.degree(host) for host in kinds(graph, "host")} == {k + 1}
    assert graph.number_of_edges() == hosts + hosts * k // 2


def test_dcell_joins_every_two_cells_by_one_cable():
    graph = dcell(4, 1)
    cables = [
        tuple(sorted(int(name[1:]) // 4 for name in edge))
        for edge in graph.edges
        if all(name[0] == "h" for name in edge)
    ]
    assert sorted(cables) == [(a, b) for a in range(5) for b in range(a + 1, 5)]


@pytest.mark.parametrize(
    "switches, degree, each", [(8, 3, 1), (10, 3, 1), (16, 4, 1), (20, 4, 1), (8, 3, 2), (4, 2, 3)]
)
@pytest.mark.parametrize("seed", range(5))
def test_jellyfish_is_connected_and_regular(switches, degree, each, seed):
    graph = jellyfish(switches, degree, seed, each)
    assert nx.is_connected(graph) and not list(nx.selfloop_edges(graph))
    assert {graph.degree(switch) for switch in kinds(graph, "switch")} == {degree + each}
    assert len(kinds(graph, "host")) == switches * each and {graph.degree(host) for host in kinds(graph, "host")} == {1}


def test_jellyfish_depends_on_its_seed_only():
    edges = [set(jellyfish(16, 4, seed).edges) for seed in (1, 1, 2)]
    assert edges[0] == edges[1] != edges[2]


def test_hosts_come_first_and_links_have_their_rate():
    for graph in (bcube(2, 1, bw_gbps=40.0), dcell(2, 1, bw_gbps=40.0), jellyfish(8, 3, 1, bw_gbps=40.0)):
        hosts = kinds(graph, "host")
        assert list(graph)[: len(hosts)] == hosts == [f"h{index}" for index in range(len(hosts))]
        assert {rate for _, _, rate in graph.edges(data="bw_gbps")} == {40.0}


@pytest.mark.parametrize(
    "make, sizes",
    [
        (bcube, (1, 1)),
        (bcube, (2, -1)),
        (dcell, (1, 1)),
        (dcell, (2, -1)),
        (jellyfish, (8, 1, 1)),
        (jellyfish, (4, 4, 1)),
        (jellyfish, (5, 3, 1)),
        (jellyfish, (8, 3, 1, 0)),
    ],
)
def test_sizes_wrong(make, sizes):
    with pytest.raises(ValueError, match=f"(?i){make.__name__}"):
        make(*sizes)
