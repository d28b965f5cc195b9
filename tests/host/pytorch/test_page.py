"""The scripts of docs/pytorch.md under torchrun give all ranks the same weights, also where frames are lost."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sim.bench.udp_model import Faults, UdpModel

ROOT = Path(__file__).parents[3]
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/pytorch.md").read_text(encoding="utf-8"), re.DOTALL)
    if "torchft" not in block  # `test_torchft.py` runs that one
]


def run(script, folder, model, ranks=2, **environment):
    """Run a script under torchrun. Return what each rank printed last, by rank."""
    (folder / "train.py").write_text(script)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*launcher, "--redirects", "1", "--log-dir", "logs", "train.py"],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=300,
        env=os.environ
        | {"ISWITCH_ADDRESS": model.address(0), "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'host'}"}
        | environment,
    )
    assert done.returncode == 0, done.stderr
    return dict(log.read_text().split()[-2:] for log in folder.glob("logs/**/stdout.log"))


@pytest.mark.parametrize("block", BLOCKS, ids=["backend", "hook", "library", "stable_baselines3", "torchrl", "elastic"])
def test_a_script_of_the_page_gives_all_ranks_the_same_weights_in_every_run(block, tmp_path):
    weights = set()
    for name, faults in (("sound", Faults()), ("bad", Faults(loss=0.05, duplication=0.05, reordering=0.05))):
        (tmp_path / name).mkdir()
        with UdpModel(faults=faults) as model:
            ranks = run(block, tmp_path / name, model)
        assert sorted(ranks) == ["0", "1"]
        weights.update(ranks.values())
    assert len(weights) == 1
