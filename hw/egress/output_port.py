"""The exit of a port: its queues, their priorities, and the addresses of results."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.egress.header_checksums import HeaderChecksums
from hw.egress.queue_age import QueueAge
from hw.egress.stamp import Departure, addresses_of, stamped
from hw.interface.address import BINDINGS_BITS, Address, Binding
from hw.interface.forwarded import Forwarding
from hw.interface.result import ResultMeta, reserved_words
from hw.numeric.formats import is_half, is_wide
from hw.stream.cut_through_queue import CutThroughQueue
from hw.stream.packet import LENGTH_BITS, Packet, word_of
from iswitch.config import Config
from iswitch.wire import FRAME_BYTES, TAIL_BYTES, UPLINK_TAIL

__all__ = ["OutputPort"]

RESULT, REPLY, ORDINARY = range(3)
REPLY_FRAMES = 8
ORDINARY_SHARE = 8
"""While results and replies wait as well, one frame of so many is an ordinary one."""
PACKET_BYTES = 512
"""The queue of results holds one result, or 16 if that is more, for so many bytes of its memory."""


def body_bytes(config: Config, header: data.View) -> Value:
    """Return the bytes behind a result's or an uplink's header: elements and tail."""
    length = header.length >> is_half(header.numeric) if config.half_width else header.length
    if not config.uplinks:
        return length + TAIL_BYTES
    elements = length << (header.up & is_wide(header.numeric))
    return elements + Mux(header.up, UPLINK_TAIL.itemsize, TAIL_BYTES)


class Delivery(data.StructLayout):
    """The recipients of a queued result behind one port, its length in bytes, and `Work.bindings`."""

    def __init__(self, config: Config):
        super().__init__(
            {
                "job": range(config.jobs),
                "recipients": config.members + config.uplinks,
                "length": LENGTH_BITS,
                "bindings": BINDINGS_BITS,
            }
        )


class Bound(data.Struct):
    """The address of a member, and the number of earlier `bindings` of any members."""

    address: Address
    bindings: BINDINGS_BITS


class OutputPort(wiring.Component):
    """Sends results, replies and ordinary frames by one port.

    Each kind has a queue, and the inputs never stall. A reply, an ordinary frame or a GRANT for which its queue has no
    room is dropped and counted. A result without room is `refused`: `WaitingResults` has it made again.

    Results and replies alternate and go before ordinary frames. While they wait as well, one of `ORDINARY_SHARE` frames
    is an ordinary one. The switch's ARP replies have room of their own, so a flood does not displace them.

    A result is stored once and sent once to each of its recipients behind this port, as they are at its first word.
    Each copy has the address and the checksums of the recipient; the rest of the frame is the same. If another host has
    been bound to the recipient's index since the result was decided, that copy is dropped and counted
    (`stat_expired`). Replies arrive with addresses.

    The first word of a result leaves 7 cycles after it entered, the first word of another frame 5 cycles after. Before
    a result 5 cycles are idle, before another frame 1; otherwise a word leaves in each cycle. `tx` may stall.

    `tx.valid` does not fall between the first word of a frame and the last, so that a MAC with a memory of a few words
    need not store frames. This holds as long as the words of a frame enter in consecutive cycles. Only behind the
    header words of a result may up to `HEADER_LEAD` cycles pass without a word.

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
    bindings : BINDINGS_BITS, in
        Number of bindings of any members before this cycle. `decided`: before the decision on the result that begins
        in this cycle.
    held_back : 1, in
        Refuse results, because earlier ones wait for this port. `repeated`: except the one that begins in this cycle.
    local : set of members for each job, out
        The members behind this port.
    refused : set of members, out
        Recipients behind this port of the result that begins in this cycle, if the port does not store it.
    has_room : 1, out
        The queue has room for the longest result.
    stat_drop_grant, stat_drop_reply, stat_drop_ordinary : 1, out
        A GRANT, a reply or an ordinary frame is dropped.
    stat_expired : 1, out
        A copy of a result is dropped, because its recipient's index is another host's now.
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
                "bindings": In(BINDINGS_BITS),
                "decided": In(BINDINGS_BITS),
                "held_back": In(1),
                "repeated": In(1),
                "local": Out(config.members + config.uplinks).array(config.jobs),
                "refused": Out(config.members + config.uplinks),
                "has_room": Out(1),
                "own_mac": In(48),
                "own_ip": In(32),
                "tx": Out(stream.Signature(Packet(config.bus_bits))),
                "stat_drop_grant": Out(1),
                "stat_drop_reply": Out(1),
                "stat_drop_ordinary": Out(1),
                "stat_expired": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        hosts = config.members + config.uplinks

        reader = self._addresses(m, hosts)
        queues = self._queues(m)
        results, replies, ordinary = queues

        # The frame that is sent, and for a result the recipients that it has not been sent to.
        source, reply_next, repeats = Signal(2), Signal(), Signal()
        current, bound = Signal(Delivery(config)), Signal(Bound)
        expired = Signal()
        chosen = Signal(range(hosts))
        for member in reversed(range(hosts)):
            with m.If(current.recipients[member]):
                m.d.comb += chosen.eq(member)
        m.d.comb += [reader.addr.eq(current.job * hosts + chosen), bound.eq(reader.data)]

        index = Signal(range(config.header_words + 1))
        m.submodules.checksums = checksums = HeaderChecksums()
        m.d.comb += [
            checksums.own_ip.eq(self.own_ip),
            checksums.length.eq(current.length),
            checksums.address.eq(bound.address),
        ]
        addresses = addresses_of(m, self.own_mac, self.own_ip, bound.address, current.length, checksums)
        valids = Cat(queue.o.valid for queue in queues)
        word, words = Signal(Packet(config.bus_bits)), Array(word_of(queue.o.payload) for queue in queues)
        m.d.comb += [word.eq(words[source]), results.repeat.eq(current.recipients.any())]
        with m.If(source == RESULT):
            m.d.comb += word.data.eq(stamped(m, results.o.payload.data, addresses, index))
        moves, sends = Signal(), Signal()
        m.d.comb += moves.eq(~self.tx.valid | self.tx.ready)
        with m.If(moves):
            m.d.sync += [self.tx.valid.eq(sends), self.tx.payload.eq(word)]
        # The shortest frame takes as many words as our header.
        m.submodules.ordinary_age = age = QueueAge(frames=config.queue_words // config.header_words)
        with m.If(moves):
            m.d.sync += self.aged.eq((source == ORDINARY) & age.aged)
        m.d.comb += [
            age.tick.eq(self.tick),
            age.enters.eq(ordinary.i.valid & ordinary.i.payload.first & ~ordinary.stat_drop),
            age.leaves.eq(ordinary.o.valid & ordinary.o.ready & ordinary.o.payload.last),
        ]

        # Frames that were sent while an ordinary frame waited.
        preferred = Signal(range(ORDINARY_SHARE))
        with m.FSM() as fsm:
            with m.State("PICK"):
                m.d.sync += index.eq(0)
                ours = repeats | results.o.valid | replies.o.valid
                with m.If(ordinary.o.valid):
                    m.d.sync += preferred.eq(preferred + 1)
                with m.If(ordinary.o.valid & (~ours | (preferred == ORDINARY_SHARE - 1))):
                    m.d.sync += [source.eq(ORDINARY), preferred.eq(0)]
                    m.next = "SEND"
                with m.Elif((repeats | results.o.valid) & (~reply_next | ~replies.o.valid)):
                    m.d.sync += [source.eq(RESULT), reply_next.eq(1)]
                    with m.If(~repeats):
                        m.d.sync += current.eq(results.o.payload.meta)
                    m.next = "READ_ADDRESS"
                with m.Elif(replies.o.valid):
                    m.d.sync += [source.eq(REPLY), reply_next.eq(0)]
                    m.next = "SEND"
            with m.State("READ_ADDRESS"):
                m.d.sync += current.recipients.eq(current.recipients & (current.recipients - 1))
                m.next = "ADD_ADDRESS"
            with m.State("ADD_ADDRESS"):
                m.next = "ADD_TOTALS"
            with m.State("ADD_TOTALS"):
                # Signed distance of serial numbers: the binding is not older than the decision on the result.
                m.d.sync += expired.eq((current.bindings - bound.bindings - 1)[BINDINGS_BITS - 1])
                m.next = "FOLD_CARRIES"
            with m.State("FOLD_CARRIES"):
                m.next = "SEND"
                with m.If(expired):
                    m.d.comb += self.stat_expired.eq(1)
                    m.next = "DISCARD"
                    with m.If(current.recipients.any()):
                        m.next = "READ_ADDRESS"
            with m.State("DISCARD"):
                m.d.comb += results.o.ready.eq(1)
                with m.If(results.o.valid & results.o.payload.last):
                    m.d.sync += repeats.eq(0)
                    m.next = "PICK"
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
        """Record the members behind this port, and return a read port of their addresses."""
        config = self.config
        m.submodules.addresses = table = Memory(shape=Bound, depth=config.jobs * hosts, init=[])
        writer, reader = table.write_port(), table.read_port()
        bound = self.bind.payload
        here = self.bind.valid & (bound.port == self.port)
        # The address is inside the table even if nothing is bound, because CXXRTL fails on an access outside.
        m.d.comb += [
            writer.addr.eq(Mux(self.bind.valid, bound.job * hosts + bound.member, 0)),
            writer.data.address.eq(bound.address),
            writer.data.bindings.eq(self.bindings),
            writer.en.eq(here),
        ]
        with m.If(self.bind.valid), m.Switch(bound.job):
            for job in range(config.jobs):
                with m.Case(job), m.Switch(bound.member):
                    for member in range(hosts):
                        with m.Case(member):
                            m.d.sync += self.local[job][member].eq(here)
        return reader

    def _queues(self, m):
        """Return the queues of results, replies and ordinary frames, filled by the inputs."""
        config, bus_bits = self.config, self.config.bus_bits
        m.submodules.results = results = CutThroughQueue(
            bus_bits=bus_bits,
            depth=config.queue_words,
            meta=Delivery(config),
            packets=max(16, config.queue_bytes // PACKET_BYTES),
            bypass=True,
        )
        m.submodules.replies = replies = CutThroughQueue(
            bus_bits=bus_bits, depth=config.queue_words if config.replay else REPLY_FRAMES * 2 * config.header_words
        )
        m.submodules.ordinary = ordinary = CutThroughQueue(bus_bits=bus_bits, depth=config.queue_words)
        result, reply, forwarded = self.results.payload, self.replies.payload, self.forwarded.payload
        header, delivery = result.meta.header, results.i.payload.meta
        grants = (header.length == 0) if config.staleness else Const(0)
        # A member may be bound to another port while a result enters: the decision at the first word holds to the last.
        stores, stored, waits = Signal(), Signal(), Signal()
        m.d.comb += [
            waits.eq(self.held_back & ~self.repeated & ~grants),
            stores.eq(Mux(result.first, delivery.recipients.any() & ~waits, stored)),
        ]
        with m.If(self.results.valid):
            m.d.sync += stored.eq(stores)
        with m.If(self.results.valid & result.first & ~grants & (waits | results.stat_drop)):
            m.d.comb += self.refused.eq(delivery.recipients)
        longest_words = -(-config.frame_bytes_max // config.bus_bytes) + reserved_words(config)
        m.d.comb += [
            self.has_room.eq(results.free_words >= longest_words),
            delivery.job.eq(header.job),
            delivery.recipients.eq(header.recipients & Array(self.local)[header.job]),
            delivery.length.eq(FRAME_BYTES + Mux(header.length == 0, 0, body_bytes(config, header))),
            delivery.bindings.eq(self.decided),
            results.i.valid.eq(self.results.valid & stores),
            word_of(results.i.payload).eq(word_of(result)),
            results.i.payload.first.eq(result.first),
            results.length.eq(result.meta.room * config.bus_bytes),
            replies.i.valid.eq(self.replies.valid & (reply.meta.port == self.port)),
            word_of(replies.i.payload).eq(word_of(reply)),
            replies.i.payload.first.eq(reply.first),
            replies.length.eq(reply.meta.length),
            ordinary.i.valid.eq(self.forwarded.valid & forwarded.meta.ports[self.port]),
            word_of(ordinary.i.payload).eq(word_of(forwarded)),
            ordinary.i.payload.first.eq(forwarded.first),
            ordinary.length.eq(forwarded.meta.room),
            self.stat_drop_grant.eq(results.stat_drop & grants),
            self.stat_drop_reply.eq(replies.stat_drop),
            self.stat_drop_ordinary.eq(ordinary.stat_drop),
        ]
        return results, replies, ordinary
