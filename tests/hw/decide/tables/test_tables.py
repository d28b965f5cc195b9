"""The tables against dictionaries of their records."""

import random

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.tables.access import Access, records, write_back
from hw.decide.tables.tables import FRAME_WRITES, MEMBERSHIP_WRITES, Tables
from hw.interface.rows import claims_row, job_row, member_row, slot_row
from iswitch.config import Config
from iswitch.wire import SlotState
from sim.bench.stream import Bench

CONFIG = Config(ports=2, bus_bits=64, members=3, jobs=4, window=1, elements=4, queue_bytes=4096)
ROWS = {"job": job_row(CONFIG), "member": member_row(CONFIG), "slot": slot_row(CONFIG), "claims": claims_row(CONFIG)}
ROW_OF = {"sender": "member", "entry": "member", "slot": "slot", "claims": "claims"}
"""Which row a record is part of, if not the job's."""


def fields(layout, bits):
    return {name: bits >> field.offset & (1 << field.width) - 1 for name, field in data.Layout.cast(layout)}


def requests(rng, access, writes):
    """Random pointers and writes of one user of the port `access`."""
    given = {
        "job": rng.randrange(CONFIG.jobs),
        "member": rng.randrange(CONFIG.members),
        "slot": rng.randrange(CONFIG.jobs * CONFIG.slots),
    }
    for name in records(CONFIG):
        if name in writes:
            layout = getattr(access, f"{name}_next").shape()
            given |= {f"{name}_write": rng.randrange(2), f"{name}_next": rng.getrandbits(layout.size)}
    for name in ("acknowledged", "admitted_seq"):
        given[f"{name}_write"] = rng.randrange(1 << CONFIG.members) if rng.random() < 0.5 else 0
        given[f"{name}_next"] = rng.randrange(1 << 32)
    return given | {"heard_write": rng.randrange(1 << CONFIG.members)}


class Stored:
    """The tables as dictionaries: rows by number, and what each member acknowledged and when it was heard."""

    def __init__(self):
        depth = {"member": CONFIG.jobs * CONFIG.members, "slot": CONFIG.jobs * CONFIG.slots}
        self.rows = {
            row: [fields(layout, 0) for _ in range(depth.get(row, CONFIG.jobs))] for row, layout in ROWS.items()
        }
        self.acknowledged, self.heard = ([[0] * CONFIG.members for _ in range(CONFIG.jobs)] for _ in range(2))

    def at(self, given):
        return given | {"claims": given["job"], "member": given["job"] * CONFIG.members + given["member"]}

    def write(self, access, given, tick):
        at = self.at(given)
        for name in records(CONFIG):
            if given.get(f"{name}_write"):
                layout = getattr(access, f"{name}_next").shape()
                row = ROW_OF.get(name, "job")
                self.rows[row][at[row]].update(fields(layout, given[f"{name}_next"]))
        for member in range(CONFIG.members):
            for name in ("acknowledged", "admitted_seq"):
                if given[f"{name}_write"] >> member & 1:
                    self.acknowledged[at["job"]][member] = given[f"{name}_next"]
            if given["heard_write"] >> member & 1:
                self.heard[at["job"]][member] = tick

    def read(self, given):
        at = self.at(given)
        rows = {row: dict(self.rows[row][at[row]]) for row in ROWS}
        if rows["slot"]["incarnation"] != rows["job"]["incarnation"]:
            rows["slot"]["state"] = SlotState.EMPTY
        return rows, list(self.acknowledged[at["job"]]), list(self.heard[at["job"]])


def test_a_row_is_the_last_write_of_the_selected_user():
    """Both users point and write at random in every cycle; only the one selected counts. What membership writes is seen
    a cycle later."""
    rng, dut, stored = random.Random(1), Tables(CONFIG), Stored()

    async def bench(ctx):
        late = None
        for tick in range(600):
            control = rng.randrange(2)
            ctx.set(dut.control, control)
            written_job, written_slot = rng.randrange(CONFIG.jobs), rng.randrange(CONFIG.jobs * CONFIG.slots)
            ctx.set(dut.tick, tick)
            ctx.set(dut.written_job, written_job)
            ctx.set(dut.written_slot, written_slot)
            users = [
                (access, requests(rng, access, writes))
                for access, writes in ((dut.frames, FRAME_WRITES), (dut.membership, MEMBERSHIP_WRITES))
            ]
            if late:
                users[0][1].update({name: 0 for name in users[0][1] if name.endswith("_write")})
            for access, given in users:
                for name, value in given.items():
                    ctx.set(Value.cast(getattr(access, name)), value)
            chosen = users[control][1]
            expected = stored.read(chosen)
            if late:
                stored.write(dut.membership, late, tick)
            if not control:
                stored.write(dut.frames, chosen | {"job": written_job, "slot": written_slot}, tick)
            late = chosen if control else None
            await ctx.tick()
            assert not ctx.get(dut.corrupt)
            for access, _ in users:
                shown = {
                    row: fields(layout, ctx.get(Value.cast(getattr(access, f"{row}_row"))))
                    for row, layout in ROWS.items()
                }
                others = [[ctx.get(one) for one in values] for values in (access.acknowledged, access.heard)]
                assert (shown, *others) == expected

    Bench(dut).drive(bench)


class Renumbering(wiring.Component):
    """A user of the tables that changes one field of an entry."""

    def __init__(self):
        super().__init__({"tables": Out(Access(CONFIG, writes=("entry",))), "number": In(32)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            *write_back(self.tables, "entry"),
            self.tables.entry_next.number.eq(self.number),
            self.tables.entry_write.eq(1),
        ]
        return m


def test_a_user_changes_single_fields_and_leaves_the_others():
    dut = Renumbering()

    async def bench(ctx):
        ctx.set(Value.cast(dut.tables.member_row), (1 << data.Layout.cast(member_row(CONFIG)).size) - 1)
        ctx.set(dut.number, 5)
        entry = dut.tables.entry_next.shape()
        expected = fields(entry, (1 << entry.size) - 1) | {"number": 5}
        assert fields(entry, ctx.get(Value.cast(dut.tables.entry_next))) == expected

    Bench(dut).drive(bench)


@pytest.mark.parametrize("writes", [(), ("entry",), FRAME_WRITES, MEMBERSHIP_WRITES])
def test_a_user_has_a_port_for_each_record_that_it_writes_and_for_no_other(writes):
    names = {name.removesuffix("_write") for name in Access(CONFIG, writes=writes).members if name.endswith("_write")}
    assert names == set(writes)
