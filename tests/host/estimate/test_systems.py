"""Times of systems on ideal hosts follow from the bytes on the cables."""

import itertools

import pytest

from iswitch.estimate.collectives import ring, tree
from iswitch.estimate.costs import TCP, Costs
from iswitch.estimate.server import asynchronous_server, parameter_server, sharded_server, streaming_server
from iswitch.estimate.setting import Setting
from iswitch.estimate.simulation import Processor, Signal, Simulation
from iswitch.estimate.switch import switch, switch_sum

IDEAL = Costs(
    tcp_call_us=0,
    tcp_send_byte_ns=0,
    tcp_receive_byte_ns=0,
    wake_us=0,
    sum_byte_ns=0,
    update_byte_ns=0,
    udp_call_us=0,
    udp_burst_us=0,
    udp_datagram_us=0,
    card_us=0,
    cable_us=0,
    forward_us=0,
)
SIZE = 4_000_000
RATE = 10e9
VECTOR_S = 8 * TCP.wire_bytes(SIZE) / RATE
SYSTEMS = (parameter_server, streaming_server, sharded_server, ring, tree, switch)


def ideal(**given):
    return Setting(**{"size_bytes": SIZE, "workers": 4, "rate_bps": RATE, "costs": IDEAL, **given})


@pytest.mark.parametrize("workers", [2, 4, 7])
def test_a_ring_takes_twice_its_part_of_the_vector(workers):
    expected_s = 2 * (workers - 1) / workers * VECTOR_S
    assert ring(ideal(workers=workers)).total_s == pytest.approx(expected_s, rel=0.05)


@pytest.mark.parametrize("system", [ring, tree])
def test_neighbours_that_send_more_than_a_socket_holds_do_not_wait_for_each_other(system):
    assert system(ideal(size_bytes=15 * SIZE)).total_s == pytest.approx(2 * 3 / 4 * 15 * VECTOR_S, rel=0.01)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_halving_and_doubling_takes_as_long_as_a_ring(workers):
    expected_s = 2 * (workers - 1) / workers * VECTOR_S
    assert tree(ideal(workers=workers)).total_s == pytest.approx(expected_s, rel=0.05)


@pytest.mark.parametrize(("workers", "rack"), [(8, 4), (16, 4), (32, 8), (12, 4), (24, 8)])
def test_halving_and_doubling_adds_in_the_racks_before_it_adds_between_them(workers, rack):
    """Some percent more, because the workers of a rack do not receive their parts at the same time. If their number is
    no power of two, some give their whole vector to a neighbour, and receive the whole sum."""
    in_rack_s, between_s = VECTOR_S * (1 - 1 / rack), VECTOR_S * (1 - rack / workers)
    whole_s = VECTOR_S if workers & (workers - 1) else 0
    found = tree(ideal(workers=workers, rack=rack))
    assert 1 <= found.total_s / (2 * (whole_s + in_rack_s + between_s)) < 1.11


@pytest.mark.parametrize("workers", [2, 4, 7])
def test_a_server_gives_all_workers_the_weights_and_then_takes_the_last_gradient(workers):
    """With a long time of computing, the workers that have the weights first have sent before the last one."""
    found = parameter_server(ideal(workers=workers, compute_s=0.1))
    assert found.total_s == pytest.approx(0.1 + (workers + 1) * VECTOR_S, rel=0.01)


def test_an_asynchronous_server_is_as_fast_as_its_cable():
    assert asynchronous_server(ideal()) == pytest.approx(4 * VECTOR_S, rel=0.01)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_switch_takes_the_time_of_one_vector(workers):
    frames = -(-SIZE // 1408)
    found = switch(ideal(workers=workers))
    assert found.total_s == pytest.approx(8 * (SIZE + frames * 92) / RATE, rel=0.01)


@pytest.mark.parametrize("system", SYSTEMS)
def test_more_bytes_and_slower_cables_take_longer(system):
    times = [system(ideal(size_bytes=size, costs=Costs())).total_s for size in (4_000, 40_000, 400_000, 4_000_000)]
    assert all(a < b for a, b in itertools.pairwise(times))
    rates = [system(ideal(rate_bps=rate, costs=Costs())).total_s for rate in (100e9, 10e9, 1e9)]
    assert all(a < b for a, b in itertools.pairwise(rates))


@pytest.mark.parametrize("system", SYSTEMS)
def test_phases_are_not_negative_and_racks_cost_time(system):
    flat, racks = (system(ideal(workers=6, rack=rack, costs=Costs(), compute_s=1e-3)) for rack in (None, 3))
    assert min(*flat, *racks) >= 0 and flat.compute_s == pytest.approx(1e-3)
    assert racks.total_s >= flat.total_s


def test_every_byte_of_a_connection_arrives_and_no_more():
    simulation = Simulation()
    network = ideal(workers=2).network(simulation)
    connection = network.connect(0, 1)
    simulation.start(connection.send(1_000_001))
    simulation.start(connection.receive(1_000_001))
    simulation.run()
    assert network.up[0].carried_bytes == network.down[1].carried_bytes == 1_000_001
    simulation.start(connection.receive(1))
    with pytest.raises(RuntimeError, match="wait for ever"):
        simulation.run()


def test_processes_share_cores():
    simulation = Simulation()
    processor = Processor(simulation, 2)
    for _ in range(5):
        simulation.start(processor.use(1.0))
    assert simulation.run() == 3.0 and processor.busy_s == 5.0


@pytest.mark.parametrize("until_wait, ends", [(False, [5.0, 6.0]), (True, [3.0, 6.0])])
def test_a_process_keeps_its_core_until_it_waits_or_until_each_use_has_ended(until_wait, ends):
    """Two processes on one core, one use of 1 s after another. The first one waits for the second one's end."""
    simulation, ended, found = Simulation(), Signal(), []
    processor = Processor(simulation, 1, until_wait=until_wait)

    def work(uses, wait):
        for _ in range(uses):
            yield from processor.use(1.0)
        found.append(simulation.now_s)
        if wait:
            yield ended
            yield from processor.use(1.0)
        simulation.fire(ended)

    simulation.start(work(3, True))
    simulation.start(work(3, False))
    assert simulation.run() == 7.0
    assert found == ends


def test_a_signal_that_nothing_fires_is_an_error():
    simulation = Simulation()

    def wait():
        yield Signal()

    simulation.start(wait())
    with pytest.raises(RuntimeError, match="wait for ever"):
        simulation.run()


def test_a_slow_driver_is_the_bottleneck():
    """Each datagram takes 2 us there and 2 us back."""
    costs = Costs(udp_call_us=0, udp_burst_us=0, udp_datagram_us=2, card_us=0, wake_us=0)
    found = switch_sum(1_408_000, (4,), costs, rate_bps=10e9)
    assert found.busy_s == pytest.approx(4e-3) and found.last_s == pytest.approx(4e-3, rel=0.05)


def test_the_time_of_a_call_is_on_the_path_once_for_each_sum():
    for size in (1_408, 1_408_000):
        plain, slow = (switch_sum(size, (4,), Costs(udp_call_us=call_us), rate_bps=10e9) for call_us in (0, 150))
        assert [after - before for before, after in zip(plain, slow)] == pytest.approx([150e-6] * 4)


@pytest.mark.parametrize("name", ["size_bytes", "workers", "rate_bps", "rack"])
def test_setting_wrong(name):
    with pytest.raises(ValueError, match=name):
        ideal(**{name: 0})


def test_costs_wrong():
    with pytest.raises(ValueError, match="wake_us"):
        Costs(wake_us=-1)
    with pytest.raises(ValueError, match="clock_hz"):
        Costs(clock_hz=0)
    with pytest.raises(ValueError, match="speed"):
        Costs.from_dict({"speed": 1})
