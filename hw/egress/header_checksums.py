"""The IPv4 and UDP checksums of a frame that the switch sends."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.stream.checksum import fold_carries
from hw.stream.packet import LENGTH_BITS
from iswitch.wire import ADDRESSES, IP_PROTOCOL_UDP, IP_TTL, IPV4_DONT_FRAGMENT, IPV4_VERSION_IHL, UDP_PORT

__all__ = ["IP_AT", "STEPS", "UDP_AT", "HeaderChecksums", "swapped"]

IP_AT, UDP_AT = (ADDRESSES.fields[name][1] for name in ("ip_version_ihl", "udp_src"))
"""Bytes of a frame before its IPv4 header, and before its UDP header."""
STEPS = 4


def swapped(half: Value) -> Value:
    """Return a 16-bit number with its bytes exchanged: in a frame the upper byte comes first, in the lowest bits."""
    return Cat(half[8:16], half[:8])


def sum_of_halves(octets: Value) -> Value:
    """Return the sum of an IPv4 address's two big-endian halves."""
    return swapped(octets[:16]) + swapped(octets[16:])


class HeaderChecksums(wiring.Component):
    """Computes the IPv4 checksum (RFC 791) and the UDP checksum (RFC 768) of frames whose UDP payload sums to zero.

    Only addresses, ports, protocol and lengths are summed, because our header and payload add nothing. The sum takes
    `STEPS` steps. Step k is done in a cycle in which `steps[k]` is 1; steps of consecutive frames may overlap. No step
    adds more than two numbers.

    Members
    -------
    own_ip : 32, in
        Address of the switch.
    length : LENGTH_BITS, in
        Bytes of the frame, read in step 0.
    address : Address, in
        Destination of the frame, read in step 1.
    ip, udp : 16, out
        The checksums, in wire order. Valid from the cycle after step 3 until the next step 3.
    """

    def __init__(self):
        super().__init__(
            {
                "own_ip": In(32),
                "length": In(LENGTH_BITS),
                "address": In(Address),
                "steps": In(STEPS),
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
        # The length is once in the IPv4 header, and twice in what the UDP checksum covers: header and pseudo header.
        m.d.sync += [
            own_ip_part.eq(
                sum_of_halves(self.own_ip)
                + ((IPV4_VERSION_IHL << 8) + IPV4_DONT_FRAGMENT + (IP_TTL << 8 | IP_PROTOCOL_UDP) - IP_AT)
            ),
            own_udp_part.eq(sum_of_halves(self.own_ip) + (IP_PROTOCOL_UDP + UDP_PORT - 2 * UDP_AT)),
        ]
        with m.If(self.steps[0]):
            m.d.sync += [ip_part.eq(own_ip_part + self.length), udp_part.eq(own_udp_part + (self.length << 1))]
        with m.If(self.steps[1]):
            m.d.sync += [
                hosts.eq(sum_of_halves(self.address.ip)),
                ports.eq(udp_part + swapped(self.address.udp)),
                rest.eq(ip_part),
            ]
        with m.If(self.steps[2]):
            m.d.sync += [ip_total.eq(rest + hosts), udp_total.eq(ports + hosts)]

        ip_sum, udp_sum = fold_carries(m, ip_total), fold_carries(m, udp_total)
        # A UDP checksum of 0 means that there is none, so 0xFFFF is sent instead. The folded sum is 0xFFFF if the lower
        # 16 bits of the total and the upper 4 add up to that without a carry.
        is_zero = udp_total[4:16].all() & (udp_total[:4] == ~udp_total[16:])
        with m.If(self.steps[3]):
            m.d.sync += [self.ip.eq(~swapped(ip_sum)), self.udp.eq(~swapped(udp_sum) | is_zero.replicate(16))]
        return m
