"""Splits operations into beats, one for each word of a slot, and keeps beats on the same word apart."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from hw.interface.elements import ElementForm
from hw.interface.result import ResultHeader
from hw.interface.verdict import Work
from hw.numeric.formats import is_binary16, is_half, is_wide, lane_format
from hw.stream.packet import Packet
from hw.stream.stored_word import triple
from iswitch.config import Config
from iswitch.wire import Format, Operation

__all__ = ["LOOP_MIN", "Beat", "Sequencer", "sums_depth"]

BLOCK_RAM_WORDS = 512
"""Words of an ECP5's block RAM at its full width of 36 bits."""
LOOP_MIN = 3
"""Cycles from an operation's first beat to that of the next operation but one, if all have a single word."""


class Beat(data.StructLayout):
    """One word of one operation, for the arithmetic lanes.

    `corrupt`: a bit error was found in the payload of `data`.

    In trees, `spared` are the halves of the sums that the beat leaves as they are. `wide`: the data are elements of 8
    bytes, which are added to the other half. `raw`: the other half is emitted without rounding.

    `form`: how the rounded sums are narrowed, in a switch with half-width formats.
    """

    def __init__(self, config: Config):
        depth = config.jobs * config.slots * config.segment_words
        super().__init__(
            {
                "data": config.bus_bits,
                "valid": 1,
                "address": range(depth),
                "numeric": 4,
                "fraction": signed(9),
                "limit": 8,
                "include": 1,
                "first": 1,
                "write": 1,
                "emit": 1,
                "last": 1,
                "corrupt": 1,
                **({"spared": 2, "wide": 1, "raw": 1} if config.uplinks else {}),
                **({"form": ElementForm} if config.half_width else {}),
            }
        )


def sums_depth(config: Config) -> int:
    """Return how many words the FIFO of sums holds: four of the longest results, but no more than `BLOCK_RAM_WORDS` if
    two of the longest fit in these."""
    return min(4 * config.segment_words, max(2 * config.segment_words, BLOCK_RAM_WORDS))


class Sequencer(wiring.Component):
    """Splits each operation into beats, one for each word of the slot, and takes its payload from `contributions`.

    A beat leaves 1 cycle after its word was taken, one beat per cycle. Operations follow each other without a gap, but
    an operation of a single word takes 2 cycles. The first beat of an operation leaves 2 cycles after the operation was
    taken.

    An operation waits while another that writes the same slot began less than `loop` cycles ago, not counting cycles in
    which that one waited for its payload. An operation that emits waits until `results` takes its header, and then
    until `room` words are free for its sums; it has claimed them 1 cycle later (`claimed`). Nothing after the sequencer
    stalls. An operation of length 0 has no beats. `ready` depends on registers and on whether the operation emits.

    In trees, an element of 8 bytes takes half a word, so a word of the slot takes two beats. Where the payload or the
    result has such elements, the sums are emitted in a second pass, after the beats that complete the slot. The rest of
    a payload's tail is taken and dropped.

    `error` of a word in `contributions` says that the word has a bit error, and is read with every word.

    Parameters
    ----------
    config : Config
        The switch.
    loop : int
        Cycles from a beat to the first beat that may read the sum, at least `LOOP_MIN`.

    Members
    -------
    room : in
        Free words in the FIFO of sums, not counting those that were `claimed` in this cycle.
    claimed : out
        Words of that FIFO that an operation claims.
    """

    def __init__(self, config: Config, *, loop: int):
        if loop < LOOP_MIN:
            raise ValueError(f"Sequencer loop must be at least {LOOP_MIN} cycles, not {loop!r}")
        self.config, self.loop = config, loop
        super().__init__(
            {
                "works": In(stream.Signature(Work(config))),
                "contributions": In(stream.Signature(Packet(config.bus_bits))),
                "room": In(range(sums_depth(config) + 1)),
                "beat": Out(Beat(config)),
                "results": Out(stream.Signature(ResultHeader(config))),
                "claimed": Out(range((1 + config.uplinks) * config.segment_words + 1)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        trees, offered, shift = config.uplinks, self.works.payload, exact_log2(config.bus_bytes)
        counted = ceil_log2(max(config.elements, 2)) - (shift - 3)
        flags = {
            "slot": len(offered.slot),
            "base": len(self.beat.address),
            "fraction": signed(9),
            "limit": 8,
            "numeric": 4,
            "takes": 1,
            "include": 1,
            "first": 1,
            "write": 1,
            "emit": 1,
            **({"half": 1, "raw": 1, "wide": 1, "tailed": 1} if trees else {}),
            **({"form": ElementForm} if config.half_width else {}),
        }

        # The next operation or pass. `halves`: its elements in half words, less one. `half`: a beat is half a word.
        # `again`: the sums leave in a second pass; `doubled`: in that pass a beat is half a word.
        ahead = Signal(
            data.StructLayout({"halves": counted, **flags, **({"again": 1, "doubled": 1} if trees else {})}),
            reset_less=True,
        )
        work = Signal(data.StructLayout({**flags, **({"words": counted - 1} if trees else {})}), reset_less=True)
        ahead_valid = Signal()
        running = Signal()
        left = Signal(counted if trees else counted - 1)
        upper = Signal()

        # The word of the payload that waits for its beat. Bytes behind the end of a frame have any value and become 0.
        word = Signal(Packet(config.bus_bits), reset_less=True)
        word_valid = Signal()
        drains = Signal()
        go, last, ends, loads, frees = (Signal(name=name) for name in ("go", "last", "ends", "loads", "frees"))
        m.d.comb += [
            go.eq(running & (~work.takes | (word_valid & ~drains))),
            last.eq(left == 0),
            ends.eq(go & last),
            frees.eq(~word_valid | drains | (running & work.takes)),
            self.contributions.ready.eq(frees),
        ]
        with m.If(frees):
            m.d.sync += [
                word_valid.eq(self.contributions.valid),
                word.last.eq(self.contributions.payload.last),
                word.error.eq(self.contributions.payload.error),
            ]
            for k in range(config.lanes):
                lane, taken = slice(32 * k, 32 * k + 32), self.contributions.payload
                m.d.sync += word.data[lane].eq(Mux(taken.count > 4 * k, taken.data[lane], 0))

        # An operation's header leaves when the operation is taken.
        length = offered.result.length
        m.d.comb += [
            self.works.ready.eq(~ahead_valid & (~offered.emit | self.results.ready)),
            self.results.valid.eq(self.works.valid & ~ahead_valid & offered.emit),
            self.results.payload.eq(offered.result),
            *(
                [self.results.payload.grant.eq(triple(offered.operation == Operation.GRANT))]
                if config.staleness
                else []
            ),
        ]
        ahead_left = Mux(ahead.half, ahead.halves, ahead.halves[1:]) if trees else ahead.halves[1:]
        blocked = Signal()
        m.d.comb += loads.eq(ahead_valid & (~running | ends) & ~blocked & (~ahead.emit | (self.room > ahead_left)))
        with m.If(self.works.valid & self.works.ready):
            takes = (offered.operation == Operation.CONTRIBUTE) | (offered.operation == Operation.INSTALL_DOWN)
            m.d.sync += [
                ahead_valid.eq(length != 0),
                ahead.halves.eq(((length >> 2) - 1)[: counted + shift - 3] >> (shift - 3)),
                ahead.slot.eq(offered.slot),
                ahead.base.eq(times(offered.slot, config.segment_words)),
                ahead.fraction.eq(offered.fraction),
                ahead.limit.eq(offered.limit),
                ahead.numeric.eq(offered.result.numeric),
                ahead.takes.eq(takes),
                ahead.include.eq(offered.include),
                ahead.first.eq(offered.first),
                ahead.write.eq(offered.write),
                ahead.emit.eq(offered.emit),
            ]
            if config.half_width:
                m.d.sync += [
                    ahead.form.half.eq(is_half(offered.result.numeric)),
                    ahead.form.binary16.eq(is_binary16(offered.result.numeric)),
                    ahead.form.as_is.eq(offered.as_is if trees else 0),
                ]
            if trees:
                above = is_wide(offered.result.numeric)
                sends, doubled = offered.operation == Operation.SEND_UP, offered.result.up & above
                apart = offered.emit & (offered.result.up | offered.wide) & ~sends
                m.d.sync += [
                    ahead.again.eq(apart),
                    ahead.doubled.eq(doubled),
                    ahead.half.eq(Mux(sends, doubled, offered.wide)),
                    ahead.raw.eq(sends & doubled),
                    ahead.wide.eq(offered.wide & ~sends),
                    ahead.tailed.eq(offered.tailed),
                    ahead.emit.eq(offered.emit & ~apart),
                    ahead.include.eq(offered.include & ~offered.wide & ~sends),
                    ahead.first.eq(offered.first & ~sends),
                    ahead.write.eq(offered.write & ~sends),
                    # A result from the parent is stored as it is, as integers.
                    ahead.numeric.eq(Mux(offered.as_is, Format.INT32, lane_format(offered.result.numeric))),
                ]
        with m.Elif(loads):
            m.d.sync += ahead_valid.eq(0)
            if trees:
                with m.If(ahead.again):
                    m.d.sync += [
                        ahead_valid.eq(1),
                        ahead.again.eq(0),
                        ahead.half.eq(ahead.doubled),
                        ahead.raw.eq(ahead.doubled),
                        ahead.emit.eq(1),
                        ahead.wide.eq(0),
                        ahead.takes.eq(0),
                        ahead.include.eq(0),
                        ahead.first.eq(0),
                        ahead.write.eq(0),
                    ]

        by_half = work.half if trees else Const(0)
        address = work.base
        unmarked = Signal()
        marks = Signal()
        with m.If(loads):
            m.d.sync += [work[name].eq(ahead[name]) for name in flags]
            m.d.sync += [running.eq(1), left.eq(ahead_left), upper.eq(0), unmarked.eq(ahead.write)]
            if trees:
                m.d.sync += work.words.eq(ahead.halves[1:])
        with m.Elif(go):
            m.d.sync += [
                address.eq(address + (~by_half | upper)),
                left.eq(left - 1),
                upper.eq(by_half & ~upper),
                running.eq(~last),
            ]
            with m.If(marks):
                m.d.sync += unmarked.eq(0)
        claims = ahead_left + 1
        if config.half_width:
            # Two words of sums are packed into one.
            claims = Mux(ahead.form.half, (ahead_left >> 1) + 1, claims)
        m.d.sync += self.claimed.eq(Mux(loads & ahead.emit, claims, 0))

        # Slots that are being written, by age. A slot enters with the beat after which another operation's beats may
        # follow at a distance of `loop`: with the first beat, or, where a word takes two, late enough that no upper
        # half is overtaken. While the operation lasts, age counts its beats, not cycles.
        m.d.comb += marks.eq(go & unmarked & (~work.half | (left == work.words) if trees else 1))
        candidate = Mux(ahead_valid, ahead.slot, offered.slot)
        flights = [
            Signal(data.StructLayout({"valid": 1, "slot": len(offered.slot)}), name=f"flight_{age}", reset_less=True)
            for age in range(self.loop - LOOP_MIN)
        ]
        pauses = running & work.takes & ~unmarked & ~go
        with m.If(~pauses):
            for flight, valid, at in zip(
                flights, [marks] + [f.valid for f in flights], [work.slot] + [f.slot for f in flights], strict=False
            ):
                m.d.sync += [flight.valid.eq(valid), flight.slot.eq(at)]
        matches = [f.valid & (f.slot == candidate) for f in flights] + [running & unmarked & (work.slot == candidate)]
        m.d.sync += blocked.eq(Cat(*matches).any() | pauses | (loads & (ahead.again if trees else 0)))

        beat = self.beat
        m.d.comb += [
            beat.data.eq(word.data),
            beat.valid.eq(go),
            beat.address.eq(address),
            beat.last.eq(last),
            beat.corrupt.eq(work.takes & word.error),
            *(
                beat[name].eq(work[name])
                for name in ("numeric", "fraction", "limit", "include", "first", "write", "emit")
            ),
            self.busy.eq(ahead_valid | running | word_valid | drains),
        ]
        if config.half_width:
            m.d.comb += beat.form.eq(work.form)
        if trees:
            with m.If(go & work.takes & last):
                m.d.sync += drains.eq(work.tailed & ~word.last)
            with m.Elif(drains & word_valid & word.last):
                m.d.sync += drains.eq(0)
            m.d.comb += [
                beat.spared.eq(Cat(by_half & upper, by_half & ~upper)),
                beat.wide.eq(work.wide),
                beat.raw.eq(work.raw),
            ]
        return m


def times(value, constant: int):
    """Return the product as a sum of shifts, so that synthesis uses no multiplier."""
    return sum((value << k for k in range(constant.bit_length()) if constant >> k & 1), Const(0, 1))
