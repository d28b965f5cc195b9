"""The longest time for which a process did not run the driver, and what an evicted worker says about it."""

import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from iswitch.driver.activity import ActivityMeter
from sim.bench.udp_model import UdpModel

PROGRAM = """
import ctypes
import numpy as np
from iswitch import AsyncWorker, NotAMemberError, Worker

worker = {worker}
print("ready", flush=True)
ctypes.PyDLL(None).usleep({stuck_us})  # holds the interpreter's lock
try:
    {work}
except NotAMemberError as error:
    print(error)
"""


def test_the_longest_time_is_kept_until_a_contribution_is_accepted():
    meter = ActivityMeter(10.0)
    for now in (10.5, 13.5, 14.0):
        meter.mark(now)
    assert meter.longest_s == 3.0
    meter.forget(before=13.0)
    assert meter.longest_s == 3.0
    meter.forget(before=13.6)
    assert meter.longest_s == 0.0
    meter.mark(16.0)
    assert meter.longest_s == 2.0
    meter.restart(100.0)
    meter.mark(100.25)
    assert meter.longest_s == 0.25


@pytest.mark.parametrize(
    ("worker", "work", "other"),
    [
        (
            'Worker("{address}", world=2, rank=0, key=5, evict_s=0.3)',
            "worker.barrier()",
            lambda address: Worker(address, world=2, rank=1, key=5, evict_s=0.3),
        ),
        (
            'AsyncWorker("{address}", world=2, rank=0, key=5, evict_s=0.3, size=8)',
            "worker.push(np.zeros(8, np.float32)); worker.wait()",
            lambda address: AsyncWorker(address, world=2, rank=1, key=5, evict_s=0.3, size=8),
        ),
    ],
    ids=["Worker", "AsyncWorker"],
)
@pytest.mark.parametrize("stuck_us", [0, 1_500_000])
def test_a_worker_that_was_stuck_in_native_code_says_so(worker, work, other, stuck_us):
    """The other worker evicts it; without the native code, nothing happens."""
    with UdpModel(Config(ports=4, window=4, elements=16)) as model:
        text = PROGRAM.format(worker=worker.format(address=model.address()), stuck_us=stuck_us, work=work)
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)

        def wait_for_rank_0():
            with other(model.address(1)) as peer:
                assert process.stdout.readline() == "ready\n"
                if isinstance(peer, Worker):
                    peer.barrier()
                else:
                    peer.push(np.zeros(8, np.float32))
                    assert peer.wait(10)
                released.wait(20)

        released = threading.Event()
        thread = threading.Thread(target=wait_for_rank_0)
        thread.start()
        try:
            process.wait(20)
            said = process.stdout.read()
        finally:
            process.kill()
            released.set()
            thread.join()
    if not stuck_us:
        assert said == ""
        return
    assert said.startswith("the switch evicted this worker from job 0 at ")
    silent = re.search(
        r"its process sent nothing for ([\d.]+) s, longer than `evict_s` of 0.3 s: native code held", said
    )
    assert silent and float(silent[1]) >= 1.5
    assert said.count("\n") == 1
