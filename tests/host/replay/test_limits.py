"""The body of a LIMIT request."""

import numpy as np
import pytest

from iswitch.config import Replay
from iswitch.replay.limits import Limits
from iswitch.wire.replay import LIMITS

CONFIG = Replay(capacity=64, samples_per_request=512)


def encoded(items_per_datagram=19, **changes):
    limits = {
        "min_size": 1,
        "samples_per_insert": 0.0,
        "max_insert_lag": None,
        "max_insert_lead": None,
        "max_times_sampled": 0,
    } | changes
    return np.frombuffer(Limits(**limits).encode(CONFIG, items_per_datagram), LIMITS)[0]


def test_limits_have_the_units_of_the_wire():
    body = encoded(min_size=5, samples_per_insert=2.5, max_insert_lag=60, max_insert_lead=70, max_times_sampled=3)
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
        ({"min_size": 65}, "min_size must be at most the table's capacity, 64"),
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
