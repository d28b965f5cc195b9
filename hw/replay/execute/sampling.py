"""What a request asks of the sampler of its table: the commands, SAMPLE and LIST, and how often items were drawn."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.utils import exact_log2

from hw.replay.request.admission import view_as
from hw.replay.sampling.slots import CommandKind as Command
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from iswitch.wire.replay import ADD_ROW, UPDATE_ROW, Kind

__all__ = ["commands", "samples"]


def commands(m: Module, s: SimpleNamespace) -> None:
    """What goes to the sampler of the table, and what comes from it."""
    replay, kind, table = s.replay, s.kind, s.table
    commands, command = s.tables.commands, s.tables.commands.payload
    slot_bits, most = exact_log2(replay.capacity), (1 << replay.priority_bits) - 1
    priority, item = Signal(32), Signal(32)
    s.times_item, s.drawing = Signal(32), Signal()
    add, update = view_as(ADD_ROW, s.row.data), view_as(UPDATE_ROW, s.row.data)
    m.d.comb += [
        priority.eq(Mux(kind == Kind.ADD, add.priority, Mux(kind == Kind.UPDATE, update.priority, 0))),
        item.eq(update.item),
        command.priority.eq(Mux((kind == Kind.UPDATE) & s.spent, 0, Mux(priority > most, most, priority))),
        command.slot.eq(item),
        command.generation.eq(item >> slot_bits),
        command.fraction.eq(s.draws.fractions.payload.fraction),
        command.kind.eq(Command.UPDATE),
        s.saturated.eq(commands.valid & commands.ready & (priority > most)),
    ]
    with m.Switch(kind):
        with m.Case(Kind.ADD):
            m.d.comb += command.kind.eq(Command.ADD)
        with m.Case(Kind.SAMPLE):
            m.d.comb += [command.kind.eq(Mux(s.drawing, Command.DRAW, Command.UPDATE)), item.eq(s.times_item)]
        with m.Case(Kind.LIST):
            m.d.comb += [command.kind.eq(Command.READ), item.eq(s.record)]
    with m.If(s.adding):
        m.d.sync += table.adds.eq(table.adds + 1)

    results, result = s.tables.results, s.tables.results.payload
    lists = (result.kind == Command.DRAW) | (result.kind == Command.READ)
    never = (result.kind == Command.READ) & result.stale
    m.d.comb += [
        s.kept.list_put.eq(results.valid & lists),
        s.kept.put_at.eq(s.list + s.done),
        s.kept.put_row.priority.eq(result.priority),
        s.kept.put_row.item.eq(Mux(never, 0, result.slot | (result.generation << slot_bits))),
    ]
    # Updates of what was drawn too often are no results of the request.
    counted = (kind != Kind.SAMPLE) | lists
    with m.If(results.valid):
        m.d.sync += [
            s.done.eq(s.done + (counted & (lists | ~result.stale))),
            s.stale.eq(s.stale + (counted & ~lists & result.stale)),
        ]
        with m.If(~lists):
            m.d.sync += table.total.eq(result.total)


def samples(m: Module, s: SimpleNamespace) -> None:
    """SAMPLE and LIST, and what becomes of items that are drawn too often."""
    replay, draws, commands = s.replay, s.draws, s.tables.commands
    batch, fraction = draws.batches, draws.fractions
    m.d.comb += [
        batch.payload.count.eq(s.count),
        batch.payload.stride.eq(s.sample.stride),
        batch.payload.seed.eq(Cat(s.sample.seed)),
    ]
    with m.State("BATCH"):
        # Where its list goes may be that of an answer that is still being sent.
        m.d.comb += batch.valid.eq(~s.answerer.busy | (s.answerer.list != s.list))
        with m.If(batch.valid & batch.ready):
            m.next = "DRAW"
    with m.State("DRAW"):
        m.d.comb += [s.drawing.eq(1), commands.valid.eq(fraction.valid), fraction.ready.eq(commands.ready)]
        with m.If(commands.valid & commands.ready):
            m.d.sync += s.left.eq(s.left - 1)
        with m.If((s.left == 0) & ~s.tables.pending):
            m.d.sync += s.at.eq(0)
            m.next = "TIMES" if replay.times_bits else "SETTLE"
    with m.State("LIST"):
        m.d.comb += commands.valid.eq(~s.answerer.busy)
        with m.If(commands.valid & commands.ready):
            m.d.sync += [s.left.eq(s.left - 1), s.record.eq(s.record + 1)]
            with m.If(s.left == 1):
                m.next = "LAST"
    with m.State("LAST"):
        with m.If(~s.tables.pending):
            m.next = "SETTLE"
    if not replay.times_bits:
        return
    slot_bits = exact_log2(replay.capacity)
    m.submodules.times = memory = Memory(
        shape=replay.times_bits, depth=replay.tables * replay.capacity, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
    )
    put, get = memory.write_port(), memory.read_port()
    m.d.comb += s.list_at.eq(s.list + s.at)
    counting, due, after, before = Signal(), Signal(), Signal(replay.times_bits), Signal.like(s.table.times)
    # Known a cycle after the count is read: has it reached `times`, and will it with one more?
    m.d.sync += [
        before.eq(s.table.times - 1),
        s.spent.eq((s.table.times != 0) & (get.data >= s.table.times)),
        due.eq(get.data >= before),
    ]
    item = s.kept.row.item
    m.d.comb += [
        after.eq(Mux(get.data.all(), get.data, get.data + 1)),
        get.addr.eq(Cat(Mux(s.kind == Kind.UPDATE, s.row.data, item)[:slot_bits], s.tables.table)),
        s.times_item.eq(item),
    ]
    # Written a cycle later: the same count is not read again sooner.
    m.d.sync += [
        put.en.eq(s.adding | counting),
        put.data.eq(Mux(s.adding, 0, after)),
        put.addr.eq(Cat(Mux(s.adding, s.table.adds, item)[:slot_bits], s.tables.table)),
    ]
    with m.State("TIMES"):
        with m.If((s.at == s.count) | (s.table.times == 0)):
            m.next = "LAST"
        with m.Elif(~s.answerer.busy):
            m.next = "TIMES_ITEM"
    with m.State("TIMES_ITEM"):
        m.next = "TIMES_READ"
    with m.State("TIMES_READ"):
        m.next = "TIMES_COUNT"
    with m.State("TIMES_COUNT"):
        m.d.comb += [counting.eq(commands.ready), commands.valid.eq(due)]
        with m.If(commands.ready):
            m.d.sync += s.at.eq(s.at + 1)
            m.next = "TIMES"
