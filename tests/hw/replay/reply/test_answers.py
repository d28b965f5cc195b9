# amaranth: UnusedElaboratable=no
"""Answers as heads and words: fragment by fragment, as the golden model's frames; every plausible mutant is killed."""

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


WIDTHS = [64, 256, 512]
RATES_OF_SPOILED = [{}, {"words": 0.5}]


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


def check(answers, *, bus_bits=256, answerer=AnswerSender, asked=0.0, heads=0.0, words=0.0, corrupt=()):
    """Check the frames of `answers`. `asked`, `heads`, `words`: stalls of the source and of the two consumers.
    `corrupt`: addresses of rows that have a bit error."""
    contents = np.random.default_rng(7).integers(0, 2**64, list_rows(REPLAY), "<u8").tolist()
    dut, per_word = answerer(REPLAY, bus_bits=bus_bits), bus_bits // 64
    bench = Bench(dut)
    source = bench.source(dut.answers, answers, stalls=asked)
    head_sink, word_sink = (
        bench.sink(dut.heads, stalls=heads),
        bench.sink(dut.words, stalls=words, beside=[dut.list, dut.busy]),
    )

    async def memory(ctx):
        """Answer as `ReplyCache` does: a word comes 1 cycle after its address."""
        async for _, _, at in ctx.tick().sample(dut.row_address):
            assert at < list_rows(REPLAY), "rows are asked for that there are not"
            rows = range(at // per_word * per_word, (at // per_word + 1) * per_word)
            ctx.set(Value.cast(dut.listed), sum(contents[row] << 64 * k for k, row in enumerate(rows)))
            ctx.set(dut.corrupt, sum((row in corrupt) << k for k, row in enumerate(rows)))

    async def follow(ctx):
        """Between an answer and the next, and only then, the answerer is not busy. `spoil` follows a word, while its
        list is still shown."""
        taken = left = spoiled = list_before = 0
        async for _, _, valid, ready, busy, offers, goes, shows, takes, wrong, spoil, list_now in ctx.tick().sample(
            dut.answers.valid,
            dut.answers.ready,
            dut.busy,
            dut.heads.valid,
            dut.heads.ready,
            dut.words.valid,
            dut.words.ready,
            dut.words.payload.spoil,
            dut.spoil,
            dut.list,
        ):
            assert ready == (not busy) and not (offers and shows)
            assert spoil == spoiled and (not spoil or busy and list_now == list_before)
            spoiled, list_before = shows and takes and wrong, list_now
            assert busy or not (offers or shows) and left == heads_of[taken]
            taken, left = taken + (valid and ready), left + (offers and goes)

    each = [list(expected(answer, contents)) for answer in answers]
    heads_of = np.cumsum([0] + [len(frames) for frames in each]).tolist()
    bench.process(memory)
    bench.process(follow)
    assert bench.run(read=[dut.busy], limit=20_000, quiet=60) == [0]
    found, at, spoiled_frames = [], 0, []
    for k, (item, time, later) in enumerate(
        zip(head_sink.items, head_sink.times, [*head_sink.times[1:], 1 << 40], strict=True)
    ):
        body, end = [], at + -(-item.rows // per_word)
        for word in word_sink.items[at:end]:
            body += [word.data >> 64 * k & 2**64 - 1 for k in range(per_word)]
        assert all(time < word < later for word in word_sink.times[at:end]), (
            "words must come between their head and the next"
        )
        if any(word.spoil for word in word_sink.items[at:end]):
            spoiled_frames.append(k)
        at = end
        where = item.port, item.address.mac, item.address.ip, item.address.udp
        header = item.header.as_value().value.to_bytes(REPLAY_HEADER.itemsize, "little")
        found.append((where, header, body[: item.rows]))
    assert at == len(word_sink.items)
    assert found == [frame for frames in each for frame in frames]
    addresses = [
        range(answer["list"] + 160 * k, answer["list"] + min(160 * (k + 1), answer["answer"]["rows"]))
        for answer, frames in zip(answers, each)
        for k in fragments_of(answer, len(frames))
    ]
    assert spoiled_frames == [k for k, rows_sent in enumerate(addresses) if {*corrupt} & {*rows_sent}]
    lists = [
        answer["list"]
        for answer, frames in zip(answers, each)
        for _, _, body in frames
        for _ in range(-(-len(body) // per_word))
    ]
    assert word_sink.besides == [[here, 1] for here in lists]
    return source, head_sink, word_sink


def fragments_of(answer, count):
    """Return the fragments of an answer that are sent."""
    wanted = [k for k in range(4) if answer["fragments"] >> k & 1]
    return wanted[:count] if answer["answer"]["kind"] == Kind.SAMPLE and answer["answer"]["rows"] else range(count)


def some_rows_are_corrupt(answerer=AnswerSender, **rates):
    """The row before a list and the row behind it are read, too, but not sent."""
    answers = [asking(Kind.SAMPLE, 480, fragments=wanted, at=512, seed=wanted) for wanted in (7, 2, 5)]
    answers += [asking(Kind.LOOK, 0, at=512), asking(Kind.LIST, 3, at=512), asking(Kind.SAMPLE, 20, at=0)]
    for corrupt in ((512,), (512 + 159,), (512 + 160, 512 + 479), (511, 20), (512 + 480,), (512 + 2,), (515,), (19,)):
        check(answers, answerer=answerer, corrupt=corrupt, **rates)


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("rates", RATES_OF_SPOILED, ids=str)
def test_a_frame_with_a_row_that_has_a_bit_error_is_spoiled_and_no_other_frame_is(rates, bus_bits):
    some_rows_are_corrupt(bus_bits=bus_bits, **rates)


RATES = [{}, {"asked": 0.5}, {"heads": 0.7}, {"words": 0.5}, {"asked": 0.9, "heads": 0.9, "words": 0.7}]


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("count", [1, 159, 160, 161, 320, 321, 480, 512])
def test_draws_come_in_fragments_of_160(count, rates, bus_bits):
    check([asking(Kind.SAMPLE, count, at=at, seed=at) for at in (0, 512)], bus_bits=bus_bits, **rates)


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
                at=8 * rng.randrange(64),
                seed=k,
            )
            for k in range(20)
        ],
        **rates,
    )


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_a_word_a_cycle_and_1_cycle_from_what_is_asked_to_its_head(bus_bits):
    """Between a body and the next fragment's head is 1 cycle more."""
    source, heads, words = check([asking(Kind.SAMPLE, 320), asking(Kind.LOOK, 0)], bus_bits=bus_bits)
    assert heads.times[0] == source.times[0] + 1 and words.times[0] == heads.times[0] + 1
    whole = (STATUS_ROWS + 160) * 64 // bus_bits
    assert words.times[:whole] == list(range(words.times[0], words.times[0] + whole))
    assert heads.times[1] == words.times[whole - 1] + 2
    assert source.times[1] == words.times[2 * whole - 1] + 2


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
        ("self.words.ready & ~last_word, shown_row + self.rows_per_word", "1, shown_row + self.rows_per_word"),
        ("self.words.ready & ~last_word, shown_row + self.rows_per_word", "0, shown_row + self.rows_per_word"),
        ("self.words.ready & ~last_word, shown_row", "self.words.ready, shown_row"),
        ("shown_row + self.rows_per_word", "shown_row + 1"),
        ("shown_row.eq(first_row)", "shown_row.eq(outgoing.list)"),
        ("self.row_address.eq(first_row),", "self.row_address.eq(outgoing.list),"),
        ("self.row_address.eq(first_row),", "self.row_address.eq(0),"),
        ("left.eq(rows)]", "left.eq(rows + 1)]"),
        ("left.eq(left - self.rows_per_word)", "left.eq(left - 1)"),
        ("rows.eq(at_most_a_fragment(after))", "rows.eq(rows)"),
        ("with m.If(rows == 0):", "with m.If(0):"),
        ("word_select(status_word, self.bus_bits)", "word_select(0, self.bus_bits)"),
        ("status_word == status_words - 1", "status_word == status_words - 2"),
        ("self.list.eq(outgoing.list)", "self.list.eq(0)"),
        ("self.corrupt[k] & (k < left)", "self.corrupt[k]"),
        ("self.corrupt[k] & (k < left)", "self.corrupt[k] & (k + 1 < left)"),
        ("self.words.valid & self.words.ready & word.spoil", "self.words.valid & word.spoil"),
        ("self.words.valid & self.words.ready & word.spoil", "0"),
        ('self.busy.eq(~fsm.ongoing("IDLE"))', 'self.busy.eq(fsm.ongoing("ROWS"))'),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.reply.answers, sound, wrong).AnswerSender
    with pytest.raises((AssertionError, TimeoutError)):
        check(short(), answerer=broken)
        some_rows_are_corrupt(broken)
        some_rows_are_corrupt(broken, words=0.5)
        for rates in ({}, {"heads": 0.5, "words": 0.5}):
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
