"""The wire as scapy layers typed from `docs/protocol.md`: an outside oracle that shares nothing with `iswitch.wire`,
with scapy's own Ethernet, IPv4, UDP and checksums."""

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    LEIntField,
    LELongField,
    LEShortField,
    LESignedShortField,
    StrFixedLenField,
    XLEIntField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers
from scapy.utils import checksum

__all__ = ["Ack", "Control", "Header", "address", "checked"]

UDP_PORT = 26963
TYPES = {
    0: "CONTRIBUTION",
    1: "RESULT",
    3: "RECEIPT",
    4: "NOTICE",
    5: "CONTROL",
    6: "ACK",
    7: "CLAIM",
    8: "GRANT",
    9: "REFUSE",
}
ACTIONS = {1: "JOIN", 2: "LEAVE", 3: "RESET", 4: "SET_H", 5: "READ"}


class Header(Packet):
    name = "iswitch"
    fields_desc = [
        BitField("version", 2, 4),
        BitEnumField("type", 0, 4, TYPES),
        ByteField("job", 0),
        LEShortField("epoch", 0),
        LEIntField("seq", 0),
        ByteField("member", 255),
        BitField("flags", 0, 4),
        BitField("format", 0, 4),
        LEShortField("count", 0),
        LEShortField("behind", 0),
        XLEIntField("members", 0),
        XLEIntField("token", 0),
    ]

    def guess_payload_class(self, payload):
        return {5: Control, 6: Ack}.get(self.type, Raw)


class Control(Packet):
    fields_desc = [
        ByteEnumField("action", 1, ACTIONS),
        ByteField("format", 0),
        LESignedShortField("fraction", 0),
        LEShortField("world", 0),
        LEShortField("threshold", 0),
        LEShortField("elements", 0),
        ByteField("mode", 0),
        ByteField("staleness", 0),
        LEIntField("deadline_us", 0),
        LELongField("key", 0),
        LELongField("nonce", 0),
        LELongField("step", 0),
        LEIntField("address", 0),
        LEIntField("segments", 0),
        XLEIntField("job_token", 0),
        XLEIntField("challenge", 0),
        LELongField("operator_key", 0),
    ]


class Ack(Packet):
    fields_desc = [
        ByteEnumField("action", 0, ACTIONS),
        ByteField("reason", 0),
        ByteField("state", 0),
        ByteField("reserved", 0),
        LEShortField("window", 0),
        LEShortField("elements", 0),
        LEShortField("world", 0),
        LEShortField("live", 0),
        LEIntField("first_seq", 0),
        LELongField("nonce", 0),
        LEShortField("threshold", 0),
        LEShortField("members", 0),
        LEIntField("address", 0),
        StrFixedLenField("registers", bytes(32), 32),
    ]


bind_layers(UDP, Header, dport=UDP_PORT)
bind_layers(UDP, Header, sport=UDP_PORT)


def address(mac: str, ip: str, udp_port: int, *, switch_mac: str, switch_ip: str) -> Packet:
    """Return Ethernet, IPv4 and UDP of a frame to the switch; append a `Header`."""
    return Ether(dst=switch_mac, src=mac) / IP(src=ip, dst=switch_ip) / UDP(sport=udp_port, dport=UDP_PORT)


def checked(frame: bytes) -> Packet:
    """Parse a frame of the switch. Raises ValueError unless scapy, with lengths and checksums of its own, makes the
    same frame, and the UDP payload sums to zero."""
    packet = Ether(frame)
    again = packet.copy()
    del again[IP].chksum, again[IP].len, again[UDP].chksum, again[UDP].len
    if bytes(again) != frame:
        raise ValueError(f"scapy makes another frame of it:\n{frame.hex()}\n{bytes(again).hex()}")
    if checksum(bytes(packet[UDP].payload)):
        raise ValueError("the UDP payload does not sum to zero")
    return packet
