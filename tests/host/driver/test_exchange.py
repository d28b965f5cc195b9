"""A worker's collectives over a real socket, in C and in Python: a peer answers each contribution as a test says."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import struct
import threading
import weakref
import zlib
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from iswitch.driver import exchange
from iswitch.driver.closable import ClosableTransport
from iswitch.driver.collective_result import NoProgressError
from iswitch.driver.exchange import Exchange, open_exchange
from iswitch.driver.notices import MembershipRejectedError
from iswitch.driver.ring import Ring
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.udp import UdpTransport
from iswitch.driver.window import SendWindow
from iswitch.errors import MismatchError
from iswitch.golden.egress import compose
from iswitch.native.loader import SOURCES, best_level, build, load
from iswitch.native.records import ExchangeEvent
from iswitch.wire import (
    CONTRIBUTION_HEADER,
    FLAGS_SHIFT,
    HEADER,
    RESULT_HEADER,
    TAIL,
    Collective,
    ContributionFlag,
    Format,
    Reason,
    ResultFlag,
    Type,
    result_identity,
    version_type,
)
from sim.bench import scripted_transport

ELEMENTS, WINDOW, MEMBERS = 8, 16, 0b111
LEDGER = 16 * WINDOW + 4
"""Positions in the arrays of a ledger."""
SIZES = [
    *(1, ELEMENTS - 1, ELEMENTS, ELEMENTS + 1),
    *(ELEMENTS * segments + rest for segments in (WINDOW, 64, LEDGER) for rest in (-1, 0, 1)),
    4 * LEDGER * ELEMENTS,
]
MEMBER = replace(scripted_transport.MEMBER, world=3, threshold=3, elements=ELEMENTS, window=WINDOW)


def result(header, payload, **fields):
    """Return the result of a contribution: twice its elements."""
    made = np.zeros(1, RESULT_HEADER)
    for name in ("job", "epoch", "seq"):
        made[name] = header[name]
    made["version_type"], made["format_flags"] = version_type(Type.RESULT), header["format_flags"] & 15
    made["members"], made["member"], made["token"] = MEMBERS, 255, MEMBER.job_token
    for name, value in fields.items():
        made[name] = value
    tail = np.zeros(1, TAIL)
    tail["identity"] = result_identity(int(header["collective"]), int(header["digest"]))
    return made.tobytes() + (2 * np.frombuffer(payload, np.float32)).tobytes() + tail.tobytes()


class Peer:
    """Answers each datagram of a worker by `answer(header, payload)` -> datagrams, and remembers all headers."""

    def __init__(self, answer):
        self.answer, self.headers, self.payloads = answer, [], []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        while True:
            datagram, worker = self.socket.recvfrom(65536)
            if not datagram:
                return
            header = np.frombuffer(datagram, CONTRIBUTION_HEADER, 1)[0]
            self.headers.append(header)
            self.payloads.append(datagram[HEADER.itemsize :])
            for made in self.answer(header, self.payloads[-1]):
                self.socket.sendto(made, worker)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closer:
            closer.sendto(b"", self.socket.getsockname())
        self.thread.join()
        self.socket.close()

    @property
    def positions(self):
        return [(int(header["seq"]) - MEMBER.first_seq) % 2**32 for header in self.headers]


@contextlib.contextmanager
def ring_to(peer, compiled, **membership):
    """Yield a ring whose usual case is in C, or in Python."""
    transport = ClosableTransport(UdpTransport(f"127.0.0.1:{peer.socket.getsockname()[1]}"), "closed")
    try:
        used = open_exchange(transport) if compiled else None
        assert bool(used) == compiled
        yield Ring(transport, replace(MEMBER, **membership), backlog=64, exchange=used)
    finally:
        transport.close()


def reduce(ring, count, timeout_s=5.0):
    values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    kept = values.copy()
    sums = ring.reduce(values, Format.WINDOW64, timeout_s)
    assert np.array_equal(values, 2 * kept)
    return sums, kept


@contextlib.contextmanager
def no_time_outs():
    """The machine may be slow. What a time-out would mend stops for good instead."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("timeout_s", "first_timeout_s"):
            patch.setattr(RetransmissionTimer, name, 1000.0)
        patch.setattr(RetransmissionTimer, "reordering_s", 0.0)  # what later results show is lost at once
        yield


@pytest.fixture
def without_time_outs():
    with no_time_outs():
        yield


in_both = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "python"])


@in_both
@pytest.mark.usefixtures("without_time_outs")
@pytest.mark.parametrize("count", SIZES)
def test_contributions_and_results_are_those_of_the_array(compiled, count):
    """Every header field of every contribution, over sizes that straddle segments, bursts, window and ledger."""
    with Peer(lambda header, payload: [result(header, payload)]) as peer, ring_to(peer, compiled) as ring:
        for collective in range(2):
            before = len(peer.headers)
            sums, array = reduce(ring, count)
            headers, segments = np.array(peer.headers[before:]), -(-count // ELEMENTS)
            assert sums.retransmissions == 0 and not sums.flagged and not sums.admitted
            assert peer.positions[before:] == list(range(collective * segments, (collective + 1) * segments))
            assert b"".join(peer.payloads[before:]) == array.tobytes()
            boundary = ContributionFlag.BOUNDARY << FLAGS_SHIFT
            assert headers["format_flags"].tolist() == [1] * (segments - 1) + [1 | boundary]
            assert (headers["behind"] < WINDOW).all() and (headers["behind"] <= np.arange(segments)).all()
            word = Collective.from_word(int(headers["collective"][0]))
            assert word.segments == segments % 16 and len(set(headers["collective"])) == 1
            for name, value in {"version_type": version_type(Type.CONTRIBUTION), "job": 1, "epoch": 7}.items():
                assert (headers[name] == value).all()
            assert (headers["member"] == 1).all() and (headers["token"] == 0xABCD).all()
            assert sums.headers["seq"].tolist() == headers["seq"].tolist()
            assert (sums.headers["members"] == MEMBERS).all()


def all_but_one(lost):
    """Answer each contribution, but not the first one to the position `lost`."""
    left = [lost]

    def answer(header, payload):
        position = (int(header["seq"]) - MEMBER.first_seq) % 2**32
        if position in left:
            left.remove(position)
            return []
        return [result(header, payload)]

    return answer


class Disturber:
    """Loses, repeats and delays datagrams of both directions, and mixes in forged and old results."""

    def __init__(self, seed):
        self.random, self.held, self.forged = Random(seed), [], 0

    def __call__(self, header, payload):
        if header["version_type"] != version_type(Type.CONTRIBUTION) or self.random.random() < 0.03:
            return []
        made = []
        if self.random.random() < 0.05:
            self.forged += 1
            made.append(result(header, bytes(len(payload)), token=MEMBER.job_token + 1))
        if self.random.random() < 0.05:
            made.append(result(header, bytes(len(payload)), epoch=MEMBER.epoch - 1))
        if self.random.random() < 0.05:
            old = (int(header["seq"]) - self.random.randrange(WINDOW, 99)) % 2**32
            made.append(result(header, bytes(len(payload)), seq=old))
        if self.random.random() < 0.02:
            made.append(bytes(self.random.randrange(1, 40)))
        for _ in range(self.random.choice([0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2])):
            answer = result(header, payload)
            (self.held if self.random.random() < 0.1 else made).append(answer)
        if self.held and self.random.random() < 0.3:
            made.append(self.held.pop(self.random.randrange(len(self.held))))
        return made


@in_both
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_right_whatever_the_network_does(compiled, seed):
    disturber = Disturber(seed)
    with Peer(disturber) as peer, ring_to(peer, compiled) as ring:
        for count in (1, ELEMENTS * 40 + 3, ELEMENTS * 5, ELEMENTS * (LEDGER + 7)):
            sums, _ = reduce(ring, count)
            assert sums.headers["seq"].tolist() == [
                (MEMBER.first_seq + ring.low - len(sums.headers) + k) % 2**32 for k in range(len(sums.headers))
            ]
            assert (sums.headers["token"] == MEMBER.job_token).all() and (sums.headers["epoch"] == 7).all()
        assert disturber.forged and 0 < ring.forged <= disturber.forged


@in_both
@pytest.mark.usefixtures("without_time_outs")
@pytest.mark.parametrize("lost", [3, 58])
def test_a_lost_result_is_requested_as_soon_as_later_ones_show_it(compiled, lost):
    """Three later ones, or the last one."""
    events, run = [], Exchange.run

    def recorded(*arguments, **parameters):
        event, results = run(*arguments, **parameters)
        events.append(event)
        return event, results

    with Peer(all_but_one(lost)) as peer, ring_to(peer, compiled) as ring, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exchange, "run", recorded)
        sums, _ = reduce(ring, ELEMENTS * 60)
        assert ExchangeEvent.TIMEOUT not in events
        again = [k for k, position in enumerate(peer.positions) if position == lost]
        assert sums.retransmissions == 1 and len(again) == 2
        flags = int(peer.headers[again[1]]["format_flags"]) >> FLAGS_SHIFT
        assert flags == ContributionFlag.RETRANSMISSION


@pytest.mark.usefixtures("without_time_outs")
def test_an_exchange_that_is_no_longer_usable_leaves_nothing_unsent(monkeypatch):
    """It is usable when the ring leaves the first burst to it, and not when it should send that."""
    answers = iter([True])
    monkeypatch.setattr(Exchange, "is_usable", property(lambda self: next(answers, False)))
    with Peer(lambda header, payload: [result(header, payload)]) as peer, ring_to(peer, True) as ring:
        reduce(ring, ELEMENTS * 60)


@pytest.mark.parametrize(("usable", "threshold"), [(False, 3), (True, 2)], ids=["not usable", "partial sums"])
def test_an_exchange_runs_in_the_usual_case_only(monkeypatch, usable, threshold):
    """Where sums may be partial, no case is usual."""
    monkeypatch.setattr(Exchange, "is_usable", property(lambda self: usable))
    monkeypatch.setattr(Exchange, "run", lambda *_, **__: pytest.fail("the exchange runs"))
    with (
        Peer(lambda header, payload: [result(header, payload)]) as peer,
        ring_to(peer, True, threshold=threshold) as ring,
    ):
        reduce(ring, ELEMENTS * 60)


@in_both
@pytest.mark.usefixtures("without_time_outs")
@pytest.mark.parametrize("lost", [3, 58])
def test_each_result_counts_once_for_the_window(monkeypatch, compiled, lost):
    counted, record = [], SendWindow.record_results

    def recorded(self, results, *, retransmitted, resent):
        counted.append((results, retransmitted, resent))
        record(self, results, retransmitted=retransmitted, resent=resent)

    monkeypatch.setattr(SendWindow, "record_results", recorded)
    with Peer(all_but_one(lost)) as peer, ring_to(peer, compiled) as ring:
        reduce(ring, ELEMENTS * 60)
    assert np.sum(counted, axis=0).tolist() == [60, 1, 0]


@in_both
def test_a_second_copy_of_a_result_changes_nothing(compiled):
    """It comes with other elements, while a result below it is missing."""

    def answer(header, payload):
        position, again = (int(header["seq"]) - MEMBER.first_seq) % 2**32, int(header["format_flags"]) >> FLAGS_SHIFT
        if position % 8 == 0 and not again:
            return []
        return [result(header, payload), result(header, bytes(len(payload)))]

    with Peer(answer) as peer, ring_to(peer, compiled) as ring:
        reduce(ring, ELEMENTS * 60)


@in_both
def test_a_lost_last_result_is_requested_after_a_time_out(compiled):
    with Peer(all_but_one(59)) as peer, ring_to(peer, compiled) as ring:
        assert reduce(ring, ELEMENTS * 60)[0].retransmissions >= 1


def test_a_time_out_is_waited_once(monkeypatch):
    """Also if results have come in the same run: the next run waits no longer than that time-out."""
    timeout_s, runs, run = 0.05, [], Exchange.run
    for name in ("timeout_s", "first_timeout_s"):
        monkeypatch.setattr(RetransmissionTimer, name, timeout_s)

    def recorded(self, until_s, **parameters):
        event, results = run(self, until_s, **parameters)
        runs.append((until_s, event, results, self.last_result_at))
        return event, results

    monkeypatch.setattr(Exchange, "run", recorded)
    with Peer(all_but_one(59)) as peer, ring_to(peer, True) as ring:
        reduce(ring, ELEMENTS * 60)
    [after] = [
        later
        for (_, event, results, _), later in itertools.pairwise(runs)
        if event == ExchangeEvent.TIMEOUT and results and later[0] > 0
    ][-1:]
    before = runs[runs.index(after) - 1]
    assert after[0] <= before[3] + timeout_s + 1e-9


@in_both
@pytest.mark.parametrize("at", [0, 9, 39])
def test_flags_of_one_result_are_those_of_the_sum(compiled, at):
    def answer(header, payload):
        position = (int(header["seq"]) - MEMBER.first_seq) % 2**32
        flag = (ResultFlag.TAINTED | ResultFlag.MEMBERS_CHANGED) << FLAGS_SHIFT if position == at else 0
        return [result(header, payload, format_flags=(int(header["format_flags"]) & 15) | flag)]

    with Peer(answer) as peer, ring_to(peer, compiled) as ring:
        sums, _ = reduce(ring, ELEMENTS * 40)
        assert sums.flagged and sums.admitted
        assert np.flatnonzero(sums.headers["format_flags"] != 1).tolist() == [at]


def of_another_payload(header, payload):
    return result(header, payload[:-4] if len(payload) > 4 else payload * 2)


def longer(header, payload):
    """A result with a tail where a right one has it."""
    return result(header, payload) + bytes(4)


@in_both
@pytest.mark.parametrize("change", [of_another_payload, longer])
@pytest.mark.parametrize("count", [ELEMENTS * 30, ELEMENTS * 30 + 3])
def test_a_result_of_another_size_is_an_error(compiled, count, change):
    with (
        Peer(lambda header, payload: [change(header, payload)]) as peer,
        ring_to(peer, compiled) as ring,
        pytest.raises(MismatchError, match="does not fit this worker's array"),
    ):
        reduce(ring, count)


@in_both
def test_a_result_of_another_collective_is_an_error(compiled):
    def answer(header, payload):
        header = header.copy()
        header["digest"] += 1
        return [result(header, payload)]

    with (
        Peer(answer) as peer,
        ring_to(peer, compiled) as ring,
        pytest.raises(MismatchError, match="another collective"),
    ):
        reduce(ring, ELEMENTS * 30)


@in_both
@pytest.mark.parametrize("resent", [1, 3, 100], ids=["all", "some", "none"])
def test_the_checksum_is_that_of_the_protocol(compiled, resent):
    """Results that the switch has resent are unusual, so Python takes them in both cases."""
    rng, octets = np.random.default_rng(1), {}

    def answer(header, payload):
        seq, tainted, members = int(header["seq"]), int(rng.integers(2**32)), int(rng.integers(2**32))
        octets.setdefault(seq, struct.pack("<III", seq, tainted, members) + payload)
        frame = compose.result(
            job=MEMBER.job, epoch=MEMBER.epoch, seq=seq, format=MEMBER.format, members=members, tainted=tainted,
            flags=ResultFlag.RESENT if seq % resent == resent - 1 else 0, token=MEMBER.job_token,
            elements=np.frombuffer(payload, "<u4"),
            identity=result_identity(int(header["collective"]), int(header["digest"])),
        )  # fmt: skip
        return [frame]

    with Peer(answer) as peer, ring_to(peer, compiled) as ring, no_time_outs():
        for _ in range(2):
            ring.reduce(rng.standard_normal(ELEMENTS * 40 + 1).astype(np.float32), MEMBER.format, 5.0)
        checksum = ring.progress.checksum
    sums = [sum(int.from_bytes(each[at : at + 2], "big") for at in range(0, len(each), 2)) for each in octets.values()]
    assert checksum == zlib.crc32(b"".join((0xFFFF - total % 0xFFFF).to_bytes(2, "big") for total in sums))


@in_both
def test_a_notice_in_the_middle_ends_the_collective(compiled):
    def answer(header, payload):
        position = (int(header["seq"]) - MEMBER.first_seq) % 2**32
        if position < 20:
            return [result(header, payload)]
        notice = np.zeros(1, HEADER)
        notice["version_type"], notice["count"] = version_type(Type.NOTICE), Reason.MEMBER
        for name in ("job", "epoch", "seq", "member", "token"):
            notice[name] = header[name]
        return [notice.tobytes()]

    with Peer(answer) as peer, ring_to(peer, compiled) as ring, pytest.raises(MembershipRejectedError):
        reduce(ring, ELEMENTS * 60)


@in_both
def test_without_any_result_the_time_out_ends_the_collective(compiled):
    with Peer(lambda header, payload: []) as peer, ring_to(peer, compiled) as ring:
        with pytest.raises(NoProgressError):
            reduce(ring, ELEMENTS * 60, timeout_s=0.3)
        assert set(peer.positions) == set(range(WINDOW))


@in_both
def test_after_a_collective_the_array_is_the_caller_s_alone(compiled):
    with Peer(lambda header, payload: [result(header, payload)]) as peer, ring_to(peer, compiled) as ring:
        array = np.ones(100, np.float32)
        reference = weakref.ref(array)
        ring.reduce(array, Format.WINDOW64, 5.0)
        del array
        assert reference() is None


def test_without_a_library_the_ring_runs_in_python(monkeypatch):
    monkeypatch.setattr(exchange, "_exchange_run", lambda: None)
    transport = ClosableTransport(UdpTransport("127.0.0.1:9"), "closed")
    assert open_exchange(transport) is None
    transport.close()


def test_without_offloads_the_ring_runs_in_python():
    transport = ClosableTransport(UdpTransport("127.0.0.1:9", no_offload=True), "closed")
    assert open_exchange(transport) is None
    transport.close()


MUTANTS = [
    ("u32_at(datagram + TOKEN_AT) != x->token || ", ""),
    ("u32_at(datagram) != x->first_word ||", ""),
    (" || datagram[FORMAT_FLAGS_AT] != usual_flags(x)", ""),
    ("!((uint8_t *)x->lacked)[at] || ", ""),
    (" ||\n        length != HEADER_BYTES + bytes + TAIL_BYTES", ""),
    ("position == x->end - 1 ? x->last_bytes : x->segment_bytes", "x->segment_bytes"),
    ("if (position == x->end - 1) header[FORMAT_FLAGS_AT]", "if (0) header[FORMAT_FLAGS_AT]"),
    ("(uint32_t)(position - x->low)", "(uint32_t)(position - x->low + WINDOW_)"),
    ("x->low + x->window < x->end ? x->low + x->window", "x->low + 2 * x->window < x->end ? x->low + 2 * x->window"),
    ("if (!is_usual || x->high > x->low) return EXCHANGE_RESULTS;", "if (!is_usual) return EXCHANGE_RESULTS;"),
    ("x->results++;", ""),
    ("((uint32_t *)x->requests)[at]++;", ""),
    ("if (u16_at(tail + TAIL_IDENTITY_AT) != x->identity) return 0;", ""),
    ("u16_at(header + MEMBER_AT) + ", ""),
    ("((uint16_t *)x->checks)[segment] = result_check(datagram, tail);", ""),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("right", "wrong"), MUTANTS)
def test_a_mutant_of_the_exchange_is_noticed(tmp_path, monkeypatch, right, wrong):
    sources = tmp_path / "native"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = (sources / "exchange.c").read_text()
    assert text.count(right) == 1
    (sources / "exchange.c").write_text(text.replace(right, wrong).replace("WINDOW_", str(WINDOW)))
    mutated = load(build(tmp_path, ["cc", "-w"], best_level(), sources=sources)).exchange_run
    monkeypatch.setattr(exchange, "_exchange_run", lambda: mutated)
    assert fails_in_a_child(check_the_laws)


def check_the_laws():
    with no_time_outs():
        for count in (1, ELEMENTS * 64 + 1):
            test_contributions_and_results_are_those_of_the_array(True, count)
        test_a_lost_result_is_requested_as_soon_as_later_ones_show_it(True, 3)
    test_flags_of_one_result_are_those_of_the_sum(True, 9)
    test_a_second_copy_of_a_result_changes_nothing(True)
    for seed in range(3):
        test_sums_are_right_whatever_the_network_does(True, seed)
    test_a_result_of_another_size_is_an_error(
        True, ELEMENTS * 30, lambda header, payload: result(header, payload) + bytes(4)
    )
    test_a_result_of_another_collective_is_an_error(True)
    test_the_checksum_is_that_of_the_protocol(True, 3)


def fails_in_a_child(check):
    """A mutant may write where it must not, so it runs in a process of its own."""
    child = os.fork()
    if not child:
        signal.alarm(60)
        status = 1
        with contextlib.suppress(BaseException):
            check()
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] != 0


def test_the_laws_hold_in_a_child_without_a_mutant():
    assert not fails_in_a_child(check_the_laws)
