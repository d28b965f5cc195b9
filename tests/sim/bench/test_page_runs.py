"""Programs that the pages name run, with arguments by which they end soon."""

import os
import shlex
import subprocess
import sys

import pytest

from sim.bench.page_commands import ROOT
from sim.bench.page_runs import SHORT_RUNS

pytest.importorskip("torch")


@pytest.mark.parametrize("name", SHORT_RUNS)
def test_a_program_of_the_pages_runs(name, tmp_path):
    run = SHORT_RUNS[name]
    done = subprocess.run(
        [sys.executable, "-m", name, *shlex.split(run.arguments.replace("ROOT", str(ROOT)))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'host'}", "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == run.status, done.stdout + done.stderr
    assert run.says in done.stdout
