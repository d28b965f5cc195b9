"""A port's exit: what waits for it, what goes first, and the addresses stamped on it."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import exact_log2

from hw.aggregate.result import ResultWord, body_bytes
from hw.control.reply import Addressed
from hw.control.tables import Address, Binding
from hw.frame import Cut, Word
from hw.layout import layout
from hw.net.gate import Flooded
from hw.net.store import FrameStore
from hw.queue import LENGTH_BITS, sum_halves
from iswitch.config import Config
from iswitch.wire import ADDRESSES, FRAME_BYTES, UDP_PORT

__all__ = ["OutputPort"]

RESULT, REPLY, ORDINARY = range(3)
REPLY_FRAMES = 8


class OutputPort(wiring.Component):
    """Three stores (results, replies, ordinary frames), two priorities, and an address stamp.

    Results and replies take turns and go before ordinary frames. A result is stored once and shown once for each of its recipients
    at this port (as of its first word), each time with the addresses and checksums of who has that index when
    it leaves; the rest of the frame is the same for all. 7 cycles
    from the first word of a frame of ours to its exit, 4 of an ordinary one; 4 idle cycles between our frames, 1 between
    ordinary ones, else one word per cycle. The inputs never stall: a frame that does not fit is dropped whole and counted. `tx` may stall.
    """

    def __init__(self, config: Config, *, port: int):
        self.config, self.port = config, port
        super().__init__({
            "results": In(stream.Signature(ResultWord(config), always_ready=True)),
            "replies": In(stream.Signature(Addressed(config.bus_bits), always_ready=True)), "reply_first": In(1),
            "floods": In(stream.Signature(Flooded(config), always_ready=True)), "flood_first": In(1),
            "bind": In(stream.Signature(Binding(config), always_ready=True)),
            "own_mac": In(48), "own_ip": In(32), "tx": Out(stream.Signature(Word(config.bus_bits))),
            "stat_drop_result": Out(1), "stat_drop_reply": Out(1), "stat_drop_ordinary": Out(1), "stat_frame": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        bus_bits, bus_bytes = config.bus_bits, config.bus_bytes
        shift = exact_log2(bus_bytes)

        # Members behind this port, and their addresses.
        hosts = config.members + config.uplinks
        mine = Array(Signal(hosts, name=f"mine_{job}") for job in range(config.jobs))
        m.submodules.addresses = table = Memory(shape=Address, depth=config.jobs * hosts, init=[])
        learn, look = table.write_port(), table.read_port()
        bound = self.bind.payload
        here = self.bind.valid & (bound.port == self.port)
        # Within the table even when nothing is bound: CXXRTL does not forgive what others never look at.
        m.d.comb += [learn.addr.eq(Mux(self.bind.valid, bound.job * hosts + bound.member, 0)), learn.data.eq(bound.address), learn.en.eq(here)]
        for job in range(config.jobs):
            for member in range(hosts):
                with m.If(self.bind.valid & (bound.job == job) & (bound.member == member)):
                    m.d.sync += mine[job][member].eq(here)

        # The three stores.
        result_note = data.StructLayout({"job": range(config.jobs), "recipients": hosts, "length": LENGTH_BITS})
        reply_note = data.StructLayout({"address": Address, "length": LENGTH_BITS})
        m.submodules.results = results = FrameStore(bus_bits=bus_bits, depth=config.queue_words, note=result_note, notes=32)
        m.submodules.replies = replies = FrameStore(
            bus_bits=bus_bits, note=reply_note, notes=64 if config.replay else 16,
            depth=config.queue_words if config.replay else REPLY_FRAMES * 2 * config.header_words)
        m.submodules.ordinary = ordinary = FrameStore(bus_bits=bus_bits, depth=config.queue_words, note=unsigned(1),
                                                      notes=64)
        stores = [results, replies, ordinary]
        header = self.results.payload.header
        recipients = header.recipients & mine[header.job]
        # A member may be bound elsewhere while a result passes: what is decided at its first word holds to its last.
        takes, took = Signal(), Signal()
        m.d.comb += takes.eq(Mux(self.results.payload.first, recipients.any(), took))
        with m.If(self.results.valid):
            m.d.sync += took.eq(takes)
        reply, flood = self.replies.payload, self.floods.payload
        m.d.comb += [
            results.put.valid.eq(self.results.valid & takes), results.put.payload.eq(self.results.payload.word),
            results.first.eq(self.results.payload.first), results.put_words.eq(self.results.payload.words),
            results.put_note.job.eq(header.job), results.put_note.recipients.eq(recipients),
            results.put_note.length.eq(FRAME_BYTES + Mux(header.length == 0, 0, sum(body_bytes(config, header)))),
            replies.put.valid.eq(self.replies.valid & (reply.port == self.port)), replies.put.payload.eq(reply.word),
            replies.first.eq(self.reply_first), replies.put_words.eq((reply.length + bus_bytes - 1) >> shift),
            replies.put_note.address.eq(reply.address), replies.put_note.length.eq(reply.length),
            ordinary.put.valid.eq(self.floods.valid & flood.ports[self.port]), ordinary.put.payload.eq(flood.word),
            ordinary.first.eq(self.flood_first), ordinary.put_words.eq((flood.length + bus_bytes - 1) >> shift),
            self.stat_drop_result.eq(results.stat_drop), self.stat_drop_reply.eq(replies.stat_drop),
            self.stat_drop_ordinary.eq(ordinary.stat_drop),
        ]

        # Choice of a frame, and of one recipient.
        source, reply_next = Signal(2), Signal()
        waiting, rewound = Signal(hosts), Signal()
        offered = Mux(rewound, waiting, results.note.recipients)
        chosen = Signal(range(hosts))
        for member in reversed(range(hosts)):
            with m.If(offered[member]):
                m.d.comb += chosen.eq(member)
        m.d.comb += look.addr.eq(results.note.job * hosts + chosen)

        m.submodules.cut = cut = Cut(Word(bus_bits))
        connect(m, cut.o, wiring.flipped(self.tx))
        index = Signal(range(config.header_words + 1))
        length, address = Signal(LENGTH_BITS), Signal(Address)
        sums, folds = Signal(), Signal()
        stamp = self._stamp(m, length, address, sums, folds)
        words = Array(store.o.payload for store in stores)
        valids = Cat(store.o.valid for store in stores)
        stamped = Mux(source == ORDINARY, words[source].data, self._merge(words[source].data, stamp, index))
        m.d.comb += [cut.i.payload.eq(words[source]), cut.i.payload.data.eq(stamped), results.again.eq(waiting.any())]

        with m.FSM() as fsm:
            with m.State("PICK"):
                m.d.sync += index.eq(0)
                with m.If(results.noted & (~reply_next | ~replies.noted)):
                    m.d.sync += [source.eq(RESULT), waiting.eq(offered & ~(1 << chosen)), length.eq(results.note.length),
                                 reply_next.eq(1)]
                    m.next = "LOOK"
                with m.Elif(replies.noted):
                    m.d.sync += [source.eq(REPLY), waiting.eq(Mux(rewound, waiting, 0)), length.eq(replies.note.length),
                                 reply_next.eq(0)]
                    m.next = "LOOK"
                with m.Elif(ordinary.noted):
                    m.d.sync += source.eq(ORDINARY)
                    m.next = "SEND"
            with m.State("LOOK"):
                m.d.sync += address.eq(Mux(source == REPLY, replies.note.address.as_value(), look.data.as_value()))
                m.next = "SUM"
            with m.State("SUM"):
                m.d.comb += sums.eq(1)
                m.next = "FOLD"
            with m.State("FOLD"):
                m.d.comb += folds.eq(1)
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += cut.i.valid.eq(valids.bit_select(source, 1))
                for k, store in enumerate(stores):
                    m.d.comb += store.o.ready.eq(cut.i.ready & (source == k))
                with m.If(cut.i.valid & cut.i.ready):
                    m.d.sync += index.eq(Mux(index == config.header_words, index, index + 1))
                    with m.If(cut.i.payload.last):
                        with m.If(source == RESULT):
                            m.d.sync += rewound.eq(waiting.any())
                        m.next = "PICK"
            m.d.comb += self.busy.eq(~fsm.ongoing("PICK") | Cat(*(store.busy for store in stores)).any() | self.tx.valid)
        m.d.comb += self.stat_frame.eq(self.tx.valid & self.tx.ready & self.tx.payload.last)
        return m

    def _merge(self, word, stamp, index):
        """The word with the stamped bytes in the place of those before our header."""
        bus_bytes = self.config.bus_bytes
        merged = word
        for k in range(self.config.header_words):
            low, high = k * bus_bytes, min((k + 1) * bus_bytes, ADDRESSES.itemsize)
            if low < high:
                part = Cat(stamp.as_value()[8 * low:8 * high], word[8 * (high - low):])
                merged = Mux(index == k, part, merged)
        return merged

    def _stamp(self, m, length, address, sums, folds):
        """Ethernet, IPv4 and UDP of the frame, right after a cycle of `sums` and then one of `folds`.

        IPv4 checksum: RFC 791. UDP: RFC 768; header and payload of ours sum to zero, so addresses, ports, protocol and lengths are all there is.
        """
        ip_at, udp_at = ADDRESSES.fields["ip_version_ihl"][1], ADDRESSES.fields["udp_src"][1]
        stamp = Signal(layout(ADDRESSES))
        ip_length, udp_length = Signal(16), Signal(16)
        m.d.comb += [ip_length.eq(length - ip_at), udp_length.eq(length - udp_at)]

        def wire(number):
            """A 16-bit number as it goes out: its first byte, the upper one, lowest."""
            return (number >> 8 | number << 8) & 0xFFFF if isinstance(number, int) else Cat(number[8:16], number[:8])

        def folded(total):
            once = total[:16] + total[16:]
            return (once[:16] + once[16:])[:16]

        version_ihl, fragment, ttl, protocol = 0x45, wire(0x4000), 64, 17
        ip_total, udp_total, ip_sum, udp_sum = Signal(20), Signal(20), Signal(16), Signal(16)
        hosts = sum_halves(self.own_ip, 0, 4) + sum_halves(address.ip, 0, 4)
        with m.If(sums):
            m.d.sync += [
                ip_total.eq(wire(ip_length) + hosts + (version_ihl + fragment + (protocol << 8 | ttl))),
                udp_total.eq((wire(udp_length) << 1) + hosts + address.udp + ((protocol << 8) + wire(UDP_PORT))),
            ]
        with m.If(folds):
            m.d.sync += [
                ip_sum.eq(~folded(ip_total)), udp_sum.eq(Mux(folded(udp_total) == 0xFFFF, 0xFFFF, ~folded(udp_total))),
            ]
        for name, value in (
                ("eth_dst", address.mac), ("eth_src", self.own_mac), ("eth_type", wire(0x0800)),
                ("ip_version_ihl", version_ihl), ("ip_length", wire(ip_length)), ("ip_fragment", fragment),
                ("ip_ttl", ttl), ("ip_protocol", protocol), ("ip_checksum", ip_sum), ("ip_src", self.own_ip),
                ("ip_dst", address.ip), ("udp_src", wire(UDP_PORT)), ("udp_dst", address.udp),
                ("udp_length", wire(udp_length)), ("udp_checksum", udp_sum)):
            field = stamp[name]
            m.d.comb += (field.as_value() if isinstance(field, data.View) else field).eq(value)
        return stamp
