"""The command line: table, schedule with its files, train, and errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest
from typer.testing import CliRunner

from iswitch.plan.allreduce.__main__ import app
from iswitch.plan.allreduce.files.json_file import from_json
from iswitch.plan.allreduce.files.msccl import parse, run
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.model.topologies import TOPOLOGIES, build_topology
from iswitch.plan.allreduce.model.verify import verify
from iswitch.plan.allreduce.table import HEADER, make_row
from iswitch.plan.topology.server_centric import bcube

ROOT = Path(__file__).parents[4]
QUICK = ("BCube(2,1)", "BCube(3,1)", "DCell(2,1)", "DCell(3,1)", "Jellyfish(8,3)")
PNG = b"\x89PNG\r\n\x1a\n"


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TOPOLOGIES]
)
def test_the_table_in_the_docs_is_what_the_command_prints(name):
    assert f"\n{make_row(name).text}\n" in (ROOT / "docs/allreduce.md").read_text(encoding="utf-8")


def test_the_header_in_the_docs_is_the_commands():
    assert f"\n{HEADER}\n" in (ROOT / "docs/allreduce.md").read_text(encoding="utf-8")


def test_table_prints_rounds_bound_and_gap(tmp_path):
    result = call(
        "table",
        "BCube(2,1)",
        "DCell(2,1)",
        "-k",
        "2",
        "--json",
        str(tmp_path / "table.json"),
        "--plot",
        str(tmp_path / "table.png"),
    )
    assert result.exit_code == 0, result.output
    header, *lines = result.output.splitlines()
    assert all(word in header for word in ("PS", "ring", "greedy", "learned", "bound", "gap")) and len(lines) == 2
    numbers = json.loads((tmp_path / "table.json").read_text())[0]
    assert [numbers[key] for key in ("PS", "ring 0,1,..", "ring", "bound", "in network", "gap")] == [
        16,
        12,
        6,
        3,
        9,
        0.3333,
    ]
    assert (tmp_path / "table.png").read_bytes().startswith(PNG)


def test_schedule_writes_files_that_sum(tmp_path):
    paths = {kind: tmp_path / f"best.{kind}" for kind in ("json", "xml", "png")}
    result = call(
        "schedule",
        "BCube(3,1)",
        "-k",
        "2",
        "--json",
        str(paths["json"]),
        "--xml",
        str(paths["xml"]),
        "--plot",
        str(paths["png"]),
    )
    assert result.exit_code == 0, result.output
    assert "best: learned, 8 rounds; no schedule has fewer than 8 (gap 0.0 %)" in result.output
    assert "parameter server, merging    32 rounds" in result.output, "the table's column `merging`, not its `PS`"
    schedule, hosts, aggregating = from_json(paths["json"].read_text())
    verify(build_topology("BCube(3,1)"), schedule)
    assert schedule.length == 8 and len(hosts) == 9 and aggregating == []
    run(parse(paths["xml"].read_text()))
    assert paths["png"].read_bytes().startswith(PNG)


def test_schedule_of_a_topology_file(tmp_path):
    path = tmp_path / "net.json"
    path.write_text(json.dumps(nx.node_link_data(build_topology("BCube(2,1)"), edges="edges")))
    result = call("schedule", str(path), "-k", "1")
    assert result.exit_code == 0 and "no schedule has fewer than 3" in result.output


def test_train_writes_weights_history_and_picture(tmp_path):
    pytest.importorskip("torch")
    paths = [tmp_path / name for name in ("weights.json", "history.json", "curve.png")]
    result = call("train", "--iterations", 1, "--out", paths[0], "--history", paths[1], "--plot", paths[2])
    assert result.exit_code == 0 and "1/1" in result.output
    assert Policy.load(paths[0]).weights["lower.0"].shape == (14, 32)
    assert len(json.loads(paths[1].read_text())) == 1 and paths[2].read_bytes().startswith(PNG)
    assert call("schedule", "BCube(2,1)", "-k", "1", "--weights", str(paths[0])).exit_code == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["schedule", "Ring(4)"], "topology must be like"),
        (["schedule", "DCell(4)"], "DCell takes 2 numbers, not"),
        (["table", "BCube(1,1)"], "BCube needs"),
        (["schedule", "no.json"], "no.json"),
        (["schedule", "BCube(2,1)", "-k", "0"], "k must be at least 1"),
        (["schedule", "BCube(2,)"], "topology must be like"),
        (["schedule", "BCube(30,3)"], "BCube(30,3) must have at most 256 servers to be scheduled, not 810000"),
        (["table", "DCell(9,90)"], "DCell(9,90) must have at most 256 servers to be scheduled, not over 10^9"),
        (["table", "Jellyfish(100,4,1,3)"], "servers to be scheduled, not 300"),
        (["schedule", "BCube(0,9)"], "BCube needs n >= 2"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_1(arguments, message):
    result = call(*arguments)
    assert result.exit_code == 1 and message in result.stderr


def test_a_missing_file_is_reported_without_error_number():
    result = call("schedule", "no.json")
    assert result.exit_code == 1
    assert result.stderr == "no.json: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "net.json:1: not JSON: "),
        ("{}", "net.json: not a graph in networkx's node-link JSON"),
        ("[1]", "net.json: not a graph in"),
    ],
)
def test_a_file_that_is_not_a_graph_is_refused(tmp_path, text, message):
    (tmp_path / "net.json").write_text(text)
    result = call("schedule", str(tmp_path / "net.json"))
    assert result.exit_code == 1 and message in result.stderr
    result = call("schedule", "BCube(2,1)", "-k", "1", "--weights", str(tmp_path / "net.json"))
    assert (
        result.exit_code == 1
        and "net.json has no weights of these policies: pass a file that `train` has written" in result.stderr
    )


def test_a_file_with_too_many_servers_is_refused(tmp_path):
    path = tmp_path / "net.json"
    path.write_text(json.dumps(nx.node_link_data(bcube(17, 1), edges="edges")))
    result = call("schedule", str(path))
    assert result.exit_code == 1
    assert result.stderr == "net.json: the network must have at most 256 servers to be scheduled, not 289\n"


def test_every_schedule_is_printed_when_it_is_found(monkeypatch):
    """So a large topology shows progress."""

    def stop(*_, **__):
        raise ValueError("stopped")

    monkeypatch.setattr("iswitch.plan.allreduce.compare.learned_schedule", stop)
    result = call("schedule", "BCube(2,1)", "-k", "1")
    assert result.exit_code == 1
    assert [line[:25].strip() for line in result.stdout.splitlines()] == [
        "parameter server, merging",
        "ring",
        "fixed trees",
        "greedy",
        "greedy, best of 1",
    ]
    assert result.stderr == "stopped\n"


def test_training_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "iswitch.plan.allreduce.learning.train", raising=False)
    result = call("train")
    assert result.exit_code == 1
    assert result.stderr == (
        "python -m iswitch.plan.allreduce needs torch, which is not installed: "
        "pip install 'iswitch-rl[cli,plan,schedule,torch]', "
        "or in a checkout of the project pip install '.[cli,plan,schedule,torch]'\n"
    )


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("networkx", ["--help"]),
        ("typer", ["--help"]),
        ("networkx", ["schedule", "BCube(2,1)"]),
        ("matplotlib", ["table", "BCube(2,1)", "--plot", "x.png"]),
    ],
)
def test_without_its_extras_scheduling_names_them(package, arguments):
    code = (
        f"import runpy, sys\nsys.modules[{package!r}] = None\nsys.argv[1:] = {arguments!r}\n"
        "runpy.run_module('iswitch.plan.allreduce', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"python -m iswitch.plan.allreduce needs {package}, which is not installed: pip install "
        "'iswitch-rl[cli,plan,schedule]'"
    )


def test_train_iterations_wrong():
    pytest.importorskip("torch")
    result = call("train", "--iterations", "0")
    assert result.exit_code == 1 and "iterations must be at least 1" in result.stderr


@pytest.mark.parametrize(
    "nodes, edges, words",
    [
        ({"a": "ps"}, {}, "a has the role 'ps'"),
        (
            {},
            {("a", "s"): {"bw_gbps": 10}, ("b", "s"): {"bw_gbps": 40}},
            "cable a-s has 10 Gb/s .* and s-b has 40 Gb/s",
        ),
        ({}, {("a", "s"): {"bw_gbps": 10}, ("b", "s"): {}}, "s-b has no bw_gbps"),
    ],
)
def test_schedule_refuses_what_rounds_do_not_respect(nodes, edges, words, tmp_path):
    graph = nx.Graph([("a", "s"), ("b", "s")])
    for node in graph:
        graph.nodes[node]["kind"] = "switch" if node == "s" else "host"
    for node, role in nodes.items():
        graph.nodes[node]["role"] = role
    nx.set_edge_attributes(graph, edges)
    (tmp_path / "net.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    result = call("schedule", tmp_path / "net.json", "-k", 1)
    assert result.exit_code == 1 and re.search(words, result.output), result.output


def test_a_schedule_with_a_repeated_host_is_refused():
    empty = {"aggregating": [], "rounds": []}
    with pytest.raises(ValueError, match="hosts must differ, but a is repeated"):
        from_json(json.dumps({"format": "iswitch-allreduce", "version": 1, "name": "x", "hosts": ["a", "a"]} | empty))
