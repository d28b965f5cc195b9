"""Makes the words of a packet sum to zero, without holding the packet back."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.checksum import fold_carries, sums_of_parts
from hw.stream.packet import Packet, require_bus
from hw.stream.reduction import tree_sum
from hw.stream.stages import Stages, record

__all__ = ["ChecksumInserter"]


class ChecksumInserter(wiring.Component):
    """Writes the checksum complement of RFC 7820 into a packet's last word, so that every packet sums to zero.

    A packet appears at `o` `LATENCY` cycles after it was shown at `packet`, behind a multiplexer for the complement.
    One word per cycle, never stalls. So each port knows the UDP checksum of the packet before its first word.

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    meta : ShapeLike
        Record that goes with each packet.

    Members
    -------
    packet, valid : in
        A word of a packet, and whether it is there. Where the complement belongs, the word has zeros.
    complement_at : bus_bits // 32, in
        With the last word: the 32-bit lane, as a one-hot number, whose upper half is the complement. 0 leaves the
        packet as it is.
    corrupt : 1, in
        One cycle after the last word: the packet holds a bit error. Its complement is wrong by one bit, so that each
        receiver drops the packet for its UDP checksum.
    """

    LATENCY = 4

    def __init__(self, *, bus_bits: int, meta):
        require_bus("ChecksumInserter", bus_bits)
        self.bus_bits, self.meta = bus_bits, meta
        packet = Packet(bus_bits, meta=meta, first=True)
        super().__init__(
            {
                "packet": In(packet),
                "valid": In(1),
                "complement_at": In(bus_bits // 32),
                "corrupt": In(1),
                "o": Out(stream.Signature(packet, always_ready=True)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = self.packet.shape()
        fields = {name: field.shape for name, field in shape} | {"at": self.bus_bits // 32}
        Written, Added = record("Written", **fields), record("Added", **fields, corrupt=1)
        parts = [f"part_{k}" for k in range(len(sums_of_parts(self.packet.data)))]
        Summed = record("Summed", **fields, corrupt=1, **dict.fromkeys(parts, 20))
        Folded = record("Folded", **fields, complement=16)
        pipe = Stages(m, (Written, Summed, Added, Folded))
        valid = Signal(self.LATENCY - 1)
        m.d.sync += [valid.eq(Cat(self.valid, valid)), self.o.valid.eq(valid[-1])]

        written = pipe.then(Written, **{name: self.packet[name] for name, _ in shape}, at=self.complement_at)
        summed = pipe.then(Summed, corrupt=self.corrupt, **dict(zip(parts, sums_of_parts(written.data), strict=True)))
        total = Signal(32, reset_less=True)
        with m.If(valid[1]):
            word = tree_sum([getattr(summed, part) for part in parts])
            m.d.sync += total.eq(Mux(summed.first, 0, total) + word)
        added = pipe.then(Added)
        folded = pipe.then(Folded, complement=~fold_carries(m, total) ^ added.corrupt)
        m.d.comb += [self.o.payload[name].eq(getattr(folded, name)) for name, _ in shape]
        # One multiplexer behind the registers: the consumers store the words.
        for k in range(self.bus_bits // 32):
            with m.If(folded.at[k]):
                m.d.comb += self.o.payload.data[32 * k + 16 : 32 * k + 32].eq(folded.complement)
        m.d.comb += self.busy.eq(valid.any() | self.o.valid)
        return m
