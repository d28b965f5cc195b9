"""Several jobs get the fairest rates: those of an exhaustive search, and those that laws of fairness demand."""

from fractions import Fraction
from itertools import pairwise, product

import networkx as nx
import pytest

from iswitch.plan import several_jobs
from iswitch.plan.check_jobs import check_jobs
from iswitch.plan.jobs_output import jobs_plan_to_dict
from iswitch.plan.schemes import make_plan
from iswitch.plan.several_jobs import plan_jobs
from iswitch.plan.solver import fair_rates, fair_trees, joint_program
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.simple_trees import make_stars
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.shared_fabric import FabricJob, SharedFabric
from iswitch.plan.topology.topology import Job, Topology, TopologyError
from iswitch.plan.topology.yaml_file import parse_fabric
from sim.bench.fabrics import random_shared_fabric
from sim.bench.mutant import mutant


def parts_of_trees(job, levels):
    """Return what each possible tree of a job takes of each resource for 1 Gb/s, without those that take more than
    another. Exact, and uses only the topology of the package."""
    topology, graph, settings = job.topology, job.topology.graph, job.topology.job
    head = Fraction(settings.overhead_bytes, settings.payload_bytes)
    gradient, partial = 1 + head, Fraction(settings.uplink_bytes_per_element, 4) + head
    sites = [node for node, data in graph.nodes(data=True) if data.get("aggregates")]
    switches = {node for node, kind in graph.nodes(data="kind") if kind == "switch"}
    in_flight = Fraction(settings.round_trip_us) / (8 * Fraction(settings.payload_bytes, 1000))

    def paths(a, b):
        return [tuple(pairwise(path)) for path in nx.all_simple_paths(graph.subgraph(switches | {a, b}), a, b)] or [()]

    def gbps(at, to):
        cable = graph.edges[at, to]
        return Fraction(cable["sender_gbps"] if cable.get("sender") == at else cable["bw_gbps"])

    found = set()
    for root in [topology.ps] if topology.ps else sites:
        ends = [root, *(site for site in sites if site != root)]
        for homes in product(ends, repeat=len(topology.workers)):
            for above in product(ends, repeat=len(ends) - 1):
                parents, used = dict(zip(ends[1:], above)), set()
                for home in homes:
                    chain = []
                    while home != root and home not in chain:
                        chain.append(home)
                        home = parents[home]
                    if home != root or levels and len(chain) > levels:
                        break
                    used |= set(chain)
                else:
                    if any(parents[site] != root for site in ends[1:] if site not in used):
                        continue  # an equal tree was tried
                    back = gradient if settings.return_path == "multicast" else 0
                    streams = [(worker, home, gradient, back) for worker, home in zip(topology.workers, homes)]
                    streams += [(site, parents[site], partial, back) for site in sorted(used)]
                    fixed = {}
                    for _, end, size, _ in streams:
                        most = graph.nodes[end].get("capacity_gbps" if end in switches else "ingress_gbps")
                        if most is not None:
                            fixed["sum", end] = fixed.get(("sum", end), 0) + size / Fraction(most)
                    for node in {root, *used} & switches:
                        if "slots" in graph.nodes[node]:
                            fixed["slots", node] = in_flight / graph.nodes[node]["slots"]
                        if settings.max_slots:
                            fixed["own", job.name] = in_flight / settings.max_slots
                    if settings.return_path == "unicast":
                        streams += [(root, worker, gradient, 0) for worker in topology.workers]
                    for routes in product(*(paths(start, end) for start, end, _, _ in streams)):
                        taken = dict(fixed)
                        for (_, _, size, back), route in zip(streams, routes):
                            for hop in route:
                                for arc, share in ((hop, size), (hop[::-1], back)):
                                    taken[arc] = taken.get(arc, 0) + share / gbps(*arc)
                        found.add(frozenset((resource, part) for resource, part in taken.items() if part))
    every = sorted((dict(each) for each in found), key=lambda each: sum(each.values()))
    least = []
    for each in every:
        if not any(all(part <= each.get(at, 0) for at, part in other.items()) for other in least):
            least.append(each)
    return least


def fill(parts, weights):
    """Return the exact rate/weight of each job: all grow until something is full."""
    levels, growing = [Fraction(0)] * len(parts), set(range(len(parts)))
    while growing:
        room = {}
        for resource in {resource for job in growing for resource in parts[job]}:
            taken = [part.get(resource, 0) * weight for part, weight in zip(parts, weights)]
            left = 1 - sum(levels[job] * taken[job] for job in range(len(parts)) if job not in growing)
            if need := sum(taken[job] for job in growing):
                room[resource] = left / need
        level = min(room.values())
        stopped = {job for job in growing if any(room.get(at) == level for at in parts[job])}
        for job in stopped:
            levels[job] = level
        growing -= stopped
    return levels


def fairest(fabric, levels):
    """Return the lexicographically largest sorted rate/weight over all combinations of trees."""
    weights = [Fraction(job.weight) for job in fabric.jobs]
    return max(sorted(fill(each, weights)) for each in product(*(parts_of_trees(job, levels) for job in fabric.jobs)))


def normalised_of(plan):
    return sorted(job.normalised_gbps for job in plan.jobs)


def rates_of(plan):
    return {job.job.name: job.tree.rate_gbps for job in plan.jobs}


def agrees_with_all_combinations(fabric, planned=plan_jobs):
    for kind, levels in (("level", 1), ("tree", None)):
        plan = planned(fabric, kind)
        assert normalised_of(plan) == pytest.approx([float(level) for level in fairest(fabric, levels)], rel=1e-5)
        assert plan.is_proved and plan.bound == pytest.approx(plan.least_gbps)
        networks = {job.name: node_link(job.topology) for job in fabric.jobs}
        assert check_jobs(networks, jobs_plan_to_dict(plan), levels=levels)[1] == []


def plannable(seed, **sizes):
    fabric = random_shared_fabric(seed, **sizes)
    try:
        for job in fabric.jobs:
            make_plan(job.topology, "level")
    except TopologyError:
        return None
    return fabric


@pytest.mark.parametrize("seed", range(24))
def test_no_combination_of_trees_is_fairer(seed):
    if fabric := plannable(seed):
        agrees_with_all_combinations(fabric)


@pytest.mark.parametrize("seed", range(9))
def test_no_combination_of_trees_of_three_jobs_is_fairer(seed):
    """In seed 8, HiGHS 1.15 must solve a program again: its presolve makes a solution that breaks a row."""
    if fabric := plannable(seed, jobs=3):
        agrees_with_all_combinations(fabric)


def two_spines():
    """Return two leaves and two spines, and two jobs with a worker at each leaf. Alone, both take the same spine."""
    graph = nx.Graph()
    for leaf in ("leaf1", "leaf2"):
        graph.add_node(leaf, kind="switch", aggregates=True, capacity_gbps=100.0)
        for spine in ("spine1", "spine2"):
            graph.add_node(spine, kind="switch")
            graph.add_edge(leaf, spine, bw_gbps=10.0)
        for job in ("a", "b"):
            graph.add_node(f"{job}-{leaf}", kind="host", role="other")
            graph.add_edge(f"{job}-{leaf}", leaf, bw_gbps=40.0)
    jobs = []
    for name in ("a", "b"):
        own = graph.copy()
        for leaf in ("leaf1", "leaf2"):
            own.nodes[f"{name}-{leaf}"]["role"] = "worker"
        jobs.append(FabricJob(name, 1.0, Topology(own, Job(overhead_bytes=0, uplink_bytes_per_element=4))))
    return SharedFabric(jobs)


def test_jobs_take_different_spines():
    plan = plan_jobs(two_spines(), "tree")
    assert rates_of(plan) == pytest.approx({"a": 10, "b": 10}) and plan.is_proved
    paths = [path for job in plan.jobs for path in job.tree.up.values() if len(path) > 2]
    assert {node for path in paths for node in path if node.startswith("spine")} == {"spine1", "spine2"}


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("module", "original", "wrong"),
    [
        (fair_rates, "rates[job] = weights[job] * filled", "rates[job] = filled"),
        (fair_rates, "left = 1 - sum(", "left = 1 - 0 * sum("),
        (joint_program, "if len(users) > 1]", "if len(users) > 2]"),
        (fair_trees, "proved += 1", "proved = len(jobs)"),
        (fair_trees, "held.get(number, rate) * job.weight for", "rate * job.weight for"),
        (fair_trees, "for held in self._holdings(best):", "for held in list(self._holdings(best))[:1]:"),
    ],
    ids=["no weights", "stopped jobs take nothing", "nothing shared", "first level only", "all grow", "one holding"],
)
def test_a_mutant_of_the_search_is_noticed(module, original, wrong, monkeypatch):
    """Without alternation, which hides mistakes of the program."""
    changed = mutant(module, original, wrong)
    for name in ("combine", "JointProgram", "prove"):
        if hasattr(changed, name):
            monkeypatch.setattr(fair_trees, name, getattr(changed, name))
    monkeypatch.setattr(
        fair_trees, "alternate", lambda jobs, alone, **_: fair_trees.combine(jobs, [a[0] for a in alone])
    )
    with pytest.raises((AssertionError, RuntimeError)):
        agrees_with_all_combinations(two_spines())
        for seed in range(24):
            if fabric := plannable(seed):
                agrees_with_all_combinations(fabric)
        for seed in range(8):
            if fabric := plannable(seed, jobs=3):
                agrees_with_all_combinations(fabric)


def test_the_program_alone_finds_the_fairest_trees(monkeypatch):
    """The search of the mutants, without a mutant."""
    monkeypatch.setattr(
        fair_trees, "alternate", lambda jobs, alone, **_: fair_trees.combine(jobs, [a[0] for a in alone])
    )
    agrees_with_all_combinations(two_spines())
    for seed in range(5):
        if fabric := plannable(seed):
            agrees_with_all_combinations(fabric)


def bounds_hold(program=joint_program):
    """Assert that no smallest normalised rate exceeds the bound of the relaxation, and that this is not infinite."""
    for fabric in (two_spines(), *(plannable(seed) for seed in range(8))):
        if fabric:
            joint = program.JointProgram(fabric.by_name, levels=1, adjacent=False, clock=Clock(10.0))
            assert fairest(fabric, 1)[0] * (1 - 1e-9) <= joint.bound_of_least(10.0) < float("inf")


def test_no_smallest_rate_exceeds_the_relaxation():
    bounds_hold()


@pytest.mark.mutant
def test_a_wrong_bound_is_noticed():
    with pytest.raises(AssertionError):
        bounds_hold(mutant(joint_program, "{t: -1.0}", "{t: -0.7}"))


def line_fabric(*jobs, trunk_gbps=10.0, **settings):
    """Return two switches with a cable, and jobs of (name, weight, workers at the first switch, at the second)."""
    graph = nx.Graph()
    for switch in ("S1", "S2"):
        graph.add_node(switch, kind="switch", aggregates=True, capacity_gbps=1000.0)
    graph.add_edge("S1", "S2", bw_gbps=trunk_gbps)
    for name, _, *counts in jobs:
        for switch, count in zip(("S1", "S2"), counts):
            for number in range(count):
                graph.add_node(f"{name}-{switch}-{number}", kind="host", role="other")
                graph.add_edge(f"{name}-{switch}-{number}", switch, bw_gbps=100.0)
    found = []
    for name, weight, *_ in jobs:
        own = graph.copy()
        for node in own:
            if node.startswith(f"{name}-"):
                own.nodes[node]["role"] = "worker"
        found.append(
            FabricJob(name, weight, Topology(own, Job(overhead_bytes=0, uplink_bytes_per_element=4, **settings)))
        )
    return SharedFabric(found)


def test_twice_the_weight_on_a_shared_bottleneck_is_twice_the_rate():
    """Each job puts one partial sum, or its results, on each direction of the cable."""
    plan = plan_jobs(line_fabric(("a", 2, 2, 2), ("b", 1, 2, 2), ("c", 1, 1, 0)), "tree")
    assert rates_of(plan) == pytest.approx({"a": 20 / 3, "b": 10 / 3, "c": 100})
    assert plan.is_proved and plan.least_gbps == pytest.approx(10 / 3)


def test_what_a_job_cannot_use_goes_to_the_others():
    """Slots limit job a to 1 Gb/s. Its share of the cable goes to job b, whatever the weights are."""
    fabric = line_fabric(("a", 5, 2, 2), ("b", 1, 2, 2), payload_bytes=1000, round_trip_us=8.0)
    a, b = fabric.jobs
    slow = a._replace(topology=a.topology.with_job(max_slots=1))
    plan = plan_jobs(SharedFabric([slow, b]), "tree")
    assert rates_of(plan) == pytest.approx({"a": 1, "b": 9})
    assert [resource.kind for resource in plan.jobs[0].limits] == ["max_slots"] * len(plan.jobs[0].limits)


def some_fabrics(count, **sizes):
    found = (plannable(seed, **sizes) for seed in range(100, 200))
    return [fabric for fabric, _ in zip(filter(None, found), range(count))]


def test_one_job_is_planned_as_without_a_list_of_jobs():
    for fabric in some_fabrics(4, jobs=1):
        for kind in ("level", "tree"):
            plan = plan_jobs(fabric, kind)
            alone = make_plan(fabric.jobs[0].topology, kind)
            assert plan.jobs[0].tree.rate_gbps == pytest.approx(alone.rate_gbps) and plan.is_proved


def test_jobs_that_share_nothing_get_what_each_gets_alone():
    one, other = (fabric.jobs[0] for fabric in some_fabrics(2, jobs=1))
    renamed = nx.relabel_nodes(other.topology.graph, lambda node: f"other {node}")
    whole = nx.union(one.topology.graph, renamed)
    jobs = []
    for name, part, weight in (("one", one.topology.graph, 3.0), ("other", renamed, 0.5)):
        graph = whole.copy()
        graph.graph = dict(part.graph)
        for node, kind in whole.nodes(data="kind"):
            if kind == "host" and node not in part:
                graph.nodes[node]["role"] = "other"
        jobs.append(FabricJob(name, weight, Topology(graph)))
    plan = plan_jobs(SharedFabric(jobs), "tree")
    alone = [make_plan(job.topology, "tree").rate_gbps for job in (one, other)]
    assert list(rates_of(plan).values()) == pytest.approx(alone) and plan.is_proved


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_weights_in_the_same_proportion_give_the_same_rates(factor):
    for fabric in some_fabrics(4):
        scaled = SharedFabric([job._replace(weight=job.weight * factor) for job in fabric.jobs])
        assert rates_of(plan_jobs(scaled, "tree")) == pytest.approx(rates_of(plan_jobs(fabric, "tree")))


def test_the_order_of_jobs_changes_nothing():
    for fabric in some_fabrics(3, jobs=3):
        plan, reverse = plan_jobs(fabric, "tree"), plan_jobs(SharedFabric(fabric.jobs[::-1]), "tree")
        assert [job.job.name for job in reverse.jobs] == [job.job.name for job in plan.jobs][::-1]
        assert {job.job.name: job.tree for job in plan.jobs} == {job.job.name: job.tree for job in reverse.jobs}


def test_no_job_is_faster_than_alone_and_more_jobs_leave_no_larger_smallest_rate():
    for fabric in some_fabrics(4, jobs=3):
        plan, fewer = plan_jobs(fabric, "tree"), plan_jobs(SharedFabric(fabric.jobs[:2]), "tree")
        assert all(job.tree.rate_gbps <= job.alone.rate_gbps * (1 + 1e-6) for job in plan.jobs)
        assert plan.least_gbps <= fewer.least_gbps * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_jobs_of_one_worker_fill_a_network_without_cycles_as_a_maximum_flow_does(seed):
    """One ps, one worker in each job, no headers and no results: fair rates are a maximum flow, for any weights."""
    tree = nx.random_labeled_tree(5, seed=seed)
    rate = lambda a, b: float(3 + (7 * a + 11 * b + seed) % 10)
    graph = nx.Graph()
    for node in tree:
        graph.add_node(f"s{node}", kind="switch")
        graph.add_node(f"w{node}", kind="host", role="other")
        graph.add_edge(f"w{node}", f"s{node}", bw_gbps=rate(node, 5))
    graph.add_node("ps", kind="host", role="ps")
    graph.add_edge("ps", "s0", bw_gbps=16.0)
    graph.add_edges_from((f"s{a}", f"s{b}", {"bw_gbps": rate(a, b)}) for a, b in tree.edges)
    jobs = []
    for node in tree:
        own = graph.copy()
        own.nodes[f"w{node}"]["role"] = "worker"
        settings = Job(return_path="none", overhead_bytes=0)
        jobs.append(FabricJob(f"job{node}", 1.0 + node, Topology(own, settings)))
    flow = nx.DiGraph()
    for a, b, gbps in graph.edges(data="bw_gbps"):
        flow.add_edge(a, b, capacity=gbps)
        flow.add_edge(b, a, capacity=gbps)
    flow.add_edges_from(("all", f"w{node}") for node in tree)
    plan = plan_jobs(SharedFabric(jobs), "tree")
    assert sum(rates_of(plan).values()) == pytest.approx(nx.maximum_flow_value(flow, "all", "ps"))
    assert plan.is_proved


def test_with_adjacent_each_switch_sums_its_neighbours():
    plan = plan_jobs(line_fabric(("a", 1, 2, 1), ("b", 1, 1, 2)), "tree", adjacent=True)
    assert plan.is_proved
    assert all(len(path) == 2 for job in plan.jobs for path in job.tree.up.values())


def test_a_large_fabric_is_planned_without_the_integer_program():
    """Above 30 switches that sum there is no proof by a program, but a bound, and the plan is checked."""
    graph = nx.Graph()
    graph.add_node("core", kind="switch", aggregates=True, capacity_gbps=400.0)
    for leaf in range(31):
        graph.add_node(f"leaf{leaf}", kind="switch", aggregates=True, capacity_gbps=40.0)
        graph.add_edge(f"leaf{leaf}", "core", bw_gbps=10.0)
        for host in ("a", "b"):
            graph.add_node(f"{host}{leaf}", kind="host", role="other")
            graph.add_edge(f"{host}{leaf}", f"leaf{leaf}", bw_gbps=10.0)
    jobs = []
    for name, weight in (("a", 2.0), ("b", 1.0)):
        own = graph.copy()
        for leaf in range(31):
            own.nodes[f"{name}{leaf}"]["role"] = "worker"
        jobs.append(FabricJob(name, weight, Topology(own)))
    fabric = SharedFabric(jobs)
    plan = plan_jobs(fabric, "tree", time_s=4.0)
    networks = {job.name: node_link(job.topology) for job in fabric.jobs}
    assert check_jobs(networks, jobs_plan_to_dict(plan))[1] == []
    assert plan.least_gbps <= plan.bound
    rates = rates_of(plan)
    assert rates["a"] == pytest.approx(2 * rates["b"], rel=1e-6)


def refuse(*_, **__):
    raise TopologyError("nothing is searched")


def slow_plan(topology, kind, **_):
    """Return the plan in which a rack sums all workers."""
    tree = make_stars(topology, find_sites(topology), False, Clock(60))[-1]
    return Plan(scheme=kind, trees=(tree,), bound_gbps=10 / 1.125)


@pytest.mark.parametrize(("racks", "jobs"), [(32, 2), (40, 4)])
def test_without_any_search_jobs_are_as_fast_as_if_each_spine_summed_half_of_them(racks, jobs, monkeypatch):
    """A spine sums 1.125 r of each worker, and an uplink carries that of half of the jobs."""
    text = (
        f"racks: [{{name: leaf, count: {racks}, hosts: {jobs}, nic_gbps: 10, aggregates: true, capacity_gbps: 200,"
        ' uplinks: [{to: "spine*", bw_gbps: 40}]}]\n'
        "switches: [{name: spine, count: 2, aggregates: true, capacity_gbps: 400}]\n"
        f"jobs: [{', '.join(f'{{name: j{k}, workers: [leaf*-h{k}]}}' for k in range(1, jobs + 1))}]\n"
    )
    monkeypatch.setattr(fair_trees, "plan_single_tree", refuse)
    monkeypatch.setattr(several_jobs, "make_plan", slow_plan)
    plan = plan_jobs(parse_fabric(text), "tree")
    least = min(10, 400 / (racks * jobs / 2), 40 / (jobs / 2)) / 1.125
    assert plan.least_gbps >= least * (1 - 1e-6)
    assert all(job.alone.rate_gbps >= job.tree.rate_gbps * (1 - 1e-9) for job in plan.jobs)


def test_a_stop_before_every_job_has_a_plan_is_said(monkeypatch):
    fabric = line_fabric(("a", 1, 1, 1), ("b", 1, 1, 1))

    def planned(topology, kind, **options):
        raise TopologyError("no tree was found within 1e-09 s: raise --seconds")

    monkeypatch.setattr(several_jobs, "make_plan", planned)
    with pytest.raises(TopologyError, match=r"^job a: no tree was found"):
        plan_jobs(fabric, "tree")
    monkeypatch.setattr(several_jobs, "stop_requested", lambda: True)
    with pytest.raises(TopologyError, match=r"^stopped before job a had a plan: let the search run longer"):
        plan_jobs(fabric, "tree")


def test_a_job_without_a_plan_is_named():
    a, b = line_fabric(("a", 1, 2, 1), ("b", 1, 1, 2)).jobs
    graph = b.topology.graph.copy()
    for switch in ("S1", "S2"):
        graph.nodes[switch]["members"] = 1
    with pytest.raises(TopologyError, match=r"^job b: one tree, several levels: no tree reaches all workers"):
        plan_jobs(SharedFabric([a, b._replace(topology=Topology(graph))]), "tree")
