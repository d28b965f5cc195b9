"""Makes DATA frames while the next requests are executed: what they read, and how they are sent."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.interface.address import Address
from hw.interface.axi import address_bits_of
from hw.replay.memory.sequencer import UnitRange, UnitSequencer
from hw.replay.memory.units import Beat, beats_of
from hw.replay.reply.framer import FrameHead, FrameWord
from hw.stream.skid_buffer import SkidBuffer
from iswitch.config import Replay
from iswitch.wire import VERSION, Type
from iswitch.wire.replay import ROW_BYTES, UNIT_BYTES, ReplayOutcome

__all__ = ["LISTS", "LIST_LENGTH", "DataJob", "DataSender", "ReadUnits", "SendData"]

UNIT_ROWS = UNIT_BYTES // ROW_BYTES
LIST_LENGTH = 32
"""Records that a FETCH names at most: bits of the field that says which are overwritten."""
LISTS = 8
"""Lists of slots. More than there are jobs in a `DataSender` and before it, so no list is overwritten while it is
read."""


class DataJob(data.StructLayout):
    """A DATA frame that is to be made.

    `port`, `address`, `kind`, `session`, `table`, `seq` and `token` are those of its header. `fetches`: its body are
    the records of `count` slots, which stand in `list`, of table `table_index`; bit k of `ticket` says that the k-th of
    them was overwritten. Otherwise its body are `count` units from `start` on of the log of session `log`, or nothing,
    if bit 0 of `ticket` says that they were overwritten. `requested`: the frame answers a request, with which its
    outcome is counted; otherwise it is a recipient's copy of a broadcast.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "port": 4,
                "address": Address,
                "kind": 8,
                "session": 8,
                "table": 8,
                "seq": 32,
                "token": 32,
                "fetches": 1,
                "requested": 1,
                "count": range(LIST_LENGTH + 1),
                "ticket": LIST_LENGTH,
                "list": range(LISTS),
                "table_index": range(replay.tables),
                "log": 8,
                "start": UnitRange(replay).members["start"],
            }
        )


class ReadUnits(wiring.Component):
    """Asks memory for the units of one job after another: 1 address a cycle, and 1 cycle between jobs.

    `slot` is that of row `position` of list `list`, in the same cycle; `slot_corrupt`: it has a bit error. Then
    `found_corrupt` is 1 for one cycle, and bit `list` of `damaged` is 1 until `release` of this `release_list`: the
    frame must not leave under a right checksum.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "jobs": In(stream.Signature(DataJob(replay))),
                "list": Out(range(LISTS)),
                "position": Out(range(LIST_LENGTH)),
                "slot": In(range(replay.capacity)),
                "slot_corrupt": In(1),
                "units": Out(stream.Signature(address_bits_of(replay.memory_bytes))),
                "found_corrupt": Out(1),
                "damaged": Out(LISTS),
                "release": In(1),
                "release_list": In(range(LISTS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequencer = sequencer = UnitSequencer(self.replay)
        connect(m, sequencer.units, flipped(self.units))
        job, position, more = self.jobs.payload, Signal.like(self.position), Signal()
        m.d.comb += [
            self.list.eq(job.list),
            self.position.eq(position),
            sequencer.table.eq(job.table_index),
            sequencer.range.in_record.eq(job.fetches),
            sequencer.range.index.eq(Mux(job.fetches, self.slot, job.log)),
            sequencer.range.start.eq(Mux(job.fetches, 0, job.start)),
            sequencer.range.count.eq(Mux(job.fetches, self.replay.record_bytes // UNIT_BYTES, job.count)),
            more.eq(job.fetches & (position != job.count)),
            self.found_corrupt.eq(sequencer.load & job.fetches & self.slot_corrupt),
        ]
        with m.If(self.release):
            m.d.sync += self.damaged.bit_select(self.release_list, 1).eq(0)
        with m.If(self.found_corrupt):
            m.d.sync += self.damaged.bit_select(self.list, 1).eq(1)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.jobs.valid):
                    m.d.comb += sequencer.load.eq(1)
                    m.d.sync += position.eq(1)
                    m.next = "UNITS"
                    with m.If(~job.fetches & job.ticket[0]):  # nothing is read
                        m.d.comb += [sequencer.load.eq(0), self.jobs.ready.eq(1)]
                        m.d.sync += position.eq(0)
                        m.next = "IDLE"
            with m.State("UNITS"):
                # The next record is asked for in the cycle in which this one's last address is taken.
                with m.If(sequencer.last):
                    m.d.sync += position.eq(position + 1)
                    m.d.comb += sequencer.load.eq(more)
                    with m.If(~more):
                        m.d.comb += self.jobs.ready.eq(1)
                        m.d.sync += position.eq(0)
                        m.next = "IDLE"
        return m


class SendData(wiring.Component):
    """Sends the frame of one job after another: a head, and what memory gives as its body.

    A record that was overwritten is sent as zeros. `damaged`: the job's list had a bit error, when its last word is
    there at the latest. If that is so, or if a beat that is sent has a wrong parity (`spoil` is 1 for one cycle), the
    frame leaves under a wrong checksum. If the job is `requested`, another frame follows, which says that everything
    was overwritten: zeros for a FETCH, no units for a log.

    `concluded` is 1 for one cycle, in which `outcome` is that of the job's request, as soon as `hold` is 0. One word a
    cycle, and 2 cycles from the last word of a frame to the next head. Both outputs may stall.
    """

    def __init__(self, replay: Replay, *, bus_bits: int = 64):
        self.replay, self.bus_bits = replay, bus_bits
        super().__init__(
            {
                "jobs": In(stream.Signature(DataJob(replay))),
                "beats": In(stream.Signature(Beat(bus_bits))),
                "damaged": In(1),
                "heads": Out(stream.Signature(FrameHead)),
                "words": Out(stream.Signature(FrameWord(bus_bits))),
                "spoil": Out(1),
                "hold": In(1),
                "concluded": Out(1),
                "outcome": Out(ReplayOutcome),
            }
        )

    def elaborate(self, platform):
        m = Module()
        job, head, beat, word = self.jobs.payload, self.heads.payload, self.beats.payload, self.words.payload
        unit_words = beats_of(self.bus_bits)
        record_words, log_rows = unit_words * (self.replay.record_bytes // UNIT_BYTES), Signal(range(LIST_LENGTH * 8))
        left, place = Signal(range(LIST_LENGTH * 8 + 1)), Signal(range(record_words))
        lost, spoiled, taken, is_blank, is_wrong = Signal(), Signal(), Signal(), Signal(), Signal()
        overwritten = Signal(LIST_LENGTH)
        m.d.comb += [
            log_rows.eq(Mux(job.ticket[0] | lost, 0, job.count << exact_log2(UNIT_ROWS))),
            head.rows.eq(Mux(job.fetches, job.count * (self.replay.record_bytes // ROW_BYTES), log_rows)),
            is_blank.eq(lost | job.fetches & overwritten[0]),
            is_wrong.eq(~is_blank & (beat.data.xor() != beat.parity)),
            word.data.eq(Mux(is_blank, 0, beat.data)),
            word.spoil.eq(~lost & (is_wrong | self.damaged)),
            taken.eq(self.words.valid & self.words.ready),
            self.spoil.eq(taken & is_wrong),
            self.outcome.eq(Mux(lost | (job.ticket != 0), ReplayOutcome.OVERWRITTEN, ReplayOutcome.DONE)),
        ]
        self._address(m, lost)
        with m.FSM():
            with m.State("HEAD"):
                m.d.comb += self.heads.valid.eq(self.jobs.valid)
                m.d.sync += [
                    left.eq(head.rows >> exact_log2(UNIT_ROWS // unit_words)),
                    place.eq(0),
                    overwritten.eq(job.ticket),
                ]
                with m.If(self.heads.valid & self.heads.ready):
                    m.next = "WORDS"
                    with m.If(head.rows == 0):
                        m.next = "END"
            with m.State("WORDS"):
                m.d.comb += [
                    self.words.valid.eq(self.beats.valid | lost),
                    self.beats.ready.eq(self.words.ready & ~lost),
                ]
                with m.If(taken):
                    m.d.sync += [left.eq(left - 1), place.eq(place + 1), spoiled.eq(spoiled | word.spoil)]
                    with m.If(place == record_words - 1):
                        m.d.sync += overwritten.eq(overwritten >> 1)
                    with m.If(left == 1):
                        m.next = "END"
            with m.State("END"):
                with m.If(spoiled & job.requested):
                    m.d.sync += [spoiled.eq(0), lost.eq(1)]
                    m.next = "HEAD"
                with m.Elif(~(job.requested & self.hold)):
                    m.d.comb += [self.concluded.eq(job.requested), self.jobs.ready.eq(1)]
                    m.d.sync += [spoiled.eq(0), lost.eq(0)]
                    m.next = "HEAD"
        return m

    def _address(self, m, lost):
        """Assign the destination of the frame, and its header."""
        job, head = self.jobs.payload, self.heads.payload
        header, all_of_it = head.header, Signal(LIST_LENGTH)
        m.d.comb += [
            all_of_it.eq(Mux(job.fetches, (1 << job.count) - 1, 1)),
            head.port.eq(job.port),
            head.address.eq(job.address),
            header.version_type.eq(VERSION << 4 | Type.DATA),
            header.kind.eq(job.kind),
            header.session.eq(job.session),
            header.table.eq(job.table),
            header.seq.eq(job.seq),
            header.ticket.eq(Mux(lost, all_of_it, job.ticket)),
            header.count.eq(head.rows >> exact_log2(UNIT_ROWS)),
            header.token.eq(job.token),
            header.fragments.eq(Mux(job.fetches, 0, job.log)),
        ]


class DataSender(wiring.Component):
    """A queue of DATA frames that are made in order, beside the execution of requests.

    Holds 4 jobs. `busy`: from the cycle after a job was taken to its end. Memory is read for a job before the frames of
    the jobs before it have left, so what a job reads must not be written while `busy`. `found_corrupt` is 1 for one
    cycle for each bit error and each error response in what is read. The other members are those of `ReadUnits` and
    `SendData`.
    """

    JOBS = 4

    def __init__(self, replay: Replay, *, bus_bits: int = 64):
        self.replay = replay
        self.read_units, self.send_data = ReadUnits(replay), SendData(replay, bus_bits=bus_bits)
        reads, sends = self.read_units.signature.members, self.send_data.signature.members
        super().__init__(
            {name: reads[name] for name in ("jobs", "list", "position", "slot", "slot_corrupt", "units")}
            | {name: sends[name] for name in ("beats", "heads", "words", "hold", "concluded", "outcome")}
            | {"found_corrupt": Out(1), "busy": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.read_units, m.submodules.send_data = reads, sends = self.read_units, self.send_data
        sent = sends.jobs.payload
        entries, waiting = [], []
        for name, part in (("reads", reads), ("sends", sends)):
            # Jobs are in registers and not in a memory, whose bit errors would have to be found.
            queue = [SkidBuffer(DataJob(self.replay)) for _ in range(self.JOBS // 2)]
            for k, buffer in enumerate(queue):
                m.submodules[f"{name}_{k}"] = buffer
            for before, after in pairwise(queue):
                connect(m, before.o, after.i)
            connect(m, queue[-1].o, part.jobs)
            entries.append(queue[0].i)
            waiting = [buffer.o.valid for buffer in queue]  # behind the loop, jobs that are to be sent
        for entry in entries:
            m.d.comb += [entry.payload.eq(self.jobs.payload), entry.valid.eq(self.jobs.valid & self.jobs.ready)]
        connect(m, reads.units, flipped(self.units))
        connect(m, sends.heads, flipped(self.heads))
        connect(m, sends.words, flipped(self.words))
        connect(m, flipped(self.beats), sends.beats)
        m.d.comb += [
            self.jobs.ready.eq(Cat(entry.ready for entry in entries).all()),
            self.busy.eq(Cat(waiting).any()),
            self.list.eq(reads.list),
            self.position.eq(reads.position),
            reads.slot.eq(self.slot),
            reads.slot_corrupt.eq(self.slot_corrupt),
            reads.release.eq(sends.jobs.valid & sends.jobs.ready & sent.fetches),
            reads.release_list.eq(sent.list),
            sends.damaged.eq(sent.fetches & reads.damaged.bit_select(sent.list, 1)),
            sends.hold.eq(self.hold),
            self.concluded.eq(sends.concluded),
            self.outcome.eq(sends.outcome),
            self.found_corrupt.eq(reads.found_corrupt | sends.spoil),
        ]
        return m
