"""The slots' numbers against the golden model, whole payloads at a time, formats mixed."""

import random

import numpy as np
import pytest
from amaranth.hdl import Value

from hw.aggregate.accumulator import LOOP, Accumulator, SumWord
from hw.aggregate.sequencer import Beat
from hw.numeric.lane import Lane
from iswitch.config import Config
from iswitch.golden.numeric import lane as model
from iswitch.wire import Format
from sim.bench.stream import Bench, pack
from sim.bench.traffic import adverse_numbers


def config(bus_bits):
    return Config(ports=2, bus_bits=bus_bits, members=4, jobs=2, window=2, elements=32, queue_bytes=4096)


class Slots:
    """The model's slots, and the beats that do the same in the gateware."""

    def __init__(self, config):
        self.config, self.stored, self.meaning = config, {}, {}
        self.beats, self.results, self.flushed = [], [], 0

    def wait(self):
        self.beats += [{}] * LOOP

    def operate(
        self, slot, numbers, *, format=Format.WINDOW64, fraction=44, include=True, first=False, write=True, emit=True
    ):
        lanes, limit = self.config.lanes, model.exponent_limit(fraction)
        if write:
            self.stored[slot], flushed = model.accumulate(
                format, self.stored.get(slot), numbers, fraction=fraction, limit=limit, include=include, first=first
            )
            self.flushed += flushed
        words = numbers.reshape(-1, lanes)
        for k, word in enumerate(words):
            self.beats.append(
                {
                    "valid": 1,
                    "address": slot * self.config.segment_words + k,
                    "data": int.from_bytes(word.tobytes(), "little"),
                    "numeric": format,
                    "fraction": fraction,
                    "limit": limit,
                    "include": include,
                    "first": first,
                    "write": write,
                    "emit": emit,
                    "last": k == len(words) - 1,
                }
            )
            if emit:
                result = model.result(format, self.stored[slot], fraction)[k * lanes : (k + 1) * lanes].astype("<u4")
                self.results.append((len(self.beats) - 1, result.tobytes(), k == len(words) - 1))


def run(slots):
    """Compares everything that comes out, cycle by cycle, with what the slots' model expects."""
    dut = Accumulator(slots.config)
    bench, sums, flushed, busy = Bench(dut), [], 0, []
    beats = [pack(Beat(slots.config), beat) for beat in slots.beats] + [0] * (Lane.RESULT_AT + 2)
    layout = SumWord(slots.config)

    async def drive(ctx):
        nonlocal flushed
        for cycle, beat in enumerate(beats):
            ctx.set(Value.cast(dut.beat), beat)
            if ctx.get(dut.o.valid):
                item = layout.from_bits(ctx.get(Value.cast(dut.o.payload)))
                sums.append(
                    (cycle - Lane.RESULT_AT, int(item.data).to_bytes(slots.config.bus_bytes, "little"), bool(item.last))
                )
            flushed += ctx.get(dut.flushed)
            busy.append(ctx.get(dut.busy))
            await ctx.tick()

    bench.drive(drive)
    assert sums == slots.results
    assert flushed == slots.flushed
    assert busy[0] == 1
    assert busy[-1] == 0


@pytest.mark.parametrize(("bus_bits", "format"), [(64, Format.FP32), (64, Format.INT32), (256, Format.WINDOW64)])
def test_sums_of_whole_payloads_are_the_models(bus_bits, format):
    rng, slots = np.random.default_rng(bus_bits), Slots(config(bus_bits))
    for step in range(4):
        for slot in (0, 5, 15):
            slots.operate(
                slot,
                adverse_numbers(rng, slots.config.elements, 0.1),
                format=format,
                first=step == 0,
                include=(step, slot) != (2, 5),
            )
    run(slots)
    assert (slots.flushed > 0) == (format == Format.WINDOW64)


def test_words_may_come_again_after_loop_cycles_and_not_before():
    rng, sound, hasty = np.random.default_rng(1), Slots(config(64)), Slots(config(64))
    for slots, gap in ((sound, LOOP - 1), (hasty, LOOP - 2)):
        for k in range(5):
            slots.operate(3, adverse_numbers(rng, 2, 0), first=k == 0)
            slots.beats += [{}] * gap
    run(sound)
    with pytest.raises(AssertionError):
        run(hasty)


def test_operations_of_every_kind_in_any_order():
    """Random operations on a few slots: contribute, read again, force to zeros, force as it is."""
    rng, choose, slots = np.random.default_rng(2), random.Random(2), Slots(config(64))
    lengths, formats = {}, {}
    for _ in range(40):
        slot, kind = choose.randrange(4), choose.choice(("open", "add", "add", "add", "resend", "zeros"))
        if kind in ("open", "zeros") or slot not in lengths:
            lengths[slot], formats[slot] = (
                2 * choose.randrange(1, 5),
                (choose.choice((Format.WINDOW64, Format.FP32, Format.INT32)), choose.choice((44, 0, -70, 126))),
            )
            options = {"first": True, "include": kind != "zeros"}
        else:
            options = {"include": False, "write": False} if kind == "resend" else {"emit": choose.random() < 0.7}
        slots.operate(
            slot,
            adverse_numbers(rng, lengths[slot], 0.1),
            format=formats[slot][0],
            fraction=formats[slot][1],
            **options,
        )
        slots.wait()
    run(slots)


def test_idle_cycles_write_and_emit_nothing():
    rng, slots = np.random.default_rng(3), Slots(config(64))
    slots.operate(0, adverse_numbers(rng, 2, 0), first=True)
    slots.wait()
    slots.beats += [{"valid": 0, "write": 1, "emit": 1, "first": 1, "include": 1, "numeric": 1, "data": 12345}] * 3
    slots.wait()
    slots.operate(0, adverse_numbers(rng, 2, 0), include=False, write=False)
    run(slots)
