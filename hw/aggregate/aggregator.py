"""The aggregator: operations and payloads in, results out."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.aggregate.accumulator import LOOP, Accumulator, SumWord
from hw.aggregate.narrower import Narrower
from hw.aggregate.result import ResultComposer
from hw.aggregate.sequencer import Sequencer, sums_depth
from hw.aggregate.widener import Widener
from hw.interface.elements import ElementForm
from hw.interface.result import ResultHeader, ResultMeta
from hw.interface.verdict import Work
from hw.stream.bypass_fifo import BypassFifo
from hw.stream.fifo import Fifo
from hw.stream.packet import Packet
from hw.stream.stored_word import majority
from iswitch.config import Config

__all__ = ["Aggregator"]


class Aggregator(wiring.Component):
    r"""One pipeline for every operation (`iswitch.wire.Operation`) on every format. Sums leave while they are added.

        works, contributions -> Sequencer -> Accumulator -> FIFO of sums -> ResultComposer -> results
                             \- Widener                \- Narrower

    In a switch with half-width formats, payloads pass the Widener and sums the Narrower. Elements of two bytes are
    added as fast as those of four: one word of the slot per cycle, so they enter and leave at half a bus word per
    cycle. A result of such elements waits until it can leave without a gap.

    One word per cycle. The first sums of a result leave `Lane.RESULT_AT` + `ResultComposer.LATENCY` + 2 cycles after
    the operation that completes it, and its header at most `HEADER_LEAD` cycles before it would leave without a gap.
    `results` must never stall. `works` and `contributions` stall while the FIFO has no room for the sums of another
    result; it holds `sums_depth` words. `flushed`: see `Accumulator`. `corrupted`: a word of a sum, a word of a payload
    or a result's header was read with a bit error. `operates`: an operation or a payload waits or is carried out, so
    the next operation would not start at once.

    The idea of summing packets while they pass is from Li et al., iSwitch, ISCA 2019.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "works": In(stream.Signature(Work(config))),
                "contributions": In(
                    stream.Signature(Packet(config.bus_bits, meta=ElementForm if config.half_width else None))
                ),
                "results": Out(
                    stream.Signature(Packet(config.bus_bits, meta=ResultMeta(config), first=True), always_ready=True)
                ),
                "flushed": Out(range(config.lanes + 1)),
                "corrupted": Out(1),
                "operates": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        depth = sums_depth(config)
        m.submodules.sequencer = sequencer = Sequencer(config, loop=LOOP)
        m.submodules.accumulator = accumulator = Accumulator(config)
        m.submodules.composer = composer = ResultComposer(config)
        m.submodules.headers = headers = Fifo(ResultHeader(config), depth=8)
        m.submodules.sums = sums = BypassFifo(SumWord(config), depth=depth)
        connect(m, wiring.flipped(self.works), sequencer.works)
        if config.half_width:
            m.submodules.widener = widener = Widener(bus_bits=config.bus_bits)
            m.submodules.narrower = narrower = Narrower(config)
            connect(m, wiring.flipped(self.contributions), widener.i)
            connect(m, widener.o, sequencer.contributions)
            rounded = narrower.i
            m.d.comb += [sums.i.valid.eq(narrower.o.valid), sums.i.payload.eq(narrower.o.payload)]
        else:
            connect(m, wiring.flipped(self.contributions), sequencer.contributions)
            rounded = sums.i
        connect(m, sequencer.results, headers.i)
        connect(m, headers.o, composer.headers)
        connect(m, sums.o, composer.sums)
        connect(m, composer.results, wiring.flipped(self.results))

        # An operation claims words of the FIFO when it starts. They are free again when the composer takes them.
        room = Signal(range(depth + 1), init=depth)
        popped = Signal()
        m.d.sync += room.eq(room - sequencer.claimed + popped)
        is_busy = sequencer.busy | accumulator.busy | composer.busy | sums.waits
        m.d.comb += [
            accumulator.beat.eq(sequencer.beat),
            sequencer.room.eq(room),
            popped.eq(sums.o.valid & sums.o.ready),
            composer.coming.eq(accumulator.coming | sums.waits),
            rounded.valid.eq(accumulator.o.valid),
            rounded.payload.eq(accumulator.o.payload),
            self.flushed.eq(accumulator.flushed),
            self.corrupted.eq(accumulator.corrupted | composer.corrupted),
            self.operates.eq(sequencer.busy),
            self.busy.eq(is_busy),
        ]
        if config.half_width:
            # How many results have their last word in the FIFO.
            complete = Signal(range(depth + 1))
            enters = sums.i.valid & sums.i.payload.last.any()
            m.d.sync += complete.eq(complete + enters - (popped & majority(sums.o.payload.last)))
            m.d.comb += [
                narrower.form.eq(accumulator.form),
                composer.level.eq(sums.level),
                composer.complete.eq(complete != 0),
                self.operates.eq(sequencer.busy | widener.busy),
                self.busy.eq(is_busy | widener.busy | narrower.busy),
            ]
        return m
