"""A training loop that knows nothing of the switch trains with the mean gradients of all workers."""

import copy

import pytest
import torch

import iswitch.metrics
from iswitch import TaintedError
from iswitch.config import Config
from iswitch.torch import distribute
from sim.bench.udp_model import UdpModel
from tests.host.test_async_op import together

SMALL = Config(ports=4, window=4, elements=16, members=8)
WORLD, STEPS = 3, 4


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))


def batch(rank, step):
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * rank + step))


def library_loop(model, optimizer, rank):
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam], ids=["SGD", "Adam"])
def test_all_workers_end_with_the_weights_of_one_that_has_the_mean_gradients(make):
    networks = [network(rank) for rank in range(WORLD)]  # other weights at each rank at first

    def body(worker):
        model = networks[worker.rank]
        optimizer = make(model.parameters(), lr=0.05)
        handle = distribute(worker, model, optimizer)
        library_loop(model, optimizer, worker.rank)
        handle.remove()
        result = [parameter.detach().clone() for parameter in model.parameters()]
        library_loop(model, optimizer, worker.rank)  # no collective: the ranks may go apart
        return result

    with UdpModel(SMALL) as switch:
        results = together(switch, WORLD, body)
    model = network(0)  # as rank 0 at first
    replicas = [copy.deepcopy(model) for _ in range(WORLD)]
    optimizer = make(model.parameters(), lr=0.05)
    for step in range(STEPS):
        for rank, replica in enumerate(replicas):
            replica.load_state_dict({**replica.state_dict(), **dict(model.named_parameters())})
            replica.zero_grad()
            replica(batch(rank, step)).square().mean().backward()
        for parameter, *others in zip(model.parameters(), *(r.parameters() for r in replicas), strict=True):
            parameter.grad = torch.stack([other.grad for other in others]).mean(dim=0)
        optimizer.step()
    for parameters in results:
        assert all(map(torch.equal, parameters, results[0]))
        for parameter, oracle in zip(parameters, model.parameters(), strict=True):
            torch.testing.assert_close(parameter, oracle.detach(), rtol=1e-4, atol=1e-6)


def test_a_step_whose_sum_fails_changes_nothing_and_a_parameter_without_a_gradient_is_left_out():
    networks = [network(1), network(1)]

    def body(worker):
        model = networks[worker.rank]
        unused = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([*model.parameters(), unused], lr=0.05)
        distribute(worker, model, optimizer)
        before = copy.deepcopy(model.state_dict())
        data = batch(worker.rank, 0)
        if worker.rank == 1:
            data[0, 0] = float("nan")
        with pytest.raises(TaintedError):
            model.eval()(data).square().mean().backward()
            optimizer.step()
        assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
        assert unused.tolist() == [1] * 3

    with UdpModel(SMALL) as switch:
        together(switch, 2, body)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam], ids=["SGD", "Adam"])
def test_a_parameter_that_took_part_at_some_workers_only_gets_the_mean_with_zeros_of_the_others(make):
    """Two heads of one size: worker 0 trains the first one, worker 1 the second one, nobody the third one."""
    heads = [torch.nn.ParameterList([torch.ones(6), torch.ones(6), torch.ones(6)]) for _ in range(2)]
    gradients = torch.tensor([[1.0, 2, 3, 4, 5, 6], [60, 50, 40, 30, 20, 10]])

    def body(worker):
        own = heads[worker.rank]
        optimizer = make(own.parameters(), lr=0.5)
        distribute(worker, own, optimizer)
        (own[worker.rank] * gradients[worker.rank]).sum().backward()
        optimizer.step()
        return [parameter.grad for parameter in own], [parameter.detach() for parameter in own]

    with UdpModel(SMALL) as switch:
        (first, weights), (second, others) = together(switch, 2, body)
    oracle = torch.nn.ParameterList([torch.ones(6), torch.ones(6), torch.ones(6)])
    oracle[0].grad, oracle[1].grad = gradients[0] / 2, gradients[1] / 2
    make(oracle.parameters(), lr=0.5).step()
    for grads in (first, second):
        assert torch.equal(grads[0], gradients[0] / 2) and torch.equal(grads[1], gradients[1] / 2) and grads[2] is None
    for parameters in (weights, others):
        for parameter, expected in zip(parameters, oracle, strict=True):
            torch.testing.assert_close(parameter, expected.detach())


def test_a_frozen_parameter_costs_no_bytes_and_keeps_its_weights():
    def body(worker):
        frozen, trained = torch.nn.Parameter(torch.ones(1000), requires_grad=False), torch.nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([frozen, trained], lr=0.5)
        distribute(worker, torch.nn.ParameterList([frozen, trained]), optimizer)
        meter = iswitch.metrics.watch(worker)
        trained.sum().backward()
        optimizer.step()
        return frozen.sum().item(), trained.tolist(), meter.counts().bytes

    with UdpModel(SMALL) as switch:
        for frozen, trained, sent in together(switch, 2, body):
            assert (frozen, trained) == (1000, [0.5] * 4)
            assert sent == 4 * (4 + 1)  # the gradient, and whether there is one


@pytest.mark.parametrize("step", [lambda o, closure: o.step(closure), lambda o, closure: o.step(closure=closure)])
def test_a_step_with_a_closure_is_refused_before_it_changes_weights_or_sends_anything(step):
    """The closure computes the gradients after the hook, so each worker would step with its own."""

    def body(worker):
        weights = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weights], lr=0.5)
        handle = distribute(worker, torch.nn.ParameterList([weights]), optimizer)
        segments, called = worker.segments_completed, []
        with pytest.raises(TypeError, match=r"without a closure"):
            step(optimizer, lambda: called.append(1))
        assert weights.tolist() == [1] * 3 and not called and worker.segments_completed == segments
        (weights * (worker.rank + 1)).sum().backward()
        optimizer.step(None)  # as a scheduler or a library may pass it
        handle.remove()
        optimizer.step(lambda: called.append(1))
        return called, weights.tolist()

    with UdpModel(SMALL) as switch:
        assert together(switch, 2, body) == [([1], [1 - 0.75 * 2] * 3)] * 2


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_model_of_two_byte_elements_trains_in_a_job_of_their_format(name):
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[name]

    def body(worker):
        weights = torch.nn.Parameter(torch.full((3,), worker.rank + 1.0, dtype=dtype))
        optimizer = torch.optim.SGD([weights], lr=0.5)
        distribute(worker, torch.nn.ParameterList([weights]), optimizer)
        (weights * (worker.rank + 1)).sum().backward()
        optimizer.step()
        return weights.tolist()

    with UdpModel(Config(ports=4, window=4, elements=16, members=8, half_width=True)) as switch:
        assert together(switch, 2, body, format=name) == [[1 - 0.75] * 3] * 2
