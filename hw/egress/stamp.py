"""Writes addresses and checksums into the first bytes of frames that the switch sends."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.egress.header_checksums import IP_AT, STEPS, UDP_AT, HeaderChecksums, swapped
from hw.interface.layout import layout
from hw.interface.reply import ReplyRoute
from hw.stream.packet import LENGTH_BITS, Packet, first_of, require_bus
from hw.stream.stages import Stages, record
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

__all__ = ["Departure", "Stamp", "addresses_of", "stamped"]


def addresses_of(m, own_mac, own_ip, address, length, checksums: HeaderChecksums) -> Value:
    """Return the first bytes of a frame, up to our header: `iswitch.wire.ADDRESSES`."""
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


def stamped(m, word: Value, addresses: Value, index: Value) -> Value:
    """Return the data of word `index` of a frame, with the addresses in its first bytes."""
    bus_bits, result = len(word), Signal.like(word)
    m.d.comb += result.eq(word)
    with m.Switch(index):
        for low in range(0, len(addresses), bus_bits):
            part = addresses[low : low + bus_bits]
            with m.Case(low // bus_bits):
                m.d.comb += result[: len(part)].eq(part)
    return result


class Departure(data.Struct):
    """The port that sends a frame, and the frame's length in bytes."""

    port: 4
    length: LENGTH_BITS


class Stamp(wiring.Component):
    """Writes the addresses of `ReplyRoute` and the checksums into replies. Their UDP payload sums to zero.

    A word leaves 5 cycles after it entered; one word per cycle, never stalls.
    """

    LATENCY = STEPS + 1

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
        shape = Packet(self.bus_bits, meta=ReplyRoute, first=True)
        Waiting = record("Waiting", **{name: field.shape for name, field in shape})
        pipe, valid = Stages(m, (Waiting,) * self.LATENCY), Signal(self.LATENCY)
        m.d.sync += valid.eq(Cat(self.i.valid, valid))
        word = self.i.payload
        stages = [pipe.then(Waiting, first=first_of(m, self.i), **{name: word[name] for name, _ in word.shape()})]
        stages += [pipe.then(Waiting) for _ in range(self.LATENCY - 1)]

        m.submodules.checksums = checksums = HeaderChecksums()
        m.d.comb += [
            checksums.own_ip.eq(self.own_ip),
            checksums.length.eq(stages[0].meta.length),
            checksums.address.eq(stages[1].meta.address),
            checksums.steps.eq(Cat(valid[k] & stages[k].first for k in range(STEPS))),
        ]
        index, last, out = Signal(range(header_words + 1)), stages[-1], self.o.payload
        with m.If(valid[-2]):
            m.d.sync += index.eq(Mux(stages[-2].first, 0, Mux(index == header_words, index, index + 1)))
        addresses = addresses_of(m, self.own_mac, self.own_ip, last.meta.address, last.meta.length, checksums)
        m.d.comb += [
            self.o.valid.eq(valid[-1]),
            out.data.eq(stamped(m, last.data, addresses, index)),
            *(out[name].eq(getattr(last, name)) for name in ("count", "last", "error", "first")),
            out.meta.port.eq(last.meta.port),
            out.meta.length.eq(last.meta.length),
            self.busy.eq(valid.any()),
        ]
        return m
