"""The default key of a job."""

import os
import subprocess
import sys

import pytest

from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from iswitch.control.job_key import default_key, describe_key, job_key, machine_texts, process_key
from sim.bench.udp_model import UdpModel

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(("text", "key"), [("7", 7), ("0x10", 16), (str(2**64 - 1), 2**64 - 1)])
def test_the_environment_gives_the_key_before_any_launcher(text, key):
    assert default_key({"ISWITCH_KEY": text} | TORCHRUN) == key


def test_workers_of_one_run_have_one_key_and_two_runs_have_two():
    runs = [
        TORCHRUN,
        TORCHRUN | {"MASTER_PORT": "29501"},
        TORCHRUN | {"TORCHELASTIC_RUN_ID": "8f2c"},
        {"SLURM_JOB_ID": "17"},
        {"SLURM_JOB_ID": "18"},
        {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "west"},
        {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2"},
    ]
    keys = [default_key(run) for run in runs]
    assert len(set(keys)) == len(runs) and 0 not in keys
    assert keys == [default_key(run | {"RANK": "3", "SLURM_PROCID": "3", "HOSTNAME": "b"}) for run in runs]


def test_without_both_there_is_none():
    assert default_key({}) is None and default_key({"ISWITCH_KEY": "", "MASTER_ADDR": "10.0.0.5"}) is None


@pytest.mark.parametrize("address", ["10.0.0.1", "switch:26963"])
def test_a_job_of_several_workers_at_a_switch_of_others_needs_a_key(monkeypatch, address):
    for name in ("ISWITCH_KEY", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"key must be given for a job of 2 workers at .*set ISWITCH_KEY"):
        job_key(None, world=2, address=address)
    with pytest.raises(ValueError, match="key must be given"):
        Worker(address, world=2)
    with pytest.raises(ValueError, match="key must be given"):
        AsyncWorker(address, world=2, size=3)
    assert job_key(None, world=1, address=address) == process_key()
    assert job_key(None, world=2, address=address, own_transport=True) == process_key()
    assert job_key(None, world=2, address="127.0.0.1:27000") == job_key(None, world=2, address="localhost")
    assert job_key(None, world=2, address="localhost") == process_key()
    assert job_key(5, world=2, address=address) == 5
    monkeypatch.setenv("ISWITCH_KEY", "6")
    assert job_key(None, world=2, address=address) == 6


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_runs_on_two_machines_that_name_only_their_own_have_two_keys(monkeypatch, address):
    """`torchrun --master-port 29500` sets the same variables on every machine."""
    run, keys = TORCHRUN | {"MASTER_ADDR": address}, []
    for machine in ("one", "other", "one"):
        monkeypatch.setattr("iswitch.control.job_key.machine_texts", lambda machine=machine: [machine])
        keys.append(default_key(run))
    assert keys[0] == keys[2] != keys[1]


def test_a_machine_is_known_by_name_boot_and_network():
    assert len(machine_texts()) == 3 and machine_texts() == machine_texts()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("secret", "ISWITCH_KEY must be a whole number, decimal or with 0x in front, not 'secret'"),
        ("-1", "ISWITCH_KEY"),
    ],
)
def test_isw_key_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        default_key({"ISWITCH_KEY": text})


# Programs that name no key

PROGRAM = """
import multiprocessing
import os
import sys
import numpy as np
from iswitch import IswitchError, Worker

def work(address, world, value):
    try:
        with Worker(address, world=world, join_timeout_s=60, evict_s=1) as worker:
            report("joined")
            gradient = np.full(4, value, np.float32)
            worker.allreduce(gradient)
            report(gradient[0])
    except IswitchError as error:
        report(f"{type(error).__name__} {error}")

def report(text):
    os.write(1, f"{text}\\n".encode())  # a line at once, because several processes write

if __name__ == "__main__":
    address, world, value, method = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    children = []
    if method != "none":  # this process starts the other workers
        processes = multiprocessing.get_context(method)
        children = [processes.Process(target=work, args=(address, world, value)) for _ in range(1, world)]
    for child in children:
        child.start()
    work(address, world, value)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A program in an environment that names no key."""
    for name in ("ISWITCH_KEY", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text(PROGRAM)
    return str(tmp_path / "train.py")


@pytest.fixture
def model():
    with UdpModel(Config(ports=4, window=4, elements=16, members=8)) as made:
        yield made


def started(script, address, value, *, world=2, method="none"):
    arguments = [sys.executable, script, address, str(world), str(value), method]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def outputs(processes):
    return [process.communicate(timeout=60)[0].strip().splitlines() for process in processes]


def test_two_runs_of_one_script_never_share_a_job(script, model):
    """A worker of each, at an emulator on this machine; the other workers are slower to start."""
    first = started(script, model.address(0), 1)
    model.until(lambda switch: switch.jobs[0].live)
    (other,) = outputs([started(script, model.address(1), 1000)])
    assert other[0].startswith("RefusedError") and "the job belongs to another program" in other[0]
    assert "use another job number, for example job=1, or ISWITCH_JOB=1 for `iswitch.init()`" in other[0]
    assert "`key=` or ISWITCH_KEY: without one, only threads of one process" in other[0]
    assert (
        "`iswitch end-job --job 0 --key KEY --switch" in other[0] and "where KEY is the key of its workers" in other[0]
    )
    assert model.switch.counters()["outcome.ADDED"] == 0
    first.kill()
    first.wait()


def test_two_runs_of_one_script_with_the_same_key_are_one_job(script, model, monkeypatch):
    monkeypatch.setenv("ISWITCH_KEY", "0x5EED")
    assert outputs([started(script, model.address(port), 1 + port) for port in range(2)]) == [["joined", "3.0"]] * 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_workers_that_multiprocessing_starts_agree(script, model, method):
    (lines,) = outputs([started(script, model.address(), 1, world=3, method=method)])
    assert sorted(lines) == ["3.0"] * 3 + ["joined"] * 3


def test_a_run_that_follows_a_killed_one_gets_its_job_number(script, model):
    first = started(script, model.address(0), 1)
    model.until(lambda switch: switch.jobs[0].live)
    first.kill()
    first.wait()
    (lines,) = outputs([started(script, model.address(1), 2, method="spawn")])
    assert sorted(lines) == ["4.0"] * 2 + ["joined"] * 2


def test_the_processes_that_a_process_forks_share_its_key():
    key = process_key()
    if (child := os.fork()) == 0:
        os._exit(process_key() != key)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_message_says_which_workers_share_a_key():
    assert "without one, only threads of one process" in describe_key(process_key())
    assert describe_key(7) == "give all its workers the same `key=` or ISWITCH_KEY"
