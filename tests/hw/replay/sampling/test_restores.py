# amaranth: UnusedElaboratable=no
"""A rebuild beside changes: before a RESTORE any ADDs and UPDATEs, and after it none until its result has come."""

import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from hw.replay.sampling.slots import CommandKind
from iswitch.golden.replay.slots import Handle
from sim.bench.mutant import mutant
from tests.hw.replay.sampling.test_bit_errors import ARITY, CAPACITY, HOLDERS, PRIORITY_BITS, Errors

RESTORE = {"kind": CommandKind.RESTORE.value}


class Rebuild(Errors):
    """A sampler that is rebuilt although some priorities in memory have a bit error."""

    def flip_priority(self, ctx, slot):
        """Flip a bit of a slot's priority, or its parity bit."""
        bit = self.rng.randrange(PRIORITY_BITS + 1)
        if self.dut.single_copy:
            row, bit = (
                Value.cast(self.memories["tree"][0].data[slot // ARITY]),
                slot % ARITY * (PRIORITY_BITS + 1) + bit,
            )
        else:
            row = Value.cast(self.memories["slots"][0].data[slot])
        ctx.set(row, ctx.get(row) ^ 1 << bit)

    def shown(self, handle, priority):
        total, ends = self.summary()
        return handle, priority, total, ends

    async def restore_beside_changes(self, ctx):
        """Run changes and RESTOREs back to back, in groups that end with RESTOREs, until the tree is complete."""
        ctx.set(self.dut.restart, 1)
        await self.tick(ctx)
        ctx.set(self.dut.restart, 0)
        wrong, self.restored = set(self.rng.sample(range(CAPACITY), 12)), 0
        for slot in wrong:
            self.flip_priority(ctx, slot)
        while self.restored < CAPACITY:
            commands, expected = [], []
            for _ in range(self.rng.randrange(8)):
                command, handle, priority = self.expect(self.rng.choice([CommandKind.ADD, CommandKind.UPDATE]))
                wrong.discard(handle.slot)
                commands.append(command)
                expected.append((False, *self.shown(handle, priority)))
            for _ in range(min(self.rng.randint(1, 6), CAPACITY - self.restored)):
                slot, lost = self.restored, self.restored in wrong
                if lost:
                    self.model.tree.update(slot, 0)
                self.restored += 1
                commands.append(RESTORE)
                handle = Handle(slot, 0 if lost else self.model.generations[slot])
                expected.append((lost, *self.shown(handle, self.model.tree.priorities[slot])))
            results = await self.run(ctx, commands)
            assert expected == [
                (bool(result.stale), Handle(result.slot, result.generation), result.priority, result.total, ends)
                for result, _, ends in results
            ]
            assert ctx.get(self.dut.restored) == self.restored and not ctx.get(self.dut.corrupt)


def check(monkeypatch, *, single_copy, seed=1, **modules):
    rebuild = Rebuild(monkeypatch, single_copy=single_copy, seed=seed, **modules)

    async def drive(ctx):
        await rebuild.check(ctx, [CommandKind.ADD], CAPACITY)
        for _ in range(6):
            await rebuild.restore_beside_changes(ctx)
            await rebuild.check(ctx, list(CommandKind)[:4], 40)
            assert not ctx.get(rebuild.dut.corrupt)

    simulator = Simulator(rebuild.dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


@pytest.mark.parametrize("single_copy", [False, True])
def test_changes_may_enter_directly_before_restores_and_a_lost_priority_is_0(single_copy, monkeypatch):
    check(monkeypatch, single_copy=single_copy)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong", "single_copy"),
    [
        ("slots", "checked.slot >= self.restored", "checked.slot > self.restored", False),
        ("slots", "Mux(self.lost, placed.slot, held.slot)", "held.slot", False),
        ("slots", "held_valid & held.changes | self.lost", "held_valid & held.changes", False),
        ("tree", "write.addr.eq(entering.leaf >> exact_log2(self.arity)),", "", True),
        ("tree", "with m.If(held.early):", "with m.If(0):", True),
    ],
)
def test_a_mutant_of_the_rebuild_is_noticed(part, sound, wrong, single_copy, monkeypatch):
    broken = mutant(HOLDERS[part], sound, wrong)
    with pytest.raises(AssertionError):
        check(monkeypatch, single_copy=single_copy, **{part: broken})
