"""Turns operations into beats: one slot word each, held back while the same word is in flight."""

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.control.tables import ResultHeader, Work
from hw.frame import Word
from iswitch.config import Config
from iswitch.wire import Operation

__all__ = ["Beat", "Sequencer"]


class Beat(data.StructLayout):
    """One word of one operation, on its way through the lanes."""

    def __init__(self, config: Config):
        depth = config.jobs * config.slots * config.segment_words
        super().__init__({
            "data": config.bus_bits, "valid": 1, "address": range(depth), "numeric": 4, "fraction": signed(9), "limit": 8,
            "include": 1, "first": 1, "write": 1, "emit": 1, "last": 1})


class Sequencer(wiring.Component):
    """One beat per word of an operation; a contribution's payload comes from `contributions`.

    A beat leaves 1 cycle after its word came, one beat per cycle, and operations follow each other without a gap. A beat waits while
    one that writes the same word left less than `loop` cycles before (payloads shorter than the loop, twice to one slot).
    An operation that emits waits until `results` takes its header and `room` words are free for it; nothing behind can stall. One without
    length has no beats.
    """

    def __init__(self, config: Config, *, loop: int):
        if loop < 1:
            raise ValueError(f"Sequencer loop must be at least 1 cycle, not {loop!r}")
        self.config, self.loop = config, loop
        super().__init__({
            "works": In(stream.Signature(Work(config))), "contributions": In(stream.Signature(Word(config.bus_bits))),
            "room": In(range(4 * config.segment_words + 1)), "beat": Out(Beat(config)),
            "results": Out(stream.Signature(ResultHeader(config))), "claimed": Out(range(config.segment_words + 1)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        work, running = Signal(Work(config), reset_less=True), Signal()
        address = Signal(range(config.jobs * config.slots * config.segment_words))
        left = Signal(range(config.segment_words + 1))
        coming = self.works.payload
        shift = exact_log2(config.bus_bytes)
        words = Signal(range(config.segment_words + 1))
        m.d.comb += words.eq((coming.result.length + (config.bus_bytes - 1)) >> shift)

        hazard = Const(0)
        flights = []
        for age in range(self.loop - 1):
            flight = Signal(data.StructLayout({"writes": 1, "address": len(address)}), name=f"flight_{age}")
            flights.append(flight)
            hazard = hazard | (flight.writes & (flight.address == address))

        takes = work.operation == Operation.CONTRIBUTE
        go, last = Signal(), left == 1
        m.d.comb += [
            go.eq(running & ~hazard & (~takes | self.contributions.valid)),
            self.contributions.ready.eq(running & ~hazard & takes),
        ]
        spare = ~running | (go & last)
        granted = ~coming.emit | ((self.room >= words) & self.results.ready)
        m.d.comb += [
            self.works.ready.eq(spare & granted),
            self.results.valid.eq(self.works.valid & spare & coming.emit & (self.room >= words)),
            self.results.payload.eq(coming.result),
            self.claimed.eq(Mux(self.results.valid & self.results.ready, words, 0)),
            self.busy.eq(running | self.beat.valid),
        ]
        with m.If(go):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1)]
            with m.If(last):
                m.d.sync += running.eq(0)
        with m.If(self.works.valid & self.works.ready):
            m.d.sync += [work.eq(coming), running.eq(words != 0), left.eq(words), address.eq(coming.slot * config.segment_words)]

        for flight, writes, at in zip(flights, [go & work.write] + [f.writes for f in flights],
                                      [address] + [f.address for f in flights], strict=False):
            m.d.sync += [flight.writes.eq(writes), flight.address.eq(at)]
        beat, valid, word = Signal(Beat(config), reset_less=True), Signal(), self.contributions.payload
        m.d.sync += valid.eq(go)
        m.d.comb += [self.beat.eq(beat), self.beat.valid.eq(valid)]
        for k in range(config.lanes):
            # Behind the end of a frame the bus carries anything; it must not be counted.
            lane = slice(32 * k, 32 * k + 32)
            m.d.sync += beat.data[lane].eq(Mux(word.count > 4 * k, word.data[lane], 0))
        m.d.sync += [
            beat.address.eq(address),
            beat.numeric.eq(work.result.numeric), beat.fraction.eq(work.fraction), beat.limit.eq(work.limit),
            beat.include.eq(work.include), beat.first.eq(work.first),
            beat.write.eq(work.write), beat.emit.eq(work.emit), beat.last.eq(last),
        ]
        return m
