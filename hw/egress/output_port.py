"""A port's exit: what waits for it, what goes first, and the addresses stamped on it."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.egress.stamp import Checksums, Departure, merged, stamp_of
from hw.interface.address import Address, Binding
from hw.interface.forwarded import Forwarding
from hw.interface.result import ResultMeta
from hw.numeric.formats import is_wide
from hw.stream.cut_through_queue import CutThroughQueue
from hw.stream.packet import LENGTH_BITS, Packet, word_of
from iswitch.config import Config
from iswitch.wire import ADDRESSES, FRAME_BYTES, TAIL_BYTES, UPLINK_TAIL

__all__ = ["OutputPort"]

RESULT, REPLY, ORDINARY = range(3)
REPLY_FRAMES = 8


def body_bytes(config: Config, header: data.View) -> Value:
    """Return the bytes behind a result's or an uplink's header: elements and tail."""
    if not config.uplinks:
        return header.length + TAIL_BYTES
    elements = header.length << (header.up & is_wide(header.numeric))
    return elements + Mux(header.up, UPLINK_TAIL.itemsize, TAIL_BYTES)


class OutputPort(wiring.Component):
    """Three stores (results, replies, ordinary frames), two priorities, and an address stamp for results; replies come
    stamped.

    Results and replies take turns and go before ordinary frames. A result is stored once and shown once for each of its
    recipients at this port (as of its first word), each time with the addresses and checksums of who has that index
    when it leaves; the rest of the frame is the same for all. 9 cycles from the first word of a result to its exit, 5
    of another frame; 5 idle cycles before a result, 1 before another frame, else one word per cycle. The inputs never
    stall: a frame that does not fit is dropped whole and counted. `tx` may stall.

    A frame that has begun never pauses: `tx.valid` falls after its last word only, so a MAC behind a memory of a few
    words need not store whole frames. That holds as long as the inputs themselves bring a frame's words in consecutive
    cycles, for here nothing comes between them.
    """

    def __init__(self, config: Config, *, port: int):
        self.config, self.port = config, port
        packets = lambda meta: stream.Signature(Packet(config.bus_bits, meta=meta, first=True), always_ready=True)
        super().__init__(
            {
                "results": In(packets(ResultMeta(config))),
                "replies": In(packets(Departure)),
                "forwarded": In(packets(Forwarding(config))),
                "bind": In(stream.Signature(Binding(config), always_ready=True)),
                "own_mac": In(48),
                "own_ip": In(32),
                "tx": Out(stream.Signature(Packet(config.bus_bits))),
                "stat_drop_result": Out(1),
                "stat_drop_reply": Out(1),
                "stat_drop_ordinary": Out(1),
                "stat_frame": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        bus_bits, bus_bytes = config.bus_bits, config.bus_bytes

        # Members behind this port, and their addresses.
        hosts = config.members + config.uplinks
        mine = Array(Signal(hosts, name=f"mine_{job}") for job in range(config.jobs))
        m.submodules.addresses = table = Memory(shape=Address, depth=config.jobs * hosts, init=[])
        learn, look = table.write_port(), table.read_port()
        bound = self.bind.payload
        here = self.bind.valid & (bound.port == self.port)
        # Within the table even when nothing is bound: CXXRTL does not forgive what others never look at.
        m.d.comb += [
            learn.addr.eq(Mux(self.bind.valid, bound.job * hosts + bound.member, 0)),
            learn.data.eq(bound.address),
            learn.en.eq(here),
        ]
        for job in range(config.jobs):
            for member in range(hosts):
                with m.If(self.bind.valid & (bound.job == job) & (bound.member == member)):
                    m.d.sync += mine[job][member].eq(here)

        # The three stores. What must be known of a result before it leaves stands in its first word, where the
        # addresses will.
        noted = data.StructLayout({"job": range(config.jobs), "recipients": hosts, "length": LENGTH_BITS})
        assert noted.size <= min(bus_bits, 8 * ADDRESSES.itemsize)
        m.submodules.results = results = CutThroughQueue(bus_bits=bus_bits, depth=config.queue_words)
        m.submodules.replies = replies = CutThroughQueue(
            bus_bits=bus_bits, depth=config.queue_words if config.replay else REPLY_FRAMES * 2 * config.header_words
        )
        m.submodules.ordinary = ordinary = CutThroughQueue(bus_bits=bus_bits, depth=config.queue_words)
        stores = [results, replies, ordinary]
        result, reply, forwarded = self.results.payload, self.replies.payload, self.forwarded.payload
        header = result.meta.header
        note = Signal(noted)
        # A member may be bound elsewhere while a result passes: what is decided at its first word holds to its last.
        takes, took = Signal(), Signal()
        m.d.comb += takes.eq(Mux(result.first, note.recipients.any(), took))
        with m.If(self.results.valid):
            m.d.sync += took.eq(takes)
        m.d.comb += [
            note.job.eq(header.job),
            note.recipients.eq(header.recipients & mine[header.job]),
            note.length.eq(FRAME_BYTES + Mux(header.length == 0, 0, body_bytes(config, header))),
            results.i.valid.eq(self.results.valid & takes),
            word_of(results.i.payload).eq(word_of(result)),
            results.i.payload.first.eq(result.first),
            results.length.eq(result.meta.words * bus_bytes),
            replies.i.valid.eq(self.replies.valid & (reply.meta.port == self.port)),
            word_of(replies.i.payload).eq(word_of(reply)),
            replies.i.payload.first.eq(reply.first),
            replies.length.eq(reply.meta.length),
            ordinary.i.valid.eq(self.forwarded.valid & forwarded.meta.ports[self.port]),
            word_of(ordinary.i.payload).eq(word_of(forwarded)),
            ordinary.i.payload.first.eq(forwarded.first),
            ordinary.length.eq(forwarded.meta.length),
            self.stat_drop_result.eq(results.stat_drop),
            self.stat_drop_reply.eq(replies.stat_drop),
            self.stat_drop_ordinary.eq(ordinary.stat_drop),
        ]
        with m.If(result.first):
            m.d.comb += results.i.payload.data[: noted.size].eq(note)

        # Choice of a frame, and of one recipient.
        source, reply_next, rewound = Signal(2), Signal(), Signal()
        now = Signal(noted)
        shown = data.View(noted, results.o.payload.data[: noted.size])
        chosen = Signal(range(hosts))
        for member in reversed(range(hosts)):
            with m.If(now.recipients[member]):
                m.d.comb += chosen.eq(member)
        m.d.comb += look.addr.eq(now.job * hosts + chosen)

        index = Signal(range(config.header_words + 1))
        m.submodules.checksums = checksums = Checksums()
        m.d.comb += [checksums.own_ip.eq(self.own_ip), checksums.length.eq(now.length), checksums.address.eq(look.data)]
        stamp = stamp_of(m, self.own_mac, self.own_ip, look.data, now.length, checksums)
        valids = Cat(store.o.valid for store in stores)
        word = Signal(Packet(bus_bits))
        m.d.comb += [
            word.eq(Array(store.o.payload for store in stores)[source]),
            results.repeat.eq(now.recipients.any()),
        ]
        with m.If(source == RESULT):
            m.d.comb += word.data.eq(merged(m, results.o.payload.data, stamp, index))
        moves, sends = Signal(), Signal()
        m.d.comb += moves.eq(~self.tx.valid | self.tx.ready)
        with m.If(moves):
            m.d.sync += [self.tx.valid.eq(sends), self.tx.payload.eq(word)]

        with m.FSM() as fsm:
            with m.State("PICK"):
                m.d.sync += index.eq(0)
                with m.If((rewound | results.o.valid) & (~reply_next | ~replies.o.valid)):
                    m.d.sync += [source.eq(RESULT), reply_next.eq(1)]
                    with m.If(~rewound):
                        m.d.sync += now.eq(shown)
                    m.next = "LOOK"
                with m.Elif(replies.o.valid):
                    m.d.sync += [source.eq(REPLY), reply_next.eq(0)]
                    m.next = "SEND"
                with m.Elif(ordinary.o.valid):
                    m.d.sync += source.eq(ORDINARY)
                    m.next = "SEND"
            with m.State("LOOK"):
                m.d.sync += now.recipients.eq(now.recipients & (now.recipients - 1))
                m.next = "HOST"
            with m.State("HOST"):
                m.next = "TOTAL"
            with m.State("TOTAL"):
                m.next = "FOLD"
            with m.State("FOLD"):
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += sends.eq(valids.bit_select(source, 1))
                for k, store in enumerate(stores):
                    m.d.comb += store.o.ready.eq(moves & (source == k))
                with m.If(sends & moves):
                    m.d.sync += index.eq(Mux(index == config.header_words, index, index + 1))
                    with m.If(word.last):
                        with m.If(source == RESULT):
                            m.d.sync += rewound.eq(now.recipients.any())
                        m.next = "PICK"
            m.d.comb += [
                look.en.eq(fsm.ongoing("LOOK")),
                checksums.steps.eq(Cat(fsm.ongoing(step) for step in ("LOOK", "HOST", "TOTAL", "FOLD"))),
            ]
            m.d.comb += self.busy.eq(
                ~fsm.ongoing("PICK") | Cat(*(store.busy for store in stores)).any() | self.tx.valid
            )
        m.d.comb += self.stat_frame.eq(self.tx.valid & self.tx.ready & self.tx.payload.last)
        return m
