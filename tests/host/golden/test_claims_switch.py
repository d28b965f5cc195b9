"""An asynchronous job: frames in, frames out, of the golden switch."""

import numpy as np
import pytest

from iswitch.config import Config
from iswitch.golden.decide import claims as claims_of
from iswitch.golden.decide import ring
from iswitch.golden.decide.random import seed_for_first_seq
from iswitch.golden.decide.ring import contribute
from iswitch.golden.decide.slot import RULES
from iswitch.golden.switch import Switch
from iswitch.wire import SILENCE_TICK_US, Action, Format, MemberState, Outcome, Reason, Register, SlotState, Type
from sim.bench.asynchronous import AsynchronousWorker, element
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, parse

CONFIG = Config(ports=4, bus_bits=64, members=5, jobs=2, window=2, elements=16)
EVICT_US = 40 * SILENCE_TICK_US
SERIAL = 1 << 32


class Bench:
    """A switch, members of one job at a port each, and the frames that each received since the last `heard`."""

    def __init__(
        self, workers: int = 3, *, staleness: int = 1, segments: int = 3, first_seq: int = 0, **settings: int
    ) -> None:
        self.switch = Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=seed_for_first_seq(first_seq, 7))
        self.clients = [Client.numbered(k, port=k % CONFIG.ports) for k in range(workers)]
        self.log = {client.mac: [] for client in self.clients}
        self.now_us = 0
        self.settings = {
            "world": workers,
            "elements": 16,
            "format": Format.INT32,
            "evict_us": EVICT_US,
            "staleness": staleness,
            "segments": segments,
        } | settings
        for _ in range(2):
            for client in self.clients:
                self.send(client, client.join(**self.settings))
                for frame in self.heard(client):
                    client.take(frame)
        self.workers = [AsynchronousWorker(client, segments=segments or 1) for client in self.clients]

    def send(self, client: Client, frame: bytes) -> Outcome:
        """Send a frame and return its outcome."""
        before = list(self.switch.outcomes)
        for _, copy in self.switch.receive(client.port, frame, self.now_us):
            for other in self.clients:
                if copy[:6] == other.mac:
                    self.log[other.mac].append(copy)
        return Outcome(next(k for k, count in enumerate(self.switch.outcomes) if count != before[k]))

    def heard(self, client: Client) -> list[bytes]:
        frames, self.log[client.mac] = self.log[client.mac], []
        return frames

    def types(self, client: Client) -> list[Type]:
        return [parse(frame).type for frame in self.heard(client)]

    def deliver(self) -> None:
        """Deliver all frames to their workers."""
        for worker in self.workers:
            for frame in self.heard(worker.client):
                worker.take(frame)

    def newcomer(self, index: int) -> Client:
        """Return a new client, with an address of its own, that has joined and confirmed."""
        client = Client.numbered(index, port=index % CONFIG.ports)
        self.clients.append(client)
        self.log[client.mac] = []
        for _ in range(2):
            self.send(client, client.join(**self.settings))
            for frame in self.heard(client):
                client.take(frame)
        return client

    def standing(self, client: Client) -> MemberState:
        self.send(client, client.join())
        return MemberState(int(parse(self.heard(client)[-1]).ack["standing"]))

    def stat(self, name: str) -> int:
        return self.switch.counters()[f"stat.{name}"]


def audit(workers: list[AsynchronousWorker], staleness: int) -> int:
    """Every result is the sum of the granted vectors, each once, and none too old; all have the same results. How
    many."""
    results = {}
    for worker in workers:
        for position, result in worker.results.items():
            assert results.setdefault(position, result) == result
        for base, (_, weights) in worker.granted.items():
            assert 0 <= base - weights <= staleness * worker.segments
    for position, (members, numbers) in results.items():
        base = position - position % workers[0].segments
        inside = [worker for worker in workers if base in worker.granted]
        assert members == sum(1 << worker.client.member for worker in inside)
        assert numbers == [members, sum(element(w.client, w.granted[base][0], position) for w in inside) % SERIAL]
    return len(results)


def disorder(bench: Bench, steps: int, seed: int) -> None:
    """Each step somebody sends something that may be due; what comes back is heard late, in any order, or never."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        worker = bench.workers[rng.integers(len(bench.workers))]
        if rng.random() < 0.2:
            worker.compute()
        due = worker.due()
        bench.send(worker.client, due[rng.integers(len(due))])
        waiting = bench.log[worker.client.mac]
        rng.shuffle(waiting)
        for frame in waiting[: int(rng.integers(0, 4))]:
            worker.take(frame)
        bench.log[worker.client.mac] = [frame for frame in waiting[3:] if rng.random() < 0.7]


@pytest.mark.parametrize("first_seq", [0, SERIAL - 4 * CONFIG.slots], ids=["zero", "wraps"])
@pytest.mark.parametrize(("staleness", "threshold", "segments"), [(0, 3, 1), (1, 2, 3), (2, 1, 5), (7, 2, 2)])
def test_every_granted_vector_is_in_its_sum_once_whatever_the_order(staleness, threshold, segments, first_seq):
    bench = Bench(4, staleness=staleness, segments=segments, threshold=threshold, first_seq=first_seq)
    disorder(bench, 5000, seed=staleness)
    assert audit(bench.workers, staleness) > 80
    assert (
        sum(bench.switch.ages[: staleness + 1])
        == sum(bench.switch.ages)
        >= max(len(worker.granted) for worker in bench.workers)
    )
    refused = sum(worker.refused for worker in bench.workers)
    assert bench.switch.outcomes[Outcome.REFUSED] >= refused
    assert refused or staleness == 7 or threshold == 4


def twice(*arguments, **options):
    return contribute(
        *arguments, **options, rules=RULES._replace(may_add=lambda slot, bit: slot.state == SlotState.COLLECTING)
    )


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [(claims_of, "age", lambda claims, weights: 0), (ring, "contribute", twice)],
    ids=["age", "added twice"],
)
def test_audit_notices_a_wrong_rule(monkeypatch, module, name, wrong):
    monkeypatch.setattr(module, name, wrong)
    bench = Bench(4, staleness=1, segments=3, threshold=2)
    with pytest.raises(AssertionError):
        disorder(bench, 4000, seed=1)
        assert audit(bench.workers, 1) > 80


def claims(bench: Bench, *members: int) -> list[Outcome]:
    """These claim, and all hear what is said."""
    outcomes = []
    for m in members:
        frame = bench.workers[m].claim()
        assert frame
        outcomes.append(bench.send(bench.workers[m].client, frame))
    bench.deliver()
    return outcomes


def finish(bench: Bench, *members: int) -> None:
    """These contribute what they were granted until it is complete; all tell what they hold, and compute with it."""
    for _ in range(4):
        for m in members:
            for frame in bench.workers[m].contributions():
                bench.send(bench.workers[m].client, frame)
        bench.deliver()
        for worker in bench.workers:
            worker.compute()
            bench.send(worker.client, worker.receipt())


def test_a_grant_fixes_the_members_of_an_update_and_goes_to_all():
    bench = Bench(3, threshold=2)
    one, two, three = bench.clients
    assert bench.send(one, one.claim(1, 0)) == bench.send(two, two.claim(1, 0)) == Outcome.CONTROL
    for client in bench.clients:
        (grant,) = map(parse, bench.heard(client))
        assert (grant.type, grant.header["seq"], grant.header["members"], grant.header["count"]) == (
            Type.GRANT,
            0,
            0b011,
            2,
        )
        assert (grant.header["member"], grant.header["token"], grant.header["epoch"]) == (
            255,
            client.job_token,
            client.epoch,
        )
    assert bench.send(three, three.contribution(0, np.ones(1, np.int32))) == Outcome.WINDOW
    assert bench.send(one, one.contribution(0, np.ones(1, np.int32))) == Outcome.ADDED
    assert bench.send(three, three.contribution(0, np.ones(1, np.int32))) == Outcome.WINDOW
    assert bench.send(two, two.contribution(0, np.ones(1, np.int32))) == Outcome.ADDED
    assert bench.send(three, three.contribution(0, np.ones(1, np.int32))) == Outcome.LATE
    assert bench.types(three)[-1] == Type.RESULT
    assert (
        bench.send(one, one.contribution(3, np.ones(1, np.int32), behind=1)) == Outcome.WINDOW
    )  # granted to nobody yet


def test_repeated_claim_is_answered_with_the_kept_grant_to_its_sender_alone():
    bench = Bench(3, threshold=1)
    one, two, _ = bench.clients
    claim = one.claim(1, 0)
    bench.send(one, claim)
    bench.heard(one), bench.heard(two)
    assert [bench.send(one, claim) for _ in range(2)] == [Outcome.DUPLICATE] * 2
    assert bench.types(one) == [Type.GRANT] * 2
    assert bench.types(two) == []
    assert bench.switch.jobs[0].claims.base == 3


def test_claim_with_weights_older_than_the_staleness_is_refused_and_can_be_made_again():
    bench = Bench(3, threshold=1, staleness=1)
    for _ in range(2):
        claims(bench, 0)
        finish(bench, 0)
    last = bench.clients[2]
    old = last.claim(1, 0)
    assert [bench.send(last, old) for _ in range(2)] == [Outcome.REFUSED] * 2
    answer = parse(bench.heard(last)[-1])
    assert (answer.type, answer.header["seq"], answer.header["members"], answer.header["member"]) == (
        Type.REFUSE,
        1,
        6,
        2,
    )
    assert int(answer.header["token"]) == last.token
    assert bench.send(last, last.claim(1, 3)) == Outcome.CONTROL
    assert bench.switch.ages == [2, 1, 0, 0, 0, 0, 0, 0]
    assert [int(n) for n in bench.switch.registers(Register.AGES, 0)] == bench.switch.ages


def test_captured_claims_and_contributions_change_nothing():
    bench = Bench(3, threshold=2)
    frames = []
    receive = bench.switch.receive
    bench.switch.receive = lambda port, frame, now_us: frames.append((port, frame)) or receive(port, frame, now_us)
    for pair in ((0, 1), (1, 2), (0, 2), (0, 1), (1, 2), (0, 1)):
        claims(bench, *pair)
        finish(bench, *pair)
    bench.switch.receive = receive
    before = bench.switch.jobs[0]
    for port, frame in frames * 2:
        if parse_type(frame) in (Type.CLAIM, Type.CONTRIBUTION):
            bench.switch.receive(port, frame, bench.now_us)
    assert bench.switch.jobs[0] == before


def parse_type(frame: bytes) -> int:
    return frame[42] & 15


def test_claim_of_a_future_version_is_a_violation_of_the_window():
    bench = Bench()
    one = bench.clients[0]
    assert bench.send(one, one.claim(1, 1)) == Outcome.WINDOW
    assert bench.send(one, one.claim(1, 0)) == Outcome.CONTROL
    assert bench.send(one, one.claim(0, 0)) == Outcome.STALE
    assert not bench.heard(one)


def test_a_claim_with_weights_that_its_sender_has_not_acknowledged_waits_for_the_receipt():
    bench = Bench(3, threshold=1, staleness=0)
    claims(bench, 0)
    for frame in bench.workers[0].contributions():
        bench.send(bench.clients[0], frame)
    bench.deliver()
    bench.send(bench.clients[0], bench.workers[0].contributions()[0])
    bench.deliver()
    one = bench.clients[0]
    assert bench.workers[0].low == 3
    before = bench.switch.jobs[0].claims
    assert bench.send(one, one.claim(2, 3)) == Outcome.UNHELD
    assert bench.send(one, one.receipt(2)) == Outcome.RECEIPT
    assert bench.send(one, one.claim(2, 3)) == Outcome.UNHELD
    assert not bench.heard(one) and bench.switch.jobs[0].claims == before
    assert bench.send(one, one.receipt(3)) == Outcome.RECEIPT
    assert bench.send(one, one.claim(2, 3)) == Outcome.CONTROL


def test_a_member_that_claims_with_weights_it_does_not_have_does_not_stop_the_others():
    """It would be granted updates until the first of them, which it has not even begun, was forgotten."""
    bench = Bench(2, threshold=1, staleness=1)
    liar, honest = bench.workers
    claims(bench, 0)
    for k, weights in ((2, 3), (3, 6)):
        assert bench.send(liar.client, liar.client.claim(k, weights)) == (Outcome.UNHELD if k == 2 else Outcome.WINDOW)
    assert claims(bench, 1) == [Outcome.CONTROL]
    bench.send(liar.client, liar.client.leave())
    bench.deliver()
    finish(bench, 1)
    finish(bench, 1)
    assert honest.low == 6 and honest.results[3][0] == 1 << honest.client.member


def test_claim_without_an_asynchronous_job_has_an_unknown_type():
    bench = Bench(2, segments=0, staleness=0)
    one = bench.clients[0]
    assert bench.send(one, one.claim(1, 0)) == Outcome.TYPE
    assert bench.send(one, one.claim(1, 0, token=one.token ^ 2)) == Outcome.TOKEN
    assert bench.send(one, one.claim(1, 0, job=1)) == Outcome.JOB


def test_claim_carries_nothing():
    bench = Bench(2)
    one = bench.clients[0]
    assert bench.send(one, one.frame(Type.CLAIM, bytes(4), seq=1)) == Outcome.LENGTH


def test_a_member_that_left_is_not_awaited_and_its_update_completes_without_it():
    bench = Bench(3, threshold=3)
    one, two, gone = bench.clients
    claims(bench, 0, 1, 2)
    for client in (one, two):
        bench.send(client, client.contribution(0, np.full(2, 1 << client.member, np.int32)))
    bench.send(gone, gone.leave())
    bench.deliver()
    assert bench.workers[0].results[0] == (0b011, [0b011, 0b011])
    finish(bench, 0, 1)
    assert bench.workers[0].low == 3
    assert claims(bench, 0, 1) == [Outcome.CONTROL] * 2
    assert 3 in bench.workers[0].granted


def test_departure_makes_no_grant_but_the_next_repeat_does():
    bench = Bench(3, threshold=3)
    claims(bench, 0, 1)
    bench.send(bench.clients[2], bench.clients[2].leave())
    bench.deliver()
    assert not bench.workers[0].granted
    assert claims(bench, 0) == [Outcome.DUPLICATE]
    assert bench.workers[0].granted and bench.workers[1].granted


def test_lowered_threshold_acts_with_the_next_claim():
    bench = Bench(3, threshold=3)
    claims(bench, 0, 1)
    bench.send(bench.clients[2], bench.clients[2].set_h(2))
    assert claims(bench, 1) == [Outcome.DUPLICATE]
    assert 0 in bench.workers[0].granted


def test_an_update_that_all_members_left_completes_with_zeros_when_asked_for():
    bench = Bench(3, threshold=1)
    claims(bench, 2)
    bench.send(bench.clients[2], bench.clients[2].leave())
    one = bench.workers[0]
    for position in range(3):
        assert bench.send(one.client, one.receipt()) == Outcome.RECEIPT
        bench.deliver()
        assert one.low == position + 1
        assert one.results[position] == (0, [0])
        if position == 1:  # the ring has two slots of each parity
            bench.send(bench.clients[1], bench.workers[1].receipt())
    assert bench.stat("FORCED") == 3


@pytest.mark.parametrize("opened", [False, True])
def test_silent_members_are_evicted_when_a_receipt_asks_for_what_was_granted_to_them(opened):
    bench = Bench(3, threshold=3 if opened else 1)
    one, two, dead = bench.workers
    claims(bench, *((0, 1, 2) if opened else (2,)))
    if opened:
        bench.send(two.client, two.contributions()[0])
    bench.send(one.client, one.receipt())
    assert bench.stat("EVICTED") == 0
    bench.now_us += EVICT_US + 2 * SILENCE_TICK_US
    bench.send(one.client, one.receipt())
    assert bench.stat("EVICTED") == 1
    assert bench.send(dead.client, dead.receipt()) == Outcome.MEMBER


def test_a_silent_member_that_does_not_claim_is_evicted_because_others_wait():
    bench = Bench(2, threshold=2)
    one, _ = bench.workers
    bench.send(one.client, one.claim())
    bench.now_us += EVICT_US + 2 * SILENCE_TICK_US
    bench.send(one.client, one.claim())
    assert bench.stat("EVICTED") == 1
    bench.send(one.client, one.claim())
    bench.deliver()
    assert 0 in one.granted


def test_nothing_is_granted_while_a_member_joins_and_it_starts_at_the_next_update():
    bench = Bench(3, threshold=1)
    gone = bench.clients[2]
    claims(bench, 0)
    bench.send(gone, gone.leave())
    new = bench.newcomer(9)
    assert bench.standing(new) == MemberState.JOINING
    assert claims(bench, 1) == [Outcome.CONTROL]
    assert not bench.workers[1].granted
    finish(bench, 0)
    assert bench.standing(new) == MemberState.LIVE
    assert bench.stat("ADMITTED") == 1
    bench.send(new, new.join())
    new.take(bench.heard(new)[-1])
    assert (new.first_seq, new.member) == (3, gone.member)
    bench.workers[2] = AsynchronousWorker(new, segments=3, origin=0)
    assert claims(bench, 1) == [Outcome.DUPLICATE]
    assert bench.workers[1].granted[3] == (1, 0)
    finish(bench, 1)
    assert claims(bench, 2) == [Outcome.CONTROL]  # with k = 1 again
    assert bench.workers[2].granted[6] == (1, 6)


def test_a_joining_member_is_admitted_at_once_at_a_boundary():
    bench = Bench(3, threshold=1)
    bench.send(bench.clients[2], bench.clients[2].leave())
    new = bench.newcomer(9)
    assert bench.standing(new) == MemberState.LIVE
    assert new.first_seq == 0


def test_a_silent_member_that_delays_a_boundary_is_evicted_by_the_joins_of_others():
    bench = Bench(3, threshold=1)
    claims(bench, 0)
    bench.send(bench.clients[2], bench.clients[2].leave())
    new = bench.newcomer(9)
    finish(bench, 0)
    assert bench.standing(new) == MemberState.LIVE
    claims(bench, 0)
    bench.send(new, new.leave())
    another = bench.newcomer(10)
    bench.now_us += EVICT_US + 2 * SILENCE_TICK_US
    bench.send(bench.clients[0], bench.workers[0].receipt())
    assert bench.standing(another) == MemberState.JOINING
    assert bench.stat("EVICTED") == 1


def test_reset_forgets_claims_and_grants():
    bench = Bench(2, threshold=2)
    one, two = bench.clients
    claims(bench, 0, 1)
    bench.send(one, one.reset())
    for client in bench.clients:
        bench.send(client, client.join())
        for frame in bench.heard(client):
            client.take(frame)
    assert (one.first_seq, two.epoch) == (0, one.epoch)
    bench.workers = [AsynchronousWorker(client, segments=3) for client in bench.clients]
    assert claims(bench, 0, 1) == [Outcome.CONTROL] * 2
    finish(bench, 0, 1)
    assert audit(bench.workers, 1) == 3


def test_deadline_and_boundary_mean_nothing_in_an_asynchronous_job():
    bench = Bench(2, threshold=2, deadline_us=100)
    one, two = bench.clients
    claims(bench, 0, 1)
    number = np.ones(2, np.int32)
    bench.send(one, one.contribution(0, number, flags=2))
    bench.now_us += 1000
    assert bench.send(one, one.contribution(0, number)) == Outcome.DUPLICATE
    assert bench.types(one) == []
    assert bench.send(two, two.contribution(0, number)) == Outcome.ADDED
    assert not parse(bench.heard(one)[-1]).flags
    assert bench.send(one, one.fbcast(1)) == Outcome.REFUSED


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"staleness": 8, "segments": 1}, Reason.STALENESS),
        ({"staleness": 1, "segments": 0}, Reason.STALENESS),
        ({"staleness": 1, "segments": 1 << 24}, Reason.SEGMENTS),
        ({"staleness": 2, "segments": 3}, Reason.STALENESS),
        ({"staleness": 1, "segments": 4}, Reason.SEGMENTS),
        ({"staleness": 0, "segments": 0}, Reason.STALENESS),
    ],
)
def test_a_join_is_refused_with_the_setting_that_differs_from_the_jobs(settings, reason):
    bench = Bench(3)
    new = Client.numbered(7, port=3)
    bench.clients.append(new)
    bench.log[new.mac] = []
    new.challenge = bench.clients[0].challenge
    bench.send(new, new.join(**bench.settings | settings))
    assert parse(bench.heard(new)[0]).reason == reason


def test_switch_built_without_claims_refuses_asynchronous_jobs():
    bare = Switch(Config(staleness=0), mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    new = Client.numbered(7, port=0)
    settings = {"world": 1, "elements": 8}
    new.challenge = bare.jobs[0].challenge
    for staleness in (0, 3):
        [(_, frame)] = bare.receive(0, new.join(**settings, staleness=staleness, segments=1), 0)
        assert parse(frame).reason == Reason.SEGMENTS
    [(_, frame)] = bare.receive(0, new.join(**settings), 0)
    assert (parse(frame).reason, parse(frame).ack["action"]) == (Reason.DONE, Action.JOIN)
