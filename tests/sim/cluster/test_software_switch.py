"""Times of sums at a software switch follow from the work of its process and of the workers."""

import pytest

from iswitch.estimate.costs import Costs
from iswitch.estimate.setting import Setting
from sim.cluster.software_switch import ServedSwitch, software_switch

ELEMENTS, SEGMENTS, WINDOW = 2208, 700, 64
NO_WORK = {name: 0 for name in ("udp_call_us", "udp_burst_us", "udp_datagram_us", "wake_us")}


def sum_s(workers, *, costs, burst_us=0.0, datagram_us=0.0, cores=64, segments=SEGMENTS):
    setting = Setting(
        size_bytes=4 * ELEMENTS * segments, workers=workers, rate_bps=None, cores=cores, costs=Costs(**NO_WORK | costs)
    )
    return software_switch(setting, ServedSwitch(burst_us, datagram_us, ELEMENTS, WINDOW)).total_s


@pytest.mark.parametrize("workers", [2, 4])
def test_the_one_process_of_the_switch_receives_and_sends_all_datagrams(workers):
    assert sum_s(workers, costs={}, datagram_us=1) == pytest.approx(2 * workers * SEGMENTS * 1e-6)


@pytest.mark.parametrize("workers, cores, calls", [(2, 64, 1), (2, 2, 1), (4, 2, 2), (4, 1, 4)])
def test_calls_of_workers_that_share_cores_take_turns(workers, cores, calls):
    found_s = sum_s(workers, costs={"udp_call_us": 100}, cores=cores, segments=1)
    assert found_s == pytest.approx(calls * 100e-6, rel=0.3)


def test_a_worker_sends_and_receives_each_segment_once():
    """Each takes 2 us, and the switch nothing. A burst has 7 segments at most, and 100 segments fill 15 bursts."""
    assert sum_s(2, costs={"udp_datagram_us": 2}) == pytest.approx(2 * 2e-6 * SEGMENTS, rel=0.05)
    assert sum_s(2, costs={"udp_burst_us": 2}, segments=WINDOW) == pytest.approx(2 * 10 * 2e-6, rel=0.3)


def test_with_one_core_all_work_takes_its_turn():
    found_s = sum_s(3, costs={"udp_call_us": 30, "udp_datagram_us": 2}, datagram_us=1, cores=1)
    assert found_s == pytest.approx(3 * (30 + 2 * SEGMENTS * (2 + 1)) * 1e-6, rel=0.02)


@pytest.mark.parametrize("workers", [2, 4])
def test_more_cores_take_no_more_time(workers):
    costs = {"udp_call_us": 120, "udp_burst_us": 6, "udp_datagram_us": 1.5}
    times = [sum_s(workers, costs=costs, burst_us=5, datagram_us=1.5, cores=cores) for cores in (1, 2, 64)]
    assert times == sorted(times, reverse=True) and times[0] > 1.5 * times[2]
