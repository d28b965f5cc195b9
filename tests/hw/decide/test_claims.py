"""The logic of claims against the golden model, state by random state; every plausible mutant is killed."""

import random
from functools import cache
from typing import NamedTuple

import pytest
from amaranth.hdl import Value
from amaranth.lib import data

import hw.decide.claims
from hw.interface.rows import claims_row, job_row
from iswitch.config import Config
from iswitch.golden.decide import claims as model
from iswitch.golden.decide.slot import Ring
from iswitch.wire import Outcome, Type
from sim.bench.mutant import mutant
from sim.bench.on_demand import OnDemand
from sim.bench.stream import Bench, pack, unpack

CONFIG = Config(ports=2, bus_bits=64, members=5, jobs=2, window=4, elements=64, queue_bytes=4096, staleness=3)
SERIAL = 1 << 32
MASKS = range(1 << CONFIG.members)


class Case(NamedTuple):
    """A claim, or with `seq` the question to whom that is granted. `beyond`: what the row holds behind the last S + 1
    grants."""

    claims: model.Claims
    ring: Ring
    member: int
    k: int
    weights: int
    seq: int | None
    beyond: tuple[model.Grant, ...]


def case(rng):
    """Mostly states that a job can be in and questions at the edge; some are plain noise."""
    segments, staleness = rng.choice([1, 2, 5, 1000, (1 << 24) - 1]), rng.randint(0, CONFIG.staleness)
    base = rng.choice([0, 3, SERIAL - 1, SERIAL // 2, rng.randrange(SERIAL)])
    live = rng.choice(MASKS[1:])
    member = rng.choice([m for m in range(CONFIG.members) if live >> m & 1])
    bases = [(base - (k + 1) * segments) % SERIAL for k in range(CONFIG.staleness + 1)]
    grants = [model.Grant(at, rng.choice(MASKS)) for at in bases]
    kept = rng.choice([0, 1, staleness, staleness + 1, staleness + 1])
    k = rng.choice([0, 1, 7, SERIAL - 1, rng.randrange(SERIAL)])
    claimants = [
        model.Claimant(
            (k - rng.choice([0, 0, 1, 1, 1, -1, SERIAL // 2, rng.randrange(SERIAL)])) % SERIAL,
            bool(live >> m & 1) and rng.random() < 0.5,
        )
        for m in range(CONFIG.members)
    ]
    claims = model.Claims(base, segments, staleness, tuple(reversed(grants[:kept])), tuple(claimants))
    ring = Ring(
        (),
        tuple(base if rng.random() < 0.8 else rng.randrange(SERIAL) for _ in range(CONFIG.members)),
        live,
        rng.randint(1, CONFIG.members),
        rng.choice([0, 0, rng.choice(MASKS)]) & ~live,
    )
    near = rng.choice([base, *bases])
    weights = (near + rng.choice([0, 0, 0, 1, -1, -segments, SERIAL // 2, rng.randrange(SERIAL)])) % SERIAL
    if rng.random() < 0.3:  # the sender holds about what its weights have
        known = (weights + rng.choice([0, 0, 1, -1, segments, SERIAL // 2, SERIAL // 2 + 1])) % SERIAL
        ring = ring._replace(acknowledged=ring.acknowledged[:member] + (known,) + ring.acknowledged[member + 1 :])
    seq = (near + rng.choice([0, 1, -1, segments - 1, rng.randrange(SERIAL)])) % SERIAL if rng.random() < 0.3 else None
    return Case(claims, ring, member, k, weights, seq, tuple(grants[kept:]) if kept == staleness + 1 else ())


def row_of(claims, beyond=()):
    newest_first = (*reversed(claims.grants), *beyond)
    return pack(
        claims_row(CONFIG),
        {
            "base": claims.base,
            "waiting": model.waiting_members(claims),
            "last": sum(c.k << 32 * m for m, c in enumerate(claims.claimants)),
            "grants": sum(
                pack(claims_row(CONFIG)["grants"].shape.elem_shape, {"valid": 1} | grant._asdict())
                << k * (33 + CONFIG.members)
                for k, grant in enumerate(newest_first)
            ),
        },
    )


def inputs(one):
    return {
        "at": one.weights if one.seq is None else one.seq,
        "k": one.k,
        "member": one.member,
        "job": pack(
            job_row(CONFIG),
            {
                "live": one.ring.live,
                "joining": one.ring.joining,
                "threshold": one.ring.threshold,
                "segments": one.claims.segments,
                "staleness": one.claims.staleness,
            },
        ),
        "row": row_of(one.claims, one.beyond),
        "acknowledged": sum(at << 32 * m for m, at in enumerate(one.ring.acknowledged)),
    }


@cache
def cases(count=4000):
    rng = random.Random(1)
    return OnDemand(
        (
            one,
            list(inputs(one).items()),
            model.claim(one.claims, one.ring, member=one.member, k=one.k, weights=one.weights),
        )
        for one in (case(rng) for _ in range(count))
    )


def kept(bits, staleness):
    """The row's number as base, set that waits, last k's and the grants that count."""
    row = unpack(claims_row(CONFIG), bits)
    grants = [model.Grant(grant.base, grant.members) for grant in row.grants[: staleness + 1] if grant.valid]
    return row.base, row.waiting, list(row["last"]), grants


def check(component, some):
    dut = component(CONFIG)
    ports = {
        name: Value.cast(dut.decision[name] if name in dut.decision.shape().members else getattr(dut, name))
        for name in (
            "covered",
            "granted",
            "behind",
            "outcome",
            "age",
            "write",
            "row_next",
            "grants",
            "base",
            "members",
            "receivers",
            "waits",
        )
    }

    async def bench(ctx):
        for one, given, verdict in some:
            for name, value in given:
                ctx.set(Value.cast(getattr(dut, name)), value)
            await ctx.tick().repeat(2)
            got = {name: ctx.get(port) for name, port in ports.items()}
            assert got["behind"] == model.members_behind(one.claims, one.ring)
            if one.seq is not None:
                assert (got["granted"] if got["covered"] else None) == model.granted_members(one.claims, one.seq), one
                continue
            assert got["outcome"] == verdict.outcome, f"{one}: {Outcome(got['outcome'])!r}, not {verdict.outcome!r}"
            assert got["waits"] == verdict.waits_for, one
            assert verdict.age in (None, got["age"]), one
            after = kept(got["row_next"] if got["write"] else dict(given)["row"], one.claims.staleness)
            assert after == kept(row_of(verdict.claims), one.claims.staleness), one
            answer = model.Answer(Type.GRANT, got["receivers"], got["base"], got["members"]) if got["grants"] else None
            if verdict.outcome == Outcome.REFUSED:
                answer = model.Answer(Type.REFUSE, 1 << one.member, one.k, dict(one.claims._asdict())["base"])
            assert answer == verdict.answer, one

    Bench(dut).drive(bench)


def test_claims_are_decided_as_by_the_model():
    check(hw.decide.claims.Claims, cases())


def test_cases_meet_every_outcome_and_answer():
    met = {
        (verdict.outcome, verdict.answer and verdict.answer.type, bool(verdict.waits_for))
        for one, _, verdict in cases()
        if one.seq is None
    }
    assert met == {
        (Outcome.STALE, None, False),
        (Outcome.WINDOW, None, False),
        (Outcome.UNHELD, None, False),
        (Outcome.REFUSED, Type.REFUSE, False),
        *((outcome, None, waits) for outcome in (Outcome.CONTROL, Outcome.DUPLICATE) for waits in (False, True)),
        *((outcome, Type.GRANT, False) for outcome in (Outcome.CONTROL, Outcome.DUPLICATE)),
    }
    assert {verdict.age for *_, verdict in cases()} == {None, *range(CONFIG.staleness + 1)}


def test_a_switch_without_asynchronous_jobs_keeps_nothing_for_them():
    row = data.Layout.cast(job_row(Config(staleness=0)))
    assert (row["segments"].width, row["staleness"].width) == (0, 0)


MUTANTS = [
    ("ahead < 0", "ahead <= 0"),
    ("ahead == 0", "ahead > 0"),
    ("beyond > 0", "beyond >= 0"),
    ("ahead, beyond, beyond_acknowledged = Signal(signed(32))", "ahead, beyond, beyond_acknowledged = Signal(32)"),
    (
        "beyond, beyond_acknowledged = Signal(signed(32)), Signal(signed(32))",
        "beyond, beyond_acknowledged = Signal(signed(32)), Signal(32)",
    ),
    (
        "Signal(signed(32)), Signal(signed(32)), Signal(signed(32))",
        "Signal(signed(32)), Signal(signed(32)), Signal(32)",
    ),
    ("beyond_acknowledged > 0", "beyond_acknowledged >= 0"),
    ("beyond_acknowledged > 0", "beyond_acknowledged != 0"),
    ("Array(self.acknowledged)[self.member]", "self.acknowledged[0]"),
    ("m.Elif(unheld)", "m.Elif(0)"),
    ("(job.staleness >= k)", "(job.staleness > k)"),
    ("grant.valid & ", ""),
    ("(distance >= 0)", "(distance > 0)"),
    ("past_base < job.segments", "past_base <= job.segments"),
    ("past_base < job.segments", "past_base == 0"),
    ("job.live[k] & (self", "(self"),
    ("!= row.base)", "== row.base)"),
    ("waiting.eq(row.waiting | bit)", "waiting.eq(bit)"),
    ("holding_grants.append(valid[k] & (grant", "holding_grants.append((grant"),
    ("for k in reversed(range(len(kept))):", "for k in range(len(kept)):"),
    ("age > job.staleness", "age >= job.staleness"),
    ("popcount(waiting) >= job.threshold", "popcount(waiting) > job.threshold"),
    (" | ~(job.live & ~waiting).any()", ""),
    ("m.Elif(repeats & ~waited)", "m.Elif(repeats)"),
    ("decision.grants.eq(kept_mine)", "decision.grants.eq(1)"),
    ("decision.receivers.eq(bit)", "decision.receivers.eq(job.live)"),
    ("m.Elif(~repeats & old)", "m.Elif(old)"),
    ("m.Elif(future)", "m.Elif(0)"),
    ("Mux(repeats, Outcome.DUPLICATE, Outcome.CONTROL)", "Outcome.CONTROL"),
    ("job.joining.any()", "0"),
    ("decision.waits.eq(self.behind)", "decision.waits.eq(0)"),
    ("late.eq(job.live & ~waiting)", "late.eq(job.live & ~row.waiting)"),
    ("next_row.waiting.eq(0), ", ""),
    ("row.base + job.segments", "row.base + 1"),
    ("next_row.grants[0].valid.eq(1), ", ""),
    ("next_row.grants[0].members.eq(waiting)", "next_row.grants[0].members.eq(row.waiting)"),
    ("next_row.grants[k].eq(kept[k - 1])", "next_row.grants[k].eq(kept[k])"),
    ("next_row.last[k].eq(self.k)", "next_row.last[k].eq(row.last[k])"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.decide.claims, sound, wrong).Claims
    with pytest.raises(AssertionError):
        check(broken, cases())
