"""Puts a result's header before its numbers and a tail behind them that makes the whole sum to zero."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.aggregate.accumulator import Emitted
from hw.interface.layout import layout
from hw.interface.result import ResultHeader, ResultMeta
from hw.numeric.formats import is_wide
from hw.stream.checksum import fold_carries, sum_halves
from hw.stream.packet import Packet
from hw.stream.reduction import popcount, tree_sum
from iswitch.config import Config
from iswitch.wire import ADDRESSES, BROADCAST_MEMBER, HEADER, Type, version_type

__all__ = ["ResultComposer"]


class ResultComposer(wiring.Component):
    """Header words, payload words, tail; one word per cycle, `LATENCY` cycles behind `emitted`; nothing behind it may
    stall. Of a GRANT, whose length is 0, the header words alone, `LATENCY` + 3 cycles behind `headers`; there are none
    if the switch has no asynchronous jobs.

    A frame is a result, an uplink or a GRANT. The complement (RFC 7820) that ends its tail makes the UDP payload sum to
    zero, so that every port knows the checksum before the first word. A frame starts when its header has been there for
    a cycle and its first number is there, so it leaves without gaps. A GRANT has its complement in the header, which is
    added up before.
    """

    LATENCY = 5

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "headers": In(stream.Signature(ResultHeader(config))),
                "emitted": In(stream.Signature(Emitted(config))),
                "results": Out(
                    stream.Signature(Packet(config.bus_bits, meta=ResultMeta(config), first=True), always_ready=True)
                ),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, trees = self.config, self.config.uplinks
        bus_bits, lanes, header_words = config.bus_bits, config.lanes, config.header_words

        # What follows from the header alone is known when the frame begins. Lengths in elements of 4 bytes: `rest` of
        # the last payload word are payload, and the complement is in `final` of the last word of all, which is one of
        # its own if `parted`.
        coming = self.headers.payload
        header = Signal(ResultHeader(config), reset_less=True)
        held = Signal()
        ends = Signal()
        grants = (coming.length == 0) if config.staleness else Const(0)
        long_tail = coming.up if trees else Const(0)
        elements = Signal(len(coming.length) - 1 if trees else len(coming.length) - 2)
        m.d.comb += elements.eq(
            (coming.length << (coming.up & is_wide(coming.numeric)) if trees else coming.length) >> 2
        )
        rest = Signal(range(lanes))
        final = Signal(range(lanes))
        m.d.comb += [rest.eq(elements), final.eq(rest + long_tail)]
        known = Signal(
            data.StructLayout(
                {
                    "count": range(config.members + 1),
                    "words": len(self.results.payload.meta.words),
                    "parted": 1,
                    "keep": lanes,
                    "at": lanes,
                    "bytes": len(self.results.payload.count),
                    "grants": 1,
                    "ranks": lanes,
                }
            ),
            reset_less=True,
        )
        m.d.comb += self.headers.ready.eq(~held | ends)
        with m.If(self.headers.ready):
            m.d.sync += [
                held.eq(self.headers.valid),
                header.eq(coming),
                known.count.eq(popcount(coming.members)),
                known.grants.eq(grants),
                known.words.eq(header_words + Mux(grants, 0, 1 + ((elements + long_tail) >> exact_log2(lanes)))),
                known.parted.eq((rest == 0) | (long_tail & (rest == lanes - 1))),
                known.at.eq(1 << final),
                known.bytes.eq((final + 1) << 2),
                known.keep.eq(Cat((rest == 0) | (rest > k) for k in range(lanes))),
                known.ranks.eq(1 << rest),
            ]
        image = Signal(layout(HEADER))
        m.d.comb += [
            image.version_type.eq(version_type(Mux(known.grants, Type.GRANT, Type.RESULT))),
            image.job.eq(header.job),
            image.epoch.eq(header.epoch),
            image.seq.eq(header.seq),
            image.member.eq(BROADCAST_MEMBER),
            image.format_flags.eq(Cat(header.numeric, header.flags)),
            image.count.eq(known.count),
            image.members.eq(header.members),
            image.token.eq(header.tainted),
        ]
        if trees:
            with m.If(header.up):
                m.d.comb += [
                    image.version_type.eq(version_type(Type.UPLINK)),
                    image.member.eq(header.member),
                    image.token.eq(header.token),
                    image.behind.eq(header.behind),
                ]
        head = Cat(Const(0, 8 * ADDRESSES.itemsize), image)

        # The header alone is added up while it waits, without the place of the complement.
        summed_up = Const(1)
        if config.staleness:
            steps = Signal(2)
            sum_of_header = Signal(20, reset_less=True)
            head_complement = Signal(16, reset_less=True)
            behind_at = HEADER.fields["behind"][1]
            with m.If(known.grants):
                m.d.comb += image.behind.eq(head_complement)
            m.d.sync += [
                sum_of_header.eq(
                    sum_halves(image.as_value(), 0, behind_at)
                    + sum_halves(image.as_value(), behind_at + 2, HEADER.itemsize)
                ),
                head_complement.eq(~fold_carries(m, sum_of_header)),
                steps.eq(Mux(held & ~ends, Cat(1, steps[0]), 0)),
            ]
            summed_up = steps[1]

        # Generate: the words without the complement.
        index = Signal(range(header_words + 1))
        tailing = Signal()
        made = Signal(data.StructLayout({"packet": self.results.payload.shape(), "at": lanes}))
        packet = made.packet
        made_valid, in_payload, closes = (Signal(name=name) for name in ("made_valid", "in_payload", "closes"))
        numbers = self.emitted.payload
        kept = Cat(Mux(~numbers.last | known.keep[k], numbers.data[32 * k : 32 * k + 32], 0) for k in range(lanes))
        m.d.comb += [
            in_payload.eq((index == header_words) & ~tailing),
            packet.first.eq(index == 0),
            packet.meta.header.eq(header),
            packet.meta.words.eq(known.words),
            packet.last.eq(closes),
            packet.count.eq(config.bus_bytes),
            ends.eq(made_valid & closes),
            self.emitted.ready.eq(in_payload),
        ]
        with m.If(tailing):
            m.d.comb += [made_valid.eq(1), closes.eq(1)]
        with m.Elif(in_payload):
            m.d.comb += [
                made_valid.eq(self.emitted.valid),
                closes.eq(numbers.last & ~known.parted),
                packet.data.eq(kept),
            ]
            with m.If(self.emitted.valid & numbers.last & known.parted):
                m.d.sync += tailing.eq(1)
        with m.Else():
            m.d.comb += [
                made_valid.eq(held & Mux(known.grants, summed_up, self.emitted.valid)),
                packet.data.eq(head.word_select(index, bus_bits)),
                closes.eq(known.grants & (index == header_words - 1)),
            ]
            with m.If(made_valid):
                m.d.sync += index.eq(index + 1)
        with m.If(closes & ~known.grants):
            m.d.comb += [packet.count.eq(known.bytes), made.at.eq(known.at)]
        if trees:
            # An uplink's tail is tainted ranks, then flags.
            for k in range(lanes):
                ranks_here = Mux(
                    tailing, known.keep[-1] & (k == 0), in_payload & numbers.last & ~known.keep[k] & known.ranks[k]
                )
                with m.If(header.up & ranks_here):
                    m.d.comb += packet.data[32 * k : 32 * k + 32].eq(header.tainted)
                with m.If(header.up & made.at[k]):
                    m.d.comb += packet.data[32 * k : 32 * k + 32].eq(header.partial)
        with m.If(ends):
            m.d.sync += [index.eq(0), tailing.eq(0)]

        # Register, sum, add up, fold, insert.
        stages = [
            Signal(made.shape(), name=name, reset_less=True) for name in ("written", "summed", "added", "folded", "out")
        ]
        written, summed, added, folded, out = stages
        valid = Signal(self.LATENCY - 1)
        quarters = [range(at, min(at + 16, bus_bits // 8)) for at in range(0, bus_bits // 8, 16)]
        parts = [Signal(20, name=f"part_{k}", reset_less=True) for k in range(len(quarters))]
        total = Signal(32, reset_less=True)
        complement = Signal(16, reset_less=True)
        m.d.sync += [valid.eq(Cat(made_valid, valid)), self.results.valid.eq(valid[-1])]
        with m.If(made_valid):
            m.d.sync += written.eq(made)
        with m.If(valid[0]):
            m.d.sync += summed.eq(written)
            m.d.sync += [
                part.eq(sum_halves(written.packet.data, quarter.start, quarter.stop))
                for part, quarter in zip(parts, quarters, strict=True)
            ]
        with m.If(valid[1]):
            m.d.sync += [added.eq(summed), total.eq(Mux(summed.packet.first, 0, total) + tree_sum(parts))]
        with m.If(valid[2]):
            m.d.sync += [folded.eq(added), complement.eq(~fold_carries(m, total))]
        with m.If(valid[3]):
            m.d.sync += out.eq(folded)
            for k in range(lanes):
                with m.If(folded.at[k]):
                    m.d.sync += out.packet.data[32 * k + 16 : 32 * k + 32].eq(complement)
        m.d.comb += self.results.payload.eq(out.packet)
        m.d.comb += self.busy.eq(self.headers.valid | held | valid.any() | self.results.valid)
        return m
