"""`python -m iswitch.plan.sizes`: a row for each number of racks and kind."""

import subprocess
import sys
from pathlib import Path

import pytest

from iswitch.plan.schemes import make_plan
from iswitch.plan.sizes import SIZES_HEADER, Size, measure_size
from iswitch.plan.topology.files import read_topology

ROOT = Path(__file__).parents[3]
RACKS = ROOT / "docs/plan_12racks.yaml"


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "iswitch.plan.sizes", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_row_shows_the_plan_of_so_many_racks(tmp_path):
    fabric = tmp_path / "fabric.yaml"
    fabric.write_text(RACKS.read_text(encoding="utf-8").replace("count: 12", "count: 3"), encoding="utf-8")
    plan = make_plan(read_topology(fabric), "level")
    done = run(RACKS, "--racks", 3, "--kind", "level", "--seconds", 20)
    assert done.returncode == 0, done.stderr
    header, row = done.stdout.splitlines()
    assert header == SIZES_HEADER and len(row) == len(header)
    assert row.split()[:5] == ["3", "level", f"{plan.rate_gbps:.4f}", f"{plan.bound_gbps:.4f}", "proved"]


def test_a_gap_is_the_bound_over_the_rate():
    assert Size(48, "tree", 2.0, 2.1, 60.0, 59.0, 100.0).text.split()[4] == "5.0%"


def test_wrong_kind_and_file(tmp_path):
    assert "--kind must be one of level, tree, levels, trees, not 'forest'" in run(RACKS, "--kind", "forest").stderr
    with pytest.raises(ValueError, match="the file must have a `count` of racks"):
        measure_size("racks: []", 3, "level", 1.0)
