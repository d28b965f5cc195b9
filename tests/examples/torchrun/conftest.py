"""Workers in threads that train over the golden switch."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from examples.torchrun.learner import TALLY_SIZE, Learner
from examples.torchrun.run import gradient_bytes
from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from sim.bench.udp_model import UdpModel

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'host'}", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@pytest.fixture
def train_together(one_thread):
    """`train_together(train, options)` returns the learners of two workers, by rank, at the end of their training.
    Rank 0 writes its checkpoints to `checkpoint`; all go on from `resume`."""

    def run(train, options, world=2, *, checkpoint=None, resume=None, **faults):
        def work(rank):
            learners = []

            def start(agent, optimizer, after_update=lambda: None):
                if options.asynchronous:
                    size = gradient_bytes(optimizer) // 4 + TALLY_SIZE
                    worker = AsyncWorker(model.address(rank), world=world, rank=rank, size=size, threshold=1)
                else:
                    worker = Worker(model.address(rank), world=world, rank=rank)
                path = checkpoint if rank == 0 else None
                learner = Learner(worker, agent, optimizer, options, checkpoint=path, after_update=after_update)
                if resume:
                    learner.load(resume)
                learners.append(learner)
                return learner

            try:
                train(options, start)
            finally:
                for learner in learners:
                    learner.worker.close()
            return learners[0]

        with UdpModel(Config(ports=world, members=world, **faults)) as model, ThreadPoolExecutor(world) as pool:
            return list(pool.map(work, range(world)))

    return run


@pytest.fixture
def require_equal_states():
    """`require_equal_states(a, b)`: two learners have the same weights, moments of the optimizer and counts."""

    def require(first, second):
        left, right = first.state(), second.state()
        assert left.keys() == right.keys()
        torch.testing.assert_close(left, right, rtol=0, atol=0)

    return require


@pytest.fixture
def torchrun(tmp_path):
    """`torchrun("a2c", "--seed", "2")` trains with two workers against `iswitch switch`, and returns the finished
    process. Its files are in `tmp_path`."""
    switch = subprocess.Popen(
        [sys.executable, "-m", "iswitch.tools.cli", "switch", "--udp-base", "0", "--ports", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    address = re.search(r"listens at (\S+);", switch.stderr.readline())[1]

    def run(name, *options, world=2):
        command = ["torch.distributed.run", "--nproc-per-node", str(world), "--master-port", "0"]
        return subprocess.run(
            [sys.executable, "-m", *command, "-m", f"examples.torchrun.{name}", "--out", tmp_path, *options],
            text=True,
            capture_output=True,
            env=ENVIRONMENT | {"ISWITCH_ADDRESS": address},
        )

    yield run
    switch.terminate()
    switch.wait()
    switch.stderr.close()
