"""Claims against a ledger that numbers updates, forgets nothing and never wraps; and what the ring does with a
grant."""

import random

import pytest

from iswitch.golden.decide import ring as ring_of
from iswitch.golden.decide.claims import (
    Answer,
    Claimant,
    Claims,
    Grant,
    admit,
    claim,
    granted_members,
    leave,
    members_behind,
    new_claims,
)
from iswitch.golden.decide.slot import Ring, Slot, Step, Work
from iswitch.wire import Operation, Outcome, SlotState, Type

SERIAL = 1 << 32


class Ledger:
    """The same promises in other words. `accepted[m]`: each claim of m that was not refused, with its update or
    None."""

    def __init__(self, staleness: int, threshold: int, members: int) -> None:
        self.staleness, self.threshold = staleness, threshold
        self.updates: list[set[int]] = []
        self.accepted: list[dict[int, int | None]] = [{} for _ in range(members)]

    def claim(self, m: int, k: int, version: int, held: int, live: set[int], paused: bool) -> tuple:
        """Outcome; ("grant", receivers, update, members) or ("refuse", k); age. `held`: m has said that it holds so
        many updates."""
        mine, update = self.accepted[m], len(self.updates)
        last = max(mine, default=0)
        if k < last:
            return Outcome.STALE, None, None
        if version > update:
            return Outcome.WINDOW, None, None
        if version > held:
            return Outcome.UNHELD, None, None
        if k == last and mine.get(k) is not None:
            kept = mine[k] + self.staleness >= update - 1
            return Outcome.DUPLICATE, ("grant", {m}, mine[k], self.updates[mine[k]]) if kept else None, None
        if k == last and not mine:
            return Outcome.DUPLICATE, None, None
        if k > last and update - version > self.staleness:
            return Outcome.REFUSED, ("refuse", k), None
        outcome, age = (Outcome.CONTROL, update - version) if k > last else (Outcome.DUPLICATE, None)
        mine.setdefault(k, None)
        waiting = {n for n, claims in enumerate(self.accepted) if claims and claims[max(claims)] is None}
        if paused or len(waiting) < min(self.threshold, len(live)):
            return outcome, None, age
        for n in waiting:
            self.accepted[n][max(self.accepted[n])] = update
        self.updates.append(waiting)
        return outcome, ("grant", set(live), update, waiting), age

    def leave(self, m: int) -> None:
        self.accepted[m] = {}
        self.updates = [members - {m} for members in self.updates]

    def owner(self, segment: int, segments: int) -> set[int] | None:
        """The members of the update that owns a segment, if it is among the last S + 1."""
        update = segment // segments
        kept = len(self.updates) - self.staleness - 1 <= update < len(self.updates) and update >= 0
        return self.updates[update] if kept else None


def state_of(live: int, threshold: int, joining: int = 0, acknowledged: tuple[int, ...] = (0,) * 5) -> Ring:
    """Of the ring only what claims look at."""
    return Ring((), acknowledged, live, threshold, joining)


def mask(members: set[int]) -> int:
    return sum(1 << m for m in members)


@pytest.mark.parametrize("staleness", [0, 1, 2, 7])
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_claims_agree_with_a_ledger(staleness, segments):
    rng = random.Random(staleness * 10 + segments)
    seen: set[Outcome] = set()
    for _ in range(30):
        members, threshold = rng.randint(1, 5), rng.randint(1, 5)
        first_seq = rng.choice([0, 64, SERIAL - 16, SERIAL - 256])
        claims = new_claims(first_seq, segments=segments, staleness=staleness, members=members)
        ledger, live = Ledger(staleness, threshold, members), set(range(members))
        for _ in range(150):
            m = rng.randrange(members)
            update = len(ledger.updates)
            if rng.random() < 0.05:
                if m in live:
                    claims = leave(claims, m)
                    ledger.leave(m)
                live ^= {m}
            elif rng.random() < 0.03:
                ledger.threshold = rng.randint(1, 5)
            elif m in live:
                k = max(1, max(ledger.accepted[m], default=0) + rng.randint(-1, 2))
                version = max(0, update + rng.randint(-staleness - 2, 1))
                held = max(0, update - rng.choice([0, 0, 0, 0, 1, 2]))
                paused = rng.random() < 0.1
                ring = state_of(
                    mask(live),
                    ledger.threshold,
                    joining=paused << 5,
                    acknowledged=tuple(
                        (first_seq + (held if n == m else rng.randint(0, update)) * segments) % SERIAL
                        for n in range(members)
                    ),
                )
                verdict = claim(claims, ring, member=m, k=k, weights=(first_seq + version * segments) % SERIAL)
                outcome, answer, age = ledger.claim(m, k, version, held, live, paused)
                claims = verdict.claims
                expected = None
                if answer and answer[0] == "grant":
                    base = (first_seq + answer[2] * segments) % SERIAL
                    expected = Answer(Type.GRANT, mask(answer[1]), base, mask(answer[3]))
                elif answer:
                    expected = Answer(Type.REFUSE, 1 << m, k, (first_seq + update * segments) % SERIAL)
                assert (verdict.outcome, verdict.answer, verdict.age) == (outcome, expected, age)
                seen.add(outcome)
            segment = (update - rng.randint(-1, staleness + 2)) * segments + rng.randrange(segments)
            owner = ledger.owner(segment, segments)
            seq = (first_seq + segment) % SERIAL
            assert granted_members(claims, seq) == (None if owner is None else mask(owner))
    assert seen == {Outcome.CONTROL, Outcome.REFUSED, Outcome.DUPLICATE, Outcome.STALE, Outcome.WINDOW, Outcome.UNHELD}


def test_the_example_of_the_protocol():
    """The diagram in `docs/protocol.md`: S = 1, H = 2, M = 2, members A, B, C."""
    a, b, c = 0, 1, 2
    claims = new_claims(0, segments=2, staleness=1, members=3)
    for member, k, weights, expected in (
        (a, 1, 0, None),
        (b, 1, 0, Answer(Type.GRANT, 0b111, 0, 0b011)),
        (c, 1, 0, None),
        (b, 1, 0, Answer(Type.GRANT, 0b010, 0, 0b011)),
        (a, 2, 2, Answer(Type.GRANT, 0b111, 2, 0b101)),
        (a, 3, 2, None),
        (b, 2, 2, Answer(Type.GRANT, 0b111, 4, 0b011)),
        (c, 2, 0, Answer(Type.REFUSE, 0b100, 2, 6)),
    ):
        verdict = claim(claims, state_of(0b111, 2, acknowledged=(weights,) * 3), member=member, k=k, weights=weights)
        assert verdict.answer == expected
        claims = verdict.claims


def test_k_is_a_serial_number():
    claims = Claims(0, 1, 1, (), (Claimant(SERIAL - 1, True), Claimant()))
    assert claim(claims, state_of(3, 2), member=0, k=0, weights=0).outcome == Outcome.CONTROL
    assert claim(claims, state_of(3, 2), member=0, k=SERIAL - 2, weights=0).outcome == Outcome.STALE


def test_a_claim_is_accepted_as_far_as_the_receipts_of_its_sender_go():
    """Weights are compared as serial numbers with what the sender holds, whatever others do; what it claimed comes
    again later."""
    claims = Claims(2, 2, 1, (Grant(SERIAL - 2, 0b11), Grant(0, 0b11)), (Claimant(1), Claimant(1)))
    for acknowledged, outcome in (
        (SERIAL - 1, Outcome.UNHELD),
        (0, Outcome.CONTROL),
        (1, Outcome.CONTROL),
        (2, Outcome.CONTROL),
    ):
        verdict = claim(claims, state_of(0b11, 2, acknowledged=(acknowledged, 2)), member=0, k=2, weights=0)
        assert (verdict.outcome, verdict.answer, verdict.age) == (
            outcome,
            None,
            1 if outcome == Outcome.CONTROL else None,
        )
        assert (verdict.claims == claims) == (outcome == Outcome.UNHELD)
    assert claim(claims, state_of(0b11, 2, acknowledged=(1, 2)), member=0, k=1, weights=2).outcome == Outcome.UNHELD
    assert claim(claims, state_of(0b11, 2, acknowledged=(1, 2)), member=0, k=1, weights=3).outcome == Outcome.WINDOW


def test_a_waiting_claim_shows_for_whom_it_waits():
    claims = Claims(2, 2, 1, (Grant(0, 1),), (Claimant(1), Claimant(1), Claimant()))
    assert claim(claims, state_of(0b111, 2, acknowledged=(2, 0, 0)), member=0, k=2, weights=2).waits_for == 0b110
    assert claim(claims, state_of(0b111, 2, 0b1000, (2, 2, 0)), member=0, k=2, weights=2).waits_for == 0b100


def test_joining_members_are_admitted_where_all_hold_what_was_granted():
    claims = Claims(2, 2, 1, (Grant(0, 1),), (Claimant(1),) * 3)
    assert admit(claims, state_of(0b011, 2, 0b100, (2, 2, 0))) == state_of(0b111, 2, 0, (2, 2, 2))
    for acknowledged in ((2, 1, 0), (0, 2, 0)):
        early = state_of(0b011, 2, 0b100, acknowledged)
        assert members_behind(claims, early) and admit(claims, early) == early
    assert members_behind(claims, state_of(0b001, 2, 0, (2, 0, 0))) == 0


# The ring under a grant

RING = ring_of.new_ring(SERIAL - 4, 2, 3, 0b111, 1)
GRANTED = Claims(SERIAL - 2, 2, 1, (Grant(SERIAL - 4, 0b011),), (Claimant(1), Claimant(1), Claimant()))


def contribute(ring: Ring, claims: Claims, member: int, seq: int) -> Step:
    return ring_of.contribute(
        ring,
        member=member,
        seq=seq,
        behind=seq - (SERIAL - 4),
        length=64,
        requires_all=True,
        granted=granted_members(claims, seq) or 0,
    )


def test_a_slot_ends_when_all_granted_are_in():
    step = contribute(RING, GRANTED, 0, SERIAL - 3)
    assert step.outcome == Outcome.ADDED and not step.work.emit
    step = contribute(step.ring, GRANTED, 1, SERIAL - 3)
    assert step.outcome == Outcome.ADDED and step.work.emit
    assert step.ring.slots[1].members == 0b011


def test_a_member_that_was_not_granted_opens_no_slot_and_is_in_no_sum():
    assert contribute(RING, GRANTED, 2, SERIAL - 4).outcome == Outcome.WINDOW
    opened = contribute(RING, GRANTED, 0, SERIAL - 4).ring
    step = contribute(opened, GRANTED, 2, SERIAL - 4)
    assert (step.outcome, step.work, step.ring) == (Outcome.WINDOW, None, opened)


def test_no_member_opens_a_slot_that_is_not_granted():
    claims = GRANTED._replace(grants=())
    assert contribute(RING, claims, 0, SERIAL - 4).outcome == Outcome.WINDOW


def test_a_member_that_was_not_granted_gets_a_complete_result_again():
    ring = contribute(contribute(RING, GRANTED, 0, SERIAL - 4).ring, GRANTED, 1, SERIAL - 4).ring
    step = contribute(ring, GRANTED, 2, SERIAL - 4)
    assert (step.outcome, step.work.operation) == (Outcome.LATE, Operation.RESEND)


def want(ring: Ring, claims: Claims, seq: int) -> Step:
    return ring_of.receipt(
        ring, member=2, seq=seq, behind=0, want=True, granted=granted_members(claims, seq), format=2, length=4
    )


def test_a_result_that_all_members_left_is_zeros_and_goes_to_all():
    ring, claims = RING, GRANTED
    for member in (0, 1):
        step = want(ring, claims, SERIAL - 4)
        assert (step.work, step.waits_for) == (None, granted_members(claims, SERIAL - 4))
        ring, _ = ring_of.leave(ring, member)
        claims = leave(claims, member)
    plain = ring_of.receipt(ring, member=2, seq=SERIAL - 4, behind=0, want=False, granted=0)
    assert plain == Step(ring, Outcome.RECEIPT)
    step = want(ring, claims, SERIAL - 4)
    assert step.work == Work(Operation.FORCE, 0, True, True, 0b100)
    assert step.ring.slots[0] == Slot(SERIAL - 4, SlotState.COMPLETE, format=2, length=4, requires_all=True)
    assert want(step.ring, claims, SERIAL - 4).work.operation == Operation.RESEND


def test_an_abandoned_slot_does_not_replace_a_result_that_a_member_lacks():
    ring = ring_of.new_ring(0, 1, 3, 0b111, 3)
    held = ring._replace(slots=(Slot(0, SlotState.COMPLETE, 0b011, 0b011), ring.slots[1]), acknowledged=(0, 2, 2))
    claims = Claims(3, 1, 2, (Grant(0, 0b011), Grant(1, 0b011), Grant(2, 0)), (Claimant(),) * 3)
    assert want(held, claims, 2) == Step(held, Outcome.RECEIPT, waits_for=0b001)
    assert want(held._replace(acknowledged=(1, 2, 2)), claims, 2).work.emit
