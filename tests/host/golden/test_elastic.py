"""A job whose members change, whose slots are forced, or that is halted: frames in, frames out of the golden switch."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.switch import Switch
from iswitch.wire import (
    SILENCE_TICK_US,
    ContributionFlag,
    Format,
    JobState,
    MemberState,
    Outcome,
    Reason,
    ResultFlag,
    Type,
)
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client

CONFIG = Config(ports=4, bus_bits=64, members=4, jobs=2, window=2, elements=16)
BOUNDARY, REQUIRES_ALL = ContributionFlag.BOUNDARY, ContributionFlag.REQUIRES_ALL
EVICT_US = 40 * SILENCE_TICK_US


class Bench:
    """A switch, workers of one int32 job at a port each, and the frames that each received since the last `heard`."""

    def __init__(self, workers: int = 3, **settings: int) -> None:
        self.switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=3)
        self.clients = [Client.numbered(k) for k in range(workers)]
        self.log = {client.mac: [] for client in self.clients}
        self.now_us = 0
        self.settings = {"world": workers, "elements": 16, "format": Format.INT32, "evict_us": EVICT_US} | settings
        for client in self.clients:
            self.send(client, client.join(**self.settings))
        for client in self.clients:
            self.send(client, client.join())
        for client in self.clients:
            self.heard(client)

    def send(self, client: Client, frame: bytes) -> Outcome:
        """Send a frame and return its outcome."""
        before = list(self.switch.outcomes)
        for _, copy in self.switch.receive(client.port, frame, self.now_us):
            for other in self.clients:
                if copy[:6] == other.mac:
                    self.log[other.mac].append(other.take(copy))
        return Outcome(next(k for k, count in enumerate(self.switch.outcomes) if count != before[k]))

    def heard(self, client: Client) -> list:
        replies, self.log[client.mac] = self.log[client.mac], []
        return replies

    def add(self, client: Client, seq: int, *, low: int | None = None, flags: int = 0) -> Outcome:
        """A contribution of 1 << member to the seq."""
        number = np.array([1 << client.member], np.int32)
        return self.send(
            client, client.contribution(seq, number, behind=seq - (seq if low is None else low), flags=flags)
        )

    def newcomer(self, index: int) -> Client:
        """Return a new client, with an address of its own, that has joined and confirmed."""
        client = Client.numbered(index, port=index % CONFIG.ports)
        self.clients.append(client)
        self.log[client.mac] = []
        self.send(client, client.join(**self.settings))
        self.send(client, client.join())
        return client


def test_a_joining_member_is_admitted_when_a_collective_ends_and_not_before():
    bench = Bench()
    one, two, gone = bench.clients
    first = one.first_seq
    bench.send(gone, gone.leave())
    new = bench.newcomer(9)
    assert [int(reply.ack["standing"]) for reply in bench.heard(new)] == [MemberState.NONE, MemberState.JOINING]
    assert (new.member, new.token != gone.token) == (gone.member, True)
    bench.add(one, first), bench.add(two, first)
    assert bench.add(new, first) == Outcome.FORMING
    assert [reply.flags for reply in bench.heard(one)] == [ResultFlag(0)]
    bench.add(one, first + 1, flags=BOUNDARY), bench.add(two, first + 1, flags=BOUNDARY)
    (last,) = bench.heard(one)
    assert (last.flags, int(last.header["members"])) == (ResultFlag.MEMBERS_CHANGED, 0b011)
    assert [reply.flags for reply in bench.heard(new)] == [ResultFlag.MEMBERS_CHANGED]
    bench.send(new, new.join())
    assert (int(bench.heard(new)[-1].ack["standing"]), new.first_seq) == (MemberState.LIVE, first + 2)
    bench.add(one, first + 2, flags=REQUIRES_ALL), bench.add(two, first + 2, flags=REQUIRES_ALL)
    assert not bench.heard(one)[1:]
    assert bench.add(new, first + 2, flags=REQUIRES_ALL) == Outcome.ADDED
    assert int(bench.heard(new)[-1].numbers[0]) == 0b111
    assert bench.switch.counters()["stat.ADMITTED"] == 1


def test_the_result_of_a_boundary_always_has_the_flag_members_changed():
    bench = Bench()
    one, two, gone = bench.clients
    bench.send(gone, gone.leave())
    bench.newcomer(9)
    for client in (one, two):
        bench.add(client, one.first_seq, flags=BOUNDARY)
    bench.heard(one)
    assert bench.add(one, one.first_seq, flags=BOUNDARY) == Outcome.DUPLICATE
    assert [reply.flags for reply in bench.heard(one)] == [ResultFlag.MEMBERS_CHANGED | ResultFlag.RESENT]


def test_a_slot_before_the_boundary_does_not_wait_for_admitted_members():
    bench = Bench()
    one, two, gone = bench.clients
    first = one.first_seq
    bench.send(gone, gone.leave())
    bench.newcomer(9)
    for client in (one, two):
        bench.add(client, first + 1, low=first, flags=BOUNDARY)
    bench.heard(one)
    for client in (one, two):
        bench.add(client, first)
    assert [int(reply.header["members"]) for reply in bench.heard(one)] == [0b011]


@pytest.mark.parametrize("how", ["repeat", "held", "want"])
def test_silent_members_are_evicted_when_another_waits_for_them(how):
    bench = Bench(threshold=2 if how == "held" else 3)
    one, two, dead = bench.clients
    first, rounds = one.first_seq, 1 + 4 * (how == "held")
    for seq in range(first, first + rounds):
        for client in (one, two):
            bench.add(client, seq)

    def ask() -> Outcome:
        if how == "repeat":
            return bench.add(one, first)
        return bench.send(one, one.receipt(first, want=True)) if how == "want" else bench.add(one, first + 4)

    ask()
    assert bench.switch.counters()["stat.EVICTED"] == 0
    bench.now_us += EVICT_US + 2 * SILENCE_TICK_US
    bench.send(two, two.receipt(first))
    bench.heard(one)
    assert ask() == {"repeat": Outcome.DUPLICATE, "held": Outcome.SLOT_HELD, "want": Outcome.RECEIPT}[how]
    assert bench.switch.counters()["stat.EVICTED"] == 1
    assert bench.switch.jobs[0].live == 0b011
    if how != "held":
        assert [int(reply.header["members"]) for reply in bench.heard(one)] == [0b011]
    assert bench.add(dead, first) == Outcome.MEMBER


def test_slow_members_are_not_evicted():
    bench = Bench()
    one, two, slow = bench.clients
    bench.add(one, one.first_seq)
    for _ in range(10):
        bench.now_us += EVICT_US // 2
        bench.send(slow, slow.receipt(one.first_seq))
        bench.send(two, two.receipt(one.first_seq))
        assert bench.add(one, one.first_seq) == Outcome.DUPLICATE
    assert bench.switch.counters()["stat.EVICTED"] == 0


@pytest.mark.parametrize("pause_us", [2**29, 2**30, 2**31])
def test_a_silence_is_not_forgotten_when_the_clock_of_32_bits_wraps(pause_us):
    """The others are heard now and then, until 2^32 us and a little have passed since the dead member's last frame."""
    bench = Bench()
    one, two, dead = bench.clients
    bench.add(one, one.first_seq)
    bench.send(dead, dead.receipt(one.first_seq))
    for now_us in [*range(0, 2**32, pause_us), 2**32 + SILENCE_TICK_US]:
        bench.now_us = now_us % 2**32
        bench.send(two, two.receipt(one.first_seq))
    bench.send(one, one.receipt(one.first_seq))
    bench.add(one, one.first_seq)
    assert bench.switch.counters()["stat.EVICTED"] == 1
    assert bench.switch.jobs[0].live == 0b011


def test_a_member_that_is_not_awaited_is_not_evicted():
    bench = Bench()
    for client in bench.clients:
        bench.add(client, client.first_seq)
    bench.now_us += 2 * EVICT_US
    one = bench.clients[0]
    assert bench.add(one, one.first_seq) == Outcome.DUPLICATE
    assert bench.send(one, one.receipt(one.first_seq, want=True)) == Outcome.RECEIPT
    assert bench.switch.counters()["stat.EVICTED"] == 0


def test_without_evict_us_no_member_is_evicted():
    bench = Bench(evict_us=0)
    one = bench.clients[0]
    bench.add(one, one.first_seq)
    bench.now_us += 600_000_000
    bench.add(one, one.first_seq)
    assert bench.switch.counters()["stat.EVICTED"] == 0


def test_a_job_ends_when_only_newly_admitted_members_remain():
    bench = Bench(2)
    one, gone = bench.clients
    bench.send(gone, gone.leave())
    new = bench.newcomer(9)
    bench.add(one, one.first_seq, flags=BOUNDARY)
    assert bench.switch.jobs[0].live == 0b11
    bench.send(one, one.leave())
    assert bench.switch.jobs[0].state == JobState.NONE
    bench.heard(new)
    assert bench.send(new, new.join()) == Outcome.REFUSED
    assert bench.heard(new)[0].reason == Reason.CHALLENGE


def test_after_its_first_collective_an_admitted_member_is_like_the_others():
    bench = Bench(2)
    one, gone = bench.clients
    bench.send(gone, gone.leave())
    new = bench.newcomer(9)
    bench.add(one, one.first_seq, flags=BOUNDARY)
    for client in (one, new):
        bench.add(client, one.first_seq + 1, flags=BOUNDARY | REQUIRES_ALL)
    bench.send(one, one.leave())
    assert (bench.switch.jobs[0].state, bench.switch.jobs[0].live) == (JobState.RUNNING, 0b10)
    bench.heard(new)
    bench.add(new, one.first_seq + 2)
    assert [int(reply.header["members"]) for reply in bench.heard(new)] == [0b10]


def test_while_a_job_forms_silent_members_yield_their_indices():
    switch = Bench(1).switch
    dead, restarted = Client.numbered(1, job=1), Client.numbered(2, job=1)
    settings = {"world": 2, "elements": 16, "evict_us": EVICT_US}
    for frame in (dead.join(member=0, **settings), None):
        for _, copy in switch.receive(1, frame or dead.join(member=0), 0):
            dead.take(copy)
    restarted.challenge = dead.challenge
    asked = restarted.join(member=0, **settings)
    for now_us, reason in ((EVICT_US, Reason.MEMBER), (EVICT_US + 2 * SILENCE_TICK_US, Reason.DONE)):
        ((_, copy),) = switch.receive(2, asked, now_us)
        assert restarted.take(copy).reason == reason
    assert (switch.jobs[1].live, switch.jobs[1].entries[0].nonce) == (1, restarted.nonce)
    assert switch.jobs[1].challenge == dead.challenge + 1


@pytest.mark.parametrize("ends", ["repeat", "contribution"])
def test_a_slot_completes_when_its_deadline_has_passed(ends):
    bench = Bench(deadline_us=1000)
    one, two, late = bench.clients
    seq = one.first_seq
    bench.add(one, seq)
    bench.now_us = 999
    assert bench.add(one, seq) == Outcome.DUPLICATE
    assert not bench.heard(one)
    bench.now_us = 1000
    bench.add(one if ends == "repeat" else two, seq)
    (reply,) = bench.heard(one)
    assert (int(reply.header["members"]), reply.flags) == (0b001 if ends == "repeat" else 0b011, ResultFlag.PARTIAL)
    bench.heard(late)
    assert bench.add(late, seq) == Outcome.LATE
    (again,) = bench.heard(late)
    assert again.header["members"] == reply.header["members"]


def test_a_segment_that_requires_all_ignores_threshold_and_deadline():
    bench = Bench(deadline_us=1000, threshold=1)
    one, two, three = bench.clients
    bench.add(one, one.first_seq, flags=REQUIRES_ALL)
    bench.now_us = 5000
    bench.add(two, one.first_seq, flags=REQUIRES_ALL), bench.add(one, one.first_seq, flags=REQUIRES_ALL)
    assert not bench.heard(one)
    bench.add(three, one.first_seq, flags=REQUIRES_ALL)
    assert [int(reply.header["members"]) for reply in bench.heard(one)] == [0b111]


@pytest.mark.parametrize("flags", [BOUNDARY, REQUIRES_ALL])
def test_segments_of_different_collectives_are_not_added_up(flags):
    bench = Bench()
    one, two, _ = bench.clients
    bench.add(one, one.first_seq)
    assert bench.add(two, one.first_seq, flags=flags) == Outcome.FORMAT


def test_fbcast_completes_an_open_segment_and_its_retransmission_changes_nothing():
    bench = Bench()
    one, two, three = bench.clients
    seq = one.first_seq
    bench.add(one, seq)
    frame = two.fbcast(seq)
    for _ in range(2):
        assert bench.send(two, frame) == Outcome.CONTROL
    assert [reply.type for reply in bench.heard(two)] == [Type.ACK, Type.RESULT, Type.ACK]
    assert [(int(reply.header["members"]), reply.flags) for reply in bench.heard(three)] == [
        (0b001, ResultFlag.PARTIAL)
    ]
    assert bench.add(three, seq) == Outcome.LATE


@pytest.mark.parametrize("kind", ["nobody has sent", "waits for all", "another lap"])
def test_fbcast_is_refused_and_its_number_is_not_used_up(kind):
    bench = Bench()
    one, two, _ = bench.clients
    seq = one.first_seq
    if kind == "waits for all":
        bench.add(one, seq, flags=REQUIRES_ALL)
    refused = one.fbcast(seq + (CONFIG.slots if kind == "another lap" else 0))
    assert bench.send(one, refused) == Outcome.REFUSED
    assert [reply.reason for reply in bench.heard(one)] == [Reason.SEQ]
    bench.add(two, seq + 1, low=seq)
    assert bench.send(one, one.fbcast(seq + 1, seq=1)) == Outcome.CONTROL


def test_a_halted_job_accepts_no_contributions_until_it_is_resumed():
    bench = Bench(2)
    one, two = bench.clients
    seq = one.first_seq
    bench.send(two, two.halt())
    assert int(bench.heard(two)[0].ack["state"]) == JobState.HALTED
    assert bench.add(one, seq) == Outcome.HALTED
    (notice,) = bench.heard(one)
    assert (notice.type, notice.reason) == (Type.NOTICE, Reason.HALTED)
    assert bench.send(one, one.receipt(seq)) == Outcome.RECEIPT
    bench.send(one, one.halt(False))
    assert [bench.add(client, seq) for client in (one, two)] == [Outcome.ADDED] * 2


def test_a_halted_job_admits_members_at_the_first_boundary_after_it_resumes():
    bench = Bench(2)
    one, gone = bench.clients
    bench.send(gone, gone.leave())
    bench.send(one, one.halt())
    new = bench.newcomer(9)
    assert [int(reply.ack["standing"]) for reply in bench.heard(new)] == [MemberState.NONE, MemberState.JOINING]
    bench.send(one, one.halt(False))
    bench.add(one, one.first_seq, flags=BOUNDARY)
    assert bench.switch.jobs[0].live == 0b11


def test_replayed_frames_change_nothing():
    """Everything a member ever sent comes again from its port, after it left and another worker has its index."""
    bench = Bench(2)
    one, gone = bench.clients
    captured, plain = [], bench.switch.receive

    def tap(port: int, frame: bytes, now_us: int, error: bool = False):
        captured.append((port, frame))
        return plain(port, frame, now_us, error)

    bench.switch.receive = tap
    seq = one.first_seq
    for frame in (
        gone.join(),
        gone.contribution(seq, np.ones(1, np.int32), flags=BOUNDARY),
        gone.receipt(seq + 1),
        gone.set_h(1),
        gone.halt(),
        gone.halt(False),
        gone.set_h(2),
        gone.leave(),
    ):
        bench.send(gone, frame)
    bench.switch.receive = plain
    new = bench.newcomer(9)
    bench.add(one, seq, flags=BOUNDARY)
    for client in (one, new):
        bench.add(client, seq + 1, flags=BOUNDARY | REQUIRES_ALL)
    before = bench.switch.jobs
    for port, frame in captured:
        held, counted = list(bench.switch.jobs), sum(bench.switch.outcomes)
        bench.switch.receive(port, frame, bench.now_us)
        assert (bench.switch.jobs, sum(bench.switch.outcomes)) == (held, counted + 1)
    assert bench.switch.jobs == before
    assert bench.switch.counters()["outcome.TOKEN"] == 2
