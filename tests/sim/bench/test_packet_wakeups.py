"""Each form of a packet socket receives every answer."""

import pytest

from sim.bench.namespaces import connect, obstacle
from sim.bench.packet_wakeups import FORMS, round_trips


@pytest.mark.parametrize("form", FORMS)
def test_every_round_trip_ends(form):
    if why := obstacle():
        pytest.skip(why)
    with connect() as hosts:
        times = round_trips(form, hosts, 5)
    assert len(times) == 5 and (times > 0).all()
