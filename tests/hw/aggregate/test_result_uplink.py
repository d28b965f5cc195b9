"""Sums on their way up and down a tree, through the whole aggregator, against the golden model; every plausible mutant
in it is noticed."""

import random

import numpy as np
import pytest

import hw.aggregate.accumulator
import hw.aggregate.aggregator
import hw.aggregate.result
import hw.aggregate.sequencer
from hw.aggregate.aggregator import Aggregator
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.golden.numeric import lane as model
from iswitch.wire import UPLINK_TAIL, Format, Operation, ones_complement_sum
from sim.bench.mutant import mutant
from sim.bench.result_headers import with_parity
from sim.bench.stream import STALLS, Bench, from_words, to_words
from sim.bench.traffic import adverse_numbers

ADDRESS_BYTES = 42
FRACTION, LIMIT = 44, model.exponent_limit(44)
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32)


def config(bus_bits):
    return Config(ports=2, bus_bits=bus_bits, members=4, jobs=2, window=2, elements=32, queue_bytes=4096)


def uplink_numbers(rng, format, elements):
    """What a leaf might send: anything of 63 bits, now and then poison; small numbers, too, and either sign."""
    if format != Format.WINDOW64:
        return adverse_numbers(rng, elements, 0.1).astype("<u4")
    numbers = rng.integers(-1 << 58, 1 << 58, elements) >> rng.integers(0, 59, elements)
    return np.where(rng.random(elements) < 0.1, model.POISON, numbers)


RESULT_FIELDS = ("job", "epoch", "seq", "members", "tainted", "token", "identity")
"""Fields of a result that the composer of frames takes as they are."""


class Tree:
    """Operations of a leaf and of a root, their payloads, and what the model makes of them."""

    def __init__(self, seed):
        self.rng, self.choose = np.random.default_rng(seed), random.Random(seed)
        self.stored, self.form = {}, {}
        self.works, self.payloads, self.frames = [], [], []

    def header(self, slot, **fields):
        format, elements = self.form[slot]
        return {
            "job": 1,
            "epoch": 9,
            "seq": 100 + len(self.works),
            "numeric": format,
            "members": 0b1011,
            "tainted": 0b0110,
            "token": 0xFEEDBEEF,
            "length": 4 * elements,
            "recipients": 5,
            "identity": 0x5A17,
        } | fields

    def work(self, operation, slot, payload=b"", *, up=False, emit=True, first=False, **fields):
        format, _ = self.form[slot]
        adds = operation in (Operation.CONTRIBUTE, Operation.INSTALL_DOWN)
        result = self.header(slot)
        if up:
            wide = format == Format.WINDOW64
            result |= {
                "up": 1,
                "member": 3,
                "token": 0xCAFEBABE,
                "behind": 5,
                "partial": self.choose.randrange(2),
                "collective": 0x310004D2,
                "flags": 1,
                "numeric": Format.FIXED64 if wide else format,
            }
            self.frames.append(
                compose.uplink(
                    **{
                        name: result[name]
                        for name in (
                            "job",
                            "epoch",
                            "seq",
                            "member",
                            "token",
                            "behind",
                            "tainted",
                            "flags",
                            "collective",
                        )
                    },
                    format=result["numeric"],
                    ranks=result["members"],
                    digest=result["identity"],
                    partial=bool(result["partial"]),
                    elements=model.uplink(format, self.stored[slot]),
                )
            )
        elif emit:
            stored = Format.INT32 if fields.get("as_is") else format
            self.frames.append(
                compose.result(
                    **{
                        name: result[name]
                        for name in ("job", "epoch", "seq", "members", "tainted", "token", "identity")
                    },
                    flags=0,
                    format=format,
                    elements=model.result(stored, self.stored[slot], FRACTION),
                )
            )
        self.works.append(
            {
                "operation": operation,
                "slot": slot,
                "include": adds,
                "first": first,
                "emit": emit or up,
                "write": adds or operation == Operation.FORCE and first,
                "fraction": FRACTION,
                "limit": LIMIT,
                "result": result,
            }
            | fields
        )
        if adds:
            self.payloads.append(payload)

    def open(self, slot, elements, format):
        self.form[slot] = format, elements
        self.stored[slot] = None

    def contribute(self, slot, **ends):
        """A worker's numbers."""
        format, elements = self.form[slot]
        first = self.stored[slot] is None
        numbers = adverse_numbers(self.rng, elements, 0.05)
        self.stored[slot], _ = model.accumulate(
            format, self.stored[slot], numbers, fraction=FRACTION, limit=LIMIT, include=True, first=first
        )
        self.work(Operation.CONTRIBUTE, slot, numbers.astype("<u4").tobytes(), first=first, **ends)

    def uplink(self, slot, **ends):
        """Those of a switch, with its tail."""
        format, elements = self.form[slot]
        first = self.stored[slot] is None
        numbers = uplink_numbers(self.rng, format, elements)
        self.stored[slot] = model.accumulate_uplink(format, self.stored[slot], numbers, first=first)
        self.work(
            Operation.CONTRIBUTE,
            slot,
            numbers.tobytes() + self.rng.bytes(UPLINK_TAIL.itemsize),
            first=first,
            wide=format == Format.WINDOW64,
            tailed=1,
            **ends,
        )

    def force(self, slot, **ends):
        first = self.stored[slot] is None
        format, elements = self.form[slot]
        self.stored[slot], _ = model.accumulate(
            format,
            self.stored[slot],
            np.zeros(elements, "<u4"),
            fraction=FRACTION,
            limit=LIMIT,
            include=False,
            first=first,
        )
        self.work(Operation.FORCE, slot, first=first, **ends)

    def install(self, slot):
        numbers = adverse_numbers(self.rng, self.form[slot][1], 0.5).astype("<u4")
        self.stored[slot] = model.install(numbers)
        self.work(Operation.INSTALL_DOWN, slot, numbers.tobytes() + self.rng.bytes(4), first=True, as_is=1, tailed=1)

    def segment(self, slot, elements, format):
        """The life of a slot, in a leaf or in the root."""
        leaf = self.choose.random() < 0.6
        self.open(slot, elements, format)
        for _ in range(self.choose.randrange(3)):
            self.choose.choice((self.contribute, self.uplink))(slot, emit=False)
        self.choose.choice((self.contribute, self.uplink, self.force))(slot, up=leaf)
        if leaf:
            for _ in range(self.choose.randrange(2)):
                self.work(Operation.SEND_UP, slot, up=True)
            self.install(slot)
        for _ in range(self.choose.randrange(2)):
            self.work(Operation.RESEND, slot, as_is=leaf)


def run(tree, bus_bits, *, aggregator=Aggregator, stalls=0):
    dut = aggregator(config(bus_bits))
    bench = Bench(dut, stalls=stalls)
    works = bench.source(
        dut.works, [one | {"result": with_parity(config(bus_bits), one["result"])} for one in tree.works]
    )
    contributions = bench.source(dut.contributions, [word for one in tree.payloads for word in to_words(one, bus_bits)])
    sink = bench.sink(dut.results)
    assert bench.run(read=[dut.busy], limit=20000) == [0]
    frames = from_words(sink.items, bus_bits)
    assert [frame[ADDRESS_BYTES:] for frame in frames] == tree.frames
    assert {ones_complement_sum(frame) for frame in frames} <= {0xFFFF}
    for item in sink.items:
        assert item.data >> 8 * item.count == 0
    return works, contributions, sink


def segments(seed=1, lengths=LENGTHS):
    tree = Tree(seed)
    for k, elements in enumerate(lengths):
        for format in (Format.WINDOW64, Format.FP32, Format.INT32):
            tree.segment((k + format) % 4, elements, format)
    return tree


def closed_by(last, up, lengths=LENGTHS):
    tree = Tree(4)
    for k, elements in enumerate(lengths):
        for format in (Format.WINDOW64, Format.FP32, Format.INT32):
            tree.open((k + format) % 4, elements, format)
            if elements % 3:
                tree.uplink((k + format) % 4, emit=False)
            last(tree, (k + format) % 4, up=up)
    return tree


@pytest.mark.parametrize("bus_bits", [64, 256])
@pytest.mark.parametrize("last", [Tree.contribute, Tree.uplink, Tree.force])
@pytest.mark.parametrize("up", [False, True], ids=["at the root", "at a leaf"])
def test_whatever_closes_a_slot_sends_what_is_in_it(up, last, bus_bits):
    run(closed_by(last, up), bus_bits)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_what_goes_up_and_comes_down_is_the_models(bus_bits, stalls):
    run(segments(), bus_bits, stalls=stalls)


def test_sums_of_every_size_are_exact_and_poison_stays():
    """Against exact arithmetic: 31 partial sums of the largest size, one of them poisoned."""
    tree = Tree(2)
    tree.open(0, 4, Format.WINDOW64)
    numbers = [np.array([(1 << 58) - 1, -(1 << 58) + 1, k, model.POISON if k == 7 else -k]) for k in range(31)]
    for k, one in enumerate(numbers):
        tree.stored[0] = model.accumulate_uplink(Format.WINDOW64, tree.stored[0], one, first=k == 0)
        tree.work(Operation.CONTRIBUTE, 0, one.tobytes() + bytes(8), first=k == 0, emit=False, wide=1, tailed=1)
    tree.work(Operation.SEND_UP, 0, up=True)
    *_, sink = run(tree, 64)
    (frame,) = from_words(sink.items, 64)
    assert np.frombuffer(frame, "<i8", 4, 64).tolist() == [
        31 * ((1 << 58) - 1),
        -31 * ((1 << 58) - 1),
        sum(range(31)),
        model.POISON,
    ]


def test_uplinks_of_long_segments_come_at_one_word_a_cycle():
    tree = Tree(3)
    for k in range(4):
        tree.open(k, 32, Format.WINDOW64)
        tree.uplink(k, emit=False)
    _, contributions, _ = run(tree, 64)
    times = contributions.times[1:]  # the first waits with its operation
    assert times == list(range(times[0], times[0] + 4 * 34 - 1))


MUTANTS = {
    "a half is added to the other": (
        "sequencer",
        "Cat(by_half & upper, by_half & ~upper)",
        "Cat(by_half & ~upper, by_half & upper)",
    ),
    "both halves are written": ("accumulator", "halves = list(~beat.spared)", "halves = [Const(1)] * 2"),
    "the tail's rest is not dropped": ("sequencer", "drains.eq(work.tailed & ~word.last)", "drains.eq(0)"),
    "what goes up is rounded": ("sequencer", "beat.raw.eq(work.raw)", "beat.raw.eq(0)"),
    "halves go up in the wrong order": (
        "accumulator",
        "Mux(uppers[Lane.RESULT_AT], Cat(*raw[per_half:]), Cat(*raw[:per_half]))",
        "Mux(uppers[Lane.RESULT_AT], Cat(*raw[:per_half]), Cat(*raw[per_half:]))",
    ),
    "poison is sent as a number": ("accumulator", "Mux(lane.sum[64], POISON, lane.sum[:64])", "lane.sum[:64]"),
    "an installed fp32 result is rounded again": ("sequencer", "Mux(offered.as_is, ", "Mux(Const(0), "),
    "what goes up starts from nothing": (
        "sequencer",
        "ahead.include.eq(0), ahead.first.eq(0), ahead.write.eq(0)]",
        "ahead.include.eq(0), ahead.write.eq(0)]",
    ),
    "the way up starts before the sum is there": ("sequencer", " | (loads & (ahead.again if trees else 0))", ""),
    "a sum of halves is sent while it is made": (
        "sequencer",
        "offered.emit & (offered.result.up | offered.wide) & ~sends",
        "offered.emit & offered.result.up & ~sends",
    ),
    "the tail has no ranks": ("result", "32].eq(ranks)", "32].eq(0)"),
    "the tail has no tainted ranks": ("result", "(known.tainted, header.tainted)", "(known.tainted, 0)"),
    "the tail has no flags": ("result", "Mux(header.up, header.partial, header.identity)", "header.identity"),
    "a result has the flags of an uplink": (
        "result",
        "Mux(header.up, header.partial, header.identity)",
        "header.partial",
    ),
    "ranks stand in the word before": ("result", "(place.word == tail_word) & ", ""),
    "an uplink has no collective": ("result", "image.members.eq(header.collective)", "image.members.eq(0)"),
    "no word more for a tail that does not fit": (
        "result",
        "known.extra.eq(last >> exact_log2(lanes))",
        "known.extra.eq(first >> exact_log2(lanes))",
    ),
    "an uplink's header is a result's": ("result", "with m.If(header.up):", "with m.If(0):"),
    "one beat where a word takes two": (
        "sequencer",
        "Mux(ahead.half, ahead.halves, ahead.halves[1:])",
        "ahead.halves[1:]",
    ),
    "a slot is read before it is written": ("sequencer", "f.valid & (f.slot == candidate)", "Const(0)"),
    "upper halves are overtaken": ("sequencer", "~work.half | (left == work.words)", "1"),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_noticed(name, monkeypatch):
    part, before, after = MUTANTS[name]
    module = {
        "sequencer": hw.aggregate.sequencer,
        "accumulator": hw.aggregate.accumulator,
        "result": hw.aggregate.result,
    }[part]
    made = mutant(module, before, after)
    for other in (hw.aggregate.aggregator, hw.aggregate.accumulator):
        for symbol in ("Sequencer", "Accumulator", "ResultComposer"):
            if hasattr(other, symbol) and part in symbol.lower():
                monkeypatch.setattr(other, symbol, getattr(made, symbol))
    scenarios = [
        (segment_list(), bus_bits)
        for bus_bits in (64, 256)
        for segment_list in (
            lambda: segments(lengths=(3, 9, 16, 31, 32)),
            lambda: closed_by(Tree.uplink, False, (1, 32)),
        )
    ]
    with pytest.raises((AssertionError, TimeoutError, ValueError, IndexError)):
        for scenario, bus_bits in scenarios:
            run(scenario, bus_bits)
