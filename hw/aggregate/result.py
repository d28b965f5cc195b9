"""Puts a result's header before its numbers and a tail behind them that makes the whole sum to zero."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.aggregate.accumulator import Emitted
from hw.aggregate.ring import popcount
from hw.control.tables import ResultHeader
from hw.frame import Word
from hw.layout import layout
from hw.queue import sum_halves
from iswitch.config import Config
from iswitch.wire import ADDRESSES, HEADER, NO_MEMBER, TAIL_BYTES, UPLINK_TAIL, VERSION, Format, Type

__all__ = ["ResultComposer", "ResultWord", "body_bytes"]


def body_bytes(config: Config, header):
    """Bytes of the payload and of the tail behind our header."""
    if not config.uplinks:
        return header.length, Const(TAIL_BYTES)
    return header.length << (header.up & (header.numeric == Format.FIXED64)), Mux(header.up, UPLINK_TAIL.itemsize, TAIL_BYTES)


class ResultWord(data.StructLayout):
    """A word of a result. `header` is constant for the frame, `words` the frame's length in words."""

    def __init__(self, config: Config):
        super().__init__({"word": Word(config.bus_bits), "first": 1, "header": ResultHeader(config),
                          "words": range(config.header_words + config.segment_words + 2)})


def folded_twice(total):
    """A sum of 16-bit words as one of them, with the carries added in (RFC 1071)."""
    once = total[:16] + total[16:]
    return (once[:16] + once[16:])[:16]


class ResultComposer(wiring.Component):
    """Header words, payload words, tail; one word per cycle, 4 cycles behind `emitted`; nothing behind it may stall. Of a GRANT, whose
    length is 0, the header words alone, 6 cycles behind `headers`.

    A frame is a result, an uplink or a GRANT. The complement (RFC 7820) that ends its tail makes the UDP payload sum to zero, so that every
    port knows the checksum before the first word. A frame starts when its first number is there, so it leaves without gaps. A GRANT has its
    complement in the header, which is added up before.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "headers": In(stream.Signature(ResultHeader(config))), "emitted": In(stream.Signature(Emitted(config))),
            "results": Out(stream.Signature(ResultWord(config), always_ready=True)), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        bus_bits, bus_bytes, header_words = config.bus_bits, config.bus_bytes, config.header_words
        shift = exact_log2(bus_bytes)
        header = self.headers.payload
        image = Signal(layout(HEADER))
        grants = header.length == 0
        m.d.comb += [
            image.version_type.eq(VERSION << 4 | Mux(grants, Type.GRANT, Type.RESULT)), image.job.eq(header.job), image.epoch.eq(header.epoch),
            image.seq.eq(header.seq), image.member.eq(NO_MEMBER), image.format_flags.eq(Cat(header.numeric, header.flags)),
            image.count.eq(popcount(header.members)), image.members.eq(header.members), image.token.eq(header.tainted),
        ]
        if config.uplinks:
            with m.If(header.up):
                m.d.comb += [image.version_type.eq(VERSION << 4 | Type.UPLINK), image.member.eq(header.member), image.token.eq(header.token),
                             image.behind.eq(header.behind)]
        head = Cat(Const(0, 8 * ADDRESSES.itemsize), image)

        # The header alone is added up while it waits, without the place of the complement.
        known, sum_of_header, head_complement = Signal(2), Signal(20), Signal(16)
        behind_at = HEADER.fields["behind"][1]
        with m.If(grants):
            m.d.comb += image.behind.eq(head_complement)
        m.d.sync += [
            sum_of_header.eq(sum_halves(image.as_value(), 0, behind_at) + sum_halves(image.as_value(), behind_at + 2, HEADER.itemsize)),
            head_complement.eq(~folded_twice(sum_of_header)),
            known.eq(Mux(self.headers.valid & ~self.headers.ready, Cat(1, known[0]), 0)),
        ]

        # Generate: the words without the complement. `rest` marks where the tail begins.
        payload_bytes, tail_bytes = body_bytes(config, header)
        rest, ending, parted = Signal(range(bus_bytes)), Signal(range(bus_bytes + UPLINK_TAIL.itemsize)), Signal()
        m.d.comb += [rest.eq(payload_bytes), ending.eq(rest + tail_bytes), parted.eq((rest == 0) | (ending > bus_bytes))]
        index, tailing = Signal(range(header_words + 1)), Signal()
        made, made_valid = Signal(data.StructLayout({
            "word": Word(bus_bits), "first": 1, "header": ResultHeader(config), "words": 16})), Signal()
        kept = Signal(bus_bits)
        for k in range(config.lanes):
            valid = ~self.emitted.payload.last | (rest == 0) | (rest > 4 * k)
            m.d.comb += kept[32 * k:32 * k + 32].eq(Mux(valid, self.emitted.payload.data[32 * k:32 * k + 32], 0))
        m.d.comb += [
            made.first.eq(index == 0), made.header.eq(header), made.word.count.eq(bus_bytes),
            made.words.eq(header_words + Mux(grants, 0, (payload_bytes + tail_bytes + bus_bytes - 1) >> shift)),
        ]
        with m.If(tailing):
            m.d.comb += [made_valid.eq(1), made.word.count.eq(Mux(rest == 0, tail_bytes, ending - bus_bytes)), made.word.last.eq(1)]
        with m.Elif(index != header_words):
            m.d.comb += [made_valid.eq(self.headers.valid & Mux(grants, known[1], self.emitted.valid)),
                         made.word.data.eq(head.word_select(index, bus_bits)), made.word.last.eq(grants & (index == header_words - 1))]
            with m.If(made_valid):
                m.d.sync += index.eq(index + 1)
        with m.Else():
            m.d.comb += [made_valid.eq(self.emitted.valid), self.emitted.ready.eq(1), made.word.data.eq(kept)]
            with m.If(self.emitted.payload.last & ~parted):
                m.d.comb += [made.word.last.eq(1), made.word.count.eq(ending)]
            with m.If(self.emitted.valid & self.emitted.payload.last & parted):
                m.d.sync += tailing.eq(1)
        if config.uplinks:
            # An uplink's tail is tainted ranks, then flags.
            for k in range(config.lanes):
                ranks_here = Mux(tailing, (rest == 0) & (k == 0), (index == header_words) & self.emitted.payload.last & (rest != 0) & (rest == 4 * k))
                with m.If(header.up & ranks_here):
                    m.d.comb += made.word.data[32 * k:32 * k + 32].eq(header.tainted)
                with m.If(header.up & made.word.last & (made.word.count == 4 * k + 4)):
                    m.d.comb += made.word.data[32 * k:32 * k + 32].eq(header.partial)
        with m.If(made_valid & made.word.last):
            m.d.comb += self.headers.ready.eq(1)
            m.d.sync += [index.eq(0), tailing.eq(0)]

        # Sum, add up, fold, insert.
        summed, added, folded, out = (Signal(made.shape(), name=name, reset_less=True) for name in ("summed", "added", "folded", "out"))
        valid = Signal(3)
        part, total, complement = (Signal(bits, name=name, reset_less=True)
                                   for name, bits in (("part", 21), ("total", 32), ("complement", 16)))
        m.d.sync += [valid.eq(Cat(made_valid, valid)), self.results.valid.eq(valid[2])]
        with m.If(made_valid):
            m.d.sync += [summed.eq(made), part.eq(sum_halves(made.word.data, 0, bus_bytes))]
        with m.If(valid[0]):
            m.d.sync += [added.eq(summed), total.eq(Mux(summed.first, 0, total) + part)]
        with m.If(valid[1]):
            m.d.sync += [folded.eq(added), complement.eq(~folded_twice(total))]
        with m.If(valid[2]):
            m.d.sync += out.eq(folded)
            for k in range(config.lanes):
                with m.If(folded.word.last & (folded.header.length != 0) & (folded.word.count == 4 * k + 4)):
                    m.d.sync += out.word.data[32 * k + 16:32 * k + 32].eq(complement)
        m.d.comb += [getattr(self.results.payload, name).eq(getattr(out, name)) for name in ("word", "first", "header", "words")]
        m.d.comb += self.busy.eq(self.headers.valid | valid.any() | self.results.valid)
        return m
