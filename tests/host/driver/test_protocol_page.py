"""Facts of docs/protocol.md that are the Python driver's. Those of the switch are in
`tests/host/golden/test_protocol_page.py`."""

import hashlib
import inspect
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iswitch import AsyncWorker, SwitchUnreachableError, Worker
from iswitch.config import Config
from iswitch.control.exchange import Exchange
from iswitch.control.settings import usual_fraction
from iswitch.control.state_transfer import TRANSFER_NOTE, pack_arrays, transfer_key
from iswitch.driver.collective_result import NoProgressError
from iswitch.driver.membership import Membership
from iswitch.driver.progress import Progress, result_checks
from iswitch.driver.ring import Ring
from iswitch.driver.update_layout import TRAILER_ENTRY, UpdateLayout
from iswitch.golden.egress import compose
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    RESULT_HEADER,
    TAIL,
    TAIL_BYTES,
    Action,
    CollectiveKind,
    ContributionFlag,
    Format,
    Mode,
    Type,
    version_type,
)
from sim.bench.udp_model import UdpModel

ELEMENTS = 4
MEMBER = Membership(
    job=0,
    key=0,
    world=2,
    threshold=2,
    format=Format.INT32,
    fraction=44,
    elements=ELEMENTS,
    mode=Mode.QUARANTINE,
    nonce=1,
    wanted=0,
    member=0,
    token=7,
    job_token=8,
    epoch=1,
    window=8,
    first_seq=100,
)
RETRANSMISSION, BOUNDARY = ContributionFlag.RETRANSMISSION, ContributionFlag.BOUNDARY


class MuteSwitch:
    """A transport whose switch answers nothing. `sent`: (seconds, header, payload) of each datagram."""

    def __init__(self):
        self.time, self.sent = 0.0, []

    def now(self):
        return self.time

    def burst_segments(self, _):
        return 4

    def send(self, burst, segment_bytes):
        for at in range(0, len(burst), segment_bytes):
            datagram = bytes(burst[at : at + segment_bytes])
            header = np.frombuffer(datagram, HEADER, 1)[0].copy()
            self.sent.append((self.time, header, datagram[HEADER.itemsize :]))

    def receive(self, into, timeout_s):
        self.time += max(0.0, timeout_s)
        return 0, 0


def unanswered(values, timeout_s, **settings):
    """Return what a ring sends for a sum that never gets a result."""
    switch = MuteSwitch()
    ring = Ring(switch, replace(MEMBER, **settings), backlog=0)
    with pytest.raises(NoProgressError):
        ring.reduce(np.array(values, np.int32), Format.INT32, timeout_s)
    return switch.sent


def test_a_vector_is_cut_in_order_and_the_last_segment_is_shorter():
    sent = unanswered(range(10), 0.01)
    assert [int(header["seq"]) for _, header, _ in sent] == [100, 101, 102]
    assert [struct.unpack(f"<{len(payload) // 4}i", payload) for _, _, payload in sent] == [
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (8, 9),
    ]
    assert [int(header["format_flags"]) >> FLAGS_SHIFT for _, header, _ in sent] == [0, 0, BOUNDARY]
    assert [int(header["behind"]) for _, header, _ in sent] == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "gaps_s"),
    [
        ({}, [0.05, 0.1, 0.2, 0.25, 0.25]),
        ({"evict_us": 500_000}, [0.05, 0.1, 0.1, 0.1]),
        ({"deadline_us": 40_000}, [0.02, 0.02, 0.02]),
        ({"threshold": 1}, [0.05, 0.05, 0.05]),
    ],
    ids=["first, doubled, longest", "a fifth of evict_us", "half of deadline_us", "others go on without this one"],
)
def test_the_time_outs_are_those_of_the_page(settings, gaps_s):
    """Before the first result, the lowest segment alone is retransmitted."""
    sent = unanswered(range(10), sum(gaps_s) + 0.01, **settings)[3:]
    assert {int(header["seq"]) for _, header, _ in sent} == {100}
    assert all(int(header["format_flags"]) >> FLAGS_SHIFT == RETRANSMISSION for _, header, _ in sent)
    assert np.diff([0.0, *(time_s for time_s, _, _ in sent)])[: len(gaps_s)] == pytest.approx(gaps_s)


def test_a_retransmission_says_what_is_held_now():
    """The result of the first segment comes late: the retransmission of the second one then has `behind` 0."""

    class Late(MuteSwitch):
        def receive(self, into, timeout_s):
            super().receive(into, timeout_s)
            if len(self.sent) != 3:
                return 0, 0
            frame = np.zeros(1, RESULT_HEADER)
            for name in ("job", "epoch", "seq"):
                frame[name] = self.sent[0][1][name]
            frame["version_type"], frame["format_flags"] = version_type(Type.RESULT), Format.INT32
            frame["member"], frame["token"], frame["members"] = 255, MEMBER.job_token, 3
            datagram = frame.tobytes() + self.sent[0][2] + bytes(TAIL_BYTES)
            into[: len(datagram)] = datagram
            return len(datagram), len(datagram)

    switch = Late()
    with pytest.raises(NoProgressError):
        Ring(switch, MEMBER, backlog=0).reduce(np.arange(8, dtype=np.int32), Format.INT32, 1.0)
    again = [(int(header["seq"]), int(header["behind"])) for _, header, _ in switch.sent]
    assert again[:4] == [(100, 0), (101, 1), (100, 0), (101, 0)] and set(again[4:]) == {(101, 0)}


def test_the_state_is_the_bytes_of_the_arrays_padded_to_four():
    state = [np.array([[1, 2]], np.uint8), np.array([3.0], np.float64), np.array([4], np.int16)]
    for array in state:
        array.flags.writeable = True
    assert pack_arrays(state).tobytes() == bytes([1, 2]) + struct.pack("<dh", 3.0, 4)
    assert pack_arrays(state[:2]).tobytes() == bytes([1, 2]) + struct.pack("<d", 3.0) + bytes(2)


def test_the_note_to_a_joining_worker_and_the_key_of_its_job():
    assert TRANSFER_NOTE.itemsize == 44
    assert [(name, TRANSFER_NOTE.fields[name][1]) for name in TRANSFER_NOTE.names] == [
        ("updates", 0),
        ("seq", 8),
        ("digest", 12),
    ]
    assert transfer_key(5, 3) == int.from_bytes(hashlib.sha256(b"5 3").digest()[:8], "little")


def test_an_update_is_a_vector_and_a_trailer_with_an_entry_for_each_worker():
    layout = UpdateLayout(size=10, elements=ELEMENTS, world=3)
    assert (layout.vector_segments, layout.segments) == (3, 3 + 3)
    assert TRAILER_ENTRY.itemsize == 16
    assert [(name, TRAILER_ENTRY.fields[name][1]) for name in TRAILER_ENTRY.names] == [
        ("version", 0),
        ("transfer_job", 4),
        ("digest", 8),
    ]


def test_the_digest_of_updates_is_that_of_the_page():
    digest = bytes(32)
    with (
        UdpModel(Config(ports=2, window=4, elements=8)) as model,
        AsyncWorker(model.address(), world=1, size=10, format="int32") as worker,
    ):
        assert worker.digest == digest.hex()
        for number in range(3):
            worker.push(np.full(10, number, np.int32))
            while worker.version == number:
                assert worker.wait(10)
                list(worker.updates())
            digest = hashlib.sha256(
                digest + struct.pack("<QII", number, 1, 1) + struct.pack("<10i", *[number] * 10)
            ).digest()
            assert worker.digest == digest.hex()


def digest_example():
    """Return the rows of the page's example: collective, seq, tainted, members, elements, check, number, digest."""
    page = (Path(__file__).parents[3] / "docs/protocol.md").read_text(encoding="utf-8")
    table = page[page.index("| collective | `seq` |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return [
        (*(int(cell, 0) for cell in cells[:4]), bytes.fromhex(cells[4]), bytes.fromhex(cells[5]), *cells[6:])
        for cells in rows
    ]


def test_the_digest_is_that_of_the_example():
    progress, rows = Progress(), digest_example()
    assert [row[0] for row in rows] == [0, 1, 1]
    for collective in range(2):
        results = [row for row in rows if row[0] == collective]
        frames = [
            compose.result(
                job=0, epoch=9, seq=seq, format=Format.FP32, flags=2 * k, members=members, tainted=tainted, token=5,
                elements=np.frombuffer(elements, "<u4"), identity=0xABCD,
            )
            for k, (_, seq, tainted, members, elements, *_) in enumerate(results)
        ]  # fmt: skip
        headers = np.frombuffer(b"".join(frame[: HEADER.itemsize] for frame in frames), RESULT_HEADER)
        tails = np.frombuffer(b"".join(frame[-TAIL_BYTES:] for frame in frames), TAIL)
        progress.extend(result_checks(headers, tails))
        for (_, seq, tainted, members, elements, check, *_), frame in zip(results, frames):
            covered = struct.pack("<III", seq, tainted, members) + elements
            words = sum(struct.unpack(f">{len(covered) // 2}H", covered)) % 0xFFFF
            assert int.from_bytes(check, "big") == 0xFFFF - words
            others = frame[:4] + frame[8:10] + frame[18:22] + frame[-TAIL_BYTES:]
            assert sum(struct.unpack(f">{len(others) // 2}H", others)) % 0xFFFF == int.from_bytes(check, "big")
        number, digest = (int(text, 16) for text in results[-1][6:])
        assert (progress.checksum, progress.digest(CollectiveKind.ALLREDUCE)) == (number, digest)
    assert progress.checksum == zlib.crc32(b"".join(row[5] for row in rows))
    assert progress.digest(CollectiveKind.BROADCAST, 3) == (progress.checksum + 3) % 2**16
    assert [progress.digest(kind) for kind in (CollectiveKind.ELECTION, CollectiveKind.STATE)] == [0, 0]


def test_which_collectives_change_the_position():
    with UdpModel(Config(ports=2, window=4, elements=8)) as model, Worker(model.address(), world=1) as worker:
        progress, positions = worker._ring.progress, []
        for call in (
            worker.barrier,
            lambda: worker.broadcast(bytearray(5)),
            lambda: worker.allreduce(np.zeros(0, np.float32)),
            lambda: worker.sync_state(np.zeros(3), 7),
            lambda: worker.allreduce(np.ones(3, np.float32)),
        ):
            call()
            positions.append((progress.position, progress.checksum))
    assert [position for position, _ in positions] == [1, 2, 3, 3, 4]
    numbers = [number for _, number in positions]
    assert numbers[1] == numbers[2] == numbers[3] and len(set(numbers)) == 3


def test_the_job_of_a_transfer_of_weights_has_the_settings_of_the_page():
    """The two ends of the transfer name world, rank, job, key, format and times alone."""
    default = {name: parameter.default for name, parameter in inspect.signature(Worker).parameters.items()}
    assert [default[name] for name in ("threshold", "fraction", "mode", "deadline_s", "evict_s", "elements")] == [
        None,
        None,
        "quarantine",
        0.0,
        5.0,
        None,
    ]
    assert usual_fraction("int32") == 44


def test_control_messages_are_repeated_as_the_page_says():
    switch = MuteSwitch()
    switch.randbits = lambda bits: 1
    with pytest.raises(SwitchUnreachableError):
        Exchange(switch, timeout_s=2.5).request(Action.READ)
    assert np.diff([time_s for time_s, _, _ in switch.sent]) == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5])
