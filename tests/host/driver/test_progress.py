"""Position and digest of a worker, against sums of plain integers and zlib."""

import zlib

import numpy as np
import pytest

from iswitch.driver.progress import Progress, result_checks
from iswitch.golden.egress import compose
from iswitch.wire import HEADER, RESULT_HEADER, TAIL, CollectiveKind, Format, ones_complement_sum


def results(rng, segments, *, flags=0, token=7, job=1, seq=0xFFFFFFF0):
    """Results with random payloads, as headers, tails and payloads. Their seqs go through zero."""
    payloads = [rng.integers(0, 2**32, rng.integers(1, 40), dtype="<u4") for _ in range(segments)]
    frames = [
        compose.result(
            job=job, epoch=3, seq=(seq + k) % 2**32, format=Format.FP32, flags=flags, members=5 + k,
            tainted=(k & 3) << 30, token=token, elements=payload, identity=0x1234,
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
        progress.extend(result_checks(headers, tails))
        progress.count_call()
        for header, payload in zip(headers, payloads):
            octets = b"".join(int(header[name]).to_bytes(4, "little") for name in ("seq", "tainted", "members"))
            octets += payload.tobytes()
            words = sum(int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2)) % 0xFFFF
            checksum = zlib.crc32((0xFFFF - words).to_bytes(2, "big"), checksum)
        assert (progress.position, progress.checksum) == (position + 1, checksum)
        assert progress.digest(CollectiveKind.ALLREDUCE) == checksum & 0xFFFF


@pytest.mark.parametrize("change", [{"flags": 2}, {"flags": 10}, {"token": 8}, {"job": 2}], ids=str)
def test_what_may_differ_between_workers_is_not_in_the_digest(change):
    """A result that was sent again, and the token and the number of a job at another switch of a tree."""
    one, other = Progress(), Progress()
    one.extend(result_checks(*results(np.random.default_rng(2), 8)[:2]))
    other.extend(result_checks(*results(np.random.default_rng(2), 8, **change)[:2]))
    assert one.checksum == other.checksum


def with_complement(headers, tails, payloads, k):
    """The tails, with the complement that result k now needs."""
    tails["complement"][k] = 0
    frame = headers[k].tobytes() + payloads[k].tobytes() + tails[k].tobytes()
    tails["complement"][k] = 0xFFFF - ones_complement_sum(frame)
    return tails


@pytest.mark.parametrize("field", ["members", "tainted", "seq"])
def test_one_other_bit_of_a_header_changes_the_digest(field):
    headers, tails, payloads = results(np.random.default_rng(4), 8)
    one, other = Progress(), Progress()
    one.extend(result_checks(headers, tails))
    headers[field][3] ^= 1 << 9
    other.extend(result_checks(headers, with_complement(headers, tails, payloads, 3)))
    assert one.digest(CollectiveKind.BARRIER) != other.digest(CollectiveKind.BARRIER)


@pytest.mark.parametrize("complement", [0, 0xFFFF])
def test_both_zeros_of_ones_complement_are_one_check(complement):
    """A result whose words sum to zero without the complement, which may then be either zero."""
    headers, tails, payloads = results(np.random.default_rng(5), 1)
    first = payloads[0].view(">u2")
    tails["complement"] = first[0] = 0
    first[0] = 0xFFFF - ones_complement_sum(headers.tobytes() + payloads[0].tobytes() + tails.tobytes())
    octets = b"".join(headers[name].tobytes() for name in ("seq", "tainted", "members")) + payloads[0].tobytes()
    check = 0xFFFF - ones_complement_sum(octets) or 0xFFFF
    tails["complement"] = complement
    progress = Progress()
    progress.extend(result_checks(headers, tails))
    assert progress.checksum == zlib.crc32(check.to_bytes(2, "big"))


def test_one_other_bit_of_a_payload_changes_the_digest():
    headers, tails, payloads = results(np.random.default_rng(3), 8)
    one, other = Progress(), Progress()
    one.extend(result_checks(headers, tails))
    payloads[5][0] ^= 1
    other.extend(result_checks(headers, with_complement(headers, tails, payloads, 5)))
    assert one.digest(CollectiveKind.BARRIER) != other.digest(CollectiveKind.BARRIER)


def test_an_election_has_no_position_and_no_digest():
    progress = Progress()
    progress.adopt(2**24 - 1, 0xABCD1234)
    assert progress.collective(CollectiveKind.ELECTION, 17) == (0, CollectiveKind.ELECTION, 1)
    assert progress.digest(CollectiveKind.STATE) == 0
    assert progress.collective(CollectiveKind.BROADCAST, 16) == (2**24 - 1, CollectiveKind.BROADCAST, 0)
    assert progress.digest(CollectiveKind.BROADCAST, 3) == 0x1237
    progress.count_call()
    assert progress.position == 0 and HEADER.itemsize == RESULT_HEADER.itemsize
