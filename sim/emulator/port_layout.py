"""The attachments that the command line requests at each port of each switch, and the fabric built from them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sim.emulator.card import Card
from sim.emulator.device import Device
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Faults, Rates, parse_faults
from sim.emulator.link import Link, Place, parse_place
from sim.emulator.tap import Tap
from sim.emulator.udp import UdpSocket
from sim.emulator.wire import Wire

__all__ = ["PortLayout"]


@dataclass(frozen=True, kw_only=True)
class PortLayout:
    """The command line's request.

    The socket of port p of switch s is at `bind`, UDP port `udp_base` + s * ports + p, or any free one with `udp_base`
    0. `taps` are `[switch:]port=name`. `rates` are the faults of every wire that is not a link's, and `faults` are the
    exceptions, `[switch:]port:rx|tx:kind=value`. The switch may be left out if there is only one.
    """

    bind: str = "127.0.0.1"
    udp_base: int = 0
    links: Sequence[Link] = ()
    taps: Sequence[str] = ()
    rates: Rates = field(default_factory=Rates)
    faults: Sequence[str] = ()
    seed: int = 1
    pcap: Path | None = None

    def build(self, boards: Sequence[Device]) -> Fabric:
        """Build the fabric. Raises ValueError if a place does not exist or is used twice, and OSError if a socket or a
        TAP cannot be opened."""
        needed = sum(board.config.ports for board in boards)
        if self.udp_base + needed > 65536:
            raise ValueError(
                f"--udp-base must be at most {65536 - needed}, because {needed} ports follow it, not {self.udp_base}"
            )
        taps = self._taps(boards)
        wires = self._wires(boards)
        fabric = Fabric(boards, self.links, seed=self.seed, pcap=self.pcap, epoch_ns=time.time_ns())
        plug = lambda place, attachment: fabric.plug(
            place, attachment, inbound=wires.get((*place, "rx")), outbound=wires.get((*place, "tx"))
        )
        try:
            for place, name in taps.items():
                plug(place, Tap(name))
            ports = max(board.config.ports for board in boards)
            for switch, node in enumerate(fabric.nodes):
                for number, port in enumerate(node.ports):
                    if not port.plugged:
                        at = self.udp_base + switch * ports + number if self.udp_base else 0
                        plug((switch, number), UdpSocket((self.bind, at), Card(node.board.mac, node.board.ip)))
        except (OSError, ValueError):
            fabric.close()
            raise
        return fabric

    def _taps(self, boards: Sequence[Device]) -> dict[Place, str]:
        found: dict[Place, str] = {}
        for given in self.taps:
            where, equals, name = given.partition("=")
            place = parse_place(where if ":" in where or len(boards) > 1 else f"0:{where}") if equals and name else None
            if place is None:
                raise ValueError(f"a TAP must be [switch:]port=name, not {given!r}")
            if place in found:
                raise ValueError(f"a port takes one TAP, and {where} has {found[place]} already")
            found[place] = name
        return found

    def _wires(self, boards: Sequence[Device]) -> dict[tuple[int, int, str], Wire]:
        """Return the wires by switch, port and direction, for ports without a link."""
        linked = {place for link in self.links for place in (link.one, link.other)}
        asked: list[list[str]] = [[] for _ in boards]
        for given in self.faults:
            switch, colon, rest = given.partition(":")
            if given.count(":") < 3:
                switch, rest = "0", given
                if len(boards) > 1:
                    raise ValueError(
                        f"a fault must be switch:port:rx|tx:kind=value where there are several switches, not {given!r}"
                    )
            if not switch.isdecimal() or int(switch) >= len(boards):
                raise ValueError(f"a fault's switch must be 0 to {len(boards) - 1}, not {switch!r}")
            if any(rest.startswith(f"{port}:") for at, port in linked if at == int(switch)):
                raise ValueError(f"set the faults of a link in --link (0:3-2:0,loss=0.01), not with --fault {given!r}")
            asked[int(switch)].append(rest)
        return {
            (switch, port, direction): Wire(Faults(rates, seed=self.seed + switch, port=port, direction=direction))
            for switch, board in enumerate(boards)
            for (port, direction), rates in parse_faults(self.rates, asked[switch], board.config.ports).items()
            if (switch, port) not in linked
        }
