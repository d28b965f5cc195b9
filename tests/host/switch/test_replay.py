"""The replay service of `iswitch switch --replay`."""

import re
import subprocess
import sys

import numpy as np
import pytest

from iswitch.config import Replay
from iswitch.replay import Field, NoReplayServiceError, ReplayClient
from iswitch.switch.replay import USUAL, parse_replay

SPEC = {"x": Field((), np.int64)}


def test_the_option_names_sizes():
    assert parse_replay(None) is None and parse_replay("default") == USUAL
    assert parse_replay("capacity=64,sessions=4") == Replay(**{**vars(USUAL), "capacity": 64, "sessions": 4})


@pytest.mark.parametrize("given", ["size=3", "capacity=", "capacity=-1", "capacity", ""])
def test_the_option_wrong(given):
    with pytest.raises(ValueError, match=r"--replay .*: not one of tables, capacity"):
        parse_replay(given)


@pytest.mark.parametrize("replay", [["--replay", "capacity=64,log_bytes=4096"], []])
def test_the_command_serves_replay_if_it_is_asked_to(replay):
    command = [sys.executable, "-m", "iswitch.tools.cli", "switch", "--udp-base", "0", "--ports", "1", *replay]
    switch = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = re.search(r"listens at (\S+);", switch.stderr.readline())[1]
        if not replay:
            with pytest.raises(NoReplayServiceError, match="iswitch switch --replay default"):
                ReplayClient(address, SPEC)
            return
        with ReplayClient(address, SPEC) as client:
            client.extend({"x": np.arange(100)})
            assert client.count_items() == 64
            assert set(client.sample(64).data["x"].tolist()) <= set(range(36, 100))
            assert next(client.fifo(8)).data["x"].tolist() == list(range(36, 44))
    finally:
        switch.terminate()
        switch.wait()
        switch.stderr.close()


def test_a_wrong_size_is_a_sentence():
    command = [sys.executable, "-m", "iswitch.tools.cli", "switch", "--udp-base", "0", "--replay", "capacity=65"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "Replay capacity must be a power of two from 16 to 2^20, not 65" in done.stderr
