"""The golden model against sums computed in another way, and every counter of every scenario, zeros included."""

import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.golden.switch import Switch
from iswitch.wire import (
    MAGIC,
    NO_MEMBER,
    SILENCE_TICK_US,
    UDP_PORT,
    VERSION,
    Action,
    ContributionFlag,
    Format,
    JobState,
    Mode,
    Outcome,
    Reason,
    Register,
    ResultFlag,
    Type,
)
from sim.bench.hosts import Host, arp_request, echo_request
from sim.bench.oracle import nearest_half, window64_sum
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary, udp_frame

CONFIG = Config(ports=4, members=4, jobs=2, window=2, elements=16, half_width=True)
RNG = np.random.default_rng(1)


class Bench:
    """A switch and some workers. `log` holds each worker's replies since it was last emptied."""

    def __init__(
        self, workers: int = 2, *, seed: int = 7, ports: dict[int, int] | None = None, **settings: int
    ) -> None:
        self.switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed)
        self.clients = [Client.numbered(k, port=(ports or {}).get(k, k)) for k in range(workers)]
        self.log = {client.mac: [] for client in self.clients}
        self.now_us = 0
        self.settings = {"world": workers, "elements": 16} | settings

    def send(self, client: Client, frame: bytes, *, port: int | None = None) -> list[tuple[int, bytes]]:
        sent = self.switch.receive(client.port if port is None else port, frame, self.now_us)
        for egress, copy in sent:
            for other in self.clients:
                if copy[:6] == other.mac:
                    assert egress == other.port
                    self.log[other.mac].append(other.take(copy))
        return sent

    def join(self) -> "Bench":
        for client in self.clients:
            self.send(client, client.join(**self.settings))
        for client in self.clients:
            self.send(client, client.join())
        assert all(self.log[client.mac][-1].reason == Reason.DONE for client in self.clients)
        return self.forget()

    def forget(self) -> "Bench":
        """Empty the logs, and let `changes` count from now on."""
        for replies in self.log.values():
            replies.clear()
        self.counted = self.switch.counters()
        return self

    def replies(self, client: Client) -> list:
        replies, self.log[client.mac] = self.log[client.mac], []
        return replies

    def changes(self) -> dict[str, int]:
        """Return every counter that has changed since `forget`."""
        return {
            name: count - self.counted[name]
            for name, count in self.switch.counters().items()
            if count != self.counted[name]
        }


def test_a_job_runs_when_all_have_joined():
    bench = Bench(3, ports={2: 1})
    answers = []
    for client in bench.clients * 2:
        bench.send(client, client.join(**bench.settings))
        answers += bench.replies(client)
    assert [reply.reason for reply in answers] == [Reason.CHALLENGE] * 3 + [Reason.DONE] * 3
    assert [int(reply.ack["live"]) for reply in answers] == [0, 0, 0, 1, 2, 3]
    states = [JobState.NONE] * 3 + [JobState.FORMING] * 2 + [JobState.RUNNING]
    assert [int(reply.ack["state"]) for reply in answers] == states
    assert [client.member for client in bench.clients] == [0, 1, 2]
    assert {client.job_token for client in bench.clients} == {bench.clients[0].proposed_job_token}
    last = answers[-1].ack
    assert (last["window"], last["elements"], last["members"], last["threshold"]) == (2, 16, 4, 3)
    assert last["first_seq"] % CONFIG.slots == 0
    zeros = dict.fromkeys(bench.switch.counters(), 0)
    assert bench.switch.counters() == zeros | {
        "outcome.REFUSED": 3,
        "outcome.CONTROL": 3,
        "port0.RX_FRAMES": 2,
        "port0.TX_FRAMES": 2,
        "port1.RX_FRAMES": 4,
        "port1.TX_FRAMES": 4,
    }


def test_int32_sum_is_numpys():
    bench = Bench(3, format=Format.INT32).join()
    terms = RNG.integers(-(2**31), 2**31, (3, 16), dtype=np.int64).astype(np.int32)
    for client, numbers in zip(bench.clients, terms):
        bench.send(client, client.contribution(client.first_seq, numbers))
    for client in bench.clients:
        (reply,) = bench.replies(client)
        assert reply.type == Type.RESULT
        assert np.array_equal(reply.numbers.view(np.int32), terms.sum(axis=0, dtype=np.int32))
        assert (reply.header["members"], reply.flags, reply.header["member"]) == (7, 0, 255)
    assert bench.changes() == {"outcome.ADDED": 3, "stat.RESULTS": 1} | {
        f"port{p}.{way}_FRAMES": 1 for p in range(3) for way in ("RX", "TX")
    }


def test_window64_sum_is_that_of_fractions_in_any_order():
    fraction = 44
    terms = (RNG.standard_normal((2, 16)) * 10.0 ** RNG.integers(-12, 4, (2, 16))).astype(np.float32)
    truth = [window64_sum(column, fraction) for column in terms.view(np.uint32).T.tolist()]
    for order in ((0, 1), (1, 0)):
        bench = Bench(2, fraction=fraction).join()
        for k in order:
            client = bench.clients[k]
            bench.send(client, client.contribution(client.first_seq, terms[k]))
        (reply,) = bench.replies(bench.clients[0])
        assert reply.numbers.tolist() == truth


@pytest.mark.parametrize(("format", "fraction"), [(Format.BF16, 44), (Format.FP16, 24), (Format.FP16, 42)])
def test_a_half_width_sum_is_that_of_fractions_rounded_once_to_two_bytes(format, fraction):
    numbers = RNG.standard_normal((2, 16)).astype(np.float32) * np.float32(10.0) ** RNG.integers(-3, 4, (2, 16))
    if format == Format.BF16:
        terms = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        values = (terms.astype(np.uint32) << 16).view(np.float32)
    else:
        terms = numbers.astype(np.float16).view(np.uint16)
        values = terms.view(np.float16)
    scale = Fraction(2) ** fraction
    sums = [sum(round(Fraction(float(x)) * scale) for x in column) / scale for column in values.T]
    for order in ((0, 1), (1, 0)):
        bench = Bench(2, fraction=fraction, format=format).join()
        for k in order:
            client = bench.clients[k]
            bench.send(client, client.contribution(client.first_seq, terms[k]))
        (reply,) = bench.replies(bench.clients[0])
        assert reply.numbers.dtype.itemsize == 2
        assert reply.numbers.tolist() == [nearest_half(total, format) for total in sums]


@pytest.mark.parametrize(
    ("size", "outcome"), [(0, "LENGTH"), (2, "LENGTH"), (4, "ADDED"), (30, "LENGTH"), (32, "ADDED"), (36, "LENGTH")]
)
def test_a_half_width_payload_is_a_multiple_of_four_bytes_of_at_most_two_an_element(size, outcome):
    bench = Bench(2, format=Format.BF16).join()
    client = bench.clients[0]
    bench.send(client, client.contribution(client.first_seq, bytes(size)))
    assert bench.changes() == {f"outcome.{outcome}": 1, "port0.RX_FRAMES": 1}


@pytest.mark.parametrize(("format", "outcome"), [(Format.INT32, "ADDED"), (Format.FP16, "FORMAT"), (1, "FORMAT")])
def test_a_half_width_job_sums_its_format_and_int32(format, outcome):
    bench = Bench(2, format=Format.BF16).join()
    client = bench.clients[0]
    bench.send(
        client, client.contribution(client.first_seq, bytes(64 if format == Format.INT32 else 32), format=format)
    )
    assert bench.changes() == {f"outcome.{outcome}": 1, "port0.RX_FRAMES": 1}


@pytest.mark.parametrize("format", [Format.BF16, Format.FP16])
def test_a_switch_without_half_width_formats_refuses_a_job_of_one(format):
    bench = Bench(2)
    bench.switch = Switch(replace(CONFIG, half_width=False), mac=SWITCH_MAC, ip=SWITCH_IP, seed=7)
    one = bench.clients[0]
    one.challenge = bench.switch.jobs[0].challenge
    bench.send(one, one.join(world=2, elements=16, format=format, fraction=40))
    assert bench.replies(one)[-1].reason == Reason.FORMAT


def test_a_term_that_rounds_to_zero_is_counted():
    bench = Bench(2, fraction=10).join()
    for client in bench.clients:
        bench.send(client, client.contribution(client.first_seq, np.array([2**-12, 0, 1], np.float32)))
    assert bench.changes()["stat.TERMS_FLUSHED"] == 2
    assert list(bench.replies(bench.clients[0])[0].numbers.view(np.float32)) == [0, 0, 2]


def test_fp32_adds_in_order_of_arrival():
    bench = Bench(3, format=Format.FP32).join()
    for client, number in zip(bench.clients, (1e8, 1.0, -1e8)):
        bench.send(client, client.contribution(client.first_seq, np.array([number], np.float32)))
    assert bench.replies(bench.clients[0])[0].numbers.view(np.float32)[0] == 0.0


def test_sums_continue_when_seq_and_the_ring_wrap():
    first_seq = 2**32 - 2 * CONFIG.slots
    bench = Bench(2, seed=seed_for_first_seq(first_seq, epoch=0xFFFF), format=Format.INT32).join()
    assert [client.first_seq for client in bench.clients] == [first_seq] * 2
    for k in range(5 * CONFIG.slots):
        for client in bench.clients:
            bench.send(client, client.contribution(first_seq + k, np.array([k, 1], np.int32)))
        for client in bench.clients:
            (reply,) = bench.replies(client)
            assert reply.header["seq"] == (first_seq + k) % 2**32
            assert list(reply.numbers) == [2 * k, 2]
    assert bench.changes()["outcome.ADDED"] == 10 * CONFIG.slots


def test_retransmissions_are_not_added_and_get_a_lost_result_again():
    bench = Bench(2, format=Format.INT32).join()
    one, other = bench.clients
    frame = one.contribution(one.first_seq, np.array([5], np.int32))
    again = one.contribution(one.first_seq, np.array([5], np.int32), flags=ContributionFlag.RETRANSMISSION)
    for copy in (frame, again, frame):
        bench.send(one, copy)
    assert bench.replies(one) == []
    bench.send(other, other.contribution(one.first_seq, np.array([6], np.int32)))
    (result,) = bench.replies(one)
    bench.send(one, again)
    (resent,) = bench.replies(one)
    assert (result.flags, resent.flags) == (0, ResultFlag.RESENT)
    assert list(resent.numbers) == list(result.numbers) == [11]
    assert len(bench.replies(other)) == 1
    bench.send(other, other.receipt(one.first_seq, want=True))
    bench.send(other, other.receipt(one.first_seq + 1, behind=0, want=True))
    assert len(bench.replies(other)) == 1
    assert bench.changes() == {
        "outcome.ADDED": 2,
        "outcome.DUPLICATE": 3,
        "outcome.RECEIPT": 2,
        "stat.RESULTS": 1,
        "stat.RESENT": 2,
        "port0.RX_FRAMES": 4,
        "port0.TX_FRAMES": 2,
        "port1.RX_FRAMES": 3,
        "port1.TX_FRAMES": 2,
    }


def test_partial_results_and_late_contributions():
    bench = Bench(3, threshold=2, format=Format.INT32).join()
    first_seq, (slow, *fast) = bench.clients[0].first_seq, bench.clients
    for k in range(CONFIG.slots + 1):
        for client in fast:
            bench.send(client, client.contribution(first_seq + k, np.array([1], np.int32)))
    assert bench.changes()["outcome.SLOT_HELD"] == 2
    assert [(int(r.header["members"]), r.flags) for r in bench.replies(slow)] == [
        (6, ResultFlag.PARTIAL)
    ] * CONFIG.slots
    bench.forget()
    bench.send(slow, slow.contribution(first_seq, np.array([1], np.int32)))
    bench.send(slow, slow.receipt(first_seq + 2, behind=2))
    bench.send(fast[0], fast[0].contribution(first_seq + CONFIG.slots, np.array([1], np.int32)))
    bench.send(slow, slow.receipt(first_seq + 1))
    bench.send(fast[0], fast[0].contribution(first_seq + CONFIG.slots, np.array([1], np.int32)))
    bench.send(slow, slow.contribution(first_seq, np.array([1], np.int32)))
    assert {name: count for name, count in bench.changes().items() if name.startswith(("outcome", "stat"))} == {
        "outcome.LATE": 1,
        "outcome.RECEIPT": 2,
        "outcome.SLOT_HELD": 1,
        "outcome.ADDED": 1,
        "outcome.STALE": 1,
        "stat.RESENT": 1,
    }


def test_a_leave_completes_waiting_slots_and_its_retransmission_is_acknowledged_again():
    bench = Bench(3, format=Format.INT32).join()
    stays, also, leaves = bench.clients
    for client in (stays, also):
        for seq in (0, 1):
            bench.send(client, client.contribution(client.first_seq + seq, np.array([3], np.int32)))
    bench.send(leaves, leaves.leave())
    bench.send(leaves, leaves.leave(seq=1))
    for client in (stays, also):
        results = bench.replies(client)
        assert [(int(r.header["seq"] - client.first_seq), int(r.header["members"]), r.flags) for r in results] == [
            (0, 3, 0),
            (1, 3, 0),
        ]
        assert all(list(r.numbers) == [6] for r in results)
    assert [(r.type, r.reason, int(r.ack["live"])) for r in bench.replies(leaves)] == [(Type.ACK, Reason.DONE, 2)] * 2
    bench.send(leaves, leaves.contribution(leaves.first_seq + 2, np.array([3], np.int32)))
    assert bench.replies(leaves)[0].reason == Reason.MEMBER
    assert bench.changes() == {
        "outcome.ADDED": 4,
        "outcome.CONTROL": 2,
        "outcome.MEMBER": 1,
        "stat.RESULTS": 2,
        "stat.FORCED": 2,
        "stat.NOTICES": 1,
        "port0.RX_FRAMES": 2,
        "port0.TX_FRAMES": 2,
        "port1.RX_FRAMES": 2,
        "port1.TX_FRAMES": 2,
        "port2.RX_FRAMES": 3,
        "port2.TX_FRAMES": 3,
    }
    for client in (stays, also):
        bench.send(client, client.leave())
    assert bench.replies(also)[-1].ack["state"] == JobState.NONE
    bench.send(also, also.leave(seq=1))
    assert bench.replies(also)[-1].reason == Reason.JOB


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 2.0**14])
def test_quarantine_excludes_the_contribution(poison):
    bench = Bench(3).join()
    bad, *good = bench.clients
    for client in (bad, *good):
        number = poison if client is bad else 2.0
        bench.send(client, client.contribution(client.first_seq, np.array([1.0, number], np.float32)))
    (reply,) = bench.replies(bad)
    assert list(reply.numbers.view(np.float32)) == [2.0, 4.0]
    assert (reply.header["members"], reply.header["tainted"]) == (6, 1)
    assert reply.flags == ResultFlag.PARTIAL | ResultFlag.TAINTED
    assert {k: v for k, v in bench.changes().items() if not k.startswith("port")} == {
        "outcome.ADDED": 2,
        "outcome.QUARANTINED": 1,
        "stat.RESULTS": 1,
    }


def test_all_quarantined_is_zeros_with_count_zero():
    bench = Bench(2).join()
    for seq in range(2):
        for client in bench.clients:
            bench.send(client, client.contribution(client.first_seq + seq, np.full(4, np.nan, np.float32)))
    for reply in bench.replies(bench.clients[0]):
        assert list(reply.numbers) == [0] * 4
        assert (reply.header["members"], reply.header["tainted"]) == (0, 3)
    assert bench.changes()["stat.FORCED"] == 2


def test_propagate_marks_the_element():
    bench = Bench(2, mode=Mode.PROPAGATE).join()
    for client, number in zip(bench.clients, (np.nan, 1.0)):
        bench.send(client, client.contribution(client.first_seq, np.array([number, 1.0], np.float32)))
    (reply,) = bench.replies(bench.clients[0])
    assert list(reply.numbers) == [0x7FC00000, np.float32(2).view(np.uint32)]
    assert (reply.header["members"], reply.header["tainted"], reply.flags) == (3, 1, ResultFlag.TAINTED)


def test_workers_of_one_port_each_get_a_copy_in_order():
    bench = Bench(4, ports={0: 2, 1: 1, 2: 2, 3: 1}, format=Format.INT32).join()
    for client in bench.clients:
        sent = bench.send(client, client.contribution(client.first_seq, np.array([1], np.int32)))
    assert [(port, copy[5]) for port, copy in sent] == [(1, 1), (1, 3), (2, 0), (2, 2)]


def test_a_reset_empties_slots_and_is_announced_by_notices():
    bench = Bench(2, format=Format.INT32).join()
    one, other = bench.clients
    bench.send(other, other.contribution(other.first_seq, np.array([9], np.int32)))
    bench.send(one, one.reset())
    bench.send(one, one.reset(seq=1))
    assert [int(r.header["epoch"]) for r in bench.replies(one)] == [(one.epoch + 1) % 2**16] * 2
    bench.send(other, other.contribution(other.first_seq, np.array([1], np.int32)))
    (notice,) = bench.replies(other)
    assert (notice.type, notice.reason, notice.header["token"]) == (Type.NOTICE, Reason.EPOCH, other.token)
    for client in bench.clients:
        bench.send(client, client.join())
        bench.replies(client)
        bench.send(client, client.contribution(client.first_seq, np.array([1], np.int32)))
    assert list(bench.replies(one)[0].numbers) == [2]


@pytest.mark.parametrize("operator_key", [0, 0x6F7065726174], ids=["job's key", "operator's key"])
def test_a_key_and_the_present_challenge_end_a_job(operator_key):
    bench = Bench(2).join()
    bench.switch.operator_key = operator_key
    unknown_host = Client.numbered(3)
    bench.clients.append(unknown_host)
    bench.log[unknown_host.mac] = []
    bench.send(unknown_host, unknown_host.end_job())
    right = {"key": 0, "operator_key": operator_key} if operator_key else {"key": unknown_host.key}
    for keys in ({"key": operator_key}, {"key": 0, "operator_key": 1}, right):
        bench.send(unknown_host, end := unknown_host.end_job(**keys))
    assert bench.switch.jobs[0].state == JobState.NONE
    bench.send(unknown_host, end)
    assert [r.reason for r in bench.replies(unknown_host)] == [
        Reason.CHALLENGE,
        Reason.KEY,
        Reason.KEY,
        Reason.DONE,
        Reason.JOB,
    ]


def test_a_captured_end_does_not_end_the_next_job_with_the_key():
    bench = Bench(2).join()
    operator = bench.clients[1]
    captured = operator.end_job()
    bench.send(operator, captured)
    assert bench.switch.jobs[0].state == JobState.NONE
    for client in bench.clients:
        client.forget(client.nonce + 1)
    bench.join()
    bench.send(operator, captured)
    assert bench.switch.jobs[0].state == JobState.RUNNING


def test_a_captured_first_join_creates_nothing_after_the_job_has_ended():
    bench = Bench(1)
    (one,) = bench.clients
    one.challenge = bench.switch.jobs[0].challenge
    captured = one.join(**bench.settings)
    bench.send(one, captured)
    bench.send(one, captured)
    assert [int(reply.ack["state"]) for reply in bench.replies(one)] == [JobState.RUNNING] * 2
    bench.send(one, one.leave())
    bench.send(one, captured)
    assert bench.replies(one)[-1].reason == Reason.CHALLENGE
    assert bench.switch.jobs[0].state == JobState.NONE


@pytest.mark.parametrize("evict_us", [0, 10 * SILENCE_TICK_US])
@pytest.mark.parametrize("world", [1, 2, 3], ids=["running", "running, two of them", "half formed"])
def test_a_job_whose_members_are_all_silent_yields_to_joins_that_it_refuses(world, evict_us):
    """A host that wanted nothing, programs that were killed: after `evict_us`, or 2^29 us, or an hour."""
    for key, settings in ((0x6B6579, {}), (1, {}), (0x6B6579, {"elements": 8}), (0x6B6579, {"member": 0})):
        bench = Bench(min(world, 2), world=world, evict_us=evict_us).join()
        new = Client.numbered(3, key=key)
        bench.clients.append(new)
        bench.log[new.mac] = []
        bench.now_us = 1000
        new.challenge = bench.switch.jobs[0].challenge
        asked = new.join(**bench.settings | settings)
        if world == 3 and not settings and key == 0x6B6579:
            continue  # such a Join is granted
        bench.send(new, asked)
        first = bench.replies(new)[-1].reason
        assert first not in (Reason.DONE, Reason.CHALLENGE)
        bench.now_us = 3_600_000_000 if evict_us == 0 else evict_us + 2 * SILENCE_TICK_US
        bench.send(new, asked)
        if world == 3 and settings == {"member": 0}:
            assert bench.replies(new)[-1].reason == Reason.DONE  # the silent member's entry yields
            continue
        assert bench.replies(new)[-1].reason == Reason.CHALLENGE
        if world == 2 and key == 0x6B6579 and "elements" not in settings:
            assert bench.switch.jobs[0].live == 0b10  # a worker of the same program: its place is free
        else:
            assert bench.switch.jobs[0].state == JobState.NONE
        bench.send(new, new.join())
        assert bench.replies(new)[-1].reason == Reason.DONE


ASYNCHRONOUS = {"segments": 2, "staleness": 1}


@pytest.mark.parametrize("settings", [{}, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("member", [NO_MEMBER, 2])
def test_an_evicted_worker_that_comes_again_after_an_outage_ends_no_job(member, settings):
    """The switch has heard no member for longer than `evict_us`, but they live."""
    bench = Bench(3, evict_us=10 * SILENCE_TICK_US, **settings).join()
    *others, evicted = bench.clients
    bench.send(evicted, evicted.leave())
    evicted.forget(evicted.nonce + 1)
    bench.now_us = 100 * SILENCE_TICK_US
    for _ in range(3):
        bench.send(evicted, evicted.join(**bench.settings, member=member))
    assert bench.switch.jobs[0].state == JobState.RUNNING and bench.switch.jobs[0].live == 0b011
    for client in others:
        bench.send(client, client.contribution(client.first_seq, ONE, flags=ContributionFlag.BOUNDARY))
    assert bench.switch.jobs[0].live == 0b111


def test_a_worker_that_joins_an_asynchronous_job_after_an_outage_has_no_live_member_evicted():
    """They have not acknowledged an update, so the joining member waits for them."""
    bench = Bench(3, evict_us=10 * SILENCE_TICK_US, **ASYNCHRONOUS).join()
    *others, evicted = bench.clients
    bench.send(evicted, evicted.leave())
    evicted.forget(evicted.nonce + 1)
    for client in others:
        bench.send(client, client.claim(1, client.first_seq))
    bench.now_us = 100 * SILENCE_TICK_US
    for _ in range(4):
        bench.send(evicted, evicted.join(**bench.settings))
    assert bench.switch.jobs[0].live == 0b011 and bench.switch.jobs[0].ring.joining == 0b100
    bench.send(others[0], others[0].claim(1, others[0].first_seq))
    bench.send(evicted, evicted.join(**bench.settings))
    assert bench.switch.jobs[0].live == 0b001  # one was heard, and the other was not


@pytest.mark.parametrize("settings", [{}, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("wanted", [(0, 1, 2), (2, 1, 0), (NO_MEMBER,) * 3])
def test_a_program_whose_workers_were_killed_starts_again_with_the_same_key(wanted, settings):
    """With the place of the last one, the job ends. Until then it holds those that have come as joining members."""
    bench = Bench(3, evict_us=10 * SILENCE_TICK_US, **settings).join()
    bench.now_us = 100 * SILENCE_TICK_US
    again = [Client.numbered(10 + k, port=k) for k in range(3)]
    for client in again:
        bench.clients.append(client)
        bench.log[client.mac] = []
    live = []
    for _ in range(3):
        for client, member in zip(again, wanted):
            for _ in range(3):
                bench.send(client, client.join(**bench.settings, member=member))
            live.append(bench.switch.jobs[0].live.bit_count())
    assert live[:3] == [2, 1, 1] and live[-1] == 3  # the third one has created the next job
    assert bench.switch.jobs[0].state == JobState.RUNNING
    assert {entry.nonce for entry in bench.switch.jobs[0].entries} == {client.nonce for client in again}


@pytest.mark.parametrize("change", [{"port": 2}, {"ip": bytes([10, 0, 0, 7])}, {"udp_port": 5}])
def test_a_member_that_moves_is_told_and_its_join_binds_it_to_the_new_address(change):
    bench = Bench(2).join()
    one, other = bench.clients
    challenge = one.challenge
    for name, value in change.items():
        setattr(other, name, value)
    bench.send(other, other.contribution(other.first_seq, ONE))
    (notice,) = bench.replies(other)
    assert notice.type == Type.NOTICE and notice.reason in (Reason.PORT, Reason.ADDRESS)
    other.challenge = 0
    bench.send(other, other.join())
    assert bench.replies(other)[-1].reason == Reason.CHALLENGE
    bench.send(other, other.join())
    assert bench.replies(other)[-1].reason == Reason.DONE
    for client in bench.clients:
        bench.send(client, client.contribution(client.first_seq, ONE))
    assert [bench.replies(client)[-1].type for client in bench.clients] == [Type.RESULT] * 2
    assert bench.switch.jobs[0].challenge == challenge + 1


def test_set_h_acts_on_the_next_contribution():
    bench = Bench(3, format=Format.INT32).join()
    one, other, third = bench.clients
    bench.send(one, one.contribution(one.first_seq, np.array([1], np.int32)))
    bench.send(one, one.set_h(1))
    assert [(r.type, int(r.ack["threshold"])) for r in bench.replies(one)] == [(Type.ACK, 1)]
    bench.send(other, other.contribution(one.first_seq, np.array([1], np.int32)))
    assert bench.replies(third)[0].header["members"] == 3
    for bad in (0, 4):
        bench.send(one, one.set_h(bad))
        assert bench.replies(one)[-1].reason == Reason.THRESHOLD
    bench.send(one, one.set_h(2, seq=0))
    assert bench.replies(one)[-1].reason == Reason.NUMBER


def test_after_set_h_a_retransmission_completes_a_slot_that_has_enough():
    bench = Bench(3, format=Format.INT32).join()
    one, other, third = bench.clients
    for client in (one, other):
        bench.send(client, client.contribution(one.first_seq, np.array([5], np.int32)))
    bench.send(one, one.set_h(2))
    assert not [r for r in bench.replies(one) if r.type == Type.RESULT]
    bench.send(
        other, other.contribution(one.first_seq, np.array([99], np.int32), flags=ContributionFlag.RETRANSMISSION)
    )
    for client in bench.clients:
        [result] = [r for r in bench.replies(client) if r.type == Type.RESULT]
        assert (result.numbers.tolist(), result.header["members"], result.flags) == ([10], 3, ResultFlag.PARTIAL)
    assert bench.changes()["outcome.DUPLICATE"] == 1
    bench.send(third, third.contribution(one.first_seq, np.array([7], np.int32)))
    assert bench.changes()["outcome.LATE"] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"job": 2}, Reason.JOB),
        ({"world": 0}, Reason.WORLD),
        ({"world": 5}, Reason.WORLD),
        ({"world": 3, "threshold": 3}, Reason.WORLD),
        ({"threshold": 0}, Reason.THRESHOLD),
        ({"threshold": 3}, Reason.THRESHOLD),
        ({"threshold": 1}, Reason.THRESHOLD),
        ({"format": 0}, Reason.FORMAT),
        ({"format": 4}, Reason.FORMAT),
        ({"format": 7}, Reason.FORMAT),
        ({"format": Format.INT32}, Reason.FORMAT),
        ({"format": Format.BF16}, Reason.FORMAT),
        ({"format": Format.BF16, "fraction": 150}, Reason.FRACTION),
        ({"format": Format.FP16}, Reason.FRACTION),
        ({"format": Format.FP16, "fraction": 23}, Reason.FRACTION),
        ({"format": Format.FP16, "fraction": 42}, Reason.FORMAT),
        ({"fraction": -127}, Reason.FRACTION),
        ({"fraction": 150}, Reason.FRACTION),
        ({"fraction": 43}, Reason.FRACTION),
        ({"elements": 0}, Reason.ELEMENTS),
        ({"elements": 17}, Reason.ELEMENTS),
        ({"elements": 15}, Reason.ELEMENTS),
        ({"mode": 2}, Reason.MODE),
        ({"mode": Mode.PROPAGATE}, Reason.MODE),
        ({"deadline_us": 1}, Reason.DEADLINE),
        ({"deadline_us": 2**31}, Reason.DEADLINE),
        ({"evict_us": 2**14}, Reason.EVICT),
        ({"evict_us": 2**14 - 1}, Reason.EVICT),
        ({"evict_us": 2**29}, Reason.EVICT),
        ({"key": 1}, Reason.KEY),
        ({"member": 0}, Reason.MEMBER),
        ({"member": 1}, Reason.DONE),
        ({"member": 2}, Reason.MEMBER),
        ({"challenge": 9}, Reason.CHALLENGE),
    ],
)
def test_a_join_is_refused_with_the_reason(change, reason):
    bench = Bench(2)
    one, other = bench.clients
    one.challenge = other.challenge = bench.switch.jobs[0].challenge
    bench.send(one, one.join(**bench.settings))
    settings = dict(bench.settings)
    head = {"member": change.get("member", NO_MEMBER)}
    settings |= {name: value for name, value in change.items() if name not in ("member", "job")}
    other.job = change.get("job", 0)
    bench.forget()
    bench.send(other, other.join(**settings, **head))
    (reply,) = bench.replies(other)
    assert reply.reason == reason
    assert bench.changes() == {
        "port1.RX_FRAMES": 1,
        "port1.TX_FRAMES": 1,
        "outcome.REFUSED" if reason else "outcome.CONTROL": 1,
    }
    if reason:
        assert (reply.header["member"], reply.header["token"]) == (head["member"], other.token)


def test_other_refusals():
    bench = Bench(2).join()
    one, other = bench.clients
    late = Client.numbered(3)
    bench.clients.append(late)
    bench.log[late.mac] = []
    late.challenge = one.challenge
    cases = [
        (late, late.join(**bench.settings), Reason.MEMBER),
        (late, late.join(challenge=late.challenge + 1, **bench.settings), Reason.CHALLENGE),
        (one, one.join(token=one.token ^ 2, **bench.settings), Reason.MEMBER),
        (one, one.leave(job=1), Reason.JOB),
        (one, one.leave(member=3), Reason.MEMBER),
        (one, one.leave(member=77), Reason.MEMBER),
        (one, one.leave(token=0), Reason.TOKEN),
        (other, other.leave(member=one.member, token=one.token), Reason.MEMBER),
        (one, one.control(0), Reason.ACTION),
        (one, one.control(10), Reason.ACTION),
        (one, one.reset(member=NO_MEMBER), Reason.MEMBER),
        (one, one.fbcast(one.first_seq), Reason.SEQ),
        (one, one.reset(epoch=one.epoch + 1), Reason.EPOCH),
        (one, one.set_h(1, seq=2**31 + 1), Reason.NUMBER),
        (one, one.set_h(1, seq=0), Reason.DONE),
    ]
    for client, frame, reason in cases:
        bench.send(client, frame)
        assert bench.replies(client)[-1].reason == reason
    assert {k: v for k, v in bench.changes().items() if k.startswith(("outcome", "stat"))} == {
        "outcome.REFUSED": 14,
        "outcome.CONTROL": 1,
    }


def wrong(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def ours(client: Client, payload: bytes, **addresses) -> bytes:
    fields = {
        "eth_dst": SWITCH_MAC,
        "eth_src": client.mac,
        "ip_src": client.ip,
        "ip_dst": SWITCH_IP,
        "udp_src": client.udp_port,
        "udp_dst": UDP_PORT,
        "payload": payload,
    }
    return udp_frame(**(fields | addresses))


ONE = np.array([1.0], np.float32)

MALFORMED = {
    "version": (Outcome.VERSION, lambda c: c.contribution(0, ONE, version_type=0x10)),
    "length, frame longer than IPv4 says": (Outcome.LENGTH, lambda c: c.receipt(0) + b"\0"),
    "length, header cut": (Outcome.LENGTH, lambda c: ours(c, b"\x20" + bytes(17))),
    "length, UDP": (Outcome.LENGTH, lambda c: wrong(c.contribution(0, ONE), 39)),
    "IPv4 checksum": (Outcome.IP_CHECKSUM, lambda c: wrong(c.contribution(0, ONE), 24)),
    "UDP checksum": (Outcome.UDP_CHECKSUM, lambda c: wrong(c.contribution(0, ONE), 66)),
    "type": (Outcome.TYPE, lambda c: c.frame(Type.RESULT)),
    "control length": (Outcome.LENGTH, lambda c: c.frame(Type.CONTROL, bytes(60))),
    "job out of range": (Outcome.JOB, lambda c: c.contribution(0, ONE, job=200)),
    "job none": (Outcome.JOB, lambda c: c.contribution(0, ONE, job=1)),
    "epoch": (Outcome.EPOCH, lambda c: c.contribution(0, ONE, epoch=c.epoch ^ 1)),
    "member out of range": (Outcome.MEMBER, lambda c: c.contribution(0, ONE, member=200)),
    "token": (Outcome.TOKEN, lambda c: c.contribution(0, ONE, token=c.token ^ 4)),
    "format": (Outcome.FORMAT, lambda c: c.contribution(0, ONE, format=Format.FP32)),
    "no number": (Outcome.LENGTH, lambda c: c.contribution(c.first_seq, b"")),
    "odd payload": (Outcome.LENGTH, lambda c: c.contribution(c.first_seq, b"12345")),
    "long payload": (Outcome.LENGTH, lambda c: c.contribution(c.first_seq, bytes(68))),
    "receipt with a payload": (Outcome.LENGTH, lambda c: c.frame(Type.RECEIPT, bytes(4))),
    "stale": (Outcome.STALE, lambda c: c.contribution(c.first_seq - 1, ONE)),
    "too far": (Outcome.WINDOW, lambda c: c.contribution(c.first_seq + CONFIG.slots, ONE)),
    "behind too large": (Outcome.WINDOW, lambda c: c.contribution(c.first_seq + 2, ONE, behind=2)),
    "receipt behind too large": (Outcome.WINDOW, lambda c: c.receipt(c.first_seq + 3, behind=3)),
    "contribution": (Outcome.ADDED, lambda c: c.contribution(c.first_seq, ONE)),
    "no UDP checksum": (Outcome.ADDED, lambda c: c.contribution(c.first_seq, ONE, checksum=False)),
    "int32 in a float job": (Outcome.ADDED, lambda c: c.contribution(c.first_seq, ONE, format=Format.INT32)),
}
ANSWERED = (Outcome.JOB, Outcome.EPOCH, Outcome.MEMBER, Outcome.TOKEN)


@pytest.mark.parametrize("kind", MALFORMED)
def test_each_kind_is_counted_under_exactly_its_counter(kind):
    outcome, build = MALFORMED[kind]
    bench = Bench(2, seed=99).join()
    client = bench.clients[0]
    bench.send(client, build(client))
    answer = {"stat.NOTICES": 1, "port0.TX_FRAMES": 1} if outcome in ANSWERED else {}
    assert bench.changes() == {f"outcome.{outcome.name}": 1, "port0.RX_FRAMES": 1} | answer
    if answer:
        (notice,) = bench.replies(client)
        assert notice.reason == Reason[outcome.name]


def test_forming_port_and_address():
    bench = Bench(2)
    one = bench.clients[0]
    bench.send(one, one.join(**bench.settings))
    bench.send(one, one.contribution(one.first_seq, ONE))
    assert bench.replies(one)[-1].reason == Reason.JOB
    bench.forget()
    bench.now_us = 1000
    bench.send(one, one.join())
    bench.send(one, one.contribution(one.first_seq, ONE))
    bench.send(one, one.receipt(one.first_seq))
    for bench.now_us, port, udp_port in ((2000, 3, one.udp_port), (3000, one.port, one.udp_port + 1)):
        one.port, one.udp_port = port, udp_port
        bench.send(one, one.receipt(one.first_seq))
        assert bench.replies(one)[-1].reason == (Reason.PORT if bench.now_us == 2000 else Reason.ADDRESS)
        one.port = 0
    assert {k: v for k, v in bench.changes().items() if k.startswith(("outcome", "stat"))} == {
        "outcome.CONTROL": 1,
        "outcome.FORMING": 2,
        "outcome.PORT": 1,
        "outcome.ADDRESS": 1,
        "stat.NOTICES": 2,
    }


def test_format_and_length_are_those_of_the_slot():
    bench = Bench(3).join()
    one, other, third = bench.clients
    bench.send(one, one.contribution(one.first_seq, ONE))
    bench.send(other, other.contribution(one.first_seq, ONE, format=Format.INT32))
    bench.send(third, third.contribution(one.first_seq, np.ones(2, np.float32)))
    assert {k: v for k, v in bench.changes().items() if k.startswith("outcome")} == {
        "outcome.ADDED": 1,
        "outcome.FORMAT": 1,
        "outcome.LENGTH": 1,
    }


def test_a_port_has_few_notices_for_senders_without_a_members_token():
    bench = Bench(2).join()
    client = bench.clients[0]
    for bench.now_us in (2**32 - 50, 2**32 - 1, 49, 50, 149, 150):
        bench.send(client, client.receipt(0, token=1))
    assert bench.changes() == {
        "outcome.TOKEN": 6,
        "stat.NOTICES": 3,
        "stat.NOTICES_SUPPRESSED": 3,
        "port0.RX_FRAMES": 6,
        "port0.TX_FRAMES": 3,
    }


def test_a_member_gets_every_notice_whatever_others_at_its_port_send():
    bench = Bench(2).join()
    one, other = bench.clients
    bench.send(one, one.reset())
    bench.changes()
    non_member = Client.numbered(9, port=other.port)
    for bench.now_us in range(0, 100, 10):
        bench.switch.receive(other.port, non_member.contribution(0, ONE), bench.now_us)
        bench.send(other, other.contribution(other.first_seq, ONE))
    told = bench.replies(other)
    assert len(told) == 10 and {reply.reason for reply in told} == {Reason.EPOCH}
    counted = bench.changes()
    assert (counted["stat.NOTICES"], counted["stat.NOTICES_SUPPRESSED"]) == (11, 9)


@pytest.mark.parametrize(
    ("frame", "error", "counter"),
    [
        (bytes(60), True, "RX_ERROR"),
        (bytes(59), True, "RX_ERROR"),
        (bytes(59), False, "RX_RUNT"),
        (bytes(CONFIG.frame_bytes_max + 1), False, "RX_OVERSIZE"),
    ],
)
def test_bad_frames_vanish_at_the_port(frame, error, counter):
    switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    assert switch.receive(2, frame, 0, error) == []
    assert switch.counters() == dict.fromkeys(switch.counters(), 0) | {f"port2.{counter}": 1}


def test_frames_without_room_are_counted_apart_from_damaged_ones():
    switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    assert switch.receive(2, bytes(60), 0, overflow=True) == []
    assert switch.counters() == dict.fromkeys(switch.counters(), 0) | {"port2.RX_OVERFLOW": 1}


def almost_ours() -> dict[str, bytes]:
    """An ordinary frame to an unknown station."""
    client = Client.numbered(1)
    frame = client.contribution(0, ONE)
    frames = {
        "other protocol": ordinary(SWITCH_MAC, client.mac),
        "largest": ordinary(SWITCH_MAC, client.mac, 1518),
        "IPv4 options": frame[:14] + b"\x46" + frame[15:],
        "fragment": frame[:20] + b"\x20\0" + frame[22:],
        "last fragment": frame[:20] + b"\x40\x01" + frame[22:],
        "TCP": frame[:23] + b"\x06" + frame[24:],
        "other address": ours(client, bytes(22), ip_dst=b"\x0a\0\0\x02"),
        "other port": ours(client, bytes(22), udp_dst=UDP_PORT + 1),
        "VLAN": frame[:12] + b"\x81\0\0\x01" + frame[12:],
    }
    return {kind: bytes([2, 0, 0, 0, 0, 99]) + frame[6:] for kind, frame in frames.items()}


@pytest.mark.parametrize("kind", almost_ours())
def test_ordinary_frames_to_an_unknown_station_are_flooded_unchanged(kind):
    switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    frame = almost_ours()[kind]
    assert switch.receive(1, frame, 0) == [(0, frame), (2, frame), (3, frame)]
    assert switch.counters() == dict.fromkeys(switch.counters(), 0) | {
        "outcome.ORDINARY": 1,
        "port1.RX_FRAMES": 1,
        "port0.TX_FRAMES": 1,
        "port2.TX_FRAMES": 1,
        "port3.TX_FRAMES": 1,
    }


@pytest.mark.parametrize("kind", almost_ours())
def test_ordinary_frames_to_the_switch_itself_are_unanswered(kind):
    switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    assert switch.receive(1, SWITCH_MAC + almost_ours()[kind][6:], 0) == []
    assert switch.counters() == dict.fromkeys(switch.counters(), 0) | {"outcome.UNANSWERED": 1, "port1.RX_FRAMES": 1}


def test_sender_of_any_frame_is_learnt_after_its_own_frame_was_switched():
    switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    a, b = Client.numbered(1), Client.numbered(2)
    frame = ordinary(a.mac, b.mac)
    assert switch.receive(1, ordinary(a.mac, a.mac), 0) == [(port, ordinary(a.mac, a.mac)) for port in (0, 2, 3)]
    assert switch.receive(2, frame, 0) == [(1, frame)]
    switch.receive(3, a.contribution(0, ONE), 0)
    assert switch.receive(2, frame, 0) == [(3, frame)]
    assert switch.receive(3, frame, 0) == []
    assert switch.receive(2, frame, 303_000_000) == [(0, frame), (1, frame), (3, frame)]
    assert switch.counters()["outcome.FILTERED"] == 1


def test_host_requests_are_answered_at_their_port_only():
    switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    host = Host(bytes([2, 0, 0, 0, 0, 77]), bytes([10, 0, 0, 77]), 2)
    for frame in (arp_request(host, SWITCH_IP), echo_request(host, b"ping")):
        [(port, reply)] = switch.receive(2, frame, 0)
        assert (port, reply[:12]) == (2, host.mac + SWITCH_MAC)
    assert switch.counters()["outcome.ANSWERED"] == switch.counters()["port2.TX_FRAMES"] == 2


def test_read_returns_the_registers():
    bench = Bench(2).join()
    client = bench.clients[0]

    def read(address: int) -> list[int]:
        bench.send(client, client.read(address, job=77))
        (reply,) = bench.replies(client)
        assert (reply.ack["action"], reply.reason, reply.ack["address"]) == (Action.READ, Reason.DONE, address)
        return [int(value) for value in reply.ack["registers"]]

    assert read(Register.MAGIC) == [MAGIC, VERSION, 4, 256, 4, 2, 2, 16]
    assert read(Register.OUTCOMES)[:6] == [0, 0, 0, 0, 3, 2]
    assert read(Register.PORT_COUNTERS) == [0, 0, 0, 0, 0, 0, 4, 5]
    assert read(40) == read(2**32 - 8) == read(256 + 16 * 4) == [0] * 8
    assert read(2**32 - 1)[1] == MAGIC


def test_the_generator_can_be_inverted():
    bench = Bench(2, seed=seed_for_first_seq(2**32 - 8, epoch=0x1234)).join()
    assert (bench.clients[0].first_seq, bench.clients[0].epoch) == (2**32 - 8, 0x1234)


def test_struct_of_a_frame_from_the_switch():
    bench = Bench(2)
    client = bench.clients[0]
    ((port, frame),) = bench.send(client, client.join(**bench.settings))
    assert port == client.port
    assert struct.unpack(">6s6sHBBHHHBB2x4s4sHH", frame[:38]) == (
        client.mac,
        SWITCH_MAC,
        0x0800,
        0x45,
        0,
        114,
        0,
        0x4000,
        64,
        17,
        SWITCH_IP,
        client.ip,
        UDP_PORT,
        client.udp_port,
    )
