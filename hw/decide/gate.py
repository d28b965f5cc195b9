"""Carries out the core's verdicts on the frames that wait behind the parser."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.elements import ElementForm
from hw.interface.forwarded import OWN_ARP_BYTES, Forwarding
from hw.interface.replay_request import RequestOrigin
from hw.interface.verdict import Verdict, Work
from hw.stream.packet import Packet, word_of
from iswitch.config import Config
from iswitch.wire import FRAME_BYTES

__all__ = ["Gate"]


class Gate(wiring.Component):
    """Carries out verdicts, one for each frame, in order.

    A frame's words go to `forwarded` or to `requests`, its payload to `contributions` (with the form of its elements),
    or the frame is dropped. The header words of a frame that is `payload_only` are dropped at once, but for the last
    word of a frame, which waits for the verdict. An operation goes to `works` before its payload. Latency 0
    (combinational), one word per cycle. `forwarded` and `requests`, which comes with `arrived`, cannot stall: a full
    queue behind them drops the frame and counts it. `works` and `contributions` stall the shared pipeline. After an
    operation was handed over, only `include` of its verdict's `work` is read.
    """

    def __init__(self, config: Config):
        self.config = config
        word = Packet(config.bus_bits)
        payload = Packet(config.bus_bits, meta=ElementForm if config.half_width else None)
        super().__init__(
            {
                "verdicts": In(stream.Signature(Verdict(config))),
                "words": In(stream.Signature(word)),
                "payload_only": In(1),
                "works": Out(stream.Signature(Work(config))),
                "contributions": Out(stream.Signature(payload)),
                "forwarded": Out(
                    stream.Signature(Packet(config.bus_bits, meta=Forwarding(config), first=True), always_ready=True)
                ),
                **(
                    {"requests": Out(stream.Signature(word, always_ready=True)), "arrived": Out(RequestOrigin)}
                    if config.replay
                    else {}
                ),
            }
        )

    def elaborate(self, platform):
        m = Module()
        header_words = FRAME_BYTES // self.config.bus_bytes
        verdict = self.verdicts.payload
        index = Signal(range(header_words + 1))
        handed = Signal()
        settled = Signal()
        adds = verdict.works & verdict.work.include
        own_arp = verdict.host_reply.valid & verdict.host_reply.is_arp
        m.d.comb += [
            self.works.payload.eq(verdict.work),
            self.works.valid.eq(self.verdicts.valid & verdict.works & ~handed),
            settled.eq(~verdict.works | handed | self.works.ready),
            word_of(self.contributions.payload).eq(self.words.payload),
            word_of(self.forwarded.payload).eq(self.words.payload),
            self.forwarded.payload.first.eq(index == 0),
            self.forwarded.payload.meta.ports.eq(verdict.ports),
            self.forwarded.payload.meta.room.eq(verdict.length + Mux(own_arp, 0, OWN_ARP_BYTES)),
        ]
        if self.config.half_width:
            m.d.comb += self.contributions.payload.meta.eq(verdict.form)
        if self.config.replay:
            m.d.comb += [
                self.requests.payload.eq(self.words.payload),
                self.arrived.port.eq(verdict.port),
                self.arrived.length.eq(verdict.length),
                self.requests.valid.eq(self.verdicts.valid & verdict.replay & self.words.valid),
            ]
        ends = self.words.payload.last
        with m.If(self.verdicts.valid & ~verdict.frame):
            m.d.comb += self.verdicts.ready.eq(settled)
        with m.Elif(self.verdicts.valid):
            with m.If(adds & (index == header_words)):
                m.d.comb += [
                    self.contributions.valid.eq(self.words.valid & handed),
                    self.words.ready.eq(self.contributions.ready & handed),
                ]
            with m.Else():
                m.d.comb += [
                    self.words.ready.eq(settled | ~ends),
                    self.forwarded.valid.eq(self.words.valid & verdict.ports.any()),
                ]
            m.d.comb += self.verdicts.ready.eq(self.words.valid & self.words.ready & ends)
        # The last word of a frame waits for the verdict.
        with m.If(self.payload_only & (index != header_words) & ~ends):
            m.d.comb += self.words.ready.eq(1)
        with m.If(self.words.valid & self.words.ready):
            with m.If(ends):
                m.d.sync += index.eq(0)
            with m.Elif(index != header_words):
                m.d.sync += index.eq(index + 1)
        with m.If(self.verdicts.valid):
            m.d.sync += handed.eq(~self.verdicts.ready & (handed | (verdict.works & self.works.ready)))
        return m
