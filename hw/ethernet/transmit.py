"""The transmitting half of the MAC: frames to XGMII."""

from enum import Enum

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.ethernet.crc import Crc32
from hw.ethernet.xgmii import ALL_ERRORS, ALL_IDLE, IDLE, PREAMBLE, REMOTE_FAULT, TERMINATE, Xgmii, twice
from hw.stream.packet import Packet

__all__ = ["Transmitter"]

BYTES = 8
FRAME_BYTES_MIN = 60
"""Without the FCS, clause 3.2.8."""
SHORTEST = divmod(FRAME_BYTES_MIN, BYTES)
"""Words before the last of the shortest frame, and bytes in the last."""
GAP_COLUMNS = 3
"""Columns from a terminate to the next start: 12 bytes, less those before the terminate in its column."""


class Kind(Enum):
    """Kind of a word in the frame's own alignment. SPILL: the part of FCS and terminate that does not fit behind the
    data. BROKEN: the next word of the frame came too late."""

    IDLE = 0
    FAULT = 1
    PREAMBLE = 2
    DATA = 3
    SPILL = 4
    BROKEN = 5


class Planned(data.Struct):
    """`count`: bytes of the word with data, also beside the SPILL behind it; `late`: the frame starts in lane 4."""

    kind: Kind
    word: 64
    count: range(BYTES + 1)
    ends: 1
    spoilt: 1
    late: 1


class Place(Enum):
    """The content of a lane."""

    WORD = 0
    FCS = 1
    TERMINATE = 2
    IDLE = 3


class Placed(data.Struct):
    """`fcs` rotated so that each lane finds its byte at its own place, modulo 4."""

    word: Xgmii
    places: data.ArrayLayout(Place, BYTES)
    fcs: 32
    late: 1


class Transmitter(wiring.Component):
    """Frames without FCS to XGMII words: preamble, frame, zeros up to 60 bytes, FCS, terminate, gap (clauses 4.2.3 and
    46).

    One word every cycle; the preamble leaves LATENCY cycles after the frame's first word was offered, if the line is
    free. Starts are in lanes 0 and 4. Between waiting frames the gap is 12 bytes on average and 9 at least: the deficit
    idle count of clause 46.3.1.4. `i` stalls in gaps, preambles and padding. A producer that has offered a frame's
    first word must offer the others without a pause; otherwise an error leaves in place of the missing word, so that no
    receiver takes the frame as complete, and `stat_underrun` pulses. A frame with `error` leaves with its FCS inverted.
    `remote_fault` sends remote faults, `halt` sends idle: the reactions to a local and to a remote fault (clause
    46.3.4.3). Frames that begin meanwhile are taken and discarded, so that no frame leaves long after it was sent.
    """

    LATENCY = Crc32.LATENCY + 4

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(Packet(8 * BYTES))),
                "xgmii": Out(Xgmii, init=ALL_IDLE),
                "remote_fault": In(1),
                "halt": In(1),
                "stat_frame": Out(1),
                "stat_underrun": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        planned = Signal(Planned)
        m.d.sync += planned.eq(self._plan(m))

        m.submodules.crc = crc = Crc32()
        m.d.comb += [
            crc.valid.eq(planned.kind == Kind.DATA),
            crc.data.eq(planned.word),
            crc.count.eq(planned.count),
            crc.last.eq(planned.ends),
        ]
        for _ in range(Crc32.LATENCY):
            checked = Signal(Planned)
            m.d.sync += checked.eq(planned)
            planned = checked
        placed = self._place(m, checked, crc)

        # The byte of each lane. For a frame that starts in lane 4: half of this word after half of the one before.
        assembled, held = Signal(Xgmii, init=ALL_IDLE), Signal(data.StructLayout({"data": 32, "control": 4}))
        late = Signal()
        for lane in range(BYTES):
            at, fcs = slice(8 * lane, 8 * lane + 8), placed.fcs.word_select(lane % 4, 8)
            byte = Signal(8, name=f"byte_{lane}")
            with m.Switch(placed.places[lane]):
                for place, value in (
                    (Place.WORD, placed.word.data[at]),
                    (Place.FCS, fcs),
                    (Place.TERMINATE, TERMINATE),
                    (Place.IDLE, IDLE),
                ):
                    with m.Case(place):
                        m.d.comb += byte.eq(value)
            m.d.sync += assembled.data[at].eq(byte)
        m.d.sync += [
            assembled.control.eq(placed.word.control),
            late.eq(placed.late),
            held.data.eq(assembled.data[32:]),
            held.control.eq(assembled.control[4:]),
        ]
        m.d.sync += [
            self.xgmii.data.eq(Mux(late, Cat(held.data, assembled.data[:32]), assembled.data)),
            self.xgmii.control.eq(Mux(late, Cat(held.control, assembled.control[:4]), assembled.control)),
        ]
        return m

    def _plan(self, m) -> Signal:
        """Plan the next words: the only state machine here. All parts behind it are a pipeline."""
        word, plan = self.i.payload, Signal(Planned)
        index, spoilt = Signal(range(SHORTEST[0] + 2)), Signal()
        is_short, is_shortest = index < SHORTEST[0], index == SHORTEST[0]
        # Words of gap still to send; this frame and the next one start in lane 4; the deficit of idle bytes
        wait, late, late_next, deficit = Signal(2), Signal(), Signal(), Signal(2)
        m.d.comb += plan.late.eq(late)

        with m.FSM():
            with m.State("GAP"):
                m.d.comb += plan.kind.eq(Mux(self.remote_fault, Kind.FAULT, Kind.IDLE))
                m.d.sync += index.eq(0)
                with m.If(wait != 0):
                    m.d.sync += wait.eq(wait - 1)
                with m.Elif(self.i.valid & ~self.remote_fault & ~self.halt):
                    m.d.comb += [plan.kind.eq(Kind.PREAMBLE), plan.late.eq(late_next)]
                    m.d.sync += late.eq(late_next)
                    m.next = "FRAME"
                with m.Else():
                    # The gap is longer than it must be by at least four bytes, so the deficit is zero.
                    m.d.sync += [late_next.eq(0), deficit.eq(0)]
                    with m.If(self.i.valid):
                        m.next = "DISCARD"
            with m.State("DISCARD"):
                m.d.comb += [self.i.ready.eq(1), plan.kind.eq(Mux(self.remote_fault, Kind.FAULT, Kind.IDLE))]
                with m.If(self.i.valid & word.last):
                    m.next = "GAP"
            with m.State("FRAME"):
                m.d.comb += [
                    self.i.ready.eq(1),
                    plan.kind.eq(Mux(self.i.valid, Kind.DATA, Kind.BROKEN)),
                    self.stat_underrun.eq(~self.i.valid),
                    plan.count.eq(Mux(is_short, BYTES, word.count)),
                    plan.spoilt.eq(word.error),
                ]
                for lane in range(BYTES):
                    m.d.comb += plan.word[8 * lane : 8 * lane + 8].eq(
                        Mux(word.count > lane, word.data[8 * lane : 8 * lane + 8], 0)
                    )
                with m.If(self.i.valid):
                    m.d.sync += index.eq(Mux(index > SHORTEST[0], index, index + 1))
                    with m.If(word.last):
                        m.d.sync += spoilt.eq(word.error)
                        with m.If(is_short):
                            m.next = "PADDING"
                        with m.Else():
                            m.d.comb += plan.ends.eq(1)
                            with m.If(is_shortest & (word.count < SHORTEST[1])):
                                m.d.comb += plan.count.eq(SHORTEST[1])
                            m.next = "CLOSE"
            with m.State("PADDING"):
                m.d.comb += [
                    plan.kind.eq(Kind.DATA),
                    plan.count.eq(Mux(is_shortest, SHORTEST[1], BYTES)),
                    plan.spoilt.eq(spoilt),
                    plan.ends.eq(is_shortest),
                ]
                m.d.sync += index.eq(index + 1)
                with m.If(is_shortest):
                    m.next = "CLOSE"
            with m.State("CLOSE"):
                # The word after the one that ended with `count` bytes. With up to 3 bytes it is the gap's first word,
                # and the terminate was in the column before; with up to 7 the terminate is in its first column; with 8
                # in its second. The gap would be 12 bytes less those of the frame in the terminate's column. The
                # deficit is paid by a whole column as soon as it fills one.
                count, columns = Signal(range(BYTES + 1)), Signal(range(2 * GAP_COLUMNS + 1))
                owed = deficit + count[:2]
                m.d.comb += [
                    plan.kind.eq(Mux(count < BYTES - 4, Mux(self.remote_fault, Kind.FAULT, Kind.IDLE), Kind.SPILL)),
                    plan.count.eq(count),
                    columns.eq(GAP_COLUMNS - 1 + count[2:] + late + owed[2]),
                ]
                m.d.sync += [wait.eq((columns >> 1) - 1), late_next.eq(columns[0]), deficit.eq(owed)]
                m.next = "GAP"
        m.d.sync += count.eq(plan.count)
        m.d.comb += self.stat_frame.eq(plan.ends)
        return plan

    def _place(self, m, checked, crc) -> Signal:
        """Choose the content of each lane."""
        placed, spills = Signal(Placed, init={"word": ALL_IDLE}), checked.kind == Kind.SPILL
        control = Signal(BYTES)
        others = {
            Kind.IDLE: ALL_IDLE,
            Kind.FAULT: twice(REMOTE_FAULT),
            Kind.PREAMBLE: PREAMBLE,
            Kind.BROKEN: ALL_ERRORS,
        }
        m.d.sync += placed.word.data.eq(checked.word)
        with m.Switch(checked.kind):
            for kind, word in others.items():
                with m.Case(kind):
                    m.d.sync += placed.word.data.eq(word["data"])
                    m.d.comb += control.eq(word["control"])
        for lane in range(BYTES):
            place, at = Signal(Place, name=f"place_{lane}"), lane + Mux(spills, BYTES, 0)
            with m.If(checked.ends | spills):
                m.d.comb += place.eq(
                    Mux(
                        at < checked.count,
                        Place.WORD,
                        Mux(
                            at < checked.count + 4, Place.FCS, Mux(at == checked.count + 4, Place.TERMINATE, Place.IDLE)
                        ),
                    )
                )
            m.d.sync += [
                placed.places[lane].eq(place),
                placed.word.control[lane].eq(Mux(place == Place.WORD, control[lane], place != Place.FCS)),
            ]
        with m.If(crc.done):
            fcs = crc.fcs ^ checked.spoilt.replicate(32)
            m.d.sync += placed.fcs.eq(Cat(fcs.word_select((lane - checked.count)[:2], 8) for lane in range(4)))
        m.d.sync += placed.late.eq(checked.late)
        return placed
