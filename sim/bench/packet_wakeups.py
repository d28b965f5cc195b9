"""The round trip of a datagram over a veth pair, received by a packet socket in three forms.

`python -m sim.bench.packet_wakeups` prints a table; it needs root. TPACKET_V3 hands frames over in blocks, and a block
with one frame waits for its timer, whose shortest time is 1 ms. So the driver's ring is TPACKET_V2.
"""

import mmap
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from iswitch.driver.packet_ring import PacketRing
from sim.bench.namespaces import Host, connect, obstacle

__all__ = ["FORMS", "round_trips"]

SOL_PACKET, PACKET_RX_RING, PACKET_VERSION, TPACKET_V3, ETH_P_IP = 263, 5, 10, 2, 0x0800
BLOCK_BYTES, BLOCKS, FRAME_BYTES, TIMER_MS = 1 << 17, 16, 2048, 1
STATUS_AT, STATUS_USER = 8, 1
NEAR, FAR, BYTES = "10.99.0.1", "10.99.0.2", 1400
END = b"end"

Receive = Callable[[], None]
"""Waits for a frame and takes it."""
Wait = Callable[[], object]
"""Waits until the socket is readable."""


def datagrams(opened: socket.socket, wait: Wait) -> Receive:
    """Receive by a system call for each frame."""
    opened.bind(("near", ETH_P_IP))
    buffer = bytearray(FRAME_BYTES)

    def receive() -> None:
        wait()
        opened.recv_into(buffer, 0, socket.MSG_DONTWAIT)

    return receive


def slots(opened: socket.socket, wait: Wait) -> Receive:
    """Receive by the driver's ring."""
    ring = PacketRing(opened, FRAME_BYTES, burst_header_bytes=0)
    opened.bind(("near", ETH_P_IP))

    def receive() -> None:
        while not ring.peek():
            wait()
        ring.release()

    return receive


def blocks(opened: socket.socket, wait: Wait) -> Receive:
    """Receive by a ring of blocks."""
    opened.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
    frames = BLOCKS * BLOCK_BYTES // FRAME_BYTES
    request = struct.pack("=7I", BLOCK_BYTES, BLOCKS, FRAME_BYTES, frames, TIMER_MS, 0, 0)
    opened.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
    memory, block = mmap.mmap(opened.fileno(), BLOCKS * BLOCK_BYTES), 0
    opened.bind(("near", ETH_P_IP))

    def receive() -> None:
        nonlocal block
        at = block * BLOCK_BYTES + STATUS_AT
        while not struct.unpack_from("=I", memory, at)[0] & STATUS_USER:
            wait()
        struct.pack_into("=I", memory, at, 0)
        block = (block + 1) % BLOCKS

    return receive


FORMS = {"a system call for each frame": datagrams, "TPACKET_V2, slots": slots, "TPACKET_V3, blocks of 1 ms": blocks}


def echo(opened: socket.socket) -> None:
    """Send all datagrams back, up to `END`."""
    while (received := opened.recvfrom(FRAME_BYTES))[0] != END:
        opened.sendto(*received)


def round_trips(form: str, hosts: tuple[Host, Host], count: int) -> np.ndarray:
    """Return the microseconds of each round trip."""
    near, far = hosts
    with far.inside():
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        peer.bind((FAR, 0))
    with near.inside(), peer, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(peer.getsockname())
        answers = threading.Thread(target=echo, args=(peer,))
        answers.start()
        times = np.empty(count)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
            poll = select.poll()
            poll.register(opened, select.POLLIN)
            receive = FORMS[form](opened, lambda: poll.poll(1000))
            for call in range(count):
                begun = time.perf_counter()
                sender.send(bytes(BYTES))
                receive()
                times[call] = time.perf_counter() - begun
        sender.send(END)
        answers.join()
    return times * 1e6


def main(count: Annotated[int, typer.Option(help="Round trips of each form.")] = 2000) -> None:
    """Measure the round trips, and print a table."""
    console = Console()
    if why := obstacle():
        console.print(f"nothing was measured: {why}")
        raise typer.Exit(1)
    table = Table("received by", "median us", "99th percentile us")
    with connect() as hosts:
        for form in FORMS:
            times = round_trips(form, hosts, count)
            table.add_row(form, f"{np.median(times):.0f}", f"{np.percentile(times, 99):.0f}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
