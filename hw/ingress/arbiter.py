"""Merges the ports' frames into the switch's one lane."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.headers import Arrival, Scan
from hw.stream.packet import Packet, word_of

__all__ = ["Arbiter"]


class Arbiter(wiring.Component):
    """Round robin between ports, whole frames at a time, starting behind the port served last.

    Combinational from `frames` to `o`: latency 0, one word every cycle, no cycle lost between frames; a port waits for
    at most one frame of each other port. `o` stalls the port being served.
    """

    def __init__(self, *, ports: int, bus_bits: int):
        if not 1 <= ports <= 16:
            raise ValueError(f"Arbiter ports must be 1 to 16, not {ports!r}")
        self.ports = ports
        word = stream.Signature(Packet(bus_bits))
        super().__init__(
            {
                "frames": In(word).array(ports),
                "scans": In(stream.Signature(Scan)).array(ports),
                "o": Out(stream.Signature(Packet(bus_bits, meta=Arrival))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        within, current, served = Signal(), Signal(range(self.ports)), Signal(range(self.ports))
        ready = [frames.valid & scans.valid for frames, scans in zip(self.frames, self.scans, strict=True)]

        following = Signal(range(self.ports))
        with m.Switch(served):
            for last in range(self.ports):
                with m.Case(last):
                    for distance in reversed(range(1, self.ports + 1)):
                        port = (last + distance) % self.ports
                        with m.If(ready[port]):
                            m.d.comb += following.eq(port)
        grant = Signal(range(self.ports))
        with m.If(within):
            m.d.comb += grant.eq(current)
        with m.Else():
            m.d.comb += grant.eq(following)

        payloads = Array(frames.payload for frames in self.frames)
        scans = Array(scans.payload for scans in self.scans)
        out = self.o.payload
        m.d.comb += [
            self.o.valid.eq(Cat(*ready).bit_select(grant, 1)),
            word_of(out).eq(payloads[grant]),
            out.meta.scan.eq(scans[grant]),
            out.meta.port.eq(grant),
        ]
        for port in range(self.ports):
            taken = self.o.valid & self.o.ready & (grant == port)
            m.d.comb += [self.frames[port].ready.eq(taken), self.scans[port].ready.eq(taken & out.last)]
        with m.If(self.o.valid):
            # From the first offer on, taken or not: what is offered is held.
            m.d.sync += [within.eq(~(self.o.ready & out.last)), current.eq(grant), served.eq(grant)]
        return m
