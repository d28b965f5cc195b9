"""Position and digest of a worker, against sums of plain integers and zlib."""

import zlib

import numpy as np
import pytest

from iswitch.driver.progress import Progress
from iswitch.wire import HEADER, RESULT_HEADER, TAIL, CollectiveKind, Format, ones_complement_sum
from sim.model.egress import compose


def results(rng, segments, *, flags=0, token=7, job=1):
    """Results with random payloads, as headers, tails and payloads."""
    payloads = [rng.integers(0, 2**32, rng.integers(1, 40), dtype="<u4") for _ in range(segments)]
    frames = [
        compose.result(
            job=job, epoch=3, seq=100 + k, format=Format.FP32, flags=flags, members=5 + k, tainted=0, token=token,
            elements=payload, identity=0x1234,
        )
        for k, payload in enumerate(payloads)
    ]  # fmt: skip
    headers = np.frombuffer(b"".join(frame[: HEADER.itemsize] for frame in frames), RESULT_HEADER).copy()
    tails = np.frombuffer(b"".join(frame[-TAIL.itemsize :] for frame in frames), TAIL).copy()
    return headers, tails, payloads


def test_the_digest_is_that_of_the_protocol():
    headers, tails, payloads = results(np.random.default_rng(1), 50)
    progress, checksum = Progress(), 0
    for position in range(3):
        with progress.count_call():
            progress.extend(headers, tails)
        for k, payload in enumerate(payloads):
            octets = payload.tobytes()
            words = sum(int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2)) % 0xFFFF
            checksum = zlib.crc32((5 + k).to_bytes(4, "little") + words.to_bytes(2, "little"), checksum)
        assert (progress.position, progress.checksum) == (position + 1, checksum)
        assert progress.digest(CollectiveKind.ALLREDUCE) == checksum & 0xFFFF


@pytest.mark.parametrize("change", [{"flags": 2}, {"token": 8}, {"job": 2}], ids=str)
def test_what_may_differ_between_workers_is_not_in_the_digest(change):
    """A result that was sent again, and the token and the number of a job at another switch of a tree."""
    one, other = Progress(), Progress()
    one.extend(*results(np.random.default_rng(2), 8)[:2])
    other.extend(*results(np.random.default_rng(2), 8, **change)[:2])
    assert one.checksum == other.checksum


def test_a_call_that_ends_with_an_error_counts():
    progress = Progress()
    with pytest.raises(ZeroDivisionError), progress.count_call():
        raise ZeroDivisionError
    assert (progress.position, progress.checksum) == (1, 0)


def test_one_other_bit_of_a_payload_changes_the_digest():
    headers, tails, payloads = results(np.random.default_rng(3), 8)
    one, other = Progress(), Progress()
    one.extend(headers, tails)
    payloads[5][0] ^= 1
    tails["complement"][5] = 0
    frame = headers[5].tobytes() + payloads[5].tobytes() + tails[5].tobytes()
    tails["complement"][5] = 0xFFFF - ones_complement_sum(frame)
    other.extend(headers, tails)
    assert one.digest(CollectiveKind.BARRIER) != other.digest(CollectiveKind.BARRIER)


def test_an_election_has_no_position_and_no_digest():
    progress = Progress()
    progress.adopt(2**24 - 1, 0xABCD1234)
    assert progress.collective(CollectiveKind.ELECTION, 17) == (0, CollectiveKind.ELECTION, 1)
    assert progress.digest(CollectiveKind.STATE) == 0
    assert progress.collective(CollectiveKind.BROADCAST, 16) == (2**24 - 1, CollectiveKind.BROADCAST, 0)
    assert progress.digest(CollectiveKind.BROADCAST, 3) == 0x1237
    with progress.count_call():
        pass
    assert progress.position == 0 and HEADER.itemsize == RESULT_HEADER.itemsize
