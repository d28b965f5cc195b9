"""The registers between the core and the gate."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.verdict import Verdict, Work
from hw.stream.skid_buffer import SkidBuffer
from iswitch.config import Config

__all__ = ["VerdictBuffer"]


class VerdictBuffer(wiring.Component):
    """Registers both directions of the stream of verdicts, as a `SkidBuffer` does, but has one register for works.

    A work is wide, and the aggregator takes it before most words of its frame pass. From then on (`handed`) the
    register has room for the work of the next verdict. So the output is not a stream: it does not hold all of its
    payload.

    Latency 1 cycle; one verdict without a work per cycle. Holds up to two verdicts while the gate stalls. No verdict
    enters while a work waits, but one may in the cycle after `handed`. If `i` is ready, it stays ready until it accepts
    a verdict.

    Members
    -------
    i : stream of Verdict, in
        Verdicts of the core.
    verdict, valid : out
        The oldest verdict, and whether it is there. Its `work` is valid until `handed`, and `include` of it to the end.
    handed : 1, in
        The aggregator takes the work of `verdict`.
    ready : 1, in
        The verdict is carried out. In the next cycle the next one may stand there.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(Verdict(config))),
                "verdict": Out(Verdict(config)),
                "valid": Out(1),
                "handed": In(1),
                "ready": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        given, shown = self.i.payload, self.verdict
        beside = {name: field.shape for name, field in Verdict(self.config) if name != "work"}
        m.submodules.beside = buffer = SkidBuffer(data.StructLayout({**beside, "include": 1}))
        work, waits, enters = Signal(Work(self.config), reset_less=True), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(buffer.i.ready & ~waits),
            enters.eq(self.i.valid & self.i.ready),
            buffer.i.valid.eq(enters),
            *(buffer.i.payload[name].eq(given[name]) for name in beside),
            buffer.i.payload.include.eq(given.work.include),
            self.valid.eq(buffer.o.valid),
            buffer.o.ready.eq(self.ready),
            *(shown[name].eq(buffer.o.payload[name]) for name in beside),
            shown.work.eq(work),
            shown.work.include.eq(buffer.o.payload.include),
        ]
        with m.If(enters):
            m.d.sync += [work.eq(given.work), waits.eq(given.works)]
        with m.Elif(self.handed):
            m.d.sync += waits.eq(0)
        return m
