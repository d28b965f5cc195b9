"""The sum tree: updates and samples in any mix, one in each cycle, each as if all before it were done."""

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
from hw.stream.parity import with_parity

__all__ = ["TreeResult", "Operation", "SumTree", "fanouts"]


def fanouts(capacity: int, arity: int) -> list[int]:
    """Return the number of a node's children for each level from the root. The root has fewer if the capacity is no
    power of the arity."""
    bits, each = exact_log2(capacity), exact_log2(arity)
    return [1 << (bits % each or each)] + [arity] * (-(-bits // each) - 1)


def select_one_hot(here, values):
    """Return the value whose bit in the one-hot `here` is 1."""
    return functools.reduce(or_, (Mux(bit, value, 0) for bit, value in zip(here, values, strict=True)))


class Operation(data.StructLayout):
    """An update of `leaf` from priority `old` to `new`; or, if `is_sample`, a sample at `fraction` / 2^64 of the total.
    An update that `keeps` leaves the leaf as it is and ignores `new`; only a single_copy tree takes such updates.

    While the tree is rebuilt: an update that `restores` returns a leaf to the sums, which do not include the leaf; the
    priority is `new`, or in a single_copy tree that of the leaf. An update that comes `early` is one of a leaf that is
    not restored yet: the leaf changes, and the sums do not. With a table in front of the tree, the table sets `old` of
    the former to 0, and `old` of the latter to `new`."""

    def __init__(self, capacity: int, priority_bits: int):
        super().__init__(
            {
                "is_sample": 1,
                "keeps": 1,
                "restores": 1,
                "early": 1,
                "leaf": range(capacity),
                "old": priority_bits,
                "new": priority_bits,
                "fraction": FRACTION_BITS,
            }
        )


class TreeResult(data.StructLayout):
    """The result of an operation: the leaf, its priority, and the total, which includes an update's change. `empty`: a
    sample found all priorities 0."""

    def __init__(self, capacity: int, priority_bits: int):
        super().__init__(
            {
                "is_sample": 1,
                "empty": 1,
                "leaf": range(capacity),
                "priority": priority_bits,
                "total": priority_bits + exact_log2(capacity),
            }
        )


class SumTree(wiring.Component):
    """Unsigned priorities of `capacity` leaves, sampled in proportion to their priorities.

    A sample finds the leaf in whose half-open interval of the running sum its position lies. The tree is exact:
    integers neither drift nor overflow, and a leaf of priority 0 is never sampled.

    A node is a row of memory. An inner row holds for each child but the first the sum of the siblings before it: a
    sample compares them all at once, and an update adds its difference to those behind its child. Rows of leaves hold
    priorities. Each level has a memory of its own and is a few stages of one pipeline, through which updates and
    samples go down alike: all of them meet every level in the order in which they came.

    Latency: a result comes in `found` `latency` cycles after its operation was taken. One operation in each cycle,
    results in order; `found` must not stall. `total` is the sum of all priorities. `entered` is valid for each update,
    `entry` cycles after it was taken, with the old priority.

    An update brings its old priority from a table in front of the tree, which sees updates in the same order.
    `single_copy` needs no such table: the leaves' memory is read and written where an operation enters, and `old` is
    ignored. Then an update waits until all samples before it have read their leaves, which is `drain` cycles after the
    last of them was taken; samples never wait.

    Each priority and each sum in memory has a parity bit. `corrupted` is 1 for one cycle if an operation has read a
    word with the wrong parity, in the cycle of the operation's result at the latest; the result is then undefined.
    Writing an inner row hides a bit error in the row, so a tree that was corrupt once must be rebuilt. `restart`, while
    no operation is inside, sets the total to 0; then the leaves are restored in order, from leaf 0 on. From a restore
    until its result, all operations must be restores. A node's row is set to 0 when its first leaf is restored. If a
    leaf of a single_copy tree has the wrong parity when it is restored, its priority becomes 0, `lost` is 1 in the
    cycle of `entered`, and the tree is not corrupt.

    All priorities are 0 at first. Not ready for `capacity` / `arity` cycles after a reset, in which the memories are
    wiped. The golden model is `host/iswitch/golden/replay/tree.py`.
    """

    def __init__(self, *, capacity: int, priority_bits: int = 27, arity: int = 16, single_copy: bool = False):
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
        self.capacity, self.priority_bits, self.arity, self.single_copy = capacity, priority_bits, arity, single_copy
        self.fanouts = fanouts(capacity, arity)
        super().__init__(
            {
                "operations": In(stream.Signature(Operation(capacity, priority_bits))),
                "found": Out(stream.Signature(TreeResult(capacity, priority_bits), always_ready=True)),
                "total": Out(priority_bits + exact_log2(capacity)),
                "entered": Out(stream.Signature(Change(priority_bits), always_ready=True)),
                "restart": In(1),
                "lost": Out(1),
                "corrupted": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from an operation to its result."""
        return self._leaf_stage + 5

    @property
    def entry(self) -> int:
        """Cycles from an update to its old priority in `entered`."""
        return 2 * self.single_copy

    @property
    def drain(self) -> int:
        """Cycles from a sample until an update may follow."""
        return self._leaf_stage + 1 if self.single_copy else 1

    @property
    def _leaf_stage(self) -> int:
        """Cycles from an operation until it reaches the leaves."""
        return self.entry + 1 + LATENCY + 1 + 3 * (len(self.fanouts) - 2)

    def bits_below(self, level: int) -> int:
        """Return the number of address bits of the leaves below a child at this level."""
        return sum(map(exact_log2, self.fanouts[level + 1 :]))

    def sum_bits(self, level: int) -> int:
        """Return the number of bits of a node's sum at this level."""
        return self.priority_bits + self.bits_below(level) + exact_log2(self.fanouts[level])

    def elaborate(self, platform):
        m = Module()
        wiped, wipe = Signal(), Signal(range(self.capacity // self.arity))
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == self.capacity // self.arity - 1)]
        memory = Memory(
            shape=data.ArrayLayout(self.priority_bits + 1, self.arity),
            depth=self.capacity // self.arity,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN,
        )
        m.submodules.leaves = memory
        leaves = memory.read_port(), memory.write_port(granularity=1)
        sampled = Signal()
        step, corrupted = self._enter(m, wiped, leaves, sampled)
        step, before = self._place(m, step)
        step = self._root(m, step, before)
        errors = [corrupted]
        for level in range(1, len(self.fanouts) - 1):
            step, corrupted = self._level(m, step, level, wiped, wipe)
            errors.append(corrupted)
        m.d.comb += sampled.eq(step.valid & step.is_sample)
        errors.append(self._leaf(m, step, leaves, wiped, wipe))
        m.d.sync += self.corrupted.eq(Cat(errors).any())
        return m

    def _enter(self, m, wiped, leaves, sampled):
        """Return operations as steps with the total after them, and whether a leaf that was read is corrupt.
        `sampled`: a sample reads its leaf in this cycle."""
        operation, ready = self.operations.payload, self.operations.ready
        entering = Signal(self.operations.payload.shape())
        valid, corrupted = Signal(), Signal()
        if self.single_copy:
            # An update reads and writes its leaf here; samples inside the pipeline must not see it.
            read, write = leaves
            samples_inside, row = Signal(range(self._leaf_stage + 1)), operation.leaf >> exact_log2(self.arity)
            held, held_valid = Signal.like(operation), Signal()
            taken = self.operations.valid & ready
            m.d.comb += ready.eq(wiped & (operation.is_sample | (samples_inside == 0)))
            leaf = read.data[held.leaf[: exact_log2(self.arity)]]
            old, wrong = Signal(self.priority_bits), Signal()
            m.d.comb += [old.eq(leaf), wrong.eq(leaf.xor() & held_valid & ~held.is_sample)]
            m.d.sync += [
                samples_inside.eq(samples_inside + (taken & operation.is_sample) - sampled),
                held.eq(operation),
                held_valid.eq(taken),
                entering.eq(held),
                valid.eq(held_valid),
                entering.old.eq(Mux(held.restores, 0, old)),
                entering.new.eq(Mux(held.restores & wrong, 0, Mux(held.keeps | held.restores, old, held.new))),
                corrupted.eq(wrong & ~held.restores & ~held.early),
                self.lost.eq(wrong & held.restores),
            ]
            with m.If(held.early):
                m.d.sync += entering.old.eq(Mux(held.keeps, old, held.new))
            with m.If(taken & ~operation.is_sample):
                m.d.comb += [
                    read.addr.eq(row),
                    write.addr.eq(row),
                    write.en.eq(
                        Mux(operation.keeps | operation.restores, 0, 1 << operation.leaf[: exact_log2(self.arity)])
                    ),
                ]
                m.d.comb += [place.eq(with_parity(operation.new)) for place in write.data]
            # While leaves are restored, nothing else writes.
            with m.If(self.lost):
                m.d.comb += [
                    write.addr.eq(entering.leaf >> exact_log2(self.arity)),
                    write.en.eq(1 << entering.leaf[: exact_log2(self.arity)]),
                    write.data.eq(0),
                ]
        else:
            m.d.comb += [ready.eq(wiped), valid.eq(self.operations.valid & ready), entering.eq(operation)]
        m.d.comb += [
            self.entered.valid.eq(valid & ~entering.is_sample),
            self.entered.payload.old.eq(entering.old),
            self.entered.payload.new.eq(entering.new),
        ]
        step, change = Signal(self._step(0)), Signal(signed(self.priority_bits + 1))
        after = Signal.like(self.total)
        m.d.comb += [
            change.eq(entering.new - entering.old),
            after.eq(self.total + Mux(valid & ~entering.is_sample, change, 0)),
        ]
        m.d.sync += [
            self.total.eq(after),
            step.valid.eq(valid),
            step.is_sample.eq(entering.is_sample),
            step.restores.eq(entering.restores & ~entering.is_sample),
            step.early.eq(entering.early & ~entering.is_sample),
            step.leaf.eq(Mux(entering.is_sample, 0, entering.leaf)),
            step.change.eq(change),
            step.priority.eq(entering.new),
            step.total.eq(after),
            step.fraction.eq(entering.fraction),
        ]
        with m.If(self.restart):
            m.d.sync += self.total.eq(0)
        return step, corrupted

    def _step(self, level):
        """Return the layout of an operation on its way to a level. `leaf` has the bits that are decided; `rest` is a
        sample's position within the node."""
        return data.StructLayout(
            {
                "valid": 1,
                "is_sample": 1,
                "restores": 1,
                "early": 1,
                "leaf": range(self.capacity),
                "change": signed(self.priority_bits + 1),
                "priority": self.priority_bits,
                "total": self.total.shape(),
                "rest": self.sum_bits(level),
                **({} if level else {"fraction": FRACTION_BITS}),
            }
        )

    def _place(self, m, step):
        """Return the steps with a sample's position within the total in `rest`, and the steps of a cycle before."""
        rest = multiply_high(m, step.fraction, step.total, name="place")
        for stage in range(LATENCY):
            before, step = step, Signal(self._step(0), name=f"placing_{stage}")
            m.d.sync += [
                getattr(step, name).eq(getattr(before, name))
                for name in ("valid", "is_sample", "restores", "early", "leaf", "change", "priority", "total")
            ]
        placed = Signal.like(step)
        m.d.comb += [placed.eq(step), placed.rest.eq(rest)]
        return placed, before

    def _changes(self, m, before, level):
        """Return which sums of a node an update changes: those of the children behind its own. `before`: the step of a
        cycle before."""
        low, fanout = self.bits_below(level), self.fanouts[level]
        changes, mine = Signal(fanout - 1, name=f"changes_{level}"), before.leaf[low : low + exact_log2(fanout)]
        m.d.sync += changes.eq(Cat(~before.is_sample & before.valid & (mine <= k) for k in range(fanout - 1)))
        return changes

    def _pass(self, m, step, level, sums, changes):
        """Return the step to the next level, and the node's `sums` after it. `sums` are, for each child but the first,
        the sum of the siblings before it; those of `changes` change."""
        low, bits = self.bits_below(level), exact_log2(self.fanouts[level])
        into, after = (
            Signal(self._step(level + 1), name=f"into_{level + 1}"),
            [Signal.like(old, name=f"after_{level}") for old in sums],
        )
        # The position relative to each child's begin; below 0 if the position lies before the child. Sums rise from
        # child to child, so the last child that is not behind the position is the one.
        lefts = [step.rest, *(Signal(signed(self.sum_bits(level) + 1), name=f"left_{level}") for _ in sums)]
        m.d.comb += [left.eq(step.rest - old) for left, old in zip(lefts[1:], sums, strict=True)]
        reached = Cat(~left[-1] for left in lefts[1:])
        here = Signal(len(lefts), name=f"here_{level}")
        chosen, rest = Signal(bits, name=f"chosen_{level}"), Signal(self.sum_bits(level + 1), name=f"rest_{level + 1}")
        m.d.comb += [
            here.eq(Cat(Const(1, 1), reached) & ~Cat(reached, Const(0, 1))),
            chosen.eq(select_one_hot(here, range(len(lefts)))),
            rest.eq(select_one_hot(here, (left[: len(rest)] for left in lefts))),
        ]
        m.d.comb += [new.eq(old + Mux(changed, step.change, 0)) for changed, old, new in zip(changes, sums, after)]
        m.d.comb += [
            getattr(into, name).eq(getattr(step, name))
            for name in ("valid", "is_sample", "restores", "early", "change", "priority", "total")
        ]
        m.d.comb += [into.leaf.eq(step.leaf | Mux(step.is_sample, chosen, 0) << low), into.rest.eq(rest)]
        return into, after

    def _root(self, m, step, before):
        sums = [Signal(self.sum_bits(0), name=f"root_{k}") for k in range(1, self.fanouts[0])]
        into, after = self._pass(m, step, 0, sums, self._changes(m, before, 0))
        m.d.sync += [old.eq(new) for old, new in zip(sums, after)]
        with m.If(self.restart):
            m.d.sync += [old.eq(0) for old in sums]
        out = Signal.like(into, name="step_1")
        m.d.sync += out.eq(into)
        return out

    def _level(self, m, step, level, wiped, wipe):
        """Return the steps after an inner level of three stages: read a row, choose its newest copy, pass it; and
        whether a row that was read is corrupt.

        The newest copy is the row that the step before passes, else the row on its way to the memory, else the
        memory's. For the first leaf of a node that is restored, the row is 0.
        """
        rows, low = prod(self.fanouts[:level]), self.bits_below(level - 1)
        row_shape = data.ArrayLayout(self.sum_bits(level), self.fanouts[level] - 1)
        stored_shape = data.ArrayLayout(self.sum_bits(level) + 1, self.fanouts[level] - 1)
        m.submodules[f"level_{level}"] = memory = Memory(
            shape=stored_shape, depth=rows, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write])
        here, passing, out = (Signal.like(step, name=f"{name}_{level}") for name in ("here", "passing", "written"))
        sums, written = Signal(row_shape, name=f"sums_{level}"), Signal(row_shape, name=f"written_sums_{level}")
        writes = Signal(name=f"writes_{level}")
        into, after = self._pass(m, passing, level, list(sums), self._changes(m, here, level))
        new = Cat(after)
        same = lambda one, other: one.leaf[low:] == other.leaf[low:]
        updates = passing.valid & ~passing.is_sample
        # Parity is checked behind a register. The row's own bits are compared, not those of a newer copy.
        begins, checks, corrupted = (Signal(name=f"{name}_{level}") for name in ("begins", "checks", "corrupted"))
        newest_passes, newest_is_written = updates & same(passing, here), writes & same(out, here)
        bypassed = newest_passes | newest_is_written
        parities = Signal(len(sums), name=f"parities_{level}")
        m.d.sync += [
            begins.eq(step.restores & (step.leaf[:low] == 0)),
            checks.eq(here.valid & ~here.early & ~begins & ~bypassed),
            parities.eq(Cat(stored[-1] for stored in read.data)),
            corrupted.eq(checks & Cat(sum.xor() ^ parity for sum, parity in zip(sums, parities)).any()),
        ]
        m.d.comb += read.addr.eq(step.leaf[low:])
        m.d.sync += [
            here.eq(step),
            passing.eq(here),
            out.eq(passing),
            writes.eq(updates),
            written.eq(new),
            sums.eq(Mux(newest_passes, new, Mux(newest_is_written, written, Cat(stored[:-1] for stored in read.data)))),
        ]
        with m.If(begins):
            m.d.sync += sums.eq(0)
        m.d.comb += [
            write.addr.eq(Mux(wiped, out.leaf[low:], wipe)),
            write.data.eq(Mux(wiped, Cat(with_parity(sum) for sum in written), 0)),
            write.en.eq(writes | ~wiped),
        ]
        passed = Signal.like(into, name=f"step_{level + 1}")
        m.d.sync += passed.eq(into)
        return passed, corrupted

    def _leaf(self, m, step, leaves, wiped, wipe):
        """Read a sample's row, sum it up in two stages, and compare. An update writes its place of the row in the cycle
        in which a sample would read it. Return whether a row that was read is corrupt."""
        read, write = leaves
        bits, level = exact_log2(self.arity), len(self.fanouts) - 1
        row, group = step.leaf >> bits, 1 << -(-bits // 2)
        with m.If(step.valid & step.is_sample if self.single_copy else step.valid):
            m.d.comb += read.addr.eq(row)
        if not self.single_copy:
            m.d.comb += [write.addr.eq(row), write.en.eq(Mux(step.valid & ~step.is_sample, 1 << step.leaf[:bits], 0))]
            m.d.comb += [place.eq(with_parity(step.priority)) for place in write.data]
        with m.If(~wiped):
            m.d.comb += [write.addr.eq(wipe), write.en.eq(-1), write.data.eq(0)]

        wide = self.sum_bits(level)
        steps = [step, *(Signal.like(step, name=f"leaf_{k}") for k in range(4))]
        m.d.sync += [after.eq(before) for before, after in pairwise(steps)]
        rows = [Signal(data.ArrayLayout(self.priority_bits, self.arity), name=f"row_{k}") for k in range(3)]
        parities, corrupted = Signal(self.arity, name="leaf_parities"), Signal(name="leaf_corrupted")
        m.d.sync += [
            rows[0].eq(Cat(leaf[:-1] for leaf in read.data)),
            *(after.eq(before) for before, after in pairwise(rows)),
            parities.eq(Cat(leaf[-1] for leaf in read.data)),
            corrupted.eq(
                steps[2].valid
                & steps[2].is_sample
                & Cat(leaf.xor() ^ parity for leaf, parity in zip(rows[0], parities)).any()
            ),
        ]
        within = [Signal(wide, name=f"within_{k}") for k in range(self.arity)]
        for start in range(0, self.arity, group):
            m.d.sync += [
                place.eq(sum)
                for place, sum in zip(within[start:], accumulate(rows[0][k] for k in range(start, start + group)))
            ]
        ends = [Signal(wide, name=f"end_{k}") for k in range(self.arity)]
        before = [Const(0), *accumulate(within[start + group - 1] for start in range(0, self.arity - group, group))]
        m.d.sync += [end.eq(before[k // group] + within[k]) for k, end in enumerate(ends)]

        last, found = steps[-1], self.found.payload
        # Ends rise from leaf to leaf, so the first leaf whose end lies behind the position is the one.
        reached, here, chosen, priority = (
            Signal(self.arity - 1),
            Signal(self.arity),
            Signal(bits),
            Signal(self.priority_bits),
        )
        m.d.comb += [
            reached.eq(Cat(last.rest >= end for end in ends[:-1])),
            here.eq(Cat(Const(1, 1), reached) & ~Cat(reached, Const(0, 1))),
            priority.eq(select_one_hot(here, rows[2])),
            chosen.eq(select_one_hot(here, range(self.arity))),
        ]
        empty = last.is_sample & (last.total == 0)
        m.d.sync += [
            self.found.valid.eq(last.valid),
            found.is_sample.eq(last.is_sample),
            found.empty.eq(empty),
            found.total.eq(last.total),
            found.leaf.eq(Mux(empty, 0, last.leaf | Mux(last.is_sample, chosen, 0))),
            found.priority.eq(Mux(last.is_sample, priority, last.priority)),
        ]
        return corrupted
