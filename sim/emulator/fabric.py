"""Switches and the cables between them. `WallTime` or `VirtualTime` runs them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sim.emulator.attachment import Attachment
from sim.emulator.device import Device
from sim.emulator.link import Link, Place
from sim.emulator.pcap import Capture
from sim.emulator.port import Port
from sim.emulator.wire import Wire

__all__ = ["Fabric", "Node"]


class Node:
    """A board and its ports."""

    def __init__(self, board: Device, captures: Sequence[Capture | None]):
        self.board = board
        self.ports = [Port(board, number, capture) for number, capture in enumerate(captures)]


class Fabric:
    """Boards, each with its own configuration, seed and addresses, joined by links.

    The switches have no spanning tree: in a cycle of links they forward flooded frames forever. `seed` is for the
    links' faults. `pcap` is a folder for one capture per port, `switchSportP.pcap`, or `portP.pcap` of a single switch.
    `epoch_ns` is the fabric's time 0 in nanoseconds from 1970, for the captures.
    """

    def __init__(
        self,
        boards: Sequence[Device],
        links: Sequence[Link] = (),
        *,
        seed: int = 1,
        pcap: Path | None = None,
        epoch_ns: int = 0,
    ):
        if not boards:
            raise ValueError("Fabric boards must be at least one, not none")
        if pcap:
            pcap.mkdir(parents=True, exist_ok=True)
        self.nodes: list[Node] = []
        for number, board in enumerate(boards):
            prefix = f"switch{number}" if len(boards) > 1 else ""
            names = [f"{prefix}port{port}.pcap" for port in range(board.config.ports)]
            self.nodes.append(Node(board, [Capture(pcap / name, epoch_ns) if pcap else None for name in names]))
        self.links = tuple(links)
        try:
            for link in self.links:
                one, other = self._free(link.one), self._free(link.other)
                there, back = link.wire(link.one, seed), link.wire(link.other, seed)
                one.connect(back, there)
                other.connect(there, back)
        except ValueError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close attachments and captures, but not the boards."""
        for port in self.ports():
            port.close()

    def ports(self) -> Iterator[Port]:
        """The ports of all switches, in order."""
        for node in self.nodes:
            yield from node.ports

    def wires(self) -> Iterator[Wire]:
        """The wires of all cables: first those that lead out of a port, then those that lead from an attachment into
        one."""
        yield from (port.outbound for port in self.ports() if port.outbound)
        yield from (port.inbound for port in self.ports() if port.inbound and port.attachment)

    def plug(
        self, place: Place, attachment: Attachment, *, inbound: Wire | None = None, outbound: Wire | None = None
    ) -> None:
        """Attach something at a free port. `inbound` and `outbound` are the wires of its cable, as the switch sees
        them; None is a perfect wire. The attachment is closed with the fabric, or at once if it cannot be plugged in
        (ValueError)."""
        try:
            self._free(place).connect(inbound or Wire(), outbound or Wire(), attachment)
        except ValueError:
            attachment.close()
            raise

    def _free(self, place: Place) -> Port:
        switch, port = place
        if not (0 <= switch < len(self.nodes) and 0 <= port < len(self.nodes[switch].ports)):
            raise ValueError(
                f"a place must be a switch of 0 to {len(self.nodes) - 1} and one of its ports, not {switch}:{port}"
            )
        found = self.nodes[switch].ports[port]
        if found.plugged:
            raise ValueError(f"a port takes one cable, and {switch}:{port} has one already")
        return found
