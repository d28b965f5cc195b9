"""The body of a LIMIT request."""

import random

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay import Field, NotServedError, ReplayClient
from iswitch.replay.limits import Limits
from iswitch.wire.replay import LIMITS
from sim.bench.replay_network import Network

CONFIG = Replay(capacity=64, samples_per_request=512)


def encoded(items_per_datagram=19, **changes):
    limits = {
        "min_size_to_sample": 1,
        "samples_per_insert": 0.0,
        "max_insert_lag": None,
        "max_insert_lead": None,
        "max_times_sampled": 0,
    } | changes
    return np.frombuffer(Limits(**limits).encode(CONFIG, items_per_datagram), LIMITS)[0]


def test_limits_have_the_units_of_the_wire():
    body = encoded(
        min_size_to_sample=5, samples_per_insert=2.5, max_insert_lag=60, max_insert_lead=70, max_times_sampled=3
    )
    assert body.tolist() == (5, 5 << 15, 60, 70, 3, 0)


@pytest.mark.parametrize(("ratio", "margin"), [(0.0, 1024), (1.0, 1024), (100.0, 3800)])
def test_the_default_margin_is_two_of_the_largest_requests(ratio, margin):
    body = encoded(samples_per_insert=ratio)
    assert (body["behind"], body["ahead"]) == (margin, margin)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples_per_insert": 65536}, "samples_per_insert must be 0 to 65536"),
        ({"samples_per_insert": 1e-9}, "samples_per_insert must be 0, or at least 1/65536"),
        ({"min_size_to_sample": 65}, "min_size_to_sample must be at most the table's capacity, 64"),
        ({"max_insert_lead": 2**32}, "max_insert_lead must be 0 to"),
        (
            {"samples_per_insert": 1.0, "max_insert_lag": 9, "max_insert_lead": 10},
            r"max_insert_lag \+ max_insert_lead must be at least 20",
        ),
    ],
)
def test_limits_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        encoded(**changes)


class SampleToInsertRatio:
    """Reverb's rate limiter of this name, by its definition: inserts times the ratio, less samples, stay within
    `error_buffer` of the value that they have at `min_size_to_sample`. `deleted` items were removed."""

    def __init__(self, samples_per_insert, min_size_to_sample, error_buffer):
        self.ratio, self.size = samples_per_insert, min_size_to_sample
        self.least, self.most = (samples_per_insert * min_size_to_sample + e * error_buffer for e in (-1, 1))
        self.inserts = self.samples = 0

    def can_insert(self, deleted):
        below = self.inserts - deleted + 1 <= self.size
        return below or (self.inserts + 1) * self.ratio - self.samples <= self.most

    def can_sample(self, deleted, count):
        return self.inserts - deleted >= self.size and self.inserts * self.ratio - self.samples - count >= self.least


def compare_with_reverb(ratio, size, error_buffer, lag, lead, seed=1):
    reverb = SampleToInsertRatio(ratio, size, error_buffer)
    net = Network(Config(ports=2, members=2, replay=Replay(capacity=16, sessions=2, log_bytes=4096)))
    chance, answers = random.Random(seed), set()
    with ReplayClient(net.transport(), {"x": Field((), np.int64)}, wait_s=0.002) as client:
        client.set_limits(samples_per_insert=ratio, min_size_to_sample=size, max_insert_lag=lag, max_insert_lead=lead)
        for k in range(300):
            deleted = max(0, reverb.inserts - 16)
            if inserts := chance.random() < (0.95 if k // 40 % 2 == 0 else 0.1):
                expected, count = reverb.can_insert(deleted), 1
            else:
                count = chance.choice([1, 1, 2, 3])
                expected = reverb.can_sample(deleted, count)
            try:
                client.add(x=k).items if inserts else client.sample(count)
                allowed = True
                reverb.inserts, reverb.samples = reverb.inserts + inserts, reverb.samples + (not inserts) * count
            except NotServedError:
                allowed = False
            answers.add((inserts, allowed))
            assert allowed == expected, f"operation {k}"
    return answers


@pytest.mark.parametrize(("ratio", "size", "error_buffer"), [(1.0, 1, 25), (2.0, 5, 24), (0.5, 8, 20), (4.0, 16, 90)])
def test_one_by_one_what_is_allowed_is_what_reverb_allows(ratio, size, error_buffer):
    answers = compare_with_reverb(ratio, size, error_buffer, error_buffer, error_buffer)
    assert len(answers) >= 3  # both were allowed, and one of them refused


@pytest.mark.parametrize(("lag", "lead"), [(23, 24), (24, 23), (25, 24), (24, 25)])
def test_the_comparison_notices_a_buffer_that_is_off_by_one(lag, lead):
    with pytest.raises(AssertionError, match="operation"):
        for seed in range(5):
            compare_with_reverb(1.0, 5, 24, lag, lead, seed)
