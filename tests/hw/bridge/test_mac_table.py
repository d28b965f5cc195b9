"""The ports of stations against the golden model: over full sets, moves, and time stamps that wrap."""

import itertools
import random

import pytest
from amaranth.hdl import Value
from amaranth.lib.memory import Memory

import hw.bridge.mac_table
from hw.bridge.mac_table import WAYS, MacTable
from iswitch.config import Config
from iswitch.golden.bridge.forwarder import MacTable as Model
from sim.bench.hosts import crowd
from sim.bench.mutant import mutant
from sim.bench.stream import Bench

CONFIG = Config(ports=16, mac_entries=64)
NARROW = Config(ports=16, mac_entries=64, bus_bits=64)
"""The sweep has no read port of its own. Frames come in at most every third cycle for long."""
SETS = CONFIG.mac_entries // 4
OWN = bytes.fromhex("025749000001")
TICK_US = 1 << 24


def number(mac: bytes) -> int:
    return int.from_bytes(mac, "little")


class Talk:
    """The gateware and the model. `ask` shows both a frame's addresses; the model answers before it learns."""

    def __init__(self, ctx, dut) -> None:
        self.ctx, self.dut, self.model, self.now_us = ctx, dut, Model(CONFIG.mac_entries), 0
        self.linked = -1
        self.pause = int(dut.config.bus_bits == 64)

    async def begin(self) -> None:
        self.ctx.set(self.dut.own_mac, number(OWN))
        for _ in range(SETS):
            assert not self.ctx.get(self.dut.wiped)
            await self.ctx.tick()
        assert self.ctx.get(self.dut.wiped)

    async def wait(self, us: int) -> None:
        await self.ctx.tick().repeat(2)  # the last frame is learnt meanwhile
        self.now_us = (self.now_us + us) % 2**32
        self.ctx.set(self.dut.now_us, self.now_us)
        self.model.advance(self.now_us)

    async def link(self, port: int, up: bool) -> None:
        """Take a port's cable out, or put it in and wait until the table has noticed it."""
        await self.ctx.tick().repeat(2)  # the last frame is learnt meanwhile
        links = self.ctx.get(self.dut.link) & ~(1 << port) | up << port
        self.ctx.set(self.dut.link, links)
        if up:
            await self.rest()
        else:
            await self.ctx.tick()
        assert self.ctx.get(self.dut.up) == links
        if not up:
            self.model.flush(port)
        self.linked = links

    async def rest(self) -> None:
        """Wait until the sweeps are done: one for a tick or a link, and one that began before."""
        for _ in range(8 * SETS + 10):
            if not self.ctx.get(self.dut.busy):
                return
            await self.ctx.tick()
        raise AssertionError("the sweep does not end")

    async def ask(self, destination: bytes, source: bytes, port: int, *, pause: int = 0) -> int | None:
        ctx, dut = self.ctx, self.dut
        for name, value in (
            ("destination", number(destination)),
            ("source", number(source)),
            ("ingress", port),
            ("lookup", 1),
        ):
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        for name in ("destination", "source"):
            ctx.set(getattr(dut, name), random.getrandbits(48))
        ctx.set(dut.lookup, 0)
        await ctx.tick()
        known = ctx.get(dut.port) if ctx.get(dut.known) else None
        assert known == self.model.port(destination)
        if self.linked >> port & 1:
            self.model.learn(source, port, OWN)
        for _ in range(pause):
            await ctx.tick()
        return known


def play(scenario, table=MacTable, config=CONFIG) -> None:
    dut = table(config)

    async def bench(ctx):
        talk = Talk(ctx, dut)
        await talk.begin()
        await scenario(talk)

    Bench(dut).drive(bench)


STATIONS = [
    *crowd(64, 7),
    *(bytes([2, 0, 0, 0, 0, k]) for k in range(10)),
    OWN,
    bytes(6),
    b"\xff" * 6,
    bytes.fromhex("01005e000001"),
]


def chatter(seed: int, *, turns: int = 1200, pauses: bool = True, ports: int = 16):
    async def scenario(talk):
        rng = random.Random(seed)
        seen = set()
        for _ in range(turns):
            known = await talk.ask(
                rng.choice(STATIONS),
                rng.choice(STATIONS),
                rng.randrange(ports),
                pause=rng.choice([0, 0, 0, 1, 2, 9]) * pauses,
            )
            seen.add(known is None)
            if rng.random() < 0.06:
                await talk.rest()
                await talk.wait(rng.choice([1, TICK_US, 4 * TICK_US, 17 * TICK_US, 18 * TICK_US, 100 * TICK_US]))
        assert seen == {True, False}

    return scenario


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ports", [2, 3, 16])
def test_stations_are_where_the_model_says(seed, ports):
    play(chatter(seed, ports=ports))


def test_frames_every_other_cycle_are_all_learnt():
    play(chatter(7, turns=2000, pauses=False))


async def expired_after_18_ticks(talk):
    a, b = STATIONS[:2]
    await talk.wait(TICK_US - 1)
    await talk.ask(b, a, 5)
    await talk.wait(17 * TICK_US)
    assert await talk.ask(a, b, 6) == 5
    await talk.wait(1)
    assert await talk.ask(a, b, 6) is None


def test_station_is_expired_after_18_ticks_and_not_before():
    play(expired_after_18_ticks)


async def wrapped(talk):
    a, b = STATIONS[:2]
    await talk.ask(b, a, 5)
    for _ in range(256 // 16):
        await talk.wait(16 * TICK_US)
        await talk.rest()
    assert talk.now_us == 0
    assert await talk.ask(a, b, 6) is None


def test_a_stamp_that_has_wrapped_is_not_fresh():
    play(wrapped)


async def wrapped_under_load(talk):
    # Stations of adjacent sets, while a station in the same way of a third set is learnt all the time.
    early, busy = [bytes([2, 0, 0, 0, 0, k]) for k in (4, 5)], STATIONS[0]
    for port, mac in enumerate(early):
        await talk.ask(busy, mac, port)
    for _ in range(16):
        await talk.wait(16 * TICK_US)
        turns = 0
        while talk.ctx.get(talk.dut.busy):
            await talk.ask(busy, busy, 6, pause=talk.pause)
            turns += 1
        assert turns <= 2 * SETS + 3
    assert talk.now_us == 0
    assert [await talk.ask(mac, busy, 7) for mac in early] == [None, None]


def test_expired_entries_are_cleared_although_a_frame_comes_every_other_cycle():
    play(wrapped_under_load)


async def unplugged(talk):
    a, b, c = STATIONS[:3]
    await talk.ask(b, a, 5)
    await talk.ask(a, b, 6)
    await talk.link(5, False)
    assert await talk.ask(a, b, 6) is None  # at once, before any sweep
    assert await talk.ask(b, c, 5) == 6  # a frame that had come in before
    assert await talk.ask(c, b, 6) is None
    await talk.link(5, True)
    assert await talk.ask(a, b, 6) is None and await talk.ask(c, b, 6) is None
    await talk.ask(b, a, 5)
    assert await talk.ask(a, b, 6) == 5


async def unplugged_for_a_moment(talk):
    """Stations of every set, and a link that is back after a cycle, beside frames in every other cycle."""
    stations = [bytes([2, 0, 0, 0, 0, k]) for k in range(SETS)]
    for mac in stations:
        await talk.ask(OWN, mac, 3)
    await talk.link(3, False)
    talk.ctx.set(talk.dut.link, -1)
    turns = 0
    while talk.ctx.get(talk.dut.busy):
        await talk.ask(stations[turns % SETS], STATIONS[0], 6, pause=talk.pause)
        turns += 1
    assert SETS // 2 <= turns <= 4 * SETS + 10
    talk.linked = -1
    assert [await talk.ask(mac, OWN, 7) for mac in stations] == [None] * SETS
    for mac in stations:  # also in the row that the sweep visits last, while it is being cleared
        await talk.ask(OWN, mac, 3)
        await talk.link(3, False)
        talk.ctx.set(talk.dut.link, -1)
        while talk.ctx.get(talk.dut.busy):
            await talk.ask(mac, STATIONS[0], 6, pause=talk.pause)
        talk.linked = -1


async def unplugged_during_a_sweep(talk):
    """Two links go down for a moment, the second while the stations of the first are being cleared."""
    stations = [bytes([2, 0, 0, 0, 0, k]) for k in range(SETS)]
    for delay in (2, 5, *range(3 * SETS - 5, 3 * SETS + 6)):
        for mac in stations:
            await talk.ask(OWN, mac, 3)
        await talk.link(4, False)
        await talk.ctx.tick().repeat(delay)
        await talk.link(3, False)
        talk.ctx.set(talk.dut.link, -1)
        await talk.rest()
        talk.linked = -1
        assert [await talk.ask(mac, OWN, 7) for mac in stations] == [None] * SETS


def plugging(seed: int):
    async def scenario(talk):
        rng = random.Random(seed)
        for _ in range(60):
            for _ in range(rng.randrange(40)):
                await talk.ask(rng.choice(STATIONS), rng.choice(STATIONS), rng.randrange(4), pause=rng.randrange(2))
            port = rng.randrange(4)
            await talk.link(port, not talk.linked >> port & 1)
            if rng.random() < 0.3:
                await talk.rest()
                await talk.wait(rng.choice([TICK_US, 18 * TICK_US]))

    return scenario


@pytest.mark.parametrize(
    "scenario", [unplugged, unplugged_for_a_moment, unplugged_during_a_sweep, plugging(1), plugging(2)]
)
def test_stations_of_a_port_without_a_link_are_absent(scenario):
    play(scenario)


CROWDED = crowd(64, 16)
"""Stations of one set."""


async def learn_all(talk, stations: list[bytes], port: int) -> None:
    for mac in stations:
        await talk.ask(OWN, mac, port)


async def places(talk, stations: list[bytes]) -> list[int | None]:
    return [await talk.ask(mac, OWN, 0) for mac in stations]


async def pushed(talk):
    """Port 1 has two stations in a set. Made-up addresses of port 3 come, in a row and between frames of port 1."""
    stations, made_up = CROWDED[:2], CROWDED[2:]
    await learn_all(talk, stations, 1)
    for _ in range(2):
        await learn_all(talk, made_up, 3)
    assert await places(talk, stations) == [1, 1]
    for k, mac in enumerate(made_up):
        await learn_all(talk, [mac], 3)
        await learn_all(talk, [stations[k % 2]], 1)
    assert await places(talk, stations) == [1, 1]


async def filled_before(talk):
    """The set is full of made-up addresses of port 3 when the stations of port 1 come."""
    stations, made_up = CROWDED[:2], CROWDED[2:]
    await learn_all(talk, made_up, 3)
    await learn_all(talk, stations, 1)
    assert await places(talk, stations) == [1, 1]
    await learn_all(talk, made_up, 3)
    assert await places(talk, stations) == [1, 1]
    await learn_all(talk, made_up[:1], 4)
    assert await places(talk, [made_up[0], *stations]) in ([4, 1, None], [4, None, 1], [4, 1, 1])


async def one_each(talk):
    """Four ports have a station in a set. A station of a fifth port is not learnt until one of them has expired."""
    for port, mac in enumerate(CROWDED[:4]):
        await talk.ask(OWN, mac, port)
    for _ in range(5):
        await talk.ask(OWN, CROWDED[4], 5)
        await talk.ask(OWN, CROWDED[5], 3)
        await talk.ask(OWN, CROWDED[3], 3)
    assert await places(talk, CROWDED[:5]) == [0, 1, 2, 3, None]
    await talk.wait(17 * TICK_US)
    await learn_all(talk, CROWDED[1:2], 1)
    await talk.wait(TICK_US)
    await learn_all(talk, CROWDED[4:5], 5)
    assert await places(talk, CROWDED[:5]) == [None, 1, None, None, 5]


async def in_turn(talk):
    """A port replaces its own stations, not the same one each time."""
    await learn_all(talk, CROWDED[:4], 1)
    await learn_all(talk, CROWDED[4:8], 1)
    assert await places(talk, CROWDED[:8]) == [None] * 4 + [1] * 4


async def never_learnt(talk):
    """The tags of these addresses are zero, as in an empty table, and port 0 has a link."""
    for k in range(0, 16, 2):
        assert await talk.ask(bytes([k, 0, 0, 0, 0, 0]), OWN, 6) is None


def test_an_address_of_zeros_is_absent_from_an_empty_table():
    play(never_learnt)


SHARES = [pushed, filled_before, one_each, in_turn]


@pytest.mark.parametrize("scenario", SHARES)
def test_a_port_keeps_its_share_of_a_set(scenario):
    play(scenario)


SCENARIOS = [
    chatter(5, turns=300, ports=3),
    never_learnt,
    expired_after_18_ticks,
    wrapped,
    wrapped_under_load,
    *SHARES,
    unplugged,
    unplugged_for_a_moment,
    unplugged_during_a_sweep,
    plugging(1),
    chatter(7, turns=2000, pauses=False),
    *(chatter(seed, ports=ports) for ports in (2, 3, 16) for seed in range(3)),
]
MUTANTS = [
    ("(learns | learnt_before) & (row == written_row)", "learns & (row == written_row)"),
    ("(learns | learnt_before) & (row == written_row)", "learnt_before & (row == written_row)"),
    ("(learns | learnt_before) & (row == written_row)", "(row == written_row)"),
    ("(learns | learnt_before) & (row == written_row)", "(learns | learnt_before)"),
    ("(learns | learnt_before) & (row == written_row)", "0"),
    ("Cat(matches) & ~superseded", "Cat(matches)"),
    ("superseded.any() & (written_tag == key)", "superseded.any()"),
    ("hits.any() | written_matches", "hits.any()"),
    ("hits | Mux(written_matches, superseded, 0)", "hits"),
    ("~(Cat(live) | superseded)", "~Cat(live)"),
    ("Mux(new, written.port, entry.port)", "entry.port"),
    ("~source[0] & ", ""),
    ("(source != 0) & ", ""),
    (" & (source != self.own_mac)", ""),
    ("Mux(reads_row, 0, learnt_since) | learnt_here", "0"),
    ("Mux(reads_row, 0, learnt_since) | learnt_here", "Mux(reads_row, 0, learnt_since | learnt_here)"),
    ("Mux(reads_row, 0, learnt_since) | learnt_here", "Mux(reads_row, 0, learnt_here)"),
    ("Mux(reads_row, 0, learnt_since)", "learnt_since"),
    ("learns & (written_row == sweep_at)", "learns"),
    ("< LIFETIME_TICKS)", "<= LIFETIME_TICKS)"),
    ("& up.bit_select(entry.port, 1) ", ""),
    ("alive & (tag == key)", "(tag == key)"),
    ("Mux(matching.any(), matching, first_from(turn, candidates))", "first_from(turn, candidates)"),
    ("first_from(turn, candidates)", "first_from(0, candidates)"),
    ("Mux(free.any(), free, Mux(crowded.any(), crowded, own))", "Mux(crowded.any(), crowded, own)"),
    ("Mux(crowded.any(), crowded, own)", "own"),
    ("Mux(crowded.any(), crowded, own)", "~0"),
    ("Mux(is_own.any(), three[k], several[k])", "several[k]"),
    ("Mux(is_own.any(), three[k], several[k])", "three[k]"),
    ("Mux(is_own.any(), three[k], several[k])", "Mux(is_own.any(), 0, several[k])"),
    ("turn.eq(turn + 1)", "turn.eq(turn)"),
    ("expired & ~learnt_since", "0"),
    ("expired & ~learnt_since", "expired"),
    ("expired & ~learnt_since", "~learnt_since"),
    ("visit[1] & ~learns", "visit[1]"),
    ("Mux(visit[1] & learns, visit, Cat(reads_row, visit[0]))", "Cat(reads_row, visit[0])"),
    ("m.If(visit[0])", "m.If(reads_row)"),
    ("written.stamp.eq(tick)", "written.stamp.eq(0)"),
    ("[wiping.eq(0), sweeping.eq(0), ", "[wiping.eq(0), "),
    ("& up.bit_select(entry.port, 1) &", "&"),
    ("& up.bit_select(ingress, 1)", ""),
    ("[up[port].eq(0), uncleared[port].eq(1)]", "up[port].eq(0)"),
    ("uncleared & ~clearing", "0"),
    ("self.link[port] & ~uncleared[port]", "self.link[port]"),
    ("valid.eq(learns)", "valid.eq(1)"),
]


@pytest.mark.parametrize("scenario", [wrapped_under_load, unplugged_for_a_moment, unplugged_during_a_sweep])
def test_a_sweep_without_a_read_port_of_its_own_ends_between_frames(scenario):
    play(scenario, config=NARROW)


@pytest.mark.parametrize(
    "scenario",
    [expired_after_18_ticks, wrapped, unplugged, *SHARES, plugging(1), chatter(7, pauses=False), chatter(1, ports=3)],
)
def test_a_sweep_without_a_read_port_of_its_own_is_invisible(scenario):
    play(scenario, config=NARROW)


NARROW_MUTANTS = [
    ("~(self.lookup | stage[0]) if shares_port", "1 if shares_port"),
    ("~(self.lookup | stage[0]) if shares_port", "~self.lookup if shares_port"),
    ("~(self.lookup | stage[0]) if shares_port", "~stage[0] if shares_port"),
    ("Mux(reads, address, sweep_at)", "address"),
    ("Mux(reads, address, sweep_at)", "Mux(reads_row, sweep_at + 1, address)"),
    ("reads | reads_row if shares_port", "reads if shares_port"),
]


def check_bit_errors(monkeypatch, table=MacTable, *, every: int = 1) -> None:
    """Flip bits of the tag and the state of a station's entry: it is absent until the station sends again, and from
    then on there is one entry for it."""
    memories, elaborate = [], Memory.elaborate
    monkeypatch.setattr(Memory, "elaborate", lambda self, platform: memories.append(self) or elaborate(self, platform))
    station, other = STATIONS[:2]

    async def scenario(talk):
        ctx, tables = talk.ctx, [[Value.cast(memory.data[row]) for row in range(SETS)] for memory in memories]
        for rows in tables:
            way_bits = len(rows[0]) // WAYS
            for bit in range(0, way_bits, every):
                for row in itertools.chain(*tables):
                    ctx.set(row, 0)
                await talk.ask(other, station, 5, pause=4)
                assert await talk.ask(station, OWN, 6) == 5
                row = next(row for row in rows if ctx.get(row))
                way = next(way for way in range(WAYS) if ctx.get(row) >> way * way_bits & (1 << way_bits) - 1)
                ctx.set(row, ctx.get(row) ^ 1 << way * way_bits + bit)
                talk.model.flush(5)
                assert await talk.ask(station, OWN, 6) is None, (way_bits, bit)
                for port in (5, 4):
                    await talk.ask(other, station, port, pause=4)
                    assert await talk.ask(station, OWN, 6) == port, (way_bits, bit)
                talk.model.flush(4)

    play(scenario, table)


def test_an_entry_with_a_bit_error_is_absent_until_its_station_sends_again(monkeypatch):
    check_bit_errors(monkeypatch)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("~Cat(entry, tag).xor()", "1"),
        ("~Cat(entry, tag).xor()", "~entry.as_value().xor()"),
        ("~Cat(entry, tag).xor()", "~tag.xor()"),
        ("Cat(written_tag, written.port, written.stamp, 1).xor()", "0"),
    ],
)
def test_the_check_of_bit_errors_notices_a_mutant(sound, wrong, monkeypatch):
    table = mutant(hw.bridge.mac_table, sound, wrong).MacTable
    with pytest.raises(AssertionError):
        check_bit_errors(monkeypatch, table, every=5)


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), NARROW_MUTANTS)
def test_checks_notice_a_mutant_in_the_shared_port(sound, wrong):
    table = mutant(hw.bridge.mac_table, sound, wrong).MacTable
    with pytest.raises(AssertionError):
        for scenario in SCENARIOS:
            play(scenario, table, NARROW)


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_checks_notice_a_mutant_in_the_logic(sound, wrong):
    table = mutant(hw.bridge.mac_table, sound, wrong).MacTable
    with pytest.raises(AssertionError):
        for scenario in SCENARIOS:
            play(scenario, table)
