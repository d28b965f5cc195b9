"""What a worker reads about a collective without progress, from a scripted switch."""

from types import SimpleNamespace

import pytest

from iswitch.control import stalled_collective
from iswitch.control.inspection import JobView, SlotView
from iswitch.control.stalled_collective import StalledCollective
from iswitch.errors import CollectiveTimeoutError, MismatchError
from iswitch.wire import Format, JobState, SlotState

ELEMENTS = 64
"""Elements in a full segment."""


def stalled(monkeypatch, slot, *, epoch=1, state=JobState.RUNNING, evict_us=5_000_000, counters=None):
    """A collective of rank 1 of 3 that waits for segment 10, the second of its array of 100 elements. Rank 1 lacks its
    result; `slot` is what the switch shows of it."""
    job = JobView(0, state, Format.WINDOW64, 44, epoch, ELEMENTS, 3, 3, [0, 1, 2], [], 9, 0, evict_us)
    monkeypatch.setattr(stalled_collective, "read_job", lambda control, number: job)
    monkeypatch.setattr(stalled_collective, "read_slot", lambda control, number, seq, window: slot)
    membership = SimpleNamespace(job=0, window=4, epoch=1, member=1, world=3, elements=ELEMENTS, evict_us=evict_us)
    ring = SimpleNamespace(membership=membership, low_seq=10, lacked=(1, 4 * 36))
    control = SimpleNamespace(counters=lambda ports: counters or {}, job=lambda number: SimpleNamespace(live=3))
    return StalledCollective(control, SimpleNamespace(ports=2), ring, 100, Format.WINDOW64, "job 0 at the switch")


def slot(*, seq=10, state=SlotState.COLLECTING, format=Format.WINDOW64, length=4 * 36, arrived=(0, 2)):
    return SlotView(seq, state, format, length, list(arrived), list(arrived), [0, 1, 2])


def check(found, times=3):
    for _ in range(times):
        found.check()


@pytest.mark.parametrize(
    ("changes", "theirs"),
    [
        ({"length": 4 * 40}, "ranks 0 and 2 sum 104 float32 elements"),
        ({"length": 4 * ELEMENTS}, "ranks 0 and 2 sum at least 128 float32 elements"),
        ({"format": Format.INT32}, "ranks 0 and 2 sum int32 elements"),
        ({"length": 4 * 40, "arrived": [2]}, "rank 2 sums 104 float32 elements"),
    ],
)
def test_another_array_in_the_slot_is_a_mismatch_after_three_looks(monkeypatch, changes, theirs):
    found = stalled(monkeypatch, slot(**changes))
    check(found, 2)
    with pytest.raises(MismatchError, match=f"{theirs}, and this worker, rank 1, sums 100 float32 elements"):
        found.check()


def count_refusals(found, per_look):
    """Let `FORMAT` rise by so much from look to look."""
    looks = iter(range(100))
    found.control.counters = lambda ports: {"FORMAT": 5 + per_look * next(looks)}


def test_refusals_at_an_equal_segment_are_a_mismatch_that_the_slot_does_not_show(monkeypatch):
    """Only one of the workers ends its array with this segment, as with 16 segments more: they look alike otherwise."""
    found = stalled(monkeypatch, slot())
    count_refusals(found, 1)
    check(found, 3)
    with pytest.raises(
        MismatchError, match=r"ranks 0 and 2 sum another number of segments \(at least 16 more or fewer"
    ):
        found.check()


def test_refusals_that_were_there_before_are_no_mismatch(monkeypatch):
    found = stalled(monkeypatch, slot())
    count_refusals(found, 0)
    check(found, 9)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"length": 4 * 40, "seq": 2},
        {"length": 4 * 40, "state": SlotState.EMPTY},
        {"length": 4 * 40, "arrived": [0, 1]},
    ],
    ids=["the same array", "an earlier lap", "an empty slot", "with this worker's contribution"],
)
def test_no_mismatch(monkeypatch, changes):
    check(stalled(monkeypatch, slot(**changes)), 5)


@pytest.mark.parametrize("changes", [{"epoch": 2}, {"state": JobState.HALTED}])
def test_a_reset_or_halted_job_is_no_mismatch(monkeypatch, changes):
    check(stalled(monkeypatch, slot(length=4 * 40), **changes), 5)


def test_looks_at_another_segment_begin_again(monkeypatch):
    found = stalled(monkeypatch, slot(length=4 * 40))
    check(found, 2)
    found.ring.low_seq = 11
    found.check()
    found.ring.low_seq = 10
    check(found, 2)


def test_the_error_names_missing_ranks_and_counters_that_rose(monkeypatch):
    found = stalled(monkeypatch, slot(arrived=[0]), counters={"LENGTH": 7, "ADDED": 99, "EVICTED": 1})
    error = found.timeout_error({"LENGTH": 4, "ADDED": 1, "EVICTED": 1}, 30.0, "1 of 2 results have come")
    assert isinstance(error, CollectiveTimeoutError) and error.counters == {"LENGTH": 3}
    head, line = str(error).split("\n")
    assert head.startswith("no result for 30 s (`timeout_s`) in a collective of job 0 at the switch: 1 of 2 results")
    assert "so ranks 1 and 2 are not in this collective" in head and "print `array.size`" in head
    assert head.endswith("end its process: the switch evicts it after `evict_s`.")
    assert line.startswith("  LENGTH +3: contributions of a wrong length: ")


def test_without_eviction_the_error_names_the_command_that_ends_the_job(monkeypatch):
    error = stalled(monkeypatch, slot(seq=2), evict_us=0).timeout_error({}, 30.0, "no progress")
    assert "most likely one of them is not in this collective" in str(error)
    assert str(error).endswith("then `iswitch end-job` ends the job, because `evict_s` is 0.")
