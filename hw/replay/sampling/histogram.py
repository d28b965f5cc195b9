"""The smallest and the largest bucket that holds a priority, exact while a priority changes in each cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["BUCKET_BITS", "Change", "Histogram", "lowest_one", "highest_one"]

BUCKET_BITS = 8
"""Bits of a bucket's number. The largest number, 239, is that of priorities of 32 bits that begin with four ones."""
MANTISSA_BITS = 4
GROUP = 16
"""Buckets that one cycle searches."""


class Change(data.StructLayout):
    """A priority changes from `old` to `new`; 0 is no priority."""

    def __init__(self, priority_bits: int):
        super().__init__({"old": priority_bits, "new": priority_bits})


def lowest_one(bits, start: int = 0, end: int | None = None):
    """Return whether any bit is 1, and the index of the lowest one, as a balanced tree."""
    end = len(bits) if end is None else end
    if end - start == 1:
        return bits[start], Const(0, 0)
    half = 1 << ceil_log2(end - start) - 1
    low, high = lowest_one(bits, start, start + half), lowest_one(bits, start + half, end)
    return low[0] | high[0], Cat(Mux(low[0], low[1], high[1])[: ceil_log2(half)], ~low[0])


def highest_one(bits, start: int = 0, end: int | None = None):
    """Return whether any bit is 1, and the index of the highest one, as a balanced tree."""
    end = len(bits) if end is None else end
    if end - start == 1:
        return bits[start], Const(0, 0)
    half = 1 << ceil_log2(end - start) - 1
    low, high = highest_one(bits, start, start + half), highest_one(bits, start + half, end)
    return low[0] | high[0], Cat(Mux(high[0], high[1], low[1])[: ceil_log2(half)], high[0])


class Histogram(wiring.Component):
    """Buckets of the priorities above 0 of `capacity` items: the numbers of the `lowest` and the `highest` bucket that
    is not empty, or 0 if all are empty.

    Latency: `lowest` and `highest` include a change `LATENCY` cycles after it was taken. One change in each cycle; the
    input never stalls once it is ready, 2^`BUCKET_BITS` cycles after a reset, in which counts are wiped. All priorities
    are 0 at first, and the old priority of a change must be the item's. `restart`, while no change is inside, wipes the
    counts again. Each count has a parity bit, and `corrupted` is 1 for one cycle if a count that was read has the wrong
    parity, `LATENCY` cycles after the change at the latest.

    A bucket is not empty if more priorities entered than left. Memories count both modulo `capacity`. An arrival always
    makes its bucket not empty. After a departure less than `capacity` priorities are left, so the counts are compared:
    equal counts mean an empty bucket. A register for each bucket says whether it is empty. The golden model is
    `host/iswitch/golden/replay/histogram.py`.
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
                "restart": In(1),
                "corrupted": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        wiped, wipe = Signal(), Signal(BUCKET_BITS)
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == -1 % (1 << BUCKET_BITS))]
        with m.If(self.restart):
            m.d.sync += [wipe.eq(0), wiped.eq(0)]
        m.d.comb += self.changes.ready.eq(wiped)
        entered, left = (
            self._bucket(m, name, getattr(self.changes.payload, field), wiped & self.changes.valid)
            for name, field in (("entered", "new"), ("left", "old"))
        )

        # A change within one bucket changes no count. So the two counts of a change belong to different buckets.
        moved = entered != left
        counted, uncounted = Signal(BUCKET_BITS), Signal(BUCKET_BITS)  # bucket 0 is never counted
        m.d.sync += [counted.eq(Mux(moved, entered, 0)), uncounted.eq(Mux(moved, left, 0))]
        arrivals, arrival_reads = self._counts(m, "arrivals", [entered, left], counted, wiped, wipe)
        departures, departure_reads = self._counts(m, "departures", [left], uncounted, wiped, wipe)
        of_counted, arrived, departed = (read[:-1] for read in (*arrival_reads, *departure_reads))
        m.d.sync += self.corrupted.eq(
            (counted != 0) & arrival_reads[0].xor()
            | (uncounted != 0) & (arrival_reads[1].xor() | departure_reads[0].xor())
        )
        m.d.comb += [arrivals.eq(of_counted + 1), departures.eq(departed + 1)]

        fills, empties = Signal(BUCKET_BITS), Signal(BUCKET_BITS)
        m.d.sync += [fills.eq(counted), empties.eq(Mux(departures == arrived, uncounted, 0))]
        filled = Signal(self.buckets)
        m.d.sync += filled.eq((filled | 1 << fills) & ~(1 << empties | 1))
        with m.If(~wiped):
            m.d.sync += filled.eq(0)
        self._search(m, filled)
        return m

    def _bucket(self, m, name, priority, valid):
        """Return the number of a priority's bucket, two cycles later; 0 if nothing changes."""
        above_mantissa, position = (
            highest_one(priority[MANTISSA_BITS:]) if self.priority_bits > MANTISSA_BITS else (Const(0), Const(0, 1))
        )
        held, exponent = (
            Signal(self.priority_bits, name=f"{name}_held"),
            Signal(range(self.priority_bits), name=f"{name}_exponent"),
        )
        bucket = Signal(BUCKET_BITS, name=f"{name}_bucket")
        m.d.sync += [held.eq(Mux(valid, priority, 0)), exponent.eq(Mux(valid & above_mantissa, position + 1, 0))]
        mantissa = (held >> exponent)[:MANTISSA_BITS]
        m.d.sync += bucket.eq((exponent << 3) + mantissa)
        return bucket

    def _counts(self, m, name, buckets_read, counted, wiped, wipe):
        """Build a memory of counts. Return a signal for the new count of bucket `counted`, and the counts of
        `buckets_read` with their parity, one cycle later. The count of bucket 0 is undefined."""
        bits = exact_log2(self.capacity)
        m.submodules[name] = memory = Memory(
            shape=bits + 1, depth=1 << BUCKET_BITS, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        write, after = memory.write_port(), Signal(bits, name=f"{name}_after")
        reads = [memory.read_port(transparent_for=[write]) for _ in buckets_read]
        m.d.comb += [read.addr.eq(bucket) for read, bucket in zip(reads, buckets_read, strict=True)]
        m.d.comb += [
            write.addr.eq(Mux(wiped, counted, wipe)),
            write.data.eq(Mux(wiped, Cat(after, after.xor()), 0)),
            write.en.eq(1),
        ]
        return after, [read.data for read in reads]

    def _search(self, m, filled):
        """Find the ends in each group of buckets, then among the groups."""
        groups = [(at, filled[at : at + GROUP]) for at in range(0, self.buckets, GROUP)]
        group_used, lows, highs = Signal(len(groups)), [], []
        for k, (at, group_bits) in enumerate(groups):
            for ends, search in ((lows, lowest_one), (highs, highest_one)):
                ends.append(Signal(range(GROUP), name=f"{search.__name__}_of_{at}"))
                m.d.sync += ends[-1].eq(search(group_bits)[1])
            m.d.sync += group_used[k].eq(group_bits != 0)
        for end, ends, search in ((self.lowest, lows, lowest_one), (self.highest, highs, highest_one)):
            group = search(group_used)[1] if len(groups) > 1 else Const(0, 1)
            m.d.sync += end.eq(Mux(group_used != 0, Cat(data.ArrayLayout(4, len(groups))(Cat(ends))[group], group), 0))
