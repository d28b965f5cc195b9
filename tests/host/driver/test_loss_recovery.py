"""The engine of loss recovery with a user that stores nothing. `test_ring.py` and `test_stream_alone.py` test both real
users of it."""

import dataclasses

import numpy as np
import pytest

from iswitch.driver.loss_recovery import LossRecovery
from iswitch.driver.packing import Payloads
from iswitch.driver.transfer import Transfer
from iswitch.driver.window import SendWindow
from iswitch.wire import FLAGS_SHIFT, HEADER, Collective, CollectiveKind, ContributionFlag, Format, ResultFlag, Type
from sim.bench.scripted_transport import ELEMENTS, MEMBER, Timed, flags, index, result_at

RESENT = ResultFlag.RESENT << FLAGS_SHIFT | MEMBER.format
AGAIN, WANT = ContributionFlag.RETRANSMISSION, ContributionFlag.WANT


class Member(LossRecovery):
    """A user of the engine that has some transfers, and room for all results."""

    limit, last_held = 1000, False

    def __init__(self, *transfers, **membership):
        super().__init__(Timed())
        self.start(**membership)
        self.transfers = transfers

    def start(self, **membership):
        member = dataclasses.replace(MEMBER, **membership)
        self.begin(member, reach=2 * member.window, cap_s=1.0, window=SendWindow(member.window))

    def store(self, results):
        pass

    def transfer_at(self, position):
        return next((transfer for transfer in self.transfers if transfer.begin <= position < transfer.end), None)

    @property
    def requestable_end(self):
        return max([self.ledger.high, *(transfer.next for transfer in self.transfers)])

    def sends(self, work, *arguments, after_s=0.0):
        """Let time pass, and the engine do something now. Return the headers of what it sends."""
        script, before = self.transport, len(self.transport.sent)
        script.time += after_s
        work(*arguments, script.time)
        return script.sent[before:]

    def arrive(self, *positions, after_s=0.0, **fields):
        """Let time pass and results come."""
        self.transport.time += after_s
        self.transport.waiting.append([result_at(position, **fields) for position in positions])
        return self.receive(0.0)


def transfer(begin, segments, *, part=None):
    """Contributions to segments from `begin` on."""
    parts = part or Payloads(np.zeros(ELEMENTS * segments, np.float32), ELEMENTS)
    made = Transfer((parts,))
    made.place(begin, (int(MEMBER.format),), Collective(0, CollectiveKind.UPDATE, segments % 16), digest=0)
    return made


def test_bursts_that_wait_are_received_by_one_call_which_counts_their_new_results():
    member = Member()
    member.transport.waiting += [[result_at(0)], [result_at(0)], [result_at(1), result_at(2)]]
    assert member.receive_waiting() == 3 and member.low == 3


def described(headers):
    """Return type, position, flags but `boundary`, and `behind` of each datagram."""
    return [
        (
            Type(int(header["version_type"]) & 15),
            index(header),
            flags(header) & ~ContributionFlag.BOUNDARY,
            int(header["behind"]),
        )
        for header in headers
    ]


def contributions(*positions, low=0, again=0):
    return [(Type.CONTRIBUTION, position, again, position - low) for position in positions]


def receipts(*positions, low=0, want=WANT):
    return [(Type.RECEIPT, position, want, position - low) for position in positions]


# What is sent


def test_a_member_that_has_begun_has_nothing_to_send_and_drops_what_it_had():
    member = Member(transfer(0, 3))
    member.start()
    assert not member.sends(member.send_new) and not member.transfers


def test_contributions_to_results_that_have_come_early_are_not_sent():
    member = Member(transfer(0, 6))
    member.arrive(2, 3)
    assert described(member.sends(member.send_new)) == contributions(0, 1, 4, 5)


def test_a_transfer_that_the_window_keeps_back_has_not_begun():
    first, second = transfer(0, 8), transfer(8, 2)
    member = Member(first, second)
    assert described(member.sends(member.send_new)) == contributions(*range(8))
    assert (first.first_sent_at, second.first_sent_at, second.next) == (100.0, 0.0, 8)
    member.arrive(0)
    assert described(member.sends(member.send_new, after_s=1.0)) == contributions(8, low=1)
    assert (first.first_sent_at, second.first_sent_at) == (100.0, 101.0)


def test_a_request_is_a_contribution_where_this_member_has_sent_one_and_otherwise_a_receipt():
    """A segment of its own that it has never sent is not requested: its contribution follows."""
    own = transfer(3, 3)
    member = Member(own, window=16)
    member.sends(member.send_new)
    own.next = 5
    sent = member.sends(member.request, np.arange(2, 7))
    assert described(sent) == contributions(3, 4, again=AGAIN) + receipts(2, 6)
    assert member.retransmissions == 2


def test_a_contribution_that_is_sent_again_says_how_far_it_is_above_the_lowest_lacked_result():
    member = Member(transfer(2, 4))
    member.sends(member.send_new)
    member.arrive(0, 1)
    assert described(member.sends(member.request, np.array([3, 5]))) == contributions(3, 5, low=2, again=AGAIN)


@pytest.mark.parametrize(("format", "sizes"), [(Format.WINDOW64, {16}), (Format.FP32, {16}), (Format.BF16, {8, 16})])
def test_bursts_are_as_long_as_the_transport_allows_for_datagrams_of_each_size(format, sizes):
    """In a job of a half-width format, the state has elements of 4 bytes."""
    asked, payload_bytes = [], []
    member = Member()
    member.transport.burst_segments = lambda segment_bytes: asked.append(segment_bytes) or 3
    member.transport.answer = lambda header, payload: payload_bytes.append(len(payload)) or ()
    member.start(format=format)
    assert sorted(asked) == sorted(HEADER.itemsize + size for size in sizes)
    for size in sorted(sizes):
        elements = np.zeros(ELEMENTS, f"u{size // ELEMENTS}")
        member.transfers = [transfer(0, 1, part=Payloads(elements, ELEMENTS, elements.itemsize))]
        member.sends(member.send_new)
    assert payload_bytes == sorted(sizes)


# What is acknowledged


@pytest.mark.parametrize(("window", "quarter"), [(1, 1), (2, 1), (4, 1), (8, 2), (12, 3), (15, 3), (16, 4), (20, 5)])
def test_a_receipt_is_due_after_a_quarter_of_the_window(window, quarter):
    member = Member(window=window)
    for lap in range(3):
        for position in range(quarter):
            assert not member.receipt_due
            member.arrive(lap * quarter + position)
        assert member.receipt_due
        low = (lap + 1) * quarter
        assert described(member.sends(lambda now: member.acknowledge())) == receipts(low, low=low, want=0)


def test_contributions_acknowledge_results_as_a_receipt_does():
    member = Member(transfer(2, 4))
    member.arrive(0, 1)
    assert member.receipt_due
    assert member.sends(member.send_new) and not member.receipt_due
    member.arrive(2, 3)
    assert member.receipt_due
    assert member.sends(member.request, np.array([4])) and not member.receipt_due


def test_what_is_not_sent_acknowledges_nothing():
    """All has been sent, or all results of the transfer have come before it began."""
    member = Member(transfer(0, 2))
    member.sends(member.send_new)
    member.arrive(0, 1)
    assert not member.sends(member.send_new) and member.receipt_due
    member.transfers = [transfer(3, 2)]
    member.arrive(3, 4)
    assert not member.sends(member.send_new) and member.receipt_due


# What results say of the network


def test_a_result_that_the_switch_has_sent_again_proves_loss():
    member = Member()
    member.arrive(0)
    assert not member.timer.lossy
    member.arrive(1, format_flags=RESENT)
    assert member.timer.lossy


@pytest.mark.parametrize(("resent", "size"), [(15, 16), (16, 8)])
def test_the_window_narrows_if_the_switch_has_sent_a_quarter_of_the_results_again(resent, size):
    member = Member(window=16)
    for position in range(64):
        member.arrive(position, format_flags=RESENT if position < resent else int(MEMBER.format))
    assert member.window.size == size


def test_pauses_from_before_the_membership_do_not_count():
    member = Member()
    member.transport.time += 5.0
    member.start()
    member.activity.mark(member.transport.time)
    assert member.activity.longest_s == 0.0


# Delays and time-outs


def test_the_first_result_of_a_transfer_says_how_long_it_took_since_the_first_contribution():
    own = transfer(0, 3)
    member = Member(own)
    member.sends(member.send_new)
    member.arrive(1, after_s=0.03)
    member.sends(member.proceed)
    assert own.first_result_at == pytest.approx(100.03) and member.timer.delay_s is None
    member.arrive(0, after_s=0.004)
    member.sends(member.proceed)
    assert member.timer.delay_s is None  # of a contribution before the one that was measured


def test_a_first_result_whose_delay_is_not_known_is_that_of_its_own_transfer():
    """A contribution that was sent twice has no delay."""
    first, second = transfer(0, 2), transfer(2, 2)
    member = Member(first, second)
    member.sends(member.send_new)
    member.sends(member.request, np.arange(4))
    member.arrive(2)
    member.sends(member.proceed, after_s=0.01)
    assert first.first_result_at is None and second.first_result_at == pytest.approx(100.01)


def test_a_delay_is_measured_once():
    member = Member(transfer(0, 4))
    member.sends(member.send_new)
    for position in (0, 1):
        member.arrive(position, after_s=0.004)
        member.sends(member.proceed)
    delay_s = member.timer.delay_s
    assert delay_s == pytest.approx(0.004)
    member.sends(member.request, np.array([2]))
    member.arrive(2, after_s=0.1)  # sent twice: no delay
    member.sends(member.proceed)
    assert member.timer.delay_s == delay_s


def test_the_answer_to_a_requesting_receipt_has_a_delay():
    member = Member()
    member.sends(member.request, np.array([0]))
    member.arrive(0, after_s=0.004, format_flags=RESENT)
    member.sends(member.proceed)
    assert member.timer.delay_s == pytest.approx(0.004)


def test_a_contribution_has_a_delay_although_a_receipt_has_requested_its_result_before():
    """The switch answers the receipt when the slot is complete, and the slot waits for the contribution."""
    member = Member()
    member.sends(member.request, np.array([0, 1]))
    member.transfers = [transfer(0, 3)]
    member.sends(member.send_new, after_s=0.01)
    for position, after_s in ((0, 0.03), (1, 0.004)):
        member.arrive(position, after_s=after_s)
        member.sends(member.proceed)
    assert member.timer.delay_s == pytest.approx(0.004)


def test_the_time_out_before_the_first_result_of_a_transfer_allows_for_the_slowest_workers_computation():
    own = transfer(0, 4)
    member = Member(own)
    member.timer.add_first_delay(0.2)
    member.timer.add_delay(0.001)
    first_s, later_s = member.timer.first_timeout_s, member.timer.timeout_s
    assert first_s > 10 * later_s
    member.sends(member.proceed)
    assert member.expiry == pytest.approx(100 + first_s)
    own.first_result_at = 100.0
    member.sends(member.proceed)
    assert member.expiry == pytest.approx(100 + later_s)
    member.transfers = []
    member.sends(member.proceed)
    assert member.expiry == pytest.approx(100 + later_s)


def test_time_outs_double_until_something_new_comes():
    member = Member()
    member.expiry, rests = 100.05, []
    for _ in range(3):
        member.sends(member.expire, after_s=member.expiry - member.transport.time)
        rests.append(member.expiry - member.transport.time)
    member.sends(member.proceed)
    rests.append(member.expiry - member.transport.time)
    assert rests == pytest.approx([0.1, 0.2, 0.25, 0.05])
