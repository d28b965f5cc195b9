"""Addresses and checksums before our header, of frames whose UDP payload sums to zero."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.interface.layout import layout
from hw.interface.reply import ReplyRoute
from hw.stream.checksum import fold_carries
from hw.stream.packet import LENGTH_BITS, Packet, first_of, require_bus, word_of
from iswitch.wire import (
    ADDRESSES,
    ETHERTYPE_IPV4,
    FRAME_BYTES,
    IP_PROTOCOL_UDP,
    IP_TTL,
    IPV4_DONT_FRAGMENT,
    IPV4_VERSION_IHL,
    UDP_PORT,
)

__all__ = ["Checksums", "Departure", "Stamp", "merged", "stamp_of"]

IP_AT, UDP_AT = (ADDRESSES.fields[name][1] for name in ("ip_version_ihl", "udp_src"))


def swapped(half):
    """A 16-bit number as it goes out, or the number that came: the upper byte comes first, in the lowest bits."""
    return Cat(half[8:16], half[:8])


def halves(octets):
    """Sum of two big-endian halves."""
    return swapped(octets[:16]) + swapped(octets[16:])


class Checksums(wiring.Component):
    """IPv4's and UDP's of a frame, in wire order. IPv4: RFC 791. UDP: RFC 768; header and payload of ours sum to zero,
    so addresses, ports, protocol and lengths are all there is.

    Four steps, each done in a cycle in which its strobe is set, in the order of `steps`; those of different frames may
    meet. `length` is looked at in the first, `address` in the second; `ip` and `udp` stand from the cycle after the
    fourth to the next fourth. No step adds more than two numbers.
    """

    def __init__(self):
        super().__init__(
            {
                "own_ip": In(32),
                "length": In(LENGTH_BITS),
                "address": In(Address),
                "steps": In(4),
                "ip": Out(16),
                "udp": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        registers = iter(
            Signal(20, name=name, reset_less=True)
            for name in (
                "own_ip_part",
                "own_udp_part",
                "ip_part",
                "udp_part",
                "hosts",
                "ports",
                "rest",
                "ip_total",
                "udp_total",
            )
        )
        own_ip_part, own_udp_part, ip_part, udp_part, hosts, ports, rest, ip_total, udp_total = registers
        # The length of the frame stands once in IPv4's header, and twice in what UDP sums.
        m.d.sync += [
            own_ip_part.eq(
                halves(self.own_ip)
                + ((IPV4_VERSION_IHL << 8) + IPV4_DONT_FRAGMENT + (IP_TTL << 8 | IP_PROTOCOL_UDP) - IP_AT)
            ),
            own_udp_part.eq(halves(self.own_ip) + (IP_PROTOCOL_UDP + UDP_PORT - 2 * UDP_AT)),
        ]
        with m.If(self.steps[0]):
            m.d.sync += [ip_part.eq(own_ip_part + self.length), udp_part.eq(own_udp_part + (self.length << 1))]
        with m.If(self.steps[1]):
            m.d.sync += [
                hosts.eq(halves(self.address.ip)),
                ports.eq(udp_part + swapped(self.address.udp)),
                rest.eq(ip_part),
            ]
        with m.If(self.steps[2]):
            m.d.sync += [ip_total.eq(rest + hosts), udp_total.eq(ports + hosts)]

        ip_sum, udp_sum = fold_carries(m, ip_total), fold_carries(m, udp_total)
        with m.If(self.steps[3]):
            # A UDP checksum of 0 says that there is none: 0xFFFF goes out instead.
            m.d.sync += [self.ip.eq(~swapped(ip_sum)), self.udp.eq(Mux(udp_sum == 0xFFFF, 0xFFFF, ~swapped(udp_sum)))]
        return m


def stamp_of(m, own_mac, own_ip, address, length, checksums):
    """The first bytes of a frame, up to our header."""
    image = Signal(layout(ADDRESSES))
    number = lambda value: Const(value, 16)
    ip_length, udp_length = Signal(16), Signal(16)
    m.d.comb += [ip_length.eq(length - IP_AT), udp_length.eq(length - UDP_AT)]
    for name, value in (
        ("eth_dst", address.mac),
        ("eth_src", own_mac),
        ("eth_type", swapped(number(ETHERTYPE_IPV4))),
        ("ip_version_ihl", IPV4_VERSION_IHL),
        ("ip_length", swapped(ip_length)),
        ("ip_fragment", swapped(number(IPV4_DONT_FRAGMENT))),
        ("ip_ttl", IP_TTL),
        ("ip_protocol", IP_PROTOCOL_UDP),
        ("ip_checksum", checksums.ip),
        ("ip_src", own_ip),
        ("ip_dst", address.ip),
        ("udp_src", swapped(number(UDP_PORT))),
        ("udp_dst", address.udp),
        ("udp_length", swapped(udp_length)),
        ("udp_checksum", checksums.udp),
    ):
        field = image[name]
        m.d.comb += (field.as_value() if isinstance(field, data.View) else field).eq(value)
    return image.as_value()


def merged(m, word, stamp, index):
    """The data of word `index` of a frame, stamped bytes in the place of those before our header."""
    bus_bits, made = len(word), Signal.like(word)
    m.d.comb += made.eq(word)
    with m.Switch(index):
        for low in range(0, len(stamp), bus_bits):
            part = stamp[low : low + bus_bits]
            with m.Case(low // bus_bits):
                m.d.comb += made[: len(part)].eq(part)
    return made


class Departure(data.Struct):
    """The port that sends a frame, and the frame's length in bytes."""

    port: 4
    length: LENGTH_BITS


class Stamp(wiring.Component):
    """Puts addresses and checksums into replies, whose words say where they go.

    Latency 5 cycles, one word per cycle, never stalls.
    """

    def __init__(self, *, bus_bits: int):
        require_bus("Stamp", bus_bits)
        self.bus_bits = bus_bits
        super().__init__(
            {
                "i": In(stream.Signature(Packet(bus_bits, meta=ReplyRoute), always_ready=True)),
                "own_mac": In(48),
                "own_ip": In(32),
                "o": Out(stream.Signature(Packet(bus_bits, meta=Departure, first=True), always_ready=True)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        header_words = FRAME_BYTES * 8 // self.bus_bits
        stages = [
            Signal(Packet(self.bus_bits, meta=ReplyRoute, first=True), name=f"stage_{k}", reset_less=True)
            for k in range(5)
        ]
        valids = Signal(len(stages))
        m.d.sync += valids.eq(Cat(self.i.valid, valids))
        first, asked = first_of(m, self.i), self.i.payload
        with m.If(self.i.valid):
            m.d.sync += [
                word_of(stages[0]).eq(word_of(asked)),
                stages[0].first.eq(first),
                stages[0].meta.eq(asked.meta),
            ]
        for k, (before, after) in enumerate(pairwise(stages)):
            with m.If(valids[k]):
                m.d.sync += after.eq(before)

        m.submodules.checksums = checksums = Checksums()
        index, ready = Signal(range(header_words + 1)), stages[-1]
        m.d.comb += [
            checksums.own_ip.eq(self.own_ip),
            checksums.length.eq(stages[0].meta.length),
            checksums.address.eq(stages[1].meta.address),
            checksums.steps.eq(Cat(valid & stage.first for valid, stage in zip(valids, stages[:4], strict=False))),
        ]
        with m.If(valids[3]):
            m.d.sync += index.eq(Mux(stages[3].first, 0, Mux(index == header_words, index, index + 1)))
        stamp = stamp_of(m, self.own_mac, self.own_ip, ready.meta.address, ready.meta.length, checksums)
        out = self.o.payload
        m.d.comb += [
            self.o.valid.eq(valids[-1]),
            word_of(out).eq(word_of(ready)),
            out.first.eq(ready.first),
            out.meta.port.eq(ready.meta.port),
            out.meta.length.eq(ready.meta.length),
            self.busy.eq(valids.any()),
        ]
        m.d.comb += out.data.eq(merged(m, ready.data, stamp, index))
        return m
