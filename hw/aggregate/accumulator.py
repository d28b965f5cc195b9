"""The slots' numbers: one memory, one arithmetic lane for each element of a bus word."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.aggregate.sequencer import Beat
from hw.numeric.lane import POISON, STORED_BITS, Lane
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from hw.stream.reduction import popcount
from iswitch.config import Config

__all__ = ["LOOP", "Accumulator", "Emitted"]

LOOP = Lane.WRITE_AT - Lane.READ_AT + 3
"""Cycles after which a word that was being added to may be read again."""


class Emitted(data.StructLayout):
    """One word of a result's payload; numbers behind the end are zero only after the composer."""

    def __init__(self, config: Config):
        super().__init__({"data": config.bus_bits, "last": 1})


class Accumulator(wiring.Component):
    """Reads, adds, writes and rounds one word per cycle, never stalling; every format takes the same number of cycles.

    A bus word of 8-byte elements fills half the lanes: `wide` ones are added to the sums of that half, `raw` ones are
    the sums themselves.

    `emitted` is valid `Lane.RESULT_AT` cycles after the beat of an operation that emits. Two beats on the same word
    must be at least `LOOP` cycles apart (the sequencer sees to it). `flushed` counts non-zero terms that rounded to
    zero.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "beat": In(Beat(config)),
                "emitted": Out(Emitted(config)),
                "emits": Out(1),
                "flushed": Out(range(config.lanes + 1)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beat
        depth = config.jobs * config.slots * config.segment_words

        def later(signal, cycles):
            for _ in range(cycles):
                registered = Signal.like(signal, reset_less=True)
                m.d.sync += registered.eq(signal)
                signal = registered
            return signal

        def strobes(bit, name):
            """Bit k is what `bit` was k cycles before."""
            past = Signal(max(Lane.RESULT_AT, Lane.WRITE_AT), name=name)
            m.d.sync += past.eq(Cat(bit, past))
            return Cat(bit, past)

        # A block RAM's output comes late in its cycle: a register stands behind it, and no more than synthesis' choice
        # among blocks between the two.
        read_address = later(beat.address, Lane.READ_AT - 2)
        write_address = later(read_address, Lane.WRITE_AT - Lane.READ_AT + 2)
        emits, lasts, alive = (
            strobes(bit, name)
            for bit, name in ((beat.valid & beat.emit, "emits"), (beat.last, "lasts"), (beat.valid, "alive"))
        )
        halves = list(~beat.spared) if config.uplinks else [Const(1)]
        writes = [strobes(beat.valid & beat.write & half, f"writes_{k}") for k, half in enumerate(halves)]
        per_half = config.lanes // len(halves)
        # One memory for all lanes, their poison bits in it.
        m.submodules.sums = sums = Memory(
            shape=unsigned(STORED_BITS * config.lanes), depth=depth, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        put, get = sums.write_port(granularity=STORED_BITS * per_half), sums.read_port()
        stored = later(get.data, 1)
        m.d.comb += [get.addr.eq(read_address), put.addr.eq(write_address)]
        for half, strobe in enumerate(writes):
            m.d.comb += put.en[half].eq(strobe[Lane.WRITE_AT])
        if config.uplinks:
            wide_data = later(Mux(beat.wide, beat.data, 0), Lane.READ_AT)
            spared = later(beat.spared, Lane.READ_AT)
        flushed, raw = [], []
        for k in range(config.lanes):
            m.submodules[f"lane_{k}"] = lane = Lane()
            m.d.comb += [
                lane.format.eq(beat.numeric),
                lane.fraction.eq(beat.fraction),
                lane.limit.eq(beat.limit),
                lane.operand.eq(beat.data[32 * k : 32 * k + 32]),
                lane.include.eq(beat.include),
                lane.first.eq(beat.first),
                lane.valid.eq(beat.valid),
                lane.stored.eq(stored.word_select(k, STORED_BITS)),
                put.data.word_select(k, STORED_BITS).eq(lane.sum),
                self.emitted.data[32 * k : 32 * k + 32].eq(lane.result),
            ]
            flushed.append(lane.flushed)
            if config.uplinks:
                half, element = divmod(k, per_half)
                m.d.comb += lane.wide.eq(Mux(spared[half], 0, wide_data.word_select(element, 64)))
                raw.append(Mux(lane.sum[64], POISON, lane.sum[:64]))
        if config.uplinks:
            raws, uppers = strobes(beat.raw, "raws"), strobes(beat.spared[0], "uppers")
            with m.If(raws[Lane.RESULT_AT]):
                m.d.comb += self.emitted.data.eq(
                    Mux(uppers[Lane.RESULT_AT], Cat(*raw[per_half:]), Cat(*raw[:per_half]))
                )
        m.d.comb += [
            self.emits.eq(emits[Lane.RESULT_AT]),
            self.emitted.last.eq(lasts[Lane.RESULT_AT]),
            self.flushed.eq(popcount(Cat(*flushed))),
            self.busy.eq(alive.any()),
        ]
        return m
