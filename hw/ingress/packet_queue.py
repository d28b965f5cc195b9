"""The ingress queue: a frame leaves it whole and scanned, or never."""

from itertools import pairwise

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2, exact_log2

from hw.interface.headers import Scan
from hw.numeric.formats import element_exponents
from hw.stream.checksum import sum_halves
from hw.stream.fifo import Fifo
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN, NEVER_READ_WHILE_WRITTEN
from hw.stream.packet import LENGTH_BITS, Packet, first_of, require_bus
from hw.stream.reduction import combine_pairs
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire import FRAME, FRAME_BYTES, IP_PROTOCOL_UDP

__all__ = ["FRAME_BYTES_MIN", "PacketQueue"]

FRAME_BYTES_MIN = 60
"""IEEE 802.3 clause 3.2.8: 64 octets with the FCS, which the MAC has removed."""


def larger(a: Value, b: Value) -> Value:
    return Mux(a > b, a, b)


def largest_of_fours(values: list[Value]) -> list[Value]:
    """Return the largest of each four values: two comparisons, one after the other."""
    return combine_pairs(larger, combine_pairs(larger, values))


class PacketQueue(wiring.Component):
    """Stores a frame, scans it on the way, commits it on a good end and forgets it otherwise.

    The scan gives checksum verdicts and the largest exponent, so that what stands behind knows at the first word
    whether a frame is corrupt or holds a NaN. `scans` shows one Scan for every frame in `o`, in order; take it any time
    from the frame's first word on. One word per cycle in and out; a frame appears 7 cycles after its last word. `i`
    stalls when memory or scans are full. Runts, oversize frames and frames with `error` are swallowed and reported by
    strobe.
    """

    def __init__(self, *, bus_bits: int, depth: int, frame_bytes_max: int, scans_depth: int = 32, uplinks: bool = True):
        require_bus("PacketQueue", bus_bits)
        # A word stays free, and the first beyond the longest frame must come in to be known as such.
        if depth & (depth - 1) or depth * bus_bits // 8 <= frame_bytes_max + bus_bits // 8:
            raise ValueError(
                f"PacketQueue depth must be a power of two that holds more than a word beside a frame of {frame_bytes_max} bytes, "
                f"not {depth!r}"
            )
        self.bus_bytes = bus_bits // 8
        self.depth = depth
        self.frame_bytes_max = frame_bytes_max
        self.scans_depth = scans_depth
        self.uplinks = uplinks
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits))),
                "o": Out(stream.Signature(Packet(bus_bits))),
                "scans": Out(stream.Signature(Scan)),
                "busy": Out(1),
                "stat_frame": Out(1),
                "stat_error": Out(1),
                "stat_runt": Out(1),
                "stat_oversize": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word = Packet(8 * self.bus_bytes)
        m.submodules.memory = memory = Memory(
            shape=word, depth=self.depth, init=[], attrs=NEVER_READ_BEFORE_WRITTEN | NEVER_READ_WHILE_WRITTEN
        )
        put, get = memory.write_port(), memory.read_port()
        m.submodules.fifo = fifo = Fifo(Scan, depth=self.scans_depth, buffered=False)
        # Who takes a scan does not reach the level of the memory.
        m.submodules.shown = shown = SkidBuffer(Scan)
        connect(m, fifo.o, shown.i)
        connect(m, shown.o, flipped(self.scans))
        pointer_bits = ceil_log2(self.depth) + 1
        write, start, committed, read = (
            Signal(pointer_bits, name=name) for name in ("write", "start", "committed", "read")
        )

        # Entry: every frame begins at `start`, which moves behind one when it has ended well.
        length = Signal(range(self.frame_bytes_max + 2 * self.bus_bytes))
        oversize = Signal()
        frame_length = Signal.like(length)
        taken = Signal()
        first = first_of(m, self.i)
        at, following = Signal(pointer_bits), Signal(pointer_bits)
        # Known a cycle before, when one word more could have come. `fifo.level` counts only what is committed: leave
        # room for the frames still in the scan's pipeline.
        level, room = Signal(pointer_bits), Signal(init=1)
        m.d.comb += level.eq(at - read)
        m.d.sync += room.eq((level < self.depth - 1) & (fifo.level < self.scans_depth - 8))
        m.d.comb += [
            self.i.ready.eq(room | oversize),
            at.eq(Mux(first, start, write)),
            following.eq(at + 1),
            taken.eq(self.i.valid & self.i.ready),
            frame_length.eq(length + self.i.payload.count),
            put.addr.eq(at[:-1]),
            put.data.eq(self.i.payload),
            put.en.eq(taken & ~oversize),
        ]
        good = Signal()
        with m.If(taken):
            with m.If(~oversize):
                m.d.sync += write.eq(following)
            with m.If(self.i.payload.last):
                m.d.comb += [
                    self.stat_error.eq(self.i.payload.error),
                    self.stat_runt.eq(~self.i.payload.error & (frame_length < FRAME_BYTES_MIN) & ~oversize),
                    self.stat_oversize.eq(~self.i.payload.error & (oversize | (frame_length > self.frame_bytes_max))),
                    good.eq(~(self.stat_error | self.stat_runt | self.stat_oversize)),
                ]
                m.d.sync += [length.eq(0), oversize.eq(0)]
                with m.If(good):
                    m.d.sync += start.eq(following)
            with m.Elif(~oversize):
                m.d.sync += [length.eq(frame_length), oversize.eq(frame_length > self.frame_bytes_max)]

        self._scan(m, taken, first, good, frame_length, following, committed, fifo)

        # Exit: the read port's register is the output register.
        filled, moves = Signal(), Signal()
        m.d.comb += [
            get.addr.eq(read[:-1]),
            moves.eq(~filled | self.o.ready),
            get.en.eq(moves & (read != committed)),
            self.o.payload.eq(get.data),
            self.o.valid.eq(filled),
            self.busy.eq((start != read) | filled | ~first),
        ]
        with m.If(moves):
            m.d.sync += filled.eq(get.en)
        with m.If(get.en):
            m.d.sync += read.eq(read + 1)
        return m

    def _scan(self, m, taken, first, good, frame_length, end, committed, fifo):
        """Sums and the largest exponent, word by word; five registers behind the entry the frame is committed."""
        header_words = FRAME_BYTES // self.bus_bytes
        offset = {name: FRAME.fields[name][1] for name in FRAME.names}
        ip, address, udp = offset["ip_version_ihl"], offset["ip_src"], offset["udp_src"]
        at_end = {"last": 1, "good": 1, "length": LENGTH_BITS, "end": len(committed)}

        # Bytes behind the end of the last word count as zeros, and so do those before IPv4's header.
        index = Signal(range(header_words + 1))
        masked_valid = Signal()
        masked = Signal(
            data.StructLayout({"data": 8 * self.bus_bytes, "first": 1, "index": index.shape(), **at_end}),
            reset_less=True,
        )
        m.d.sync += masked_valid.eq(taken)
        with m.If(taken):
            m.d.sync += [
                masked.first.eq(first),
                masked.index.eq(index),
                masked.last.eq(self.i.payload.last),
                masked.good.eq(good),
                masked.length.eq(frame_length),
                masked.end.eq(end),
                index.eq(Mux(self.i.payload.last, 0, Mux(index == header_words, index, index + 1))),
            ]
            for byte in range(self.bus_bytes):
                early = Cat(index == word for word in range(header_words) if word * self.bus_bytes + byte < ip).any()
                came = self.i.payload.data[8 * byte : 8 * byte + 8]
                m.d.sync += masked.data[8 * byte : 8 * byte + 8].eq(
                    Mux((self.i.payload.count > byte) & ~early, came, 0)
                )

        # A word is summed in pieces, then of these what belongs to the one checksum and to the other.
        parted_valid = Signal()
        pieces = self._pieces(masked.data, address, udp)
        tail = {"tainted": 32, "partial": 1} if self.uplinks else {}
        exponents = largest_of_fours(element_exponents(masked.data))
        beside = {"first": 1, "none": 1, **tail, **at_end}
        parted = Signal(
            data.StructLayout(
                {
                    "index": index.shape(),
                    "again": 16,
                    **{f"from_{at}": len(piece) for at, piece in pieces.items()},
                    "exponents": data.ArrayLayout(8, len(exponents)),
                    **beside,
                }
            ),
            reset_less=True,
        )
        before_last = Signal(32, reset_less=True)
        m.d.sync += parted_valid.eq(masked_valid)
        with m.If(masked_valid):
            m.d.sync += [
                parted.first.eq(masked.first),
                parted.index.eq(masked.index),
                parted.none.eq(0),
                parted.exponents.eq(0),
            ]
            m.d.sync += [parted[name].eq(masked[name]) for name in at_end]
            m.d.sync += [parted[f"from_{at}"].eq(piece) for at, piece in pieces.items()]
            if self.uplinks:
                # The last two quads: tainted ranks, then flags and complement. The first may be the end of the word
                # before.
                quads = [before_last, *(masked.data[32 * k : 32 * k + 32] for k in range(self.bus_bytes // 4))]
                m.d.sync += before_last.eq(quads[-1])
                ends_at = ((masked.length - 1) >> 2)[: exact_log2(self.bus_bytes // 4)]
                m.d.sync += [parted.tainted.eq(Array(quads)[ends_at]), parted.partial.eq(Array(quads[1:])[ends_at][0])]
            checksum_word, checksum_at = divmod(offset["udp_checksum"], self.bus_bytes)
            with m.If(masked.index == checksum_word):
                m.d.sync += parted.none.eq(masked.data[8 * checksum_at : 8 * checksum_at + 16] == 0)
            with m.If(masked.index == header_words):
                m.d.sync += [kept.eq(exponent) for kept, exponent in zip(parted.exponents, exponents, strict=True)]
            # The pseudo header (RFC 768): addresses are summed where they stand, the length once more here; the
            # protocol, where `total` begins.
            length_word, length_at = divmod(offset["udp_length"], self.bus_bytes)
            m.d.sync += parted.again.eq(
                Mux(masked.index == length_word, masked.data[8 * length_at : 8 * length_at + 16], 0)
            )

        summed_valid = Signal()
        summed = Signal(data.StructLayout({"ip": 20, "udp": 22, "exponent": 8, **beside}), reset_less=True)
        m.d.sync += summed_valid.eq(parted_valid)
        with m.If(parted_valid):
            ip_part, udp_part = self._parts(m, parted.index, {at: parted[f"from_{at}"] for at in pieces}, address, udp)
            (exponent,) = largest_of_fours(list(parted.exponents))
            m.d.sync += [
                summed.ip.eq(ip_part),
                summed.udp.eq(udp_part + parted.again),
                summed.exponent.eq(exponent),
                *(summed[name].eq(parted[name]) for name in beside),
            ]

        total = Signal(
            data.StructLayout({"ip": 20, "udp": 16 + LENGTH_BITS, "none": 1, "exponent": 8}), reset_less=True
        )
        whole = Signal()
        last = Signal(data.StructLayout({"length": LENGTH_BITS, "end": len(committed), **tail}), reset_less=True)
        m.d.sync += whole.eq(summed_valid & summed.last & summed.good)
        with m.If(summed_valid):
            m.d.sync += [last[name].eq(summed[name]) for name in ("length", "end", *tail)]
            protocol = IP_PROTOCOL_UDP << 8 << total.shape()["udp"].offset
            before = data.View(total.shape(), Mux(summed.first, Const(protocol, total.shape().size), total.as_value()))
            m.d.sync += [
                total.ip.eq(before.ip + summed.ip),
                total.udp.eq(before.udp + summed.udp),
                total.none.eq(before.none | summed.none),
                total.exponent.eq(Mux(before.exponent > summed.exponent, before.exponent, summed.exponent)),
            ]

        folded_valid = Signal()
        folded = Signal(
            data.StructLayout(
                {"ip": 18, "udp": 18, "none": 1, "exponent": 8, "length": LENGTH_BITS, "end": len(committed), **tail}
            ),
            reset_less=True,
        )
        m.d.sync += folded_valid.eq(whole)
        with m.If(whole):
            m.d.sync += [
                folded.ip.eq(total.ip[:16] + total.ip[16:]),
                folded.udp.eq(total.udp[:16] + total.udp[16:]),
                folded.none.eq(total.none),
                folded.exponent.eq(total.exponent),
                *(folded[name].eq(last[name]) for name in ("length", "end", *tail)),
            ]

        def is_zero(ones):
            """0xFFFF when what stands above 16 bits, 3 at most, is added to them; a sum of real bytes is never plain
            zero here."""
            return ones[2:16].all() & (ones[:2] == ~ones[16:18])

        scan = Signal(Scan)
        m.d.comb += [scan[name].eq(folded[name]) for name in tail]
        m.d.comb += [
            scan.length.eq(folded.length),
            scan.ip_good.eq(is_zero(folded.ip)),
            scan.udp_good.eq(folded.none | is_zero(folded.udp)),
            scan.exponent.eq(folded.exponent),
            fifo.i.valid.eq(folded_valid),
            fifo.i.payload.eq(scan),
            self.stat_frame.eq(folded_valid),
        ]
        with m.If(folded_valid):
            m.d.sync += committed.eq(folded.end)

    def _pieces(self, word, address: int, udp: int):
        """By where they begin, sums of the pieces of a word. IPv4's header ends where UDP's begins, at `udp` in the
        frame, and the addresses in it, from `address` on, belong to both checksums."""
        places = sorted({0, address % self.bus_bytes, udp % self.bus_bytes, self.bus_bytes})
        return {first: sum_halves(word, first, end) for first, end in pairwise(places)}

    def _parts(self, m, index, pieces, address: int, udp: int):
        """Of the pieces of word `index`, the sums of what IPv4's checksum is of, and of what UDP's is of."""
        ip_part, udp_part, whole = Signal(20), Signal(22), Signal(22)
        m.d.comb += [whole.eq(sum(pieces.values())), udp_part.eq(whole)]
        with m.Switch(index):
            for word in range(-(-udp // self.bus_bytes)):
                low = word * self.bus_bytes
                with m.Case(word):
                    for part, belongs in ((ip_part, lambda at: at < udp), (udp_part, lambda at: at >= address)):
                        chosen = [piece for first, piece in pieces.items() if belongs(low + first)]
                        m.d.comb += part.eq(whole if len(chosen) == len(pieces) else sum(chosen))
        return ip_part, udp_part
