"""The executor of OPEN alone: an old session is shown again, a new one begins anew; every plausible mutant is
killed."""

import pytest
from amaranth.hdl import Value

import hw.replay.execute.open_session
from hw.replay.execute.open_session import OpenSession
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import pack

REPLAY = Replay(tables=1, capacity=64, sessions=3, cached_answers=4, log_bytes=4096)
REQUEST = {
    "frame": {"eth_src": list(b"abcdef"), "ip_src": [1, 2, 3, 4], "udp_src": [5, 6]},
    "parameters": 0x1122_3344_5566_7788,
    "arrived": {"port": 3},
    "now_us": 999,
}
ROW = {"port": 9, "nonce": 42, "next": (1 << 32) - 2, "cached": 3, "heard": 5, "written": 70, "oldest": 60}


def check(executor=OpenSession, *, opened=False, full=False):
    dut = executor(REPLAY)
    bench = ExecutorBench(dut, inputs=[(dut.request, REQUEST), (dut.opened, opened), (dut.full, full)])
    searched = []

    async def sessions(ctx):
        """The search takes 9 cycles; the row that was found is shown 1 cycle after its index."""
        left, seen = 0, 0
        async for _, _, search in ctx.tick().sample(dut.search):
            seen, left = left == 1, 9 if search else max(left - 1, 0)
            searched.append(search)
            ctx.set(dut.found, left == 1)
            ctx.set(dut.row, {"open": opened} | ROW if seen or (not left and sum(searched)) else {})

    bench.process(sessions)
    cycles, (failed, row) = bench.execute(read=[dut.failed, Value.cast(dut.session)])
    assert sum(searched) == 1 and failed == full and cycles == (9 if full else 11)
    client = {
        "nonce": 0x1122_3344_5566_7788,
        "port": 3,
        "address": {
            "mac": int.from_bytes(b"abcdef", "little"),
            "ip": int.from_bytes(bytes([1, 2, 3, 4]), "little"),
            "udp": int.from_bytes(bytes([5, 6]), "little"),
        },
        "next": 2,
        "cached": 0,
    }
    assert full or row == pack(Session, ROW | {"open": 1, "heard": 999} | ({} if opened else client))


@pytest.mark.parametrize(("opened", "full"), [(False, False), (True, False), (False, True)])
def test_a_session_is_found_or_opened(opened, full):
    check(opened=opened, full=full)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.row.next + self.replay.cached_answers", "self.row.next"),
        ("session.cached.eq(0),", ""),
        ("session.port.eq(self.request.arrived.port),", ""),
        ("session.heard.eq(self.request.now_us)", "session.heard.eq(0)"),
        ("with m.If(~self.opened)", "with m.If(1)"),
        ("with m.If(self.full)", "with m.If(0)"),
        ('m.next = "ENTER"', 'm.next = "SEARCH"'),
        ("self.search.eq(self.start)", "self.search.eq(self.active)"),
        ("session.open.eq(1),", ""),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.open_session, sound, wrong).OpenSession
    with pytest.raises(AssertionError):
        check(broken)
        check(broken, opened=True)
        check(broken, full=True)
