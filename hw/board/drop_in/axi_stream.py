"""Between AXI4-Stream with ports in `tuser`, as in NetFPGA and OpenNIC, and the switch's streams, one for each port."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.stream.arbiter import PacketArbiter
from hw.stream.fifo import Fifo
from hw.stream.packet import Packet

__all__ = ["NETFPGA", "OPENNIC", "AxiStream", "Tuser", "TxMerge", "RxSplit"]

LENGTH_BITS = 16


@dataclass(frozen=True, kw_only=True)
class Tuser:
    """Sideband of a packet's first beat: the offsets of its `length` in bytes and of source and destination, which have
    one bit for each place. `places` gives the bit of each of our ports. With `split` there are three signals,
    tuser_size, tuser_src and tuser_dst, instead of one."""

    width: int
    length: int
    source: int
    destination: int
    field_bits: int
    places: tuple[int, ...]
    split: bool = False

    def __post_init__(self) -> None:
        if len(set(self.places)) != len(self.places) or not all(0 <= place < self.field_bits for place in self.places):
            raise ValueError(f"Tuser places must be different bits below {self.field_bits}, not {self.places!r}")


NETFPGA = Tuser(width=128, length=0, source=16, destination=24, field_bits=8, places=(0, 2, 4, 6))
"""Of the reference pipeline on NetFPGA-SUME: the bits of the four ports, with those of the host's queues between
them."""
OPENNIC = Tuser(width=48, length=0, source=16, destination=32, field_bits=16, places=(6, 7), split=True)
"""Of OpenNIC's user box: MAC ports from bit 6 on, PCIe functions below."""


class AxiStream(wiring.Signature):
    """AXI4-Stream; Out for the sender."""

    def __init__(self, bus_bits: int, tuser: Tuser):
        super().__init__(
            {
                "tdata": Out(bus_bits),
                "tkeep": Out(bus_bits // 8),
                "tuser": Out(tuser.width),
                "tlast": Out(1),
                "tvalid": Out(1),
                "tready": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AxiStream) and self.members == other.members


class RxSplit(wiring.Component):
    """Distributes packets of all ports to `rx` of each.

    Combinational: a beat passes in its cycle, and a port that is not ready stalls all. The source in a packet's first
    beat selects the port, the lowest of our places if several are set. A packet from another place is taken and
    dropped; `stat_unknown_source` pulses with its last beat. `tkeep` counts in the last beat only, as ones from the
    lowest byte on; earlier beats are full (as AXI4-Stream packets are in these pipelines).
    """

    def __init__(self, bus_bits: int, tuser: Tuser):
        self.bus_bits, self.tuser = bus_bits, tuser
        super().__init__(
            {
                "i": In(AxiStream(bus_bits, tuser)),
                "rx": Out(stream.Signature(Packet(bus_bits))).array(len(tuser.places)),
                "frame": Out(1),
                "stat_unknown_source": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, tuser = self.i, self.tuser
        source = i.tuser[tuser.source : tuser.source + tuser.field_bits]
        ours = Cat(source[place] for place in tuser.places)
        inside, kept, wanted = Signal(), Signal(len(tuser.places)), Signal(len(tuser.places))
        lowest = ours & -ours
        m.d.comb += wanted.eq(Mux(inside, kept, lowest[: len(ours)]))
        count = sum(i.tkeep[k] for k in range(self.bus_bits // 8))
        for port, rx in enumerate(self.rx):
            m.d.comb += [
                rx.valid.eq(i.tvalid & wanted[port]),
                rx.payload.data.eq(i.tdata),
                rx.payload.last.eq(i.tlast),
                rx.payload.count.eq(Mux(i.tlast, count, self.bus_bits // 8)),
            ]
        m.d.comb += [
            i.tready.eq(Cat(rx.ready & wanted[port] for port, rx in enumerate(self.rx)).any() | (wanted == 0)),
            self.frame.eq(i.tvalid & i.tready & i.tlast),
            self.stat_unknown_source.eq(self.frame & (wanted == 0)),
        ]
        with m.If(i.tvalid):
            # From the cycle in which the beat is offered, accepted or not.
            m.d.sync += [inside.eq(~(i.tready & i.tlast)), kept.eq(wanted)]
        return m


class TxMerge(wiring.Component):
    """Merges frames of all ports into one stream, round robin, frame by frame. `tuser` has the length, and the port as
    destination; the source is 0.

    The length stands in the first beat, so frames are stored and forwarded, in a memory of `words` for all ports
    together, at least twice the longest frame. If no other frame waits, the first beat comes 2 cycles after the last
    word was taken; one beat a cycle. A stalled `o` stalls the ports when the memory is full.
    """

    def __init__(self, bus_bits: int, tuser: Tuser, *, words: int):
        if words < 4:
            raise ValueError(f"TxMerge words must be at least 4, not {words!r}")
        self.bus_bits, self.tuser, self.words = bus_bits, tuser, words
        super().__init__(
            {
                "tx": In(stream.Signature(Packet(bus_bits))).array(len(tuser.places)),
                "o": Out(AxiStream(bus_bits, tuser)),
                "frame": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ports, tuser, bus_bytes = len(self.tx), self.tuser, self.bus_bits // 8
        entry = data.StructLayout({"length": LENGTH_BITS, "port": range(max(ports, 2))})
        m.submodules.words = words = Fifo(Packet(self.bus_bits), depth=self.words)
        m.submodules.lengths = lengths = Fifo(entry, depth=self.words)

        m.submodules.arbiter = arbiter = PacketArbiter(Packet(self.bus_bits), inputs=ports)
        for tx, i in zip(self.tx, arbiter.i, strict=True):
            connect(m, flipped(tx), i)
        takes, length, put, word = Signal(), Signal(LENGTH_BITS), Signal(entry), arbiter.o.payload
        m.d.comb += [
            arbiter.o.ready.eq(words.i.ready & lengths.i.ready),
            takes.eq(arbiter.o.valid & arbiter.o.ready),
            words.i.valid.eq(takes),
            words.i.payload.eq(word),
            put.length.eq(length + word.count),
            put.port.eq(arbiter.grant),
            lengths.i.payload.eq(put),
            lengths.i.valid.eq(takes & word.last),
        ]
        with m.If(takes):
            m.d.sync += length.eq(Mux(word.last, 0, length + word.count))

        o, about, shown = self.o, lengths.o.payload, words.o.payload
        destination = Array(1 << place for place in tuser.places)[about.port]
        m.d.comb += [
            o.tvalid.eq(words.o.valid & lengths.o.valid),
            o.tdata.eq(shown.data),
            o.tlast.eq(shown.last),
            o.tkeep.eq(Cat(shown.count > k for k in range(bus_bytes))),
            words.o.ready.eq(o.tvalid & o.tready),
            lengths.o.ready.eq(o.tvalid & o.tready & shown.last),
            self.frame.eq(lengths.o.ready),
            o.tuser[tuser.length : tuser.length + LENGTH_BITS].eq(about.length),
            o.tuser[tuser.destination : tuser.destination + tuser.field_bits].eq(destination),
        ]
        return m
