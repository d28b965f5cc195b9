"""Between executors and the samplers: commands by item, and what comes of them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.layout import layout
from hw.replay.reply.cache import list_rows
from hw.replay.sampling.sampler import Result
from hw.replay.sampling.samplers import HANDLE_BITS
from hw.replay.sampling.slots import Command, CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import SAMPLED_ROW

__all__ = ["CommandEncoder", "ItemCommand", "ResultRecorder", "sampler_shape"]


def sampler_shape(replay: Replay) -> tuple[int, int, int]:
    """Return capacity, bits of a priority and bits of a generation of the samplers."""
    return replay.capacity, replay.priority_bits, HANDLE_BITS - exact_log2(replay.capacity)


class ItemCommand(data.Struct):
    """A sampler's command in terms of the wire.

    `item` is the handle of an UPDATE, the slot of a READ, and means nothing else. `priority` is that of an ADD or
    UPDATE; with `retire` the priority becomes 0. `fraction` is a SAMPLE's.
    """

    kind: CommandKind
    item: HANDLE_BITS
    priority: 32
    retire: 1
    fraction: 64


class CommandEncoder(wiring.Component):
    """Splits handles into slot and generation, and limits priorities to the bits that a sampler has.

    Combinational. `saturated` is 1 in the cycle in which a command passes whose priority was too large.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "i": In(stream.Signature(ItemCommand)),
                "o": Out(stream.Signature(Command(*sampler_shape(replay)))),
                "saturated": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        given, command = self.i.payload, self.o.payload
        most, too_large = (1 << self.replay.priority_bits) - 1, Signal()
        m.d.comb += [
            too_large.eq(given.priority > most),
            command.kind.eq(given.kind),
            command.slot.eq(given.item),
            command.generation.eq(given.item >> exact_log2(self.replay.capacity)),
            command.priority.eq(Mux(given.retire, 0, Mux(too_large, most, given.priority))),
            command.fraction.eq(given.fraction),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            self.saturated.eq(self.i.valid & self.i.ready & too_large),
        ]
        return m


class ResultRecorder(wiring.Component):
    """Counts a request's results, and writes what was sampled or read as rows of a list.

    `clear` begins a request. Row k of its list goes to `list` + k. `done` counts items that were added, updated,
    sampled or read, and `stale` counts updates by stale handles; both are right 1 cycle after the last result.
    `samples` says that the request is a SAMPLE, whose updates retire items and are not counted. `total_changed`:
    `total` is the sum of all priorities behind an ADD or UPDATE. Takes a result in each cycle.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "clear": In(1),
                "samples": In(1),
                "list": In(range(list_rows(replay))),
                "results": In(stream.Signature(Result(*sampler_shape(replay)), always_ready=True)),
                "write_row": Out(1),
                "row_address": Out(range(list_rows(replay))),
                "row": Out(layout(SAMPLED_ROW)),
                "done": Out(16),
                "stale": Out(16),
                "total_changed": Out(1),
                "total": Out(64),
            }
        )

    def elaborate(self, platform):
        m = Module()
        result, valid = self.results.payload, self.results.valid
        lists, never_filled, counted = Signal(), Signal(), Signal()
        m.d.comb += [
            lists.eq(result.kind.matches(CommandKind.SAMPLE, CommandKind.READ)),
            never_filled.eq((result.kind == CommandKind.READ) & result.stale),
            counted.eq(~self.samples | lists),
            self.write_row.eq(valid & lists),
            self.row_address.eq(self.list + self.done),
            self.row.priority.eq(result.priority),
            self.row.item.eq(
                Mux(never_filled, 0, result.slot | (result.generation << exact_log2(self.replay.capacity)))
            ),
            self.total_changed.eq(valid & ~lists),
            self.total.eq(result.total),
        ]
        with m.If(valid):
            m.d.sync += [
                self.done.eq(self.done + (counted & (lists | ~result.stale))),
                self.stale.eq(self.stale + (counted & ~lists & result.stale)),
            ]
        with m.If(self.clear):
            m.d.sync += [self.done.eq(0), self.stale.eq(0)]
        return m
