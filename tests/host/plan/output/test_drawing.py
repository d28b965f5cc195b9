import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from iswitch.plan.output.drawing import FULL, draw_svg
from iswitch.plan.schemes import make_plan
from iswitch.plan.topology.generators import fat_tree, leaf_spine, seed_example
from iswitch.plan.topology.topology import Job, Topology
from sim.bench.fabrics import random_topology

NAMES = {"": "http://www.w3.org/2000/svg"}


def drawn(topology, kind="tree"):
    return ElementTree.fromstring(draw_svg(topology, make_plan(topology, kind)))


def texts(root):
    return ["".join(node.itertext()) for node in root.iterfind(".//text", NAMES)]


def test_the_drawing_of_the_example_has_its_loads():
    found = texts(drawn(seed_example(), "level"))
    assert found.count("sums 9/9") == 2 and "sums 6/9" in found and "takes 9" in found
    assert found.count("→3 ←3/3") == 3 and "↑9 ↓9/9" in found
    assert {"L1", "L2", "L3", "PS", "S1", "S2", "S3", "to S2"} <= set(found)
    assert "W1 to W3" in "".join(found) and "3 Gb/s from each of 8 workers" in found[0]


def test_each_direction_of_a_cable_has_its_own_capacity_and_colour():
    graph = leaf_spine(2, 1, 2, nic_gbps=4, uplink_gbps=20)
    graph.edges["leaf1", "spine1"].update(sender="leaf1", sender_gbps=8.0)
    graph.edges["leaf1-h2", "leaf1"].update(sender="leaf1", sender_gbps=2.0)
    job = Job(overhead_bytes=0, uplink_bytes_per_element=4)
    topology = Topology.of(graph, aggregates=dict.fromkeys(("leaf1", "leaf2", "spine1"), 100), job=job)
    root = drawn(topology)
    label = "".join(texts(root))
    assert "↑2/8 ↓2/20" in label and "↑2 ↓2/20" in label and "↑2/4 ↓2/2" in label
    full = [node.text for node in root.iterfind(f".//text[@fill='{FULL}']", NAMES)]
    assert full == ["↑2/4 ↓2/2"]
    assert len(root.findall(f".//path[@stroke='{FULL}']", NAMES)) == 1


@pytest.mark.parametrize("kind", ["level", "tree"])
@pytest.mark.parametrize(
    "topology",
    [seed_example(), Topology.of(leaf_spine(3, 2, 4, uplink_gbps=10), aggregates={"leaf1": 200, "leaf2": 200})],
)
def test_arrows_follow_streams(topology, kind):
    plan = make_plan(topology, kind)
    root = ElementTree.fromstring(draw_svg(topology, plan))
    at = {
        node.text: (float(node.get("x")), float(node.get("y")) + 5)
        for node in root.iterfind(".//text[@font-weight='bold']", NAMES)
        if node.text in topology.graph
    }
    nearest = lambda point: min(at, key=lambda name: (at[name][0] - point[0]) ** 2 + (at[name][1] - point[1]) ** 2)
    drawn_hops = set()
    for path in root.iterfind(".//path[@marker-end]", NAMES):
        points = [tuple(map(float, point.split())) for point in path.get("d")[1:].split("L")]
        if len(points) > 2:
            drawn_hops.add((nearest(points[0]), nearest(points[-1])))
    assert drawn_hops == {hop for path in plan.trees[0].up.values() for hop in pairwise(path) if set(hop) <= at.keys()}
    assert not root.findall(".//path[@marker-start]", NAMES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Topology.of(leaf_spine(12, 2, 4), aggregates={"spine1": 1000}),
        lambda: Topology.of(fat_tree(4), aggregates={"core1": 1000}),
        *(lambda seed=seed: random_topology(seed) for seed in (0, 1, 2, 3, 7)),
    ],
)
def test_boxes_are_on_the_canvas_and_do_not_overlap(make):
    topology = make()
    root = drawn(topology)
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = [
        tuple(float(box.get(name)) for name in ("x", "y", "width", "height"))
        for box in root.iterfind(".//rect[@x]", NAMES)
    ]
    assert len(boxes) >= len(topology.switches)
    for number, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for ox, oy, ow, oh in boxes[:number]:
            assert x + w <= ox or ox + ow <= x or y + h <= oy or oy + oh <= y
    assert not re.search("nan|inf", ElementTree.tostring(root, "unicode"))
