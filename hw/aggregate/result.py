"""Puts a result together: its header, its sums, and a tail that makes the whole frame sum to zero."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.aggregate.accumulator import SumWord
from hw.aggregate.checksum_inserter import ChecksumInserter
from hw.interface.layout import layout
from hw.interface.result import ResultHeader, ResultMeta
from hw.numeric.formats import is_wide
from hw.stream.checksum import fold_carries, sum_halves
from hw.stream.packet import Packet
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import ADDRESSES, BROADCAST_MEMBER, HEADER, RESULT_HEADER, Type, version_type

__all__ = ["ResultComposer"]


class ResultComposer(wiring.Component):
    """Composes the frames that leave the aggregator: results, uplinks and GRANTs.

    A result or an uplink has header words, payload words and a tail, which ends with the checksum complement of
    RFC 7820. It starts when its header has been shown for a cycle and its first sums are there, and leaves without a
    gap: a word of `sums` appears in `results` `LATENCY` cycles after it was taken. One word per cycle; `results` must
    never stall. `headers` and `sums` wait while another frame is composed.

    A GRANT has length 0 and consists of header words only, with the complement in the header. It appears `LATENCY` + 3
    cycles after its header. A switch without asynchronous jobs has no GRANTs, and no logic for them.
    """

    LATENCY = ChecksumInserter.LATENCY

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "headers": In(stream.Signature(ResultHeader(config))),
                "sums": In(stream.Signature(SumWord(config))),
                "results": Out(
                    stream.Signature(Packet(config.bus_bits, meta=ResultMeta(config), first=True), always_ready=True)
                ),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, trees = self.config, self.config.uplinks
        lanes, header_words = config.lanes, config.header_words
        m.submodules.inserter = inserter = ChecksumInserter(bus_bits=config.bus_bits, meta=ResultMeta(config))
        connect(m, inserter.o, flipped(self.results))
        header, known = Signal(ResultHeader(config), reset_less=True), Signal(self._known_shape(), reset_less=True)
        held, ends = Signal(), Signal()
        m.d.comb += self.headers.ready.eq(~held | ends)
        with m.If(self.headers.ready):
            m.d.sync += [held.eq(self.headers.valid), header.eq(self.headers.payload)]
            self._learn(m, known)
        image = self._image(m, header, known)
        grant_is_summed = self._sum_grant(m, image, known, held & ~ends) if config.staleness else Const(1)

        # `index` counts the header words, `in_tail` is the word after the payload, if there is one.
        index, in_tail = Signal(range(header_words + 1)), Signal()
        valid, in_payload, closes = (Signal(name=name) for name in ("valid", "in_payload", "closes"))
        packet, sums = inserter.packet, self.sums.payload
        kept = Cat(Mux(~sums.last | known.keep[k], sums.data[32 * k : 32 * k + 32], 0) for k in range(lanes))
        head = Cat(Const(0, 8 * ADDRESSES.itemsize), image)
        m.d.comb += [
            in_payload.eq((index == header_words) & ~in_tail),
            packet.first.eq(index == 0),
            packet.last.eq(closes),
            packet.count.eq(config.bus_bytes),
            packet.meta.header.eq(header),
            packet.meta.words.eq(known.words),
            inserter.valid.eq(valid),
            ends.eq(valid & closes),
            self.sums.ready.eq(in_payload),
            self.busy.eq(self.headers.valid | held | inserter.busy),
        ]
        with m.If(in_tail):
            m.d.comb += [valid.eq(1), closes.eq(1)]
        with m.Elif(in_payload):
            m.d.comb += [valid.eq(self.sums.valid), closes.eq(sums.last & ~known.parted), packet.data.eq(kept)]
            with m.If(self.sums.valid & sums.last & known.parted):
                m.d.sync += in_tail.eq(1)
        with m.Else():
            m.d.comb += [
                valid.eq(held & Mux(known.grants, grant_is_summed, self.sums.valid)),
                closes.eq(known.grants & (index == header_words - 1)),
                packet.data.eq(head.word_select(index, config.bus_bits)),
            ]
            with m.If(valid):
                m.d.sync += index.eq(index + 1)
        with m.If(closes & ~known.grants):
            m.d.comb += [packet.count.eq(known.bytes), inserter.complement_at.eq(known.at)]
        if trees:
            # The tail of an uplink is the tainted ranks, then the flags, with the complement in their upper half.
            for k in range(lanes):
                ranks_here = Mux(
                    in_tail, known.keep[-1] & (k == 0), in_payload & sums.last & ~known.keep[k] & known.ranks[k]
                )
                with m.If(header.up & ranks_here):
                    m.d.comb += packet.data[32 * k : 32 * k + 32].eq(header.tainted)
                with m.If(header.up & inserter.complement_at[k]):
                    m.d.comb += packet.data[32 * k : 32 * k + 32].eq(header.partial)
        with m.If(ends):
            m.d.sync += [index.eq(0), in_tail.eq(0)]
        return m

    def _known_shape(self) -> data.StructLayout:
        """What follows from the header alone, registered when the header is taken.

        `count`: members in the sum. `words`: the frame's words. `grants`: it is a GRANT. `parted`: the complement is in
        a word of its own, after the last payload word. `keep`: the lanes of the last payload word that hold payload.
        `at`: the lane of the last word that holds the complement. `bytes`: those of the last word. `ranks`: the lane of
        an uplink's tainted ranks, if the last payload word has it."""
        lanes, payload = self.config.lanes, self.results.payload
        return data.StructLayout(
            {
                "count": range(self.config.members + 1),
                "words": len(payload.meta.words),
                "parted": 1,
                "keep": lanes,
                "at": lanes,
                "bytes": len(payload.count),
                "grants": 1,
                "ranks": lanes,
            }
        )

    def _learn(self, m, known) -> None:
        """Register what follows from the header that is taken."""
        config, trees, lanes = self.config, self.config.uplinks, self.config.lanes
        coming = self.headers.payload
        grants = (coming.length == 0) if config.staleness else Const(0)
        long_tail = coming.up if trees else Const(0)  # an uplink's tail has two lanes, another's one
        elements = Signal(len(coming.length) - 1 if trees else len(coming.length) - 2)
        rest, final = Signal(range(lanes)), Signal(range(lanes))
        m.d.comb += [
            elements.eq((coming.length << (coming.up & is_wide(coming.numeric)) if trees else coming.length) >> 2),
            rest.eq(elements),
            final.eq(rest + long_tail),
        ]
        m.d.sync += [
            known.count.eq(popcount(coming.members)),
            known.grants.eq(grants),
            known.words.eq(config.header_words + Mux(grants, 0, 1 + ((elements + long_tail) >> exact_log2(lanes)))),
            known.parted.eq((rest == 0) | (long_tail & (rest == lanes - 1))),
            known.at.eq(1 << final),
            known.bytes.eq((final + 1) << 2),
            known.keep.eq(Cat((rest == 0) | (rest > k) for k in range(lanes))),
            known.ranks.eq(1 << rest),
        ]

    def _image(self, m, header, known):
        """Return the header as it goes out."""
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
            image.token.eq(header.token),
        ]
        result = data.View(layout(RESULT_HEADER), image.as_value())
        with m.If(~known.grants & (~header.up if self.config.uplinks else 1)):
            m.d.comb += result.tainted.eq(header.tainted)
        if self.config.uplinks:
            with m.If(header.up):
                m.d.comb += [
                    image.version_type.eq(version_type(Type.UPLINK)),
                    image.member.eq(header.member),
                    image.behind.eq(header.behind),
                ]
        return image

    def _sum_grant(self, m, image, known, waits):
        """Put the complement into a GRANT's header, and return whether it is there: the header alone is summed while it
        waits, without the place of the complement."""
        steps, total, complement = Signal(2), Signal(20, reset_less=True), Signal(16, reset_less=True)
        complement_at = HEADER.fields["behind"][1]
        with m.If(known.grants):
            m.d.comb += image.behind.eq(complement)
        m.d.sync += [
            total.eq(
                sum_halves(image.as_value(), 0, complement_at)
                + sum_halves(image.as_value(), complement_at + 2, HEADER.itemsize)
            ),
            complement.eq(~fold_carries(m, total)),
            steps.eq(Mux(waits, Cat(1, steps[0]), 0)),
        ]
        return steps[1]
