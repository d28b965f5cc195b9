"""Frames that claim to come from the switch itself, and sources that no host has. Section 1 of `docs/protocol.md`."""

from iswitch.golden.interface.message import SwitchAddress

__all__ = ["is_group_source", "is_spoofed"]

ARP, IPV4 = b"\x08\x06", b"\x08\x00"
VLAN_TAGS = (b"\x81\x00", b"\x88\xa8")
"""EtherTypes of the tags of IEEE 802.1Q: the customer's and the service's."""
TAGS_MAX = 2
"""Tags behind which the switch looks for an address. Frames with more of them are dropped."""
IP_SOURCE_AT = {IPV4: 26, ARP: 28}
"""Where an untagged frame names the IPv4 address of its sender (RFC 791, RFC 826)."""


def is_spoofed(frame: bytes, own: SwitchAddress) -> bool:
    """Return whether a frame that a port received has the switch's own MAC or IPv4 address as its source, or may have.

    IPv4 and ARP name an IPv4 source, also behind VLAN tags: a host may take off any number of tags of VLAN 0. The
    switch looks behind two tags, and takes a frame with more of them for a spoof.
    """
    if frame[6:12] == own.mac:
        return True
    tag_bytes = 0
    while frame[12 + tag_bytes : 14 + tag_bytes] in VLAN_TAGS and tag_bytes < 4 * TAGS_MAX:
        tag_bytes += 4
    if frame[12 + tag_bytes : 14 + tag_bytes] in VLAN_TAGS:
        return True
    at = IP_SOURCE_AT.get(frame[12 + tag_bytes : 14 + tag_bytes])
    return at is not None and frame[at + tag_bytes : at + tag_bytes + 4] == own.ip


def is_group_source(frame: bytes) -> bool:
    """Return whether an untagged IPv4 frame comes from a group: a MAC address of several stations, or an IPv4 address
    from 224.0.0.0 on (multicast, reserved, broadcast)."""
    return bool(frame[6] & 1) or frame[26] >= 0xE0
