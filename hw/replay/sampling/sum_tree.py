"""The sum tree: one operation a cycle, updates and draws in any mix, each as if those before it were done."""

import functools
from itertools import accumulate, pairwise
from math import prod
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.replay.sampling.histogram import Change
from hw.replay.sampling.multiplier import FRACTION_BITS, LATENCY, multiply_high
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["TreeResult", "Operation", "SumTree", "fanouts"]


def fanouts(capacity: int, arity: int) -> list[int]:
    """Children of a node, level by level from the root, which has fewer where the capacity is no power of the arity."""
    bits, each = exact_log2(capacity), exact_log2(arity)
    return [1 << (bits % each or each)] + [arity] * (-(-bits // each) - 1)


def selected(here, values):
    """The value whose bit in `here` is set."""
    return functools.reduce(or_, (Mux(bit, value, 0) for bit, value in zip(here, values, strict=True)))


class Operation(data.StructLayout):
    """An update of `leaf` from priority `old` to `new`, or, if it `draws`, a draw at `fraction` 2^-64 of the total. An
    update that `keeps`, which only a phased tree knows, leaves the leaf as it is, whatever `new` says."""

    def __init__(self, capacity: int, priority_bits: int):
        super().__init__(
            {
                "draws": 1,
                "keeps": 1,
                "leaf": range(capacity),
                "old": priority_bits,
                "new": priority_bits,
                "fraction": FRACTION_BITS,
            }
        )


class TreeResult(data.StructLayout):
    """What became of an operation: the leaf, its priority now, and the total behind an update or of a draw. `empty`:
    nothing could be drawn, since all priorities are 0."""

    def __init__(self, capacity: int, priority_bits: int):
        super().__init__(
            {
                "draws": 1,
                "empty": 1,
                "leaf": range(capacity),
                "priority": priority_bits,
                "total": priority_bits + exact_log2(capacity),
            }
        )


class SumTree(wiring.Component):
    """Unsigned priorities of `capacity` leaves; a draw finds the leaf in whose half-open interval of the running sum
    its position lies. Exact: integers neither drift nor overflow, and a leaf of priority 0 is never drawn.

    A node is a row of memory with one sum for each child: inner rows hold for each child the sum of its elder siblings,
    so a draw compares them all at once and an update adds its difference to the younger ones; the leaves' rows hold
    priorities. Each level has a memory of its own and is a few stages of one pipe, through which updates and draws go
    down alike: so each meets every level in the order in which they came.

    `operations` are taken one a cycle; `found` comes for each, in order, `latency` cycles later, and cannot be held up.
    `total` is the sum of all priorities. The old priority comes with an update, from a table in front, which sees
    updates in the same order. `phased`: there is no such table; the leaves' memory is read and written where an
    operation enters (`old` means nothing), so an update waits until all draws before it have read their leaves, which
    is `drain` cycles after the last of them was taken; draws never wait. `entered` comes for each update, `entry`
    cycles after it was taken, with the old priority wherever that is from.

    All priorities are 0 after `ready` rises for the first time: `capacity` / `arity` cycles after a reset, in which the
    memories are wiped. The truth is `sim/model/replay/tree.py`.
    """

    def __init__(self, *, capacity: int, priority_bits: int = 27, arity: int = 16, phased: bool = False):
        def demand(good: bool, name: str, rule: str, value: object) -> None:
            if not good:
                raise ValueError(f"SumTree {name} must be {rule}, not {value!r}")

        power = lambda value: isinstance(value, int) and value > 0 and not value & (value - 1)
        demand(power(arity) and 2 <= arity <= 64, "arity", "a power of two from 2 to 64", arity)
        demand(
            power(capacity) and 2 * arity <= capacity <= 1 << 24,
            "capacity",
            f"a power of two from {2 * arity} to {1 << 24}",
            capacity,
        )
        demand(1 <= priority_bits <= 36, "priority_bits", "1 to 36", priority_bits)
        self.capacity, self.priority_bits, self.arity, self.phased = capacity, priority_bits, arity, phased
        self.fanouts = fanouts(capacity, arity)
        super().__init__(
            {
                "operations": In(stream.Signature(Operation(capacity, priority_bits))),
                "found": Out(stream.Signature(TreeResult(capacity, priority_bits), always_ready=True)),
                "total": Out(priority_bits + exact_log2(capacity)),
                "entered": Out(stream.Signature(Change(priority_bits), always_ready=True)),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from an operation to what it found."""
        return self._leaf_stage + 5

    @property
    def entry(self) -> int:
        """Cycles from an update until its old priority is known."""
        return 2 * self.phased

    @property
    def drain(self) -> int:
        """Cycles from a draw until an update may follow."""
        return self._leaf_stage + 1 if self.phased else 1

    @property
    def _leaf_stage(self) -> int:
        """Cycles from an operation until it is at the leaves."""
        return self.entry + 1 + LATENCY + 1 + 3 * (len(self.fanouts) - 2)

    def bits_below(self, level: int) -> int:
        """Address bits of the leaves below a child at this level."""
        return sum(map(exact_log2, self.fanouts[level + 1 :]))

    def sum_bits(self, level: int) -> int:
        """Of the sum of a node at this level."""
        return self.priority_bits + self.bits_below(level) + exact_log2(self.fanouts[level])

    def elaborate(self, platform):
        m = Module()
        wiped, wipe = Signal(), Signal(range(self.capacity // self.arity))
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == self.capacity // self.arity - 1)]
        memory = Memory(
            shape=data.ArrayLayout(self.priority_bits, self.arity),
            depth=self.capacity // self.arity,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN,
        )
        m.submodules.leaves = memory
        leaves = memory.read_port(), memory.write_port(granularity=1)
        drawn = Signal()
        step = self._enter(m, wiped, leaves, drawn)
        step = self._place(m, step)
        step = self._root(m, step)
        for level in range(1, len(self.fanouts) - 1):
            step = self._level(m, step, level, wiped, wipe)
        m.d.comb += drawn.eq(step.valid & step.draws)
        self._leaf(m, step, leaves, wiped, wipe)
        return m

    def _enter(self, m, wiped, leaves, drawn):
        """Operations as steps, with the total behind an update or of a draw. drawn: a draw reads its leaf."""
        asked, ready = self.operations.payload, self.operations.ready
        entering = Signal(self.operations.payload.shape())
        valid = Signal()
        if self.phased:
            # An update reads and writes its leaf here; draws that are on their way must not see it.
            read, write = leaves
            drawing, row = Signal(range(self._leaf_stage + 1)), asked.leaf >> exact_log2(self.arity)
            held, there = Signal.like(asked), Signal()
            taken = self.operations.valid & ready
            m.d.comb += ready.eq(wiped & (asked.draws | (drawing == 0)))
            old = read.data[held.leaf[: exact_log2(self.arity)]]
            m.d.sync += [
                drawing.eq(drawing + (taken & asked.draws) - drawn),
                held.eq(asked),
                there.eq(taken),
                entering.eq(held),
                valid.eq(there),
                entering.old.eq(old),
                entering.new.eq(Mux(held.keeps, old, held.new)),
            ]
            with m.If(taken & ~asked.draws):
                m.d.comb += [
                    read.addr.eq(row),
                    write.addr.eq(row),
                    write.en.eq(Mux(asked.keeps, 0, 1 << asked.leaf[: exact_log2(self.arity)])),
                ]
                m.d.comb += [place.eq(asked.new) for place in write.data]
        else:
            m.d.comb += [ready.eq(wiped), valid.eq(self.operations.valid & ready), entering.eq(asked)]
        m.d.comb += [
            self.entered.valid.eq(valid & ~entering.draws),
            self.entered.payload.old.eq(entering.old),
            self.entered.payload.new.eq(entering.new),
        ]
        step, change = Signal(self._step(0)), Signal(signed(self.priority_bits + 1))
        after = Signal.like(self.total)
        m.d.comb += [
            change.eq(entering.new - entering.old),
            after.eq(self.total + Mux(valid & ~entering.draws, change, 0)),
        ]
        m.d.sync += [
            self.total.eq(after),
            step.valid.eq(valid),
            step.draws.eq(entering.draws),
            step.leaf.eq(Mux(entering.draws, 0, entering.leaf)),
            step.change.eq(change),
            step.priority.eq(entering.new),
            step.total.eq(after),
            step.fraction.eq(entering.fraction),
        ]
        return step

    def _step(self, level):
        """An operation on its way to a level: `leaf` has the bits that are known, `rest` is where a draw wants to be
        within the node."""
        return data.StructLayout(
            {
                "valid": 1,
                "draws": 1,
                "leaf": range(self.capacity),
                "change": signed(self.priority_bits + 1),
                "priority": self.priority_bits,
                "total": self.total.shape(),
                "rest": self.sum_bits(level),
                **({} if level else {"fraction": FRACTION_BITS}),
            }
        )

    def _place(self, m, step):
        """Where in the total a draw wants to be."""
        rest = multiply_high(m, step.fraction, step.total, name="place")
        for stage in range(LATENCY):
            before, step = step, Signal(self._step(0), name=f"placing_{stage}")
            m.d.sync += [
                getattr(step, name).eq(getattr(before, name))
                for name in ("valid", "draws", "leaf", "change", "priority", "total")
            ]
        placed = Signal.like(step)
        m.d.comb += [placed.eq(step), placed.rest.eq(rest)]
        return placed

    def _pass(self, m, step, level, sums):
        """The step to the next level, and the node's sums behind it. sums: for each child but the first that of its
        elder siblings."""
        low, bits = self.bits_below(level), exact_log2(self.fanouts[level])
        into, after = (
            Signal(self._step(level + 1), name=f"into_{level + 1}"),
            [Signal.like(old, name=f"after_{level}") for old in sums],
        )
        # What is left behind each child's begin, below 0 if that is not reached. The sums rise from child to child, so
        # those that are reached are the first ones, and where that changes is the child.
        lefts = [step.rest, *(Signal(signed(self.sum_bits(level) + 1), name=f"left_{level}") for _ in sums)]
        m.d.comb += [left.eq(step.rest - old) for left, old in zip(lefts[1:], sums, strict=True)]
        reached = Cat(~left[-1] for left in lefts[1:])
        here = Signal(len(lefts), name=f"here_{level}")
        chosen, rest = Signal(bits, name=f"chosen_{level}"), Signal(self.sum_bits(level + 1), name=f"rest_{level + 1}")
        m.d.comb += [
            here.eq(Cat(Const(1, 1), reached) & ~Cat(reached, Const(0, 1))),
            chosen.eq(selected(here, range(len(lefts)))),
            rest.eq(selected(here, (left[: len(rest)] for left in lefts))),
        ]
        mine = step.leaf[low : low + bits]
        m.d.comb += [
            new.eq(old + Mux(~step.draws & step.valid & (mine <= k), step.change, 0))
            for k, (old, new) in enumerate(zip(sums, after))
        ]
        m.d.comb += [
            getattr(into, name).eq(getattr(step, name)) for name in ("valid", "draws", "change", "priority", "total")
        ]
        m.d.comb += [into.leaf.eq(step.leaf | Mux(step.draws, chosen, 0) << low), into.rest.eq(rest)]
        return into, after

    def _root(self, m, step):
        sums = [Signal(self.sum_bits(0), name=f"root_{k}") for k in range(1, self.fanouts[0])]
        into, after = self._pass(m, step, 0, sums)
        m.d.sync += [old.eq(new) for old, new in zip(sums, after)]
        out = Signal.like(into, name="step_1")
        m.d.sync += out.eq(into)
        return out

    def _level(self, m, step, level, wiped, wipe):
        """Three stages: a row is asked for, is there, is passed. One that was just passed, or is on its way to the
        memory, is taken from there."""
        rows, low = prod(self.fanouts[:level]), self.bits_below(level - 1)
        row_shape = data.ArrayLayout(self.sum_bits(level), self.fanouts[level] - 1)
        m.submodules[f"level_{level}"] = memory = Memory(
            shape=row_shape, depth=rows, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write])
        here, passing, out = (Signal.like(step, name=f"{name}_{level}") for name in ("here", "passing", "written"))
        sums, written = Signal(row_shape, name=f"sums_{level}"), Signal(row_shape, name=f"written_sums_{level}")
        writes = Signal(name=f"writes_{level}")
        into, after = self._pass(m, passing, level, list(sums))
        new = Cat(after)
        same = lambda one, other: one.leaf[low:] == other.leaf[low:]
        updates = passing.valid & ~passing.draws
        m.d.comb += read.addr.eq(step.leaf[low:])
        m.d.sync += [
            here.eq(step),
            passing.eq(here),
            out.eq(passing),
            writes.eq(updates),
            written.eq(new),
            sums.eq(Mux(updates & same(passing, here), new, Mux(writes & same(out, here), written, read.data))),
        ]
        m.d.comb += [
            write.addr.eq(Mux(wiped, out.leaf[low:], wipe)),
            write.data.eq(Mux(wiped, written.as_value(), 0)),
            write.en.eq(writes | ~wiped),
        ]
        passed = Signal.like(into, name=f"step_{level + 1}")
        m.d.sync += passed.eq(into)
        return passed

    def _leaf(self, m, step, leaves, wiped, wipe):
        """A draw's row is read and summed up in two goes, then compared; an update writes its place of the row while
        others would read it."""
        read, write = leaves
        bits, level = exact_log2(self.arity), len(self.fanouts) - 1
        row, group = step.leaf >> bits, 1 << -(-bits // 2)
        with m.If(step.valid & step.draws if self.phased else step.valid):
            m.d.comb += read.addr.eq(row)
        if not self.phased:
            m.d.comb += [write.addr.eq(row), write.en.eq(Mux(step.valid & ~step.draws, 1 << step.leaf[:bits], 0))]
            m.d.comb += [place.eq(step.priority) for place in write.data]
        with m.If(~wiped):
            m.d.comb += [write.addr.eq(wipe), write.en.eq(-1), write.data.eq(0)]

        wide = self.sum_bits(level)
        steps = [step, *(Signal.like(step, name=f"leaf_{k}") for k in range(4))]
        m.d.sync += [after.eq(before) for before, after in pairwise(steps)]
        rows = [Signal(read.data.shape(), name=f"row_{k}") for k in range(3)]
        m.d.sync += [after.eq(before) for before, after in pairwise([read.data, *rows])]
        within = [Signal(wide, name=f"within_{k}") for k in range(self.arity)]
        for start in range(0, self.arity, group):
            m.d.sync += [
                place.eq(sum)
                for place, sum in zip(within[start:], accumulate(rows[0][k] for k in range(start, start + group)))
            ]
        ends = [Signal(wide, name=f"end_{k}") for k in range(self.arity)]
        before = [Const(0), *accumulate(within[start + group - 1] for start in range(0, self.arity - group, group))]
        m.d.sync += [end.eq(before[k // group] + within[k]) for k, end in enumerate(ends)]

        last, drawn = steps[-1], self.found.payload
        # Ends rise, so those that are reached are the first ones, and where that changes is the leaf.
        reached, here, chosen, priority = (
            Signal(self.arity - 1),
            Signal(self.arity),
            Signal(bits),
            Signal(self.priority_bits),
        )
        m.d.comb += [
            reached.eq(Cat(last.rest >= end for end in ends[:-1])),
            here.eq(Cat(Const(1, 1), reached) & ~Cat(reached, Const(0, 1))),
            priority.eq(selected(here, rows[2])),
            chosen.eq(selected(here, range(self.arity))),
        ]
        empty = last.draws & (last.total == 0)
        m.d.sync += [
            self.found.valid.eq(last.valid),
            drawn.draws.eq(last.draws),
            drawn.empty.eq(empty),
            drawn.total.eq(last.total),
            drawn.leaf.eq(Mux(empty, 0, last.leaf | Mux(last.draws, chosen, 0))),
            drawn.priority.eq(Mux(last.draws, priority, last.priority)),
        ]
