"""The switch's reply to an ARP or ICMP echo request."""

from amaranth.lib import data

__all__ = ["HostReply"]


class HostReply(data.Struct):
    """The fields of an ARP or ICMP echo reply that depend on the requester, if the frame is a request (`valid`): the
    requester's addresses, and the ICMP checksum of an echo reply. Bytes are in wire order, first byte lowest."""

    valid: 1
    is_arp: 1
    mac: 48
    ip: 32
    checksum: 16
