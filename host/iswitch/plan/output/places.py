"""Numbers and addresses of switches, ports and ranks, and small numbers of a configuration."""

import ipaddress
from collections.abc import Iterable
from itertools import count
from typing import Any

from iswitch.plan.topology.topology import Topology, natural_key

__all__ = ["Places", "format_ranges", "power_of_two"]


class Places:
    """Numbers of switches, ports and ranks, and addresses, in the order of names. Ports to hosts come first.

    A port that the topology numbers has that number. The others have the numbers that are left.
    """

    def __init__(self, topology: Topology, first_mac: int, first_ip: ipaddress.IPv4Address):
        self.topology = topology
        self.number = {switch: number for number, switch in enumerate(topology.switches)}
        self.ports = {switch: self._ports(switch) for switch in self.number}
        self.rank = {worker: rank for rank, worker in enumerate(topology.workers)}
        self.mac = {switch: (first_mac + number).to_bytes(6).hex(":") for switch, number in self.number.items()}
        self.ip = {switch: str(first_ip + number) for switch, number in self.number.items()}

    def _ports(self, switch: str) -> dict[str, int]:
        """Return the port to each neighbour of a switch, in the order of ports."""
        given = self.topology.numbered_ports(switch)
        left = (port for port in count() if port not in given.values())
        others = sorted(
            (near for near in self.topology.graph[switch] if near not in given),
            key=lambda near: (near in self.number, natural_key(near)),
        )
        return dict(sorted((given | dict(zip(others, left))).items(), key=lambda item: item[1]))

    def number_of_ports(self) -> int:
        """Return how many ports a switch must have so that each switch has its ports."""
        return 1 + max(port for ports in self.ports.values() for port in ports.values())

    def address(self, node: str) -> dict[str, Any]:
        """Return how a stream reaches a node: a switch by its number and addresses, a host by its name."""
        if node not in self.number:
            return {"host": node}
        return {"switch": node, "number": self.number[node], "mac": self.mac[node], "ip": self.ip[node]}


def format_ranges(ranks: Iterable[int]) -> str:
    """Return ranks as ranges, such as ``0-3,7``: the form that `--leaf` of the emulated board accepts."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def power_of_two(value: int) -> int:
    """Return the least power of two that is not below `value`."""
    return 1 << max(value - 1, 0).bit_length()
