"""The sums of all slots: one memory, and one arithmetic lane for each element of a bus word."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.aggregate.sequencer import Beat
from hw.interface.elements import ElementForm
from hw.interface.result import HEADER_LEAD
from hw.numeric.lane import POISON, STORED_BITS, Lane
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from hw.stream.reduction import popcount
from hw.stream.stored_word import triple
from iswitch.config import Config

__all__ = ["LOOP", "Accumulator", "SumWord"]

LOOP = Lane.WRITE_AT - Lane.READ_AT + 3
"""Cycles from the beat that adds to a word of a slot to the first beat that may read the sum."""


SUM_BITS = STORED_BITS + 1
"""Bits of a stored sum with its parity."""


class SumWord(data.StructLayout):
    """One bus word of a result's sums, as the FIFO of sums holds it.

    Elements behind the result's last one have any value. `last`: three copies, so that no bit error gives the next
    result's sums to this one (`StoredWord`). `corrupt`: a bit error was found in a stored sum or in a payload of this
    word. `parity`: even parity of `data` and `corrupt`.
    """

    def __init__(self, config: Config):
        super().__init__({"data": config.bus_bits, "last": 3, "corrupt": 1, "parity": 1})


class Accumulator(wiring.Component):
    """Reads, adds, writes and rounds one word per cycle, and never stalls. Every format takes the same cycles.

    The rounded sums of a beat that emits appear at `o` `Lane.RESULT_AT` cycles after the beat. Two beats on the same
    word must be at least `LOOP` cycles apart; the sequencer guarantees that.

    Each stored sum has a parity bit. If a sum that is read has the wrong one, or if the beat is `corrupt`, the lane
    stores its new sum with a wrong parity, too, until another segment's `first` replaces the sum. So a bit error in a
    slot or in a payload is found as long as the slot holds the segment. `corrupted` is 1 in the cycle of the beat's
    result, whether the beat emits or not. `flushed` counts the non-zero terms that were rounded to zero.

    A bus word of 8-byte elements belongs to one half of the lanes. If the beat is `wide`, its elements are added to the
    sums of that half; if it is `raw`, the unrounded sums of that half are emitted.

    `coming`: rounded sums appear within the next `header_words` + `HEADER_LEAD` cycles, so that a result's header can
    leave before its sums.

    `form`: that of the beat whose sums appear. The sums of half-width formats are not narrowed yet (`Lane.result`).
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "beat": In(Beat(config)),
                "o": Out(stream.Signature(SumWord(config), always_ready=True)),
                "flushed": Out(range(config.lanes + 1)),
                "corrupted": Out(1),
                "coming": Out(1),
                "busy": Out(1),
                **({"form": Out(ElementForm)} if config.half_width else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beat
        depth = config.jobs * config.slots * config.segment_words

        def delayed(signal, cycles):
            """Return the signal as it was some cycles before."""
            for _ in range(cycles):
                registered = Signal.like(signal, reset_less=True)
                m.d.sync += registered.eq(signal)
                signal = registered
            return signal

        def strobes(bit, name):
            """Return a vector of which bit k is what `bit` was k cycles before."""
            past = Signal(max(Lane.RESULT_AT, Lane.WRITE_AT), name=name)
            m.d.sync += past.eq(Cat(bit, past))
            return Cat(bit, past)

        # The output of a block RAM is late in its cycle. Only the selection among blocks stands before the next
        # register.
        read_address = delayed(beat.address, Lane.READ_AT - 2)
        write_address = delayed(read_address, Lane.WRITE_AT - Lane.READ_AT + 2)
        emits, lasts, alive = (
            strobes(bit, name)
            for bit, name in ((beat.valid & beat.emit, "emits"), (beat.last, "lasts"), (beat.valid, "alive"))
        )
        halves = list(~beat.spared) if config.uplinks else [Const(1)]
        writes = [strobes(beat.valid & beat.write & half, f"writes_{k}") for k, half in enumerate(halves)]
        per_half = config.lanes // len(halves)
        # One memory holds the sums of all lanes, with their poison and parity bits. The parity is even: a word that was
        # never written, half of which may be read beside a written half, is no error.
        m.submodules.sums = sums = Memory(
            shape=unsigned(SUM_BITS * config.lanes), depth=depth, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        writer, reader = sums.write_port(granularity=SUM_BITS * per_half), sums.read_port()
        stored = delayed(reader.data, 1)
        m.d.comb += [reader.addr.eq(read_address), writer.addr.eq(write_address)]
        for half, strobe in enumerate(writes):
            m.d.comb += writer.en[half].eq(strobe[Lane.WRITE_AT])
        if config.uplinks:
            wide_data = delayed(Mux(beat.wide, beat.data, 0), Lane.READ_AT)
            spared = delayed(beat.spared, Lane.READ_AT)
        added = delayed(beat.valid & ~beat.first, Lane.READ_AT)
        damaged = delayed(beat.valid & beat.corrupt, Lane.READ_AT)
        flushed, raw, corrupt = [], [], []
        for k in range(config.lanes):
            m.submodules[f"lane_{k}"] = lane = Lane(half_width=config.half_width)
            sum_read, wrong = stored.word_select(k, SUM_BITS), Signal(name=f"wrong_{k}", reset_less=True)
            m.d.sync += wrong.eq(sum_read.xor() & added | damaged)
            corrupt.append(delayed(wrong, Lane.WRITE_AT - Lane.READ_AT - 1))
            m.d.comb += [
                lane.format.eq(beat.numeric),
                lane.fraction.eq(beat.fraction),
                lane.limit.eq(beat.limit),
                lane.operand.eq(beat.data[32 * k : 32 * k + 32]),
                lane.include.eq(beat.include),
                lane.first.eq(beat.first),
                lane.valid.eq(beat.valid),
                lane.stored.eq(sum_read[:STORED_BITS]),
                writer.data.word_select(k, SUM_BITS).eq(Cat(lane.sum, lane.sum.xor() ^ corrupt[k])),
                self.o.payload.data[32 * k : 32 * k + 32].eq(lane.result),
            ]
            flushed.append(lane.flushed)
            if config.uplinks:
                half, element = divmod(k, per_half)
                m.d.comb += lane.wide.eq(Mux(spared[half], 0, wide_data.word_select(element, 64)))
                raw.append(Mux(lane.sum[64], POISON, lane.sum[:64]))
        if config.uplinks:
            raws, uppers = strobes(beat.raw, "raws"), strobes(beat.spared[0], "uppers")
            with m.If(raws[Lane.RESULT_AT]):
                m.d.comb += self.o.payload.data.eq(
                    Mux(uppers[Lane.RESULT_AT], Cat(*raw[per_half:]), Cat(*raw[:per_half]))
                )
        if config.half_width:
            m.d.comb += self.form.eq(delayed(beat.form, Lane.RESULT_AT))
        m.d.comb += [
            self.o.valid.eq(emits[Lane.RESULT_AT]),
            self.o.payload.last.eq(triple(lasts[Lane.RESULT_AT])),
            self.o.payload.corrupt.eq(self.corrupted),
            self.o.payload.parity.eq(Cat(self.o.payload.data, self.corrupted).xor()),
            self.corrupted.eq(Cat(*corrupt).any()),
            self.flushed.eq(popcount(Cat(*flushed))),
            self.coming.eq(emits[max(1, Lane.RESULT_AT - config.header_words - HEADER_LEAD) : Lane.RESULT_AT].any()),
            self.busy.eq(alive.any()),
        ]
        return m
