"""Who is in a job: each rule of docs/protocol.md section 4 through the core, against the golden model and by name."""

import dataclasses
from itertools import product

import numpy as np
import pytest

from hw.decide import core, work
from hw.decide.membership import acknowledgement, departure, ring_reset
from iswitch.config import Config
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.wire import NO_MEMBER, SILENCE_TICK_US, Action, JobState, MemberState, Operation, Outcome, Reason
from sim.bench.core import CoreBench
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096, mac_entries=64)
WORLD = {"world": 2, "elements": 8, "threshold": 2}


class Conversation(CoreBench):
    """A core bench that notes the reasons of the answers."""

    def __init__(self, config=CONFIG, **options):
        super().__init__(config, **options)

    def ask(self, client, frame, *, port=None):
        [answer] = self.exchange(client.port if port is None else port, frame)[:1]
        return client.take(answer)

    def reason(self, client, frame, **options):
        return self.ask(client, frame, **options).reason

    def running(self, **settings):
        clients = [Client.numbered(k) for k in range(2)]
        for _ in range(2):
            for client in clients:
                reply = self.ask(client, client.join(**WORLD | settings))
        assert reply.ack["state"] == JobState.RUNNING
        return clients


def test_join_is_challenged_granted_and_repeated_at_will():
    talk = Conversation()
    a, b, c = (Client.numbered(k) for k in range(3))
    first = talk.ask(a, a.join(**WORLD))
    assert (first.reason, first.header["member"], first.ack["live"]) == (Reason.CHALLENGE, 255, 0)
    for _ in range(3):
        again = talk.ask(a, a.join())
        assert (again.reason, again.ack["live"], again.ack["state"]) == (Reason.DONE, 1, JobState.FORMING)
    b.challenge = c.challenge = a.challenge
    assert talk.ask(b, b.join(**WORLD)).ack["state"] == JobState.RUNNING
    assert talk.reason(c, c.join(**WORLD)) == Reason.MEMBER
    assert talk.reason(a, a.join(challenge=0)) == Reason.DONE
    talk.check()


LIMITS = [
    (Reason.WORLD, {"world": 0}),
    (Reason.WORLD, {"world": 4}),
    (Reason.THRESHOLD, {"threshold": 0}),
    (Reason.THRESHOLD, {"threshold": 3}),
    (Reason.FORMAT, {"format": 0}),
    (Reason.FORMAT, {"format": 4}),
    (Reason.FRACTION, {"fraction": -127}),
    (Reason.FRACTION, {"fraction": 150}),
    (Reason.ELEMENTS, {"elements": 0}),
    (Reason.ELEMENTS, {"elements": 17}),
    (Reason.MODE, {"mode": 2}),
    (Reason.DEADLINE, {"deadline_us": 2**31}),
    (Reason.EVICT, {"evict_us": 2**14 - 1}),
    (Reason.EVICT, {"evict_us": 2**29}),
    (Reason.STALENESS, {"staleness": 8}),
    (Reason.SEGMENTS, {"segments": 2**24}),
]
DIFFERENCES = [
    (Reason.KEY, {"key": 1}),
    (Reason.WORLD, {"world": 3}),
    (Reason.THRESHOLD, {"threshold": 1}),
    (Reason.FORMAT, {"format": 2}),
    (Reason.FRACTION, {"fraction": 43}),
    (Reason.ELEMENTS, {"elements": 7}),
    (Reason.MODE, {"mode": 1}),
    (Reason.DEADLINE, {"deadline_us": 2**31 - 1}),
    (Reason.EVICT, {"evict_us": 2**14}),
    (Reason.STALENESS, {"staleness": 1, "segments": 2}),
    (Reason.SEGMENTS, {"segments": 2}),
]


def test_join_is_refused_with_the_first_reason_in_the_documented_order():
    talk = Conversation()
    a, b = Client.numbered(0), Client.numbered(1)
    a.join(**WORLD)
    assert talk.reason(a, a.control(Action.JOIN, a.settings | {"nonce": a.nonce}, job=2)) == Reason.JOB
    for k, (reason, settings) in enumerate(LIMITS):
        assert talk.reason(a, a.join(**WORLD | settings)) == reason
        later = dict(pair for wrong in LIMITS[k + 1 :] if wrong[0] > reason for pair in wrong[1].items())
        assert talk.reason(a, a.join(**WORLD | later | settings)) == reason
    assert talk.reason(a, a.join(challenge=0, **WORLD)) == Reason.CHALLENGE
    for fraction in (-126, 149):
        assert talk.reason(a, a.join(**WORLD | {"fraction": fraction})) == Reason.DONE
        assert talk.reason(a, a.end_job()) == Reason.DONE
    assert talk.reason(a, a.join(**WORLD)) == Reason.DONE
    assert talk.reason(b, b.join(**WORLD | {"key": 1})) == Reason.CHALLENGE
    for k, (reason, settings) in enumerate(DIFFERENCES):
        assert talk.reason(b, b.join(**WORLD | settings)) == reason
        later = dict(pair for wrong in DIFFERENCES[k + 1 :] for pair in wrong[1].items())
        assert talk.reason(b, b.join(**WORLD | later | settings)) == reason
    talk.check()


def test_index_is_the_wanted_or_the_lowest_free_one():
    talk = Conversation()
    a, b, c, d = (Client.numbered(k) for k in range(4))
    settings = {"world": 3, "elements": 8}
    for client in (a, b, c, d):
        assert talk.reason(client, client.join(**settings)) == Reason.CHALLENGE
    assert talk.ask(a, a.join(member=1, **settings)).header["member"] == 1
    assert talk.reason(b, b.join(member=1, **settings)) == Reason.MEMBER
    assert talk.reason(b, b.join(member=3, **settings)) == Reason.MEMBER
    assert talk.ask(b, b.join(**settings)).header["member"] == 0
    assert talk.ask(c, c.join(**settings)).header["member"] == 2
    assert talk.reason(d, d.join(**settings)) == Reason.MEMBER
    assert talk.reason(c, c.join(token=c.token ^ 2)) == Reason.MEMBER
    talk.check()


def test_a_member_that_moves_is_bound_to_its_new_port_and_address():
    talk = Conversation()
    a, b = talk.running()
    talk.exchange(a.port, a.contribution(a.first_seq, np.ones(3, np.float32)))
    b.port = 3
    assert talk.ask(b, b.contribution(b.first_seq, np.ones(3, np.float32))).reason == Reason.PORT
    assert talk.reason(b, b.join(challenge=0)) == Reason.CHALLENGE
    assert talk.reason(b, b.join()) == Reason.DONE
    assert talk.reason(a, a.join()) == Reason.DONE
    talk.exchange(b.port, b.contribution(b.first_seq, np.ones(3, np.float32)))
    assert talk.model.works[-1].emit
    b.udp_port += 1
    assert talk.ask(b, b.receipt(b.first_seq)).reason == Reason.ADDRESS
    talk.check()


def test_other_actions_are_refused_in_the_documented_order():
    talk = Conversation()
    a = Client.numbered(0)
    for frame in (a.leave(), a.reset(), a.set_h(1), a.end_job()):
        assert talk.reason(a, frame) == Reason.JOB
    a, _ = talk.running()
    assert talk.reason(a, a.end_job(key=1)) == Reason.KEY
    assert talk.reason(a, a.end_job(challenge=0)) == Reason.CHALLENGE
    assert talk.reason(a, a.reset(member=255)) == Reason.MEMBER
    assert talk.reason(a, a.control(10)) == Reason.ACTION
    for member in (2, 3, 255):
        assert talk.reason(a, a.set_h(1, member=member, token=0)) == Reason.MEMBER
    assert talk.reason(a, a.set_h(1, token=a.token ^ 1)) == Reason.TOKEN
    assert talk.reason(a, a.set_h(1), port=2) == Reason.MEMBER
    assert talk.reason(a, a.set_h(1)) == Reason.DONE
    assert talk.reason(a, a.set_h(1, seq=0)) == Reason.NUMBER
    assert talk.reason(a, a.set_h(0)) == Reason.THRESHOLD
    assert talk.reason(a, a.set_h(3)) == Reason.THRESHOLD
    assert talk.reason(a, a.set_h(7, seq=a.number - 2)) == Reason.DONE  # a repeat is not looked at
    talk.check()


@pytest.mark.parametrize("first_seq", [0, 2**32 - 4])
def test_departure_completes_what_waited_for_it_and_the_last_one_ends_the_job(first_seq):
    talk = Conversation(seed=seed_for_first_seq(first_seq, 0xFFFF))
    a, b = talk.running()
    assert (a.first_seq, a.epoch) == (first_seq, 0xFFFF)
    for seq in range(2):
        talk.exchange(a.port, a.contribution(first_seq + seq, np.ones(3, np.float32), behind=seq))
    leave = b.leave()
    assert talk.reason(b, leave) == Reason.DONE
    assert [work.operation for work in talk.model.works[2:]] == [Operation.FORCE] * 2
    assert talk.reason(b, leave) == Reason.DONE  # the answer was lost
    assert talk.reason(a, a.leave()) == Reason.DONE
    assert talk.reason(a, a.leave()) == Reason.JOB
    talk.check(stalls=0.4)


ASYNCHRONOUS = {"segments": 2, "staleness": 1}


@pytest.mark.parametrize("wanted", [(1, 0), (NO_MEMBER, NO_MEMBER)], ids=["indices", "any index"])
@pytest.mark.parametrize("settings", [{}, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
def test_workers_of_the_same_program_take_the_places_of_silent_members_one_by_one(settings, wanted):
    """The first of them takes no more than one place, and the slot that waits for that member completes."""
    talk = Conversation()
    a, b = talk.running(evict_us=SILENCE_TICK_US, **settings)
    for client in (a, b) if settings else ():
        talk.exchange(client.port, client.claim(1, client.first_seq))
    talk.exchange(a.port, a.contribution(a.first_seq, np.ones(3, np.float32)))
    again = [Client.numbered(k, port=k - 1) for k in (2, 3)]
    for client in again:
        client.key = a.key
        client.join(**WORLD | {"evict_us": SILENCE_TICK_US} | settings)
    for _ in range(48):
        talk.ask(again[0], again[0].read(0))
    reasons = [[talk.reason(client, client.join(member=k)) for _ in range(3)] for client, k in zip(again, wanted)]
    assert reasons == [[Reason.CHALLENGE, Reason.CHALLENGE, Reason.DONE]] * 2
    assert talk.model.jobs[0].state == JobState.FORMING
    assert [talk.reason(again[0], again[0].join(member=wanted[0])) for _ in range(2)] == [Reason.CHALLENGE, Reason.DONE]
    assert talk.model.jobs[0].state == JobState.RUNNING
    talk.check(stalls=0.4)


@pytest.mark.parametrize("staleness", [0, 1, 7])
def test_settings_of_an_asynchronous_job_are_within_what_the_switch_is_built_for(staleness):
    talk, a = Conversation(dataclasses.replace(CONFIG, staleness=staleness)), Client.numbered(0)
    talk.ask(a, a.join(**WORLD))
    for asked, segments in product((0, 1, 2, 7, 8, 255), (0, 1, 2**24 - 1, 2**24, 2**32 - 1)):
        reason = talk.reason(a, a.join(**WORLD | {"staleness": asked, "segments": segments}))
        if asked > (0 if segments == 0 else staleness or 7):
            assert reason == Reason.STALENESS
        else:
            assert reason == (Reason.SEGMENTS if segments and not staleness or segments >= 2**24 else Reason.DONE)
        if reason == Reason.DONE:
            talk.ask(a, a.end_job())
            a.forget(a.nonce)
    talk.check()


def leaves_and_comes_back(talk):
    """A member of an asynchronous job; returns both."""
    a, b = talk.running(**ASYNCHRONOUS)
    for client in (a, b):
        talk.exchange(client.port, client.claim(10, 8))
    talk.exchange(a.port, a.contribution(8, np.ones(3, np.float32)))
    talk.ask(b, b.leave())
    assert talk.model.works[-1].operation == Operation.FORCE
    talk.exchange(a.port, a.contribution(9, np.ones(3, np.float32), behind=1))  # no other member is expected
    assert talk.model.works[-1].emit
    b.forget(77)
    for _ in range(3):
        standing = int(talk.ask(b, b.join(**WORLD | ASYNCHRONOUS)).ack["standing"])
    assert standing == MemberState.JOINING
    talk.exchange(a.port, a.claim(11, 8))
    talk.exchange(a.port, a.receipt(10))
    assert (int(talk.ask(b, b.join()).ack["standing"]), b.first_seq) == (MemberState.LIVE, 10)
    talk.exchange(b.port, b.claim(1, 10))
    assert talk.model.works[-1].operation == Operation.GRANT and talk.model.works[-1].members == 0b11
    return a, b


def resets(talk, a, b):
    """Reset the job while claims wait and a member joins."""
    talk.exchange(b.port, b.claim(2, 10))
    talk.ask(a, a.leave())
    a.forget(78)
    for _ in range(2):
        talk.ask(a, a.join(**WORLD | ASYNCHRONOUS))
    talk.ask(b, b.reset())
    for client in (a, b):
        assert (int(talk.ask(client, client.join()).ack["standing"]), client.first_seq) == (MemberState.LIVE, 8)
        talk.exchange(client.port, client.claim(1, 8))
    assert talk.model.works[-1].operation == Operation.GRANT and talk.model.works[-1].seq == 8


@pytest.mark.parametrize("stalls", [0, 0.4])
def test_leaver_is_granted_nothing_any_more_and_claims_anew_and_a_reset_forgets_all_claims(stalls):
    talk = Conversation(seed=seed_for_first_seq(8, 0xFFFF))
    resets(talk, *leaves_and_comes_back(talk))
    talk.check(stalls=stalls)


MUTANTS = [
    (departure, "tables.claims_write.eq(1),", ""),
    (ring_reset, "tables.claims_next.base.eq(job.first_seq)", "tables.claims_next.base.eq(0)"),
    (
        ring_reset,
        "tables.claims_next.base.eq(job.first_seq)",
        "tables.claims_next.eq(tables.claims_row), tables.claims_next.base.eq(job.first_seq)",
    ),
    (acknowledgement, "Array(self.acknowledged)[self.member]", "job.first_seq"),
    (core, "~claims.behind.any()", "1"),
    (core, "rows.admitted_seq_next.eq(rows.claims_row.base)", "rows.admitted_seq_next.eq(rows.job_row.first_seq)"),
    (core, "rows.roster_next.joining.eq(0)", "rows.roster_next.joining.eq(job.joining)"),
    (core, "claim & claimed.write", "0"),
    (core, "updates_ring.eq(~fault & ~claim)", "updates_ring.eq(~fault)"),
    (core, "Mux(claim, claimed.outcome, ring.decision.outcome)", "ring.decision.outcome"),
    (work, "work.result.seq.eq(claim.base)", "work.result.seq.eq(held.frame.seq)"),
    (core, "rows.job_row.segments.any() & rows.job_row.joining.any()", "0"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("module", "sound", "wrong"), MUTANTS)
def test_mutant_of_what_claims_change_is_killed(mutated_core, module, sound, wrong):
    core = mutated_core(module, sound, wrong)
    talk = Conversation(seed=seed_for_first_seq(8, 0xFFFF))
    resets(talk, *leaves_and_comes_back(talk))
    with pytest.raises((AssertionError, TimeoutError)):
        talk.check(core=core)


def test_reset_empties_the_ring_and_wraps_the_epoch():
    talk = Conversation(seed=seed_for_first_seq(8, 0xFFFF))
    a, b = talk.running()
    talk.exchange(a.port, a.contribution(8, np.ones(3, np.float32)))
    reply = talk.ask(b, b.reset())
    assert (reply.reason, reply.header["epoch"], reply.ack["first_seq"]) == (Reason.DONE, 0, 8)
    talk.exchange(a.port, a.contribution(8, np.ones(3, np.float32)))
    talk.ask(a, a.join())
    talk.exchange(a.port, a.contribution(8, np.ones(3, np.float32)))
    assert [fate for fate in talk.model.fates if fate not in (Outcome.CONTROL, Outcome.REFUSED)] == [
        Outcome.ADDED,
        Outcome.EPOCH,
        Outcome.ADDED,
    ]
    talk.check()


def test_cycles_of_each_action():
    """From `active`, which is 3 cycles behind the headers, to `done`."""
    talk = Conversation()
    a, b = talk.running()
    for client, frame in (
        (a, a.join()),
        (a, a.read(0)),
        (a, a.set_h(2)),
        (a, a.control(10)),
        (b, b.leave()),
        (a, a.reset()),
        (a, a.end_job()),
    ):
        talk.ask(client, frame)
    source, _, replies = talk.check()
    cycles = [shown - taken - 3 for taken, shown in zip(source.times, replies.times, strict=True)]
    challenged, creation, *joins = [cycles[k] for k in (0, 2, 1, 3, 4)]
    read, set_h, unknown, leave, reset, end = cycles[5:]
    members, slots = CONFIG.members, CONFIG.slots
    assert max(challenged, creation, *joins, set_h, unknown, end) <= members + 15
    assert read == 14
    assert slots < leave <= slots + 15
    assert reset <= 12


def test_read_returns_eight_registers_from_any_address():
    talk = Conversation()
    a, _ = talk.running()
    for address in (0, 5, 40, 0xFFFFFFFC):
        reply = talk.ask(a, a.read(address, token=0, job=255 if address == 5 else 0))
        assert reply.ack["address"] == address
        assert reply.ack["registers"].tolist() == talk.model.registers(address, 0)
    talk.check()
