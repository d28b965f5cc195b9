"""One switch in wall time with a UDP socket at each port."""

import time
from pathlib import Path

from sim.emulator.card import Card
from sim.emulator.device import Device
from sim.emulator.fabric import Fabric
from sim.emulator.faults import Faults
from sim.emulator.port import Port
from sim.emulator.udp import UdpSocket
from sim.emulator.wall import SLICE_CYCLES, WallTime
from sim.emulator.wire import Wire

__all__ = ["Emulator"]


class Emulator(WallTime):
    """One switch with a UDP socket at each port.

    `bind` is the host, and the UDP port of port 0; the other ports follow, or with 0 the kernel chooses. `faults` are
    given by port and direction ("rx" enters the switch). `pcap` is a folder for one capture per port, taken at the
    switch's side of the cable.
    """

    def __init__(
        self,
        board: Device,
        bind: tuple[str, int] = ("127.0.0.1", 0),
        *,
        faults: dict[tuple[int, str], Faults] | None = None,
        pcap: Path | None = None,
        slice_cycles: int = SLICE_CYCLES,
    ):
        self.board = board
        wire = lambda number, direction: Wire((faults or {}).get((number, direction)))
        fabric = Fabric([board], pcap=pcap, epoch_ns=time.time_ns())
        try:
            for number in range(board.config.ports):
                attachment = UdpSocket((bind[0], bind[1] + number if bind[1] else 0), Card(board.mac, board.ip))
                fabric.plug((0, number), attachment, inbound=wire(number, "rx"), outbound=wire(number, "tx"))
        except OSError:
            fabric.close()
            raise
        super().__init__(fabric, slice_cycles=slice_cycles)

    @property
    def ports(self) -> list[Port]:
        return self.fabric.nodes[0].ports

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The address of each port, for its clients."""
        return [port.attachment.address for port in self.ports if port.attachment]
