"""Puts a result together: its header, its sums, and a tail that makes the whole frame sum to zero."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.aggregate.accumulator import SumWord
from hw.aggregate.checksum_inserter import ChecksumInserter
from hw.aggregate.sequencer import sums_depth
from hw.interface.layout import layout
from hw.interface.result import ResultHeader, ResultMeta, header_parity, reserved_words, result_words
from hw.numeric.formats import is_half, is_wide
from hw.stream.checksum import fold_carries, sum_halves
from hw.stream.packet import Packet
from hw.stream.reduction import popcount
from hw.stream.stored_word import majority
from iswitch.config import Config
from iswitch.wire import ADDRESSES, BROADCAST_MEMBER, HEADER, RESULT_HEADER, UPLINK_TAIL, Type, version_type

__all__ = ["ResultComposer"]


UPLINK_LANES = UPLINK_TAIL.itemsize // 4
"""Lanes of an uplink's tail. A result's tail has one."""
TAIL_WORDS = 2
"""The most words after the last payload word: those of an uplink's tail on a bus of two lanes."""


class ResultComposer(wiring.Component):
    """Composes the frames that leave the aggregator: results, uplinks and GRANTs.

    A result or an uplink has header words, payload words and a tail, which ends with the checksum complement of
    RFC 7820. It starts when its header has been shown for a cycle and its first sums are there or `coming`. The header
    words leave at once, and each word of `sums` when it is there: it appears in `results` `LATENCY` cycles after it was
    taken. So a result has no gap but one of at most `HEADER_LEAD` cycles behind its header, as long as sums follow each
    other without a gap. One word per cycle; `results` must never stall. `headers` and `sums` wait while another frame
    is composed.

    A frame with a bit error in its header or its sums leaves with a wrong checksum complement, so that no member takes
    it, and so does a result with a word that is `corrupt`. `corrupted` is 1 for one cycle for each bit error that is
    found here. No bit error gives sums to another frame.

    A result of two-byte elements, whose words come every other cycle, starts when so many of its words wait that it
    leaves without any gap: half of them (`level`), or its last (`complete`). In a switch with such elements, a result
    whose header has a bit error waits for its last word.

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
                "coming": In(1),
                "results": Out(
                    stream.Signature(Packet(config.bus_bits, meta=ResultMeta(config), first=True), always_ready=True)
                ),
                "corrupted": Out(1),
                "busy": Out(1),
                **({"level": In(range(sums_depth(config) + 1)), "complete": In(1)} if config.half_width else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, trees = self.config, self.config.uplinks
        lanes, header_words = config.lanes, config.header_words
        m.submodules.inserter = inserter = ChecksumInserter(bus_bits=config.bus_bits, meta=ResultMeta(config))
        connect(m, inserter.o, flipped(self.results))
        header = Signal(ResultHeader(config), reset_less=True)
        known = Signal(self._known_shape(), reset_less=True)
        learnt = Signal(self._known_shape())
        self._learn(m, learnt)
        held, ends = Signal(name="held"), Signal(name="ends")
        m.d.comb += self.headers.ready.eq(~held | ends)
        with m.If(self.headers.ready):
            m.d.sync += [held.eq(self.headers.valid), header.eq(self.headers.payload), known.eq(learnt)]
        image = self._image(m, header, known)
        grant_is_summed = self._sum_grant(m, image, known, held & ~ends) if config.staleness else Const(1)

        # `index` counts the header words, `tail_word` the words after the last word of the payload. `ended`: this is
        # the last word of the payload, or one after it.
        starts = self.sums.valid | self.coming
        if config.half_width:
            enough = Signal()
            # Nothing says how many words come, nor how fast, if the header has a bit error.
            arrived = ~known.corrupt & (self.level >= known.enough)
            m.d.sync += enough.eq(~self.headers.ready & (self.complete | arrived))
            starts = Mux(known.half | known.corrupt, enough, starts)
        index = Signal(range(header_words + 1))
        tail_word = Signal.like(known.extra, name="tail_word")
        valid, in_header, in_payload, ended, closes = (
            Signal(name=name) for name in ("valid", "in_header", "in_payload", "ended", "closes")
        )
        packet, sums, last = inserter.packet, self.sums.payload, majority(self.sums.payload.last)
        kept = Cat(Mux(~last | known.keep[k], sums.data[32 * k : 32 * k + 32], 0) for k in range(lanes))
        head = Cat(Const(0, 8 * ADDRESSES.itemsize), image)
        m.d.comb += [
            in_header.eq(index != header_words),
            in_payload.eq(~in_header & (tail_word == 0)),
            ended.eq((tail_word != 0) | last),
            packet.first.eq(index == 0),
            packet.last.eq(closes),
            packet.count.eq(config.bus_bytes),
            packet.meta.header.eq(header),
            # Nothing says how long a result is whose header has a bit error.
            packet.meta.room.eq(Mux(known.corrupt, result_words(config) + reserved_words(config), known.room)),
            inserter.valid.eq(valid),
            ends.eq(valid & closes),
            self.sums.ready.eq(in_payload),
            self.busy.eq(self.headers.valid | held | inserter.busy),
        ]
        with m.If(tail_word != 0):
            m.d.comb += [valid.eq(1), closes.eq(tail_word == known.extra)]
            m.d.sync += tail_word.eq(tail_word + 1)
        with m.Elif(in_payload):
            m.d.comb += [valid.eq(self.sums.valid), closes.eq(last & (known.extra == 0)), packet.data.eq(kept)]
            with m.If(self.sums.valid & last & (known.extra != 0)):
                m.d.sync += tail_word.eq(1)
        with m.Else():
            m.d.comb += [
                valid.eq(held & Mux(known.grants, grant_is_summed, starts)),
                closes.eq(known.grants & (index == header_words - 1)),
                packet.data.eq(head.word_select(index, config.bus_bits)),
            ]
            with m.If(valid):
                m.d.sync += index.eq(index + 1)
        # The parity of a word is checked one cycle later. `found`: the word before has a bit error, or is `corrupt`.
        # `corrupt`: so has the frame, or its header, in a word before that one.
        found, wrong, corrupt, closed = (Signal(name=name) for name in ("found", "wrong", "corrupt", "closed"))
        takes = self.sums.valid & self.sums.ready
        m.d.sync += [
            wrong.eq(takes & (Cat(sums.data, sums.corrupt).xor() ^ sums.parity) | ends & known.corrupt),
            found.eq(takes & sums.corrupt),
            corrupt.eq(~closed & (corrupt | wrong | found)),
            closed.eq(ends),
        ]
        m.d.comb += [inserter.corrupt.eq(corrupt | wrong | found), self.corrupted.eq(wrong)]
        with m.If(closes & ~known.grants):
            m.d.comb += [packet.count.eq(known.bytes), inserter.complement_at.eq(known.at)]
        if trees:
            # The tail of an uplink is its ranks, the tainted ranks, then the flags with the complement in their upper
            # half. A result has the last of these only, with its identity in place of the flags.
            for place, ranks in ((known.ranks, header.members), (known.tainted, header.tainted)):
                for k in range(lanes):
                    with m.If(header.up & place.lane[k] & (place.word == tail_word) & ~in_header & ended):
                        m.d.comb += packet.data[32 * k : 32 * k + 32].eq(ranks)
        flags = Mux(header.up, header.partial, header.identity) if trees else header.identity
        for k in range(lanes):
            with m.If(inserter.complement_at[k]):
                m.d.comb += packet.data[32 * k : 32 * k + 32].eq(flags)
        with m.If(ends):
            m.d.sync += [index.eq(0), tail_word.eq(0)]
        return m

    def _known_shape(self) -> data.StructLayout:
        """What follows from the header alone, registered when the header is taken.

        `count`: members in the sum. `room`: see `ResultMeta`. `corrupt`: the header has a bit error. `grants`: it is
        a GRANT. `extra`: words after the last payload word. `keep`: the lanes of the last payload word that hold
        payload. `at`: the lane of the last word that holds the complement. `bytes`: those of the last word. `ranks`,
        `tainted`: the places of these sets in an uplink, as the number of words after the last payload word and the
        lane. `half`: elements have two bytes, and `enough` words of them must wait before the frame starts."""
        lanes, payload = self.config.lanes, self.results.payload
        place = data.StructLayout({"word": range(TAIL_WORDS + 1), "lane": lanes})
        return data.StructLayout(
            {
                "count": range(self.config.members + 1),
                "room": len(payload.meta.room),
                "extra": range(TAIL_WORDS + 1),
                "keep": lanes,
                "at": lanes,
                "bytes": len(payload.count),
                "grants": 1,
                "corrupt": 1,
                **({"ranks": place, "tainted": place} if self.config.uplinks else {}),
                **({"half": 1, "enough": len(self.level)} if self.config.half_width else {}),
            }
        )

    def _learn(self, m, known) -> None:
        """Set what follows from the header that is shown, whether it is taken or not: that is known late."""
        config, trees, lanes = self.config, self.config.uplinks, self.config.lanes
        others = config.header_words + 1 + reserved_words(config)  # words beside those that elements fill
        coming = self.headers.payload
        grants = majority(coming.grant) if config.staleness else Const(0)
        uplink = coming.up if trees else Const(0)
        elements = Signal(len(coming.length) - 1 if trees else len(coming.length) - 2)
        rest, first, last = Signal(range(lanes)), Signal(range(lanes + 1)), Signal(range(lanes + UPLINK_LANES))
        # `elements` counts four bytes each.
        length, half = coming.length, is_half(coming.numeric)
        if config.half_width:
            length = length >> half
            m.d.comb += [known.half.eq(half), known.enough.eq((length >> exact_log2(2 * config.bus_bytes)) + 1)]
        m.d.comb += [
            elements.eq((length << (coming.up & is_wide(coming.numeric)) if trees else length) >> 2),
            rest.eq(elements),
            first.eq(Mux(rest == 0, lanes, rest)),  # lane of the tail, counted from the last payload word
            last.eq(first + Mux(uplink, UPLINK_LANES - 1, 0)),
        ]
        # An uplink's tail begins a word more if the last elements leave too few lanes of theirs.
        overflows = uplink & (rest > lanes - UPLINK_LANES)
        m.d.comb += [
            known.count.eq(popcount(coming.members)),
            known.grants.eq(grants),
            known.corrupt.eq(header_parity(coming) != coming.parity),
            known.room.eq(
                Mux(grants, config.header_words, (elements >> exact_log2(lanes)) + Mux(overflows, others + 1, others))
            ),
            known.extra.eq(last >> exact_log2(lanes)),
            known.at.eq(1 << last[: exact_log2(lanes)]),
            known.bytes.eq((last[: exact_log2(lanes)] + 1) << 2),
            known.keep.eq(Cat((rest == 0) | (rest > k) for k in range(lanes))),
        ]
        for k, name in enumerate(("ranks", "tainted") if trees else ()):
            place = Signal(range(lanes + UPLINK_LANES), name=f"{name}_place")
            m.d.comb += place.eq(first + k)
            m.d.comb += [
                known[name].word.eq(place >> exact_log2(lanes)),
                known[name].lane.eq(1 << place[: exact_log2(lanes)]),
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
                    image.count.eq(header.identity),
                    image.members.eq(header.collective),
                ]
        return image

    def _sum_grant(self, m, image, known, waits):
        """Put the complement into a GRANT's header, and return whether it is there: the header alone is summed while it
        waits, without the place of the complement."""
        steps, complement = Signal(2), Signal(16, reset_less=True)
        before, behind = Signal(20, reset_less=True), Signal(20, reset_less=True)
        complement_at = HEADER.fields["behind"][1]
        with m.If(known.grants):
            m.d.comb += image.behind.eq(complement)
        m.d.sync += [
            before.eq(sum_halves(image.as_value(), 0, complement_at)),
            behind.eq(sum_halves(image.as_value(), complement_at + 2, HEADER.itemsize)),
            complement.eq(~fold_carries(m, before + behind) ^ known.corrupt),
            steps.eq(Mux(waits, Cat(1, steps[0]), 0)),
        ]
        return steps[1]
