"""The filter of received datagrams, and the results that pass it."""

import dataclasses
import math

import numpy as np
import pytest

from iswitch.driver.result_frames import ResultFrames, Results, datagrams
from iswitch.driver.segment_ledger import SegmentLedger
from iswitch.wire import HEADER, RESULT_HEADER, TAIL_BYTES, Type, version_type
from sim.bench.scripted_transport import MEMBER

BODY_BYTES = 8


def frames(seqs, **fields):
    """Results of these seqs, as the rows of a burst. Each body repeats the lowest byte of its seq."""
    records = np.zeros((len(seqs), HEADER.itemsize + BODY_BYTES + TAIL_BYTES), np.uint8)
    headers = np.ndarray(len(seqs), RESULT_HEADER, records, 0, records.shape[1:])
    headers["seq"] = np.array(seqs, np.uint64) % 2**32
    records[:, HEADER.itemsize :] = headers["seq"][:, None] % 256
    values = {"version_type": version_type(Type.RESULT), "job": 1, "epoch": 7, "token": MEMBER.job_token} | fields
    for name, value in values.items():
        headers[name] = value
    return records


@pytest.fixture(params=[100, 2**32 - 3], ids=["plain", "over the end of seq"])
def filter(request):
    found = ResultFrames()
    found.begin(dataclasses.replace(MEMBER, first_seq=request.param), SegmentLedger(100))
    found.first_seq = request.param
    return found


def parse(filter, positions, limit=1000, **fields):
    return filter.parse(frames([filter.first_seq + position for position in positions], **fields), limit)


@pytest.mark.parametrize("count", [1, 2, 64, 80])
def test_neighbours_are_one_run_without_a_copy(filter, count):
    records = frames(range(filter.first_seq, filter.first_seq + count))
    [results], others = filter.parse(records, 1000)
    assert others is None and results.positions == slice(0, count) and results.records is records


@pytest.mark.parametrize("positions", [[0, 2], [1, 0], [3, 4, 6, 5], [0, 1, 2, 2]])
def test_scattered_results_keep_their_positions(filter, positions):
    [results], _ = parse(filter, positions)
    assert results.positions.tolist() == positions
    assert results.bodies[:, 0].tolist() == [(filter.first_seq + k) % 2**32 % 256 for k in positions]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("token", [MEMBER.job_token] * 3 + [1]),
        ("members", [3, 3, 3, 1]),
        ("tainted", [0, 1, 0, 0]),
        ("member", range(4)),
    ],
)
def test_a_run_differs_in_seq_alone(filter, name, values):
    batches, _ = parse(filter, range(4), **{name: list(values)})
    assert all(isinstance(results.positions, np.ndarray) for results in batches)
    assert sum(len(results.records) for results in batches) == 4 - (name == "token")
    assert filter.forged == (name == "token")


def test_results_with_other_flags_are_apart(filter):
    batches, _ = parse(filter, range(4), format_flags=[1, 17, 1, 17])
    assert [(results.format_flags, results.positions.tolist()) for results in batches] == [(1, [0, 2]), (17, [1, 3])]


def test_results_from_the_limit_on_are_ignored_and_noted(filter):
    [results], _ = parse(filter, range(4), limit=3)
    assert results.positions.tolist() == [0, 1, 2] and filter.dropped_from == 3


def test_the_lowest_limit_at_which_a_new_result_was_ignored_is_known(filter):
    parse(filter, range(4), limit=4)
    assert filter.dropped_from == math.inf
    for limit, lowest in ((3, 3), (1, 1), (2, 1)):
        parse(filter, range(4), limit=limit)
        assert filter.dropped_from == lowest


def test_frames_of_another_epoch_are_others(filter):
    [results], others = parse(filter, range(4), epoch=[7, 6, 7, 7])
    assert results.positions.tolist() == [0, 2, 3] and others["epoch"].tolist() == [6]


@pytest.mark.parametrize("positions", [slice(5, 9), np.array([5, 6, 7, 8])], ids=["slice", "array"])
def test_results_are_split_at_a_position(positions):
    records = np.arange(4)[:, None].repeat(40, axis=1).astype(np.uint8)
    results = Results(positions, records, 1)
    assert (results.first, results.last) == (5, 8)
    for at in range(4, 11):
        below, since = results.below(at), results.since(at)
        assert below.indices.tolist() == [k for k in range(5, 9) if k < at] == (below.records[:, 0] + 5).tolist()
        assert since.indices.tolist() == [k for k in range(5, 9) if k >= at] == (since.records[:, 0] + 5).tolist()
        for end in range(at, 12):
            both = results.between(at, end)
            assert both.indices.tolist() == [k for k in range(5, 9) if at <= k < end]
            assert (both.records[:, 0] + 5).tolist() == both.indices.tolist()


@pytest.mark.parametrize(("size", "shapes"), [(90, [(3, 30)]), (100, [(3, 30)]), (115, [(3, 30), (1, 25)]), (21, [])])
def test_a_burst_is_cut_into_datagrams_of_one_size(size, shapes):
    buffer = np.arange(128, dtype=np.uint8)
    cut = list(datagrams(buffer, size, 30))
    assert [records.shape for records in cut] == shapes
    assert b"".join(records.tobytes() for records in cut) == bytes(range(sum(a * b for a, b in shapes)))
