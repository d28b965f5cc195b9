"""Workers of a training die and come back. Ranks are threads over the golden switch."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from iswitch import Worker
from iswitch.config import Config
from iswitch.torch import ElasticTraining
from iswitch.torch.plain_state import plain
from sim.bench.udp_model import UdpModel
from tests.host.test_async_op import together

SMALL = Config(ports=4, window=4, elements=16, members=8)
STEPS = 30


class Died(Exception):
    pass


def weights(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def train(model_of_switch, rank, *, die_at=None, seen=None, hold=None):
    """Train as a rank, with its own gradients; return the weights, the optimizer's state and the steps taken."""
    torch.manual_seed(rank)  # other weights at each rank before the first synchronization
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    taken = []
    with Worker(
        model_of_switch.address(rank), rank=rank, world=3, key=5, elastic=True, evict_s=0.5, timeout_s=30
    ) as worker:
        training = ElasticTraining(worker, model=model, optimizer=optimizer, scheduler=scheduler)

        def step(number):
            if number == die_at:
                worker._keepalive.stop()  # the process is gone: nothing answers the switch
                worker._transport.close()
                raise Died
            if seen is not None:
                seen(number)
            optimizer.zero_grad()
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1000 * rank + number))
            model(x).square().mean().backward()
            worker.allreduce([parameter.grad for parameter in model.parameters()], "mean")
            optimizer.step()
            scheduler.step()
            taken.append(number)

        training.run(step, steps=STEPS)
        return weights(model), optimizer.state_dict()["state"][0]["step"].item(), taken, scheduler.get_last_lr()


@pytest.mark.filterwarnings("ignore::iswitch.MissingWarning")
def test_a_worker_that_dies_and_comes_back_ends_with_the_weights_of_the_others():
    back = threading.Event()

    def seen(number):
        if number == STEPS - 10:  # the others wait there until the worker has come back
            assert back.wait(30)

    with UdpModel(SMALL) as model, ThreadPoolExecutor(4) as pool:
        others = [pool.submit(train, model, rank, seen=seen) for rank in (0, 1)]
        with pytest.raises(Died):
            train(model, 2, die_at=5)

        def again():
            return train(model, 2, seen=lambda number: back.set())

        returned = pool.submit(again)
        threading.Timer(1.0, back.set).start()
        results = [future.result(timeout=60) for future in (*others, returned)]
    for parameters, adam_steps, taken, rate in results:
        assert all(map(torch.equal, parameters, results[0][0]))
        assert adam_steps == STEPS and rate == results[0][3]
        assert taken == sorted(set(taken)) and taken[-1] == STEPS - 1  # no step twice, and the last one together
    assert results[0][2] == list(range(STEPS)) and results[2][2][0] >= 5


class Settings:
    """A part whose state is what it is given."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state_dict):
        self.state = state_dict


def test_numpy_scalars_arrive_as_plain_numbers():
    """As a learning rate that numpy.logspace gives."""
    rates = np.logspace(-4, -2, 3)

    def body(worker):
        weights = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([weights], lr=rates[1 + worker.rank])
        settings = Settings({"rates": [np.float32(0.5), (rates[worker.rank],)], np.int64(3): {"on": np.bool_(True)}})
        training = ElasticTraining(worker, optimizer=optimizer, settings=settings)
        training.step = 5 - worker.rank
        training.synchronize()
        return optimizer.param_groups[0]["lr"], settings.state

    with UdpModel(SMALL) as model:
        for rate, state in together(model, 2, body, elastic=True):
            assert rate == rates[1]
            assert state == {"rates": [0.5, (rates[0],)], 3: {"on": True}}


def test_a_state_without_numpy_scalars_stays_the_same_object_and_another_keeps_its_attributes():
    state = torch.nn.BatchNorm1d(3).state_dict()
    assert plain(state) is state
    changed = plain(OrderedDict(state, rate=np.float32(0.5)))
    assert type(changed) is OrderedDict and changed["rate"] == 0.5 and type(changed["rate"]) is float
    state["rate"] = np.float32(0.5)
    assert plain(state)._metadata == state._metadata and type(state["rate"]) is np.float32


@pytest.mark.parametrize("value", [np.ones(3), Died(), np.datetime64("2026-01-01")])
def test_a_state_that_the_others_could_not_load_is_refused_before_anything_is_sent(value):
    with UdpModel(SMALL) as model, Worker(model.address(), world=1, elastic=True) as worker:
        training = ElasticTraining(worker, settings=Settings({"momentum": 0.5, "value": [value]}))
        before = model.switch.counters()
        with pytest.raises(TypeError, match=r"settings.*tensors and plain values"):
            training.synchronize()
        assert model.switch.counters() == before


def test_parts_are_needed():
    with pytest.raises(ValueError, match="pass model=model, optimizer=optimizer"):
        ElasticTraining(None)
