"""Turns operations into beats: one slot word each, held back while the same slot is in flight."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from hw.interface.result import ResultHeader
from hw.interface.verdict import Work
from hw.numeric.formats import format_of_job, is_wide
from hw.stream.packet import Packet
from iswitch.config import Config
from iswitch.wire import Format, Operation

__all__ = ["LOOP_MIN", "Beat", "Sequencer"]

LOOP_MIN = 3
"""Cycles from an operation's first beat to that of the next but one, were all of one word."""


class Beat(data.StructLayout):
    """One word of one operation, on its way through the lanes. `spared`: the half of the sums that it is not about, if
    it is about one. `wide`: `data` are elements of 8 bytes, to be added to a half; `raw`: a half is sent as it is."""

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
                **({"spared": 2, "wide": 1, "raw": 1} if config.uplinks else {}),
            }
        )


class Sequencer(wiring.Component):
    """One beat per word of an operation; a payload comes from `contributions`.

    A beat leaves 1 cycle after its word came, one beat per cycle, and operations follow each other without a gap, but
    one of a single word takes 2 cycles. An operation's first beat leaves 2 cycles after it came. It waits while one
    that writes the same slot began less than `loop` cycles before (payloads shorter than the loop, twice to one slot);
    cycles in which that one waited for its payload do not count. An operation that emits waits until `results` takes
    its header, then until `room` words are free for it, which it has `claimed` a cycle later; nothing behind can stall.
    One without length has no beats. What is `ready` depends on registers, and on whether the operation that is there
    emits.

    In trees elements of 8 bytes take a beat for each half of a word. So where either the payload or what leaves has
    such, the sums are sent in a pass of their own, behind the one that closes the slot. The rest of a tail that ends a
    payload is taken and dropped.
    """

    def __init__(self, config: Config, *, loop: int):
        if loop < LOOP_MIN:
            raise ValueError(f"Sequencer loop must be at least {LOOP_MIN} cycles, not {loop!r}")
        self.config, self.loop = config, loop
        super().__init__(
            {
                "works": In(stream.Signature(Work(config))),
                "contributions": In(stream.Signature(Packet(config.bus_bits))),
                "room": In(range(4 * config.segment_words + 1)),
                "beat": Out(Beat(config)),
                "results": Out(stream.Signature(ResultHeader(config))),
                "claimed": Out(range((1 + config.uplinks) * config.segment_words + 1)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        trees, coming, shift = config.uplinks, self.works.payload, exact_log2(config.bus_bytes)
        counted = ceil_log2(max(config.elements, 2)) - (shift - 3)
        flags = {
            "slot": len(coming.slot),
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
        }

        # The operation, or the pass, that is to come. `halves`: its elements in half words, less one. `half`: it takes
        # beats for halves. `again`: the sums go out in another pass, `doubled` if that takes beats for halves.
        ahead = Signal(
            data.StructLayout({"halves": counted, **flags, **({"again": 1, "doubled": 1} if trees else {})}),
            reset_less=True,
        )
        work = Signal(data.StructLayout({**flags, **({"words": counted - 1} if trees else {})}), reset_less=True)
        ahead_valid = Signal()
        running = Signal()
        left = Signal(counted if trees else counted - 1)
        upper = Signal()

        # What came of a payload, waiting for its beat. Behind the end of a frame the bus carries anything; it must not
        # be counted.
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
            m.d.sync += [word_valid.eq(self.contributions.valid), word.last.eq(self.contributions.payload.last)]
            for k in range(config.lanes):
                lane, came = slice(32 * k, 32 * k + 32), self.contributions.payload
                m.d.sync += word.data[lane].eq(Mux(came.count > 4 * k, came.data[lane], 0))

        # Its header leaves when an operation comes.
        length = coming.result.length
        m.d.comb += [
            self.works.ready.eq(~ahead_valid & (~coming.emit | self.results.ready)),
            self.results.valid.eq(self.works.valid & ~ahead_valid & coming.emit),
            self.results.payload.eq(coming.result),
        ]
        ahead_left = Mux(ahead.half, ahead.halves, ahead.halves[1:]) if trees else ahead.halves[1:]
        blocked = Signal()
        m.d.comb += loads.eq(ahead_valid & (~running | ends) & ~blocked & (~ahead.emit | (self.room > ahead_left)))
        with m.If(self.works.valid & self.works.ready):
            takes = (coming.operation == Operation.CONTRIBUTE) | (coming.operation == Operation.INSTALL_DOWN)
            m.d.sync += [
                ahead_valid.eq(length != 0),
                ahead.halves.eq(((length >> 2) - 1)[: counted + shift - 3] >> (shift - 3)),
                ahead.slot.eq(coming.slot),
                ahead.base.eq(times(coming.slot, config.segment_words)),
                ahead.fraction.eq(coming.fraction),
                ahead.limit.eq(coming.limit),
                ahead.numeric.eq(coming.result.numeric),
                ahead.takes.eq(takes),
                ahead.include.eq(coming.include),
                ahead.first.eq(coming.first),
                ahead.write.eq(coming.write),
                ahead.emit.eq(coming.emit),
            ]
            if trees:
                above = is_wide(coming.result.numeric)
                sends, doubled = coming.operation == Operation.SEND_UP, coming.result.up & above
                apart = coming.emit & (coming.result.up | coming.wide) & ~sends
                m.d.sync += [
                    ahead.again.eq(apart),
                    ahead.doubled.eq(doubled),
                    ahead.half.eq(Mux(sends, doubled, coming.wide)),
                    ahead.raw.eq(sends & doubled),
                    ahead.wide.eq(coming.wide & ~sends),
                    ahead.tailed.eq(coming.tailed),
                    ahead.emit.eq(coming.emit & ~apart),
                    ahead.include.eq(coming.include & ~coming.wide & ~sends),
                    ahead.first.eq(coming.first & ~sends),
                    ahead.write.eq(coming.write & ~sends),
                    # What came down is integers to the lanes.
                    ahead.numeric.eq(Mux(coming.as_is, Format.INT32, format_of_job(coming.result.numeric))),
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
        m.d.sync += self.claimed.eq(Mux(loads & ahead.emit, ahead_left + 1, 0))

        # Slots written, by age. Each passes once, with the beat from which on the next operation's may follow `loop`
        # behind, word for word: the first, or, where a word takes two, so late that no upper half is overtaken. Between
        # that beat and the last, age counts beats.
        m.d.comb += marks.eq(go & unmarked & (~work.half | (left == work.words) if trees else 1))
        candidate = Mux(ahead_valid, ahead.slot, coming.slot)
        flights = [
            Signal(data.StructLayout({"valid": 1, "slot": len(coming.slot)}), name=f"flight_{age}", reset_less=True)
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
            *(
                beat[name].eq(work[name])
                for name in ("numeric", "fraction", "limit", "include", "first", "write", "emit")
            ),
            self.busy.eq(ahead_valid | running | word_valid | drains),
        ]
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
    """The product, of few shifts: no multiplier is spent on it."""
    return sum((value << k for k in range(constant.bit_length()) if constant >> k & 1), Const(0, 1))
