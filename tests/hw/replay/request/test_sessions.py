"""Places of sessions: rows that are kept, and the search for a newcomer's, against the golden model; every plausible
mutant is killed."""

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal, Value
from amaranth.sim import Simulator

import hw.replay.request.sessions
from hw.replay.request.sessions import Session, Sessions
from iswitch.config import Replay
from iswitch.golden.replay.service import Service
from iswitch.golden.replay.session import SERIAL, choose_index, find_nonce
from iswitch.golden.replay.session import Session as GoldenSession
from iswitch.wire.replay import SESSION_SILENT_US
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.stream import pack

SIZES = [2, 3, 8, 32]
NONCES = [
    high << 32 | low for high in (0, 1, 5, 7, SERIAL - 2, SERIAL - 1) for low in (0, 1, 5, 7, SERIAL - 2, SERIAL - 1)
]
"""Many differ in one half only."""
ROW_BITS = Session.as_shape().size


def drive(dut, testbench, *processes):
    """`testbench` gets the context and a reset."""
    top, reset = Module(), Signal()
    top.submodules.dut = ResetInserter(reset)(dut)
    simulator = Simulator(top)
    simulator.add_clock(1e-8)

    async def run(ctx):
        await testbench(ctx, reset)

    simulator.add_testbench(run)
    for process in processes:
        simulator.add_process(process)
    simulator.run()


async def write(ctx, dut, index, row):
    ctx.set(dut.index, index)
    ctx.set(Value.cast(dut.row_next), row)
    ctx.set(dut.write, 1)
    await ctx.tick()
    ctx.set(dut.write, 0)


async def rows(ctx, dut):
    found = []
    for k in range(dut.sessions):
        ctx.set(dut.index, k)
        await ctx.tick()
        found.append(ctx.get(Value.cast(dut.row)))
    return found


async def wiped(ctx, dut):
    cycles = 0
    while not ctx.get(dut.wiped):
        await ctx.tick()
        cycles += 1
        assert cycles <= 4 * dut.sessions, "must be wiped"
    return cycles


async def search(ctx, dut, nonce, now):
    """Place, opened, full, and how many cycles that took."""
    for signal, value in ((dut.nonce, nonce), (dut.now_us, now), (dut.search, 1)):
        ctx.set(signal, value)
    await ctx.tick()
    ctx.set(dut.search, 0)
    cycles = 1
    while not ctx.get(dut.found):
        await ctx.tick()
        cycles += 1
        assert cycles < 4 * dut.sessions + 8, "a search must end"
    found = ctx.get(dut.found_index), bool(ctx.get(dut.opened)), bool(ctx.get(dut.full)), cycles
    await ctx.tick()
    assert not ctx.get(dut.found), "found must be a pulse"
    return found


def place(rng, now, nonce):
    """Open or not, heard about the border of what is silence, or at any time."""
    ago = rng.choice(
        [
            0,
            1,
            SESSION_SILENT_US - 1,
            SESSION_SILENT_US,
            SESSION_SILENT_US + 1,
            SERIAL // 2,
            SERIAL - 1,
            rng.getrandbits(32),
        ]
    )
    return GoldenSession(open=rng.random() < 0.8, nonce=nonce, heard_us=(now - ago) % SERIAL)


def check_search(sessions, *, part=Sessions, cached_answers=1, count=150, seed=1):
    """Several searches at each table, which stays as it is; times anywhere on the circle."""
    rng, dut = random.Random(seed), part(sessions=sessions, cached_answers=cached_answers)
    seen = set()

    async def testbench(ctx, _):
        await wiped(ctx, dut)
        for _ in range(count):
            now = rng.choice([0, 1, SERIAL - 1, SESSION_SILENT_US, rng.getrandbits(32)])
            places = [place(rng, now, nonce) for nonce in rng.sample(NONCES, sessions)]
            if rng.random() < 0.4:  # none is free, and perhaps none silent
                places = [one._replace(open=True, heard_us=rng.choice([one.heard_us, now])) for one in places]
            table = [
                pack(
                    Session,
                    {
                        "open": one.open,
                        "nonce": one.nonce,
                        "heard": one.heard_us,
                        "next": k,
                        "written": rng.getrandbits(32),
                    },
                )
                for k, one in enumerate(places)
            ]
            for k, row in enumerate(table):
                await write(ctx, dut, k, row)
            for nonce in (rng.choice(places).nonce, *rng.sample(NONCES, 2)):
                where, opened, full, cycles = await search(ctx, dut, nonce, now)
                held, offered = find_nonce(places, nonce), choose_index(places, now)
                assert (opened, full) == (held is not None, held is None and offered is None)
                assert full or where == (offered if held is None else held)
                assert cycles == 2 * sessions + 3
                seen.add((opened, full, held is None and offered is not None and places[offered].open))
            assert await rows(ctx, dut) == table

    drive(dut, testbench)
    return seen


@pytest.mark.parametrize("sessions", SIZES)
def test_a_search_finds_what_the_model_finds(sessions):
    seen = check_search(sessions)
    assert len(seen) == 4 or sessions == 32, "opened, full, a free place, a silent one"


def test_clients_whose_nonces_share_a_half_are_distinguished():
    dut = Sessions(sessions=3, cached_answers=4)

    async def testbench(ctx, _):
        await wiped(ctx, dut)
        for k, nonce in enumerate((5, 1 << 32 | 5, 5 << 32)):
            await write(ctx, dut, k, pack(Session, {"open": 1, "nonce": nonce}))
        for k, nonce in enumerate((5, 1 << 32 | 5, 5 << 32)):
            assert (await search(ctx, dut, nonce, 0))[:3] == (k, True, False)
        assert (await search(ctx, dut, 6, 0))[1:3] == (False, True)

    drive(dut, testbench)


def check_bit_errors(monkeypatch, *, module=hw.replay.request.sessions, sessions=3, count=60):
    """A row with a bit error is no client's, until it is written; it is seen by a read and by each search."""
    memories = keep_memories(monkeypatch, module)
    rng, dut, seen = random.Random(3), module.Sessions(sessions=sessions, cached_answers=1), []

    async def watch(ctx):
        async for _, _, corrupt in ctx.tick().sample(dut.searched_corrupt):
            seen.append(corrupt)

    async def testbench(ctx, _):
        await wiped(ctx, dut)
        for k in range(sessions):
            await write(ctx, dut, k, 0)
        for step in range(count):
            now = rng.getrandbits(32)
            places = [place(rng, now, nonce) for nonce in rng.sample(NONCES, sessions)]
            for k, one in enumerate(places):
                await write(ctx, dut, k, pack(Session, {"open": one.open, "nonce": one.nonce, "heard": one.heard_us}))
            for k in rng.sample(range(sessions), rng.randint(0, sessions)):
                # Bit 0 says that the row is open, the last bit is the parity; the bits after `open` are the port and
                # the nonce.
                flip(ctx, memories[0], k, rng.choice([0, ROW_BITS, rng.randrange(ROW_BITS + 1)]))
                places[k] = places[k]._replace(corrupt=True)
            for k in rng.sample(range(sessions), sessions):
                ctx.set(dut.index, k)
                await ctx.tick().repeat(2)
                assert ctx.get(dut.corrupt) == places[k].corrupt
            assert not any(seen)
            where, opened, full, _ = await search(ctx, dut, places[step % sessions].nonce, now)
            held, offered = find_nonce(places, places[step % sessions].nonce), choose_index(places, now)
            assert (opened, full) == (held is not None, held is None and offered is None)
            assert full or where == (offered if held is None else held)
            assert sum(seen) == sum(one.corrupt for one in places)
            seen.clear()

    drive(dut, testbench, watch)


@pytest.mark.parametrize("sessions", [2, 3, 8])
def test_a_row_with_a_bit_error_is_no_clients_until_it_is_written(sessions, monkeypatch):
    check_bit_errors(monkeypatch, sessions=sessions)


def check_rows(sessions, *, part=Sessions, cached_answers=4):
    """Rows are kept one by one until a reset, after which all places are as the model's are at first."""
    (place, *others), size = Service(Replay(sessions=sessions, cached_answers=cached_answers)).sessions, sessions
    assert others == [place] * (size - 1) and place == GoldenSession(next=place.next)
    unused = [pack(Session, {"next": place.next})] * size
    rng, dut = random.Random(2), part(sessions=sessions, cached_answers=cached_answers)

    async def testbench(ctx, reset):
        assert await wiped(ctx, dut) == sessions
        assert await rows(ctx, dut) == unused
        rows_kept = [rng.getrandbits(ROW_BITS) for _ in range(sessions)]
        for k in rng.sample(range(sessions), sessions):
            await write(ctx, dut, k, rows_kept[k])
        assert await rows(ctx, dut) == rows_kept
        for k in range(sessions):
            rows_kept[k] = rng.getrandbits(ROW_BITS)
            await write(ctx, dut, k, rows_kept[k])
            assert await rows(ctx, dut) == rows_kept
        for into in range(2 * sessions + 4):  # a reset at any moment of a search
            for signal, value in ((dut.nonce, 1), (dut.search, 1)):
                ctx.set(signal, value)
            await ctx.tick()
            ctx.set(dut.search, 0)
            await ctx.tick().repeat(into + 1)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(dut.wiped)
            await wiped(ctx, dut)
            assert await rows(ctx, dut) == unused
            for k in range(sessions):
                await write(ctx, dut, k, rng.getrandbits(ROW_BITS))

    drive(dut, testbench)


@pytest.mark.parametrize("sessions", [2, 3, 8])
def test_rows_are_kept_until_a_reset_wipes_them(sessions):
    check_rows(sessions)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("~is_free & (row.nonce", "(row.nonce"),
        ("row.nonce == self.nonce", "row.nonce[:32] == self.nonce[:32]"),
        ("row.nonce == self.nonce", "row.nonce[32:] == self.nonce[32:]"),
        ("is_free & ~any_free", "is_free"),
        ("~is_free & ~any_silent &", "~is_free &"),
        ("[:32] >= SESSION_SILENT_US", "[:32] > SESSION_SILENT_US"),
        ("[:32] >= SESSION_SILENT_US", " >= SESSION_SILENT_US"),
        ("Mux(any_free, free_index, silent_index)", "Mux(any_silent, silent_index, free_index)"),
        ("Mux(any_free, free_index, silent_index)", "free_index"),
        ("walked & ~self.opened", "walked"),
        ("~(self.opened | any_free | any_silent)", "~(self.opened | any_free)"),
        ("~(self.opened | any_free | any_silent)", "~(any_free | any_silent)"),
        ("row_shown.eq(0), self.opened.eq(0),", "row_shown.eq(0),"),
        ("any_free.eq(0), any_silent.eq(0)]", "any_silent.eq(0)]"),
        ("any_free.eq(0), any_silent.eq(0)]", "any_free.eq(0)]"),
        ("walking.eq(1), walk_index.eq(0)", "walking.eq(1)"),
        ("walk_index == self.sessions - 1):", "walk_index == self.sessions - 2):"),
        ("looked_index == self.sessions - 1)", "looked_index == self.sessions - 2)"),
        ("looked_index.eq(walk_index)", "looked_index.eq(walk_index + 1)"),
        ("~row.open | self.corrupt", "~row.open"),
        ("~row.open | self.corrupt", "~row.open | ~self.corrupt"),
        ("read_port.data.as_value().xor()", "0"),
        ("read_port.data.as_value().xor()", "self.row.as_value().xor()"),
        ("looks & self.corrupt", "looks & 0"),
        ("looks & self.corrupt", "self.corrupt"),
        ("Mux(walking, walk_index, self.index)", "self.index"),
        ("with m.If(row_shown | wiping):", "with m.If(1):"),
        ("Mux(wiping, walk_index, self.index)", "self.index"),
        ("wiping | self.write", "self.write"),
        ("Mux(wiping, initial.as_value(), self.row_next.as_value())", "self.row_next.as_value()"),
        ("walking.eq(0), wiping.eq(0)", "wiping.eq(0)"),
        ("initial.next.eq(-self.cached_answers)", "initial.next.eq(0)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong, monkeypatch):
    module = mutant(hw.replay.request.sessions, sound, wrong)
    broken = module.Sessions
    with pytest.raises(AssertionError):
        check_bit_errors(monkeypatch, module=module)
        check_rows(3, part=broken)
        check_search(3, part=broken)
        check_search(8, part=broken, count=50)
