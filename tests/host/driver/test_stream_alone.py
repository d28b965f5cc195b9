"""The stream alone, against a transport that a test plays by hand. `test_stream.py` tests it with the golden switch."""

import dataclasses
import itertools
import weakref

import numpy as np
import pytest

from iswitch.driver.claims import Vector
from iswitch.driver.notices import MembershipRejectedError
from iswitch.driver.received_update import ReceivedUpdate
from iswitch.driver.stream import Stream
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.golden.egress import compose
from iswitch.wire import FLAGS_SHIFT, Collective, CollectiveKind, ContributionFlag, Format, Reason, ResultFlag, Type
from sim.bench.scripted_transport import ELEMENTS, MEMBER, Timed, flags, index, notice, result_at

LAYOUT = UpdateLayout(size=ELEMENTS + 1, elements=ELEMENTS, world=2)
M = LAYOUT.segments
SIZES = 4, 1, 4, 4
"""Elements of an update's segments: the vector's, then the trailer's."""
JOB = {"job": MEMBER.job, "epoch": MEMBER.epoch}
WANT = ContributionFlag.WANT
RESENT = ResultFlag.RESENT << FLAGS_SHIFT
ROUND_TRIP_S = 0.004


def begin(*, backlog=4, in_flight=None, **membership):
    """A member of a job with M = 4, S = 1 and a window of two updates."""
    member = dataclasses.replace(MEMBER, **{"format": Format.INT32, "staleness": 1, "segments": M} | membership)
    script = Timed()
    return Stream(script, member, LAYOUT, backlog=backlog, in_flight=in_flight), script


def served(stream, *bursts, after_s=0.0):
    """Let time pass and bursts come. Return the headers of what the stream sends then."""
    script = stream.transport
    script.time += after_s
    script.waiting += bursts
    before = len(script.sent)
    stream.serve()
    return script.sent[before:]


def results(*positions, flags=0, **fields):
    """Results, each of whose elements is its position."""
    format_flags = Format.INT32 | flags
    return [
        result_at(at, np.full(SIZES[at % M], at, np.int32).tobytes(), format_flags=format_flags, **fields)
        for at in positions
    ]


def abandoned(*positions):
    """Results of an update whose members have left."""
    return [result_at(at, bytes(4), identity=0, members=0, format_flags=Format.INT32) for at in positions]


def grant(update, members=0b10, **fields):
    base = (MEMBER.first_seq + M * update) % 2**32
    return compose.grant(**{**JOB, "token": MEMBER.job_token, "base": base, "members": members} | fields)


def refuse(number, **fields):
    return compose.refuse(**{**JOB, "k": number, "member": 1, "token": MEMBER.token, "base": 0} | fields)


def vector(version=0):
    return Vector(np.arange(5, dtype=np.int32), LAYOUT.empty_trailer(), version, ELEMENTS)


def granted(update=0, **options):
    """A stream whose vector was granted an update, and that has sent its contributions."""
    stream, script = begin(**options)
    stream.submit(vector())
    served(stream, grant(update))
    return stream, script


def kinds(headers):
    return [Type(int(header["version_type"]) & 15) for header in headers]


def places(headers):
    return [index(header) for header in headers]


# What it is asked for before it has anything


@pytest.mark.parametrize(
    ("evict_us", "pause_s"), [(0, 0.05), (100_000, 0.02), (1_000_000, 0.05)], ids=["never", "soon", "late"]
)
def test_the_lowest_result_is_requested_at_once_and_then_with_a_sign_of_life_in_a_fifth_of_the_eviction_time(
    evict_us, pause_s
):
    stream, script = begin(evict_us=evict_us)
    for _ in range(4):
        script.time += stream.serve()
    assert script.pauses == pytest.approx([pause_s] * 3)
    for header in script.sent:
        assert (*kinds([header]), index(header), header["behind"], flags(header)) == (Type.RECEIPT, 0, 0, WANT)


def test_the_backlog_is_above_the_staleness():
    begin(backlog=3, staleness=2)
    with pytest.raises(ValueError, match="backlog must be above the staleness, 2, not 2"):
        begin(backlog=2, staleness=2)


@pytest.mark.parametrize("update", [0, 1, 2, 5])
def test_updates_have_the_seqs_from_the_first_seq_on_modulo_2_to_the_32(update):
    stream, _ = begin()
    assert stream.seq_of(update) == (2**32 - 5 + 4 * update) % 2**32
    assert stream.update_of(stream.seq_of(update)) == update


def test_a_call_waits_for_the_first_burst_and_for_no_other():
    stream, script = begin()
    waits = []
    script.receive = lambda into, timeout_s, receive=script.receive: (
        waits.append(timeout_s),
        receive(into, timeout_s),
    )[1]
    script.waiting += results(0, 1)
    stream.serve(0.25)
    assert waits == [0.25, 0.0, 0.0]
    stream.serve()
    assert waits[3:] == [0.0]


def test_after_64_bursts_the_stream_sends_what_is_due():
    stream, script = begin(backlog=100, window=64)
    script.waiting += results(*range(70))
    stream.serve()
    assert len(script.waiting) == 6 and places(script.sent) == [64]
    stream.serve()
    assert not script.waiting


# Claims, GRANTs and REFUSEs


def test_a_granted_vector_leaves_at_once_as_the_contributions_of_its_update():
    stream, script = begin()
    stream.submit(vector())
    assert kinds(script.sent) == [Type.CLAIM]
    sent = served(stream, grant(1))
    assert kinds(sent) == [Type.CONTRIBUTION] * M and places(sent) == [4, 5, 6, 7]
    assert [Collective.from_word(int(header["members"])) for header in sent] == [
        ((MEMBER.first_seq + 4) % 2**24, CollectiveKind.UPDATE, M)
    ] * M
    assert not any(header["count"] for header in sent)  # no digest
    assert stream.progress == 1


@pytest.mark.parametrize(
    ("frame", "forged"),
    [
        (grant(0, members=0b01), 0),
        (grant(0, members=0b101), 0),
        (grant(0, token=0x5EEE), 1),
        (grant(0, members=0b01, token=0x5EEE), 1),
        (grant(0, job=2), 0),
        (grant(0, epoch=6), 0),
        (grant(0, job=2, token=0x5EEE), 0),
        (refuse(1, token=1), 0),
        (refuse(1, job=2), 0),
        (refuse(1, epoch=8), 0),
        (refuse(2), 0),
        (compose.ack(**JOB, seq=1, member=1, token=MEMBER.token), 0),
        (compose.ack(**JOB, seq=1, member=1, token=1), 0),
        (compose.control(**JOB, seq=1, member=1, token=1, ranks=0b10), 0),
    ],
)
def test_what_is_no_answer_to_this_members_claim_changes_nothing_and_a_forged_grant_is_counted(frame, forged):
    stream, _ = begin()
    stream.submit(vector())
    assert kinds(served(stream, frame)) == [Type.RECEIPT]  # the first request
    assert (stream.claims.pending, stream.claims.refused, stream.progress, stream.forged) == (1, 0, 0, forged)
    assert not stream.transfers
    sent = served(stream, grant(0))
    assert kinds(sent) == [Type.CONTRIBUTION] * M


def test_a_refused_vector_is_dropped_and_a_repeated_refusal_or_grant_is_not_new():
    stream, script = begin()
    stream.submit(vector())
    stream.submit(vector())
    served(stream, refuse(1))
    assert (stream.claims.refused, stream.claims.pending, stream.progress) == (2, 0, 1)
    served(stream, refuse(1), grant(0))
    assert stream.progress == 1 and not stream.transfers


def test_after_a_refusal_the_next_vector_is_claimed():
    stream, _ = begin()
    served(stream, *results(0, 1, 2, 3))
    stream.submit(vector(0))
    stream.submit(vector(1))
    sent = served(stream, refuse(1))
    assert [int(header["seq"]) for header in sent if kinds([header]) == [Type.CLAIM]] == [2]


@pytest.mark.parametrize(("evict_us", "pause_s"), [(0, 0.05), (100_000, 0.02)])
def test_a_claim_without_an_answer_is_repeated_as_often_as_a_request(evict_us, pause_s):
    stream, script = begin(evict_us=evict_us)
    stream.submit(vector())
    while script.time < 100.3:
        script.time += stream.serve()
    times = [time for time, kind in zip(script.times, kinds(script.sent)) if kind == Type.CLAIM]
    assert np.diff(times) == pytest.approx([pause_s] * (len(times) - 1)) and len(times) >= 6


def test_the_next_call_is_due_when_the_first_of_claim_and_request_is():
    stream, script = begin()
    assert stream.serve() == pytest.approx(0.05)
    script.time += 0.02
    stream.submit(vector())
    assert stream.serve() == pytest.approx(0.03)  # the request
    script.time += 0.01
    script.waiting += results(0)
    assert stream.serve() == pytest.approx(0.04)  # the claim: the result has begun the time-out anew


@pytest.mark.parametrize("complete", [0, 1])
def test_a_vector_contains_no_weights_of_updates_that_are_not_complete(complete):
    stream, script = begin()
    served(stream, *results(*range(M * complete + M - 1)))
    with pytest.raises(
        ValueError, match=f"must be at most {complete}, the updates that are complete, not {complete + 1}"
    ):
        stream.submit(vector(complete + 1))
    assert not stream.claims.pending and Type.CLAIM not in kinds(script.sent)
    stream.submit(vector(complete))
    assert stream.claims.pending == 1


# Results and updates


@pytest.mark.parametrize("order", [*itertools.permutations(range(M))])
def test_an_update_is_the_same_in_whatever_order_its_results_come(order):
    stream, _ = begin()
    for position in order:
        assert stream.take_update() is None and stream.updates_complete == 0
        served(stream, *results(position))
    assert (stream.updates_complete, stream.updates_ready) == (1, 1)
    update = stream.take_update()
    assert update.sum.tolist() == [0, 0, 0, 0, 1]
    assert update.trailer.view(np.int32).tolist() == [2] * 4 + [3] * 4
    assert (update.headers["members"] == 3).all()
    assert (stream.updates_complete, stream.updates_ready, stream.updates_taken) == (1, 0, 1)
    assert stream.take_update() is None and stream.updates_taken == 1


def test_updates_are_taken_one_after_the_other_although_the_later_one_is_complete_first():
    stream, _ = begin()
    served(stream, *results(4, 5, 6, 7))
    assert stream.take_update() is None and stream.updates_ready == 0
    served(stream, *results(0, 1, 2, 3))
    assert stream.updates_ready == 2
    assert [stream.take_update().sum.tolist() for _ in range(2)] == [[0, 0, 0, 0, 1], [4, 4, 4, 4, 5]]
    assert stream.updates_ready == 0


@pytest.mark.parametrize("positions", [(2, 3, 4), (0, 6), (0, 8), (2, 4, 10), (10, 2)], ids=str)
def test_one_burst_contains_results_of_several_updates(positions):
    stream, _ = begin()
    burst = results(*positions)
    served(stream, burst)
    served(stream, *results(*range(12)))
    taken = [stream.take_update() for _ in range(3)]
    elements = np.concatenate([np.r_[update.sum, update.trailer.view(np.int32)] for update in taken])
    assert elements.tolist() == np.repeat(np.arange(12), SIZES * 3).tolist()
    assert stream.bursts_received == 13 and stream.progress == 1 + 12 - len(positions)


def test_results_that_come_again_or_late_change_nothing():
    stream, _ = begin()
    served(stream, *results(0, 1, 2))
    other = [result_at(at, b"\xff" * 4 * SIZES[at % M], format_flags=Format.INT32) for at in range(3)]
    served(stream, *other, *results(3))
    served(stream, *other)
    assert stream.take_update().sum.tolist() == [0, 0, 0, 0, 1]
    served(stream, *other)
    assert stream.take_update() is None
    assert (stream.progress, stream.bursts_received, stream.low) == (4, 13, 4)


def test_an_update_that_lacks_a_member_says_so_and_one_of_no_member_is_zeros():
    stream, _ = begin()
    served(stream, *results(0, 1, 2, 3, members=0b10, flags=ResultFlag.PARTIAL << FLAGS_SHIFT), *abandoned(4, 5, 6, 7))
    first, second = (stream.take_update() for _ in range(2))
    assert (first.headers["members"] == 2).all() and first.sum.tolist() == [0, 0, 0, 0, 1]
    assert not second.headers["members"].any() and not second.sum.any()


def test_an_update_stays_the_next_one_until_it_is_taken_and_its_memory_is_free_afterwards():
    stream, _ = begin()
    served(stream, *results(0, 1, 2, 3, 4))
    assert stream.next_update() is stream.next_update()
    update = weakref.ref(stream.take_update())
    assert update() is not None
    assert stream.next_update() is None and update() is None
    served(stream, *results(5, 6, 7))
    assert stream.next_update().sum.tolist() == [4, 4, 4, 4, 5]


def test_updates_above_all_results_take_no_memory(monkeypatch):
    made = []
    monkeypatch.setattr(
        "iswitch.driver.stream.ReceivedUpdate", lambda *layout: made.append(ReceivedUpdate(*layout)) or made[-1]
    )
    stream, _ = begin()
    for position in (0, 1, 3, 4, 7):
        served(stream, *results(position))
        assert len(made) == 1 + position // M


def test_results_two_windows_above_the_lowest_lacked_one_are_ignored():
    """The switch has no slots for them."""
    stream, _ = begin(backlog=8)
    served(stream, *results(15), *results(16))
    assert stream.progress == 1 and stream.ledger.high == 16


def test_a_result_of_another_size_is_an_error_and_tears_nothing():
    stream, _ = begin()
    with pytest.raises(MismatchError, match="differs in size or number format"):
        served(stream, result_at(1, bytes(8), format_flags=Format.INT32))
    assert not stream.section.is_torn and not stream.low


def test_a_member_that_contributes_to_another_update_has_another_size():
    stream, script = granted()
    theirs = Collective(9, CollectiveKind.UPDATE, 7)
    conflict = notice(script.sent[-1], count=Reason.COLLECTIVE, members=theirs.word)
    with pytest.raises(MismatchError, match=r"7 segments \(modulo 16\) at another worker, 4 at this one"):
        served(stream, conflict)
    assert not stream.section.is_torn


def test_after_a_refusal_the_stream_is_ready_once_an_update_is_complete_that_the_refused_weights_lack():
    stream, _ = begin()
    served(stream, *results(*range(M)))
    stream.submit(vector(version=1))
    assert stream.is_ready
    served(stream, refuse(1))
    assert not stream.is_ready
    served(stream, *results(*range(M, 2 * M - 1)))
    assert not stream.is_ready
    served(stream, *results(2 * M - 1))
    assert stream.is_ready
    stream.submit(vector(version=1))  # of the weights before: the switch need not be asked
    assert stream.claims.refused == 2
    stream.submit(vector(version=2))
    assert stream.is_ready
    stream.submit(vector(version=2))
    assert not stream.is_ready  # the pipeline is full


def test_a_notice_that_rejects_the_member_is_raised_and_one_of_a_halted_job_noted():
    stream, script = granted()
    assert not stream.halted
    served(stream, notice(script.sent[-1], count=Reason.HALTED))
    assert stream.halted
    with pytest.raises(MembershipRejectedError):
        served(stream, notice(script.sent[-1]))
    assert not stream.section.is_torn


@pytest.mark.parametrize("where", ["submit", "burst", "send"])
def test_an_exception_of_a_signal_handler_in_the_middle_is_noted(where, monkeypatch):
    stream, script = begin()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        *{"submit": (script, "send"), "burst": (stream, "store"), "send": (stream.claims, "send")}[where], interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        stream.submit(vector()) if where == "submit" else served(stream, *results(0))
    assert stream.section.is_torn


def test_a_full_pipeline_tears_nothing():
    stream, _ = begin()
    stream.submit(vector())
    stream.submit(vector())
    with pytest.raises(ValueError, match="pipeline"):
        stream.submit(vector())
    assert not stream.section.is_torn


# The backlog


def test_results_above_the_backlog_are_dropped_until_the_program_takes_an_update_and_then_requested_at_once():
    stream, script = begin(backlog=2)
    served(stream, *results(*range(9)))
    assert (stream.low, stream.updates_ready) == (8, 2)
    asked = served(stream, after_s=0.05)  # a time-out
    assert asked and not any(flags(header) & WANT for header in asked)
    assert not served(stream)
    stream.take_update()
    (again,) = served(stream)
    assert (index(again), flags(again)) == (8, WANT)
    assert not served(stream)
    served(stream, *results(8))
    assert stream.low == 9


def test_nothing_is_requested_when_an_update_is_taken_and_nothing_was_dropped():
    stream, _ = begin(backlog=2)
    served(stream, *results(*range(8)))
    stream.take_update()
    assert not served(stream)


def test_what_was_dropped_is_requested_when_the_backlog_has_room_and_not_before():
    stream, _ = begin(backlog=2)
    served(stream, *results(*range(8)))
    for _ in range(3):
        assert not served(stream, *results(8))
    stream.take_update()
    assert places(served(stream)) == [8]


def test_what_was_dropped_is_not_requested_before_all_results_below_it_have_come():
    stream, _ = begin(backlog=2, window=32)
    served(stream)
    served(stream, *results(0, 1, 2, 3, 4, 6))
    for position in (8, 9):
        assert not served(stream, *results(position))
    stream.take_update()
    assert not served(stream)
    sent = served(stream, *results(5, 7))
    assert [index(header) for header in sent if flags(header) & WANT] == [8]
    assert not served(stream)


def test_what_was_dropped_is_requested_at_once_although_something_new_comes_too():
    stream, _ = begin(backlog=2, window=32)
    served(stream, *results(*range(9)))
    stream.take_update()
    sent = served(stream, *results(9))
    assert [index(header) for header in sent if flags(header) & WANT] == [8]


# Requests for results whose coming nothing else shows


def test_the_result_after_one_of_an_abandoned_update_is_requested_at_once():
    """The members of the update have left, so it ends only because the others request its results."""
    stream, script = begin()
    served(stream)
    for position in range(M):
        (header,) = served(stream, *abandoned(position))[-1:]
        assert (index(header), flags(header)) == (position + 1, WANT)
    served(stream, *results(4))
    assert not [header for header in script.sent if index(header) > 4]


def test_the_successor_is_requested_only_if_the_lowest_lacked_result_has_come():
    stream, _ = begin()
    served(stream)
    assert not served(stream, *abandoned(2))
    assert not served(stream, *abandoned(1))
    assert places(served(stream, *abandoned(0))) == [3]


def test_a_burst_of_which_one_result_is_abandoned_requests_the_next_one():
    stream, _ = begin(window=32)
    served(stream)
    burst = [result_at(at, bytes(4), members=members, format_flags=Format.INT32) for at, members in ((0, 0), (1, 2))]
    assert places(served(stream, burst)) == [2]


@pytest.mark.parametrize("flag", [0, RESENT])
def test_where_the_newest_result_was_sent_again_so_may_be_the_next(flag):
    """The one before it was lost, or sent before this member was admitted."""
    stream, _ = begin(window=32)
    served(stream)
    for position in range(3):
        assert places(served(stream, *results(position, flags=flag))) == [position + 1] * bool(flag)


def test_a_result_that_was_sent_again_below_others_says_nothing_of_the_next():
    stream, _ = begin(window=32)
    served(stream)
    served(stream, *results(2))
    assert not served(stream, *results(1, flags=RESENT))
    assert not served(stream, *results(0, flags=RESENT))


def test_a_result_that_was_sent_again_causes_no_request_where_this_member_contributes_to_the_next():
    stream, script = granted(window=32)
    for position in range(M - 1):
        assert not served(stream, *results(position, flags=RESENT))
    sent = served(stream, *results(M - 1, flags=RESENT))
    assert places(sent) == [M] and kinds(sent) == [Type.RECEIPT] and flags(sent[0]) == WANT


def test_a_result_that_was_sent_again_causes_no_request_in_the_next_burst():
    stream, _ = begin(window=32)
    served(stream)
    served(stream, *results(0, flags=RESENT))
    assert not served(stream, *results(1))


# Lost results


def test_before_this_member_has_contributed_overtaken_results_are_requested_after_a_millisecond():
    stream, script = begin()
    served(stream)
    script.waiting += results(1)
    assert stream.serve() == pytest.approx(0.001)
    assert places(served(stream, after_s=0.001)) == [0]
    stream, script = begin()
    script.waiting += results(0)
    assert stream.serve() == pytest.approx(0.05)


def test_a_member_that_has_contributed_waits_for_its_own_time_out():
    stream, script = granted()
    served(stream, *results(0), after_s=ROUND_TRIP_S)
    script.time += ROUND_TRIP_S
    script.waiting += results(2)
    assert stream.serve() == pytest.approx(3 * ROUND_TRIP_S)  # the delay, and four deviations of half of it


@pytest.mark.parametrize(("held", "requested"), [((0, 1, 3), [2]), ((0, 2), []), ((0, 2, 3), [1])], ids=str)
def test_one_later_result_shows_that_a_result_is_lost_if_it_is_the_last_of_an_update(held, requested):
    """In the middle of an update three are needed: the network may reorder."""
    stream, _ = granted(window=32)
    served(stream, *results(held[0]), after_s=ROUND_TRIP_S)
    sent = served(stream, *results(*held[1:]), after_s=ROUND_TRIP_S)
    assert places(sent) == requested and kinds(sent) == [Type.CONTRIBUTION] * len(requested)


@pytest.mark.parametrize(
    ("in_flight", "held", "requested"),
    [
        (None, (), [0]),
        (None, (2,), [0, 1]),
        (None, (3,), [0, 1, 2]),
        (2, (6,), [0, 2]),
        (2, (1, 6), [0, 2]),
        (1, (6,), [0, 1]),
        (100, (14,), [0, 8]),
        (None, (14,), [0, 8]),
    ],
    ids=str,
)
def test_a_time_out_requests_the_lowest_and_the_last_result_that_lie_in_the_window(in_flight, held, requested):
    stream, script = begin(in_flight=in_flight)
    served(stream)
    served(stream, *results(*held))
    script.time = 200
    assert places(served(stream)) == requested


def test_a_time_out_in_an_own_update_requests_its_lowest_and_its_last_result():
    stream, script = granted(in_flight=3)
    served(stream, *results(0), after_s=ROUND_TRIP_S)
    sent = served(stream, after_s=0.2)
    assert kinds(sent) == [Type.CONTRIBUTION] * 2 and places(sent) == [1, 3]
    assert all(flags(header) & ContributionFlag.RETRANSMISSION for header in sent)


def test_contributions_keep_to_the_window_although_all_results_were_sent_again():
    """They may be of updates to which this member does not contribute, so they say nothing of its own burst."""
    stream, _ = begin(backlog=100, window=64)
    for first in range(0, 128, 32):
        served(stream, *results(*range(first, first + 32), flags=RESENT))
    assert stream.window.size == 64


@pytest.mark.parametrize(("in_flight", "size"), [(None, 8), (3, 3), (8, 8), (9, 8)])
def test_no_more_contributions_are_in_flight_than_the_switch_and_the_socket_have_room_for(in_flight, size):
    stream, script = begin(in_flight=in_flight)
    stream.submit(vector())
    served(stream, grant(0))
    stream.submit(vector())
    served(stream, grant(1))
    assert places([header for header in script.sent if kinds([header]) == [Type.CONTRIBUTION]]) == list(range(size))


# Receipts


def test_a_complete_update_is_acknowledged_at_once_and_part_of_one_is_not():
    """A slot can be blocked until this member's receipt. A quarter of the window is two updates."""
    stream, _ = begin(window=32)
    served(stream)
    for update in range(2):
        assert not served(stream, *results(*range(M * update, M * update + 3)))
        (receipt,) = served(stream, *results(M * update + 3))
        assert (*kinds([receipt]), index(receipt), receipt["behind"], flags(receipt)) == (
            Type.RECEIPT,
            M * update + M,
            0,
            0,
        )


def test_a_quarter_of_the_window_is_acknowledged_at_once():
    stream, _ = begin()
    served(stream)
    assert not served(stream, *results(0))
    assert places(served(stream, *results(1))) == [2]


# How regularly the program runs the driver


def test_the_longest_pause_of_the_program_is_known_until_the_switch_accepts_a_later_contribution():
    """The switch evicts a member for a pause; a contribution that it accepted shows that it did not."""
    stream, script = begin()
    served(stream)
    served(stream, after_s=3.0)
    assert stream.activity.longest_s == 3.0
    served(stream, *results(*range(M)), after_s=0.1)  # others' update
    stream.submit(vector())
    served(stream, grant(1), after_s=0.1)
    served(stream, *results(4, 5, 6), after_s=0.1)
    assert stream.activity.longest_s == 3.0
    served(stream, *results(7), after_s=0.1)
    assert stream.activity.longest_s == 0.0
    stream.submit(vector())
    served(stream, grant(2), after_s=0.1)
    served(stream, after_s=2.0)
    served(stream, *results(8, 9, 10, 11))
    assert stream.activity.longest_s == 2.0  # the contribution left before the pause


def test_a_complete_update_frees_its_place_in_the_pipeline():
    stream, _ = begin()
    for _ in range(2):
        stream.submit(vector())
    served(stream, grant(0))
    served(stream, grant(1))
    for complete in range(2):
        served(stream, *results(*range(M * complete, M * complete + 3)))
        assert stream.claims.pending == 2 - complete
        served(stream, *results(M * complete + 3))
        assert stream.claims.pending == 1 - complete
        assert [own.update for own in stream.transfers] == [1][complete:]
