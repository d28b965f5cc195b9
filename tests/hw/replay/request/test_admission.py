"""Decisions on requests against the golden service over random states; every plausible mutant is killed."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

import hw.replay.request.admission
import hw.replay.request.record
from hw.replay.request.admission import Admission
from hw.replay.request.record import PARAMETER_ROWS, TableState
from hw.replay.request.sessions import Session
from iswitch.golden.interface.message import Source
from iswitch.golden.replay import frames
from iswitch.golden.replay.rebuild import SumState
from iswitch.golden.replay.session import SERIAL
from iswitch.golden.replay.session import Session as GoldenSession
from iswitch.golden.replay.table import Limits
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import (
    LIMITS,
    LIST,
    LOAD,
    ORDERED,
    PUBLISH,
    REBUILD,
    REPLAY_FRAME,
    REPLAY_HEADER,
    SAMPLE,
    WRITE,
    Kind,
    ReplayOutcome,
)
from sim.bench.mutant import mutant
from sim.bench.replay_client import record
from sim.bench.replay_decisions import LARGE, PARAMETER_ROWS_OF, TYPICAL, Decisions, frame_of, number, outputs
from sim.bench.stream import pack

HALF = SERIAL // 2
DECIDED = [kind for kind in Kind if kind != Kind.OPEN]
RECORDS = {
    Kind.WRITE: WRITE,
    Kind.SAMPLE: SAMPLE,
    Kind.PUBLISH: PUBLISH,
    Kind.LIMIT: LIMITS,
    Kind.LOAD: LOAD,
    Kind.SHOUT: LOAD,
    Kind.LIST: LIST,
    Kind.REBUILD: REBUILD,
}


def near(rng, value, *, by=2):
    return (value + rng.randint(-by, by)) % SERIAL


def state_of(rng, replay):
    """Any state that a service can come to, and much about its borders: a Service, and what of its Places is a
    Session's row."""
    service = Decisions(replay)
    for k in range(replay.sessions):
        written = rng.choice([0, 1, SERIAL - 1, HALF, rng.getrandbits(32)])
        oldest = (
            written
            - rng.choice([0, 1, 22, replay.log_units - 1, replay.log_units, rng.randrange(replay.log_units + 1)])
        ) % SERIAL
        service.sessions[k] = GoldenSession(
            open=rng.random() < 0.9,
            nonce=rng.getrandbits(64),
            next=rng.choice([0, 1, SERIAL - 1, HALF, rng.getrandbits(32)]),
            written=written,
            cached=tuple(
                frames.CachedAnswer(Kind.SKIP, 0, bytes(64), corrupt=rng.random() < 0.1)
                for _ in range(rng.randint(0, replay.cached_answers))
            ),
            oldest=oldest,
            corrupt=rng.random() < 0.08,
        )
    for table in service.tables:
        table.adds = rng.choice([0, 5, HALF, SERIAL - 1, SERIAL + 5, rng.getrandbits(32), rng.getrandbits(63)])
        table.ticket = rng.choice([1, SERIAL - 1, rng.getrandbits(32) or 1])
        filled = rng.choice([0, 1, replay.capacity - 1, replay.capacity, rng.randrange(replay.capacity)])
        table.slots = SimpleNamespace(
            filled=filled, tree=SimpleNamespace(total=rng.choice([0, 1, 1 << 32, rng.getrandbits(40)]))
        )
        table.sums = SumState(
            restored=rng.choice([*[replay.capacity] * 9, 0, 1, rng.randrange(replay.capacity)]),
            corrupt=rng.random() < 0.05,
        )
        behind, ahead = (rng.choice([0, 1, 1 << 31, SERIAL - 1, rng.getrandbits(9)]) for _ in range(2))
        table.limits = Limits(
            near(rng, filled) if rng.random() < 0.7 else rng.getrandbits(32),
            rng.choice([0, 1, 1 << 16, 8 << 16, SERIAL - 1]),
            behind,
            ahead,
            0,
        )
        table.credit = rng.choice(
            [0, -1, 1, rng.randint(-1000, 1000) << 16, -behind << 16, ahead << 16, (1 << 48) - 1, -(1 << 48)]
        )
    return service


def body_of(rng, service, kind, session, table, count):
    """The first rows of a body about the borders of what is allowed; the rest is long enough."""
    replay, places = service.config, service.sessions
    mine = places[session] if session < len(places) else places[0]
    log = rng.choice([session, rng.randrange(len(places)), len(places), 255])
    read = places[log] if log < len(places) else mine
    start = rng.choice(
        [
            read.oldest,
            read.written,
            (read.written - count) % SERIAL,
            near(rng, read.oldest),
            near(rng, read.written - count),
        ]
    )
    first = {
        Kind.WRITE: lambda: {
            "start": rng.choice([mine.written] * 9 + [near(rng, mine.written)]),
            "oldest": rng.choice(
                [
                    mine.oldest,
                    near(rng, mine.oldest),
                    near(rng, mine.written),
                    near(rng, mine.written + count - replay.log_units),
                ]
            ),
        },
        Kind.SAMPLE: lambda: {
            "items": rng.choice([0, max(0, table.adds + rng.randint(-2, 2)), rng.getrandbits(32), rng.getrandbits(64)])
        },
        Kind.PUBLISH: lambda: {
            "start": rng.choice(
                [mine.oldest, near(rng, mine.oldest), near(rng, mine.written), (mine.oldest + HALF) % SERIAL]
            ),
            "units": rng.choice([0, 1, near(rng, mine.written - mine.oldest), HALF, SERIAL - 1]),
            "version": rng.choice([0, 1, 1, 1 << 31]),
        },
        Kind.LIMIT: lambda: {
            "times": rng.choice([0, 1, 7, 8, 1 << 31, rng.getrandbits(3)]),
            "ratio": rng.getrandbits(32),
        },
        Kind.LOAD: lambda: {"start": start, "session": log},
        Kind.LIST: dict,
        Kind.REBUILD: lambda: {
            "slot": rng.choice(
                [0, table.sums.restored, near(rng, table.sums.restored), near(rng, replay.capacity - count), 1 << 31]
            )
        },
    }
    first[Kind.SHOUT] = first[Kind.LOAD]
    head, each, _ = service.body_shape(kind)
    lead = record(RECORDS[kind], **first[kind]()) if kind in RECORDS else b""
    assert len(lead) in (0, head) or kind == Kind.LIST
    return lead.ljust(head + each * count, b"\x5a")


def request_of(rng, service):
    """Return a well-formed request, mostly of an open session and with its next number."""
    replay, kind = service.config, rng.choice(DECIDED + [Kind.SAMPLE, Kind.ADD, Kind.WRITE] * 3)
    session, table = rng.choice([*range(replay.sessions)] * 9 + [replay.sessions, 255]), rng.randrange(replay.tables)
    place, state = service.sessions[session if session < replay.sessions else 0], service.tables[table]
    _, _, most = service.body_shape(kind)
    count = rng.choice([1, most, rng.randint(1, most)]) if most else 0
    ratio, limits, one = state.limits.ratio, state.limits, 1 << 16
    if kind in (Kind.ADD, Kind.SAMPLE) and ratio and rng.random() < 0.7:  # just about what the ratio lets
        edge = limits.ahead * one - count * ratio if kind == Kind.ADD else count * one - limits.behind * one
        state.credit = edge + rng.choice([-one, -1, 0, 1, one])
    seq = (
        place.next
        + rng.choice(
            [0] * 20
            + [
                1,
                -1,
                -replay.cached_answers,
                -replay.cached_answers - 1,
                -2,
                HALF,
                HALF - 1,
                HALF + 1,
                rng.getrandbits(32),
            ]
        )
    ) % SERIAL
    ticket = rng.choice([0, 0, 0, state.ticket, near(rng, state.ticket, by=1)])
    token = (
        place.token if rng.random() < 0.95 else rng.choice([0, place.nonce >> 32, place.token ^ 1 << rng.randrange(32)])
    )
    values = {
        "kind": kind,
        "session": session,
        "table": table,
        "seq": seq,
        "count": count,
        "ticket": ticket,
        "token": token,
        "fragments": rng.getrandbits(16),
    }
    return values, body_of(rng, service, kind, session, state, count)


def rows_of(rng, service, values, body):
    """Inputs of a Admission: the engine looks up place 0 for those that there are not."""
    replay, kind, state = service.config, values["kind"], service.tables[values["table"]]
    place = lambda index: service.sessions[index if index < replay.sessions else 0]
    session = lambda at: pack(
        Session,
        {
            "open": at.open,
            "nonce": at.nonce,
            "next": at.next,
            "cached": len(at.cached),
            "written": at.written,
            "oldest": at.oldest,
            "heard": rng.getrandbits(32),
            "port": rng.getrandbits(4),
            "address": {"mac": rng.getrandbits(48)},
        },
    )
    parameters = body[: 8 * PARAMETER_ROWS_OF.get(kind, 0)].ljust(
        8 * PARAMETER_ROWS, b"\xee"
    )  # what is left of a request before
    log = int(np.frombuffer(parameters, LOAD, 1)["session"][0])
    return {
        "frame": frame_of(values),
        "parameters": number(parameters),
        "session": session(place(values["session"])),
        "session_corrupt": place(values["session"]).corrupt,
        "other": session(place(log)),
        "other_corrupt": place(log).corrupt,
        "answer_corrupt": answer_corrupt(place(values["session"]), values["seq"], rng),
        "table": pack(
            TableState,
            {
                "adds": state.adds,
                "ticket": state.ticket,
                "total": state.slots.tree.total,
                "credit": state.credit,
                "sampled": rng.getrandbits(32),
                **state.limits._asdict(),
            },
        ),
        "filled": state.slots.filled,
        "intact": state.is_intact,
        "restored": state.sums.restored,
        "product": values["count"] * state.limits.ratio,
        "ordered": kind in ORDERED,
    }


def answer_corrupt(place, seq, rng):
    """Whether the answer that is cached for a number is corrupt; of an older number, any."""
    back = (place.next - seq) % SERIAL
    return place.cached[-back].corrupt if 1 <= back <= len(place.cached) else rng.random() < 0.5


def needs_lost_answer(place, values):
    """Whether a request is a repeat whose answer is corrupt."""
    back = (place.next - values["seq"]) % SERIAL
    return values["kind"] in ORDERED and 1 <= back <= len(place.cached) and place.cached[-back].corrupt


def check_admission(replay=TYPICAL, *, part=Admission, count=6000, seed=1):
    rng, cases, expected = random.Random(seed), [], []
    for _ in range(count // 4):
        service = state_of(rng, replay)
        for _ in range(4):
            values, body = request_of(rng, service)
            cases.append(rows_of(rng, service, values, body))
            places, credits, limits, tickets = (
                list(service.sessions),
                [table.credit for table in service.tables],
                [table.limits for table in service.tables],
                [table.ticket for table in service.tables],
            )
            sums = [table.sums for table in service.tables]
            state = service.tables[values["table"]]
            known = service.rules.find_session(places, values["session"], values["token"]) is not None
            enough = state.slots.filled >= state.limits.size
            asked = frames.parse_request(record(REPLAY_HEADER, **values) + body)
            outcome, _ = service.handle(asked, Source(0, b"", 0, 0), rng.getrandbits(32))
            here = service.sessions[values["session"]].next if known else 0
            counts = known and here != places[values["session"]].next
            lost = known and needs_lost_answer(places[values["session"]], values)
            expected.append((outcome, known, counts, enough, lost))
            service.sessions[:] = places
            for table, credit, limit, ticket, state_of_sums in zip(service.tables, credits, limits, tickets, sums):
                table.credit, table.limits, table.ticket, table.sums = credit, limit, ticket, state_of_sums
    assert outputs(part, replay, cases, ("outcome", "known", "counts", "enough", "answer_lost")) == expected
    return {(case["frame"] >> 8 * 43 & 0xFF, outcome) for case, (outcome, *_) in zip(cases, expected)}


@pytest.mark.parametrize(("replay", "seed"), [(TYPICAL, 1), (TYPICAL, 2), (LARGE, 3)])
def test_a_request_has_the_outcome_that_the_model_gives_it(replay, seed):
    seen = check_admission(replay, seed=seed)
    ordered = {
        (kind, outcome)
        for kind in ORDERED
        for outcome in (
            ReplayOutcome.DONE,
            ReplayOutcome.SESSION,
            ReplayOutcome.REPEATED,
            ReplayOutcome.OLD,
            ReplayOutcome.AHEAD,
        )
    }
    special = {
        (Kind.ADD, ReplayOutcome.RATE),
        (Kind.PUBLISH, ReplayOutcome.RANGE),
        (Kind.WRITE, ReplayOutcome.RANGE),
        (Kind.WRITE, ReplayOutcome.MEMORY),
        (Kind.LIMIT, ReplayOutcome.RANGE),
        (Kind.REBUILD, ReplayOutcome.RANGE),
        (Kind.SAMPLE, ReplayOutcome.CORRUPT),
        (Kind.LIST, ReplayOutcome.CORRUPT),
        (Kind.LOAD, ReplayOutcome.OVERWRITTEN),
        (Kind.SHOUT, ReplayOutcome.OVERWRITTEN),
        *((Kind.SAMPLE, outcome) for outcome in (ReplayOutcome.ITEMS, ReplayOutcome.EMPTY, ReplayOutcome.RATE)),
        *((kind, ReplayOutcome.TICKET) for kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)),
    }
    others = {
        (kind, outcome)
        for kind in DECIDED
        if kind not in ORDERED
        for outcome in (ReplayOutcome.DONE, ReplayOutcome.SESSION)
    }
    assert seen == ordered | special | others


def test_a_repeat_is_known_after_ever_so_many_requests():
    """Of the last requests, however many there were since the client came: its first number may be anywhere on the
    circle."""
    cases, expected = [], []
    for next in (0, 3, HALF, HALF + 3, SERIAL - 1):
        for cached in range(TYPICAL.cached_answers + 1):
            for ago in range(1, TYPICAL.cached_answers + 2):
                row = pack(Session, {"open": 1, "next": next, "cached": cached})
                cases.append(
                    {"frame": frame_of({"kind": Kind.SKIP, "seq": (next - ago) % SERIAL}), "session": row, "ordered": 1}
                )
                expected.append((ReplayOutcome.REPEATED if ago <= cached else ReplayOutcome.OLD,))
    assert outputs(Admission, TYPICAL, cases, ("outcome",)) == expected


@pytest.mark.parametrize("adds", [0, 9_999, 10_000, HALF - 1, HALF + 9_999, HALF + 10_000, SERIAL + 5, SERIAL + 10_000])
def test_a_sample_waits_for_items_until_so_many_were_ever_added_and_never_again(adds):
    """A client that sends the same `items` with each request is not stopped after 2^31 adds, nor after 2^32."""
    table = pack(TableState, {"adds": adds, "total": 1})
    case = {
        "frame": frame_of({"kind": Kind.SAMPLE, "count": 1}),
        "parameters": number(record(SAMPLE, items=10_000)),
        "session": pack(Session, {"open": 1}),
        "table": table,
        "filled": 1,
        "intact": 1,
        "ordered": 1,
    }
    expected = ReplayOutcome.ITEMS if adds < 10_000 else ReplayOutcome.DONE
    assert outputs(Admission, TYPICAL, [case], ("outcome",)) == [(expected,)]


def check_lost_log(part=Admission):
    """A log whose session has a bit error in its row lacks every unit; requests that read no log do not care."""
    kinds, row = (Kind.LOAD, Kind.SHOUT, Kind.LOOK), pack(Session, {"open": 1, "written": 9})
    case = {"parameters": number(record(LOAD, start=3)), "session": row, "other": row}
    cases = [
        case | {"frame": frame_of({"kind": kind, "count": 2}), "other_corrupt": corrupt}
        for kind in kinds
        for corrupt in (0, 1)
    ]
    done, lost = (ReplayOutcome.DONE,), (ReplayOutcome.OVERWRITTEN,)
    assert outputs(part, TYPICAL, cases, ("outcome",)) == [done, lost, done, lost, done, done]


def test_a_log_whose_session_has_a_bit_error_is_not_read():
    check_lost_log()


def test_the_longest_parameters_fit():
    assert max(one.itemsize for one in RECORDS.values()) == 8 * PARAMETER_ROWS and REPLAY_FRAME.itemsize == FRAME_BYTES


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # the requester, and the order of requests
        ("session.open & (session.nonce", "(session.nonce"),
        ("session.nonce[:32] == frame.token", "session.nonce[32:] == frame.token"),
        (" & (frame.session < replay.sessions)", ""),
        ("& ~self.session_corrupt", ""),
        ("held | self.reads_log & self.other_corrupt", "held"),
        ("held & ~self.answer_corrupt", "held"),
        ("self.known & held & self.answer_corrupt", "held & self.answer_corrupt"),
        ("self.known & held & self.answer_corrupt", "self.known & self.answer_corrupt"),
        ("self.known & held & self.answer_corrupt", "self.known & held"),
        ("held | self.reads_log & self.other_corrupt", "held | self.other_corrupt"),
        ("(recent != 0) & ", ""),
        ("recent <= session.cached", "recent < session.cached"),
        ("recent <= session.cached", "recent <= replay.cached_answers"),
        ("~(behind_by >> len(recent)).any() & ", ""),
        ("ordered & ahead_by[31]", "ordered & ~ahead_by[31] & (ahead_by != 0)"),
        ("ordered & not_next", "not_next"),
        (
            "(ReplayOutcome.OLD, ordered & ahead_by[31]),\n            (ReplayOutcome.AHEAD, ordered & not_next),",
            "(ReplayOutcome.AHEAD, ordered & not_next),",
        ),
        # requests that have to wait
        ("kind.matches(*TICKETED) & (frame.ticket != 0) &", "kind.matches(*TICKETED) &"),
        ("(frame.ticket != table.ticket)", "(frame.ticket < table.ticket)"),
        ("Kind.UPDATE, Kind.LIMIT)", "Kind.UPDATE)"),
        ("table.adds < sample.items", "(table.adds - sample.items)[31]"),
        ("table.adds < sample.items", "table.adds[:32] < sample.items"),
        ("| ~enough)", ")"),
        ("self.filled >= table.size", "self.filled > table.size"),
        ("samples & (table.total == 0)", "samples & (table.total[:32] == 0)"),
        ("(table.ratio != 0) & (samples", "(samples"),
        ("wanted > table.credit", "wanted >= table.credit"),
        ("adds & enough & (wanted > 0)", "adds & (wanted > 0)"),
        ("enough & (wanted > 0)", "enough & (wanted >= 0)"),
        ("self.product + table.credit - ahead", "self.product + table.credit + ahead"),
        ("wanted = Signal(signed(58))", "wanted = Signal(signed(48))"),
        ("table.behind << 16, table.ahead << 16", "table.ahead << 16, table.behind << 16"),
        ("(self.frame.count << 16) - behind", "self.frame.count - behind"),
        # parameters out of range
        ("(write.start != session.written) |", ""),
        ("(write.oldest - session.oldest)[:32] > in_use", "(write.oldest - session.oldest)[:32] >= in_use"),
        ("(write.oldest - session.oldest)[:32] > in_use", "write.oldest > session.written"),
        ("~in_log(publish.start, publish.units, session)", "0"),
        ("~in_log(publish.start, publish.units, session)", "~in_log(publish.start, publish.units[:31], session)"),
        ("(limits.times >> replay.sample_count_bits) != 0", "0"),
        ("(limits.times >> replay.sample_count_bits) != 0", "(limits.times >> replay.sample_count_bits)[0]"),
        ("log_length > replay.log_units", "log_length >= replay.log_units"),
        (
            "session.written + frame.count - view_as(WRITE, self.parameters).oldest",
            "session.written + frame.count - session.oldest",
        ),
        ("units <= (session.written", "units < (session.written"),
        ("(start - session.oldest)[:32]", "(start - session.oldest)[:31]"),
        # logs of other sessions
        ("not_own | (load", "(load"),
        ("(load.session >= self.replay.sessions) |", "0 |"),
        ("(kind == Kind.SHOUT) & (load.session != self.frame.session)", "load.session != self.frame.session"),
        ("~in_log(load.start, self.frame.count, self.other)", "~in_log(load.start, self.frame.count, self.session)"),
        ("(ReplayOutcome.OVERWRITTEN, reads_log & log_lacks)", "(ReplayOutcome.OVERWRITTEN, log_lacks)"),
        (
            "ReplayOutcome.RANGE, ReplayOutcome.MEMORY, ReplayOutcome.CORRUPT)",
            "ReplayOutcome.RANGE, ReplayOutcome.CORRUPT)",
        ),
        (
            "ReplayOutcome.RANGE, ReplayOutcome.MEMORY, ReplayOutcome.CORRUPT)",
            "ReplayOutcome.RANGE, ReplayOutcome.MEMORY)",
        ),
        ("kind.matches(Kind.SAMPLE, Kind.LIST) & ~self.intact", "kind.matches(Kind.SAMPLE) & ~self.intact"),
        ("(rebuild.slot != self.restored)", "(rebuild.slot > self.restored)"),
        ("rebuild.slot + self.frame.count > replay.capacity", "rebuild.slot + self.frame.count > replay.capacity + 1"),
        ("(kind == Kind.REBUILD) & wrong_slots", "0"),
        ("self.counts.eq(ordered &", "self.counts.eq("),
        ("for outcome, holds in reversed([", "for outcome, holds in list(["),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.request.admission, sound, wrong).Admission
    with pytest.raises(AssertionError):
        check_lost_log(broken)
        check_admission(part=broken, count=1000)
        check_admission(LARGE, part=broken, count=3000)
        check_admission(part=broken, count=6000)


@pytest.mark.mutant
def test_a_credit_without_a_sign_is_noticed(monkeypatch):
    broken = mutant(hw.replay.request.record, "credit: signed(56)", "credit: 56").TableState
    monkeypatch.setattr(hw.replay.request.admission, "TableState", broken)
    with pytest.raises(AssertionError):
        check_admission()
