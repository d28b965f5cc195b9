"""Facts of docs/protocol.md against the golden switch. Those of the Python driver are in
`tests/host/driver/test_protocol_page.py`."""

import re
from copy import copy
from pathlib import Path

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.switch import Switch
from iswitch.wire import (
    JOB_VIEW,
    MEMBER_VIEW,
    SILENCE_TICK_US,
    SLOT_VIEW,
    AckRegister,
    Action,
    Format,
    JobState,
    MemberState,
    Outcome,
    Reason,
    SlotState,
    Type,
    job_view_register,
    member_view_register,
    slot_view_register,
    uplink_elements,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, parse

CONFIG = Config(ports=4, bus_bits=64, members=4, jobs=2, window=4, elements=16)
W = CONFIG.window


class Bench:
    """A switch and the workers of a job, one at each port, that have all joined."""

    def __init__(self, workers=2, *, seed=3, **settings):
        self.switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed)
        self.clients = [Client.numbered(k) for k in range(workers)]
        for _ in range(3):
            for client in self.clients:
                self.send(client, client.join(**{"world": workers, "elements": 16, "format": Format.INT32} | settings))

    def send(self, client, frame, now_us=0):
        """Send a frame. Return its outcome, and the parsed frames that came back to its sender."""
        before = list(self.switch.outcomes)
        sent = self.switch.receive(client.port, frame, now_us)
        [outcome] = [Outcome(k) for k, count in enumerate(self.switch.outcomes) if count != before[k]]
        return outcome, [client.take(copy) for port, copy in sent if copy[:6] == client.mac]

    def add(self, client, seq, numbers=(1,), **fields):
        dtype = np.float32 if client.format != Format.INT32 else np.int32
        return self.send(client, client.contribution(seq, np.array(numbers, dtype), **fields))

    def row(self, record, address):
        values = []
        for at in range(0, record.itemsize // 4, 8):
            [answer] = self.send(self.clients[0], self.clients[0].read(address + at))[1]
            values.append(answer.ack["registers"].astype("<u4"))
        return np.concatenate(values).view(record)[0]


# Limits of `behind`


@pytest.mark.parametrize(("behind", "outcome"), [(W - 1, Outcome.ADDED), (W, Outcome.WINDOW), (0xFFFF, Outcome.WINDOW)])
def test_a_contribution_is_less_than_a_window_ahead(behind, outcome):
    bench = Bench()
    one = bench.clients[0]
    assert bench.add(one, one.first_seq + W - 1, behind=behind)[0] == outcome


@pytest.mark.parametrize(("behind", "outcome"), [(W, Outcome.RECEIPT), (W + 1, Outcome.WINDOW)])
def test_a_receipt_is_at_most_a_window_ahead(behind, outcome):
    bench = Bench()
    one = bench.clients[0]
    assert bench.send(one, one.receipt(one.first_seq + behind, behind=behind))[0] == outcome


# Slots that were never opened


def test_slots_begin_on_the_lap_before_the_first_seq():
    bench = Bench()
    one = bench.clients[0]
    for k in range(2 * W):
        slot = bench.row(SLOT_VIEW, slot_view_register(0, (one.first_seq + k) % (2 * W)))
        assert (slot["seq"], slot["state"]) == ((one.first_seq + k - 2 * W) % 2**32, SlotState.EMPTY)
    assert bench.add(one, one.first_seq - 1)[0] == Outcome.STALE
    assert bench.add(one, one.first_seq + 2 * W)[0] == Outcome.WINDOW
    assert bench.add(one, one.first_seq)[0] == Outcome.ADDED


@pytest.mark.parametrize("seed", [0, 1, 2**31 + 1, 2**63 + 12345])
def test_the_first_seq_is_any_multiple_of_the_ring(seed):
    """A small seed may give 0; others do not."""
    bench = Bench(seed=seed)
    assert {client.first_seq % (2 * W) for client in bench.clients} == {0}
    assert len({client.first_seq for client in bench.clients}) == 1
    assert bench.clients[0].first_seq or seed < 2**31


# Fields that the switch ignores


@pytest.mark.parametrize("format_flags", [0x00, 0x0F, 0x70])
def test_the_format_of_receipts_and_control_messages_is_ignored(format_flags):
    bench = Bench()
    one, two = bench.clients
    bench.add(one, one.first_seq), bench.add(two, one.first_seq)
    assert bench.send(one, one.receipt(one.first_seq, format_flags=format_flags)) == (Outcome.RECEIPT, [])
    outcome, [result] = bench.send(one, one.receipt(one.first_seq, format_flags=format_flags | 0x80))
    assert outcome == Outcome.RECEIPT and result.type == Type.RESULT
    assert bench.send(one, one.set_h(1, format_flags=format_flags | 0x80))[1][0].reason == Reason.DONE
    assert bench.switch.jobs[0].settings.threshold == 1


# Numbers


@pytest.mark.parametrize(("format", "fraction"), [(Format.WINDOW64, -126), (Format.FP32, 44)])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_overflowing_sum_is_an_infinity_and_nobody_is_tainted(format, fraction, sign):
    bench = Bench(format=format, fraction=fraction)
    one, two = bench.clients
    bench.add(one, one.first_seq, [sign * 3e38])
    outcome, [result] = bench.add(two, one.first_seq, [sign * 3e38])
    assert outcome == Outcome.ADDED and result.numbers.view("<f4").tolist() == [sign * np.inf]
    assert not int(result.header["tainted"]) and not result.flags


# Rows


def test_the_row_of_a_job_has_all_settings_but_its_secrets():
    bench = Bench(segments=5, staleness=2, threshold=1, evict_us=1 << 20)
    job = bench.row(JOB_VIEW, job_view_register(0))
    assert (job["state"], job["segments"], job["staleness"], job["threshold"]) == (JobState.RUNNING, 5, 2, 1)
    assert bench.clients[0].key and bench.clients[0].token
    for secret in (bench.clients[0].key, bench.clients[0].nonce, bench.clients[0].token):
        assert secret.to_bytes(8, "little").rstrip(b"\0") not in job.tobytes()


# A lost GRANT, and a lost last result


def test_a_member_that_knows_of_no_grant_wants_the_lowest_result_that_it_lacks():
    bench = Bench(segments=2, staleness=1, threshold=1)
    one, two = bench.clients
    base = one.first_seq
    wants = two.receipt(base, want=True)
    assert bench.send(two, wants) == (Outcome.RECEIPT, [])  # not granted: no answer, and no harm
    assert bench.send(one, one.claim(1, base))[0] == Outcome.CONTROL  # member 1 receives neither the GRANT ...
    for k in range(2):
        bench.add(one, base + k, behind=k)  # ... nor the results
    outcome, [result] = bench.send(two, wants)
    assert outcome == Outcome.RECEIPT and (result.type, int(result.header["seq"])) == (Type.RESULT, base)
    outcome, [result] = bench.send(two, two.receipt(base + 1, want=True))
    assert int(result.header["seq"]) == base + 1
    assert bench.send(two, two.receipt(base + 2, want=True)) == (Outcome.RECEIPT, [])


# Elements in a tree


def test_the_elements_in_a_tree_follow_from_the_register():
    """`tests/host/golden/test_tree_switch.py` shows that a leaf of 352 elements refuses 181 and accepts 180."""
    bench = Bench()
    [answer] = bench.send(bench.clients[0], bench.clients[0].read(0))[1]
    elements = int(answer.ack["registers"][7])
    assert (elements, uplink_elements(elements), uplink_elements(352)) == (16, 16, 180)
    assert parse(bench.switch.receive(0, bench.clients[0].read(0), 0)[0][1]).ack["action"] == Action.READ


# What is answered

PAGE = (Path(__file__).parents[3] / "docs/protocol.md").read_text(encoding="utf-8")


def answers():
    """Return the column "answered" of the page's tables of checks, by the name of the counter."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| .* \| ([^|]*) \|$", PAGE[PAGE.index("## 3.") :], re.MULTILINE)
    return {name: answer for name, answer in rows if name in Outcome.__members__}


def forged(bench, **changes):
    """Return a contribution to the first segment whose sender is not the one of the Join."""
    one = copy(bench.clients[0])
    vars(one).update(changes)
    return one.contribution(one.first_seq, np.array([1], np.int32))


def of_member(bench, seq=0, numbers=(1,), **fields):
    one = bench.clients[0]
    return one.contribution(one.first_seq + seq, np.array(numbers, np.int32), **fields)


REFUSED = {
    Outcome.SPOOFED: lambda b: forged(b, mac=SWITCH_MAC),
    Outcome.VERSION: lambda b: of_member(b, version_type=0x30),
    Outcome.LENGTH: lambda b: of_member(b, numbers=range(17)),
    Outcome.UDP_CHECKSUM: lambda b: of_member(b)[:-1] + b"\x7f",
    Outcome.TYPE: lambda b: b.clients[0].claim(1, 0),
    Outcome.JOB: lambda b: of_member(b, job=1),
    Outcome.EPOCH: lambda b: of_member(b, epoch=b.clients[0].epoch ^ 1),
    Outcome.MEMBER: lambda b: of_member(b, member=3),
    Outcome.TOKEN: lambda b: of_member(b, token=b.clients[0].token ^ 1),
    Outcome.PORT: lambda b: of_member(b),
    Outcome.ADDRESS: lambda b: forged(b, udp_port=9),
    Outcome.FORMAT: lambda b: of_member(b, format=Format.FP32),
    Outcome.WINDOW: lambda b: of_member(b, seq=2 * W),
    Outcome.STALE: lambda b: of_member(b, seq=-1),
}


@pytest.mark.parametrize("outcome", REFUSED, ids=lambda outcome: outcome.name)
def test_refusals_are_answered_as_the_page_says(outcome):
    bench = Bench()
    frame = REFUSED[outcome](bench)
    port = bench.clients[0].port + (outcome == Outcome.PORT)
    sent = bench.switch.receive(port, frame, 0)
    assert bench.switch.outcomes[outcome] == 1
    said = answers()[outcome.name]
    assert said == (f"NOTICE {parse(sent[0][1]).reason.value}" if sent else "no")


def test_a_forming_job_and_a_held_slot_answer_nothing():
    bench = Bench(2, threshold=1)
    one, two = bench.clients
    for k in range(2):  # member 0 goes on without member 1, which acknowledges nothing
        for seq in range(W):
            bench.add(one, one.first_seq + k * W + seq)
    assert bench.add(one, one.first_seq + 2 * W) == (Outcome.SLOT_HELD, [])
    lone = Client.numbered(3, job=1)
    for _ in range(2):
        bench.send(lone, lone.join(world=2, elements=16, format=Format.INT32))
    assert bench.add(lone, 0) == (Outcome.FORMING, [])
    assert [answers()[name] for name in ("SLOT_HELD", "FORMING")] == ["no", "no"]


def test_halted_and_another_collective_are_answered():
    bench = Bench()
    one, two = bench.clients
    bench.add(one, one.first_seq, collective=5)
    outcome, [notice] = bench.add(two, two.first_seq, collective=6)
    assert (outcome, int(notice.header["members"])) == (Outcome.COLLECTIVE, 5)
    assert answers()["COLLECTIVE"] == f"NOTICE {notice.reason.value}"
    bench.send(one, one.control(Action.HALT, {"mode": 1}, seq=1))
    outcome, [notice] = bench.add(one, one.first_seq)
    assert outcome == Outcome.HALTED and answers()["HALTED"] == f"NOTICE {notice.reason.value}"


# Joins


def joined(bench, client, **changes):
    """Return the acknowledgement of a client's Join, of which some settings are changed."""
    settings = dict(client.settings)
    answer = bench.send(client, client.join(**settings | changes))[1][-1]
    client.settings = settings
    return answer


def test_the_first_seq_of_a_synchronous_member_does_not_move_on():
    bench = Bench()
    one, two = bench.clients
    first = one.first_seq
    for k in range(3):
        bench.add(one, first + k, behind=0), bench.add(two, first + k, behind=0)
    assert int(joined(bench, one).ack["first_seq"]) == first


def test_a_reset_changes_the_epoch_and_keeps_the_token_of_the_job():
    bench = Bench()
    one = bench.clients[0]
    before = joined(bench, one)
    [answer] = bench.send(one, one.reset())[1]
    assert answer.header["epoch"] == before.header["epoch"] + 1
    after = joined(bench, one)
    assert after.ack["registers"][AckRegister.JOB_TOKEN] == before.ack["registers"][AckRegister.JOB_TOKEN] != 0
    assert after.ack["first_seq"] == before.ack["first_seq"]


def test_a_member_that_has_moved_finds_out_whether_it_is_a_member():
    bench = Bench()
    one = bench.clients[0]
    right, wrong = one.challenge, one.challenge ^ 0xFFFFFFFF
    one.udp_port += 1
    assert joined(bench, one, key=one.key ^ 1, challenge=wrong).reason == Reason.KEY
    assert joined(bench, one, challenge=wrong).reason == Reason.CHALLENGE
    assert joined(bench, one, challenge=right).reason == Reason.DONE
    other = Client.numbered(3)
    other.settings = dict(one.settings)
    assert joined(bench, other, key=one.key ^ 1, challenge=wrong).reason == Reason.CHALLENGE


@pytest.mark.parametrize("action", [Action.RESUME, Action.END])
def test_the_header_of_a_command_by_key_names_the_job_alone(action):
    bench = Bench()
    one = bench.clients[0]
    body = {"key": one.key, "challenge": one.challenge}
    [answer] = bench.send(one, one.control(action, body, member=0, token=0, epoch=0, seq=0))[1]
    assert answer.reason == Reason.DONE


def test_a_seed_of_the_page_gives_a_first_seq_just_below_2_to_the_32():
    [seed] = re.findall(r"--seed (\d+)", PAGE)
    switch = Switch(Config(), mac=SWITCH_MAC, ip=SWITCH_IP, seed=int(seed))
    client = Client.numbered(0)
    for _ in range(2):
        for _, frame in switch.receive(0, client.join(world=1, elements=16, format=Format.INT32), 0):
            client.take(frame)
    assert client.first_seq == 2**32 - 128


# Signs of life, and jobs that dead members leave behind

EVICT_US = 1 << 20


def silence(bench, member, now_us):
    [answer] = bench.send(bench.clients[0], bench.clients[0].read(member_view_register(0, member)), now_us)[1]
    return int(answer.ack["registers"].astype("<u4").view(MEMBER_VIEW)[0]["silent"])


@pytest.mark.parametrize(
    ("message", "lives"),
    [
        (lambda c: c.receipt(c.first_seq), True),
        (lambda c: c.contribution(c.first_seq - 1, np.array([1], np.int32)), True),
        (lambda c: c.join(), True),
        (lambda c: c.set_h(2), False),
        (lambda c: c.read(0), False),
    ],
    ids=["receipt", "contribution that is too old", "Join", "SET_H", "READ"],
)
def test_signs_of_life(message, lives):
    bench = Bench(evict_us=EVICT_US)
    bench.send(bench.clients[0], message(bench.clients[0]), EVICT_US)
    assert silence(bench, 0, EVICT_US) == (0 if lives else EVICT_US // SILENCE_TICK_US)


def test_an_evicted_member_learns_of_it_when_it_sends():
    bench = Bench(evict_us=EVICT_US)
    one, two = bench.clients
    late = 2 * EVICT_US
    bench.add(one, one.first_seq)
    frame = one.contribution(one.first_seq, np.array([1], np.int32))
    assert not [reply for reply in bench.send(one, frame, late)[1] if reply.type == Type.NOTICE]
    outcome, [notice] = bench.send(two, two.receipt(two.first_seq), late)
    assert (outcome, notice.reason) == (Outcome.MEMBER, Reason.MEMBER)


def test_a_joining_member_ends_no_job_of_silent_members_and_is_joining_until_another_worker_takes_the_last_place():
    bench = Bench(evict_us=EVICT_US)
    one, two = bench.clients
    bench.send(two, two.leave())
    joining, late = Client.numbered(2), 4 * EVICT_US
    joining.settings = dict(one.settings)
    for _ in range(2):
        bench.send(joining, joining.join(), EVICT_US)
    assert joining.is_member and bench.switch.jobs[0].state == JobState.RUNNING
    _, [answer] = bench.send(joining, joining.join(), late)
    assert answer.reason == Reason.DONE and answer.ack["standing"] == MemberState.JOINING
    last = Client.numbered(3)
    last.settings = dict(one.settings)
    for reason in (Reason.CHALLENGE, Reason.CHALLENGE, Reason.DONE):
        _, [answer] = bench.send(last, last.join(), late)
        assert answer.reason == reason
    for reason in (Reason.CHALLENGE, Reason.DONE)[joining.challenge == last.challenge :]:
        _, [answer] = bench.send(joining, joining.join(), late)
        assert answer.reason == reason
    assert answer.ack["standing"] == MemberState.LIVE and answer.ack["state"] == JobState.RUNNING


# Asynchronous jobs


def test_a_segment_that_no_member_opened_has_no_identity():
    bench = Bench(segments=2, staleness=1, threshold=1)
    one, two = bench.clients
    bench.send(one, one.claim(1, one.first_seq))
    bench.send(one, one.leave())
    outcome, [result] = bench.send(two, two.receipt(two.first_seq, want=True))
    assert outcome == Outcome.RECEIPT and not result.header["members"] and not result.flags
    assert int(result.tail["identity"]) == 0 and result.numbers.tolist() == [0]
