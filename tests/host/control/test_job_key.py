"""The default key of a job."""

import pytest

from iswitch import AsyncWorker, Worker
from iswitch.control.job_key import default_key, job_key

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
    assert job_key(None, world=1, address=address) == job_key(None, world=2, address=address, own_transport=True) == 0
    assert job_key(None, world=2, address="127.0.0.1:27000") == job_key(None, world=2, address="localhost") == 0
    assert job_key(5, world=2, address=address) == 5
    monkeypatch.setenv("ISWITCH_KEY", "6")
    assert job_key(None, world=2, address=address) == 6


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
