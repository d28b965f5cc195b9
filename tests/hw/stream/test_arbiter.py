# amaranth: UnusedElaboratable=no
"""Packet streams into one: whole packets, in the order of the chosen policy, and no cycle lost."""

import itertools

import pytest

import hw.stream.arbiter
from hw.stream.arbiter import PacketArbiter
from hw.stream.packet import Packet
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words


def items(frames):
    return [word for frame in frames for word in to_words(frame, 64)]


def frames_of(inputs):
    """Frames of several lengths for each input; the first byte is the input."""
    return [[bytes([k, number]) + bytes(size) for number, size in enumerate((5, 6, 7, 20, 60))] for k in range(inputs)]


def run(frames, *, round_robin=True, stalls=0.0, sink_stalls=0.0, turn_words=1, arbiter=PacketArbiter):
    """Return the arbiter's sink, in which `besides` has the grants."""
    dut = arbiter(Packet(64), inputs=len(frames), round_robin=round_robin, turn_words=turn_words)
    bench = Bench(dut, stalls=stalls)
    for i, own in zip(dut.i, frames, strict=True):
        bench.source(i, items(own))
    sink = bench.sink(dut.o, beside=[dut.grant], stalls=max(stalls, sink_stalls))
    bench.run()
    return sink


THREE_OF_EACH = [[bytes([k]) * size for size in (9, 17, 3)] for k in range(3)]


def order(frames, **options):
    """Return the inputs in the order in which their packets leave."""
    return [frame[0] for frame in from_words(run(frames, **options).items, 64)]


def check(frames, sink):
    """Each packet is whole, the packets of each input are in order, and `grant` names the input."""
    out = from_words(sink.items, 64)
    assert [[frame for frame in out if frame[0] == k] for k in range(len(frames))] == frames
    assert [grant for (grant,) in sink.besides] == [frame[0] for frame in out for _ in to_words(frame, 64)]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("inputs", [1, 2, 3, 5])
@pytest.mark.parametrize("round_robin", [False, True])
def test_packets_stay_whole_and_in_order(round_robin, inputs, stalls):
    frames = frames_of(inputs)
    check(frames, run(frames, round_robin=round_robin, stalls=stalls))


def test_round_robin_serves_each_input_after_the_others():
    assert order(THREE_OF_EACH) == [0, 1, 2] * 3


TURN_WORDS = 7


def turns_of_frames(frames):
    """Return the inputs in the order of turns, each of frames until they have `TURN_WORDS` words."""
    left, served = [[-(-len(frame) // 8) for frame in own] for own in frames], []
    while any(left):
        for k, words in enumerate(left):
            had = 0
            while words and had < TURN_WORDS:
                had += words.pop(0)
                served.append(k)
    return served


SHORT_AND_LONG = [
    [bytes([k]) * 8 * words for words in own]
    for k, own in enumerate([(1,) * 15, (3,) * 6, (2, 12, 6, 1, 9), (7, 7, 8), (20, 6, 6, 5)])
]


@pytest.mark.parametrize("stalls", STALLS)
def test_turn_ends_with_the_packet_with_which_it_has_its_words(stalls):
    assert order(SHORT_AND_LONG, sink_stalls=stalls, turn_words=TURN_WORDS) == turns_of_frames(SHORT_AND_LONG)


RUNS_DRY = [[bytes([k]) * 8 * words] * count for k, (words, count) in enumerate([(2, 2), (3, 7), (3, 7)])]


def test_an_input_without_a_packet_loses_the_rest_of_its_turn():
    assert turns_of_frames(RUNS_DRY) == [0] * 2 + [1, 1, 1, 2, 2, 2] * 2 + [1, 2]
    for stalls in STALLS:
        assert order(RUNS_DRY, sink_stalls=stalls, turn_words=TURN_WORDS) == turns_of_frames(RUNS_DRY)


def test_lowest_input_goes_first_but_never_interrupts():
    dut = PacketArbiter(Packet(64), inputs=2, round_robin=False)
    bench = Bench(dut)
    bench.source(dut.i[1], items([b"\1" * 30, b"\1" * 31]))
    bench.source(dut.i[0], items([b"\0" * 32, b"\0" * 33]), start=2)
    sink = bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, 64) == [b"\1" * 30, b"\0" * 32, b"\0" * 33, b"\1" * 31]
    assert sink.times == list(range(1, 1 + len(sink.times)))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("i.valid & (~within | (served == number))", "i.valid"),
        ("~goes_before[number, other]", "goes_before[number, other]"),
        ("self.o.ready & self.o.payload.last", "self.o.ready"),
        ("self.o.ready & chosen[number]", "self.o.ready"),
        ("self.o.ready & chosen[number]", "chosen[number]"),
        ("Mux(self.grant == self.inputs - 1, 0, self.grant + 1)", "self.grant"),
        ("Mux(self.grant == self.inputs - 1, 0, self.grant + 1)", "0"),
        ("else Const(1)\n            taken", "else Const(0)\n            taken"),
    ],
)
def test_a_mutant_of_the_arbiter_is_noticed(sound, wrong):
    arbiter = mutant(hw.stream.arbiter, sound, wrong).PacketArbiter
    with pytest.raises((AssertionError, TimeoutError)):
        check(THREE_OF_EACH, run(THREE_OF_EACH, stalls=0.5, arbiter=arbiter))
        assert order(THREE_OF_EACH, arbiter=arbiter) == [0, 1, 2] * 3


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.grant == served", "1"),
        ("had == self.turn_words - 1", "had == self.turn_words - 2"),
        ("had == self.turn_words - 1", "0"),
        ("Mux(full, had, had + 1)", "had + 1"),
        ("Mux(full, had, had + 1)", "Mux(full, 0, had + 1)"),
        ("int(self.turn_words > 1)", "0"),
        ("Mux(self.o.ready, taken, Mux(goes_on, had, 0))", "taken"),
        ("Mux(goes_on, had, 0)", "had"),
        ("Mux(ends, next_input, self.grant)", "next_input"),
    ],
)
def test_a_mutant_of_the_turns_is_noticed(sound, wrong):
    arbiter = mutant(hw.stream.arbiter, sound, wrong).PacketArbiter
    with pytest.raises((AssertionError, TimeoutError)):
        for frames, stalls in itertools.product((RUNS_DRY, SHORT_AND_LONG), STALLS):
            found = order(frames, sink_stalls=stalls, turn_words=TURN_WORDS, arbiter=arbiter)
            assert found == turns_of_frames(frames)


def test_inputs_wrong():
    with pytest.raises(ValueError, match="PacketArbiter inputs must be at least 1, not 0"):
        PacketArbiter(Packet(64), inputs=0)


def test_turn_words_wrong():
    with pytest.raises(ValueError, match="PacketArbiter turn_words must be at least 1, not 0"):
        PacketArbiter(Packet(64), inputs=2, turn_words=0)
