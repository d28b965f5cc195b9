"""Facts of docs/protocol.md against the golden switch. Those of the Python driver are in
`tests/host/driver/test_protocol_page.py`."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.wire import (
    JOB_VIEW,
    SLOT_VIEW,
    Action,
    Format,
    JobState,
    Outcome,
    Reason,
    SlotState,
    Type,
    job_view_register,
    slot_view_register,
    uplink_elements,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, parse
from sim.model.switch import Switch

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

    def send(self, client, frame):
        """Send a frame. Return its outcome, and the parsed frames that came back to its sender."""
        before = list(self.switch.outcomes)
        sent = self.switch.receive(client.port, frame, 0)
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
    """`tests/sim/model/test_tree_switch.py` shows that a leaf of 352 elements refuses 181 and accepts 180."""
    bench = Bench()
    [answer] = bench.send(bench.clients[0], bench.clients[0].read(0))[1]
    elements = int(answer.ack["registers"][7])
    assert (elements, uplink_elements(elements), uplink_elements(352)) == (16, 16, 180)
    assert parse(bench.switch.receive(0, bench.clients[0].read(0), 0)[0][1]).ack["action"] == Action.READ
