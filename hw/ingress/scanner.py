"""Scans frames as they enter: checksums, the largest exponent, and the tail of an uplink."""

from itertools import pairwise

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.headers import Scan
from hw.numeric.formats import element_exponents, half_exponents
from hw.stream.checksum import sum_halves
from hw.stream.packet import LENGTH_BITS, Packet, require_bus
from hw.stream.reduction import combine_pairs
from hw.stream.stages import Stages, record
from iswitch.wire import FLAGS_SHIFT, FRAME, FRAME_BYTES, IP_PROTOCOL_UDP

__all__ = ["Scanner"]

AT = {name: FRAME.fields[name][1] for name in FRAME.names}
"""Byte in a frame at which each field begins."""
IP_AT, ADDRESSES_AT, UDP_AT = AT["ip_version_ihl"], AT["ip_src"], AT["udp_src"]
"""The IPv4 header ends where the UDP header begins. Its addresses belong to both checksums (RFC 768)."""
EXPONENT_BITS = 8


def larger(a: Value, b: Value) -> Value:
    return Mux(a > b, a, b)


def largest_of_fours(values: list[Value]) -> list[Value]:
    """Return the largest of each four values: two comparisons, one after the other."""
    return combine_pairs(larger, combine_pairs(larger, values))


def is_sound(folded: Value) -> Value:
    """Return whether a sum of bytes and their complement is 0xFFFF when its bits above the 16th, 3 at most, are added
    to the others. Such a sum is never 0 here, because some byte is not 0."""
    return folded[2:16].all() & (folded[:2] == ~folded[16:18])


class Scanner(wiring.Component):
    """Computes a frame's `Scan` from its words.

    `done` pulses `LATENCY` cycles after the last word of a frame that is `good`; `scan` and `tag_o` are valid then. No
    pulse follows a frame that is not good. One word per cycle, never stalls.

    Parameters
    ----------
    bus_bits : int
        Width of the words' data.
    tag_bits : int
        Width of `tag`.
    uplinks : bool
        Whether the scan has the fields of an uplink's tail.
    half_width : bool
        Whether the elements of a frame that names a half-width format are read as such. Otherwise all are binary32.

    Members
    -------
    word, valid, first : in
        A word of a frame, whether it is there, and whether it is the frame's first.
    good, length, tag : in
        Read with the last word: whether the frame is kept, its bytes, and a value that comes back as `tag_o`.
    """

    LATENCY = 5

    def __init__(self, *, bus_bits: int, tag_bits: int, uplinks: bool = True, half_width: bool = False):
        require_bus("Scanner", bus_bits)
        self.bus_bytes, self.tag_bits, self.uplinks, self.half_width = bus_bits // 8, tag_bits, uplinks, half_width
        super().__init__(
            {
                "word": In(Packet(bus_bits)),
                "valid": In(1),
                "first": In(1),
                "good": In(1),
                "length": In(LENGTH_BITS),
                "tag": In(tag_bits),
                "done": Out(1),
                "scan": Out(Scan),
                "tag_o": Out(tag_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        header_words = FRAME_BYTES // self.bus_bytes
        index = Signal(range(header_words + 1))
        with m.If(self.valid):
            m.d.sync += index.eq(Mux(self.word.last, 0, Mux(index == header_words, index, index + 1)))
        masked_valid, parted_valid, summed_valid = Signal(), Signal(), Signal()
        m.d.sync += [masked_valid.eq(self.valid), parted_valid.eq(masked_valid), summed_valid.eq(parted_valid)]

        tail = {"ranks": 32, "tainted": 32, "partial": 1, "identity": 16} if self.uplinks else {}
        at_end = {"length": LENGTH_BITS, "tag": self.tag_bits}
        beside = {"first": 1, "last": 1, "good": 1, **at_end}
        pieces = {at: len(piece) for at, piece in self._pieces(self.word.data).items()}
        exponents = range(len(largest_of_fours(element_exponents(self.word.data))))
        pairs = self._largest_of_pairs(m, index) if self.half_width else {}

        Masked = record(
            "Masked", data=8 * self.bus_bytes, index=index.shape(), **beside, **dict.fromkeys(pairs, EXPONENT_BITS)
        )
        Parted = record(
            "Parted",
            index=index.shape(),
            length_again=16,
            no_checksum=1,
            **{f"piece_{at}": width for at, width in pieces.items()},
            **{f"exponent_{k}": 8 for k in exponents},
            **beside,
            **tail,
        )
        Summed = record("Summed", ip=20, udp=22, exponent=8, no_checksum=1, **beside, **tail)
        Totalled = record("Totalled", **at_end, **tail)
        Folded = record("Folded", ip=18, udp=18, no_checksum=1, exponent=8, **at_end, **tail)
        pipe = Stages(m, (Masked, Parted, Summed, Totalled, Folded))

        masked = pipe.then(
            Masked,
            when=self.valid,
            data=self._masked(index),
            index=index,
            first=self.first,
            last=self.word.last,
            good=self.good,
            length=self.length,
            tag=self.tag,
            **pairs,
        )

        # A word is summed in pieces, each of which belongs to the IPv4 checksum, to the UDP checksum or to both.
        field = lambda name: masked.data[8 * (AT[name] % self.bus_bytes) :][:16]
        is_word = lambda name: masked.index == AT[name] // self.bus_bytes
        in_payload = masked.index == header_words
        element_exponent = [getattr(masked, name) for name in pairs] or element_exponents(masked.data)
        parted = pipe.then(
            Parted,
            when=masked_valid,
            **{f"piece_{at}": piece for at, piece in self._pieces(masked.data).items()},
            **{
                f"exponent_{k}": Mux(in_payload, exponent, 0)
                for k, exponent in enumerate(largest_of_fours(element_exponent))
            },
            # The pseudo header of UDP has the length once more (RFC 768). Its addresses are summed where they stand,
            # and the total begins with its protocol.
            length_again=Mux(is_word("udp_length"), field("udp_length"), 0),
            no_checksum=is_word("udp_checksum") & (field("udp_checksum") == 0),
            **(self._tail(m, masked, masked_valid) if tail else {}),
        )

        ip_sum, udp_sum = self._sums(m, parted.index, {at: getattr(parted, f"piece_{at}") for at in pieces})
        (exponent,) = largest_of_fours([getattr(parted, f"exponent_{k}") for k in exponents])
        udp_with_length = (udp_sum + parted.length_again)[:22]
        summed = pipe.then(Summed, when=parted_valid, ip=ip_sum, udp=udp_with_length, exponent=exponent)

        total = Signal(
            data.StructLayout({"ip": 20, "udp": 16 + LENGTH_BITS, "no_checksum": 1, "exponent": 8}), reset_less=True
        )
        protocol = IP_PROTOCOL_UDP << 8 << total.shape()["udp"].offset
        before = data.View(total.shape(), Mux(summed.first, Const(protocol, total.shape().size), total.as_value()))
        with m.If(summed_valid):
            m.d.sync += [
                total.ip.eq(before.ip + summed.ip),
                total.udp.eq(before.udp + summed.udp),
                total.no_checksum.eq(before.no_checksum | summed.no_checksum),
                total.exponent.eq(larger(before.exponent, summed.exponent)),
            ]
        pipe.then(Totalled)
        totalled_valid = Signal()
        m.d.sync += [totalled_valid.eq(summed_valid & summed.last & summed.good), self.done.eq(totalled_valid)]

        folded = pipe.then(
            Folded,
            when=totalled_valid,
            ip=total.ip[:16] + total.ip[16:],
            udp=total.udp[:16] + total.udp[16:],
            no_checksum=total.no_checksum,
            exponent=total.exponent,
        )
        m.d.comb += [
            self.scan.length.eq(folded.length),
            self.scan.ip_good.eq(is_sound(folded.ip)),
            self.scan.udp_good.eq(folded.no_checksum | is_sound(folded.udp)),
            self.scan.exponent.eq(folded.exponent),
            self.tag_o.eq(folded.tag),
            *(self.scan[name].eq(getattr(folded, name)) for name in tail),
        ]
        return m

    def _largest_of_pairs(self, m, index) -> dict[str, Value]:
        """Return the larger exponent of each two elements of the word, as far as they are there."""
        format = Signal(FLAGS_SHIFT)
        at_word, at_byte = divmod(AT["format_flags"], self.bus_bytes)
        with m.If(self.valid & (index == at_word)):
            m.d.sync += format.eq(self.word.data[8 * at_byte :][:FLAGS_SHIFT])
        return {
            f"pair_{k}": Mux(self.word.count > 4 * k, larger(*exponents), 0)
            for k, exponents in enumerate(half_exponents(self.word.data, format))
        }

    def _masked(self, index) -> Value:
        """Return the word with zeros behind the last valid byte and before the IPv4 header."""
        header_words = range(FRAME_BYTES // self.bus_bytes)
        octets = []
        for byte in range(self.bus_bytes):
            before_ip = Cat(index == word for word in header_words if word * self.bus_bytes + byte < IP_AT).any()
            octets.append(Mux((self.word.count > byte) & ~before_ip, self.word.data[8 * byte : 8 * byte + 8], 0))
        return Cat(*octets)

    def _pieces(self, word: Value) -> dict[int, Value]:
        """Return the sums of the pieces of a word, by the byte at which each begins."""
        places = sorted({0, ADDRESSES_AT % self.bus_bytes, UDP_AT % self.bus_bytes, self.bus_bytes})
        return {first: sum_halves(word, first, end) for first, end in pairwise(places)}

    def _sums(self, m, index, pieces: dict[int, Value]) -> tuple[Value, Value]:
        """Return what the pieces of word `index` add to the IPv4 checksum and to the UDP checksum."""
        ip_sum, udp_sum, all_pieces = Signal(20), Signal(22), Signal(22)
        m.d.comb += [all_pieces.eq(sum(pieces.values())), udp_sum.eq(all_pieces)]
        with m.Switch(index):
            for word in range(-(-UDP_AT // self.bus_bytes)):
                low = word * self.bus_bytes
                with m.Case(word):
                    for part, belongs in ((ip_sum, lambda at: at < UDP_AT), (udp_sum, lambda at: at >= ADDRESSES_AT)):
                        chosen = [piece for first, piece in pieces.items() if belongs(low + first)]
                        m.d.comb += part.eq(all_pieces if len(chosen) == len(pieces) else sum(chosen))
        return ip_sum, udp_sum

    def _tail(self, m, masked, masked_valid) -> dict[str, Value]:
        """Return the fields of a tail, as if the frame ended with this word.

        The last quad, that is, four bytes, begins with an uplink's flags or a result's identity. Before it, an uplink
        has a quad of tainted ranks and before that a quad of ranks. These may stand in the word before.
        """
        quads_per_word = self.bus_bytes // 4
        quads = [masked.data[32 * k : 32 * k + 32] for k in range(quads_per_word)]
        quads_before = [Signal(32, reset_less=True, name=f"quad_before_{k}") for k in range(2)]
        with m.If(masked_valid):
            m.d.sync += [before.eq(quad) for before, quad in zip(quads_before, quads[-2:], strict=True)]
        at = ((masked.length - 1) >> 2)[: exact_log2(quads_per_word)]
        last = Array(quads)[at]
        return {
            "ranks": Array([*quads_before, *quads[:-2]])[at],
            "tainted": Array([quads_before[1], *quads[:-1]])[at],
            "partial": last[0],
            "identity": last[:16],
        }
