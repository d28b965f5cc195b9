"""What the trailer of an update says: digests that are compared, and requests for weights."""

import pytest

from iswitch.control.update_reader import UpdateReader
from iswitch.driver.membership import Membership
from iswitch.driver.received_update import ReceivedUpdate
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import DivergedError
from iswitch.wire import Format, Mode

LAYOUT = UpdateLayout(size=10, elements=4, world=3)
MEMBER = Membership(
    job=0,
    key=0,
    world=3,
    threshold=1,
    format=Format.INT32,
    fraction=44,
    elements=4,
    mode=Mode.QUARANTINE,
    nonce=1,
    token=7,
    job_token=8,
    wanted=0,
    member=0,
    staleness=2,
)


def received(members, **entries):
    """An update of these members. `entries`: by "r0" and so on, (version, transfer_job, digest)."""
    update = ReceivedUpdate(LAYOUT, Format.INT32)
    update.headers["members"] = members
    update.sum[:] = members
    for rank, entry in entries.items():
        update.trailer[int(rank[1:])] = entry
    return update


def test_equal_digests_confirm_the_updates_before_them():
    reader = UpdateReader(LAYOUT, MEMBER)
    update = reader.read(0, received(0b011, r0=(0, 0, 0), r1=(0, 0, 0)))
    assert (update.members, update.versions, reader.confirmed) == ((0, 1), {0: 0, 1: 0}, {0: 0, 1: 0})
    digest = int.from_bytes(reader.digests.latest[:8], "little")
    reader.read(1, received(0b010, r1=(1, 0, digest)))
    assert reader.confirmed == {0: 0, 1: 1} and not reader.transfer_jobs


def test_another_digest_is_a_divergence():
    reader = UpdateReader(LAYOUT, MEMBER)
    reader.read(0, received(0b001, r0=(0, 0, 0)))
    with pytest.raises(DivergedError, match="rank 2 and rank 0 received different updates among the first 1, as the"):
        reader.read(1, received(0b100, r2=(1, 0, 12345)))


def test_a_segment_with_a_worker_that_left_before_its_entry_is_zeros():
    """Its numbers may be the zeros of a joining worker: the mean of the others would be too small."""
    reader, update = UpdateReader(LAYOUT, MEMBER), received(0b011, r0=(0, 0, 0))
    update.headers["members"][1:] = 0b001  # rank 1 has contributed to the first segment only
    read = reader.read(0, update)
    assert read.counts.tolist() == [0, 1, 1] and read.members == (0,) and sorted(read.versions) == [0]
    assert read.sum.tolist() == [0] * 4 + [0b011] * 6


def test_a_request_names_the_lowest_rank_with_weights_and_is_not_in_the_mean():
    reader = UpdateReader(LAYOUT, MEMBER)
    update = reader.read(0, received(0b111, r0=(0, 0, 0), r1=(0, 0, 0), r2=(0, 6, 0)))
    assert reader.transfer_jobs == {2: (0, 5)}
    assert update.members == (0, 1) and sorted(update.versions) == [0, 1]
