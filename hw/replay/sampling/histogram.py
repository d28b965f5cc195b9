"""How large priorities are: the least and the greatest bucket that has any, exactly, while they change each cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["BUCKET_BITS", "Change", "Histogram", "first", "last"]

BUCKET_BITS = 8
"""Of a bucket's number: 239 is that of priorities of 32 bits that begin with four ones."""
MANTISSA_BITS = 4
GROUP = 16
"""Buckets that are searched in one cycle."""


class Change(data.StructLayout):
    """One priority was `old` and is `new`; 0 is none."""

    def __init__(self, priority_bits: int):
        super().__init__({"old": priority_bits, "new": priority_bits})


def first(bits, start: int = 0, end: int | None = None):
    """Whether any of the bits is set, and the index of the lowest that is."""
    end = len(bits) if end is None else end
    if end - start == 1:
        return bits[start], Const(0, 0)
    half = 1 << ceil_log2(end - start) - 1
    low, high = first(bits, start, start + half), first(bits, start + half, end)
    return low[0] | high[0], Cat(Mux(low[0], low[1], high[1])[: ceil_log2(half)], ~low[0])


def last(bits, start: int = 0, end: int | None = None):
    """Whether any of the bits is set, and the index of the highest that is."""
    end = len(bits) if end is None else end
    if end - start == 1:
        return bits[start], Const(0, 0)
    half = 1 << ceil_log2(end - start) - 1
    low, high = last(bits, start, start + half), last(bits, start + half, end)
    return low[0] | high[0], Cat(Mux(high[0], high[1], low[1])[: ceil_log2(half)], high[0])


class Histogram(wiring.Component):
    """Buckets of the priorities above 0 of `capacity` items, all 0 at first: `lowest` and `highest` that has any, 0 if
    none has. They are those behind a change `LATENCY` cycles after it was taken; one change a cycle. An old priority
    must be one that is there.

    A bucket is not empty if more came than went. Both are counted, in memory, modulo `capacity`: what comes makes a
    bucket not empty, and when something goes, which leaves less than `capacity`, the two are compared. Bits in
    registers say which are not empty. Ready 2^`BUCKET_BITS` cycles after a reset, in which counts are wiped. The truth
    is `sim/model/replay/histogram.py`.
    """

    LATENCY = 7

    def __init__(self, *, capacity: int, priority_bits: int = 27):
        if not (isinstance(capacity, int) and 2 <= capacity <= 1 << 24 and not capacity & (capacity - 1)):
            raise ValueError(f"Histogram capacity must be a power of two from 2 to {1 << 24}, not {capacity!r}")
        if not 4 <= priority_bits <= 32:
            raise ValueError(f"Histogram priority_bits must be 4 to 32, not {priority_bits!r}")
        self.capacity, self.priority_bits = capacity, priority_bits
        self.buckets = 8 * priority_bits - 16
        super().__init__(
            {
                "changes": In(stream.Signature(Change(priority_bits))),
                "lowest": Out(BUCKET_BITS),
                "highest": Out(BUCKET_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        wiped, wipe = Signal(), Signal(BUCKET_BITS)
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == -1 % (1 << BUCKET_BITS))]
        m.d.comb += self.changes.ready.eq(wiped)
        came, went = (
            self._bucket(m, name, getattr(self.changes.payload, field), wiped & self.changes.valid)
            for name, field in (("came", "new"), ("went", "old"))
        )

        # From one bucket into the same one nothing changes. So a change adds to one count and subtracts from another,
        # never the same.
        moved = came != went
        counted, lost = Signal(BUCKET_BITS), Signal(BUCKET_BITS)  # 0 is no bucket
        m.d.sync += [counted.eq(Mux(moved, came, 0)), lost.eq(Mux(moved, went, 0))]
        arrivals, (of_counted, arrived) = self._counts(m, "arrivals", [came, went], counted, wiped, wipe)
        departures, (departed,) = self._counts(m, "departures", [went], lost, wiped, wipe)
        m.d.comb += [arrivals.eq(of_counted + 1), departures.eq(departed + 1)]

        fills, empties = Signal(BUCKET_BITS), Signal(BUCKET_BITS)
        m.d.sync += [fills.eq(counted), empties.eq(Mux(departures == arrived, lost, 0))]
        filled = Signal(self.buckets)
        m.d.sync += filled.eq((filled | 1 << fills) & ~(1 << empties | 1))
        self._search(m, filled)
        return m

    def _bucket(self, m, name, priority, valid):
        """Its number, two cycles later; 0 if there is no change."""
        large, place = last(priority[MANTISSA_BITS:]) if self.priority_bits > MANTISSA_BITS else (Const(0), Const(0, 1))
        held, exponent = (
            Signal(self.priority_bits, name=f"{name}_held"),
            Signal(range(self.priority_bits), name=f"{name}_exponent"),
        )
        bucket = Signal(BUCKET_BITS, name=f"{name}_bucket")
        m.d.sync += [held.eq(Mux(valid, priority, 0)), exponent.eq(Mux(valid & large, place + 1, 0))]
        mantissa = (held >> exponent)[:MANTISSA_BITS]
        m.d.sync += bucket.eq((exponent << 3) + mantissa)
        return bucket

    def _counts(self, m, name, asked, counted, wiped, wipe):
        """A memory of counts, of which those of `asked` are shown a cycle later. Returns what becomes of that of
        `counted`, and what is shown. That of bucket 0 is anything."""
        bits = exact_log2(self.capacity)
        m.submodules[name] = memory = Memory(
            shape=bits, depth=1 << BUCKET_BITS, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        write, after = memory.write_port(), Signal(bits, name=f"{name}_after")
        reads = [memory.read_port(transparent_for=[write]) for _ in asked]
        m.d.comb += [read.addr.eq(bucket) for read, bucket in zip(reads, asked, strict=True)]
        m.d.comb += [write.addr.eq(Mux(wiped, counted, wipe)), write.data.eq(Mux(wiped, after, 0)), write.en.eq(1)]
        return after, [read.data for read in reads]

    def _search(self, m, filled):
        """In each group, then among the groups."""
        parts = [(at, filled[at : at + GROUP]) for at in range(0, self.buckets, GROUP)]
        any, lows, highs = Signal(len(parts)), [], []
        for k, (at, part) in enumerate(parts):
            for ends, search in ((lows, first), (highs, last)):
                ends.append(Signal(range(GROUP), name=f"{search.__name__}_of_{at}"))
                m.d.sync += ends[-1].eq(search(part)[1])
            m.d.sync += any[k].eq(part != 0)
        for end, ends, search in ((self.lowest, lows, first), (self.highest, highs, last)):
            group = search(any)[1] if len(parts) > 1 else Const(0, 1)
            m.d.sync += end.eq(Mux(any != 0, Cat(data.ArrayLayout(4, len(parts))(Cat(ends))[group], group), 0))
