"""The blocks of 64B/66B: their formats, their legal order, and the conversion of XGMII words to blocks and back."""

from enum import Enum

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.ethernet.xgmii import (
    ALL_ERRORS,
    ALL_IDLE,
    ERROR,
    IDLE,
    LOCAL_FAULT,
    SEQUENCE,
    SIGNAL,
    START,
    TERMINATE,
    Xgmii,
    holds,
    twice,
)

__all__ = ["Block", "Decoder", "Encoder"]

LANES = 8
DATA_HEADER, CONTROL_HEADER = 0b10, 0b01
"""Sync headers, first bit lowest: "01" and "10" of clause 49.2.4.3."""

FORMATS = {
    "CCCCCCCC": 0x1E,
    "CCCCODDD": 0x2D,
    "CCCCSDDD": 0x33,
    "ODDDSDDD": 0x66,
    "ODDDODDD": 0x55,
    "SDDDDDDD": 0x78,
    "ODDDCCCC": 0x4B,
    "TCCCCCCC": 0x87,
    "DTCCCCCC": 0x99,
    "DDTCCCCC": 0xAA,
    "DDDTCCCC": 0xB4,
    "DDDDTCCC": 0xCC,
    "DDDDDTCC": 0xD2,
    "DDDDDDTC": 0xE1,
    "DDDDDDDT": 0xFF,
}
"""Figure 49-7: the content of the lanes, from lane 0 on, and the block type field."""
CODES = {IDLE: 0x00, 0x06: 0x06, ERROR: 0x1E, 0x1C: 0x2D, 0x3C: 0x33, 0x7C: 0x4B, 0xBC: 0x55, 0xDC: 0x66, 0xF7: 0x78}
"""Table 49-1: control characters (idle, low power idle, error, reserved 0 to 5) and their codes of 7 bits."""
ORDERED_SETS = {SEQUENCE: 0x0, SIGNAL: 0xF}
"""Table 49-1: O codes, of 4 bits."""
DATA_FORMAT = len(FORMATS)
"""Number of the data format, after those with a block type field."""


class Block(data.Struct):
    """66 bits, the bit that is sent first lowest; `payload` before scrambling."""

    header: 2
    payload: 64


class Kind(Enum):
    """Kind of a block or a word, clause 49.2.13.2.3; ERROR is every other content."""

    ERROR = 0
    CONTROL = 1
    START = 2
    DATA = 3
    TERMINATE = 4


class State(Enum):
    """State of both state machines, figures 49-16 and 49-17. INIT, C and T have the same successors, so they are one
    state, OUTSIDE a frame."""

    OUTSIDE = 0
    INSIDE = 1
    ERROR = 2


def kind_of(lanes: str) -> Kind:
    return Kind.START if "S" in lanes else Kind.TERMINATE if "T" in lanes else Kind.CONTROL


def fields(lanes: str) -> dict[int, tuple[int, int]]:
    """Return first bit and width, in the payload, of each lane's content. Starts and terminates are in the type field
    alone."""
    places = {}
    for lane, what in enumerate(lanes):
        if what == "D":
            places[lane] = (8 * lane + 8 * ("T" in lanes), 8)
        elif what == "C":
            places[lane] = (8 + 7 * lane, 7)
        elif what == "O":
            places[lane] = (32 + lane, 4)
    return places


def follow(m, state, kind):
    """Return the state after a block of that kind."""
    after = Signal(State, init=State.ERROR)
    with m.Switch(kind):
        with m.Case(Kind.CONTROL):
            m.d.comb += after.eq(Mux(state == State.INSIDE, State.ERROR, State.OUTSIDE))
        with m.Case(Kind.START):
            m.d.comb += after.eq(Mux(state == State.OUTSIDE, State.INSIDE, State.ERROR))
        with m.Case(Kind.DATA):
            m.d.comb += after.eq(Mux(state == State.OUTSIDE, State.ERROR, State.INSIDE))
        with m.Case(Kind.TERMINATE):
            m.d.comb += after.eq(Mux(state == State.OUTSIDE, State.ERROR, State.OUTSIDE))
    return after


class Sorted(data.Struct):
    """The content of each lane, and its code if it is a control character."""

    data: 64
    codes: data.ArrayLayout(7, LANES)
    is_data: LANES
    is_control: LANES
    is_error: LANES
    is_start: LANES
    is_terminate: LANES
    is_ordered: LANES
    is_signal: LANES


class Chosen(data.Struct):
    """The matching format."""

    data: 64
    codes: data.ArrayLayout(7, LANES)
    is_signal: LANES
    form: range(DATA_FORMAT + 1)
    kind: Kind


class Encoder(wiring.Component):
    """Converts XGMII words to blocks (clause 49.2.4). One word every cycle, LATENCY cycles later. A word that is not
    legal, or not legal in this state, becomes a block of errors (figure 49-16)."""

    LATENCY = 4

    def __init__(self):
        super().__init__(
            {
                "xgmii": In(Xgmii, init=ALL_IDLE),
                "block": Out(Block, init=dict(header=CONTROL_HEADER, payload=FORMATS["CCCCCCCC"])),
            }
        )

    def elaborate(self, platform):
        m = Module()
        found, word = Signal(Sorted, init={"is_control": (1 << LANES) - 1}), self.xgmii
        m.d.sync += found.data.eq(word.data)
        for lane in range(LANES):
            is_character = lambda characters, lane=lane: Cat(
                holds(word, lane, character) for character in characters
            ).any()
            m.d.sync += [
                found.is_data[lane].eq(~word.control[lane]),
                found.is_control[lane].eq(is_character(CODES)),
                found.is_error[lane].eq(is_character([ERROR])),
                found.is_start[lane].eq(is_character([START])),
                found.is_terminate[lane].eq(is_character([TERMINATE])),
                found.is_ordered[lane].eq(is_character(ORDERED_SETS)),
                found.is_signal[lane].eq(is_character([SIGNAL])),
            ]
            with m.Switch(word.data.word_select(lane, 8)):
                for character, code in CODES.items():
                    with m.Case(character):
                        m.d.sync += found.codes[lane].eq(code)
                with m.Default():
                    m.d.sync += found.codes[lane].eq(0)

        chosen = Signal(Chosen, init={"kind": Kind.CONTROL})
        is_what = {
            "D": found.is_data,
            "C": found.is_control,
            "S": found.is_start,
            "T": found.is_terminate,
            "O": found.is_ordered,
        }
        # At most one format fits, so numbers and kinds are combined without priority; no match is ERROR.
        fits = {}
        for number, lanes in enumerate([*FORMATS, LANES * "D"]):
            fits[number] = Signal(name=f"fits_{lanes}")
            m.d.comb += fits[number].eq(
                Cat(is_what[what][lane] for lane, what in enumerate(lanes)).all()
                & ~(found.is_error.any() & (number == 0))
            )
        kinds = {
            number: Kind.DATA if number == DATA_FORMAT else kind_of(lanes)
            for number, lanes in enumerate([*FORMATS, ""])
        }
        m.d.sync += [chosen.data.eq(found.data), chosen.codes.eq(found.codes), chosen.is_signal.eq(found.is_signal)]
        for bit in range(4):
            m.d.sync += chosen.form[bit].eq(Cat(fit for number, fit in fits.items() if number >> bit & 1).any())
        for bit in range(3):
            m.d.sync += Value.cast(chosen.kind)[bit].eq(
                Cat(fit for number, fit in fits.items() if kinds[number].value >> bit & 1).any()
            )

        legal, state = Signal(Chosen, init={"kind": Kind.CONTROL}), Signal(State)
        after = follow(m, state, chosen.kind)
        m.d.sync += [state.eq(after), legal.eq(chosen)]
        with m.If(after == State.ERROR):
            m.d.sync += [legal.form.eq(0), legal.codes.eq(Cat(Const(CODES[ERROR], 7) for _ in range(LANES)))]

        m.d.sync += self.block.header.eq(Mux(legal.form == DATA_FORMAT, DATA_HEADER, CONTROL_HEADER))
        with m.Switch(legal.form):
            for number, (lanes, type_field) in enumerate(FORMATS.items()):
                with m.Case(number):
                    payload = Signal(64, name=f"payload_{lanes}")
                    m.d.comb += payload[:8].eq(type_field)
                    for lane, (at, width) in fields(lanes).items():
                        value = {
                            8: legal.data.word_select(lane, 8),
                            7: legal.codes[lane],
                            4: legal.is_signal[lane].replicate(4),
                        }[width]
                        m.d.comb += payload[at : at + width].eq(value)
                    m.d.sync += self.block.payload.eq(payload)
            with m.Default():
                m.d.sync += self.block.payload.eq(legal.data)
        return m


class Taken(data.Struct):
    """A block taken apart: the characters of its codes, if it has codes; `known` marks the valid codes, `ordered` the
    valid O codes."""

    payload: 64
    characters: data.ArrayLayout(8, LANES)
    known: LANES
    is_error: LANES
    ordered: 2
    form: range(DATA_FORMAT + 1)
    sound: 1


class Read(data.Struct):
    """A block of known kind."""

    payload: 64
    characters: data.ArrayLayout(8, LANES)
    form: range(DATA_FORMAT + 1)
    kind: Kind


class Decoder(wiring.Component):
    """Converts blocks to XGMII words (clause 49.2.11). One block every cycle, LATENCY cycles later. A block that is not
    legal, or not legal in this state, becomes a word of errors, and so does a terminate before a block that cannot
    follow a frame (figure 49-17). While `fault` is 1 (no lock, or too many errors), the words are local faults."""

    LATENCY = 4

    def __init__(self):
        super().__init__({"block": In(Block), "fault": In(1), "xgmii": Out(Xgmii, init=twice(LOCAL_FAULT))})

    def elaborate(self, platform):
        m = Module()
        payload, taken = self.block.payload, Signal(Taken, init={"sound": 1, "known": (1 << LANES) - 1})
        m.d.sync += [
            taken.payload.eq(payload),
            taken.sound.eq(self.block.header[0] ^ self.block.header[1]),
            taken.form.eq(DATA_FORMAT),
        ]
        for k, lane in enumerate((0, 4)):
            m.d.sync += taken.ordered[k].eq(
                Cat(payload[32 + lane : 36 + lane] == code for code in ORDERED_SETS.values()).any()
            )
        for lane in range(LANES):
            coded = payload[8 + 7 * lane : 15 + 7 * lane]
            m.d.sync += [
                taken.known[lane].eq(Cat(coded == code for code in CODES.values()).any()),
                taken.is_error[lane].eq(coded == CODES[ERROR]),
            ]
            with m.Switch(coded):
                for character, code in CODES.items():
                    with m.Case(code):
                        m.d.sync += taken.characters[lane].eq(character)
        with m.If(self.block.header == CONTROL_HEADER):
            with m.Switch(payload[:8]):
                for number, type_field in enumerate(FORMATS.values()):
                    with m.Case(type_field):
                        m.d.sync += taken.form.eq(number)
                with m.Default():
                    m.d.sync += taken.sound.eq(0)

        read = Signal(Read, init={"kind": Kind.CONTROL})
        m.d.sync += [
            read.payload.eq(taken.payload),
            read.characters.eq(taken.characters),
            read.form.eq(taken.form),
            read.kind.eq(Kind.ERROR),
        ]
        with m.If(taken.sound):
            with m.Switch(taken.form):
                for number, lanes in enumerate(FORMATS):
                    with m.Case(number):
                        whole = [
                            taken.known[lane] if what == "C" else taken.ordered[lane // 4]
                            for lane, what in enumerate(lanes)
                            if what in "CO"
                        ]
                        with m.If(Cat(*whole, ~taken.is_error.any() | (lanes != "CCCCCCCC")).all()):
                            m.d.sync += read.kind.eq(kind_of(lanes))
                with m.Default():
                    m.d.sync += read.kind.eq(Kind.DATA)

        # A terminate is legal only if the next block may follow a frame.
        block, state, kind = Signal(Read, init={"kind": Kind.CONTROL}), Signal(State), Signal(Kind)
        m.d.sync += block.eq(read)
        m.d.comb += kind.eq(block.kind)
        with m.If((block.kind == Kind.TERMINATE) & (read.kind != Kind.START) & (read.kind != Kind.CONTROL)):
            m.d.comb += kind.eq(Kind.ERROR)
        after = follow(m, state, kind)
        m.d.sync += state.eq(Mux(self.fault, State.OUTSIDE, after))

        with m.Switch(block.form):
            for number, lanes in enumerate(FORMATS):
                with m.Case(number):
                    for lane, what in enumerate(lanes):
                        at = fields(lanes).get(lane, (0, 0))[0]
                        value = {
                            "D": block.payload[at : at + 8],
                            "C": block.characters[lane],
                            "S": START,
                            "T": TERMINATE,
                            "O": Mux(block.payload[at], SIGNAL, SEQUENCE),
                        }[what]
                        m.d.sync += [
                            self.xgmii.data.word_select(lane, 8).eq(value),
                            self.xgmii.control[lane].eq(what != "D"),
                        ]
            with m.Default():
                m.d.sync += [self.xgmii.data.eq(block.payload), self.xgmii.control.eq(0)]
        with m.If(self.fault | (after == State.ERROR)):
            m.d.sync += [
                self.xgmii.data.eq(Mux(self.fault, twice(LOCAL_FAULT)["data"], ALL_ERRORS["data"])),
                self.xgmii.control.eq(Mux(self.fault, twice(LOCAL_FAULT)["control"], ALL_ERRORS["control"])),
            ]
        return m
