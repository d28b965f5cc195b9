"""AllReduce by the systems that the software switch is compared with, over loopback, with one interface.

A system serves (`serve`, a process of its own, or None) and gives each worker a function that replaces a float32 array
by the sum of all workers' arrays. The TCP systems are written as plainly as possible, with numpy for the sums.
"""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import numpy as np

from iswitch import AsyncWorker, Worker
from iswitch.config import Config
from iswitch.driver.half_width import narrow, widen
from iswitch.switch.server import SwitchServer
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_port, open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import Format

__all__ = [
    "ECHO", "HALF", "HOST", "OTHER_CALLS", "SYSTEMS", "InstantSocket", "Reduce", "System", "ring_reduce",
    "server_reduce",
]  # fmt: skip

HOST = "127.0.0.1"
CONNECT_S = 60.0
KEY = 0xC0
BUFFER_BYTES = 4 << 20
UDP_SEGMENT, UDP_GRO = 103, 104
BURST_BYTES, DATAGRAM_BYTES = 65507, 8858
"""The longest burst, and a full datagram of `iswitch switch` on loopback."""
ECHO_IN_FLIGHT_BYTES = 8 * BURST_BYTES


class Peer(Protocol):
    """What the plain systems need of a connected socket."""

    def sendall(self, data: Any, /) -> None: ...
    def recv_into(self, buffer: memoryview, nbytes: int, flags: int, /) -> int: ...
    def getsockopt(self, level: int, option: int, /) -> int: ...


Reduce = Callable[[np.ndarray], Any]
"""Replaces an array by the sum of all workers' arrays."""


class System(NamedTuple):
    """`serve(control, world, size_bytes)` sends its address, then serves until it is terminated.

    `connect(stack, address, rank,
    world)` returns a worker's `Reduce`; what it opens is closed with the stack. `expected(arrays)` is what each worker
    has then."""

    serve: Callable[[Connection, int, int], None] | None
    connect: Callable[[ExitStack, int, int, int], Reduce]
    expected: Callable[[list[np.ndarray]], Any] = sum


# The software switch


def serve_switch(control: Connection, world: int, size_bytes: int) -> None:
    sockets = open_ports(HOST, [0] * Config.ports)
    switch = SoftwareSwitch(config_for(sockets), mac=bytes(6), ip=bytes(4), seed=time.time_ns())
    with SwitchServer(switch, sockets) as server:
        control.send([opened.getsockname()[1] for opened in server.sockets])
        server.serve()


def connect_switch(stack: ExitStack, address: Any, rank: int, world: int) -> Reduce:
    port = address[rank % len(address)]
    return stack.enter_context(Worker(f"{HOST}:{port}", world=world, rank=rank, key=KEY)).allreduce


def connect_half(stack: ExitStack, address: Any, rank: int, world: int) -> Reduce:
    port = address[rank % len(address)]
    worker = Worker(f"{HOST}:{port}", world=world, rank=rank, key=KEY, format="bf16")
    return stack.enter_context(worker).allreduce


def half_sum(arrays: list[np.ndarray]) -> np.ndarray:
    """Return the sum of arrays that are rounded to bfloat16, rounded again. It is exact before, as float32."""
    rounded = [in_bfloat16(array) for array in arrays]
    return in_bfloat16(np.sum(rounded, axis=0, dtype=np.float32))


def in_bfloat16(array: np.ndarray) -> np.ndarray:
    halves, result = np.empty(array.size, np.uint16), np.empty(array.size, np.float32)
    narrow(array.astype(np.float32), Format.BF16, halves)
    widen(halves, Format.BF16, result)
    return result


def connect_broadcast(stack: ExitStack, address: Any, rank: int, world: int) -> Reduce:
    port = address[rank % len(address)]
    return stack.enter_context(Worker(f"{HOST}:{port}", world=world, rank=rank, key=KEY)).broadcast


def connect_push(stack: ExitStack, address: Any, rank: int, world: int) -> Reduce:
    """Each worker pushes its array, and waits for the update, in which all of them are."""
    port, worker = address[rank % len(address)], None

    def push(array: np.ndarray) -> None:
        nonlocal worker
        worker = worker or stack.enter_context(
            AsyncWorker(f"{HOST}:{port}", world=world, rank=rank, key=KEY, size=array.size, staleness=0)
        )
        worker.push(array)
        worker.wait()
        [update] = worker.updates()
        np.copyto(array, update.sum)

    return push


# Gloo


def connect_gloo(stack: ExitStack, address: int, rank: int, world: int) -> Reduce:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://{HOST}:{address}", rank=rank, world_size=world)
    stack.callback(distributed.destroy_process_group)
    return lambda array: distributed.all_reduce(torch.from_numpy(array))


# A parameter server: each worker sends its array and receives the sum


def serve_sums(control: Connection, world: int, size_bytes: int) -> None:
    with socket.create_server((HOST, 0)) as listener:
        control.send(listener.getsockname()[1])
        peers = [tuned(listener.accept()[0]) for _ in range(world)]
    arrays = [np.empty(size_bytes // 4, np.float32) for _ in peers]
    with suppress(ConnectionError, EOFError):
        while True:
            for peer, array in zip(peers, arrays, strict=True):
                receive(peer, memoryview(array).cast("B"))
            for array in arrays[1:]:
                arrays[0] += array
            for peer in peers:
                peer.sendall(arrays[0])
    control.poll(None)  # the end of a process takes processor time that is not that of the sums


def connect_server(stack: ExitStack, address: int, rank: int, world: int) -> Reduce:
    return server_reduce(stack.enter_context(tuned(socket.create_connection((HOST, address), CONNECT_S))))


def server_reduce(peer: Peer) -> Reduce:
    """Return what a worker of the server does, given its socket."""

    def reduce(array: np.ndarray) -> None:
        peer.sendall(array)
        receive(peer, memoryview(array).cast("B"))

    return reduce


# A ring: each worker sends one part to the next one and receives one from the one before, 2 (world - 1) times


def connect_ring(stack: ExitStack, address: int, rank: int, world: int) -> Reduce:
    listener = stack.enter_context(socket.create_server((HOST, address + rank)))
    following = stack.enter_context(tuned(connect_patiently(address + (rank + 1) % world)))
    return ring_reduce(following, stack.enter_context(tuned(listener.accept()[0])), rank, world)


def ring_reduce(following: Peer, before: Peer, rank: int, world: int) -> Reduce:
    """Return what a worker of the ring does, given the sockets to the next worker and from the one before."""

    def reduce(array: np.ndarray) -> None:
        parts = np.array_split(array, world)
        received = np.empty(len(parts[0]), np.float32)
        for step in range(2 * (world - 1)):
            sent, wanted = parts[(rank - step) % world], parts[(rank - step - 1) % world]
            into = received[: len(wanted)] if step < world - 1 else wanted
            pass_on(following, memoryview(sent).cast("B"), before, memoryview(into).cast("B"))
            if step < world - 1:
                wanted += into

    return reduce


def pass_on(following: Peer, sent: memoryview, before: Peer, into: memoryview) -> None:
    """Send to one neighbour and receive from the other, in pieces that the kernel holds, so that neither waits."""
    piece = before.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 4
    for at in range(0, max(len(sent), len(into)), piece):
        following.sendall(sent[at : at + piece])
        receive(before, into[at : at + piece])


def connect_patiently(port: int) -> socket.socket:
    """Connect to a worker that may not listen yet."""
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection((HOST, port), CONNECT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def tuned(connected: socket.socket) -> socket.socket:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connected.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return connected


def receive(peer: Peer, into: memoryview) -> None:
    """Receive until the buffer is full.

    Raises
    ------
    EOFError
        If the peer has closed the connection.
    """
    while len(into):
        got = peer.recv_into(into, 0, socket.MSG_WAITALL)
        if not got:
            raise EOFError
        into = into[got:]


class InstantSocket:
    """Stands for a socket that takes all that is sent, and has received all that is wanted, without a system call."""

    def sendall(self, data: Any, /) -> None:
        pass

    def recv_into(self, buffer: memoryview, nbytes: int, flags: int, /) -> int:
        return len(buffer)

    def getsockopt(self, level: int, option: int, /) -> int:
        return 2 * BUFFER_BYTES


# The bound: bursts of datagrams there and back, without sums and without a protocol


def serve_echo(control: Connection, world: int, size_bytes: int) -> None:
    with open_port(HOST, 0) as echo:
        echo.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        control.send(echo.getsockname()[1])
        burst = bytearray(BURST_BYTES)
        while True:
            size, _, _, sender = echo.recvmsg_into([burst], 64)
            echo.sendmsg([memoryview(burst)[:size]], segment_option() if size > DATAGRAM_BYTES else [], 0, sender)


def connect_echo(stack: ExitStack, address: int, rank: int, world: int) -> Reduce:
    peer = stack.enter_context(open_port(HOST, 0))
    peer.connect((HOST, address))
    peer.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    burst_bytes = BURST_BYTES // DATAGRAM_BYTES * DATAGRAM_BYTES

    def exchange(array: np.ndarray) -> None:
        view = memoryview(array).cast("B")
        sent = received = 0
        while received < len(view):
            while sent < len(view) and sent - received < ECHO_IN_FLIGHT_BYTES:
                burst = view[sent : sent + burst_bytes]
                peer.sendmsg([burst], segment_option() if len(burst) > DATAGRAM_BYTES else [])
                sent += len(burst)
            received += peer.recvmsg_into([view[received:]], 64)[0]

    return exchange


def segment_option() -> list[tuple[int, int, bytes]]:
    return [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", DATAGRAM_BYTES))]


SYSTEMS = {
    "iswitch": System(serve_switch, connect_switch),
    "gloo": System(None, connect_gloo),
    "tcp_server": System(serve_sums, connect_server),
    "tcp_ring": System(None, connect_ring),
}
ECHO = System(serve_echo, connect_echo)
"""Gives an array back. With one worker that is its sum."""
OTHER_CALLS = {
    "broadcast": System(serve_switch, connect_broadcast, lambda arrays: arrays[0]),
    "push": System(serve_switch, connect_push),
}
"""Other calls of a worker than `allreduce`, at the software switch."""
HALF = System(serve_switch, connect_half, half_sum)
"""`allreduce` of float32 in a job of format `bf16`, at the software switch."""
