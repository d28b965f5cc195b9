"""`iswitch.init`: a worker from the variables that a launcher sets."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import iswitch
from iswitch.config import Config
from iswitch.environment import read_number
from sim.bench.udp_model import UdpModel


def test_init_joins_by_the_environment(monkeypatch):
    with UdpModel(Config(ports=4, window=4, elements=16, members=8)) as model:
        variables = {"WORLD_SIZE": "2", "RANK": "1", "ISWITCH_JOB": "1", "ISWITCH_KEY": "0x7"}
        variables["ISWITCH_ADDRESS"] = model.address(1)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)

        def other():
            with iswitch.init(model.address(0), rank=0, job=1, key=7, world=2) as worker:  # arguments win
                array = np.full(3, 5, np.float32)
                worker.allreduce(array)
                return worker.rank, array.tolist()

        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(other)
            with iswitch.init(timeout_s=30.0) as worker:
                array = np.ones(3, np.float32)
                worker.allreduce(array)
                assert (worker.rank, worker.world, array.tolist()) == (1, 2, [6] * 3)
            assert future.result(timeout=30) == (0, [6] * 3)


@pytest.mark.parametrize("variable", ["RANK", "WORLD_SIZE"])
def test_a_missing_variable_is_named_with_the_launcher_that_sets_it(monkeypatch, variable):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv(variable)
    with pytest.raises(ValueError, match=rf"{variable} is not set: start the script with `torchrun"):
        iswitch.init()


@pytest.mark.parametrize(("text", "number"), [("3", 3), (" 0x10 ", 16), ("three", None), ("1.0", None), ("", None)])
def test_a_variable_is_a_whole_number(text, number):
    if number is None:
        with pytest.raises(ValueError, match="X"):
            read_number("X", None, parameter="x", environment={"X": text})
    else:
        assert read_number("X", None, parameter="x", environment={"X": text}) == number
    assert read_number("X", 5, parameter="x", environment={"X": text}) == 5
