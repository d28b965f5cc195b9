"""The default key of a job."""

import os
import subprocess
import sys

import pytest

from iswitch import AsyncWorker, RefusedError, Worker
from iswitch.config import Config
from iswitch.control import job_key as module
from iswitch.control.client import Control
from iswitch.control.job_key import default_key, describe_key, job_key, key_option, machine_texts, program_key
from iswitch.driver.udp import UdpTransport
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
    assert job_key(None, world=1, address=address) == program_key()
    assert job_key(None, world=2, address=address, own_transport=True) == program_key()
    assert job_key(None, world=2, address="127.0.0.1:27000") == job_key(None, world=2, address="localhost")
    assert job_key(None, world=2, address="localhost") == program_key()
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
import sys
import numpy as np
from iswitch import IswitchError, Worker

address, world, value = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
try:
    with Worker(address, world=world, join_timeout_s=60) as worker:
        print("joined", flush=True)
        gradient = np.full(4, value, np.float32)
        worker.allreduce(gradient)
        print(gradient[0], flush=True)
except IswitchError as error:
    print(type(error).__name__, error, flush=True)
"""


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Two scripts with equal text, in an environment that names no key."""
    for name in ("ISWITCH_KEY", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(PROGRAM)
    return tmp_path


def started(command, address, value, world=2):
    arguments = [sys.executable, *command, address, str(world), str(value)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def outputs(processes):
    return [process.communicate(timeout=60)[0].strip().splitlines() for process in processes]


def test_two_programs_with_defaults_never_share_a_job(scripts):
    """A worker of each, at an emulator on this machine; the other workers are slower to start."""
    one, two = str(scripts / "one.py"), str(scripts / "two.py")
    with UdpModel(Config(ports=4, window=4, elements=16, members=8)) as model:
        first = started([one], model.address(0), 1)
        model.until(lambda switch: switch.jobs[0].live)
        (other,) = outputs([started([two], model.address(1), 1000)])
        assert other[0].startswith("RefusedError") and "the job belongs to another program" in other[0]
        assert "use another job number, for example job=1" in other[0]
        assert f"`key=` or ISWITCH_KEY: this worker's key follows from its user and script, {two}." in other[0]
        assert "`iswitch end-job --job 0 --program SCRIPT --switch" in other[0]
        second = started([one], model.address(2), 2)  # the first one still waits for it
        assert outputs([first, second]) == [["joined", "3.0"]] * 2


def test_workers_of_one_script_agree_however_they_are_started(scripts, monkeypatch):
    (scripts / "link.py").symlink_to(scripts / "one.py")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(scripts), *sys.path]))
    with UdpModel(Config(ports=4, window=4, elements=16, members=8)) as model:
        ways = [[str(scripts / "one.py")], ["-m", "one"], [str(scripts / "link.py")]]
        workers = [started(way, model.address(port), 1, world=3) for port, way in enumerate(ways)]
        assert outputs(workers) == [["joined", "3.0"]] * 3


def test_a_process_without_a_script_has_a_key_of_its_own(scripts):
    with UdpModel(Config(ports=4, window=4, elements=16, members=8)) as model:
        first = started(["-c", PROGRAM], model.address(0), 1)
        model.until(lambda switch: switch.jobs[0].live)
        (other,) = outputs([started(["-c", PROGRAM], model.address(1), 1)])
        assert "the job belongs to another program" in other[0] and "this process has a key of its own" in other[0]
        first.kill()


def test_the_processes_that_such_a_process_forks_share_its_key(monkeypatch):
    monkeypatch.setattr(module, "_main_script", lambda: None)
    key = program_key()
    if (child := os.fork()) == 0:
        os._exit(program_key() != key)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_user_and_another_script_have_another_key(monkeypatch, tmp_path):
    keys = {program_key(tmp_path / "train.py"), program_key(tmp_path / "eval.py")}
    monkeypatch.setattr(module, "_user", lambda: "another")
    keys.add(program_key(tmp_path / "train.py"))
    assert len(keys) == 3 and 0 not in keys
    assert program_key(tmp_path / "x" / ".." / "train.py") == program_key(tmp_path / "train.py")


def test_a_message_names_how_to_get_the_key(monkeypatch):
    monkeypatch.setattr(module, "_main_script", lambda: "/data/you/my train.py")
    assert key_option(program_key()) == "--program '/data/you/my train.py'" and key_option(7) == "--key 7"
    assert "follows from its user and script, /data/you/my train.py" in describe_key(program_key())
    assert describe_key(7) == "All workers of a program need the same key"
    monkeypatch.setattr(module, "_main_script", lambda: None)
    assert key_option(program_key()) == f"--key {program_key()}"


def test_the_command_line_ends_a_job_by_the_script_of_its_workers(scripts):
    with UdpModel(Config(ports=4, window=4, elements=16, members=8)) as model:
        first = started([str(scripts / "one.py")], model.address(0), 1)
        model.until(lambda switch: switch.jobs[0].live)
        transport = UdpTransport(model.address(1))
        control = Control(transport)
        with pytest.raises(RefusedError, match="the key is not the job's"):
            control.end_job(0, program_key(scripts / "two.py"))
        control.end_job(0, program_key(scripts / "one.py"))
        transport.close()
        first.kill()
