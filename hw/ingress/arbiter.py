"""Merges the ports' frames into the switch's shared pipeline."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.ingress.time_shares import TimeShares
from hw.interface.expense import Expense
from hw.interface.headers import Arrival, Scan
from hw.stream.arbiter import PacketArbiter
from hw.stream.packet import Packet, word_of

__all__ = ["Arbiter"]


class Arbiter(wiring.Component):
    """Takes complete frames from the ports in turns, and shows each with its scan and its port.

    A turn is a frame, or so many short ones that they have `turn_words` words. A member sends contributions to one slot
    after another, and others send theirs to the same slots. So if ports have several short frames, those to one slot
    are at least `turn_words` cycles apart, and none of them waits for the sum of the one before.

    A port whose frames have cost more than its share of the pipeline's time, as `expense` says, waits until the others
    have had theirs (`TimeShares`). It never waits while no other port has a frame.

    Latency and throughput are those of `PacketArbiter`: combinational, one word every cycle. A port has a frame when it
    offers both a word in `frames` and the frame's scan in `scans`; the scan is taken with the last word. `o` stalls the
    port that is served.
    """

    def __init__(self, *, ports: int, bus_bits: int, cycles_max: int, turn_words: int = 1):
        if not 1 <= ports <= 16:
            raise ValueError(f"Arbiter ports must be 1 to 16, not {ports!r}")
        self.ports, self.bus_bits, self.cycles_max, self.turn_words = ports, bus_bits, cycles_max, turn_words
        super().__init__(
            {
                "frames": In(stream.Signature(Packet(bus_bits, parity=True))).array(ports),
                "scans": In(stream.Signature(Scan)).array(ports),
                "expense": In(Expense),
                "o": Out(stream.Signature(Packet(bus_bits, meta=Arrival, parity=True))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = PacketArbiter(
            Packet(self.bus_bits, meta=Scan, parity=True), inputs=self.ports, turn_words=self.turn_words
        )
        m.submodules.shares = shares = TimeShares(ports=self.ports, cycles_max=self.cycles_max)
        m.d.comb += [
            shares.expense.eq(self.expense),
            shares.waiting.eq(Cat(i.valid for i in arbiter.i)),
            arbiter.deferred.eq(shares.deferred),
        ]
        for frames, scans, i in zip(self.frames, self.scans, arbiter.i, strict=True):
            m.d.comb += [
                i.valid.eq(frames.valid & scans.valid),
                word_of(i.payload).eq(frames.payload),
                i.payload.parity.eq(frames.payload.parity),
                i.payload.meta.eq(scans.payload),
                frames.ready.eq(i.ready),
                scans.ready.eq(i.ready & i.payload.last),
            ]
        shown = arbiter.o.payload
        m.d.comb += [
            self.o.valid.eq(arbiter.o.valid),
            word_of(self.o.payload).eq(word_of(shown)),
            self.o.payload.parity.eq(shown.parity),
            self.o.payload.meta.scan.eq(shown.meta),
            self.o.payload.meta.port.eq(arbiter.grant),
            arbiter.o.ready.eq(self.o.ready),
        ]
        return m
