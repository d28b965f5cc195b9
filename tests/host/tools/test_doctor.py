"""Each finding of `iswitch doctor`, over a transport in this process that has one fault; then over sockets."""

import errno
import os
import secrets
import socket
from types import SimpleNamespace

import pytest

from iswitch import Worker
from iswitch.config import Config
from iswitch.control.counters import Severity, counter_entry
from iswitch.errors import SwitchUnreachableError
from iswitch.golden.switch import Switch
from iswitch.tools.doctor import examine
from iswitch.tools.path_checks import Mark
from iswitch.tools.probe import Probe, answers_arp
from iswitch.wire import ADDRESSES, UDP_PORT, Action, JobState, Outcome, PortCounter, Register
from sim.bench.udp_model import Faults, UdpModel
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, udp_frame

CONFIG = Config(ports=2, members=4, window=4, elements=64)
LONGEST = 22 + 4 * 64 + 4
READY = SimpleNamespace(gso=True, gro=True, receive_buffer_bytes=1 << 20, close=lambda: None)


CLOCK = SimpleNamespace(now=1e6)
"""The time of all `FaultyTransport`s. It advances only when a transport waits or sends."""


class FaultyTransport:
    """A `ProbeTransport` to the golden switch. `lost`: numbers of datagrams that are lost; `longest`: longer datagrams
    are lost, or with `refuses` the kernel refuses them."""

    def __init__(
        self,
        switch=None,
        *,
        lost=(),
        longest=9000,
        refuses=False,
        tos=0,
        deaf=False,
        fault="",
        remedy="",
        refused=False,
        peer="198.51.100.7",
    ):
        self.switch = switch or Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
        self.lost, self.longest, self.refuses, self.deaf = lost, longest, refuses, deaf
        self.sent, self.received, self.tos, self.refused, self.peer, self.mtu = 0, 0, tos, refused, peer, longest + 28
        self.fault, self.remedy = fault, remedy
        self.waiting: list[bytes] = []
        self.closed = False

    def burst_segments(self, segment_bytes):
        return 1

    def send(self, burst, segment_bytes):
        self.sent += 1
        CLOCK.now += 1e-4
        if len(burst) > self.longest and self.refuses:
            raise ValueError("too long")
        if self.deaf or self.sent in self.lost or len(burst) > self.longest:
            return
        frame = udp_frame(
            eth_dst=SWITCH_MAC,
            eth_src=b"\x02doct.",
            ip_src=bytes([10, 0, 0, 9]),
            ip_dst=SWITCH_IP,
            udp_src=5000,
            udp_dst=UDP_PORT,
            payload=bytes(burst),
        )
        self.waiting += [reply[ADDRESSES.itemsize :] for _, reply in self.switch.receive(0, frame, now_us())]

    def receive(self, into, timeout_s):
        if not self.waiting:
            CLOCK.now += timeout_s
            return 0, 0
        self.received += 1
        payload = self.waiting.pop(0)
        into[: len(payload)] = payload
        return len(payload), len(payload)

    def now(self):
        return CLOCK.now

    def sleep(self, seconds):
        CLOCK.now += seconds

    def randbits(self, bits):
        return secrets.randbits(bits)

    def close(self):
        self.closed = True


def now_us():
    return round(CLOCK.now * 1e6) % 2**32


def findings(transport, *, socket=READY, **options):
    options = {"timeout_s": 0.2, "rate_gbps": 0.001} | options
    found = list(examine("stub", probe=lambda _: transport, worker_socket=lambda _: socket, **options))
    assert transport.closed
    assert all(finding.remedy for finding in found if finding.mark != Mark.OK)
    return {finding.check: finding for finding in found}


def only(found, check, mark):
    """Return the only finding that is not ok."""
    assert [(finding.check, finding.mark) for finding in found.values() if finding.mark != Mark.OK] == [(check, mark)]
    return found[check]


def joined(switch, count, world=None, at_us=0, **settings):
    """Return `count` workers of job 0 that have joined and confirmed."""
    workers = [Client.numbered(k, port=k % 2) for k in range(count)]
    for _ in range(2):
        for worker in workers:
            for _, frame in switch.receive(
                worker.port, worker.join(world=world or count, elements=8, **settings), at_us
            ):
                worker.take(frame)
    return workers


def test_a_healthy_switch_has_only_findings_that_are_ok():
    found = findings(FaultyTransport())
    assert {finding.mark for finding in found.values()} == {Mark.OK}
    assert list(found) == [
        "name",
        "switch",
        "round trip",
        "loss",
        "segment",
        "ToS",
        "window",
        "buffer",
        "offload",
        "jobs",
        "counters",
    ]
    assert "of 200 requests" in found["round trip"].figure


def test_an_unknown_host_name_is_reported():
    def probe(_):
        raise SwitchUnreachableError("there is no host 'nowhere': check the spelling")

    [found] = examine("nowhere", probe=probe)
    assert (found.check, found.mark, found.figure, found.remedy) == (
        "name",
        Mark.BAD,
        "there is no host 'nowhere'",
        "check the spelling",
    )


@pytest.mark.parametrize(
    ("faulty", "word"),
    [
        ({}, "does not answer"),
        ({"refused": True}, "no program listens"),
        ({"fault": "this machine has no route to it", "remedy": "check the route"}, "no route"),
    ],
)
def test_causes_of_silence_are_distinguished(faulty, word):
    assert word in only(findings(FaultyTransport(deaf=True, **faulty)), "switch", Mark.BAD).figure


def test_a_host_without_an_arp_answer_is_reported():
    table = """IP address       HW type     Flags       HW address            Mask     Device
10.0.0.1         0x1         0x0         00:00:00:00:00:00     *        eth0
10.0.0.2         0x1         0x2         02:00:00:00:00:02     *        eth0
"""
    assert [answers_arp(f"10.0.0.{host}", table) for host in (1, 2, 3)] == [False, True, None]


@pytest.mark.parametrize("register", [Register.MAGIC, Register.VERSION])
def test_another_device_or_version_is_reported(register):
    class Another(Switch):
        def registers(self, address, now_us):
            return [value + (address + k == register) for k, value in enumerate(super().registers(address, now_us))]

    found = only(findings(FaultyTransport(Another(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1))), "switch", Mark.BAD)
    assert "version" in found.figure


@pytest.mark.parametrize(("lost", "mark"), [([30], Mark.WARNING), ([30, 50, 70, 90, 110, 130], Mark.BAD)])
def test_loss_is_measured_by_retransmissions(lost, mark):
    found = only(findings(FaultyTransport(lost=lost), timeout_s=1), "loss", mark)
    registers = 3 + 2 * (5 + 2 + 2 * CONFIG.ports + 1)  # what it is, and all counters twice; no replay service
    assert found.figure.startswith(f"{len(lost)} of {200 + registers + len(lost)} requests")


def test_late_replies_are_not_counted_as_lost():
    class Slow(FaultyTransport):
        """Answers with the next."""

        def receive(self, into, timeout_s):
            if len(self.waiting) < 2:
                CLOCK.now += timeout_s
                return 0, 0
            return super().receive(into, timeout_s)

    found = findings(Slow(), timeout_s=1)
    assert found["round trip"].mark == Mark.WARNING and "longer than 50 ms" in found["round trip"].figure
    assert found["loss"].mark != Mark.BAD


def test_a_segment_that_the_kernel_refuses_is_reported_with_what_fits():
    found = only(findings(FaultyTransport(longest=LONGEST - 1, refuses=True)), "segment", Mark.BAD)
    assert f"{LONGEST + 28} bytes" in found.figure and f"MTU of {LONGEST + 27}" in found.figure
    assert "elements=63" in found.remedy


@pytest.mark.parametrize("longest", [LONGEST, LONGEST - 1])
def test_a_path_that_drops_long_frames_is_reported(longest):
    found = findings(FaultyTransport(longest=longest))
    if longest < LONGEST:
        assert "do not reach the switch" in only(found, "segment", Mark.BAD).figure
    else:
        assert found["segment"].mark == Mark.OK


@pytest.mark.parametrize(
    ("tos", "mark", "word"),
    [(0, Mark.OK, "as the switch sends"), (-1, Mark.OK, "does not report"), (0xB8, Mark.WARNING, "0xb8")],
)
def test_tos_of_replies(tos, mark, word):
    found = findings(FaultyTransport(tos=tos))["ToS"]
    assert found.mark == mark and word in found.figure


def test_a_window_too_small_for_the_links_is_a_warning():
    assert "links have 1e+06" in only(findings(FaultyTransport(), rate_gbps=1e6), "window", Mark.WARNING).figure


@pytest.mark.parametrize(
    ("lacks", "check"),
    [
        ({"receive_buffer_bytes": 2 * 4 * LONGEST - 1}, "buffer"),
        ({"gso": False}, "offload"),
        ({"gro": False}, "offload"),
    ],
)
def test_missing_kernel_features_are_reported(lacks, check):
    only(findings(FaultyTransport(), socket=SimpleNamespace(**vars(READY) | lacks)), check, Mark.WARNING)


def test_missing_workers_of_a_forming_job_are_reported():
    transport = FaultyTransport()
    joined(transport.switch, 2, world=3)
    assert "lacks rank 2" in only(findings(transport), "job 0", Mark.WARNING).figure


def test_a_silent_member_is_reported_and_whether_others_wait_for_it():
    transport = FaultyTransport()
    a, _ = joined(transport.switch, 2)
    found = only(findings(transport), "job 0", Mark.WARNING)
    assert "hears nothing of rank 0 (10.0.0.100:40000 at port 0, silent for" in found.figure
    assert "waits for" not in found.figure and "killed" in found.remedy
    transport = FaultyTransport(transport.switch)
    transport.switch.receive(a.port, a.contribution(a.first_seq, bytes(4)), now_us())
    found = only(findings(transport), "job 0", Mark.WARNING)
    assert "; waits for rank 1 (10.0.0.101:40001 at port 1, silent for" in found.figure
    assert "hears nothing of" not in found.figure  # the contribution was a sign of life


def test_members_that_have_just_been_heard_are_ok_and_ranks_without_a_member_are_named():
    transport = FaultyTransport()
    _, b = joined(transport.switch, 2, at_us=now_us())
    assert findings(transport)["job 0"].mark == Mark.OK
    transport.switch.receive(b.port, b.control(Action.LEAVE, seq=1), now_us())
    found = findings(FaultyTransport(transport.switch))["job 0"]
    assert found.mark == Mark.OK and "1 of 2 workers, threshold 2; rank 1 left or evicted" in found.figure


def test_a_halted_job_is_reported():
    transport = FaultyTransport()
    a, _ = joined(transport.switch, 2)
    transport.switch.receive(a.port, a.halt(), 0)
    assert "halted" in only(findings(transport), "job 0", Mark.WARNING).figure


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("confirmed", [True, False])
def test_checking_a_key_does_not_change_the_job(world, confirmed):
    transport = FaultyTransport()
    if confirmed:
        joined(transport.switch, world, at_us=now_us())
    else:
        worker = Client.numbered(0)
        worker.challenge = transport.switch.jobs[0].challenge
        transport.switch.receive(0, worker.join(world=max(world, 2), elements=8), now_us())
    before = transport.switch.jobs
    assert findings(transport, job=0, key=0x6B6579)["key"].mark == Mark.OK
    assert findings(FaultyTransport(transport.switch), job=0, key=1)["key"].mark == Mark.BAD
    assert transport.switch.jobs == before and before[0].state == (JobState.RUNNING if confirmed else JobState.FORMING)


def test_checking_a_key_does_not_end_a_job_of_silent_members():
    """After a longer silence than `evict_us`, a Join with another key, or with other settings, ends the job."""
    transport = FaultyTransport()
    joined(transport.switch, 2, evict_us=1_000_000, at_us=now_us())
    CLOCK.now += 60.0
    before = transport.switch.jobs[0]
    for key in (0x6B6579, 1):
        found = findings(FaultyTransport(transport.switch), job=0, key=key)["key"]
        assert found.mark == Mark.WARNING and "could end the job" in found.figure
    assert transport.switch.jobs[0] == before


@pytest.mark.parametrize("job", [1, 2, 255])
def test_checking_the_key_of_no_job_creates_no_job(job):
    transport = FaultyTransport()
    only(findings(transport, job=job, key=1), "key", Mark.WARNING)
    assert not any(each.state for each in transport.switch.jobs)


def test_a_fault_is_bad_while_it_lasts_and_a_warning_afterwards():
    class Damaged(FaultyTransport):
        def send(self, burst, segment_bytes):
            super().send(burst, segment_bytes)
            self.switch.receive(1, bytes(64), 0, error=True)

    transport = Damaged()
    found = only(findings(transport), "port1.RX_ERROR", Mark.BAD)
    assert "check cable" in found.remedy and " of them in the last " in found.figure
    only(findings(FaultyTransport(transport.switch)), "port1.RX_ERROR", Mark.WARNING)


def test_congestion_at_a_port_is_not_reported_as_a_broken_cable():
    class Congested(FaultyTransport):
        def send(self, burst, segment_bytes):
            super().send(burst, segment_bytes)
            self.switch.receive(1, bytes(64), 0, overflow=True)

    found = findings(Congested())
    assert "congestion" in only(found, "port1.RX_OVERFLOW", Mark.BAD).figure
    assert "port1.RX_ERROR" not in found


def test_results_that_wait_for_a_port_are_congestion_and_no_fault():
    class Crowded(FaultyTransport):
        def send(self, burst, segment_bytes):
            super().send(burst, segment_bytes)
            self.switch.port_counters[1][PortCounter.TX_WAIT_RESULT] += 1

    found = findings(Crowded())["port1.TX_WAIT_RESULT"]
    assert found.mark == Mark.OK
    assert "congestion" in found.figure and "over more ports" in found.remedy


def test_every_unusual_counter_is_reported_with_the_worst_first():
    transport = FaultyTransport()
    transport.switch.outcomes[:] = [3] * len(transport.switch.outcomes)
    found = findings(transport)
    unusual = [name for name in found if name in Outcome.__members__]
    assert len(unusual) == sum(counter_entry(name).severity != Severity.NORMAL for name in Outcome.__members__)
    marks = [found[name].mark for name in unusual]
    assert marks == sorted(marks, key=[Mark.BAD, Mark.WARNING, Mark.OK].index)
    assert all(
        counter_entry(name).severity != Severity.NORMAL and counter_entry(name).meaning in found[name].figure
        for name in unusual
    )


def test_loss_over_sockets_is_reported():
    with UdpModel(CONFIG) as model:
        with Worker(model.address(), world=1, key=7):
            found = {each.check: each for each in examine(model.address(1), job=0, key=7, rate_gbps=0.001)}
            assert found["key"].mark == found["segment"].mark == found["ToS"].mark == Mark.OK
            assert "running" in found["job 0"].figure
        model.faults = Faults(loss=0.1)
        found = {each.check: each for each in examine(model.address(1), rate_gbps=0.001)}
        assert found["loss"].mark == Mark.BAD and found["segment"].mark == Mark.OK
        model.deaf = True
        assert {each.check: each for each in examine(model.address(1), timeout_s=0.2)}["switch"].mark == Mark.BAD


def test_a_probe_records_the_tos_of_replies_and_closed_ports():
    with UdpModel(CONFIG) as model:
        probe = Probe(model.address())
        assert probe.peer == "127.0.0.1" and probe.mtu > 1500
        probe.close()
    probe = Probe("127.0.0.1:1")
    for _ in range(3):
        probe.send(b"anybody?", 8)
        probe.receive(memoryview(bytearray(1 << 16)), 0.05)
    assert probe.refused and probe.sent == 3
    with pytest.raises(ValueError, match="do not fit"):
        probe.send(bytes(65507 + 1), 1)
    probe.close()
    with pytest.raises(SwitchUnreachableError, match=r"there is no host|cannot be looked up"):
        Probe("no-such-host.invalid")


@pytest.mark.parametrize(
    ("number", "word"), [(errno.ENETUNREACH, "no route"), (errno.EACCES, "broadcast"), (errno.ENODEV, "No such device")]
)
def test_a_host_without_a_route_is_named_in_the_remedy(number, word, monkeypatch):
    class Cut(socket.socket):
        def connect(self, address):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr("socket.socket", Cut)
    found = {finding.check: finding for finding in examine("198.51.100.7:27000", timeout_s=0.01)}
    assert found["switch"].mark == Mark.BAD and word in found["switch"].figure
    assert "`ip route get 198.51.100.7`" in found["switch"].remedy or number == errno.EACCES
