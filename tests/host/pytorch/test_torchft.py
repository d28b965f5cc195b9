"""torchft's manager over the switch: replicas die and come back, and all have the same weights."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from iswitch.torch import Options
from sim.bench.udp_model import Faults, UdpModel

torchft = pytest.importorskip("torchft", reason="torchft has wheels for Python 3.11 to 3.13 on x86-64 only")
ProcessGroupIswitch = pytest.importorskip("iswitch.torch.torchft").ProcessGroupIswitch

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
[SCRIPT] = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "torchft" in block]
STOP = """
def last_step():
    return int(open("last").read()) if os.path.exists("last") else 10**9


def report(step):
    print("step", step, manager.num_participants(), flush=True)

"""
"""Lets the test choose the last step while the replicas train."""


class Replica:
    """A process that runs the script of the page. `steps`: the committed steps, with the number of replicas."""

    def __init__(self, number, folder, lighthouse, address):
        script = SCRIPT.replace("manager.current_step() < 200", "manager.current_step() < last_step()")
        script = script.replace("    optimizer.step()\n", "    optimizer.step()\n    report(manager.current_step())\n")
        script = script.replace("\nstore = ", f"{STOP}\nstore = ")
        assert script.count("last_step()") == 2 and script.count("report(") == 2
        (folder / "train.py").write_text(script)
        self.process = subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=(folder / f"replica_{number}.log").open("a"),
            env=os.environ
            | {
                "ISWITCH_ADDRESS": address,
                "TORCHFT_LIGHTHOUSE": lighthouse,
                "REPLICA": f"replica_{number}",
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": f"{ROOT}:{ROOT / 'host'}",
            },
        )
        self.steps, self.weights, self.progress = [], "", threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.progress:
                if line.startswith("step "):
                    self.steps.append(tuple(map(int, line.split()[1:])))
                else:
                    self.weights = line.split()[-1]
                self.progress.notify_all()

    def wait_for(self, condition):
        with self.progress:
            assert self.progress.wait_for(lambda: condition(self), timeout=120), self.steps[-5:]


def test_a_replica_that_is_killed_comes_back_and_all_have_the_same_weights(tmp_path):
    lighthouse = torchft._torchft.LighthouseServer(
        bind="[::]:0", min_replicas=2, join_timeout_ms=1000, heartbeat_timeout_ms=2000
    )
    replicas = []
    with UdpModel(faults=Faults(loss=0.01)) as model:
        try:
            start = lambda number: Replica(number, tmp_path, lighthouse.address(), model.address(number))
            replicas = [start(number) for number in range(3)]
            replicas[1].wait_for(lambda replica: sum(count == 3 for _, count in replica.steps) >= 3)
            replicas[1].process.kill()
            killed_at = replicas[0].steps[-1][0]
            replicas[0].wait_for(lambda replica: replica.steps[-1] >= (killed_at + 3, 2))
            replicas[1] = start(1)
            replicas[1].wait_for(lambda replica: sum(count == 3 for _, count in replica.steps) >= 3)
            (tmp_path / "part").write_text(str(replicas[1].steps[-1][0] + 20))
            (tmp_path / "part").rename(tmp_path / "last")  # in one step, so that no replica reads half of it
            assert [replica.process.wait(60) for replica in replicas] == [0, 0, 0]
            for replica in replicas:
                replica.wait_for(lambda replica: replica.weights)
        finally:
            for replica in replicas:
                replica.process.kill()
            lighthouse.shutdown()
    assert len({replica.weights for replica in replicas}) == 1
    assert replicas[1].steps[0][0] > killed_at


def test_a_group_is_configured_anew_with_other_replicas():
    """As the manager does: each quorum has a store of its own."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    sums = {}
    with UdpModel() as model:

        def replica(number, quorums):
            group = ProcessGroupIswitch(Options(address=model.address(number)))
            for quorum, members in quorums:
                group.configure(f"localhost:{store.port}/{quorum}", str(number), members.index(number), len(members))
                tensor = torch.full((5,), number + 1.0)
                group.allreduce([tensor], dist.AllreduceOptions()).wait()
                group.barrier().wait()
                group.allreduce([tensor], dist.ReduceOp.AVG).wait()  # equal at all: stays as it is
                sums[quorum, number] = tensor.tolist()
            group.shutdown()

        quorums = [(0, (0, 1, 2)), (1, (0, 2)), (2, (2,)), (3, (0, 1, 2))]
        threads = [
            threading.Thread(target=replica, args=(number, [entry for entry in quorums if number in entry[1]]))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sums == {(quorum, n): [sum(k + 1.0 for k in members)] * 5 for quorum, members in quorums for n in members}
