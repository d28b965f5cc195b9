"""The exit of a port: its queues, their priorities, and the addresses of results."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.egress.header_checksums import HeaderChecksums
from hw.egress.queue_age import QueueAge
from hw.egress.stamp import Departure, addresses_of, stamped
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
    """Sends results, replies and ordinary frames by one port.

    Each kind has a queue, and the inputs never stall: a frame for which its queue has no room is dropped and counted.
    Results and replies alternate and go before ordinary frames.

    A result is stored once and sent once to each of its recipients behind this port, as they are at its first word.
    Each copy has the address and the checksums of the recipient; the rest of the frame is the same. Replies arrive with
    addresses.

    The first word of a result leaves 9 cycles after it entered, the first word of another frame 5 cycles after. Before
    a result 5 cycles are idle, before another frame 1; otherwise a word leaves in each cycle. `tx` may stall.

    `tx.valid` does not fall between the first word of a frame and the last, so that a MAC with a memory of a few words
    need not store frames. This holds as long as the words of a frame enter in consecutive cycles.

    Parameters
    ----------
    config : Config
        The switch.
    port : int
        Number of the port.

    Members
    -------
    tick : 1, in
        The unit of age of ordinary frames has passed.
    aged : 1, out
        The frame in `tx` is an ordinary one that has waited for too long (`QueueAge`). Valid with its first word.
    bind : stream of Binding, in
        Address and port of a member, when it joins.
    stat_drop_result, stat_drop_reply, stat_drop_ordinary : 1, out
        A frame is dropped.
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
                "tick": In(1),
                "aged": Out(1),
                "own_mac": In(48),
                "own_ip": In(32),
                "tx": Out(stream.Signature(Packet(config.bus_bits))),
                "stat_drop_result": Out(1),
                "stat_drop_reply": Out(1),
                "stat_drop_ordinary": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        hosts = config.members + config.uplinks

        delivery_shape = data.StructLayout({"job": range(config.jobs), "recipients": hosts, "length": LENGTH_BITS})
        local, reader = self._addresses(m, hosts)
        queues = self._queues(m, local, delivery_shape)
        results, replies, ordinary = queues

        # The frame that is sent, and for a result the recipients that it has not been sent to.
        source, reply_next, repeats = Signal(2), Signal(), Signal()
        current = Signal(delivery_shape)
        offered = data.View(delivery_shape, results.o.payload.data[: delivery_shape.size])
        chosen = Signal(range(hosts))
        for member in reversed(range(hosts)):
            with m.If(current.recipients[member]):
                m.d.comb += chosen.eq(member)
        m.d.comb += reader.addr.eq(current.job * hosts + chosen)

        index = Signal(range(config.header_words + 1))
        m.submodules.checksums = checksums = HeaderChecksums()
        m.d.comb += [
            checksums.own_ip.eq(self.own_ip),
            checksums.length.eq(current.length),
            checksums.address.eq(reader.data),
        ]
        addresses = addresses_of(m, self.own_mac, self.own_ip, reader.data, current.length, checksums)
        valids = Cat(queue.o.valid for queue in queues)
        word = Signal(Packet(config.bus_bits))
        m.d.comb += [
            word.eq(Array(queue.o.payload for queue in queues)[source]),
            results.repeat.eq(current.recipients.any()),
        ]
        with m.If(source == RESULT):
            m.d.comb += word.data.eq(stamped(m, results.o.payload.data, addresses, index))
        moves, sends = Signal(), Signal()
        m.d.comb += moves.eq(~self.tx.valid | self.tx.ready)
        with m.If(moves):
            m.d.sync += [self.tx.valid.eq(sends), self.tx.payload.eq(word)]
        m.submodules.ordinary_age = age = QueueAge(frames=config.queue_words)
        with m.If(moves):
            m.d.sync += self.aged.eq((source == ORDINARY) & age.aged)
        m.d.comb += [
            age.tick.eq(self.tick),
            age.enters.eq(ordinary.i.valid & ordinary.i.payload.first & ~ordinary.stat_drop),
            age.leaves.eq(ordinary.o.valid & ordinary.o.ready & ordinary.o.payload.last),
        ]

        with m.FSM() as fsm:
            with m.State("PICK"):
                m.d.sync += index.eq(0)
                with m.If((repeats | results.o.valid) & (~reply_next | ~replies.o.valid)):
                    m.d.sync += [source.eq(RESULT), reply_next.eq(1)]
                    with m.If(~repeats):
                        m.d.sync += current.eq(offered)
                    m.next = "READ_ADDRESS"
                with m.Elif(replies.o.valid):
                    m.d.sync += [source.eq(REPLY), reply_next.eq(0)]
                    m.next = "SEND"
                with m.Elif(ordinary.o.valid):
                    m.d.sync += source.eq(ORDINARY)
                    m.next = "SEND"
            with m.State("READ_ADDRESS"):
                m.d.sync += current.recipients.eq(current.recipients & (current.recipients - 1))
                m.next = "ADD_ADDRESS"
            with m.State("ADD_ADDRESS"):
                m.next = "ADD_TOTALS"
            with m.State("ADD_TOTALS"):
                m.next = "FOLD_CARRIES"
            with m.State("FOLD_CARRIES"):
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += sends.eq(valids.bit_select(source, 1))
                for k, queue in enumerate(queues):
                    m.d.comb += queue.o.ready.eq(moves & (source == k))
                with m.If(sends & moves):
                    m.d.sync += index.eq(Mux(index == config.header_words, index, index + 1))
                    with m.If(word.last):
                        with m.If(source == RESULT):
                            m.d.sync += repeats.eq(current.recipients.any())
                        m.next = "PICK"
            m.d.comb += [
                reader.en.eq(fsm.ongoing("READ_ADDRESS")),
                checksums.steps.eq(
                    Cat(fsm.ongoing(step) for step in ("READ_ADDRESS", "ADD_ADDRESS", "ADD_TOTALS", "FOLD_CARRIES"))
                ),
            ]
            m.d.comb += self.busy.eq(
                ~fsm.ongoing("PICK") | Cat(*(queue.busy for queue in queues)).any() | self.tx.valid
            )
        return m

    def _addresses(self, m, hosts: int):
        """Return the set of members behind this port, for each job, and a read port of their addresses."""
        config = self.config
        local = Array(Signal(hosts, name=f"local_{job}") for job in range(config.jobs))
        m.submodules.addresses = table = Memory(shape=Address, depth=config.jobs * hosts, init=[])
        writer, reader = table.write_port(), table.read_port()
        bound = self.bind.payload
        here = self.bind.valid & (bound.port == self.port)
        # The address is inside the table even if nothing is bound, because CXXRTL fails on an access outside.
        m.d.comb += [
            writer.addr.eq(Mux(self.bind.valid, bound.job * hosts + bound.member, 0)),
            writer.data.eq(bound.address),
            writer.en.eq(here),
        ]
        for job in range(config.jobs):
            for member in range(hosts):
                with m.If(self.bind.valid & (bound.job == job) & (bound.member == member)):
                    m.d.sync += local[job][member].eq(here)
        return local, reader

    def _queues(self, m, local, delivery_shape: data.StructLayout):
        """Return the queues of results, replies and ordinary frames, filled by the inputs.

        The first word of a result begins with its `delivery`, in the place of the addresses.
        """
        config, bus_bits = self.config, self.config.bus_bits
        assert delivery_shape.size <= min(bus_bits, 8 * ADDRESSES.itemsize)
        m.submodules.results = results = CutThroughQueue(bus_bits=bus_bits, depth=config.queue_words)
        m.submodules.replies = replies = CutThroughQueue(
            bus_bits=bus_bits, depth=config.queue_words if config.replay else REPLY_FRAMES * 2 * config.header_words
        )
        m.submodules.ordinary = ordinary = CutThroughQueue(bus_bits=bus_bits, depth=config.queue_words)
        result, reply, forwarded = self.results.payload, self.replies.payload, self.forwarded.payload
        header = result.meta.header
        delivery = Signal(delivery_shape)
        # A member may be bound to another port while a result enters: the decision at the first word holds to the last.
        stores, stored = Signal(), Signal()
        m.d.comb += stores.eq(Mux(result.first, delivery.recipients.any(), stored))
        with m.If(self.results.valid):
            m.d.sync += stored.eq(stores)
        m.d.comb += [
            delivery.job.eq(header.job),
            delivery.recipients.eq(header.recipients & local[header.job]),
            delivery.length.eq(FRAME_BYTES + Mux(header.length == 0, 0, body_bytes(config, header))),
            results.i.valid.eq(self.results.valid & stores),
            word_of(results.i.payload).eq(word_of(result)),
            results.i.payload.first.eq(result.first),
            results.length.eq(result.meta.words * config.bus_bytes),
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
            m.d.comb += results.i.payload.data[: delivery_shape.size].eq(delivery)
        return results, replies, ordinary
