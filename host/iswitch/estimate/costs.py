"""What hosts, cards, cables and switches take, and whence each figure is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

__all__ = ["MEASURED", "SOURCES", "TCP", "Costs", "Framing", "describe_costs"]

MEASURED = "measured by `python -m sim.cluster.host_costs`"
LITERATURE = "a usual figure, not measured here"


class Framing(NamedTuple):
    """Bytes of a packet on Ethernet.

    Parameters
    ----------
    payload_bytes : int
        The most payload in a packet.
    overhead_bytes : int
        Everything else in the time of a packet: preamble, headers, FCS, gap.
    """

    payload_bytes: int
    overhead_bytes: int

    def wire_bytes(self, size: int) -> int:
        """Return the bytes on the wire for a payload of any size."""
        return size + max(1, -(-size // self.payload_bytes)) * self.overhead_bytes


TCP = Framing(1448, 8 + 14 + 20 + 32 + 4 + 12)
"""TCP with time stamps over IPv4, in frames of 1,500 bytes."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times of the parts from which all systems are built. The same values hold for every system.

    Parameters
    ----------
    tcp_call_us : float
        Processor time of one `send` or `recv`, without the bytes.
    tcp_send_byte_ns, tcp_receive_byte_ns : float
        Processor time of a byte through a TCP socket.
    wake_us : float
        From the arrival of data to the process that waits for it.
    sum_byte_ns : float
        Processor time of adding a float32 vector to another, for a byte of it.
    update_byte_ns : float
        Processor time of applying a sum to the weights, for a byte of it.
    udp_call_us : float
        Processor time of a call of the iswitch driver that sums one vector, without bursts and datagrams: the driver's
        Python.
    udp_burst_us, udp_datagram_us : float
        Processor time of the iswitch driver for a burst of datagrams that it sends or receives, and for each datagram
        in it.
    card_us : float
        Time of a network card and its interrupt, on each side.
    cable_us : float
        Time of a cable.
    forward_us : float
        Time of an ordinary switch from the last bit of a packet in to the first bit out.
    cycles : int
        Clock cycles of the iswitch from the last word of the contribution that completes a sum into a port to the last
        word of its result out of a port, less one for each word of the result.
    clock_hz : float
        Clock of the iswitch.
    bus_bytes : int
        Bytes that the iswitch adds in a cycle.

    Raises
    ------
    ValueError
        If a cost is negative, or the clock or the bus is 0.
    """

    tcp_call_us: float = 1.6
    tcp_send_byte_ns: float = 0.06
    tcp_receive_byte_ns: float = 0.2
    wake_us: float = 7.0
    sum_byte_ns: float = 0.04
    update_byte_ns: float = 0.1
    udp_call_us: float = 120.0
    udp_burst_us: float = 5.9
    udp_datagram_us: float = 0.3
    card_us: float = 5.0
    cable_us: float = 1.0
    forward_us: float = 1.0
    cycles: int = 29
    clock_hz: float = 200e6
    bus_bytes: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0:
                raise ValueError(f"Costs {field.name} must not be negative, not {value!r}")
            if field.name in ("clock_hz", "bus_bytes") and not value:
                raise ValueError(f"Costs {field.name} must be above 0, not {value!r}")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Costs":
        """Return the costs with some of them given by name.

        Raises
        ------
        ValueError
            If a name is not that of a cost.
        """
        if unknown := set(given) - {field.name for field in fields(cls)}:
            raise ValueError(f"no costs are called {', '.join(sorted(unknown))}")
        return cls(**given)


SOURCES = {
    "tcp_call_us": MEASURED,
    "tcp_send_byte_ns": MEASURED,
    "tcp_receive_byte_ns": MEASURED,
    "wake_us": MEASURED,
    "sum_byte_ns": MEASURED,
    "update_byte_ns": MEASURED,
    "udp_call_us": MEASURED,
    "udp_burst_us": MEASURED,
    "udp_datagram_us": MEASURED,
    "card_us": LITERATURE,
    "cable_us": "200 m of fibre",
    "forward_us": LITERATURE,
    "cycles": "counted in the compiled RTL",
    "clock_hz": "the clock that the NetFPGA-SUME needs for four ports of 10 Gb/s",
    "bus_bytes": "the default build",
}


def describe_costs(costs: Costs) -> list[tuple[str, float, str]]:
    """Return name, value and source of each cost."""
    return [(name, value, SOURCES[name]) for name, value in asdict(costs).items()]
