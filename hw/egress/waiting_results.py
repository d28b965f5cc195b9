"""Results that a port had no room for: they stay in the slots, and the aggregator makes them again."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.address import BINDINGS_BITS
from hw.interface.result import ResultHeader, header_parity
from hw.interface.rows import slot_number
from hw.interface.verdict import Work
from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_WHILE_WRITTEN
from hw.stream.stored_word import majority, triple
from iswitch.config import Config
from iswitch.wire import Operation

__all__ = ["WRITES_BITS", "WaitingResults"]

WRITES_BITS = 15
"""Bits of a slot's number of writes. The scan visits a slot again before it is written 2^15 times."""
CODE_BITS = WRITES_BITS + 1
"""The number is stored and compared with its parity, so that no bit error makes two numbers equal."""
SHARE = 8
"""After as many cycles as this number of the longest payloads takes, a waiting result is made beside full load."""
UNDER_WAY = 16
"""The most results between the sequencer and the ports."""
SMALL = 64
"""Up to so many slots, sets of recipients and numbers of writes are in LUT RAM."""


class Making(data.StructLayout):
    """What is needed to make a result again, beside its header.

    `writes`: how often the slot had been written when the result was made, with the number's parity. While it has been
    written no more often, the slot still holds the sums of that result. `bindings`, `fraction`, `as_is`: as in `Work`.
    `parity`: even parity of `fraction` and `as_is`.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "writes": CODE_BITS,
                "bindings": BINDINGS_BITS,
                "fraction": signed(9),
                "as_is": int(config.uplinks),
                "parity": 1,
            }
        )


class Row(data.StructLayout):
    """The header of a slot's waiting result, without job and recipients, and what `Making` has of its `Work`."""

    def __init__(self, config: Config):
        apart = ("job", "recipients", "grant")
        header = {name: field.shape for name, field in ResultHeader(config) if name not in apart}
        super().__init__(
            {"header": data.StructLayout(header), "fraction": signed(9), "as_is": int(config.uplinks), "parity": 1}
        )


def making_parity(made: data.View) -> Value:
    """Return the even parity of `fraction` and `as_is`."""
    return Cat(made.fraction, made.as_is).xor()


class WaitingResults(wiring.Component):
    """Keeps the recipients of each result that a port refused, and has the aggregator make the result again.

        works -> WaitingResults -> operations
        ports refuse a result -> row of its slot -> scan -> operation RESEND or SEND_UP

    A refused result is not stored, because its slot still holds the sums: members keep a slot until they have
    acknowledged its result. The row of the slot keeps the header. A scan visits the rows in turn. If a port has room,
    the scan emits an operation for the row's recipients behind all ports with room. The copy has the bits of the first
    one.

    If the job goes on without the recipients (after an eviction, a Leave or a RESET), the slot is written again. Then
    the row is void: the scan erases it, and `expired` pulses. The number of writes is compared once more when no
    operation of a frame can precede the waiting one, so old headers never meet new sums.

    `held_back` of a port is 1 from a refusal until the scan has passed all slots once without a row for the port. So a
    flood of new results cannot overtake a waiting one for ever. If results wait for one port only, they leave in the
    order of the ring; if they wait for several, the scan goes on to the next row for which there is room.

    Operations of frames pass combinationally and go first. A waiting operation starts if no frame is in the pipeline
    and the aggregator is idle, or after `patience` cycles, so that it takes at most a ninth of a full load. It delays
    the next contribution by at most 4 cycles more than its own words. One waiting operation is under way at a time. A
    scan step takes 2 cycles. After a reset the component takes a cycle for each slot until `erased`; results must not
    begin before.

    Parameters
    ----------
    config : Config
        The switch.

    Attributes
    ----------
    patience : int
        Cycles after which a waiting result no longer waits for a cycle that no frame needs.

    Members
    -------
    works : stream of Work, in
        Operations of frames.
    operations : stream of Work, out
        Operations for the aggregator.
    frames_waiting : 1, in
        A frame is between the ports and the aggregator.
    aggregating : 1, in
        The aggregator has an operation or a payload.
    begins, ends : 1, in
        The first word of a result reaches the ports in this cycle, or the last. `header` is its header, from the first
        word to the last.
    repeated : 1, out
        The result that begins was waiting.
    decided : BINDINGS_BITS, out
        `Work.bindings` of the result that begins.
    local, refused, has_room, held_back : one for each port
        See `OutputPort`.
    waits, expired : 1 for each port, out
        A result has to wait for the port; a waiting result for the port is void.
    """

    def __init__(self, config: Config):
        self.config, self.patience = config, SHARE * config.segment_words
        hosts = config.members + config.uplinks
        works = stream.Signature(Work(config))
        super().__init__(
            {
                "works": In(works),
                "operations": Out(works),
                "frames_waiting": In(1),
                "aggregating": In(1),
                "begins": In(1),
                "ends": In(1),
                "header": In(ResultHeader(config)),
                "repeated": Out(1),
                "decided": Out(BINDINGS_BITS),
                "local": In(hosts).array(config.ports, config.jobs),
                "refused": In(hosts).array(config.ports),
                "has_room": In(1).array(config.ports),
                "held_back": Out(1).array(config.ports),
                "waits": Out(1).array(config.ports),
                "expired": Out(1).array(config.ports),
                "erased": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        ports, slots = range(config.ports), config.jobs * config.slots
        hosts = config.members + config.uplinks
        attrs = {"ram_style": "distributed"} if slots <= SMALL else {}
        # A row is written in the cycle after its result begins, and the scan reads no row then.
        m.submodules.rows = rows = Memory(
            shape=Row(config), depth=slots, init=[], attrs={"ram_style": "block"} | NEVER_READ_WHILE_WRITTEN
        )
        # Block RAM is scarcer than LUT RAM, so a row's bindings are apart. Results, too, read writes and recipients.
        m.submodules.bindings = bindings = Memory(shape=unsigned(BINDINGS_BITS), depth=slots, init=[], attrs=attrs)
        m.submodules.written = written = Memory(shape=unsigned(CODE_BITS), depth=slots, init=[], attrs=attrs)
        m.submodules.recipients = recipients = Memory(shape=unsigned(hosts), depth=slots, init=[], attrs=attrs)
        m.submodules.writes = writes = Memory(shape=unsigned(CODE_BITS), depth=slots, init=[], attrs=attrs)
        row_write, row_read = rows.write_port(), rows.read_port()
        bindings_write, bindings_read = bindings.write_port(), bindings.read_port()
        written_write, written_read = written.write_port(), written.read_port()
        waiting_write, waiting_read = recipients.write_port(), recipients.read_port()
        count_write, count_read, seen_read = writes.write_port(), writes.read_port(), writes.read_port()

        # An operation is taken. One cycle later the slot's number of writes is known, and the result is under way.
        # The scan waits for the result of its own operation, which no bit error may hide.
        Entry = data.StructLayout({"made": Making(config), "repeated": 3})
        m.submodules.under_way = under_way = Fifo(Entry, depth=UNDER_WAY, buffered=False)
        operation, taken = self.operations.payload, Signal()
        blocks, issues, has_place = Signal(), Signal(), Signal(init=1)
        expected, sends, pointer = Signal(CODE_BITS), Signal(hosts), Signal(range(slots))
        # The level that is compared lacks the last two operations. An operation that was offered stays so.
        offered = self.operations.valid & ~self.operations.ready
        m.d.sync += has_place.eq(offered | (under_way.level < UNDER_WAY - 2))
        m.d.comb += [
            operation.eq(self.works.payload),
            operation.result.parity.eq(header_parity(self.works.payload.result)),
            self.operations.valid.eq(Mux(blocks, issues, self.works.valid & has_place)),
            self.works.ready.eq(~blocks & has_place & self.operations.ready),
            taken.eq(self.operations.valid & self.operations.ready),
            count_read.addr.eq(operation.slot),
        ]
        with m.If(issues):
            m.d.comb += [
                *self._repeat(operation, row_read.data),
                operation.slot.eq(pointer),
                operation.bindings.eq(bindings_read.data),
                operation.result.job.eq(pointer >> exact_log2(config.slots)),
                operation.result.recipients.eq(sends),
            ]
        was_taken, wrote, emits = Signal(), Signal(), Signal()
        number, count, at = Signal(WRITES_BITS), Signal(CODE_BITS), Signal(range(slots))
        entry = Signal(Entry)
        m.d.sync += [
            was_taken.eq(taken),
            wrote.eq(operation.write),
            emits.eq(operation.emit),
            at.eq(operation.slot),
            entry.repeated.eq(triple(issues)),
            entry.made.bindings.eq(operation.bindings),
            entry.made.fraction.eq(operation.fraction),
        ]
        if config.uplinks:
            m.d.sync += entry.made.as_is.eq(operation.as_is)
        m.d.comb += [
            number.eq(count_read.data[:WRITES_BITS] + wrote),
            count.eq(Cat(number, number.xor())),
            count_write.addr.eq(at),
            count_write.data.eq(count),
            count_write.en.eq(was_taken & wrote),
            under_way.i.valid.eq(was_taken & emits),
            under_way.i.payload.eq(entry),
            under_way.i.payload.made.writes.eq(count),
            under_way.i.payload.made.parity.eq(making_parity(entry.made)),
        ]

        # A result begins. One cycle later its refusals are noted in the row of its slot.
        noting, made, refused = Signal(), Signal(Making(config)), Signal(hosts)
        slot, noted_slot = Signal(range(slots)), Signal(range(slots))
        scans, job = Signal(), Signal(range(config.jobs))
        m.d.comb += [
            slot.eq(Mux(self.begins, slot_number(config, self.header.job, self.header.seq), pointer)),
            job.eq(slot >> exact_log2(config.slots)),
            self.repeated.eq(majority(under_way.o.payload.repeated)),
            self.decided.eq(under_way.o.payload.made.bindings),
            under_way.o.ready.eq(self.begins),
            # What the scan read stays until its next step.
            row_read.addr.eq(pointer),
            row_read.en.eq(scans),
            bindings_read.addr.eq(pointer),
            bindings_read.en.eq(scans),
            written_read.addr.eq(slot),
            written_read.en.eq(self.begins | scans),
            waiting_read.addr.eq(slot),
            waiting_read.en.eq(self.begins | scans),
            seen_read.addr.eq(slot),
        ]
        # The members behind each port, of the job whose row is read.
        local = Array(Signal(hosts, name=f"local_{port}") for port in ports)
        refuses, ready = Signal(config.ports), Signal(hosts)
        behind = [Array(self.local[port][number] for number in range(config.jobs))[job] for port in ports]
        m.d.sync += [
            noting.eq(self.begins),
            noted_slot.eq(slot),
            made.eq(under_way.o.payload.made),
            refused.eq(reduce(or_, self.refused)),
            refuses.eq(Cat(self.refused[port].any() for port in ports)),
            ready.eq(reduce(or_, (Mux(self.has_room[port], behind[port], 0) for port in ports))),
        ]
        with m.If(self.begins | scans):
            m.d.sync += [local[port].eq(behind[port]) for port in ports]

        waiting = waiting_read.data
        valid = waiting.any() & (written_read.data == seen_read.data)
        behind_waiting = Cat((waiting & local[port]).any() for port in ports)
        found, expires = Signal(config.ports), Signal(config.ports)
        notes, waits = Signal(), Signal(config.ports)
        # A result has at least two words, so its header is still there.
        m.d.comb += [
            notes.eq(noting & refused.any()),
            row_write.addr.eq(noted_slot),
            *(row_write.data.header[name].eq(self.header[name]) for name, _ in row_write.data.header.shape()),
            row_write.data.fraction.eq(made.fraction),
            *([row_write.data.as_is.eq(made.as_is)] if config.uplinks else []),
            row_write.data.parity.eq(made.parity),
            bindings_write.addr.eq(noted_slot),
            bindings_write.data.eq(made.bindings),
            bindings_write.en.eq(row_write.en),
            written_write.addr.eq(noted_slot),
            written_write.data.eq(made.writes),
            written_write.en.eq(row_write.en),
        ]
        with m.If(notes):
            with m.If(made.writes == seen_read.data):
                m.d.comb += [
                    waiting_write.en.eq(1),
                    waiting_write.addr.eq(noted_slot),
                    waiting_write.data.eq(Mux(valid, waiting, 0) | refused),
                    row_write.en.eq(~valid),
                    expires.eq(Mux(valid, 0, behind_waiting)),
                    waits.eq(refuses),
                ]
            with m.Else():
                m.d.comb += expires.eq(refuses)
        m.d.comb += [self.waits[port].eq(waits[port]) for port in ports]
        m.d.comb += [self.expired[port].eq(expires[port]) for port in ports]

        # `lap`: ports for which a row was found, or a result was refused, since the scan began its lap.
        held_back, lap, lap_next = Signal(config.ports), Signal(config.ports), Signal(config.ports)
        advance, none_left = Signal(), Signal()
        refusing = Mux(notes, refuses, 0)
        m.d.comb += [self.held_back[port].eq(held_back[port]) for port in ports]
        m.d.comb += lap_next.eq(lap | found | refusing)
        m.d.sync += [lap.eq(lap_next), held_back.eq(held_back | refusing), none_left.eq(none_left & ~notes)]
        with m.If(advance):
            m.d.sync += pointer.eq(pointer + 1)
            with m.If(pointer == slots - 1):
                m.d.sync += [
                    lap.eq(refusing),
                    held_back.eq(held_back & lap_next | refusing),
                    none_left.eq(~lap_next.any()),
                ]

        toward = Signal(config.ports)
        patience, settled, current = Signal(range(self.patience + 1)), Signal(2), Signal()
        passes = Signal()
        m.d.sync += current.eq(~self.begins)  # `seen_read` shows the slot at `pointer`
        with m.FSM(init="ERASE") as fsm:
            with m.State("ERASE"):
                m.d.comb += [waiting_write.en.eq(1), waiting_write.addr.eq(pointer)]
                m.d.sync += pointer.eq(pointer + 1)
                with m.If(pointer == slots - 1):
                    m.d.sync += self.erased.eq(1)
                    m.next = "REST"
            with m.State("REST"):
                with m.If(notes):
                    m.next = "SCAN"
            with m.State("SCAN"):
                # The row must not change between its read and its write.
                with m.If(none_left & ~notes):
                    m.next = "REST"
                with m.Elif(~self.begins & ~noting):
                    m.d.comb += scans.eq(1)
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += waiting_write.addr.eq(pointer)
                m.d.sync += [
                    expected.eq(written_read.data),
                    sends.eq(waiting & ready),
                    toward.eq(Cat((waiting & ready & local[port]).any() for port in ports)),
                    patience.eq(0),
                ]
                m.next = "SCAN"
                with m.If(waiting.any() & ~valid):
                    m.d.comb += [waiting_write.en.eq(1), expires.eq(behind_waiting), advance.eq(1)]
                with m.Elif((waiting & ready).any()):
                    m.d.comb += [waiting_write.en.eq(1), waiting_write.data.eq(waiting & ~ready)]
                    m.d.comb += found.eq(behind_waiting)
                    m.next = "WAIT_FOR_GAP"
                with m.Else():
                    # If all results that wait are for the ports of this row, the scan stays at it, the oldest.
                    m.d.comb += [
                        found.eq(behind_waiting),
                        advance.eq((held_back & ~behind_waiting).any() | ~waiting.any()),
                    ]
            with m.State("WAIT_FOR_GAP"):
                m.d.sync += [patience.eq(Mux(patience == self.patience, self.patience, patience + 1)), settled.eq(0)]
                idle = ~self.works.valid & ~self.aggregating & ~self.frames_waiting
                with m.If(idle | (patience == self.patience) & (~self.operations.valid | self.operations.ready)):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # No operation of a frame is taken any more, and the writes of earlier ones are counted.
                m.d.comb += blocks.eq(1)
                with m.If(settled != 3):
                    m.d.sync += settled.eq(settled + 1)
                with m.Elif(current):
                    m.next = "ISSUE"
                    with m.If((expected != seen_read.data) | (making_parity(row_read.data) != row_read.data.parity)):
                        m.d.comb += [expires.eq(toward), advance.eq(1)]
                        m.next = "SCAN"
            with m.State("ISSUE"):
                m.d.comb += [blocks.eq(1), issues.eq(has_place)]
                with m.If(taken):
                    m.next = "PASS_PORTS"
            with m.State("PASS_PORTS"):
                m.d.sync += passes.eq(passes | self.begins & self.repeated)
                with m.If(self.ends & (passes | self.begins & self.repeated)):
                    m.d.sync += passes.eq(0)
                    m.d.comb += advance.eq(1)
                    m.next = "SCAN"
            m.d.comb += self.busy.eq(~fsm.ongoing("REST") | noting | under_way.o.valid | was_taken)
        return m

    def _repeat(self, operation, row):
        """Return statements that make `operation` the one that emits the row's result again."""
        trees = self.config.uplinks
        sends_up = row.header.up if trees else 0
        return [
            operation.as_value().eq(0),
            operation.operation.eq(Mux(sends_up, Operation.SEND_UP, Operation.RESEND)),
            operation.emit.eq(1),
            operation.fraction.eq(row.fraction),
            *(operation.result[name].eq(row.header[name]) for name, _ in row.header.shape()),
            *([operation.as_is.eq(row.as_is)] if trees else []),
        ]
