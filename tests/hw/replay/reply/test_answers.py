# amaranth: UnusedElaboratable=no
"""Answers as heads and rows: fragment by fragment, as the golden model's frames; every plausible mutant is killed."""

import random

import numpy as np
import pytest
from amaranth.hdl import Value

import hw.replay.reply.answers
from hw.replay.reply.answers import AnswerSender
from hw.replay.reply.cache import list_rows
from iswitch.config import Replay
from iswitch.golden.replay import frames
from iswitch.wire.replay import ALL_FRAGMENTS, END, REPLAY_HEADER, STATUS, Kind
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

REPLAY = Replay(capacity=64, sessions=3, cached_answers=2, samples_per_request=512, log_bytes=4096)
STATUS_ROWS = STATUS.itemsize // 8


RATES_OF_SPOILED = [{}, {"rows": 0.5}]


def asking(kind, rows, *, fragments=ALL_FRAGMENTS, at=0, seed=1):
    """An answer of so many rows whose list begins at `at`, in any status of any session."""
    rng = random.Random(seed)
    return {
        "answer": {
            "status": rng.getrandbits(8 * STATUS.itemsize),
            "kind": kind,
            "table": rng.getrandbits(8),
            "rows": rows,
        },
        "port": rng.randrange(16),
        "address": {"mac": rng.getrandbits(48), "ip": rng.getrandbits(32), "udp": rng.getrandbits(16)},
        "session": rng.getrandbits(8),
        "seq": rng.getrandbits(32),
        "token": rng.getrandbits(32),
        "fragments": fragments,
        "list": at,
    }


def expected(asked, contents):
    """For each frame: where it goes, its header, its body as rows."""
    answer, address = asked["answer"], asked["address"]
    request = frames.Request(255, asked["session"], 255, asked["seq"], 0, asked["fragments"], 0, asked["token"], b"")
    rows = [(word % 2**32, word >> 32) for word in contents[asked["list"] : asked["list"] + answer["rows"]]]
    kept = frames.CachedAnswer(
        answer["kind"], answer["table"], answer["status"].to_bytes(STATUS.itemsize, "little"), tuple(rows)
    )
    for payload in frames.answers(request, kept):
        header, body = payload[: REPLAY_HEADER.itemsize], payload[REPLAY_HEADER.itemsize : -END.itemsize]
        yield (
            (asked["port"], *address.values()),
            header,
            [int.from_bytes(body[at : at + 8], "little") for at in range(0, len(body), 8)],
        )


def check(answers, *, answerer=AnswerSender, asked=0.0, heads=0.0, rows=0.0, corrupt=()):
    """Check the frames of `answers`. `asked`, `heads`, `rows`: stalls of the source and of the two consumers.
    `corrupt`: addresses of rows that have a bit error."""
    contents = np.random.default_rng(7).integers(0, 2**64, list_rows(REPLAY), "<u8").tolist()
    dut = answerer(REPLAY)
    bench = Bench(dut)
    source = bench.source(dut.answers, answers, stalls=asked)
    head_sink, row_sink = (
        bench.sink(dut.heads, stalls=heads),
        bench.sink(dut.rows, stalls=rows, beside=[dut.list, dut.busy]),
    )

    async def memory(ctx):
        """Answer as `ReplyCache` does: a row comes 1 cycle after its address."""
        shown = None
        async for _, _, at in ctx.tick().sample(dut.row_address):
            assert at < list_rows(REPLAY), "rows are asked for that there are not"
            ctx.set(Value.cast(dut.row), contents[at])
            ctx.set(dut.row_corrupt, shown in corrupt)
            shown = at

    async def follow(ctx):
        """Between an answer and the next, and only then, the answerer is not busy."""
        taken = left = 0
        async for _, _, valid, ready, busy, offers, goes, shows in ctx.tick().sample(
            dut.answers.valid, dut.answers.ready, dut.busy, dut.heads.valid, dut.heads.ready, dut.rows.valid
        ):
            assert ready == (not busy) and not (offers and shows)
            assert busy or not (offers or shows) and left == heads_of[taken]
            taken, left = taken + (valid and ready), left + (offers and goes)

    async def count_spoiled(ctx):
        """A frame is spoiled once or more between its first row and the cycle after its last."""
        spoiled, frame = set(), -1
        async for _, _, offers, goes, spoil in ctx.tick().sample(dut.heads.valid, dut.heads.ready, dut.spoil):
            if spoil:
                spoiled.add(frame)
            frame += offers and goes
            spoiled_frames[:] = sorted(spoiled)

    spoiled_frames: list[int] = []
    bench.process(count_spoiled)
    each = [list(expected(answer, contents)) for answer in answers]
    heads_of = np.cumsum([0] + [len(frames) for frames in each]).tolist()
    bench.process(memory)
    bench.process(follow)
    assert bench.run(read=[dut.busy], limit=20_000, quiet=60) == [0]
    found, at = [], 0
    for item, time, later in zip(head_sink.items, head_sink.times, [*head_sink.times[1:], 1 << 40]):
        body = row_sink.items[at : at + item.rows]
        assert all(time < row < later for row in row_sink.times[at : at + item.rows]), (
            "rows must come between their head and the next"
        )
        at += item.rows
        where = item.port, item.address.mac, item.address.ip, item.address.udp
        found.append((where, item.header.as_value().value.to_bytes(REPLAY_HEADER.itemsize, "little"), body))
    assert at == len(row_sink.items)
    assert found == [frame for frames in each for frame in frames]
    addresses = [
        range(answer["list"] + 160 * k, answer["list"] + min(160 * (k + 1), answer["answer"]["rows"]))
        for answer, frames in zip(answers, each)
        for k in fragments_of(answer, len(frames))
    ]
    assert spoiled_frames == [k for k, rows_sent in enumerate(addresses) if {*corrupt} & {*rows_sent}]
    lists = [answer["list"] for answer, frames in zip(answers, each) for _, _, body in frames for _ in body]
    assert [(here, 1) for here in lists] == [(here, busy) for here, busy in row_sink.besides]
    return source, head_sink, row_sink


def fragments_of(answer, count):
    """Return the fragments of an answer that are sent."""
    wanted = [k for k in range(4) if answer["fragments"] >> k & 1]
    return wanted[:count] if answer["answer"]["kind"] == Kind.SAMPLE and answer["answer"]["rows"] else range(count)


def some_rows_are_corrupt(answerer=AnswerSender, **rates):
    """The row before a list and the row behind it are read, too, but not sent."""
    answers = [asking(Kind.SAMPLE, 480, fragments=wanted, at=512, seed=wanted) for wanted in (7, 2, 5)]
    answers += [asking(Kind.LOOK, 0, at=512), asking(Kind.LIST, 3, at=512), asking(Kind.SAMPLE, 20, at=0)]
    for corrupt in ((512,), (512 + 159,), (512 + 160, 512 + 479), (511, 20), (512 + 480,), (512 + 2,), (19,)):
        check(answers, answerer=answerer, corrupt=corrupt, **rates)


@pytest.mark.parametrize("rates", RATES_OF_SPOILED, ids=str)
def test_a_frame_with_a_row_that_has_a_bit_error_is_spoiled_and_no_other_frame_is(rates):
    some_rows_are_corrupt(**rates)


RATES = [{}, {"asked": 0.5}, {"heads": 0.7}, {"rows": 0.5}, {"asked": 0.9, "heads": 0.9, "rows": 0.7}]


@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("count", [1, 159, 160, 161, 320, 321, 480, 512])
def test_draws_come_in_fragments_of_160(count, rates):
    check([asking(Kind.SAMPLE, count, at=at, seed=at) for at in (0, 512)], **rates)


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_fragments_that_are_wanted_and_no_others(rates):
    check([asking(Kind.SAMPLE, 512, fragments=wanted, at=512, seed=wanted) for wanted in range(16)], **rates)
    check(
        [
            asking(Kind.SAMPLE, count, fragments=wanted, seed=wanted)
            for count in (160, 161, 320)
            for wanted in (0, 1, 2, 4, 0xFFFE, 0x8000)
        ],
        **rates,
    )


def short(fragments=0):
    """Kinds without a list, lists of slots, and samples that drew nothing: an answer each, whatever fragments are
    wanted."""
    return [asking(kind, 0, fragments=fragments, seed=kind) for kind in (*Kind, 200)] + [
        asking(Kind.LIST, count, fragments=fragments, at=6 * 512, seed=count) for count in (1, 159, 160)
    ]


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_what_is_no_list_of_draws_is_answered_whatever_fragments_are_wanted(rates):
    check(short(), **rates)


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_answers_of_all_kinds_in_order(rates):
    rng = random.Random(3)
    check(
        [
            asking(
                *rng.choice(
                    [
                        (Kind.LOOK, 0),
                        (Kind.LIST, 7),
                        (Kind.SAMPLE, 0),
                        (Kind.SAMPLE, 1),
                        (Kind.SAMPLE, 161),
                        (Kind.SAMPLE, 40),
                    ]
                ),
                fragments=rng.choice([0, 1, 2, 3]),
                at=rng.randrange(512),
                seed=k,
            )
            for k in range(20)
        ],
        **rates,
    )


def test_a_row_a_cycle_and_1_cycle_from_what_is_asked_to_its_head():
    """Between a body and the next fragment's head is 1 cycle more."""
    source, heads, rows = check([asking(Kind.SAMPLE, 320), asking(Kind.LOOK, 0)])
    assert heads.times[0] == source.times[0] + 1 and rows.times[0] == heads.times[0] + 1
    whole = STATUS_ROWS + 160
    assert rows.times[:whole] == list(range(rows.times[0], rows.times[0] + whole))
    assert heads.times[1] == rows.times[whole - 1] + 2
    assert source.times[1] == rows.times[2 * whole - 1] + 2


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # fragments
        ("~outgoing.fragments.bit_select(fragment, 1)", "~outgoing.fragments.bit_select(0, 1)"),
        ("in_fragments & ~outgoing", "~outgoing"),
        ("in_fragments & ~outgoing", "0 & outgoing"),
        ("& (answer.rows != 0)", ""),
        ("(answer.kind == Kind.SAMPLE) &", ""),
        ("count > SAMPLES_PER_FRAGMENT", "count >= 2 * SAMPLES_PER_FRAGMENT"),
        ("first_row + SAMPLES_PER_FRAGMENT)]", "first_row + SAMPLES_PER_FRAGMENT - 1)]"),
        ("(rows_left - SAMPLES_PER_FRAGMENT)[:16]", "rows_left[:16]"),
        ("rows_left <= SAMPLES_PER_FRAGMENT", "rows_left < SAMPLES_PER_FRAGMENT"),
        ("rows_left <= SAMPLES_PER_FRAGMENT", "rows_left <= 2 * SAMPLES_PER_FRAGMENT"),
        ("fragment.eq(0), rows_left", "rows_left"),
        ("first_row.eq(accepted.list)]", "]"),
        # headers
        ("header.fragments.eq(fragment)", "header.fragments.eq(0)"),
        ("header.count.eq(rows)", "header.count.eq(head.rows)"),
        ("header.seq.eq(outgoing.seq), ", ""),
        ("header.token.eq(outgoing.token)", "header.token.eq(0)"),
        ("header.kind.eq(answer.kind), ", ""),
        ("header.session.eq(outgoing.session)", "header.session.eq(0)"),
        ("header.table.eq(answer.table), ", ""),
        ("Type.ANSWER", "Type.DATA"),
        ("STATUS_ROWS + rows)", "STATUS_ROWS + answer.rows[:8])"),
        ("head.port.eq(outgoing.port), ", ""),
        ("head.address.eq(outgoing.address), ", ""),
        # rows
        ("shown_row + (self.rows.ready & ~last_row)", "shown_row + 1"),
        ("shown_row + (self.rows.ready & ~last_row)", "shown_row"),
        ("self.rows.ready & ~last_row", "self.rows.ready"),
        ("shown_row.eq(first_row)", "shown_row.eq(outgoing.list)"),
        ("self.row_address.eq(first_row)]", "self.row_address.eq(outgoing.list)]"),
        ("self.row_address.eq(first_row)]", "self.row_address.eq(0)]"),
        ("left.eq(rows - 1)", "left.eq(rows)"),
        ("rows.eq(at_most_a_fragment(after))", "rows.eq(rows)"),
        ("with m.If(rows == 0):", "with m.If(0):"),
        ("word_select(status_row, ROW_BITS)", "word_select(status_row[:2], ROW_BITS)"),
        ("self.list.eq(outgoing.list)", "self.list.eq(0)"),
        ("row_was_shown & self.row_corrupt", "self.row_corrupt"),
        ("row_was_shown & self.row_corrupt", "0"),
        ('row_was_shown.eq(fsm.ongoing("ROWS"))', 'row_was_shown.eq(fsm.ongoing("ROWS") & (left != 0))'),
        ('self.busy.eq(~fsm.ongoing("IDLE"))', 'self.busy.eq(fsm.ongoing("ROWS"))'),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.reply.answers, sound, wrong).AnswerSender
    with pytest.raises((AssertionError, TimeoutError)):
        check(short(), answerer=broken)
        some_rows_are_corrupt(broken)
        for rates in ({}, {"heads": 0.5, "rows": 0.5}):
            check(
                [
                    asking(Kind.SAMPLE, 321, at=0),
                    asking(Kind.SAMPLE, 160, fragments=1, at=512, seed=2),
                    asking(Kind.LIST, 3, fragments=0, at=3072),
                ],
                answerer=broken,
                **rates,
            )
        check(
            [asking(Kind.SAMPLE, 512, fragments=wanted, at=512, seed=wanted) for wanted in (0, 5, 8)], answerer=broken
        )
