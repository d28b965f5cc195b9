"""The picture of sums over loss rates: all clients, each sum exact to the bit."""

import numpy as np
import pytest

from sim.bench import retransmission
from sim.bench.loss_curve import LABELS, draw, mean_times_s


def test_all_clients_are_timed_and_drawn(tmp_path, monkeypatch):
    times_s = mean_times_s("1.4 KB", [0.0, 0.2], repetitions=3)
    assert times_s.keys() == LABELS.keys()
    assert all(clean < lossy for clean, lossy in times_s.values())
    draw({"1.4 KB": times_s}, [0.0, 0.2], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_sum_with_one_wrong_bit_is_an_error(monkeypatch):
    exact = retransmission._exact_sum

    def wrong(terms):
        total = exact(terms)
        total.view(np.uint32)[-1] ^= 1
        return total

    monkeypatch.setattr(retransmission, "_exact_sum", wrong)
    with pytest.raises(RuntimeError, match="sum 0 of rank"):
        mean_times_s("1.4 KB", [0.0], repetitions=1)
