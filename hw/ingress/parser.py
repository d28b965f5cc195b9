"""Shows the headers of each frame, while the frame's words wait."""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.interface.headers import FRAME_LAYOUT, Arrival, Headers, type_of
from hw.interface.layout import from_big_endian
from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.stream.packet import Packet, require_bus
from hw.stream.stages import once
from hw.stream.stored_word import StoredWord, majority, parity_of, stored_word, triple
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
    an ordinary one. The item appears 1 cycle after the word with byte 64 was taken, for a control message or an
    acknowledgement with byte 128; each word appears 3 cycles after it was taken.

    `payload_only`: the frame in `o` is ours and has numbers (a contribution, an uplink or a result), so its header
    words need not leave. It is valid from the cycle behind the last header word's on, and 0 before.

    A word's `parity` is checked when the word enters, for the headers (`Headers.corrupt`), and once more before the
    word leaves. `error` of `o` is 1 from the first word with a bit error to the end of its frame.

    One word per cycle, as long as `headers` are taken faster than frames enter and `o` is drained. `i` stalls when
    `depth` words wait, or an item waits and the next word completes another.
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
                "payload_only": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        header_words = FRAME_BYTES * 8 // self.bus_bits
        word = self.i.payload

        # The words before the last header word are gathered in registers. The last one goes into the item at once.
        gathered = Signal(FRAME_BYTES * 8 - self.bus_bits, reset_less=True)
        item, index = Signal(Headers, reset_less=True), Signal(range(2 * header_words))
        damaged, corrupt = Signal(), Signal()
        head = data.View(FRAME_LAYOUT, Cat(gathered, word.data))
        ours = once(
            m,
            "ours",
            (from_big_endian(head.eth_type) == ETHERTYPE_IPV4)
            & (head.ip_version_ihl == IPV4_VERSION_IHL)
            & ((from_big_endian(head.ip_fragment) & IPV4_FRAGMENT_MASK) == 0)
            & (head.ip_protocol == IP_PROTOCOL_UDP)
            & (head.ip_dst.as_value() == self.own_ip)
            & (from_big_endian(head.udp_dst) == UDP_PORT),
        )
        kind = type_of(head)
        control = ours & ((kind == Type.CONTROL) | (kind == Type.ACK))
        numbers = ours & ((kind == Type.CONTRIBUTION) | (kind == Type.UPLINK) | (kind == Type.RESULT))

        # `heads`: the word completes the header. The item of a control message `waits` for its body, whose words go
        # into it. `corrupt`: the word, one before it or the scan has a bit error.
        heads, waits, bodied, free, taken = (
            Signal(name=name) for name in ("heads", "waits", "bodied", "free", "taken")
        )
        m.d.comb += [
            heads.eq(index == header_words - 1),
            bodied.eq(waits & (word.last | (index == 2 * header_words - 1))),
            # `headers.ready` is late, and counts only where every word may complete an item.
            free.eq(~self.headers.valid | (self.headers.ready if header_words == 1 else 0)),
            taken.eq(self.i.valid & self.i.ready),
            corrupt.eq((index != 0) & damaged | (parity_of(word) != word.parity) | word.meta.scan.corrupt),
            self.headers.payload.eq(item),
            self.busy.eq(self._keep_words(m, taken, ~heads | free) | waits | self.headers.valid),
        ]
        # Every frame has all header words, so no more than this many begin in the memory and its two registers.
        frames = self.depth // header_words + 3
        m.submodules.kinds = kinds = Fifo(unsigned(3), depth=frames, buffered=False)
        m.d.comb += [
            kinds.i.valid.eq(taken & heads),
            kinds.i.payload.eq(triple(numbers & ~corrupt)),
            kinds.o.ready.eq(self.o.valid & self.o.ready & self.o.payload.last),
            self.payload_only.eq(kinds.o.valid & majority(kinds.o.payload)),
        ]
        with m.If(self.headers.ready):
            m.d.sync += self.headers.valid.eq(0)
        with m.If(taken):
            m.d.sync += damaged.eq(corrupt)
            with m.If(word.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != 2 * header_words - 1):
                m.d.sync += index.eq(index + 1)
            with m.If(heads):
                m.d.sync += [self.headers.valid.eq(~control | word.last), waits.eq(control & ~word.last)]
            with m.If(bodied):
                m.d.sync += [self.headers.valid.eq(1), waits.eq(0)]
            with m.Switch(index):
                for k in range(header_words - 1):
                    with m.Case(k):
                        m.d.sync += gathered.word_select(k, self.bus_bits).eq(word.data)
        with m.If(waits):
            with m.Switch(index):
                for k in range(header_words):
                    with m.Case(header_words + k):
                        m.d.sync += item.body.as_value().word_select(k, self.bus_bits).eq(word.data)
            with m.If(taken & corrupt):
                m.d.sync += [item.ours.eq(0), item.corrupt.eq(1)]
        with m.Elif(free):
            # The item is valid only if it is complete. Its registers load without that condition, which is late.
            m.d.sync += [
                item.frame.eq(head),
                item.ours.eq(ours & ~corrupt),
                item.corrupt.eq(corrupt),
                item.arrival.eq(word.meta),
            ]
        return m

    def _keep_words(self, m, taken, accepts):
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
            self.i.ready.eq(room & accepts),
            writer.addr.eq(write[:-1]),
            writer.data.eq(stored_word(self.i.payload, self.i.payload.parity)),
            writer.en.eq(taken),
            leaves.eq(~held | self.o.ready),
            reads.eq(~filled | leaves),
            reader.addr.eq(read[:-1]),
            reader.en.eq(reads & (write != read)),
            self.o.valid.eq(held),
        ]
        with m.If(taken):
            m.d.sync += write.eq(write + 1)
        with m.If(reader.en):
            m.d.sync += read.eq(read + 1)
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
