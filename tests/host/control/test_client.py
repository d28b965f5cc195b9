"""Joining a job when answers are lost, on a clock of its own against the golden switch."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.control.client import Control
from iswitch.driver.membership import Membership
from iswitch.errors import NotAMemberError, RefusedError, SwitchUnreachableError
from iswitch.golden.decide.job import with_next_challenge
from iswitch.golden.switch import Switch
from iswitch.wire import NO_MEMBER, Action, ContributionFlag, Format, JobState, MemberState, Mode, Reason, Type
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, parse

CONFIG = Config(ports=4, bus_bits=64, members=4, window=4, elements=4)
KEY = 0x6B6579


class Wire:
    """A transport to port `port` of a switch, in which answers to Joins can be lost. `joins`: the standings and job
    states they told, those of lost ones too."""

    def __init__(self, switch, port, *, lost=(), then=None):
        self.switch, self.client, self.lost, self.then = switch, Client.numbered(port), lost, then or {}
        self.clock, self.inbox, self.joins, self.numbers = 1.0, [], [], itertools.count(1)

    def randbits(self, bits):
        return next(self.numbers)

    def now(self):
        return self.clock

    def sleep(self, seconds):
        self.clock += seconds

    def send(self, burst, segment_bytes):
        c = self.client
        frame = c.datagram(bytes(burst))
        for _, reply in self.switch.receive(c.port, frame, int(self.clock * 1e6)):
            answer = parse(reply)
            if reply[:6] != c.mac or answer.type != Type.ACK:
                continue
            index = len(self.joins)
            if answer.ack["action"] != Action.JOIN or index not in self.lost:
                self.inbox.append(reply[42 : 42 + int.from_bytes(reply[38:40]) - 8])
            if answer.ack["action"] == Action.JOIN:
                self.joins.append((MemberState(int(answer.ack["standing"])), JobState(int(answer.ack["state"]))))
                self.then.get(index, lambda: None)()

    def receive(self, into, timeout_s):
        if not self.inbox:
            self.clock += timeout_s
            return 0, 0
        datagram = self.inbox.pop(0)
        into[: len(datagram)] = datagram
        return len(datagram), len(datagram)


class Bench:
    """A job of two whose members are at ports 0 and 1."""

    def __init__(self, segments):
        self.switch, self.segments = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1), segments
        self.members = [Client.numbered(port) for port in range(2)]

    def tell(self, client, frame):
        for _, reply in self.switch.receive(client.port, frame, 1_000_000):
            if reply[:6] == client.mac:
                client.take(reply)

    def enter(self, client):
        self.tell(client, client.join(world=2, elements=4, segments=self.segments, member=client.port))
        self.tell(client, client.join())

    def run(self):
        """Both are there, and then the second leaves."""
        for client in self.members:
            self.enter(client)
        self.tell(self.members[1], self.members[1].control(Action.LEAVE, seq=1))
        assert self.job.state == JobState.RUNNING and self.job.live == 1
        return self

    def boundary(self):
        """In a synchronous job; an asynchronous one in which nothing is granted is at one anyway."""
        if not self.segments:
            first = self.members[0]
            self.tell(
                first, first.contribution(first.first_seq, np.ones(4, np.float32), flags=ContributionFlag.BOUNDARY)
            )

    @property
    def job(self):
        return self.switch.jobs[0]

    def join(self, wire, *, elastic=True, **settings):
        """Whether it is a newcomer, and what it ends with."""
        control = Control(wire)
        membership = Membership(
            job=0,
            key=KEY,
            world=2,
            threshold=2,
            format=Format.WINDOW64,
            fraction=44,
            elements=4,
            mode=Mode.QUARANTINE,
            nonce=99,
            token=7,
            job_token=8,
            wanted=NO_MEMBER,
            segments=self.segments,
        )
        membership = replace(membership, **settings)
        membership = control.join(membership, timeout_s=30, elastic=elastic)
        assert self.job.live >> membership.member & 1 and membership.token == self.job.entries[membership.member].token
        return control.joined_running_job, membership


@pytest.mark.parametrize("segments", [0, 3], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 2), (1, 2), (1, 2, 3)])
def test_a_joining_worker_knows_that_the_job_was_running_despite_losses(segments, lost):
    """If the answer that says that the worker waits for a boundary is lost, the next answer says that it is live."""
    bench = Bench(segments).run()
    confirmed = 1 + (0 in lost)
    wire = Wire(bench.switch, 2, lost=lost, then={confirmed: bench.boundary})
    newcomer, membership = bench.join(wire)
    assert newcomer and membership.first_seq == bench.members[0].first_seq + (not segments)
    assert wire.joins[confirmed][0] == MemberState.JOINING and wire.joins[-1][0] == MemberState.LIVE


@pytest.mark.parametrize("segments", [0, 3], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("lost", [(), (0,), (1,), (0, 2), (1, 2)])
@pytest.mark.parametrize("last", [False, True])
def test_a_worker_of_a_forming_job_did_not_join_a_running_job(segments, lost, last):
    bench = Bench(segments)
    if last:
        bench.enter(bench.members[0])
    wire = Wire(bench.switch, 2, lost=lost, then={} if last else {2: lambda: bench.enter(bench.members[1])})
    newcomer, _ = bench.join(wire, elastic=False)
    assert not newcomer and wire.joins[-1] == (MemberState.LIVE, JobState.RUNNING)


@pytest.mark.parametrize("waited", [1, 2], ids=["joining", "joining for longer"])
def test_a_worker_whose_job_ended_while_it_waited_creates_a_new_one(waited):
    def begin_anew():
        Control(Wire(bench.switch, 3)).end_job(0, KEY)
        bench.members[0].token = bench.members[0].number = 0
        bench.enter(bench.members[0])

    bench = Bench(0).run()
    wire = Wire(bench.switch, 2, then={waited: begin_anew})
    newcomer, _ = bench.join(wire)
    assert not newcomer and wire.joins[waited][0] == MemberState.JOINING and bench.job.live.bit_count() == 2


@pytest.mark.parametrize("ended", [1, 2, 3])
def test_a_member_of_a_forming_job_that_ends_joins_the_next_one(ended):
    """A member of a forming job recognises the end of the job."""

    def begin_anew():
        Control(Wire(bench.switch, 3)).end_job(0, KEY)

    bench = Bench(0)
    wire = Wire(bench.switch, 2, then={ended: begin_anew, ended + 4: lambda: bench.enter(bench.members[1])})
    newcomer, _ = bench.join(wire, elastic=False)
    assert not newcomer and wire.joins[-1] == (MemberState.LIVE, JobState.RUNNING) and bench.job.live.bit_count() == 2


def test_a_worker_joins_although_each_of_31_others_changes_the_challenge_first():
    """In the largest job, all workers start again at one moment, and each takes the place of a dead member."""
    bench = Bench(0)

    def take_a_place():
        bench.switch.jobs[0] = with_next_challenge(bench.job)

    bench.enter(bench.members[0])
    wire = Wire(bench.switch, 2, then=dict.fromkeys(range(31), take_a_place))
    bench.join(wire, elastic=False)
    assert wire.joins[-1] == (MemberState.LIVE, JobState.RUNNING) and len(wire.joins) == 33


@pytest.mark.parametrize("segments", [0, 3], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("wanted", [NO_MEMBER, 1])
@pytest.mark.parametrize("lost", [(), (0,), (1,)])
@pytest.mark.parametrize("boundary", range(4))
def test_a_worker_that_is_not_elastic_never_enters_a_running_job(segments, wanted, lost, boundary):
    """A boundary would admit it, whatever it does next: its members would have to give it their state."""
    bench = Bench(segments).run()
    before = bench.job
    wire = Wire(bench.switch, 2, lost=lost, then={boundary: bench.boundary})
    with pytest.raises(RefusedError, match="is running already"):
        bench.join(wire, elastic=False, wanted=wanted)
    assert all(standing == MemberState.NONE for standing, _ in wire.joins)
    assert bench.job._replace(ring=before.ring, last_heard=before.last_heard) == before and bench.job.live == 1


@pytest.mark.parametrize(
    ("setting", "reason"), [({"key": KEY + 1}, Reason.KEY), ({"evict_us": 1_000_000}, Reason.EVICT)]
)
def test_a_worker_that_is_not_elastic_learns_first_that_a_running_job_is_not_its_own(setting, reason):
    bench = Bench(0).run()
    with pytest.raises(RefusedError) as refused:
        bench.join(Wire(bench.switch, 2), elastic=False, **setting)
    assert refused.value.reason == reason


RANKS = range(2)


def running_job(segments=0):
    """A job of two workers of this driver: the bench, their wires, control clients and memberships."""
    bench = Bench(segments)
    wires = [Wire(bench.switch, rank) for rank in RANKS]
    controls = [Control(wire, timeout_s=2.0) for wire in wires]
    requests = [
        Membership(
            job=0,
            key=KEY,
            world=2,
            threshold=2,
            format=Format.WINDOW64,
            fraction=44,
            elements=4,
            mode=Mode.QUARANTINE,
            nonce=90 + rank,
            token=70 + rank,
            job_token=80,
            wanted=rank,
            evict_us=1_000_000,
            segments=segments,
        )
        for rank in RANKS
    ]
    memberships = []
    # The first one waits for the second one, which joins when the answer to the first one's second Join has come.
    wires[0].then = {1: lambda: memberships.append(controls[1].join(requests[1], timeout_s=30))}
    memberships.insert(0, controls[0].join(requests[0], timeout_s=30))
    assert bench.job.state == JobState.RUNNING and [m.member for m in memberships] == [0, 1]
    return bench, wires, controls, memberships


@pytest.mark.parametrize("segments", [0, 3], ids=["synchronous", "asynchronous"])
def test_a_worker_that_has_moved_is_bound_to_its_new_place(segments):
    bench, wires, controls, memberships = running_job(segments)
    wires[1].client = Client.numbered(3)
    renewed = controls[1].renew(memberships[1])
    assert (renewed.member, renewed.epoch) == (1, memberships[1].epoch)
    assert bench.job.entries[1].source.mac == wires[1].client.mac


@pytest.mark.parametrize("at", [None, 3], ids=["here", "moved"])
def test_an_evicted_worker_that_renews_ends_no_job_after_an_outage(at):
    """The switch has heard nobody for longer than `evict_us`: the next Join with the challenge would end the job."""
    bench, wires, controls, memberships = running_job()
    assert controls[1].leave(memberships[1])
    if at is not None:
        wires[1].client = Client.numbered(at)
    for wire in wires:
        wire.clock += 60.0
    before = bench.job
    for _ in range(3):  # the second one knows the challenge from the answers to the first one
        with pytest.raises(NotAMemberError):
            controls[1].renew(memberships[1])
    assert bench.job == before and bench.job.live == 0b01


def test_an_unreachable_switch_is_reported_with_the_fault_of_this_machine():
    class Cut(Wire):
        fault = "the network interface on the way to it is down; set the interface up (`ip link`)"

        def send(self, burst, segment_bytes):
            pass

    with pytest.raises(
        SwitchUnreachableError,
        match=r"has not answered for 2 s: the network interface .* is down; set .*`ip link`\); start the switch",
    ):
        Control(Cut(Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1), 0), timeout_s=2.0).read(0)
