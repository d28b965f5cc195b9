"""A program that catches KeyboardInterrupt, or the exception of an alarm, in a call of the replay client, and goes
on."""

from collections import Counter

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, ReplayClient, SessionLostError
from sim.bench.interrupts import interrupted
from sim.bench.udp_model import UdpModel

REPLAY = Replay(capacity=4096, sessions=32, cached_answers=4, log_bytes=1 << 20)
STRIDE = 47
"""Every so many places are tried, which is prime to what repeats in a call."""
SPECS = {
    "in the record": {"x": Field((), np.int32)},
    "in the log": {"x": Field((), np.int32), "y": Field((40,), np.int32), "z": Field((2, 70), np.int32, stacked=2)},
}


def transitions(spec, first, count=5):
    numbers = np.arange(first, first + count)
    return {
        name: np.broadcast_to(numbers.reshape(-1, *[1] * len(field.axes)), (count, *field.axes))
        for name, field in spec.items()
    }


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops it in a finalizer
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_an_exception_at_any_place_leaves_each_item_in_the_table_once_or_a_clear_error(spec):
    with UdpModel(Config(ports=2, members=4, replay=REPLAY)) as model, ReplayClient(model.address(), spec) as client:
        check(client, spec)


def check(client, spec):
    acknowledged, first, place, reached, reasons = {}, 0, 0, True, []

    def extend():
        nonlocal first
        first += 5
        return client.extend(transitions(spec, first - 5))

    def call():
        client.add({name: column[0] for name, column in transitions(spec, first + 10**6, 1).items()})
        extend()
        batch = client.sample(4)
        client.update_priority(batch.items, np.ones(4))
        client.flush()

    while reached:
        place += STRIDE
        reached = interrupted(call, place)
        try:
            began = first
            items = extend().items
        except SessionLostError as error:
            reasons.append(str(error))
            client.reopen()
        else:
            acknowledged |= dict(zip(items.tolist(), range(began, first)))
    client.flush()
    reader, stored = client.fifo(1), {}
    while available := reader.available():
        batch = reader.read(min(available, 64))
        for name, column in batch.data.items():
            assert (column.reshape(len(batch), -1) == batch.data["x"][:, None]).all(), name
        stored |= dict(zip(batch.items.tolist(), batch.data["x"].tolist()))
    assert max(Counter(stored.values()).values()) == 1
    assert acknowledged.items() <= stored.items() or "z" in spec
    assert all(stored.get(item, number) == number for item, number in acknowledged.items())
    assert reasons and all("such as KeyboardInterrupt" in reason for reason in reasons)
    fifth = place // STRIDE // 5  # of the tries, whose number depends on how often the client had to wait
    assert place > 300 and len(reasons) >= fifth and len(acknowledged) >= 5 * fifth
