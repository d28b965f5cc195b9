"""What becomes of a request, as logic, against the golden dispatcher and service over random states; every plausible
slip is noticed."""

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Value

import hw.replay.request.admission
from hw.replay.request.admission import PARAMETER_ROWS, Admission, HeaderCheck, TableState
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import (
    BODY_BYTES,
    LIMITS,
    LIST,
    LOAD,
    ORDERED,
    PUBLISH,
    REPLAY_FRAME,
    REPLAY_HEADER,
    SAMPLE,
    WRITE,
    Fate,
    Kind,
)
from sim.bench.mutant import mutant
from sim.bench.replay_client import record
from sim.bench.stream import Bench, pack
from sim.model.replay import frames
from sim.model.replay.dispatcher import Effect
from sim.model.replay.service import Service
from sim.model.replay.session import SERIAL
from sim.model.replay.session import Session as GoldenSession
from sim.model.replay.table import Limits

REPLAY = Replay(tables=2, capacity=64, sessions=3, kept=4, log_bytes=4096, draws=256, times_bits=3)
FAR = replace(REPLAY, sessions=5, kept=1, log_bytes=1 << 20, record_bytes=256, times_bits=0, capacity=1 << 12, draws=16)
HALF = SERIAL // 2
LEADS = {
    Kind.OPEN: 1,
    Kind.WRITE: 1,
    Kind.SAMPLE: 4,
    Kind.PUBLISH: 2,
    Kind.LIMIT: 3,
    Kind.LOAD: 1,
    Kind.LIST: 1,
    Kind.SHOUT: 1,
}
JUDGED = [kind for kind in Kind if kind != Kind.OPEN]
RECORDS = {
    Kind.WRITE: WRITE,
    Kind.SAMPLE: SAMPLE,
    Kind.PUBLISH: PUBLISH,
    Kind.LIMIT: LIMITS,
    Kind.LOAD: LOAD,
    Kind.SHOUT: LOAD,
    Kind.LIST: LIST,
}


class OutgoingAnswer(Service):
    """The golden service, of which only the judgement is wanted: what is carried out has no effect beyond that. Samplers
    have as many items as they say."""

    def __init__(self, replay):
        super().__init__(replay)
        for kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE):
            self.executors[kind] = lambda asked: Effect()
        for kind in (Kind.FETCH, Kind.LIST):
            self.queries[kind] = self.look
        self.memory.write = lambda session, start, units: None
        self.memory.read = lambda session, start, units: b""

    def status(self, asked, place, effect):
        return frames.status(reason=effect.fate)


def near(rng, value, *, by=2):
    return (value + rng.randint(-by, by)) % SERIAL


def state_of(rng, replay):
    """Any state that a service can come to, and much about its borders: a Service, and what of its Places is a
    Session's row."""
    service = OutgoingAnswer(replay)
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
            kept=(frames.CachedAnswer(Kind.SKIP, 0, bytes(64)),) * rng.randint(0, replay.kept),
            oldest=oldest,
        )
    for table in service.tables:
        table.adds = rng.choice([0, 5, HALF, SERIAL - 1, rng.getrandbits(32)])
        table.ticket = rng.choice([1, SERIAL - 1, rng.getrandbits(32) or 1])
        filled = rng.choice([0, 1, replay.capacity - 1, replay.capacity, rng.randrange(replay.capacity)])
        table.slots = SimpleNamespace(
            filled=filled, tree=SimpleNamespace(total=rng.choice([0, 1, 1 << 32, rng.getrandbits(40)]))
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
            "items": rng.choice([0, near(rng, table.adds), near(rng, table.adds + HALF), rng.getrandbits(32)])
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
    }
    first[Kind.SHOUT] = first[Kind.LOAD]
    head, each, _ = service.body_shape(kind)
    lead = record(RECORDS[kind], **first[kind]()) if kind in RECORDS else b""
    assert len(lead) in (0, head) or kind == Kind.LIST
    return lead.ljust(head + each * count, b"\x5a")


def request_of(rng, service):
    """A well-formed request of somebody, mostly of who is there and with the number that is next."""
    replay, kind = service.config, rng.choice(JUDGED + [Kind.SAMPLE, Kind.ADD, Kind.WRITE] * 3)
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
            [0] * 20 + [1, -1, -replay.kept, -replay.kept - 1, -2, HALF, HALF - 1, HALF + 1, rng.getrandbits(32)]
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


def number(octets):
    return int.from_bytes(octets, "little")


def frame_of(values):
    """The first 64 bytes, any addresses."""
    return number(b"\x77" * (FRAME_BYTES - REPLAY_HEADER.itemsize) + record(REPLAY_HEADER, **values))


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
            "kept": len(at.kept),
            "written": at.written,
            "oldest": at.oldest,
            "heard": rng.getrandbits(32),
            "port": rng.getrandbits(4),
            "address": {"mac": rng.getrandbits(48)},
        },
    )
    lead = body[: 8 * LEADS.get(kind, 0)].ljust(8 * PARAMETER_ROWS, b"\xee")  # what is left of a request before
    log = int(np.frombuffer(lead, LOAD, 1)["session"][0])
    return {
        "frame": frame_of(values),
        "lead": number(lead),
        "session": session(place(values["session"])),
        "other": session(place(log)),
        "table": pack(
            TableState,
            {
                "adds": state.adds,
                "ticket": state.ticket,
                "total": state.total,
                "credit": state.credit,
                "draws": rng.getrandbits(32),
                **state.limits._asdict(),
            },
        ),
        "filled": state.slots.filled,
        "product": values["count"] * state.limits.ratio,
        "ordered": kind in ORDERED,
    }


def answers(part, replay, cases, names):
    """What stands at the outputs for each of the inputs."""
    dut, found = part(replay), []

    async def ask(ctx):
        for case in cases:
            for name, bits in case.items():
                ctx.set(Value.cast(getattr(dut, name)), bits)
            await ctx.tick()
            found.append(tuple(int(ctx.get(Value.cast(getattr(dut, name)))) for name in names))

    Bench(dut).drive(ask)
    return found


def check_judge(replay=REPLAY, *, part=Admission, count=6000, seed=1):
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
            state = service.tables[values["table"]]
            known = service.rules.find_session(places, values["session"], values["token"]) is not None
            enough = state.slots.filled >= state.limits.size
            asked = frames.parse_request(record(REPLAY_HEADER, **values) + body)
            fate, _ = service.handle(asked, None, rng.getrandbits(32))
            here = service.sessions[values["session"]].next if known else 0
            counts = known and here != places[values["session"]].next
            expected.append((fate, known, counts, enough))
            service.sessions[:] = places
            for table, credit, limit, ticket in zip(service.tables, credits, limits, tickets):
                table.credit, table.limits, table.ticket = credit, limit, ticket
    assert answers(part, replay, cases, ("fate", "known", "counts", "enough")) == expected
    return {(case["frame"] >> 8 * 43 & 0xFF, fate) for case, (fate, *_) in zip(cases, expected)}


@pytest.mark.parametrize(("replay", "seed"), [(REPLAY, 1), (REPLAY, 2), (FAR, 3)])
def test_a_request_has_the_fate_that_the_model_gives_it(replay, seed):
    seen = check_judge(replay, seed=seed)
    ordered = {
        (kind, fate) for kind in ORDERED for fate in (Fate.DONE, Fate.SESSION, Fate.REPEATED, Fate.OLD, Fate.AHEAD)
    }
    special = {
        (Kind.ADD, Fate.RATE),
        (Kind.PUBLISH, Fate.RANGE),
        (Kind.WRITE, Fate.RANGE),
        (Kind.WRITE, Fate.MEMORY),
        (Kind.LIMIT, Fate.RANGE),
        (Kind.LOAD, Fate.OVERWRITTEN),
        (Kind.SHOUT, Fate.OVERWRITTEN),
        *((Kind.SAMPLE, fate) for fate in (Fate.ITEMS, Fate.EMPTY, Fate.RATE)),
        *((kind, Fate.TICKET) for kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)),
    }
    others = {(kind, fate) for kind in JUDGED if kind not in ORDERED for fate in (Fate.DONE, Fate.SESSION)}
    assert seen == ordered | special | others


def test_a_repeat_is_known_after_ever_so_many_requests():
    """Of the last requests, however many there were since the client came: its first number may be anywhere on the
    circle."""
    cases, expected = [], []
    for next in (0, 3, HALF, HALF + 3, SERIAL - 1):
        for kept in range(REPLAY.kept + 1):
            for ago in range(1, REPLAY.kept + 2):
                row = pack(Session, {"open": 1, "next": next, "kept": kept})
                cases.append(
                    {"frame": frame_of({"kind": Kind.SKIP, "seq": (next - ago) % SERIAL}), "session": row, "ordered": 1}
                )
                expected.append((Fate.REPEATED if ago <= kept else Fate.OLD,))
    assert answers(Admission, REPLAY, cases, ("fate",)) == expected


def check_form(replay=REPLAY, *, part=HeaderCheck, count=4000, seed=1):
    """Any kind, table, count and length, mostly right but for one of them."""
    rng, service, cases, expected = random.Random(seed), OutgoingAnswer(replay), [], []
    for _ in range(count):
        kind = rng.choice([*Kind, 14, 15, 16, 17, 128, 255])
        head, each, most = service.body_shape(Kind(kind)) if kind in tuple(Kind) else (0, 0, 0)
        units = rng.choice([0, 1, most, most, rng.randint(0, most), most + 1, 256, 256 + most, 0xFFFF])
        length = (head + each * units) % (BODY_BYTES + 80) + rng.choice([0] * 6 + [-8, 8, 1, -1, 4, 64])
        if rng.random() < 0.2:  # as long as it would be if only the count's lower half were looked at
            length = head + each * (units % 256) if head + each * (units % 256) <= BODY_BYTES else length
        values = {
            "kind": kind,
            "table": rng.choice(
                [0, replay.tables - 1, replay.tables - 1, replay.tables, 255] if rng.random() < 0.3 else [0]
            ),
            "count": units,
            "seq": rng.getrandbits(32),
            "session": rng.getrandbits(8),
        }
        length = max(length, 0)
        asked = frames.parse_request(record(REPLAY_HEADER, **values) + bytes(length))
        cases.append({"frame": frame_of(values), "length": FRAME_BYTES + length})
        fate = service.format_fault(asked) or Fate.DONE
        expected.append((fate, fate != Fate.DONE, LEADS.get(kind, 0), kind in ORDERED))
    assert answers(part, replay, cases, ("fate", "fault", "leads", "ordered")) == expected
    return {fate for fate, *_ in expected}


@pytest.mark.parametrize(
    ("replay", "seed"), [(REPLAY, 1), (FAR, 2), (Replay(tables=4, draws=2048, record_bytes=1024), 3)]
)
def test_what_is_malformed_is_so_for_the_model(replay, seed):
    assert check_form(replay, seed=seed) == {Fate.DONE, Fate.KIND, Fate.TABLE, Fate.LENGTH}


def test_records_begin_where_the_judge_looks():
    assert max(one.itemsize for one in RECORDS.values()) == 8 * PARAMETER_ROWS and REPLAY_FRAME.itemsize == FRAME_BYTES


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # who asks, and in which order
        ("session.open & (session.nonce", "(session.nonce"),
        ("session.nonce[:32] == frame.token", "session.nonce[32:] == frame.token"),
        (" & (frame.session < replay.sessions)", ""),
        ("(near != 0) & ", ""),
        ("near <= session.kept", "near < session.kept"),
        ("near <= session.kept", "near <= replay.kept"),
        ("~(ago >> len(near)).any() & ", ""),
        ("ordered & since[31]", "ordered & ~since[31] & (since != 0)"),
        ("ordered & apart", "apart"),
        (
            "(Fate.OLD, ordered & since[31]),\n            (Fate.AHEAD, ordered & apart),",
            "(Fate.AHEAD, ordered & apart),",
        ),
        # what has to wait
        ("tickets & (frame.ticket != 0) &", "tickets &"),
        ("(frame.ticket != table.ticket)", "(frame.ticket < table.ticket)"),
        ("Kind.UPDATE, Kind.LIMIT)", "Kind.UPDATE)"),
        ("(table.adds - sample.items)[31]", "(table.adds < sample.items)"),
        ("| ~enough)", ")"),
        ("self.filled >= table.size", "self.filled > table.size"),
        ("draws & (table.total == 0)", "draws & (table.total[:32] == 0)"),
        ("(table.ratio != 0) & (draws", "(draws"),
        ("wanted > table.credit", "wanted >= table.credit"),
        ("adds & enough & (wanted > 0)", "adds & (wanted > 0)"),
        ("enough & (wanted > 0)", "enough & (wanted >= 0)"),
        ("self.product + table.credit - ahead", "self.product + table.credit + ahead"),
        ("wanted = Signal(signed(58))", "wanted = Signal(signed(48))"),
        ("table.behind << 16, table.ahead << 16", "table.ahead << 16, table.behind << 16"),
        ("(count << 16) - behind", "count - behind"),
        ("credit: signed(56)", "credit: 56"),
        # what is out of range
        ("(write.start != session.written) |", ""),
        ("(write.oldest - session.oldest)[:32] > kept", "(write.oldest - session.oldest)[:32] >= kept"),
        ("(write.oldest - session.oldest)[:32] > kept", "write.oldest > session.written"),
        ("~there(publish.start, publish.units, session)", "0"),
        ("~there(publish.start, publish.units, session)", "~there(publish.start, publish.units[:31], session)"),
        ("(limits.times >> replay.times_bits) != 0", "0"),
        ("(limits.times >> replay.times_bits) != 0", "(limits.times >> replay.times_bits)[0]"),
        ("length > replay.log_units", "length >= replay.log_units"),
        ("session.written + count - write.oldest", "session.written + count - session.oldest"),
        ("units <= (session.written", "units < (session.written"),
        ("(start - session.oldest)[:32]", "(start - session.oldest)[:31]"),
        # logs of others
        ("missing = others |", "missing ="),
        ("(load.session >= replay.sessions) |", "0 |"),
        ("(kind == Kind.SHOUT) & (load.session != frame.session)", "load.session != frame.session"),
        ("~there(load.start, count, self.other)", "~there(load.start, count, session)"),
        ("(Fate.OVERWRITTEN, reads & missing)", "(Fate.OVERWRITTEN, missing)"),
        ("Fate.DONE, Fate.RANGE, Fate.MEMORY)", "Fate.DONE, Fate.RANGE)"),
        ("self.counts.eq(ordered &", "self.counts.eq("),
        ("for fate, holds in reversed([", "for fate, holds in list(["),
    ],
)
def test_a_mutant_of_the_judge_is_noticed(sound, wrong):
    broken = mutant(hw.replay.request.admission, sound, wrong).Admission
    with pytest.raises(AssertionError):
        check_judge(part=broken, count=1000)
        check_judge(FAR, part=broken, count=3000)
        check_judge(part=broken, count=6000)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("kind > max(Kind)", "kind > max(Kind) + 1"),
        ("kind > max(Kind)", "kind[:4] > max(Kind)"),
        ("frame.table >= replay.tables", "frame.table > replay.tables"),
        ("no_length.eq(~fits)", "no_length.eq(0)"),
        ("| too_many", ""),
        ("count > most", "count >= most"),
        ("count > most", "count[:8] > most"),
        ("| too_few", ""),
        ("& some)", ")"),
        ("(before + HEAD_ROWS)", "(before + HEAD_ROWS + 1)"),
        ("~self.length[:3].any() & ", ""),
        ("Kind.LIMIT: (0, 0, 3)", "Kind.LIMIT: (0, 0, 2)"),
        ("Kind.FETCH: (replay.records", "Kind.FETCH: (22"),
        ("Kind.LIST: (SAMPLES_PER_FRAGMENT, 0", "Kind.LIST: (SAMPLES_PER_FRAGMENT, 1"),
        ("item_rows = 1 +", "item_rows ="),
        ("Kind.LIST: 1, Kind.SHOUT: 1}", "Kind.LIST: 1}"),
        ("among(kind, *ORDERED)", "kind <= Kind.SKIP"),
        ("self.fate != Fate.DONE)", "self.fate == Fate.LENGTH)"),
    ],
)
def test_a_mutant_of_the_form_is_noticed(sound, wrong):
    broken = mutant(hw.replay.request.admission, sound, wrong).HeaderCheck
    with pytest.raises(AssertionError):
        check_form(part=broken)
        check_form(FAR, part=broken)
