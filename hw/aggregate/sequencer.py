"""Turns operations into beats: one slot word each, held back while the same word is in flight."""

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.control.tables import ResultHeader, Work
from hw.frame import Word
from iswitch.config import Config
from iswitch.wire import Format, Operation

__all__ = ["Beat", "Sequencer"]


class Beat(data.StructLayout):
    """One word of one operation, on its way through the lanes. `spared`: the half of the sums that it is not about, if it is about one.
    `wide`: `data` are elements of 8 bytes, to be added to a half; `raw`: a half is sent as it is."""

    def __init__(self, config: Config):
        depth = config.jobs * config.slots * config.segment_words
        super().__init__({
            "data": config.bus_bits, "valid": 1, "address": range(depth), "numeric": 4, "fraction": signed(9), "limit": 8,
            "include": 1, "first": 1, "write": 1, "emit": 1, "last": 1,
            **({"spared": 2, "wide": 1, "raw": 1} if config.uplinks else {})})


class Sequencer(wiring.Component):
    """One beat per word of an operation; a payload comes from `contributions`.

    A beat leaves 1 cycle after its word came, one beat per cycle, and operations follow each other without a gap. A beat waits while
    one that writes the same word left less than `loop` cycles before (payloads shorter than the loop, twice to one slot).
    An operation that emits waits until `results` takes its header and `room` words are free for it; nothing behind can stall. One without
    length has no beats.

    In trees elements of 8 bytes take a beat for each half of a word. So where either the payload or what leaves has such, the sums are sent
    in a pass of their own, behind the one that closes the slot. The rest of a tail that ends a payload is taken and dropped.
    """

    def __init__(self, config: Config, *, loop: int):
        if loop < 1:
            raise ValueError(f"Sequencer loop must be at least 1 cycle, not {loop!r}")
        self.config, self.loop = config, loop
        super().__init__({
            "works": In(stream.Signature(Work(config))), "contributions": In(stream.Signature(Word(config.bus_bits))),
            "room": In(range(4 * config.segment_words + 1)), "beat": Out(Beat(config)),
            "results": Out(stream.Signature(ResultHeader(config))), "claimed": Out(range((1 + config.uplinks) * config.segment_words + 1)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        work, running = Signal(Work(config), reset_less=True), Signal()
        address = Signal(range(config.jobs * config.slots * config.segment_words))
        left = Signal.like(self.claimed)
        coming = self.works.payload
        shift = exact_log2(config.bus_bytes)

        def words(of, doubled):
            return ((of.result.length << doubled) + (config.bus_bytes - 1)) >> shift

        def apart(of):
            """What leaves does so in its own pass."""
            return of.emit & (of.result.up | of.wide) if config.uplinks else Const(0)

        def emitted(of):
            """Words that leave."""
            return words(of, of.result.up & (of.result.numeric == Format.FIXED64) if config.uplinks else 0)

        # `sends`: the pass under way is such. `upper`: the half that is next, where words are done by halves.
        sends, upper, drains = Signal(), Signal(), Signal()
        by_half = Mux(sends, work.result.numeric == Format.FIXED64, work.wide) if config.uplinks else Const(0)
        halves = Signal(1 + config.uplinks)
        m.d.comb += halves.eq(Mux(by_half, Mux(upper, 2, 1), ~0))

        hazard = Const(0)
        flights = []
        for age in range(self.loop - 1):
            flight = Signal(data.StructLayout({"writes": len(halves), "address": len(address)}), name=f"flight_{age}")
            flights.append(flight)
            hazard = hazard | ((flight.writes & halves).any() & (flight.address == address))

        takes = ((work.operation == Operation.CONTRIBUTE) | (work.operation == Operation.INSTALL_DOWN)) & ~sends
        go, last, ends = Signal(), left == 1, Signal()
        m.d.comb += [
            go.eq(running & ~hazard & (~takes | (self.contributions.valid & ~drains))),
            self.contributions.ready.eq(drains | (running & ~hazard & takes)),
            ends.eq(go & last & (sends | ~apart(work))),
        ]
        spare = ~running | ends
        claims = Signal.like(self.claimed)
        m.d.comb += claims.eq(emitted(coming))
        granted = ~coming.emit | ((self.room >= claims) & self.results.ready)
        m.d.comb += [
            self.works.ready.eq(spare & granted),
            self.results.valid.eq(self.works.valid & spare & coming.emit & (self.room >= claims)),
            self.results.payload.eq(coming.result),
            self.claimed.eq(Mux(self.results.valid & self.results.ready, claims, 0)),
            self.busy.eq(running | drains | self.beat.valid),
        ]
        with m.If(go):
            m.d.sync += [address.eq(address + (~by_half | upper)), left.eq(left - 1), upper.eq(by_half & ~upper)]
            with m.If(ends):
                m.d.sync += running.eq(0)
            with m.Elif(last):
                m.d.sync += [sends.eq(1), left.eq(emitted(work)), upper.eq(0), address.eq(work.slot * config.segment_words)]
        with m.If(self.works.valid & self.works.ready):
            m.d.sync += [work.eq(coming), running.eq(coming.result.length != 0), left.eq(words(coming, coming.wide if config.uplinks else 0)),
                         upper.eq(0), sends.eq(0), address.eq(coming.slot * config.segment_words)]
            with m.If(coming.operation == Operation.SEND_UP):
                m.d.sync += [sends.eq(1), left.eq(claims)]

        for flight, writes, at in zip(flights, [Mux(go & work.write & ~sends, halves, 0)] + [f.writes for f in flights],
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
        if config.uplinks:
            with m.If(go & takes & last):
                m.d.sync += drains.eq(work.tailed & ~word.last)
            with m.Elif(self.contributions.valid & word.last):
                m.d.sync += drains.eq(0)
            m.d.sync += [beat.spared.eq(~halves), beat.wide.eq(work.wide & ~sends), beat.raw.eq(sends & by_half),
                         beat.emit.eq(work.emit & (sends | ~apart(work)))]
            with m.If(sends):
                m.d.sync += [beat.include.eq(0), beat.first.eq(0), beat.write.eq(0)]
            with m.Elif(work.wide):
                m.d.sync += beat.include.eq(0)
            # What came down is integers to the lanes.
            with m.If(work.as_is):
                m.d.sync += beat.numeric.eq(Format.INT32)
            with m.Elif(work.result.numeric == Format.FIXED64):
                m.d.sync += beat.numeric.eq(Format.WINDOW64)
        return m
