"""The ring alone, against a transport that a test plays by hand."""

import dataclasses

import numpy as np
import pytest

from iswitch.driver.collective_result import NoProgressError
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError
from iswitch.driver.progress import Progress, result_checks
from iswitch.driver.ring import Ring
from iswitch.driver.timer import RetransmissionTimer
from iswitch.errors import HaltedWarning, MismatchError
from iswitch.native.records import ExchangeEvent
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    RESULT_HEADER,
    TAIL,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    Reason,
    ResultFlag,
    Type,
    result_identity,
    version_type,
)
from sim.bench.scripted_transport import (
    ELEMENTS,
    MEMBER,
    WINDOW,
    Clock,
    Script,
    Timed,
    flags,
    index,
    notice,
    result,
    result_at,
)


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


def test_one_time_out_requests_all_that_lack_below_the_last_segment():
    script = Timed(
        lambda header, payload: (
            [result(header, payload)] if index(header) == 3 or flags(header) & ContributionFlag.RETRANSMISSION else []
        )
    )
    Ring(script, MEMBER, backlog=16).reduce(np.ones(4 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    assert [index(header) for header in script.sent] == [0, 1, 2, 3, 0, 1, 2]
    assert script.times[:4] == [100] * 4 and len(set(script.times[4:])) == 1


def test_silence_is_probed_with_one_segment_only():
    script = Script()
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
            headers = np.frombuffer(b"".join(frame[: HEADER.itemsize] for frame in made), RESULT_HEADER)
            tails = np.frombuffer(b"".join(frame[-TAIL.itemsize :] for frame in made), TAIL)
            progress.extend(result_checks(headers, tails))
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
    script = Script()
    ring = Ring(script, MEMBER, backlog=5)
    script.waiting += [result_at(position) for position in range(9)]
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
        return [forged, genuine] if lone else [[forged, genuine]]

    ring = Ring(Script(answer), MEMBER, backlog=16)
    values = np.ones(ELEMENTS, np.float32)
    ring.reduce(values, Format.WINDOW64, 1.0)
    assert (values == 1).all() and ring.forged == 1


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


@pytest.mark.parametrize(
    "fields",
    [{"token": 1}, {"epoch": 6}, {"seq": 2**20}, {"seq": MEMBER.first_seq - 1}, {"seq": MEMBER.first_seq + 1}],
    ids=str,
)
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


@pytest.mark.parametrize("wrong", range(3))
def test_one_result_of_another_collective_among_others_is_refused(wrong):
    def answer(header, payload):
        return [result(header, payload, identity=0x5A17 if index(header) == wrong else None)]

    ring = Ring(Script(answer), MEMBER, backlog=16)
    with pytest.raises(MismatchError, match="belongs to another collective"):
        ring.reduce(np.ones(3 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)


def test_a_rejection_that_is_confirmed_to_be_void_does_not_end_the_collective():
    confirmed = []
    script = Script(lambda header, payload: [notice(header), result(header, payload)])
    ring = Ring(script, MEMBER, backlog=16)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0, confirm=confirmed.append)
    assert [rejection.reason for rejection in confirmed] == [Reason.MEMBER]


# How long it waits


@pytest.mark.parametrize("timeout_s", [0.1, 0.6])
def test_a_halted_job_is_asked_four_times_in_the_time_that_it_has_without_results(timeout_s):
    """A job that is no longer halted, and is silent, has that time."""
    script = Timed(lambda header, payload: [notice(header, count=Reason.HALTED)] if script.time < 105 else [])
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.warns(HaltedWarning), pytest.raises(NoProgressError):
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, timeout_s)
    halted = script.pauses[np.array(script.times[:-1]) < 105]
    doubled = [min(0.05 * 2**k, timeout_s / 4) for k in range(len(halted))]
    assert halted == pytest.approx(doubled)
    last_notice = max(time for time in script.times if time < 105)
    assert script.time == pytest.approx(last_notice + timeout_s)


@pytest.mark.parametrize(("thresholds", "pauses"), [([], [50, 100]), ([1], [50] * 5), ([1, 2], [50, 100])])
def test_where_others_go_on_a_time_out_is_at_most_50_ms(thresholds, pauses):
    script = Timed()
    ring = Ring(script, MEMBER, backlog=16)
    for threshold in thresholds:
        ring.set_threshold(threshold)
    with pytest.raises(NoProgressError):
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 0.29)
    assert script.pauses == pytest.approx(np.array(pauses) / 1000)


@pytest.mark.parametrize("partial", [False, True])
def test_a_partial_result_says_that_others_go_on(partial):
    """The first result comes at once, so the first time-out is 2 ms."""

    def answer(header, payload):
        flag = partial * ResultFlag.PARTIAL << FLAGS_SHIFT | Format.WINDOW64
        return [result(header, payload, format_flags=flag)] if index(header) == 0 else []

    script = Timed(answer)
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.raises(NoProgressError):
        ring.reduce(np.ones(2 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    again = np.array(script.times)[[flags(header) & ContributionFlag.RETRANSMISSION > 0 for header in script.sent]]
    doubled = [min(0.002 * 2**k, 0.05 if partial else 0.25) for k in range(len(again))]
    assert np.diff([100, *again]) == pytest.approx(doubled)
    assert max(doubled) == (0.05 if partial else 0.25)


def test_an_inquiry_does_not_count_as_time_without_results_before_the_next_time_out():
    """One that takes 30 ms, after 100 ms: the time-outs double from 50 ms on up to 250 ms."""
    inquiries = []

    def inquire():
        inquiries.append(script.time - 100)
        script.time += 0.03

    script = Timed()
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.raises(NoProgressError):
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 0.8, inquire=inquire, inquire_s=0.1)
    assert np.array(script.times) - 100 == pytest.approx([0, 0.05, 0.15, 0.18 + 0.2, 0.41 + 0.25])
    assert inquiries == pytest.approx([0.15, 0.38, 0.66])


@pytest.mark.parametrize("answered", [0, 1])
def test_an_inquiry_comes_no_earlier_than_agreed_after_a_result_or_another_inquiry(answered):
    """The time-outs are shorter: at most 250 ms."""
    script = Script(lambda header, payload: [result(header, payload)] if index(header) < answered else [])
    inquiries = []
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.raises(NoProgressError):
        ring.reduce(
            np.ones(2 * ELEMENTS, np.float32),
            Format.WINDOW64,
            2.0,
            inquire=lambda: inquiries.append(script.time - 100),
            inquire_s=0.3,
        )
    assert len(inquiries) >= 3
    assert np.diff([0, *inquiries]).min() >= 0.3


@pytest.mark.parametrize("threshold", [1, 2])
def test_a_new_threshold_begins_the_idle_time_anew(threshold):
    script = Timed()
    ring = Ring(script, MEMBER, backlog=16)
    script.time += 0.5
    ring.set_threshold(threshold)
    assert ring.serve() == pytest.approx(0.02 if threshold < MEMBER.world else 1.0)
    assert not script.sent


def test_the_end_of_a_collective_begins_the_idle_time_anew():
    script = Timed(lambda header, payload: [result(header, payload)] if script.time > 100.1 else [])
    ring = Ring(script, MEMBER, backlog=16)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert script.time == pytest.approx(100.15)
    assert ring.serve() == pytest.approx(1.0)


def test_results_of_a_later_collective_begin_the_idle_time_anew():
    """They say that others go on without this member, so the time is 20 ms. An answer's receiver may meet one, too."""
    script = Timed()
    ring = Ring(script, MEMBER, backlog=16)
    script.time += 0.5
    datagram = np.frombuffer(result_at(0), np.uint8)
    assert ring.handle_burst(datagram, datagram.size, datagram.size) == 1
    assert ring.serve() == pytest.approx(0.02)
    script.time += 0.01
    script.waiting += [result_at(1)]
    assert ring.serve() == pytest.approx(0.02)


def test_a_rejection_that_is_void_does_not_count_as_a_result():
    """The notices come with the time-outs of the first 100 ms."""
    script = Timed(lambda header, payload: [result(header, payload)] if index(header) == 0 else [])
    ring = Ring(script, MEMBER, backlog=16)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    script.answer = lambda header, payload: [notice(header)] if 100 < script.time < 100.1 else []
    confirmed = []
    with pytest.raises(NoProgressError):
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 0.3, confirm=confirmed.append)
    assert confirmed and script.time == pytest.approx(100.3)


def test_an_inquiry_comes_with_the_time_out_that_is_due_then():
    inquiries, script = [], Timed()
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.raises(NoProgressError):
        ring.reduce(
            np.ones(1, np.float32), Format.WINDOW64, 0.1, inquire=lambda: inquiries.append(script.time), inquire_s=0.05
        )
    assert inquiries == pytest.approx([100.05])


def test_contributions_leave_for_which_a_result_that_an_inquiry_received_makes_room():
    def inquire():
        datagram = np.frombuffer(result(script.sent[0], bytes(4 * ELEMENTS)), np.uint8)
        ring.handle_burst(datagram, datagram.size, datagram.size)
        asked_at.append(script.time)

    asked_at, script = [], Timed()
    ring = Ring(script, MEMBER, backlog=16)
    with pytest.raises(NoProgressError, match="1 of 20"):
        ring.reduce(np.ones(20 * ELEMENTS, np.float32), Format.WINDOW64, 0.1, inquire=inquire, inquire_s=0.05)
    positions = [index(header) for header in script.sent]
    assert script.times[positions.index(WINDOW)] == asked_at[0]


@pytest.mark.parametrize("work", [Ring.serve, Ring.discard])
def test_only_its_size_says_whether_a_burst_has_come(work):
    """The transport names a datagram's bytes although nothing has come."""
    script = Script()
    receive = script.receive
    script.receive = lambda into, timeout_s: (receive(into, timeout_s)[0], 1472)
    script.waiting += [result_at(0)]
    work(Ring(script, MEMBER, backlog=16))
    assert not script.waiting


@pytest.mark.parametrize(
    ("membership", "pauses"),
    [
        ({}, [1000, 1000, 1000]),
        ({"evict_us": 500_000}, [100, 100, 100]),
        ({"threshold": 1}, [20, 40, 50, 50, 50]),
        ({"deadline_us": 60_000}, [20, 30, 30]),
    ],
    ids=["all members contribute", "eviction", "threshold", "deadline"],
)
def test_an_idle_ring_repeats_its_receipt_at_growing_intervals(membership, pauses):
    script = Timed()
    ring = Ring(script, dataclasses.replace(MEMBER, **membership), backlog=16)
    while len(script.times) < len(pauses):
        rest_s = ring.serve()
        assert 0 < rest_s <= 1
        script.time += rest_s
    assert np.diff([100, *script.times]) == pytest.approx(np.array(pauses) / 1000)
    assert all(flags(header) == ContributionFlag.WANT and not index(header) for header in script.sent)


def test_an_idle_ring_requests_what_it_lacks_in_the_window():
    """A receipt can name the lowest segment that is lacked, and those up to a window above it."""
    script = Script()
    script.burst_segments = lambda segment_bytes: 64
    ring = Ring(script, MEMBER, backlog=64)
    script.waiting += [result_at(position) for position in (3, WINDOW + 4)]
    script.time += ring.serve()
    assert not script.sent
    ring.serve()
    assert [index(header) for header in script.sent] == [at for at in range(WINDOW + 1) if at != 3]
    assert [int(header["behind"]) for header in script.sent] == [index(header) for header in script.sent]


def test_an_idle_ring_requests_no_result_that_waits_behind_a_duplicate():
    """The ring runs late: its request is due when it finds both frames in the socket."""
    script = Script()
    ring = Ring(script, MEMBER, backlog=16)
    script.waiting += [result_at(0)]
    script.time += ring.serve()
    script.waiting += [result_at(0), result_at(1)]
    assert ring.serve() > 0
    assert ring.low == 2 and not any(flags(header) & ContributionFlag.WANT for header in script.sent)


@pytest.mark.parametrize("membership", [{}, {"threshold": 1}])
def test_a_desynchronised_ring_only_shows_that_it_is_alive(membership):
    script = Timed()
    ring = Ring(script, dataclasses.replace(MEMBER, evict_us=1_000_000, **membership), backlog=16)
    first_s = 0.02 if membership else 0.2
    while len(script.times) < 4:
        script.waiting += 2 * [result_at(0)]
        rest_s = ring.discard()
        assert 0 < rest_s < 0.201 and not script.waiting and not ring.low
        script.time += min(rest_s, 0.15)
    assert np.diff([100, *script.times]) == pytest.approx([first_s, 0.2, 0.2, 0.2])
    for header in script.sent:
        assert header["version_type"] == version_type(Type.RECEIPT) and not flags(header) and not index(header)


@pytest.mark.parametrize("work", [Ring.serve, Ring.discard])
def test_the_longest_time_between_two_moments_at_which_the_ring_ran_is_known(work):
    script = Script()
    ring = Ring(script, MEMBER, backlog=16)
    for rest_s in (0.1, 0.3, 0.2):
        script.time += rest_s
        work(ring)
    assert ring.activity.longest_s == pytest.approx(0.3)


def test_a_collective_ends_the_memory_of_a_long_time_before_its_first_contribution():
    """The switch has accepted the contribution, so it has not evicted the member."""
    script = Script(lambda header, payload: [result(header, payload)])
    ring = Ring(script, MEMBER, backlog=16)
    for rest_s in (0.3, 0.1):
        script.time += rest_s
        ring.serve()
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert ring.activity.longest_s == 0


def test_in_a_collective_the_ring_runs_at_its_begin_and_at_each_time_out():
    """The moments are 80, 50 and 100 ms apart."""
    script = Timed(lambda header, payload: [result(header, payload)] if script.time > 100.2 else [])
    ring = Ring(script, MEMBER, backlog=16)
    script.time += 0.08
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    ring.serve()
    assert script.times == pytest.approx([100.08, 100.13, 100.23])
    assert ring.activity.longest_s == pytest.approx(0.1)


# What it sends


@pytest.mark.parametrize("in_flight", [1, 3, WINDOW, 2 * WINDOW, None])
def test_no_more_is_in_flight_than_the_switch_and_the_member_have_room_for(in_flight):
    script = Script()
    ring = Ring(script, MEMBER, backlog=16, in_flight=in_flight)
    with pytest.raises(NoProgressError):
        ring.reduce(np.ones(20 * ELEMENTS, np.float32), Format.WINDOW64, 0.01)
    assert len(script.sent) == min(WINDOW, in_flight or WINDOW)


def test_a_narrow_window_reopens_after_256_collectives():
    ring = Ring(Script(lambda header, payload: [result(header, payload)]), MEMBER, backlog=16)
    ring.window.record_results(64, retransmitted=64, resent=64)
    sizes = []
    for _ in range(256):
        sizes.append(ring.window.size)
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert sizes == [WINDOW // 2] * 256 and ring.window.size == WINDOW


@pytest.mark.parametrize("first", [4 * WINDOW - 1, 4 * WINDOW])
def test_results_of_less_than_four_windows_above_the_lowest_that_is_lacked_are_recorded(first):
    """Twice the switch's slots, if the ring has room for them. The result of the segment `first` comes first."""
    script = Script()
    ring = Ring(script, MEMBER, backlog=8 * WINDOW)
    script.waiting += [result_at(position) for position in (first, *range(min(first, 4 * WINDOW)))]
    while script.waiting:
        ring.serve()
    assert ring.low == 4 * WINDOW


@pytest.mark.parametrize("all_members", [False, True])
def test_a_collective_of_all_members_says_so_in_each_contribution(all_members):
    script = Script(lambda header, payload: [result(header, payload)])
    ring = Ring(script, MEMBER, backlog=16)
    ring.reduce(np.ones(2 * ELEMENTS, np.float32), Format.WINDOW64, 1.0, all_members=all_members)
    assert [flags(header) & ContributionFlag.REQUIRES_ALL > 0 for header in script.sent] == [all_members] * 2


def test_each_collective_counts_its_own_retransmissions_and_the_ring_all_segments():
    """The first contribution to each segment is lost."""
    lost = set()

    def answer(header, payload):
        first, _ = index(header) not in lost, lost.add(index(header))
        return [] if first else [result(header, payload)]

    ring = Ring(Script(answer), MEMBER, backlog=16)
    assert ring.segments == 0
    for number in range(3):
        sums = ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
        assert sums.retransmissions == 1 and ring.segments == number + 1


@pytest.mark.parametrize("threshold", [1, 2])
def test_where_others_go_on_a_complete_collective_is_acknowledged_at_once(threshold):
    """The other members may wait for the slots. Nothing is requested: no member has called the next collective."""
    script = Script(lambda header, payload: [result(header, payload)])
    ring = Ring(script, dataclasses.replace(MEMBER, threshold=threshold), backlog=16)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    receipts = script.sent[1:]
    assert len(receipts) == (threshold < MEMBER.world)
    for header in receipts:
        assert header["version_type"] == version_type(Type.RECEIPT)
        assert (index(header), int(header["behind"]), flags(header)) == (1, 0, 0)


def test_results_that_complete_a_collective_together_are_acknowledged_once():
    """They are a quarter of the window, after which a receipt is due in the middle of a collective, too."""
    contributions = []

    def answer(header, payload):
        contributions.append(result(header, payload))
        return [list(contributions)] if len(contributions) == WINDOW // 4 else []

    script = Script(answer)
    ring = Ring(script, dataclasses.replace(MEMBER, threshold=1), backlog=16)
    ring.reduce(np.ones(WINDOW // 4 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    receipts = script.sent[WINDOW // 4 :]
    assert [(index(header), int(header["behind"])) for header in receipts] == [(WINDOW // 4, 0)]


def test_the_last_result_of_a_collective_gives_a_delay_and_ends_the_doubling():
    """The first contribution is lost. To the next collective there is no result."""
    script = Timed(
        lambda header, payload: (
            [result(header, payload)] if flags(header) & ContributionFlag.RETRANSMISSION and index(header) == 0 else []
        )
    )
    ring, timer = Ring(script, MEMBER, backlog=16), RetransmissionTimer()
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    timer.add_first_delay(script.pauses[0])
    with pytest.raises(NoProgressError):
        ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 0.3)
    assert script.pauses[2] == pytest.approx(timer.first_timeout_s)


def test_contributions_leave_a_quarter_of_the_window_at_a_time_while_results_wait():
    class Grouped(Script):
        def receive(self, into, timeout_s):
            groups.append(len(self.sent) - sum(groups))
            return super().receive(into, timeout_s)

    groups = []
    ring = Ring(Grouped(lambda header, payload: [result(header, payload)]), MEMBER, backlog=16)
    ring.reduce(np.ones(20 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    assert [group for group in groups if group] == [WINDOW] + [WINDOW // 4] * 6


def test_a_result_that_comes_alone_lets_a_contribution_leave_at_once():
    script = SlowSwitch(service_s=0.001, burst_s=0.001)
    ring = Ring(script, MEMBER, backlog=16)
    held = []
    script.receive = lambda into, timeout_s, receive=script.receive: (
        held.append(len(script.sent) - ring.low) or receive(into, timeout_s)
    )
    ring.reduce(np.ones(20 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    assert held.count(WINDOW) >= 20 - WINDOW


def test_a_lost_result_is_requested_although_more_results_wait_when_all_is_sent():
    """Three later results show that it is lost."""

    class Counted(SlowSwitch):
        def send(self, burst, segment_bytes):
            before = len(self.sent)
            super().send(burst, segment_bytes)
            sent_after.extend([len(self.sent) - len(self.waiting) - 1] * (len(self.sent) - before))

    sent_after = []
    script = Counted(service_s=0.0005, burst_s=0.005, loses={0})
    Ring(script, MEMBER, backlog=16).reduce(np.ones(8 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    assert script.sent[:9] == [*range(8), 0] and sent_after[8] == 3


@pytest.mark.parametrize("held", [0, 1, 2])
@pytest.mark.parametrize("elements", [3 * ELEMENTS - 1, 3 * ELEMENTS])
def test_what_is_lacked_is_the_lowest_segment_without_a_result(elements, held):
    script = Script(lambda header, payload: [result(header, payload)] if index(header) < 1 + held else [])
    ring = Ring(script, MEMBER, backlog=16)
    assert ring.lacked == (0, 0)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert ring.lacked == (0, 0)
    seen = set()
    with pytest.raises(NoProgressError, match=f"{held} of 3"):
        ring.reduce(
            np.ones(elements, np.float32), Format.WINDOW64, 0.5, inquire=lambda: seen.add(ring.lacked), inquire_s=0.1
        )
    assert seen == {(held, 4 * min(ELEMENTS, elements - held * ELEMENTS))}


class ScriptedExchange:
    """An exchange that follows a list. Each run lasts 10 ms, and does what the next function of a list does."""

    is_usable, last_result_at = True, 0.0

    def __init__(self, script, *runs):
        self.script, self.runs = script, iter(runs)
        self.untils, self.waiting = [], []

    def join(self, *_):
        pass

    begin = join

    def end(self):
        pass

    def run(self, until, **_):
        self.untils.append(until)
        self.waiting.append(len(self.script.waiting))
        self.script.time += 0.01
        return next(self.runs)()


def test_the_ring_does_what_the_exchange_leaves():
    """Of the two results that come at once, the exchange takes the first one."""

    def take(event):
        first, second = (np.frombuffer(datagram, np.uint8) for datagram in script.waiting[:2])
        del script.waiting[: 2 if event == ExchangeEvent.RESULTS else 1]
        exchange.unhandled = second, second.size, second.size
        return event, ring.handle_burst(first, first.size, first.size)

    script = Script(lambda header, payload: [result(header, payload)])
    exchange = ScriptedExchange(
        script,
        lambda: (ExchangeEvent.SEND, 0),
        lambda: (ExchangeEvent.TIMEOUT, 0),
        lambda: (ExchangeEvent.SOCKET, 0),
        lambda: take(ExchangeEvent.RESULTS),
        lambda: (ExchangeEvent.SOCKET, 0),
        lambda: take(ExchangeEvent.FRAME),
        lambda: (ExchangeEvent.SOCKET, 0),
        lambda: (ExchangeEvent.FRAME, 0),
    )
    ring = Ring(script, MEMBER, backlog=16, exchange=exchange)
    sums = ring.reduce(np.ones(5 * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    assert sums.retransmissions == 0 and not script.waiting and len(script.sent) == 5
    assert exchange.waiting == [0, 5, 5, 5, 3, 3, 1, 1]
    begins_anew = np.diff(exchange.untils) != 0  # the time-out, with each new result
    assert begins_anew.tolist() == [False, False, False, True, False, True, False]


def test_an_exchange_that_leaves_no_datagram_leaves_no_result():
    """Then the time-out does not begin anew."""
    script = Script(lambda header, payload: [result(header, payload)])
    exchange = ScriptedExchange(
        script, lambda: (ExchangeEvent.SEND, 0), lambda: (ExchangeEvent.RESULTS, 0), lambda: (ExchangeEvent.FRAME, 0)
    )
    exchange.unhandled = np.empty(0, np.uint8), 0, 0
    ring = Ring(script, MEMBER, backlog=16, exchange=exchange)
    ring.reduce(np.ones(1, np.float32), Format.WINDOW64, 1.0)
    assert exchange.untils == [exchange.untils[0]] * 3


def test_results_of_the_exchange_are_not_resent_and_do_not_narrow_the_window():
    """It leaves results that were resent to the ring."""

    def take():
        datagram = np.frombuffer(script.waiting.pop(0), np.uint8)
        return ExchangeEvent.SEND, ring.handle_burst(datagram, datagram.size, datagram.size)

    segments = 64
    script = Script(lambda header, payload: [result(header, payload)])
    exchange = ScriptedExchange(script, lambda: (ExchangeEvent.SEND, 0), *[take] * segments)
    ring = Ring(script, MEMBER, backlog=16, exchange=exchange)
    ring.reduce(np.ones(segments * ELEMENTS, np.float32), Format.WINDOW64, 1.0)
    assert ring.window.size == WINDOW
