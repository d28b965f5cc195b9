"""What README.md and docs/training.md show of the driver does what they say."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sim.bench.udp_model import UdpModel

ROOT = Path(__file__).parents[2]
PAGES = {
    page: re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    for page in ("README.md", "docs/training.md", "docs/index.md")
}
TRAIN = next(block for block in PAGES["README.md"] if "torch" in block)


def snippet(word):
    """The one block of docs/training.md that has a word."""
    [found] = [block for block in PAGES["docs/training.md"] if word in block]
    return found


def test_both_pages_show_the_same_loop():
    assert snippet("torch.optim") == TRAIN


def start_four(page, block, script, folder):
    """Save a script of a page, start four workers by the page's command, and return what each prints, as words.

    The command runs Python of .venv, which has numpy and the driver alone.
    """
    [command] = re.findall(
        rf"^    (for rank in .* {re.escape(script)}.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    (folder / script).write_text(block)
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / ".venv/bin/python").chmod(0o755)
    with UdpModel() as model:
        environment = os.environ | {"ISWITCH_ADDRESS": model.address(0), "PYTHONPATH": str(ROOT / "host")}
        environment["PYTHONUNBUFFERED"] = ""  # a line of a worker is written as a whole
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, text=True, capture_output=True, timeout=60, env=environment
        )
    assert done.stderr == "" and done.returncode == 0, done
    return [line.split() for line in done.stdout.splitlines()]


def test_four_workers_of_the_start_page_end_with_equal_weights(tmp_path):
    [block] = PAGES["docs/index.md"]
    ranks, sums = zip(*start_four("docs/index.md", block, "train.py", tmp_path))
    assert sorted(ranks) == ["0", "1", "2", "3"] and len(set(sums)) == 1


def test_four_asynchronous_workers_end_with_equal_digests(tmp_path):
    printed = start_four("docs/training.md", snippet("AsyncWorker"), "train_async.py", tmp_path)
    assert len(printed) == 4 and len({digest for (digest,) in printed}) == 1


def test_torchrun_trains_with_the_loop_of_the_readme(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    with UdpModel() as model:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                "2",
                "--master-port",
                "0",
                "--redirects",
                "1",
                "--log-dir",
                "logs",
                "train.py",
            ],
            cwd=tmp_path,
            text=True,
            capture_output=True,
            timeout=300,
            env=os.environ
            | {"ISWITCH_ADDRESS": model.address(0), "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'host'}"},
        )
    assert done.returncode == 0, done.stderr
    ranks, sums = zip(*(log.read_text().split() for log in tmp_path.glob("logs/**/stdout.log")))
    assert sorted(ranks) == ["0", "1"] and len(set(sums)) == 1


def test_the_loop_with_recovery_ends_with_equal_weights_after_a_reset():
    """Another worker's reset ends a collective of every rank with an error that the loop recovers from."""
    steps = []

    def compute(weights, step):
        steps.append(step)
        return np.full_like(weights, step)

    with UdpModel() as model:
        block = snippet("RecoverableError").replace("rank=rank", "rank=the_rank, address=address(the_rank)")
        block = block.replace(
            "gradient = compute(weights, step)",
            "gradient = compute(weights, step)\n            if step == 50 and the_rank == 2 and not resets:\n"
            "                resets.append(step)\n                worker.reset()",
        )
        resets = []
        spaces = [
            {
                "the_rank": rank,
                "address": model.address,
                "compute": compute,
                "resets": resets,
                "weights": np.zeros(100, np.float32),
            }
            for rank in range(4)
        ]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda space: exec(block, space), spaces))
    assert resets == [50]
    expected = np.zeros(100, np.float32)
    for step in range(100):
        expected -= np.float32(0.1) * np.full(100, step, np.float32)
    for space in spaces:
        assert space["step"] == 100
        assert np.array_equal(space["weights"], expected)
