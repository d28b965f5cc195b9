"""The executor of OPEN alone: a session is shown again, given or moved, or the OPEN is refused; every plausible mutant
is killed."""

import pytest
from amaranth.hdl import Value

import hw.replay.execute.open_session
from hw.replay.execute.open_session import OpenSession
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.golden.replay.session import Session as GoldenSession
from iswitch.golden.replay.session import open_session
from iswitch.wire.replay import ReplayOutcome
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, pack

REPLAY = Replay(tables=1, capacity=64, sessions=3, cached_answers=4, log_bytes=4096)
REQUEST = {
    "frame": {"eth_src": list(b"abcdef"), "ip_src": [1, 2, 3, 4], "udp_src": [5, 6]},
    "parameters": 0x1122_3344_5566_7788,
    "arrived": {"port": 3},
    "now_us": 999,
}
ROW = {"port": 9, "nonce": 42, "next": (1 << 32) - 2, "cached": 3, "heard": 5, "written": 70, "oldest": 60}


CLIENT = {
    "port": 3,
    "address": {
        "mac": int.from_bytes(b"abcdef", "little"),
        "ip": int.from_bytes(bytes([1, 2, 3, 4]), "little"),
        "udp": int.from_bytes(bytes([5, 6]), "little"),
    },
}
GOLDEN_ROW = open_session(
    GoldenSession(next=ROW["next"], written=ROW["written"], oldest=ROW["oldest"], corrupt=True),
    REQUEST["parameters"],
    None,
    999,
    REPLAY.cached_answers,
)
"""What the model makes of the row if it has a bit error."""
FIRST = 0x1122_3344
"""The challenge after the first OPEN: the upper half of its nonce."""


class Opening:
    """An OpenSession whose search takes 9 cycles. The row that was found is shown 1 cycle after its index."""

    def __init__(self, executor):
        self.dut = executor(REPLAY)
        self.bench = Bench(self.dut)
        self.searches = 0

    async def open(
        self, ctx, *, row, opened=False, full=False, challenge=FIRST, nonce=REQUEST["parameters"], port=3, corrupt=False
    ):
        """Execute one OPEN. Return the failure or None, the row that is written, and the challenge afterwards."""
        dut = self.dut
        frame = REQUEST["frame"] | {"ticket": challenge}
        ctx.set(dut.corrupt, not corrupt)  # of another row
        ctx.set(dut.request, REQUEST | {"frame": frame, "parameters": nonce, "arrived": {"port": port}})
        ctx.set(dut.opened, opened)
        ctx.set(dut.full, full)
        ctx.set(dut.row, {})
        ctx.set(dut.start, 1)
        cycles = 0
        while not ctx.get(dut.done):
            self.searches += ctx.get(dut.search)
            ctx.set(dut.found, cycles == 9)
            if cycles == 10:
                ctx.set(dut.row, {"open": opened} | row)
            if cycles == 11:
                ctx.set(dut.corrupt, corrupt)
            await ctx.tick()
            ctx.set(dut.start, 0)
            cycles += 1
            assert cycles < 30
        assert cycles == 12 and ctx.get(dut.active)
        failure = ReplayOutcome(ctx.get(dut.failure)) if ctx.get(dut.failed) else None
        written = ctx.get(Value.cast(dut.session))
        await ctx.tick()
        assert not ctx.get(dut.active)
        return failure, written, ctx.get(dut.challenge)


def check(executor=OpenSession):
    test = Opening(executor)
    given = pack(
        Session, ROW | CLIENT | {"open": 1, "heard": 999, "nonce": REQUEST["parameters"], "next": 2, "cached": 0}
    )
    own = ROW | CLIENT | {"heard": 5}
    heard = pack(Session, own | {"open": 1, "heard": 999})
    expected, outcomes = [], []

    async def drive(ctx):
        async def opens(failure, written, after, **about):
            found = await test.open(ctx, **about)
            outcomes.append(found if failure is None else (found[0], None, found[2]))
            expected.append((failure, written, after))

        # A nonce whose lower half is 0 is no nonce, and sets no challenge.
        await opens(ReplayOutcome.RANGE, None, 0, row=ROW, nonce=7 << 32, challenge=7)
        # The first OPEN sets the challenge, which it cannot know.
        await opens(ReplayOutcome.CHALLENGE, None, FIRST, row=ROW, challenge=0)
        await opens(ReplayOutcome.CHALLENGE, None, FIRST, row=ROW, nonce=9 << 32 | 1, challenge=9, full=True)
        await opens(ReplayOutcome.FULL, None, FIRST, row=ROW, full=True)
        await opens(None, given, FIRST + 1, row=ROW)
        # The same OPEN comes again, from the same place, and then once more from elsewhere.
        await opens(None, heard, FIRST + 1, row=own, opened=True)
        await opens(ReplayOutcome.CHALLENGE, None, FIRST + 1, row=own, opened=True, port=4)
        moved = pack(Session, own | {"open": 1, "heard": 999, "port": 4})
        await opens(None, moved, FIRST + 2, row=own, opened=True, port=4, challenge=FIRST + 1)
        elsewhere = own | {"address": CLIENT["address"] | {"udp": 1}}
        await opens(ReplayOutcome.CHALLENGE, None, FIRST + 2, row=elsewhere, opened=True, challenge=FIRST + 1)
        await opens(None, heard, FIRST + 3, row=elsewhere, opened=True, challenge=FIRST + 2)
        # A late copy gives no session to a client that has closed its own.
        await opens(ReplayOutcome.CHALLENGE, None, FIRST + 3, row=ROW)
        # A row with a bit error is given anew, far from the numbers and the log that it names, also if the error came
        # after the search.
        end = (GOLDEN_ROW.written, GOLDEN_ROW.oldest)
        assert end[0] == end[1] == ROW["written"] + (3 << 29)
        anew = pack(
            Session,
            ROW
            | CLIENT
            | {"open": 1, "heard": 999, "nonce": REQUEST["parameters"], "cached": 0}
            | {"next": GOLDEN_ROW.next, "written": end[0], "oldest": end[1]},
        )
        await opens(ReplayOutcome.CHALLENGE, None, FIRST + 3, row=ROW, corrupt=True)
        await opens(None, anew, FIRST + 4, row=ROW, corrupt=True, challenge=FIRST + 3)
        await opens(ReplayOutcome.CHALLENGE, None, FIRST + 4, row=own, corrupt=True, opened=True)
        await opens(None, anew, FIRST + 5, row=own, corrupt=True, opened=True, challenge=FIRST + 4)

    test.bench.drive(drive)
    assert outcomes == expected and test.searches == len(outcomes)


def test_a_session_is_given_or_moved_by_an_open_with_the_challenge_and_by_no_late_copy():
    check()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.row.next + self.replay.cached_answers", "self.row.next"),
        ("session.cached.eq(0),", ""),
        ("session.port.eq(self.request.arrived.port),", ""),
        ("session.heard.eq(self.request.now_us)", "session.heard.eq(0)"),
        ("with m.If(is_given)", "with m.If(1)"),
        ("with m.If(is_given)", "with m.If(~self.opened)"),
        ("is_given.eq(~self.opened | self.corrupt)", "is_given.eq(~self.opened)"),
        ("with m.If(self.corrupt)", "with m.If(0)"),
        ("with m.If(self.corrupt)", "with m.If(1)"),
        ("self.row.written + CORRUPT_ROW_GAP", "self.row.written"),
        ("self.replay.cached_answers + CORRUPT_ROW_GAP", "CORRUPT_ROW_GAP"),
        ("session.oldest.eq(end)", "session.oldest.eq(self.row.oldest)"),
        ("m.Elif(self.full)", "m.Elif(0)"),
        ("changes & is_stale", "is_stale"),
        ("changes & is_stale", "0"),
        ("is_given | moved", "is_given"),
        ("is_given | moved", "~self.opened | moved"),
        ("self.challenge + changes", "self.challenge"),
        ("self.challenge + changes", "self.challenge + 1"),
        (
            "Cat(self.row.port, self.row.address) != Cat(self.request.arrived.port, address)",
            "self.row.port != self.request.arrived.port",
        ),
        (
            "Cat(self.row.port, self.row.address) != Cat(self.request.arrived.port, address)",
            "self.row.address.as_value() != address.as_value()",
        ),
        ("~challenge_known & (nonce[:32] != 0)", "~challenge_known"),
        ("challenge_known.eq(1)", "challenge_known.eq(0)"),
        ("with m.If(nonce[:32] == 0)", "with m.If(nonce == 0)"),
        ('m.next = "ENTER"', 'm.next = "SEARCH"'),
        ("self.search.eq(self.start)", "self.search.eq(self.active)"),
        ("session.open.eq(1),", ""),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.open_session, sound, wrong).OpenSession
    with pytest.raises(AssertionError):
        check(broken)
