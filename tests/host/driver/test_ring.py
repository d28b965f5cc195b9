"""The ring alone, against a transport that a test plays by hand."""

import dataclasses

import numpy as np
import pytest

from iswitch.driver.collective_result import NoProgressError
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError
from iswitch.driver.progress import Progress
from iswitch.driver.ring import Ring
from iswitch.errors import MismatchError
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    RESULT_HEADER,
    TAIL,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    Mode,
    Reason,
    ResultFlag,
    Type,
    result_identity,
    version_type,
)

ELEMENTS, WINDOW = 4, 8
MEMBER = Membership(
    job=1,
    key=0,
    world=2,
    threshold=2,
    format=Format.WINDOW64,
    fraction=44,
    elements=ELEMENTS,
    mode=Mode.QUARANTINE,
    nonce=1,
    wanted=0,
    member=1,
    token=0xABCD,
    job_token=0x5EED,
    epoch=7,
    window=WINDOW,
    first_seq=2**32 - 5,
)


class Clock:
    """Of a transport in which every wait lasts as long as it was to at most, and nothing else takes time."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def pass_until(self, due, timeout_s):
        self.time = max(self.time, min(due, self.time + max(0.0, timeout_s)))


class Script(Clock):
    """Answers every sent datagram by `answer(header, payload)` -> datagrams; remembers all headers."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.waiting, self.sent = answer, [], []

    def burst_segments(self, segment_bytes):
        return 3

    def send(self, burst, segment_bytes):
        for at in range(0, len(burst), segment_bytes):
            datagram = bytes(burst[at : at + segment_bytes])
            header = np.frombuffer(datagram, HEADER, 1)[0]
            self.sent.append(header)
            self.waiting += self.answer(header, datagram[HEADER.itemsize :])

    def receive(self, into, timeout_s):
        if not self.waiting:
            self.pass_until(np.inf, timeout_s)
            return 0, 0
        datagram = self.waiting.pop(0)
        into[: len(datagram)] = datagram
        return len(datagram), len(datagram)


def result(header, payload, identity=None, **fields):
    made = np.zeros(1, RESULT_HEADER)
    for name in ("job", "epoch", "seq"):
        made[name] = header[name]
    made["version_type"] = version_type(Type.RESULT)
    made["format_flags"] = header["format_flags"] & 15
    made["members"], made["member"], made["token"] = 3, 255, MEMBER.job_token
    for name, value in fields.items():
        made[name] = value
    tail = np.zeros(1, TAIL)
    own = result_identity(int(header["members"]), int(header["count"]))
    tail["identity"] = own if identity is None else identity
    return made.tobytes() + payload + tail.tobytes()


def flags(header):
    return int(header["format_flags"]) >> 4


def index(header):
    return (int(header["seq"]) - MEMBER.first_seq) % 2**32


def test_contributions_keep_to_the_window_and_acknowledge_results():
    script = Script(lambda header, payload: [result(header, payload)])
    ring = Ring(script, MEMBER, backlog=16)
    values = np.arange(ELEMENTS * 30 - 1, dtype=np.float32)
    kept = values.copy()
    sums = ring.reduce(values, Format.WINDOW64, 1.0)
    assert np.array_equal(values, kept)
    assert [index(header) for header in script.sent] == list(range(30))
    assert all(header["behind"] < WINDOW for header in script.sent)
    assert [flags(header) & ContributionFlag.BOUNDARY > 0 for header in script.sent] == [False] * 29 + [True]
    first = script.sent[0]
    assert [int(first[name]) for name in ("version_type", "job", "epoch", "member", "token", "count")] == [
        version_type(Type.CONTRIBUTION),
        1,
        7,
        1,
        0xABCD,
        0,
    ]
    assert Collective.from_word(int(first["members"])) == (0, CollectiveKind.ALLREDUCE, 30 % 16)
    assert sums.retransmissions == 0 and not sums.flagged
    assert ring.low_seq == (MEMBER.first_seq + 30) % 2**32


def test_gap_is_filled_by_one_fast_retransmission():
    def answer(header, payload):
        return (
            []
            if index(header) == 2 and not flags(header) & ContributionFlag.RETRANSMISSION
            else [result(header, payload)]
        )

    script = Script(answer)
    ring = Ring(script, MEMBER, backlog=16)
    sums = ring.reduce(np.ones(ELEMENTS * 7, np.float32), Format.WINDOW64, 5.0)
    assert sums.retransmissions == 1
    assert [index(header) for header in script.sent] == [0, 1, 2, 3, 4, 5, 6, 2]


def test_silence_is_probed_with_one_segment_only():
    script = Script(lambda header, payload: [])
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.raises(NoProgressError, match="0 of 20"):
        ring.reduce(np.ones(ELEMENTS * 20, np.float32), Format.WINDOW64, 0.3)
    again = [header for header in script.sent if flags(header) & ContributionFlag.RETRANSMISSION]
    assert again and {index(header) for header in again} == {0}
    assert len(again) == 2  # after 50 and 150 ms


class SlowSwitch(Clock):
    """Answers one contribution after another, each after `service_s`, and hands the results over only every `burst_s`.
    A segment that it has answered it answers again, which takes as long. `loses` are lost when first sent."""

    def __init__(self, *, service_s, burst_s, loses=frozenset()):
        super().__init__()
        self.service_s, self.burst_s, self.loses = service_s, burst_s, loses
        self.free_at = self.time
        self.waiting, self.sent = [], []

    def burst_segments(self, segment_bytes):
        return 64

    def send(self, burst, segment_bytes):
        for at in range(0, len(burst), segment_bytes):
            datagram = bytes(burst[at : at + segment_bytes])
            header = np.frombuffer(datagram, HEADER, 1)[0]
            self.sent.append(index(header))
            if index(header) in self.loses and self.sent.count(index(header)) == 1:
                continue
            self.free_at = max(self.time, self.free_at) + self.service_s
            self.waiting.append(
                (-(-self.free_at // self.burst_s) * self.burst_s, result(header, datagram[HEADER.itemsize :]))
            )

    def receive(self, into, timeout_s):
        due = self.waiting[0][0] if self.waiting else np.inf
        self.pass_until(due, timeout_s)
        if due > self.time:
            return 0, 0
        datagram = self.waiting.pop(0)[1]
        into[: len(datagram)] = datagram
        return len(datagram), len(datagram)


def slow_sum(segments, **switch):
    """A quick sum of one segment, which makes the ring expect short delays, and then one of many. What was sent again,
    and the seconds."""
    script = SlowSwitch(service_s=0.0005, burst_s=0.0005)
    ring = Ring(script, dataclasses.replace(MEMBER, window=64), backlog=64)
    for _ in range(40):
        ring.reduce(np.ones(ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    script.service_s, script.burst_s = switch["service_s"], switch["burst_s"]
    script.loses = {40 + lost for lost in switch.get("loses", ())}
    begun = script.now()
    sums = ring.reduce(np.ones(ELEMENTS * segments, np.float32), Format.WINDOW64, 1.0)
    return sums.retransmissions, script.now() - begun


@pytest.mark.parametrize("burst_s", [0.001, 0.006, 0.02])
@pytest.mark.parametrize("service_s", [0.0001, 0.0005, 0.002])
def test_a_slow_switch_causes_few_retransmissions(service_s, burst_s):
    resent, seconds = slow_sum(114, service_s=service_s, burst_s=burst_s)
    assert resent <= 12
    assert seconds <= 1.2 * 114 * service_s + 4 * burst_s


@pytest.mark.parametrize(
    "loses",
    [{113}, set(range(100, 114)), set(range(50, 114)), {0}, set(range(64)), set(range(0, 114, 7))],
    ids=["last", "14 last", "64 last", "first", "first window", "each 7th"],
)
def test_a_lost_segment_is_retransmitted_soon_and_once(loses):
    resent, seconds = slow_sum(114, service_s=0.0005, burst_s=0.002, loses=loses)
    assert len(loses) <= resent <= len(loses) + 6
    assert seconds <= 114 * 0.0005 + 0.25


def test_results_that_come_early_are_not_contributed_to():
    sizes = 6, 8, 4

    def answer(header, payload):
        if index(header):
            return [result(header, payload)]
        early, progress = [], Progress()
        for size in sizes:
            kind = CollectiveKind.ALLREDUCE
            identity = result_identity(progress.collective(kind, size).word, progress.digest(kind))
            made = [
                result(
                    header,
                    payload,
                    identity,
                    seq=(int(header["seq"]) + len(early) + k) % 2**32,
                    format_flags=ResultFlag.PARTIAL << FLAGS_SHIFT | Format.WINDOW64,
                    members=1,
                )
                for k in range(size)
            ]
            early += made
            progress.extend(
                np.frombuffer(b"".join(frame[: HEADER.itemsize] for frame in made), RESULT_HEADER),
                np.frombuffer(b"".join(frame[-TAIL.itemsize :] for frame in made), TAIL),
            )
        return early

    script = Script(answer)
    ring = Ring(script, MEMBER, backlog=64)
    for size in sizes:
        sums = ring.reduce(np.ones(ELEMENTS * size, np.float32), Format.WINDOW64, 1.0)
        assert (sums.headers["members"] == 1).all() and sums.flagged
        ring.serve()
    contributed = {index(h) for h in script.sent if h["version_type"] == version_type(Type.CONTRIBUTION)}
    assert contributed == set(range(6))  # of the first collective, which left before the results came
    receipts = [h for h in script.sent if h["version_type"] == version_type(Type.RECEIPT)]
    assert receipts and all(h["behind"] <= WINDOW for h in receipts)


def test_backlog_bounds_what_is_acknowledged():
    script = Script(lambda header, payload: [])
    ring = Ring(script, MEMBER, backlog=5)
    for k in range(9):
        header = np.zeros(1, HEADER)[0]
        header["job"], header["epoch"], header["seq"] = 1, 7, (MEMBER.first_seq + k) % 2**32
        script.waiting.append(result(header, bytes(4 * ELEMENTS), format_flags=Format.WINDOW64))
    ring.serve()
    assert (ring.low_seq - MEMBER.first_seq) % 2**32 == 5
    assert [index(header) for header in script.sent] == [5]


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": 6},
        {"job": 0},
        {"version_type": version_type(Type.UPLINK)},
        {"seq": MEMBER.first_seq - 1},
        {"seq": 2**20},
    ],
)
def test_stray_results_change_nothing(fields):
    def answer(header, payload):
        return [result(header, b"\xff" * len(payload), **fields), result(header, payload)]

    ring = Ring(Script(answer), MEMBER, backlog=16)
    values = np.ones(ELEMENTS * 3, np.float32)
    ring.reduce(values, Format.WINDOW64, 1.0)
    assert (values == 1).all()


@pytest.mark.parametrize("lone", [True, False], ids=["in a burst of its own", "beside a genuine result"])
def test_a_result_without_the_jobs_token_is_ignored_and_counted(lone):
    """A host that sees no frame of the job sends the driver a RESULT that names job, epoch and seq rightly."""

    def answer(header, payload):
        forged = result(header, np.full(len(payload) // 4, -666.0, np.float32).tobytes(), token=MEMBER.job_token ^ 1)
        genuine = result(header, payload)
        return [forged, genuine] if lone else [forged + genuine]

    class Burst(Script):
        def receive(self, into, timeout_s):
            size, _ = super().receive(into, timeout_s)
            return size, size if lone or not size else size // 2

    ring = Ring(Burst(answer), MEMBER, backlog=16)
    values = np.ones(ELEMENTS, np.float32)
    ring.reduce(values, Format.WINDOW64, 1.0)
    assert (values == 1).all() and ring.forged == 1


def notice(header, **fields):
    made = np.zeros(1, HEADER)
    made[0] = header
    made["version_type"], made["count"], made["format_flags"] = version_type(Type.NOTICE), Reason.MEMBER, 0
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


def test_notice_for_us_is_raised():
    ring = Ring(Script(lambda header, payload: [notice(header)]), MEMBER, backlog=16)
    with pytest.raises(MembershipRejectedError) as caught:
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert caught.value.reason == Reason.MEMBER


@pytest.mark.parametrize("fields", [{"token": 1}, {"job": 2}, {"count": Reason.EPOCH}, {"count": 99}])
def test_notice_for_others_or_from_the_past_is_ignored(fields):
    ring = Ring(Script(lambda header, payload: [notice(header, **fields), result(header, payload)]), MEMBER, backlog=16)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)


def conflict(header, theirs, **fields):
    """The notice that the switch has met another collective in the segment."""
    return notice(header, **{"count": Reason.COLLECTIVE, "epoch": 7, "members": theirs.word} | fields)


def test_a_notice_about_another_collective_ends_the_present_one():
    theirs = Collective(5, CollectiveKind.BROADCAST, 2)
    ring = Ring(Script(lambda header, payload: [conflict(header, theirs)]), MEMBER, backlog=16)
    with pytest.raises(CollectiveConflictError) as caught:
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert caught.value.theirs == theirs
    assert ring.progress.checksum == 0


@pytest.mark.parametrize("fields", [{"token": 1}, {"epoch": 6}, {"seq": 2**20}, {"seq": MEMBER.first_seq - 1}], ids=str)
def test_a_notice_that_is_not_about_the_present_collective_is_void(fields):
    theirs = Collective(5, CollectiveKind.BROADCAST, 2)
    script = Script(lambda header, payload: [conflict(header, theirs, **fields), result(header, payload)])
    ring = Ring(script, MEMBER, backlog=16)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert ring.progress.checksum != 0


def test_a_result_of_another_collective_is_refused():
    """It comes although this member has not contributed, for the others need not wait for it."""
    ring = Ring(Script(lambda header, payload: [result(header, payload, identity=0x5A17)]), MEMBER, backlog=16)
    with pytest.raises(MismatchError, match="belongs to another collective"):
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert ring.progress.checksum == 0
