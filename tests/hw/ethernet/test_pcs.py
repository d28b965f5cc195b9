"""The PCS between XGMII and a line of single bits: a transceiver that begins its blocks anywhere, and a scrambler
written bit by bit."""

import random

import pytest

import hw.ethernet.pcs
from hw.ethernet.pcs import PcsReceiver, PcsTransmitter
from sim.bench.baser import Shift, block, blocks_of, descrambled, header_of, number, scrambled, word_of
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.bench.xgmii import IDLE, characters, frame_of, ordered_set, whole, words

QUIET, FAULT = [IDLE] * 8, ordered_set(1) * 2


def traffic(frames, seed=1):
    """Words with so many frames, from the first of which on the line carries nothing else."""
    rng, line = random.Random(seed), []
    for _ in range(frames):
        line += frame_of(whole(rng.randbytes(rng.randrange(60, 90)))) + [IDLE] * 5
        line += [IDLE] * (-len(line) % 4)
    line += [IDLE] * (-len(line) % 8)
    return [line[at : at + 8] for at in range(0, len(line), 8)]


def line_of(sent):
    return list(scrambled([block(word) for word in sent], Shift(random.Random(2).getrandbits(58))))


def receive(line, *, offset=0, make=PcsReceiver, cycles=None, **options):
    """Words, whether up, and how often the transceiver was asked to slip: it takes 66 bits at a time, from `offset` on,
    and one fewer when asked."""
    dut = make(**{"slip_cycles": 2, "ber_blocks": 200, "ber_limit": 16} | options)
    seen, ups, slips, at = [], [], 0, offset

    async def feed(ctx):
        nonlocal at, slips
        while at + 66 <= len(line):
            sent = line[at : at + 66]
            ctx.set(dut.block.header, header_of(sent))
            ctx.set(dut.block.payload, number(sent[2:]))
            await ctx.tick()
            at += 66 + ctx.get(dut.slip)
            slips += ctx.get(dut.slip)
            seen.append((ctx.get(dut.xgmii.data), ctx.get(dut.xgmii.control)))
            ups.append(ctx.get(dut.up))

    Bench(dut).drive(feed)
    found = characters(seen)
    return [found[k : k + 8] for k in range(0, len(found), 8)], ups, slips


def test_words_become_a_line_that_single_bits_undo():
    dut, sent, line = PcsTransmitter(), traffic(20), []

    async def feed(ctx):
        for data, control in [
            *words([one for word in sent for one in word]),
            *[(0x0707070707070707, 0xFF)] * PcsTransmitter.LATENCY,
        ]:
            ctx.set(dut.xgmii.data, data)
            ctx.set(dut.xgmii.control, control)
            await ctx.tick()
            header, payload = ctx.get(dut.block.header), ctx.get(dut.block.payload)
            line.extend([header & 1, header >> 1, *(payload >> k & 1 for k in range(64))])

    Bench(dut).drive(feed)
    plain = list(descrambled(blocks_of(line), Shift(0)))
    assert [word_of(one) for one in plain][PcsTransmitter.LATENCY - 1 :][: len(sent)] == sent


@pytest.mark.parametrize("offset", [0, 1, 2, 33, 64, 65])
def test_blocks_are_found_wherever_they_begin(offset):
    """Each of up to 65 slips costs about 4 blocks; then 64 good headers, and the words are those that were sent."""
    sent = [QUIET] * 700 + traffic(20)
    found, ups, slips = receive(line_of(sent), offset=offset)
    assert slips % 66 == -offset % 66
    up = ups.index(1)
    assert 64 <= up < 600 and ups[up:] == [1] * (len(ups) - up)
    assert found[:up] == [FAULT] * up
    tail = traffic(20)[: 1 - PcsReceiver.LATENCY]
    assert found[-len(tail) :] == tail


def test_up_is_lost_with_the_blocks_and_found_again():
    sent = [QUIET] * 150 + traffic(10) + [QUIET] * 900
    line = line_of(sent)
    del line[66 * 200 + 7]
    found, ups, slips = receive(line)
    lost = ups.index(0, ups.index(1))
    assert 200 < lost < 300
    assert slips % 66 == 65 and ups[-1] == 1
    assert FAULT in found[lost:] and found[-50:] == [QUIET] * 50


def test_too_many_wrong_headers_bring_it_down_though_blocks_are_found():
    line = line_of([QUIET] * 900)
    for k in range(100, 500, 10):
        line[66 * k] ^= 1
    found, ups, slips = receive(line, ber_limit=16)
    first = ups.index(1)
    down = ups.index(0, first)
    assert 100 + 16 * 10 - 60 < down < 500 and slips == 0 and ups[-1] == 1


def test_a_wrong_bit_spoils_at_most_the_words_it_meets():
    """Three bits, 39 and 58 behind the first: two blocks at most, or, if one of these ended a frame, a neighbour of
    theirs."""
    sent = [QUIET] * 100 + traffic(12)
    line, rng = line_of(sent), random.Random(3)
    reference, _, _ = receive(line)
    for _ in range(3):
        at = rng.randrange(66 * 110, len(line) - 66 * 12)
        found, _, _ = receive([bit ^ (k == at) for k, bit in enumerate(line)])
        wrong = [k for k, pair in enumerate(zip(found, reference, strict=True)) if pair[0] != pair[1]]
        assert wrong and wrong[-1] - wrong[0] <= 3
        assert {k - at // 66 for k in wrong} <= set(range(PcsReceiver.LATENCY - 2, PcsReceiver.LATENCY + 3))


@pytest.mark.mutant
def test_mutants_are_noticed():
    sent = [QUIET] * 100 + traffic(5)
    reference = receive(line_of(sent))
    for sound, wrong in (
        ("decoder.fault.eq(~self.up)", "decoder.fault.eq(0)"),
        ("decoder.block.header.eq(header)", "decoder.block.header.eq(self.block.header)"),
    ):
        assert receive(line_of(sent), make=mutant(hw.ethernet.pcs, sound, wrong).PcsReceiver) != reference
