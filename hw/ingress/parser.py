"""Shows the headers of each frame, while the frame's words wait."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.headers import FRAME_LAYOUT, Arrival, Headers, type_of
from hw.interface.layout import from_big_endian
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.stream.packet import Packet, require_bus
from hw.stream.stored_word import StoredWord, majority, parity_of, stored_word
from iswitch.wire import (
    ETHERTYPE_IPV4,
    FRAME_BYTES,
    IP_PROTOCOL_UDP,
    IPV4_FRAGMENT_MASK,
    IPV4_VERSION_IHL,
    UDP_PORT,
    Type,
)

__all__ = ["Parser"]


class Parser(wiring.Component):
    """Shows one `Headers` item for each frame. The frame's words wait in `o`.

    A frame is `ours` if it is IPv4 without options, no fragment, and UDP to our port at `own_ip`; every other frame is
    an ordinary one. The item appears 2 cycles after the word with byte 64 was taken, for a control message or an
    acknowledgement with byte 128; each word appears 3 cycles after it was taken.

    A word's `parity` is checked when the word enters, for the headers (`Headers.corrupt`), and once more before the
    word leaves. `error` of `o` is 1 from the first word with a bit error to the end of its frame.

    One word per cycle, as long as `headers` are taken faster than frames enter and `o` is drained. `i` stalls when
    `depth` words wait, or an item waits and the next is complete.
    """

    def __init__(self, *, bus_bits: int, depth: int = 64):
        require_bus("Parser", bus_bits)
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"Parser depth must be a power of two above 1, not {depth!r}")
        self.bus_bits = bus_bits
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits, meta=Arrival, parity=True))),
                "own_ip": In(32),
                "headers": Out(stream.Signature(Headers)),
                "o": Out(stream.Signature(Packet(bus_bits))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        header_words = FRAME_BYTES * 8 // self.bus_bits
        word = self.i.payload

        # Words are gathered in registers, and shown a cycle later: nothing else depends on the bus.
        gathered, arrival = Signal(FRAME_BYTES * 8 * 2, reset_less=True), Signal(Arrival, reset_less=True)
        item = Signal(Headers, reset_less=True)
        index = Signal(range(2 * header_words + 1))
        corrupt, damaged = Signal(), Signal()
        head = data.View(FRAME_LAYOUT, gathered[: FRAME_BYTES * 8])
        ours = (
            (from_big_endian(head.eth_type) == ETHERTYPE_IPV4)
            & (head.ip_version_ihl == IPV4_VERSION_IHL)
            & ((from_big_endian(head.ip_fragment) & IPV4_FRAGMENT_MASK) == 0)
            & (head.ip_protocol == IP_PROTOCOL_UDP)
            & (head.ip_dst.as_value() == self.own_ip)
            & (from_big_endian(head.udp_dst) == UDP_PORT)
        )
        control = ours & ((type_of(head) == Type.CONTROL) | (type_of(head) == Type.ACK))

        # The word before completed the header (`headed`), or the place of a control message's body (`bodied`), for
        # which the item of a control message `waits`.
        headed, bodied, ended, waits = Signal(), Signal(), Signal(), Signal()
        shows, free, moves, taken = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq(~self.headers.valid | self.headers.ready),
            shows.eq(headed & (~control | ended) | bodied & waits),
            moves.eq(~(headed | bodied) | free),
            taken.eq(self.i.valid & self.i.ready),
            corrupt.eq(damaged | arrival.scan.corrupt),
            self.headers.payload.eq(item),
            self.busy.eq(self._keep_words(m, taken, moves) | headed | bodied | self.headers.valid),
        ]
        with m.If(self.headers.ready):
            m.d.sync += self.headers.valid.eq(0)
        with m.If(moves):
            m.d.sync += [
                headed.eq(taken & (index == header_words - 1)),
                ended.eq(word.last),
                bodied.eq(taken & (index >= header_words) & (word.last | (index == 2 * header_words - 1))),
            ]
            with m.If(headed | bodied):
                m.d.sync += waits.eq(headed & control)
            with m.If(shows):
                m.d.sync += self.headers.valid.eq(1)
        with m.If(free):
            # The item is valid only if it is shown. Its thousand registers load without that condition, which is late.
            m.d.sync += [
                item.frame.eq(head),
                item.body.eq(gathered[FRAME_BYTES * 8 :]),
                item.ours.eq(ours & ~corrupt),
                item.corrupt.eq(corrupt),
                item.arrival.eq(arrival),
            ]
        with m.If(taken):
            # `damaged`: of the words that were gathered, at least one has a bit error.
            m.d.sync += [
                arrival.eq(self.i.payload.meta),
                damaged.eq((index != 0) & damaged | (parity_of(word) != word.parity)),
            ]
            with m.If(word.last):
                m.d.sync += index.eq(0)
            with m.Elif(index < 2 * header_words):
                m.d.sync += index.eq(index + 1)
            with m.Switch(index):
                for k in range(2 * header_words):
                    with m.Case(k):
                        m.d.sync += gathered[k * self.bus_bits : (k + 1) * self.bus_bits].eq(word.data)
        return m

    def _keep_words(self, m, taken, moves):
        """Keep the words while their headers are read. Return whether any word waits."""
        m.submodules.memory = memory = Memory(
            shape=StoredWord(self.bus_bits),
            depth=self.depth,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN | NEVER_READ_WHILE_WRITTEN,
        )
        writer, reader = memory.write_port(), memory.read_port()
        write, read, level = (Signal(self.depth.bit_length()) for _ in range(3))
        filled, held, reads, leaves, room = Signal(), Signal(), Signal(), Signal(), Signal(init=1)
        # `room` is a cycle old, and a word may have entered since. The last two places are the output registers.
        m.d.sync += room.eq(level < self.depth - 1)
        m.d.comb += [
            level.eq(write - read),
            self.i.ready.eq(room & moves),
            writer.addr.eq(write[:-1]),
            writer.data.eq(stored_word(self.i.payload, self.i.payload.parity)),
            writer.en.eq(taken),
            leaves.eq(~held | self.o.ready),
            reads.eq(~filled | leaves),
            reader.addr.eq(read[:-1]),
            reader.en.eq(reads & (write != read)),
            self.o.valid.eq(held),
        ]
        m.d.sync += [write.eq(write + taken), read.eq(read + reader.en)]
        with m.If(reads):
            m.d.sync += filled.eq(reader.en)

        # The parity is checked between two registers: a block RAM's output is late in its cycle.
        stored, shown, word = reader.data, self.o.payload, Signal(Packet(self.bus_bits))
        m.d.comb += [
            word.data.eq(stored.data),
            word.count.eq(stored.count),
            word.last.eq(majority(stored.last)),
            word.error.eq((shown.error & ~shown.last) | (parity_of(word) != stored.mark)),
        ]
        with m.If(leaves):
            m.d.sync += held.eq(filled)
            with m.If(filled):
                m.d.sync += shown.eq(word)
        return (write != read) | filled | held
