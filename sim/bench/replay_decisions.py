"""Decisions on requests of the replay service: the golden service without effects, and inputs for the gateware."""

from dataclasses import replace

from amaranth.hdl import Value

from iswitch.config import Replay
from iswitch.golden.replay import frames
from iswitch.golden.replay.dispatcher import Effect
from iswitch.golden.replay.service import Service
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import REPLAY_HEADER, Kind, ReplayOutcome
from sim.bench.replay_client import record
from sim.bench.stream import Bench

__all__ = ["LARGE", "PARAMETER_ROWS_OF", "TYPICAL", "Decisions", "frame_of", "number", "outputs"]

TYPICAL = Replay(
    tables=2, capacity=64, sessions=3, cached_answers=4, log_bytes=4096, samples_per_request=256, sample_count_bits=3
)
LARGE = replace(
    TYPICAL,
    sessions=5,
    cached_answers=1,
    log_bytes=1 << 20,
    record_bytes=256,
    sample_count_bits=0,
    capacity=1 << 12,
    samples_per_request=16,
)
PARAMETER_ROWS_OF = {
    Kind.OPEN: 1,
    Kind.WRITE: 1,
    Kind.SAMPLE: 4,
    Kind.PUBLISH: 2,
    Kind.LIMIT: 3,
    Kind.LOAD: 1,
    Kind.LIST: 1,
    Kind.SHOUT: 1,
    Kind.REBUILD: 1,
}


class Decisions(Service):
    """The golden service without effects: only its decisions are compared. Tables have as many items as they say."""

    def __init__(self, replay):
        super().__init__(replay)
        for kind in (Kind.ADD, Kind.UPDATE):
            self.executors[kind] = lambda asked: Effect()
        self.executors[Kind.SAMPLE] = lambda asked: Effect(self.readable(asked))
        self.executors[Kind.REBUILD] = self.decide_rebuild
        self.queries[Kind.FETCH] = self.look
        self.queries[Kind.LIST] = lambda asked, source: (self.readable(asked), self.look(asked, source)[1])
        self.memory.write = lambda session, start, units: None
        self.memory.read = lambda session, start, units: b""

    def readable(self, asked):
        return ReplayOutcome.DONE if self.tables[asked.table].is_intact else ReplayOutcome.CORRUPT

    def decide_rebuild(self, asked):
        """Whether the table was corrupt is known when the slots are restored, and no decision."""
        table = self.tables[asked.table]
        sums, table.sums = table.sums, table.sums._replace(corrupt=False)
        outcome, table.sums = super().rebuild(asked).outcome, sums
        return Effect(outcome)

    def status(self, asked, place, effect):
        return frames.status(outcome=effect.outcome)


def number(octets):
    """Return bytes as a number, first byte lowest."""
    return int.from_bytes(octets, "little")


def frame_of(values):
    """Return the first 64 bytes of a frame as a number; its addresses are arbitrary."""
    return number(b"\x77" * (FRAME_BYTES - REPLAY_HEADER.itemsize) + record(REPLAY_HEADER, **values))


def outputs(part, replay, cases, names):
    """Return the outputs `names` of a component for each of its inputs, 1 cycle later."""
    dut, found = part(replay), []

    async def ask(ctx):
        for case in cases:
            for name, bits in case.items():
                ctx.set(Value.cast(getattr(dut, name)), bits)
            await ctx.tick()
            found.append(tuple(int(ctx.get(Value.cast(getattr(dut, name)))) for name in names))

    Bench(dut).drive(ask)
    return found
