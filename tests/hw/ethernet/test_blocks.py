"""64B/66B blocks, against a coder that sends field by field; tables, against those of cocotbext-eth; order, against
figures 49-16 and 49-17."""

import random

import pytest
from cocotbext.eth import constants

import hw.ethernet.blocks
from hw.ethernet.blocks import CODES, FORMATS, ORDERED_SETS, Block, Decoder, Encoder
from sim.bench import baser
from sim.bench.baser import ERRORS, block, header_of, number, word_of
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.bench.xgmii import IDLE, START, TERMINATE, characters, control, ordered_set, words

I, S, T = IDLE, START, TERMINATE
FAULT = ordered_set(1) * 2
QUIET = [I] * 8
DATA = [(k * 37 % 256, False) for k in range(8)]


def some(rng, count):
    return [(rng.randrange(256), False) for _ in range(count)]


def legal(seed=1, count=300):
    """Words as they may follow each other, with all kinds of blocks in all orders."""
    rng, found = random.Random(seed), [QUIET]
    codes = [control(character) for character in CODES if character != 0xFE]
    few = lambda count: [rng.choice(codes) for _ in range(count)]
    ordered = lambda: ordered_set(rng.randrange(1 << 24), kind=rng.choice([0x9C, 0x5C]))
    while len(found) < count:
        for _ in range(rng.randrange(3)):
            found.append(
                rng.choice(
                    [
                        lambda: few(8),
                        lambda: few(4) + ordered(),
                        lambda: ordered() + few(4),
                        lambda: ordered() + ordered(),
                    ]
                )()
            )
        found.append(
            rng.choice(
                [
                    lambda: [S, *some(rng, 7)],
                    lambda: few(4) + [S, *some(rng, 3)],
                    lambda: ordered() + [S, *some(rng, 3)],
                ]
            )()
        )
        found += [some(rng, 8) for _ in range(rng.randrange(3))]
        at = rng.randrange(8)
        found.append(some(rng, at) + [T] + few(7 - at))
    return [*found, QUIET, QUIET]


def encode(given, *, make=Encoder):
    """Blocks as lists of bits in the order in which they are sent."""
    dut, found = make(), []

    async def feed(ctx):
        for data, bits in [
            *words([one for word in given for one in word]),
            *[(0x0707070707070707, 0xFF)] * make.LATENCY,
        ]:
            ctx.set(dut.xgmii.data, data)
            ctx.set(dut.xgmii.control, bits)
            await ctx.tick()
            sent = ctx.get(dut.block.header), ctx.get(dut.block.payload)
            found.append([sent[0] & 1, sent[0] >> 1, *(sent[1] >> k & 1 for k in range(64))])

    Bench(dut).drive(feed)
    return found[make.LATENCY - 1 :][: len(given)]


def decode(blocks, *, make=Decoder, fault=()):
    """Words; `fault` is set in those cycles."""
    dut, found = make(), []

    async def feed(ctx):
        for cycle, sent in enumerate([*blocks, *[block(QUIET)] * make.LATENCY]):
            ctx.set(dut.block.header, header_of(sent))
            ctx.set(dut.block.payload, number(sent[2:]))
            ctx.set(dut.fault, cycle in fault)
            await ctx.tick()
            found.append((ctx.get(dut.xgmii.data), ctx.get(dut.xgmii.control)))

    Bench(dut).drive(feed)
    line = characters(found[make.LATENCY - 1 :][: len(blocks)])
    return [line[at : at + 8] for at in range(0, len(line), 8)]


def test_tables_are_those_of_others():
    assert (
        {int(key): int(value) for key, value in constants.xgmii_ctrl_to_baser_mapping.items()} == CODES == baser.CODES
    )
    assert set(FORMATS.values()) == {int(value) for value in constants.BaseRBlockType} == set(baser.BLOCK_TYPES)
    assert {
        value: constants.block_type_term_lane_mapping[value] for value in constants.block_type_term_lane_mapping
    } == {value: lanes.index("T") for lanes, value in FORMATS.items() if "T" in lanes}
    assert ORDERED_SETS == {0x9C: constants.BaseRO.SEQ_OS, 0x5C: constants.BaseRO.SIG_OS}
    assert (
        hw.ethernet.blocks.DATA_HEADER == constants.BaseRSync.DATA
        and hw.ethernet.blocks.CONTROL_HEADER == constants.BaseRSync.CTRL
    )


def test_the_traffic_has_all_blocks_there_are():
    found = {number(sent[2:10]) if sent[:2] == [1, 0] else None for sent in map(block, legal())}
    assert found == {None, *baser.BLOCK_TYPES}


def test_words_become_the_blocks_that_fields_in_order_make():
    assert encode(legal()) == [block(word) for word in legal()]


def test_blocks_become_the_words_they_were_made_of():
    assert decode([block(word) for word in legal()]) == legal()
    assert [word_of(block(word)) for word in legal()] == legal()


BEGIN, END = [S, *DATA[1:]], [T] + [I] * 7
ORDER = {
    "data outside a frame": ([QUIET, DATA, QUIET], [QUIET, ERRORS, QUIET]),
    "the end of a frame that did not begin": ([QUIET, END, QUIET], [QUIET, ERRORS, QUIET]),
    "idle inside a frame": ([BEGIN, QUIET, QUIET], [BEGIN, ERRORS, QUIET]),
    "a start inside a frame": ([BEGIN, BEGIN, DATA, END, QUIET], [BEGIN, ERRORS, DATA, END, QUIET]),
    "data behind the end": ([BEGIN, END, QUIET, DATA, DATA, QUIET], [BEGIN, END, QUIET, ERRORS, DATA, ERRORS]),
    "errors inside a frame": ([BEGIN, ERRORS, DATA, END, QUIET], [BEGIN, ERRORS, DATA, END, QUIET]),
    "errors outside a frame": ([QUIET, ERRORS, BEGIN, END, QUIET], [QUIET, ERRORS, ERRORS, END, QUIET]),
}
"""Words, and what becomes of them, on both sides. Behind an error data and terminates are taken: the frame is lost
already."""


@pytest.mark.parametrize("given, expected", ORDER.values(), ids=ORDER.keys())
def test_what_may_not_come_there_becomes_errors(given, expected):
    assert encode(given) == [block(word) for word in expected]
    assert decode([block(word) for word in given]) == expected


@pytest.mark.parametrize(
    "behind, expected",
    [
        (QUIET, [END, QUIET]),
        (BEGIN, [END, BEGIN]),
        (DATA, [ERRORS, DATA]),
        (END, [ERRORS, END]),
        (ERRORS, [ERRORS, ERRORS]),
    ],
)
def test_an_end_is_one_only_if_what_follows_can_follow_a_frame(behind, expected):
    assert decode([block(word) for word in (BEGIN, DATA, END, behind, QUIET)])[:4] == [BEGIN, DATA, *expected]


@pytest.mark.parametrize(
    "word",
    [
        [T] * 8,
        [S] * 8,
        [I] * 7 + [S],
        [S, I, *DATA[2:]],
        [*DATA[:4], S, *DATA[5:]],
        [control(0x9C), I, *DATA[2:]],
        [control(0)] * 8,
        [I] * 5 + [(0xFE, True)] * 3,
        DATA[:2] + [I] * 6,
        [I] * 4 + DATA[4:],
    ],
)
def test_words_that_no_block_has_become_errors(word):
    assert encode([QUIET, word, QUIET])[:2] == [block(QUIET), block(ERRORS)]


def test_blocks_that_there_are_not_become_errors():
    whole = block(QUIET)
    wrong = [[0, 0, *whole[2:]], [1, 1, *whole[2:]], [*whole[:10], 1, *whole[11:]], [*whole[:2], *block(DATA)[2:]]]
    kinds = {number(sent[2:10]) for sent in map(block, legal()) if sent[0]}
    wrong += [[1, 0, *(value >> k & 1 for k in range(8)), *whole[10:]] for value in range(256) if value not in kinds]
    for given in wrong:
        assert word_of(given) is None
    found = decode([one for given in wrong for one in (whole, given)])
    assert found == [QUIET, ERRORS] * len(wrong)


def test_without_lock_there_are_local_faults_and_frames_begin_anew():
    given = [BEGIN, DATA, DATA, DATA, DATA, QUIET, QUIET, BEGIN, END, QUIET]
    assert decode([block(word) for word in given], fault=range(4, 6)) == [
        BEGIN,
        FAULT,
        FAULT,
        ERRORS,
        DATA,
        ERRORS,
        QUIET,
        BEGIN,
        END,
        QUIET,
    ]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("side", "sound", "wrong"),
    [
        ("encode", "(8 + 7 * lane, 7)", "(7 + 7 * lane, 7)"),
        ("encode", "(32 + lane, 4)", "(36 - lane, 4)"),
        ("encode", '8 * ("T" in lanes)', "0"),
        ("encode", '"ODDDSDDD": 0x66', '"ODDDSDDD": 0x65'),
        ("encode", "Mux(state == State.INSIDE, State.ERROR, State.OUTSIDE)", "State.OUTSIDE"),
        ("decode", "8 + 7 * lane:15 + 7 * lane", "7 + 7 * lane:14 + 7 * lane"),
        ("decode", "(read.kind != Kind.START) & ", ""),
        ("decode", "0x7C: 0x4B", "0x7C: 0x4C"),
        ("decode", "with m.If(taken.sound)", "with m.If(1)"),
    ],
)
def test_mutants_are_noticed(side, sound, wrong):
    broken = mutant(hw.ethernet.blocks, sound, wrong)
    if side == "encode":
        given = legal() + ORDER["idle inside a frame"][0]
        right = [block(word) for word in legal() + ORDER["idle inside a frame"][1]]
        assert encode(given, make=broken.Encoder) != right and encode(given) == right
    else:
        given = [block(word) for word in (*legal(), BEGIN)] + [[1, 1, *([0] * 64)], block(END), block(DATA)]
        right = [*legal(), BEGIN, ERRORS, ERRORS, DATA]
        assert decode(given, make=broken.Decoder) != right and decode(given) == right


def test_a_block_is_66_bits():
    assert Block.as_shape().size == 66
