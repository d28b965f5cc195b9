"""Switches and the cables between them, as a thing at rest; `WallTime` or `VirtualTime` makes it go."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sim.emulator.attachment import Attachment
from sim.emulator.engine import Board
from sim.emulator.link import Link, Place
from sim.emulator.pcap import Capture
from sim.emulator.port import Port
from sim.emulator.wire import Wire

__all__ = ["Fabric", "Node"]


class Node:
    """A board and its ports."""

    def __init__(self, board: Board, captures: Sequence[Capture | None]):
        self.board = board
        self.ports = [Port(board, number, capture) for number, capture in enumerate(captures)]


class Fabric:
    """Any number of boards, each of its own configuration, seed and addresses, joined by links. Where links make a
    loop, switches that flood send frames round it for ever: that is the builder's to avoid.

    seed: of the links' faults. pcap: a folder for one capture per port, `switchSportP.pcap`, of a lone switch
    `portP.pcap`. epoch_ns: nanoseconds from 1970 to the fabric's time 0, for the captures.
    """

    def __init__(
        self,
        boards: Sequence[Board],
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
        """Closes attachments and captures, not the boards."""
        for port in self.ports():
            port.close()

    def ports(self) -> Iterator[Port]:
        """Of all switches, in order."""
        for node in self.nodes:
            yield from node.ports

    def wires(self) -> Iterator[Wire]:
        """Of all cables: first all that lead out of a port, then those that lead from attachments into one."""
        yield from (port.outbound for port in self.ports() if port.outbound)
        yield from (port.inbound for port in self.ports() if port.inbound and port.attachment)

    def plug(
        self, place: Place, attachment: Attachment, *, inbound: Wire | None = None, outbound: Wire | None = None
    ) -> None:
        """Attaches something at a free port. inbound, outbound: its cable, as the switch sees it; None is a perfect
        one. The attachment is closed with the fabric, or at once where it cannot be plugged in (ValueError)."""
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
