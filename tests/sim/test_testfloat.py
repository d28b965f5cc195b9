"""Additions of Berkeley TestFloat through the whole compiled switch and through the golden model."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from iswitch.golden.numeric import fp32
from iswitch.wire import Format, Mode, Type
from sim.bench.cosimulation import Pair
from sim.bench.designs import TWO_PORTS
from sim.frames.client import Client, parse

VECTORS = Path(__file__).parents[1] / "vectors" / "testfloat" / "f32_add.xz"
CASES = 46_464


def cases():
    """Return operands and sums, uint32, shape (3, cases)."""
    return np.frombuffer(lzma.decompress(VECTORS.read_bytes()), "<u4").reshape(3, CASES)


def is_nan(patterns):
    return (patterns & 0x7FFFFFFF) > 0x7F800000


def differing(got, wanted):
    """Return the places at which sums differ. A NaN has no pattern that IEEE 754 prescribes."""
    return np.flatnonzero((got != wanted) & ~(is_nan(got) & is_nan(wanted)))


def summed(one, two):
    """Return what a switch makes of the contributions of two workers."""
    pair = Pair(TWO_PORTS)
    clients = [Client.numbered(k) for k in range(2)]
    for turn in range(3):
        for client in clients:
            settings = {} if turn else {"world": 2, "elements": 64, "format": Format.FP32, "mode": Mode.PROPAGATE}
            for answer in pair.exchange(client.port, client.join(**settings)):
                client.take(answer)
    found = []
    for seq, at in enumerate(range(0, one.size, 64)):
        for client, operands in zip(clients, (one, two), strict=True):
            numbers = operands[at : at + 64]
            sent = pair.exchange(client.port, client.contribution(client.first_seq + seq, numbers, format=Format.FP32))
        results = [parse(frame) for frame in sent]
        assert [result.type for result in results] == [Type.RESULT] * 2
        found.append(results[0].numbers)
    pair.close()
    return np.concatenate(found)


def test_every_case_has_the_sum_of_testfloat_in_the_compiled_switch():
    one, two, wanted = cases()
    assert differing(summed(one, two), wanted).size == 0


def test_every_case_has_the_sum_of_testfloat_in_the_golden_model():
    one, two, wanted = cases()
    assert differing(fp32.add(one, two), wanted).size == 0


def truncated(one, two):
    """Return sums rounded towards zero; those beyond the range of the exact sum in 53 bits stay as they are."""
    exact = one.view("<f4").astype(np.float64) + two.view("<f4")
    near = exact.astype("<f4")
    away = np.isfinite(near) & (np.abs(near.astype(np.float64)) > np.abs(exact))
    return np.where(away, near.view("<u4") - 1, near.view("<u4"))


def flushed(one, two):
    sums = (one.view("<f4") + two.view("<f4")).view("<u4")
    return np.where(sums & 0x7F800000, sums, sums & 0x80000000)


def unsigned_zero(one, two):
    sums = (one.view("<f4") + two.view("<f4")).view("<u4")
    return np.where(sums == 0x80000000, 0, sums)


@pytest.mark.mutant
@pytest.mark.parametrize("adder", [truncated, flushed, unsigned_zero])
def test_an_adder_with_an_error_has_other_sums(adder):
    one, two, wanted = cases()
    with np.errstate(all="ignore"):
        assert differing(adder(one, two), wanted).size
