# amaranth: UnusedElaboratable=no
"""A compiled component does what the simulated one does, cycle for cycle."""

import random

import numpy as np
import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from sim.bench import compiled
from sim.bench.compiled import Compiled
from sim.bench.stream import Bench
from sim.emulator.toolchain import CompileError

FIELDS = data.StructLayout({"at": 3, "number": 64, "flags": data.ArrayLayout(1, 2)})


class Shelf(Component):
    """A memory that is written when asked, with the sum of two flags beside, and busy in every third cycle."""

    def __init__(self, fields=FIELDS):
        super().__init__(
            {
                "items": In(stream.Signature(fields)),
                "always": Out(stream.Signature(4, always_valid=True, always_ready=True)),
                "there": Out(64),
                "below": Out(signed(8)),
                "through": Out(3),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=64, depth=8, init=[])
        read, write = memory.read_port(), memory.write_port()
        item, third = self.items.payload, m.d.sync
        cycle = self.always.payload
        m.d.comb += [
            read.addr.eq(item.at),
            write.addr.eq(item.at),
            write.data.eq(item.number),
            self.items.ready.eq(cycle % 3 != 2),
            write.en.eq(self.items.valid & self.items.ready),
            self.there.eq(read.data),
            self.through.eq(item.flags[0] + item.flags[1]),
        ]
        third += [cycle.eq(cycle + 1), self.below.eq(self.below - 1)]
        return m


def simulated(rows: np.ndarray) -> np.ndarray:
    dut, seen = Shelf(), []

    async def drive(ctx):
        for row in rows:
            item = {
                "at": row["items_payload_at"],
                "number": row["items_payload_number"],
                "flags": [row["items_payload_flags_0"], row["items_payload_flags_1"]],
            }
            ctx.set(
                dut.items.payload,
                {name: [*map(int, value)] if isinstance(value, list) else int(value) for name, value in item.items()},
            )
            ctx.set(dut.items.valid, int(row["items_valid"]))
            seen.append(
                tuple(
                    map(ctx.get, (dut.items.ready, dut.always.payload, dut.there, dut.below.as_unsigned(), dut.through))
                )
            )
            await ctx.tick()

    Bench(dut).drive(drive)
    return np.array(seen, Compiled(Shelf()).outputs)


def some_rows(count: int) -> np.ndarray:
    rng = random.Random(1)
    return Compiled(Shelf()).rows(
        count,
        items_payload_at=[rng.randrange(8) for _ in range(count)],
        items_payload_number=[rng.getrandbits(64) for _ in range(count)],
        items_payload_flags_0=[rng.randrange(2) for _ in range(count)],
        items_payload_flags_1=[rng.randrange(2) for _ in range(count)],
        items_valid=[rng.randrange(2) for _ in range(count)],
    )


def test_every_cycle_is_as_in_the_simulator():
    rows = some_rows(200)
    assert Compiled(Shelf()).inputs.names == (
        "items_payload_at",
        "items_payload_number",
        "items_payload_flags_0",
        "items_payload_flags_1",
        "items_valid",
        "rst",
    )
    assert Compiled(Shelf()).outputs.names == ("items_ready", "always_payload", "there", "below", "through")
    whole = Compiled(Shelf()).run(rows)
    assert np.array_equal(whole, simulated(rows))
    shelf = Compiled(Shelf())
    parts = [shelf.run(rows[begin : begin + 7]) for begin in range(0, 200, 7)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_rows_are_held_until_an_output_lets_them_in():
    shelf = Compiled(Shelf())
    seen = shelf.run(
        shelf.rows(4, items_valid=1, items_payload_at=range(4), items_payload_number=[10, 11, 12, 13]),
        held_by="items_ready",
        cycles=9,
    )
    assert seen["items_ready"].tolist() == [1, 1, 0, 1, 1]
    assert shelf.run(shelf.rows(5, items_payload_at=[0, 1, 2, 3, 0]))["there"].tolist()[1:] == [10, 11, 12, 13]
    with pytest.raises(TimeoutError, match=r"^Compiled took 2 of 4 rows in 3 cycles$"):
        Compiled(Shelf()).run(shelf.rows(4), held_by="items_ready", cycles=3)


def test_reset_is_an_input():
    shelf = Compiled(Shelf())
    assert shelf.run(shelf.rows(6, rst=[0, 0, 0, 1, 0, 0]))["always_payload"].tolist() == [0, 1, 2, 3, 0, 1]


def test_instances_are_independent():
    one, other = Compiled(Shelf()), Compiled(Shelf())
    one.run(one.rows(5))
    assert other.run(other.rows(1))["always_payload"].tolist() == [0]


def test_compiled_once(monkeypatch):
    Compiled(Shelf())
    monkeypatch.setattr(compiled, "shared", None)
    Compiled(Shelf())


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "BUILD", tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler"):
        Compiled(Shelf())


def test_wide_port_wrong():
    with pytest.raises(
        ValueError,
        match=r"^Compiled ports must have at most 64 bits, or fields that have, not 65 as items_payload_wide$",
    ):
        Compiled(Shelf(data.StructLayout({"wide": 65})))


def test_rows_wrong():
    shelf = Compiled(Shelf())
    with pytest.raises(ValueError, match=r"^Compiled rows must be one row of .* each cycle, not uint64 of shape"):
        shelf.run(np.zeros(3, np.uint64))


def test_held_by_wrong():
    shelf = Compiled(Shelf())
    with pytest.raises(ValueError, match=r"^Compiled held_by must be one of items_ready, .*, not 'ready'$"):
        shelf.run(shelf.rows(1), held_by="ready", cycles=1)


def test_cycles_wrong():
    shelf = Compiled(Shelf())
    with pytest.raises(ValueError, match=r"^Compiled cycles must be said when rows are held$"):
        shelf.run(shelf.rows(1), held_by="items_ready")
